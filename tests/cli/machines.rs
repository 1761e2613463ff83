//! The contract with scripts: what `docs/scripting.md` lists is what is printed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{OutputExt, TestRepo, Tine, path_text, require_fuse};

/// The keys that the table after `heading` in `docs/scripting.md` lists, those of a JSON value in
/// its second column left out.
pub fn documented(heading: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scripting.md");
    let page = fs::read_to_string(page).expect("docs/scripting.md can be read");
    let (_, after) = page
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("docs/scripting.md has no line {heading:?}"));
    let keys: BTreeSet<String> = after
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .flat_map(|line| {
            let first = line.split('|').nth(1).expect("a first column");
            first
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(!keys.is_empty(), "the table after {heading:?} is empty");
    keys
}

/// The keys that the row of `verb` in the last table lists in its second column.
pub fn documented_of(verb: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scripting.md");
    let page = fs::read_to_string(page).expect("docs/scripting.md can be read");
    let row = page
        .lines()
        .find(|line| line.starts_with(&format!("| `tine {verb}`")))
        .unwrap_or_else(|| panic!("docs/scripting.md has no row for {verb}"));
    let second = row.split('|').nth(2).expect("a second column");
    second
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| !matches!(*word, "null" | "true"))
        .map(str::to_owned)
        .collect()
}

pub fn keys(value: &Value) -> BTreeSet<String> {
    value
        .as_object()
        .unwrap_or_else(|| panic!("no object: {value}"))
        .keys()
        .cloned()
        .collect()
}

#[test]
fn every_documented_key_is_printed_and_no_other() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = documented("## A fork");
    assert_eq!(keys(&tine.json(&["new", "demo"])), fork);
    assert_eq!(keys(&tine.json(&["path", "demo"])), fork);
    assert_eq!(keys(&tine.json(&["mount", "demo"])), fork);
    assert_eq!(keys(&tine.json(&["list"])["forks"][0]), fork);

    let dir = repo.root().join("repo.forks/demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    let changes: BTreeSet<String> = documented("`tine status` and `tine diff` print");
    let change = documented("and a change has");
    let without = |names: &[&str]| -> BTreeSet<String> {
        change
            .iter()
            .filter(|key| !names.contains(&key.as_str()))
            .cloned()
            .collect()
    };
    let (counts, contents) = (
        ["added_lines", "removed_lines"],
        ["old_content", "new_content"],
    );
    for (args, expected) in [
        (
            &["status", "demo"][..],
            without(&[counts, contents].concat()),
        ),
        (&["diff", "demo"], without(&[counts, contents].concat())),
        (
            &["diff", "demo", "--name-only"],
            without(&[counts, contents].concat()),
        ),
        (&["diff", "demo", "--stat"], without(&contents)),
        (&["diff", "demo", "--content"], without(&counts)),
    ] {
        let printed = tine.json(args);
        let mut changes = changes.clone();
        if args[0] == "status" {
            changes.retain(|key| !["against", "old_tree", "new_tree"].contains(&key.as_str()));
        }
        assert_eq!(keys(&printed), changes, "{args:?}");
        assert_eq!(keys(&printed["changes"][0]), expected, "{args:?}");
    }

    assert_eq!(
        keys(&tine.json(&["stat", "--fork", "demo", "new.txt"])),
        documented("## Paths")
    );
    let listed = tine.json(&["ls", "--fork", "demo"]);
    assert_eq!(keys(&listed["nodes"][0]), documented("## Paths"));
    assert_eq!(
        keys(&tine.json(&["cat", "--fork", "demo", "new.txt"])),
        ["fork".to_owned(), "files".to_owned()].into()
    );
    assert_eq!(
        keys(&tine.json(&["mv", "--fork", "demo", "new.txt", "newer.txt"])),
        documented_of("mv")
    );
    let operation = documented("An operation has");
    assert_eq!(
        keys(&tine.json(&["op", "log", "demo"])["operations"][0]),
        operation
    );
    let taken = tine.json(&["undo", "demo"]);
    assert_eq!(keys(&taken["of"]), operation);
    let told = ["fork", "operation", "of", "notes"];
    assert_eq!(keys(&taken), told.map(str::to_owned).into());
    assert_eq!(
        keys(&tine.json(&["commit", "demo", "-m", "new"])),
        documented_of("commit")
    );
    let snapshot = documented("### A snapshot");
    assert_eq!(keys(&tine.json(&["snapshot", "demo", "one"])), snapshot);
    assert_eq!(
        keys(&tine.json(&["snapshots", "demo"])["snapshots"][0]),
        snapshot
    );
    assert_eq!(
        keys(&tine.json(&["restore", "demo", "one"])),
        documented_of("restore")
    );
    assert_eq!(
        keys(&tine.json(&["reset", "demo"])),
        documented_of("restore")
    );
    assert_eq!(keys(&tine.json(&["gc"])), documented_of("gc"));
    tine.ok(&["snapshot", "demo", "one", "--delete", "--force"]);
    let log = tine.json(&["log", "demo"]);
    assert_eq!(keys(&log), ["commits".to_owned()].into());
    assert_eq!(
        keys(&tine.json(&["daemon", "status"])),
        documented_of("daemon start")
    );
    assert_eq!(
        keys(&tine.json(&["daemon", "start"])),
        documented_of("daemon start")
    );
    let hub = repo.root().join("hub.git");
    repo.git(&["init", "-q", "--bare", path_text(&hub)]);
    repo.git(&["remote", "add", "origin", path_text(&hub)]);
    assert_eq!(
        keys(&tine.json(&["push", "demo"])),
        documented("`tine push` prints")
    );
    assert_eq!(
        keys(&tine.json(&["fetch"])["forks"][0]),
        documented(
            "`failures` (remotes that could not be asked), the latter as in `tine list`. A fork of a remote has"
        )
    );
    let text = repo.dir().join("README.md");
    for (verb, args) in [
        ("write", &["tools.txt", "--file", path_text(&text)][..]),
        ("cat", &["tools.txt"]),
        (
            "edit",
            &["tools.txt", "--old", "A test", "--new", "The test"],
        ),
        ("mv", &["tools.txt", "moved.txt"]),
        ("rm", &["moved.txt"]),
        ("ls", &[]),
        ("search", &["test"]),
        ("context", &[]),
        ("run", &["--shell", "true"]),
    ] {
        let has_agent = !matches!(verb, "edit" | "search" | "context" | "run");
        let agent = if has_agent { " --agent" } else { "" };
        let mut documented = documented_of(&format!("{verb}{agent}"));
        documented.retain(|word| !word.contains(['"', '{', '[']));
        let options: &[&str] = if has_agent { &["--agent"] } else { &[] };
        let words = [&[verb, "--fork", "demo"], options, args].concat();
        assert_eq!(keys(&tine.json(&words)), documented, "{verb}");
    }
    assert_eq!(
        keys(&tine.json(&["unmount", "demo"])),
        documented_of("unmount")
    );
    assert_eq!(
        keys(&tine.json(&["delete", "demo"])),
        documented_of("delete")
    );
    assert_eq!(
        keys(&tine.json(&["completions", "fish"])),
        documented_of("completions")
    );
    assert_eq!(
        keys(&tine.json(&["doctor"])),
        ["ok".to_owned(), "checks".to_owned()].into()
    );
    assert_eq!(
        keys(&tine.json(&["daemon", "stop"])),
        ["running".to_owned()].into()
    );
}

#[test]
fn one_value_on_one_line() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    for args in [
        &["list"][..],
        &["status", "demo"],
        &["log", "demo"],
        &["daemon", "status"],
        &["doctor"],
        &["unmount", "demo"],
        &["status", "nope"],
        &["nonsense"],
    ] {
        let output = tine.run(&[args, &["--json"]].concat());
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{args:?}: {text:?}");
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        assert_eq!(output.error_text(), "", "{args:?}");
    }
}
