//! What the server tells the page and does for it: the same as the commands.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Tine, require_fuse};
use crate::{HOSTILE_CONTENT, HOSTILE_NAME, Ui, fork_with_changes, repo, review};

fn keys(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap_or_else(|| panic!("no object: {value}"))
        .keys()
        .map(String::as_str)
        .collect()
}

/// The rows of a comparison as `-old` and `+new` and ` same`, without marks.
fn rows(compared: &Value) -> Vec<String> {
    let text = |pieces: &Value| -> String {
        let pieces = pieces.as_array().expect("pieces").iter();
        pieces
            .map(|piece| piece[1].as_str().expect("text"))
            .collect()
    };
    let mut rows = Vec::new();
    for hunk in compared["sides"]["hunks"].as_array().expect("hunks") {
        for row in hunk["rows"].as_array().expect("rows") {
            if row["same"].is_array() {
                rows.push(format!(" {}", text(&row["same"])));
                continue;
            }
            rows.extend(
                row["old"]
                    .is_array()
                    .then(|| format!("-{}", text(&row["old"]))),
            );
            rows.extend(
                row["new"]
                    .is_array()
                    .then(|| format!("+{}", text(&row["new"]))),
            );
        }
    }
    rows
}

/// The comparison of the changed path.
fn compared(ui: &Ui, change: &Value, more: &str) -> Value {
    let fields: Vec<String> = ["old_id", "old_mode", "new_id", "new_mode"]
        .iter()
        .filter_map(|field| Some(format!("{field}={}", change[field].as_str()?)))
        .collect();
    ui.ask(&format!("sides?{}{more}", fields.join("&")))
}

#[test]
fn forks_and_what_they_changed_are_told() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = fork_with_changes(&repo, &tine);
    tine.ok(&["snapshot", "parser", "then"]);
    tine.ok(&["new", "reader", "--from-fork", "parser@then"]);
    let ui = Ui::start(&tine);

    let told = ui.ask("forks");
    assert_eq!(
        keys(&told),
        BTreeSet::from(["damaged", "forks", "snapshots"])
    );
    assert_eq!(told["forks"], tine.json(&["list"])["forks"]);
    assert_eq!(told["snapshots"]["parser"][0]["name"], "then");
    assert_eq!(
        told["forks"][1]["parent"],
        json!({"fork": "parser", "snapshot": "then"})
    );
    assert_eq!(
        ui.ask("uncommitted"),
        json!({"parser": {"paths": 4}, "reader": {"paths": 4}})
    );

    let difference = ui.ask("diff?fork=parser");
    let stat = tine.json(&["diff", "parser", "--stat"]);
    assert_eq!(difference, stat, "what `tine diff --stat` tells");
    let changes = difference["changes"].as_array().unwrap();
    let change = |path: &str| {
        let found = changes.iter().find(|change| change["path"] == path);
        found.unwrap_or_else(|| panic!("{path} in {changes:?}"))
    };
    assert_eq!(
        rows(&compared(&ui, change(HOSTILE_NAME), "")),
        [format!("+{}", HOSTILE_CONTENT.trim_end())]
    );
    assert_eq!(
        rows(&compared(&ui, change("list.txt"), "&context=1")),
        [" 1", "-2", "+two of the parser", " 3"]
    );
    assert_eq!(
        rows(&compared(&ui, change("list.txt"), "&context=1000")).len(),
        21
    );
    let words = compared(&ui, change("main.rs"), "");
    assert_eq!(
        words["sides"]["hunks"][0]["rows"][1],
        json!({
            "old": [["plain", "    let limit = read_limit("], ["changed", "10"], ["plain", ");"]],
            "new": [["plain", "    let limit = read_limit("], ["changed", "20"], ["plain", ");"]],
        })
    );
    assert_eq!(
        ui.ask("diff?fork=parser&against=snapshot%3Athen")["changes"],
        json!([])
    );

    repo.sh_in(&dir, "head -c 5000000 /dev/zero | tr '\\0' x > large.txt; printf 'a\\0b' > blob.bin; seq 1 1000 > long.txt");
    let difference = ui.ask("diff?fork=parser");
    let changes = difference["changes"].as_array().unwrap();
    let of = |path: &str, more: &str| {
        compared(
            &ui,
            changes
                .iter()
                .find(|change| change["path"] == path)
                .unwrap(),
            more,
        )
    };
    assert_eq!(
        of("large.txt", "")["new"],
        json!({"form": "large", "bytes": 5_000_000})
    );
    assert_eq!(
        of("blob.bin", "")["new"],
        json!({"form": "binary", "bytes": 3})
    );
    let cut = of("long.txt", "&rows=10");
    assert_eq!(
        (rows(&cut).len(), &cut["sides"]["rows"]),
        (10, &json!(1000))
    );
    assert_eq!(rows(&of("long.txt", "&rows=1000")).len(), 1000);
}

#[test]
fn a_new_pulse_is_told_when_something_happens_and_not_before() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("parser");
    let ui = Ui::start(&tine);
    let pulse = |known: &str| {
        ui.ask(&format!("pulse?known={known}"))["pulse"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let mut known = pulse("");
    assert_eq!(pulse(""), known, "the same as long as nothing happens");
    let happenings: [(&str, &dyn Fn()); 5] = [
        ("a write in the mount", &|| {
            drop(repo.sh_in(&dir, "echo more >> list.txt"))
        }),
        ("another of the same length", &|| {
            drop(repo.sh_in(&dir, "printf M | dd of=list.txt conv=notrunc status=none"))
        }),
        ("a commit", &|| {
            drop(tine.ok(&["commit", "parser", "-m", "more"]))
        }),
        ("a snapshot's fork", &|| {
            drop(tine.ok(&["new", "other", "--from-fork", "parser"]))
        }),
        ("a handoff", &|| {
            drop(tine.ok(&["handoff", "create", "parser"]))
        }),
    ];
    for (what, happen) in happenings {
        happen();
        let new = pulse(&known);
        assert_ne!(new, known, "{what}");
        known = new;
    }
}

#[test]
fn conflicts_are_shown_with_all_contents_resolved_and_committed() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    fork_with_changes(&repo, &tine);
    review(&repo, &tine);
    let ui = Ui::start(&tine);
    let shown = ui.ask("review?review=1");
    assert_eq!(
        (&shown["open"], &shown["state"]),
        (&json!(2), &json!("open"))
    );
    assert_eq!(ui.ask("reviews")["reviews"][0]["id"], 1);
    let list = ui.ask("conflict?review=1&conflict=0");
    assert_eq!(
        (&list["path"], &list["kind"], &list["has_both"]),
        (&json!("list.txt"), &json!("both_modified"), &json!(true))
    );
    assert_eq!(
        list["hunks"],
        json!([{"base": [2, 3], "ours": [2, 3], "theirs": [2, 3]}])
    );
    let draft = list["draft"].as_str().unwrap();
    assert!(
        draft.starts_with(
            "1\n<<<<<<< ours\ntwo of main\n||||||| base\n2\n=======\ntwo of the parser\n>>>>>>> theirs\n3\n"
        ),
        "{draft}"
    );
    assert!(
        list["ours_contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("two of main\n")
    );
    let gone = ui.send("GET", "api/conflict?review=1&conflict=2", None);
    assert_eq!(
        (gone.status, &gone.json()["error"]["code"]),
        (404, &json!("no-such-conflict"))
    );

    // A commit is refused while one is open, and says which.
    let early = ui.send("POST", "api/commit", Some(&json!({"review": 1})));
    assert_eq!(
        (early.status, &early.json()["error"]["code"]),
        (409, &json!("review-state"))
    );

    let resolve = |path: &str, how: &str| {
        ui.act(
            "resolve",
            &json!({"review": 1, "path": path, "how": how, "reason": "so be it"}),
        )
    };
    for how in ["base", "ours", "theirs", "delete", "open"] {
        let shown = resolve("list.txt", how);
        let told = &tine.json(&["review", "show", "1"])["conflicts"][0]["resolution"];
        match how {
            "open" => assert!(told.is_null(), "{told}"),
            _ => assert_eq!(
                (told["how"].as_str(), told["reasoning"].as_str()),
                (Some(how), Some("so be it"))
            ),
        }
        assert_eq!(shown["open"], if how == "open" { 2 } else { 1 });
    }
    resolve("list.txt", "both");
    let both = ui.ask("conflict?review=1&conflict=0");
    let text = both["result_contents"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("1\ntwo of main\ntwo of the parser\n3\n"),
        "{text}"
    );
    let written =
        json!({"review": 1, "path": "notes.md", "how": "content", "content": "by hand\r\n"});
    assert_eq!(ui.act("resolve", &written)["open"], 0);

    let done = ui.act("commit", &json!({"review": 1, "message": ""}));
    assert_eq!(
        (&done["status"], &done["target"]["branch"]),
        (&json!("merged"), &json!("main"))
    );
    assert_eq!(repo.git(&["show", "main:notes.md"]), "by hand\r");
    assert!(
        repo.git(&["show", "main:list.txt"])
            .starts_with("1\ntwo of main\ntwo of the parser\n3")
    );
    let message = repo.git(&["log", "-1", "--format=%B", "main"]);
    assert!(
        message.starts_with("Merge the parser") && message.contains("so be it"),
        "{message}"
    );
    let again = ui.send("POST", "api/abort", Some(&json!({"review": 1})));
    assert_eq!(
        (again.status, &again.json()["error"]["code"]),
        (409, &json!("review-state"))
    );
}

#[test]
fn a_review_is_planned_again_and_let_go() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    fork_with_changes(&repo, &tine);
    review(&repo, &tine);
    let ui = Ui::start(&tine);
    // What touches no conflict changes nothing for it.
    repo.sh_in(
        repo.dir(),
        "echo other > other.txt; git add -A; git commit -qm other",
    );
    assert_eq!(ui.ask("review?review=1")["moved"], json!([]));
    repo.sh_in(
        repo.dir(),
        "sed -i '2s/.*/two once more/' list.txt; git commit -qam more",
    );
    assert_eq!(ui.ask("review?review=1")["moved"], json!(["ours"]));
    assert_eq!(ui.act("refresh", &json!({"review": 1}))["moved"], json!([]));
    let head = repo.head();
    assert_eq!(ui.act("abort", &json!({"review": 1}))["state"], "aborted");
    assert_eq!(tine.json(&["review", "show", "1"])["state"], "aborted");
    assert_eq!(repo.head(), head);
}

#[test]
fn handoffs_are_shown_and_applied_and_sessions_looked_at() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    fork_with_changes(&repo, &tine);
    tine.ok(&["commit", "parser", "-m", "The parser's work"]);
    tine.ok(&["handoff", "create", "parser"]);
    tine.ok(&["new", "target"]);
    let ui = Ui::start(&tine);
    assert_eq!(ui.ask("handoffs")["handoffs"][0]["state"], "ready");
    let shown = ui.ask("handoff?handoff=1");
    assert_eq!(shown["patches"][0]["summary"], "The parser's work");
    assert_eq!(shown["changes"].as_array().unwrap().len(), 4);
    let done = ui.act("apply", &json!({"handoff": 1, "into": "fork:target"}));
    assert_eq!(
        (&done["status"], &done["target"]["fork"]),
        (&json!("merged"), &json!("target"))
    );
    assert_eq!(tine.ok(&["cat", "--fork", "target", "notes.md"]), "notes");

    assert_eq!(ui.ask("sessions")["sessions"], json!([]));
    tine.ok(&["round", "start", "--agents", "ann,ben"]);
    let sessions = ui.ask("sessions")["sessions"].clone();
    let name = sessions[0]["session"].as_str().unwrap();
    assert_eq!(
        sessions,
        json!([{"session": name, "round": 1, "stage": "open", "agents": 2, "finished": 0, "attempts": 0}])
    );
    let session = ui.ask(&format!("session?session={name}"));
    assert_eq!(session["agents"][1]["agent"], "ben");
}

#[test]
fn an_open_page_starts_no_daemon_that_was_stopped() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    tine.new_fork("parser");
    let ui = Ui::start(&tine);
    tine.ok(&["daemon", "stop"]);
    assert_eq!(ui.ask("pulse?known=x")["pulse"], "stopped");
    let reply = ui.send("GET", "api/forks", None);
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (500, &json!("daemon-unreachable"))
    );
    assert_eq!(reply.json()["error"]["message"], "the daemon is stopped");
    assert!(tine.daemons().is_empty());
    ui.act("start", &json!({}));
    assert_eq!(ui.ask("forks")["forks"][0]["name"], "parser");
    assert_ne!(ui.ask("pulse?known=x")["pulse"], "stopped");
}
