//! An editor and an agent at one file, over real connections.

use std::fs;

use serde_json::json;
use tine::ops::protocol::ToolAnswer;

use super::keeping::kill_daemon;
use super::{Agent, Editor, agent};
use crate::support::{TestRepo, Tine, require_fuse};

#[test]
fn an_agents_edit_comes_into_the_editor_and_not_into_the_file() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let file = dir.join("notes.txt");
    fs::write(&file, "one\ntwo\nthree\n").expect("the mount takes it");
    let mut editor = Editor::start(&tine);
    assert_eq!(editor.open(&file, "one\ntwo\nthree\n", true), 0);
    let typed = json!({"first_line": 0, "lines": 1, "text": "ONE\n"});
    editor.ok(json!({"buffer": "change", "path": file, "base": 0, "patches": [typed]}));
    let mut agent = Agent::of(&repo, Some("demo"));
    assert_eq!(
        agent.read("notes.txt"),
        "ONE\ntwo\nthree\n",
        "what the person has"
    );
    agent.edit("notes.txt", "three", "THREE");
    assert_eq!(agent.read("notes.txt"), "ONE\ntwo\nTHREE\n");
    let edit = editor.apply(&file);
    assert_eq!(
        edit,
        json!({"event": "edit", "path": file, "version": 1,
               "patches": [{"first_line": 2, "lines": 1, "text": "THREE\n"}]})
    );
    assert_eq!(agent.read("notes.txt"), "ONE\ntwo\nTHREE\n");
    assert_eq!(
        fs::read_to_string(&file).expect("it is there"),
        "one\ntwo\nthree\n",
        "the file is the person's to save"
    );
    fs::write(&file, "ONE\ntwo\nTHREE\n").expect("the mount takes it");
    editor.ok(json!({"buffer": "save", "path": file, "base": 2}));
    let list = tine.json(&["buffer", "list"]);
    assert_eq!(list["buffers"][0]["saved"], true, "{list}");
    assert_eq!(list["buffers"][0]["unsaved_merge"], false, "{list}");
    editor.ok(json!({"buffer": "close", "path": file}));
    assert_eq!(tine.json(&["buffer", "list"]), json!({"buffers": []}));
    assert_eq!(agent.read("notes.txt"), "ONE\ntwo\nTHREE\n", "of the file");
}

/// An editor that read the edit late, and said that it had applied it, was taken to have applied
/// the next one of that version.
#[test]
fn an_edit_of_an_earlier_opening_is_none_of_this_one() {
    require_fuse!();
    for with_another_daemon in [false, true] {
        let repo = TestRepo::new();
        let tine = Tine::new(&repo);
        let dir = tine.new_fork("demo");
        let file = dir.join("notes.txt");
        fs::write(&file, "one\ntwo\nthree\n").expect("the mount takes it");
        let mut editor = Editor::start(&tine);
        assert_eq!(editor.open(&file, "one\ntwo\nthree\n", true), 0);
        let mut agent = Agent::of(&repo, Some("demo"));
        agent.read("notes.txt");
        agent.edit("notes.txt", "one", "ONE");
        let late = editor.event();
        assert_eq!(late["version"], 0, "{late}");
        if with_another_daemon {
            kill_daemon(&tine);
            tine.ok(&["list"]);
            agent = Agent::of(&repo, Some("demo"));
            agent.read("notes.txt");
        }
        // Where the daemon has ended, there is nothing to close.
        editor.ask(json!({"buffer": "close", "path": file}));
        let text = fs::read_to_string(&file).expect("it is there");
        assert_eq!(text, "ONE\ntwo\nthree\n", "it was brought into the file");
        let version = editor.open(&file, &text, true);
        assert!(version > 0, "{version}");
        agent.edit("notes.txt", "two", "TWO");
        let answer =
            editor.ask(json!({"buffer": "applied", "path": file, "base": late["version"]}));
        assert_eq!(answer["error"]["code"], "buffer-stale", "{answer}");
        editor.ok(json!({"buffer": "change", "path": file, "text": text}));
        editor.ok(json!({"buffer": "close", "path": file}));
        assert_eq!(
            fs::read_to_string(&file).expect("it is there"),
            "ONE\nTWO\nthree\n"
        );
    }
}

#[test]
fn what_is_said_of_another_version_is_refused_and_changes_nothing() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let file = repo.dir().join("open.txt");
    let mut editor = Editor::start(&tine);
    editor.open(&file, "a\n", false);
    for (message, code) in [
        (
            json!({"buffer": "change", "base": 1, "text": "x\n"}),
            "buffer-stale",
        ),
        (json!({"buffer": "save", "base": 7}), "buffer-stale"),
        (json!({"buffer": "applied", "base": 0}), "buffer-stale"),
        (json!({"buffer": "change", "patches": []}), "usage"),
        (
            json!({"buffer": "change", "base": 0, "patches": [{"first_line": 9, "lines": 1, "text": ""}]}),
            "usage",
        ),
        (json!({"buffer": "nonsense"}), "usage"),
        (json!({"buffer": "attach"}), "usage"),
    ] {
        let mut message = message;
        message["path"] = json!(file);
        let answer = editor.ask(message.clone());
        assert_eq!(answer["error"]["code"], code, "{message}: {answer}");
        assert!(answer["error"]["hint"].is_string(), "{message}: {answer}");
    }
    let shown = editor.ok(json!({"buffer": "show", "path": file}));
    assert_eq!(
        (&shown["person"], &shown["version"]),
        (&json!("a\n"), &json!(0))
    );
    // All of a text is taken whatever was lost.
    let version = editor.ok(json!({"buffer": "change", "path": file, "text": "b\n"}));
    assert_eq!(version["version"], 1);
    // A line that is no JSON, or no text, ends nothing.
    editor.lines.write("{\"id\": 4, ");
    assert_eq!(editor.lines.next()["error"]["code"], "usage");
    editor.ok(json!({"buffer": "show", "path": file}));
}

#[test]
fn only_files_of_the_repository_are_opened() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    std::os::unix::fs::symlink("/etc", dir.join("etc")).expect("the mount takes it");
    std::os::unix::fs::symlink("real.txt", dir.join("link.txt")).expect("the mount takes it");
    let mut editor = Editor::start(&tine);
    for path in [
        "/etc/passwd".into(),
        dir.join(".git"),
        repo.dir().join(".git/config"),
        dir.join("etc/passwd"),
        dir.join("../demo/a"),
        dir.clone(),
        "relative".into(),
        repo.root().join("elsewhere"),
    ] {
        let open = json!({"buffer": "open", "path": path, "text": "", "saved": false});
        let answer = editor.ask(open);
        let code = answer["error"]["code"].as_str().unwrap_or_default();
        assert!(
            ["path-refused", "usage"].contains(&code),
            "{}: {answer}",
            path.display()
        );
    }
    assert_eq!(tine.json(&["buffer", "list"]), json!({"buffers": []}));
    // By a symbolic link within the fork it is the file that it leads to.
    editor.open(&dir.join("link.txt"), "x\n", false);
    let list = tine.json(&["buffer", "list"]);
    assert_eq!(list["buffers"][0]["path"], "real.txt");
    assert_eq!(Agent::of(&repo, Some("demo")).read("real.txt"), "x\n");
}

#[test]
fn a_conflict_is_told_to_both_and_settled_by_either() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let file = repo.dir().join("open.txt");
    fs::write(&file, "a\nb\nc\n").expect("the checkout takes it");
    for keep in ["person", "agent", "both"] {
        let mut editor = Editor::start(&tine);
        editor.open(&file, "a\nb\nc\n", true);
        let mut agent = Agent::of(&repo, None);
        agent.read("open.txt");
        agent.write("open.txt", "a\nagent\nc\n");
        assert_eq!(editor.event()["event"], "edit");
        // Typed before the edit came.
        editor.ok(json!({"buffer": "change", "path": file, "base": 0, "text": "a\nperson\nc\n"}));
        let conflict = editor.event();
        let hunk = json!({"line": 2, "ancestor": "b\n", "agent": "agent\n", "person": "person\n"});
        assert_eq!(conflict["conflicts"], json!([hunk]), "{conflict}");
        let merged = agent.merge("open.txt").expect("a conflict is no failure");
        assert_eq!(merged.conflicts.len(), 1);
        assert_eq!(agent.read("open.txt"), "a\nagent\nc\n");
        assert_eq!(
            tine.run_in(repo.dir(), &["buffer", "merge", "open.txt"])
                .status
                .code(),
            Some(3)
        );
        let shown = tine.ok(&["buffer", "show", "open.txt"]);
        assert!(
            shown.contains("person person") && shown.contains("agent  agent"),
            "{shown}"
        );
        // The person settles it, in the editor.
        let settled = editor.ok(json!({"buffer": "merge", "path": file, "side": keep}));
        assert_eq!(settled["conflicts"], json!([]));
        if keep != "person" {
            editor.apply(&file);
        }
        let expected = match keep {
            "person" => "a\nperson\nc\n",
            "agent" => "a\nagent\nc\n",
            _ => "a\nperson\nagent\nc\n",
        };
        assert_eq!(agent.read("open.txt"), expected, "{keep}");
        let shown = editor.ok(json!({"buffer": "show", "path": file}));
        assert_eq!(
            (&shown["person"], &shown["agent"]),
            (&json!(expected), &json!(null))
        );
        editor.ok(json!({"buffer": "save", "path": file, "base": shown["version"]}));
        editor.lines.finish();
        assert_eq!(
            fs::read_to_string(&file).expect("it is there"),
            "a\nb\nc\n",
            "{keep}"
        );
    }
}

#[test]
fn an_editor_that_does_not_answer_keeps_nobody_waiting_for_long() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let file = repo.dir().join("open.txt");
    let mut editor = Editor::start(&tine);
    editor.open(&file, "a\n", false);
    let mut agent = Agent::of(&repo, None);
    agent.read("open.txt");
    agent.write("open.txt", "a\nb\n");
    let late = agent
        .merge("open.txt")
        .expect_err("the editor has not taken it");
    assert_eq!(late.code.as_str(), "timeout");
    editor.apply(&file);
    assert_eq!(agent.merge("open.txt").expect("it has it").conflicts, []);
}

#[test]
fn another_editor_is_refused_until_the_first_one_is_gone() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let file = repo.dir().join("open.txt");
    let mut first = Editor::start(&tine);
    let mut second = Editor::start(&tine);
    first.open(&file, "first\n", false);
    let open = json!({"buffer": "open", "path": file, "text": "second\n", "saved": false});
    let refused = second.ask(open.clone());
    assert_eq!(refused["error"]["code"], "buffer-taken", "{refused}");
    let close = second.ask(json!({"buffer": "close", "path": file}));
    assert_eq!(
        close["error"]["code"], "no-such-buffer",
        "it is not its own: {close}"
    );
    first.ok(json!({"buffer": "close", "path": file}));
    second.ok(open);
}

#[test]
fn who_has_no_editor_is_told_so() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    assert_eq!(tine.json(&["buffer", "list"]), json!({"buffers": []}));
    assert!(
        !repo.common_dir().join("tine").exists(),
        "nothing is started for that"
    );
    tine.fails(4, &["buffer", "show", "a"]);
    tine.ok(&["daemon", "start"]);
    tine.fails(4, &["buffer", "show", "a"]);
    tine.fails(4, &["buffer", "merge", "a"]);
    let merged = Agent::of(&repo, None).0.call(agent::merge_of("a"));
    assert!(
        matches!(merged, Ok(ToolAnswer::Passthrough { .. })),
        "{merged:?}"
    );
}
