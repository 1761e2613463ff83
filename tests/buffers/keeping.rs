//! What becomes of an agent's text when its buffer ends: with its editor, its mount, its fork, or
//! the daemon.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::{Agent, Editor, LIMIT};
use crate::support::{
    OutputExt, Random, SayWhich, TestRepo, Tine, process, require_fuse, run_with_timeout_of,
    soaking, wait_until,
};

pub(super) const TEXT: &str = "1\n2\n3\n4\n5\n";

pub(super) fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("it is there")
}

/// Kills the daemon, and no editor's bridge.
pub(super) fn kill_daemon(tine: &Tine<'_>) {
    for pid in tine.daemons() {
        process::kill_and_wait(pid);
    }
}

/// A fork with an open file, and an agent in it.
pub(super) struct Place<'r> {
    pub(super) tine: Tine<'r>,
    pub(super) editor: Editor,
    pub(super) agent: Agent,
    pub(super) file: std::path::PathBuf,
}

impl Place<'_> {
    /// In a fork, or in the main checkout.
    pub(super) fn new<'r>(repo: &'r TestRepo, fork: Option<&str>) -> Place<'r> {
        let tine = Tine::new(repo);
        let dir = fork.map_or(repo.dir().to_owned(), |fork| tine.new_fork(fork));
        let file = dir.join("notes.txt");
        fs::write(&file, TEXT).expect("it can be written");
        let mut editor = Editor::start(&tine);
        editor.open(&file, TEXT, true);
        let agent = Agent::of(repo, fork);
        Place {
            tine,
            editor,
            agent,
            file,
        }
    }

    /// The editor's process ends, as by a crash; waits until the daemon knows.
    pub(super) fn crash_editor(&mut self) {
        self.end_editor();
        // Who has the fork's turn next sees what came of it.
        drop(self.agent.0.read("notes.txt"));
    }

    fn end_editor(&mut self) {
        self.editor.lines.child.kill().expect("it can be killed");
        self.editor.lines.child.wait().expect("it ends");
        wait_until("its buffers are closed", LIMIT, || {
            self.tine.json(&["buffer", "list"]) == json!({"buffers": []})
        });
    }
}

#[test]
fn what_the_editor_has_not_taken_is_merged_into_the_file_and_can_be_taken_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    place.agent.edit("notes.txt", "5", "five");
    fs::write(&place.file, TEXT.replace('1', "one")).expect("the mount takes it");
    place.crash_editor();
    assert_eq!(place.agent.read("notes.txt"), "one\n2\n3\n4\nfive\n");
    assert_eq!(read(&place.file), "one\n2\n3\n4\nfive\n");
    let log = place.tine.ok(&["op", "log", "demo"]);
    assert!(log.contains("an agent's text"), "{log}");
    place.tine.ok(&["undo", "demo"]);
    assert_eq!(read(&place.file), TEXT.replace('1', "one"));
    assert_eq!(
        fs::read_dir(repo.common_dir().join("tine/buffers"))
            .expect("it is there")
            .count(),
        1,
        "the highest number"
    );
}

#[test]
fn what_does_not_fit_the_file_is_written_beside_it_and_replaces_nothing() {
    for fork in [Some("demo"), None] {
        if fork.is_some() {
            require_fuse!();
        }
        let repo = TestRepo::new();
        let mut place = Place::new(&repo, fork);
        let beside = place.file.with_file_name("notes.txt.agent-text");
        fs::write(&beside, "somebody's\n").expect("it can be written");
        place.agent.edit("notes.txt", "3", "agent");
        fs::write(&place.file, TEXT.replace('3', "person")).expect("it can be written");
        place.crash_editor_or_wait(&repo);
        let second = place.file.with_file_name("notes.txt.agent-text-2");
        wait_until("the agent's text is kept", LIMIT, || second.exists());
        assert_eq!(read(&second), TEXT.replace('3', "agent"));
        assert_eq!(read(&place.file), TEXT.replace('3', "person"));
        assert_eq!(read(&beside), "somebody's\n");
    }
}

impl Place<'_> {
    fn crash_editor_or_wait(&mut self, repo: &TestRepo) {
        self.editor.lines.child.kill().expect("it can be killed");
        self.editor.lines.child.wait().expect("it ends");
        let shelf = repo.common_dir().join("tine/buffers");
        wait_until("nothing is left to be brought", LIMIT, || {
            let left = fs::read_dir(&shelf).expect("it is there");
            left.flatten().all(|entry| entry.file_name() == "highest")
        });
    }
}

#[test]
fn what_was_merged_and_never_saved_is_still_the_agents() {
    for fork in [Some("demo"), None] {
        if fork.is_some() {
            require_fuse!();
        }
        let repo = TestRepo::new();
        let mut place = Place::new(&repo, fork);
        let file = place.file.clone();
        let typed = TEXT.replace('1', "typed");
        place
            .editor
            .ok(json!({"buffer": "change", "path": file, "base": 0, "text": typed}));
        place.agent.edit("notes.txt", "5", "five");
        place.editor.apply(&file);
        assert_eq!(read(&file), TEXT);
        place.crash_editor_or_wait(&repo);
        assert_eq!(
            read(&file),
            TEXT.replace('5', "five"),
            "and what the person typed and left is not"
        );
    }
}

#[test]
fn what_was_saved_is_the_persons_and_nothing_is_done_to_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    let file = place.file.clone();
    place.agent.edit("notes.txt", "5", "five");
    place.editor.apply(&file);
    // The person takes it out again, and saves.
    place
        .editor
        .ok(json!({"buffer": "change", "path": file, "base": 1, "text": TEXT}));
    place
        .editor
        .ok(json!({"buffer": "save", "path": file, "base": 2}));
    place.crash_editor();
    assert_eq!(read(&file), TEXT);
}

#[test]
fn a_file_that_never_was_is_made() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    let file = place.file.with_file_name("new/deep.txt");
    place.editor.open(&file, "", false);
    assert_eq!(place.agent.read("new/deep.txt"), "");
    place.agent.write("new/deep.txt", "agent\n");
    assert!(!file.exists());
    place.editor.ok(json!({"buffer": "close", "path": file}));
    assert_eq!(read(&file), "agent\n");
}

#[test]
fn an_unmount_takes_what_agents_wrote_along_and_tells_the_editor() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    place.agent.edit("notes.txt", "5", "five");
    assert_eq!(place.editor.event()["event"], "edit");
    place
        .tine
        .ok(&["unmount", "demo", "--commit", "-m", "work"]);
    assert_eq!(
        place.editor.event(),
        json!({"event": "closed", "path": place.file})
    );
    let committed = repo.git(&["show", "tine/demo:notes.txt"]);
    assert_eq!(committed.trim_end(), "1\n2\n3\n4\nfive");
    let message = json!({"buffer": "change", "path": place.file, "base": 0, "text": "x"});
    assert_eq!(place.editor.ask(message)["error"]["code"], "no-such-buffer");
}

#[test]
fn a_fork_with_an_agents_text_in_a_buffer_is_not_deleted_without_force() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    place.tine.ok(&["commit", "demo", "-m", "notes"]);
    place.agent.edit("notes.txt", "5", "five");
    place.tine.fails(3, &["delete", "demo"]);
    assert_eq!(place.agent.read("notes.txt"), TEXT.replace('5', "five"));
    let deleted = place.tine.json(&["delete", "demo", "--force"]);
    let kept = deleted["recover"].as_u64().expect("it is kept");
    let kept = place.tine.recoverable_file(&repo, kept, "notes.txt");
    assert_eq!(kept.trim_end(), "1\n2\n3\n4\nfive");
}

#[test]
fn an_editor_goes_on_with_the_next_daemon() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    let file = place.file.clone();
    place.agent.edit("notes.txt", "5", "five");
    assert_eq!(place.editor.event()["event"], "edit");
    kill_daemon(&place.tine);
    place.tine.ok(&["list"]);
    let mut seen = Vec::new();
    while seen.last() != Some(&json!({"event": "attached"})) {
        seen.push(place.editor.event());
    }
    assert_eq!(
        read(&file),
        TEXT.replace('5', "five"),
        "it was acknowledged"
    );
    place.editor.open(&file, TEXT, false);
    let mut agent = Agent::of(&repo, Some("demo"));
    assert_eq!(agent.read("notes.txt"), TEXT);
    agent.edit("notes.txt", "4", "four");
    place.editor.apply(&file);
}

/// Runs a file tool in the fork; what it prints.
fn tool(tine: &Tine<'_>, args: &[&str], text: &str) -> Result<String, String> {
    tool_in(tine, Some("demo"), args, text)
}

/// Runs a tool in a fork, or in the main checkout.
fn tool_in(
    tine: &Tine<'_>,
    fork: Option<&str>,
    args: &[&str],
    text: &str,
) -> Result<String, String> {
    let place = fork.map_or(Vec::new(), |fork| vec!["--fork", fork]);
    let all = [args, place.as_slice()].concat();
    let output = run_with_timeout_of(&mut tine.command(&all), LIMIT, text.as_bytes());
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).expect("it is text")),
        false => Err(output.error_text()),
    }
}

#[test]
fn what_was_never_saved_does_not_come_into_the_file_by_an_agent_that_read_it() {
    require_fuse!();
    for dies in ["daemon", "editor"] {
        let repo = TestRepo::new();
        let mut place = Place::new(&repo, Some("demo"));
        let file = place.file.clone();
        let unsaved = TEXT.replace('2', "typed");
        place.editor.open(&file, &unsaved, false);
        let reads = |place: &Place<'_>| {
            tool(&place.tine, &["cat", "--agent", "notes.txt"], "").expect("it is there")
        };
        let writes = |place: &Place<'_>, text: &str| {
            tool(&place.tine, &["write", "--agent", "notes.txt"], text)
        };
        assert_eq!(reads(&place), unsaved);
        match dies {
            "daemon" => {
                kill_daemon(&place.tine);
                place.tine.ok(&["list"]);
            }
            _ => place.end_editor(),
        }
        let refused = writes(&place, &unsaved.replace('5', "five")).expect_err(dies);
        assert!(refused.contains("read it again"), "{refused}");
        assert_eq!(read(&file), TEXT, "nothing has changed");
        let edit = ["edit", "notes.txt", "--old", "4", "--new", "four"];
        tool(&place.tine, &edit, "").expect("it is of the file");
        let seen = reads(&place);
        assert_eq!(seen, TEXT.replace('4', "four"));
        writes(&place, &seen.replace('5', "five")).expect("it has read it");
        assert_eq!(read(&file), TEXT.replace('4', "four").replace('5', "five"));
    }
}

#[test]
fn an_agent_reads_again_what_is_open_before_it_writes_all_of_it_after_a_restart() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut place = Place::new(&repo, Some("demo"));
    let file = place.file.clone();
    let reads = |place: &Place<'_>| {
        tool(&place.tine, &["cat", "--agent", "notes.txt"], "").expect("it is there")
    };
    let writes =
        |place: &Place<'_>, text: &str| tool(&place.tine, &["write", "--agent", "notes.txt"], text);
    let stale = reads(&place);
    kill_daemon(&place.tine);
    place.tine.ok(&["list"]);
    let newer = format!("{TEXT}saved since\n");
    fs::write(&file, &newer).expect("it can be written");
    place.editor = Editor::start(&place.tine);
    place.editor.open(&file, &newer, true);

    let refused =
        writes(&place, &stale.replace('1', "one")).expect_err("nobody knows what it has read");
    assert!(
        refused.contains("`tine cat --agent notes.txt`"),
        "{refused}"
    );
    let other = Agent::of(&repo, Some("demo"))
        .0
        .write("notes.txt", b"all new\n");
    assert_eq!(
        other.expect_err("it has never read it").code.as_str(),
        "unsaved-read"
    );
    writes(&place, &newer).expect("it takes out nothing");
    assert_eq!(reads(&place), newer);
    writes(&place, &newer.replace('1', "one")).expect("it has read it");
    place.editor.apply(&file);
    assert_eq!(reads(&place), newer.replace('1', "one"));
}

#[test]
fn what_a_person_saved_is_not_replaced_by_a_stale_text_before_the_editor_has_found_the_next_daemon()
{
    require_fuse!();
    for fork in [Some("demo"), None] {
        let repo = TestRepo::new();
        let mut place = Place::new(&repo, fork);
        let file = place.file.clone();
        let reads = |place: &Place<'_>| {
            tool_in(&place.tine, fork, &["cat", "--agent", "notes.txt"], "").expect("it is there")
        };
        let writes = |place: &Place<'_>, text: &str| {
            let written = tool_in(&place.tine, fork, &["write", "--agent", "notes.txt"], text);
            // In the main checkout an agent's own tools write, unless they are told not to.
            if fork.is_none()
                && written
                    .as_ref()
                    .is_err_and(|error| error.contains("nothing was done"))
            {
                fs::write(&place.file, text).expect("it can be written");
                return Ok(());
            }
            written.map(drop)
        };
        let stale = reads(&place);
        let saved = format!("{TEXT}saved since\n");
        fs::write(&file, &saved).expect("it can be written");
        place.editor.open(&file, &saved, true);
        for _ in 0..2 {
            kill_daemon(&place.tine);
            place.tine.ok(&["list"]);
            writes(&place, &stale.replace('1', "one")).expect_err("it lacks what was saved since");
        }
        assert_eq!(read(&file), saved);
        let now = reads(&place);
        assert_eq!(now, saved);
        fs::write(&file, format!("{saved}and again\n")).expect("it can be written");
        writes(&place, &now.replace('1', "one")).expect_err("the editor saved meanwhile");
        let now = reads(&place);
        writes(&place, &now.replace('1', "one")).expect("it has read it");
        assert_eq!(read(&file), now.replace('1', "one"));
        // Whoever has ended has nothing open.
        fs::write(&file, &saved).expect("it can be written");
        place.end_editor();
        writes(&place, &stale).expect("nobody has it open");
        assert_eq!(read(&file), stale);
    }
}

/// Invariant 3, of buffers.
#[test]
fn acknowledged_writes_to_buffers_survive_kills_of_the_daemon() {
    const VARIABLE: &str = "TINE_CRASH_SEED";
    require_fuse!();
    let (mut random, seed) = Random::from_environment(VARIABLE);
    let _say = SayWhich(VARIABLE, seed);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let file = dir.join("notes.txt");
    for round in 0..if soaking() { 500 } else { 10 } {
        let text: String = (0..30)
            .map(|line| format!("round {round} line {line}\n"))
            .collect();
        fs::write(&file, &text).expect("the mount takes it");
        let mut editor = Editor::start(&tine);
        editor.open(&file, &text, true);
        let mut agent = Agent::of(&repo, Some("demo"));
        let takes = random.below(2) == 0;
        let killed = AtomicBool::new(false);
        let moment = Duration::from_micros(random.below(60_000));
        let acknowledged = std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut acknowledged = Vec::new();
                for line in 0..30 {
                    let (old, new) = (
                        format!("round {round} line {line}\n"),
                        format!("agent {round} {line}\n"),
                    );
                    match agent.0.edit("notes.txt", &old, &new) {
                        Ok(_) => acknowledged.push(new),
                        Err(failure) if killed.load(Ordering::SeqCst) => {
                            assert_eq!(failure.code.as_str(), "daemon-unreachable");
                            break;
                        }
                        Err(failure) => panic!("{failure}"),
                    }
                }
                acknowledged
            });
            if takes {
                let event = editor.event();
                editor.ask(json!({"buffer": "applied", "path": file, "base": event["version"]}));
            }
            // The moment is to be a random one.
            std::thread::sleep(moment);
            killed.store(true, Ordering::SeqCst);
            kill_daemon(&tine);
            writing.join().expect("it does not panic")
        });
        drop(editor);
        tine.ok(&["list"]);
        let now = tine
            .run(&["cat", "--fork", "demo", "notes.txt"])
            .expect_success("cat")
            .stdout;
        let now = String::from_utf8(now).expect("it is a text");
        for line in &acknowledged {
            assert!(
                now.contains(line),
                "round {round}: {line:?} is not in {now:?}"
            );
        }
        assert_eq!(now.lines().count(), 30, "round {round}: {now}");
    }
}
