//! What commands take of that which agents wrote to open buffers: all that fits what is saved, and
//! nothing of a person's that is not.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::LIMIT;
use super::keeping::{Place, TEXT, kill_daemon, read};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, wait_until};

fn committed(repo: &TestRepo, revision: &str) -> String {
    repo.git(&["show", &format!("{revision}:notes.txt")]) + "\n"
}

/// Every verb that takes the files of a fork.
#[test]
fn what_an_agent_wrote_to_an_open_buffer_goes_where_the_files_go() {
    require_fuse!();
    type Verb<'a> = (&'a str, &'a [&'a str], &'a str);
    let verbs: [Verb<'_>; 5] = [
        ("commit", &["commit", "demo", "-m", "work"], "/agent_texts"),
        ("snapshot", &["snapshot", "demo", "s1"], "/agent_texts"),
        (
            "new",
            &["new", "other", "--from-fork", "demo"],
            "/agent_texts",
        ),
        (
            "handoff",
            &["handoff", "create", "demo", "--include-uncommitted"],
            "/agent_texts",
        ),
        (
            "merge",
            &["merge", "demo", "--into", "side", "--with-uncommitted"],
            "/sources/0/agent_texts",
        ),
    ];
    for (verb, args, pointer) in verbs {
        let repo = TestRepo::new();
        let mut place = Place::new(&repo, Some("demo"));
        place.tine.ok(&["commit", "demo", "-m", "notes"]);
        repo.git(&["branch", "side", "tine/demo"]);
        let file = place.file.clone();
        let typed = TEXT.replace('1', "typed");
        let message = json!({"buffer": "change", "path": file, "base": 0, "text": typed});
        place.editor.ok(message);
        place.agent.edit("notes.txt", "5", "five");
        let status = place.tine.json(&["status", "demo"]);
        assert_eq!(status["in_buffers"], json!(["notes.txt"]), "{verb}");
        assert!(place.tine.ok(&["status", "demo"]).contains("open buffer"));
        let answer = place.tine.json(args);
        let texts = answer.pointer(pointer).cloned().unwrap_or(Value::Null);
        assert_eq!(
            texts,
            json!({"brought": ["notes.txt"], "left_out": []}),
            "{verb}: {answer}"
        );
        let wanted = TEXT.replace('5', "five");
        assert_eq!(read(&file), wanted, "{verb}: the saved file shows it");
        match verb {
            "commit" | "handoff" => assert_eq!(committed(&repo, "tine/demo"), wanted),
            "merge" => assert_eq!(committed(&repo, "side"), wanted),
            "new" => {
                let dir = PathBuf::from(answer["mount_dir"].as_str().expect("a path"));
                assert_eq!(read(&dir.join("notes.txt")), wanted);
            }
            _ => assert_eq!(
                place.tine.ok(&["cat", "--fork", "demo", "notes.txt"]) + "\n",
                wanted
            ),
        }
        let status = place.tine.json(&["status", "demo"]);
        assert_eq!(status["in_buffers"], Value::Null, "{verb}");
        // The person saves without having taken it: it is the agent's again.
        place
            .editor
            .ok(json!({"buffer": "save", "path": file, "base": 1}));
        let status = place.tine.json(&["status", "demo"]);
        assert_eq!(status["in_buffers"], json!(["notes.txt"]), "{verb}");
    }
}

#[test]
fn what_the_saved_file_excludes_is_left_out_by_name() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    place.agent.edit("notes.txt", "5", "five");
    fs::write(&place.file, TEXT.replace('5', "person")).expect("the mount takes it");
    let answer = place.tine.json(&["commit", "demo", "-m", "work"]);
    assert_eq!(
        answer["agent_texts"],
        json!({"brought": [], "left_out": ["notes.txt"]})
    );
    assert_eq!(committed(&repo, "tine/demo"), TEXT.replace('5', "person"));
    let refused = place.tine.fails(3, &["commit", "demo", "-m", "again"]);
    assert!(
        refused.contains("notes.txt is without what an agent wrote"),
        "{refused}"
    );
    assert_eq!(place.agent.read("notes.txt"), TEXT.replace('5', "five"));
}

#[test]
fn a_refused_verb_leaves_files_and_buffers_as_they_are() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    place.tine.ok(&["commit", "demo", "-m", "notes"]);
    place.agent.edit("notes.txt", "5", "five");
    let before = place.tine.json(&["op", "log", "demo"]);
    let said = place.tine.fails(3, &["delete", "demo"]);
    assert!(said.contains("notes.txt"), "{said}");
    assert_eq!(read(&place.file), TEXT);
    assert_eq!(place.tine.json(&["op", "log", "demo"]), before);
    let open = place.tine.json(&["buffer", "list"]);
    assert_eq!(open["buffers"][0]["path"], "notes.txt");
    assert_eq!(place.agent.read("notes.txt"), TEXT.replace('5', "five"));
    // A merge that cannot be made takes back what it brought.
    place.tine.fails(4, &["merge", "demo", "--into", "nowhere"]);
    assert_eq!(read(&place.file), TEXT);
}

/// Where the record came back after the files were as before, a daemon that was killed between the
/// two had it in neither.
#[test]
fn a_daemon_that_is_killed_while_it_takes_back_what_it_brought_loses_nothing() {
    require_fuse!();
    let repo = TestRepo::new();
    let points = repo.root().join("points");
    fs::create_dir(&points).unwrap();
    let tine = Tine::new(&repo);
    let mut first = tine.command(&["new", "zero"]);
    run_with_timeout(first.env("TINE_PAUSE_IN", &points)).expect_success("the daemon starts");
    let mut place = Place::new(&repo, Some("demo"));
    tine.ok(&["snapshot", "demo", "here"]);
    place.agent.edit("notes.txt", "5", "five");
    let wanted = TEXT.replace('5', "five");
    fs::write(points.join("text-taken-back"), "").unwrap();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| tine.run(&["snapshot", "demo", "here"]));
        let reached = points.join("text-taken-back.reached");
        wait_until("the file is as before", LIMIT, || {
            reached.exists() || refused.is_finished()
        });
        assert!(reached.exists(), "{}", refused.join().unwrap().error_text());
        kill_daemon(&tine);
    });
    tine.ok(&["list"]);
    assert_eq!(read(&place.file), wanted);
}

#[test]
fn undo_takes_back_the_newest_of_buffers_and_files() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    let file = place.file.clone();
    place.agent.write("other.txt", "one\n");
    place.agent.edit("notes.txt", "5", "five");
    place.editor.apply(&file);
    let undone = place.tine.json(&["undo", "demo"]);
    assert_eq!(undone["of"]["paths"], json!(["notes.txt"]));
    place.editor.apply(&file);
    assert_eq!(place.agent.read("notes.txt"), TEXT);
    assert_eq!(place.agent.read("other.txt"), "one\n");
    let redone = place.tine.json(&["redo", "demo"]);
    assert_eq!(redone["of"]["paths"], json!(["notes.txt"]));
    place.editor.apply(&file);
    assert_eq!(place.agent.read("notes.txt"), TEXT.replace('5', "five"));
    place.tine.ok(&["undo", "demo"]);
    place.tine.ok(&["undo", "demo"]);
    assert!(!file.with_file_name("other.txt").exists());
}

#[test]
fn an_open_file_that_an_agent_removes_or_moves_does_not_come_back() {
    require_fuse!();
    for way in ["delete", "move", "rm", "mv"] {
        let repo = TestRepo::new();
        let mut place = Place::new(&repo, Some("demo"));
        place.tine.ok(&["commit", "demo", "-m", "notes"]);
        place.agent.edit("notes.txt", "5", "five");
        match way {
            "delete" => drop(place.agent.0.delete("notes.txt").expect("it is there")),
            "move" => drop(
                place
                    .agent
                    .0
                    .rename("notes.txt", "moved.txt")
                    .expect("it is there"),
            ),
            "rm" => drop(place.tine.ok(&["rm", "--fork", "demo", "notes.txt"])),
            _ => drop(
                place
                    .tine
                    .ok(&["mv", "--fork", "demo", "notes.txt", "moved.txt"]),
            ),
        }
        place.tine.ok(&["commit", "demo", "-m", "gone"]);
        place.crash_editor();
        assert!(!place.file.exists(), "{way}");
        assert!(
            !place.file.with_file_name("notes.txt.agent-text").exists(),
            "{way}"
        );
        if way.starts_with('m') {
            let moved = place.file.with_file_name("moved.txt");
            assert_eq!(read(&moved), TEXT.replace('5', "five"), "{way}");
        }
    }
}

#[test]
fn what_an_agent_wrote_to_a_file_that_somebody_removed_is_kept_beside_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    place.tine.ok(&["commit", "demo", "-m", "notes"]);
    place.agent.edit("notes.txt", "5", "five");
    fs::remove_file(&place.file).expect("it is there");
    place.crash_editor();
    assert!(!place.file.exists());
    let beside = place.file.with_file_name("notes.txt.agent-text");
    assert_eq!(read(&beside), TEXT.replace('5', "five"));
}
