use super::*;

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a table; `%` stands for the desk's folder.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        // Replaced as editors do it, so that two texts of one size and one second differ.
        let fresh = self.path("fresh");
        std::fs::write(&fresh, text.replace('%', &self.folder.path().display().to_string())).unwrap();
        std::fs::rename(&fresh, &path).unwrap();
        path
    }

    fn folders(&self, names: &[&str]) {
        for name in names {
            std::fs::create_dir_all(self.path(name)).unwrap();
        }
    }
}

const TABLE: &str = r#"
images:
- match: "valkey/valkey:*"
  bin: ["%/opt/valkey/{tag}/bin", "%/usr/bin"]
  entrypoint: [sh, -c, 'exec valkey-server "$@" $VALKEY_EXTRA_FLAGS', sh]
  cmd: []
  env: {LANG: C.UTF-8, PORT: 6379, ETC: "/opt/{tag}/etc"}
  user: 999
  workdir: /data
  stopSignal: SIGINT
- match: "registry.local/worker:*"
  root: "%/srv/worker-{tag}"
  user: "app:staff"
- match: "*:1"
  bin: "%/nowhere"
- match: "plain"
"#;

#[test]
fn an_entry_says_how_to_run_its_image_and_tags_run_side_by_side() {
    let desk = Desk::new();
    desk.folders(&["opt/valkey/8.1/bin", "usr/bin", "srv/worker-3"]);
    let images = Images::new(vec![desk.write("images.yaml", TABLE)]);
    let image = images.resolve("docker.io/valkey/valkey:8.1").unwrap();
    assert_eq!(image.bin, Some(desk.path("opt/valkey/8.1/bin")));
    assert_eq!(image.entrypoint[2], "exec valkey-server \"$@\" $VALKEY_EXTRA_FLAGS");
    assert_eq!(image.env["PORT"], "6379");
    assert_eq!(image.env["ETC"], "/opt/8.1/etc");
    assert_eq!(image.user, Some(User::Id { uid: 999, gid: None }));
    assert_eq!(image.workdir.as_deref(), Some("/data"));
    assert_eq!(image.stop_signal.as_deref(), Some("SIGINT"));
    assert_eq!(
        images.resolve("valkey/valkey:9").unwrap().bin,
        Some(desk.path("usr/bin"))
    );
    let worker = images.resolve("registry.local/worker:3").unwrap();
    assert_eq!(worker.root, Some(desk.path("srv/worker-3")));
    assert_eq!(
        worker.user,
        Some(User::Name {
            user: "app".to_owned(),
            group: Some("staff".to_owned())
        })
    );
    assert_eq!(images.resolve("plain").unwrap().bin, None);
}

#[test]
fn an_image_without_an_entry_is_told_with_the_tables_name() {
    let desk = Desk::new();
    let images = Images::new(vec![desk.write("images.yaml", TABLE)]);
    let missing = images.resolve("shop/web:7").unwrap_err();
    assert_eq!(missing.reason(), "ErrImageNeverPull");
    assert_eq!(
        missing.to_string(),
        format!(
            "Container image \"shop/web:7\" is not in the image table ({}): add an entry that says how to run it",
            desk.path("images.yaml").display()
        )
    );
    let nameless = images.resolve("shop/web:").unwrap_err();
    assert_eq!(nameless.reason(), "InvalidImageName");
    assert_eq!(
        nameless.to_string(),
        "Failed to apply default image tag \"shop/web:\": couldn't parse image name \"shop/web:\": invalid reference format"
    );
}

#[test]
fn an_image_whose_programs_are_not_there_is_told_with_its_entry() {
    let desk = Desk::new();
    let images = Images::new(vec![desk.write("images.yaml", TABLE)]);
    let told = images.resolve("shop/web:1").unwrap_err();
    assert_eq!(told.reason(), "ErrImageNeverPull");
    assert_eq!(
        told.to_string(),
        format!(
            "Container image \"shop/web:1\" is not there: line 14 of {} matches it, but none of its bin folders is there \
             ({}): install the programs or correct that entry",
            desk.path("images.yaml").display(),
            desk.path("nowhere").display()
        )
    );
    let told = images.resolve("registry.local/worker:4").unwrap_err().to_string();
    assert!(
        told.contains(&format!(
            "its root {} is not there",
            desk.path("srv/worker-4").display()
        )),
        "{told}"
    );
}

#[test]
fn the_first_match_of_the_first_file_wins_and_a_later_one_is_not_tried() {
    let desk = Desk::new();
    let first = desk.write(
        "first.yaml",
        "images: [{match: 'a:1', cmd: [first]}, {match: 'a:*', cmd: [second]}]",
    );
    let then = desk.write("then.yaml", "images: [{match: '*', cmd: [third]}]");
    let images = Images::new(vec![first, then]);
    let cmd = |image: &str| images.resolve(image).unwrap().cmd;
    assert_eq!(cmd("a:1"), ["first"]);
    assert_eq!(cmd("a:2"), ["second"]);
    assert_eq!(cmd("b:2"), ["third"]);
}

#[test]
fn a_changed_table_is_read_again_and_a_malformed_one_leaves_the_last_good_in_use() {
    let desk = Desk::new();
    let path = desk.write("images.yaml", "images: [{match: a, cmd: [one]}]");
    let images = Images::new(vec![path]);
    let cmd = || images.resolve("a").map(|image| image.cmd);
    assert_eq!(cmd().unwrap(), ["one"]);
    let version = images.version();
    assert_eq!(images.version(), version, "nothing changed");
    desk.write("images.yaml", "images: [{match: a, cmd: [two]}]");
    assert_eq!(cmd().unwrap(), ["two"]);
    assert!(images.version() > version);
    desk.write("images.yaml", "images: [{match: a, cmd: six}]");
    assert_eq!(cmd().unwrap(), ["two"]);
    assert_eq!(images.errors().len(), 1);
    std::fs::remove_file(desk.path("images.yaml")).unwrap();
    assert_eq!(cmd().unwrap(), ["two"]);
    assert!(
        images.errors()[0].to_string().contains("cannot be read"),
        "{:?}",
        images.errors()
    );
    desk.write("images.yaml", "# nothing yet\n");
    assert!(cmd().is_err());
    assert_eq!(images.errors(), []);
}

#[test]
fn a_malformed_table_is_told_with_file_line_entry_field_and_fix() {
    let rows = [
        (
            "images:\n- match: a\n- match: b\n  bin: 3\n",
            "line 4, entry 2 (match \"b\"), field bin: is 3, which is no list: write a list of absolute folders, in which \
             {tag} stands for the image's tag",
        ),
        (
            "images:\n- match: b\n  bin: [opt]\n",
            "line 3, entry 1 (match \"b\"), field bin: is \"opt\", which does not begin with /: write a list of absolute \
             folders, in which {tag} stands for the image's tag",
        ),
        (
            "images:\n- match: b\n  bin: ['/opt/{version}']\n",
            "line 3, entry 1 (match \"b\"), field bin: has {version} in \"/opt/{version}\", which stands for nothing: write \
             a list of absolute folders, in which {tag} stands for the image's tag",
        ),
        (
            "images:\n\n- cmd: [a]\n",
            "line 3, entry 1, field match: is missing: say which images the entry is for, as `match: \"name:*\"`",
        ),
        (
            "images:\n- match: a\n  command: [a]\n",
            "line 3, entry 1 (match \"a\"), field command: is not known: use match, bin, entrypoint, cmd, env, user, \
             workdir, stopSignal or root",
        ),
        (
            "images:\n- match: a\n  stopSignal: SIGNOT\n",
            "line 3, entry 1 (match \"a\"), field stopSignal: is \"SIGNOT\", which is no signal: write a signal's name, as \
             SIGTERM",
        ),
        (
            "images:\n- match: a\n  user: -1\n",
            "line 3, entry 1 (match \"a\"), field user: is -1, which is no user: write a number, a name, or either with a \
             group behind a colon",
        ),
        (
            "images:\n- match: a\n  env: [a]\n",
            "line 3, entry 1 (match \"a\"), field env: is [\"a\"], which is no map: write names and values, as {LANG: C.UTF-8}",
        ),
        (
            "images:\n- match: a\n  cmd: [[a]]\n",
            "line 3, entry 1 (match \"a\"), field cmd: has [\"a\"], which is no word: write a list of words, as [--port, \"80\"]",
        ),
    ];
    let desk = Desk::new();
    for (text, expected) in rows {
        let path = desk.write("images.yaml", text);
        let errors = Images::new(vec![path.clone()]).errors();
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(told, [format!("image table {}, {expected}", path.display())], "{text}");
    }
}

#[test]
fn a_text_that_is_no_table_is_told_with_its_line() {
    let desk = Desk::new();
    for (text, line) in [
        ("images:\n- match: a\n  b", 3),
        ("images:\n- a\n", 2),
        ("entries: []\n", 1),
        ("images:\n- match: a\n  bin: [/opt/{tag}]\n", 3),
    ] {
        let path = desk.write("images.yaml", text);
        let errors = Images::new(vec![path]).errors();
        assert_eq!(errors.len(), 1, "{text}");
        let told = errors[0].to_string();
        assert_eq!(errors[0].line, Some(line), "{text}: {told}");
        assert!(told.contains("write a list `images:` of entries"), "{told}");
        assert!(!told.contains('\n'), "{told}");
    }
}

#[test]
fn the_listing_shows_what_each_entry_resolves_to() {
    let desk = Desk::new();
    desk.folders(&[
        "opt/valkey/8.1/bin",
        "opt/valkey/9/bin",
        "opt/valkey/broken",
        "usr/bin",
        "srv",
    ]);
    let images = Images::new(vec![desk.write("images.yaml", TABLE)]);
    let listing = images.listing();
    let at = |name: &str| desk.path(name).display().to_string();
    assert_eq!(listing[0].pattern, "valkey/valkey:*");
    assert_eq!(listing[0].line, 3);
    assert_eq!(
        listing[0].resolves_to,
        Ok(format!(
            "{} (tag 8.1), {} (tag 9), {}",
            at("opt/valkey/8.1/bin"),
            at("opt/valkey/9/bin"),
            at("usr/bin")
        ))
    );
    assert_eq!(
        listing[1].resolves_to,
        Err(format!("nothing: none of {} is there", at("srv/worker-{tag}")))
    );
    assert_eq!(listing[3].resolves_to, Ok("the machine's programs".to_owned()));
}

#[test]
fn a_table_that_cannot_be_read_is_told_to_who_looks_for_an_entry_in_it() {
    let desk = Desk::new();
    let images = Images::new(vec![desk.write("images.yaml", "images:\n- match: 7\n")]);
    let told = images.resolve("busybox:1").unwrap_err().to_string();
    let broken = images.errors().first().unwrap().to_string();
    assert!(
        told.starts_with("Container image \"busybox:1\" is not in the image table ("),
        "{told}"
    );
    assert!(
        told.ends_with(&format!("; as it is now it cannot be read: {broken}")),
        "{told}"
    );
    // What an older text of it said is still in use, and says nothing of the trouble.
    desk.write("images.yaml", "images:\n- match: plain\n");
    assert!(images.resolve("plain").is_ok());
    desk.write("images.yaml", "images:\n- match: [\n");
    assert!(images.resolve("plain").is_ok());
    assert!(
        images
            .resolve("other")
            .unwrap_err()
            .to_string()
            .contains("it cannot be read")
    );
}
