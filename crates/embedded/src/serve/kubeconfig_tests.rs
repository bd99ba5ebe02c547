use std::os::unix::fs::PermissionsExt as _;

use super::*;

const OTHER: &str = "\
# Mine; do not touch.
apiVersion: v1
kind: Config
clusters:
- cluster:
    server: https://prod.example   # the big one
  name: prod
contexts:
- context: {cluster: prod, user: me}
  name: prod
current-context: prod
users:
- name: me
  user:
    token: \"0123\"

# The end.
";

fn access(token: &str) -> Access {
    Access::new(SocketAddr::from(([127, 0, 0, 1], 6443)), "PEM", token)
}

fn added(old: &str) -> String {
    access("secret").added(old).unwrap()
}

fn broken(text: &str) -> String {
    let (place, what) = access("secret").added(text).unwrap_err();
    format!("{place}: {what}")
}

#[test]
fn all_that_was_there_stays_word_for_word() {
    let new = added(OTHER);
    let left: Vec<&str> = new
        .lines()
        .filter(|line| OTHER.lines().any(|old| old == *line))
        .collect();
    let old: Vec<&str> = OTHER.lines().collect();
    // The new lines are none of the old ones, but for those that every entry has.
    assert!(old.iter().all(|line| left.contains(line)), "{new}");
    assert!(new.contains("current-context: prod\n"), "{new}");
    assert!(new.contains("    token: \"secret\"\n\n# The end.\n"), "{new}");
}

#[test]
fn a_second_time_only_ours_is_renewed() {
    let once = added(OTHER);
    assert_eq!(access("secret").added(&once).unwrap(), once);
    let again = access("other").added(&once).unwrap();
    assert_eq!(again, once.replace("secret", "other"));
}

#[test]
fn every_form_of_a_kubeconfig_keeps_its_meaning() {
    let indented = "clusters:\n  - name: a\n    cluster:\n      server: https://a\n  - name: usher\n    cluster: {server: x}\nusers: []\n";
    let json = r#"{"clusters": [{"name": "a", "cluster": {"server": "https://a"}}], "preferences": {"colors": true}}"#;
    let flow = "clusters: [{name: a, cluster: {server: 'https://a'}}]\npreferences: {}\n";
    let empty = "clusters: null\ncontexts:\nusers: ~\ncurrent-context: \"\"\n";
    for old in [
        OTHER,
        indented,
        json,
        flow,
        empty,
        "# nothing\n",
        "",
        "{}",
        "kind: Config",
    ] {
        let new = added(old);
        let (before, after) = (parsed(old).unwrap_or_default(), parsed(&new).unwrap());
        for key in LISTS {
            let names = |root: &Value| -> Vec<Value> {
                let items = root.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
                items.iter().filter(|item| item["name"] != CONTEXT).cloned().collect()
            };
            assert_eq!(names(&before), names(&after), "{key} of {old}");
            let ours = after[key]
                .as_array()
                .unwrap()
                .iter()
                .filter(|item| item["name"] == CONTEXT);
            assert_eq!(ours.count(), 1, "{key} of {new}");
        }
        assert_eq!(before.get("preferences"), after.get("preferences"));
        let current = before
            .get(CURRENT)
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        assert_eq!(after[CURRENT], current.unwrap_or(CONTEXT), "{old}");
    }
}

#[test]
fn a_broken_file_is_named_with_the_place_and_left_alone() {
    assert_eq!(
        broken("clusters:\n- name: [a\nusers: x\n").split(':').next(),
        Some(" at line 3, column 6")
    );
    assert_eq!(broken("- a\n- b\n"), ": it is no map");
    assert_eq!(broken("users: 3\n"), ": users is no list");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let text = "users:\n- token: s3cr3t\n  - x: [\n";
    fs::write(&file, text).unwrap();
    let said = access("secret").add_to(&file).unwrap_err().to_string();
    assert!(
        said.starts_with(&format!("kubeconfig {} is no valid kubeconfig at line", file.display())),
        "{said}"
    );
    assert!(!said.contains("s3cr3t") && !said.contains("secret"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "no lock, no half of a file is left"
    );
}

#[test]
fn a_file_is_made_or_followed_and_closed_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("new/config");
    access("secret").add_to(&real).unwrap();
    assert_eq!(fs::read_to_string(&real).unwrap(), access("secret").kubeconfig());
    fs::set_permissions(&real, fs::Permissions::from_mode(0o644)).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    access("other").add_to(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&real).unwrap().contains("other"));
}

#[test]
fn what_kubectl_has_locked_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let lock = folder.path().join("config.lock");
    fs::write(&lock, "").unwrap();
    let said = access("secret").add_to(&file).unwrap_err().to_string();
    assert!(said.contains("config.lock is there: kubectl is changing"), "{said}");
    assert!(lock.exists() && !file.exists());
}
