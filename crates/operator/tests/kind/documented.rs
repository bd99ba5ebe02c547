//! The kind is small, and `docs/adding-a-kind.md` quotes it word by word.

use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

const KIND: &str = "crates/operator/tests/kind/greeting.rs";
const DOC: &str = "docs/adding-a-kind.md";

#[test]
fn a_whole_kind_is_under_200_lines() {
    let lines = read(KIND).lines().count();
    assert!(lines < 200, "{KIND} has {lines} lines");
}

#[test]
fn the_document_quotes_the_kind_as_it_is() {
    let (kind, doc) = (read(KIND), read(DOC));
    assert!(doc.contains(KIND), "{DOC} says where the kind is");
    let mut quoted = 0;
    for block in doc.split("```rust\n").skip(1) {
        let quote = block.split("```").next().unwrap();
        assert!(kind.contains(quote), "{DOC} quotes what is not in {KIND}:\n{quote}");
        quoted += quote.lines().count();
    }
    let lines = kind.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(
        quoted * 2 > lines,
        "{DOC} quotes {quoted} of {lines} lines: not much of a walk"
    );
}

/// Every room of the house is visited, in the order in which one writes them.
#[test]
fn the_document_visits_every_room() {
    let doc = read(DOC);
    let rooms = [
        "api.rs",
        "records.rs",
        "objects.rs",
        "wake.rs",
        "observe.rs",
        "plan.rs",
        "act.rs",
        "kinds.rs",
    ];
    let mut from = 0;
    for room in rooms {
        let heading = format!("`{room}`");
        let at = doc[from..]
            .lines()
            .position(|line| line.starts_with("## ") && line.contains(&heading));
        let at = at.unwrap_or_else(|| panic!("{DOC} has no room {room} after the one before it"));
        from += doc[from..].lines().take(at).map(|line| line.len() + 1).sum::<usize>();
    }
}
