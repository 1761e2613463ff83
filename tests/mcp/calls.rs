//! Calls that take their time: several at once, progress, cancellation, bounds.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent::Agent;
use crate::support::{TestRepo, Tine, process, require_fuse, require_namespace, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

/// The number that a command wrote to `path`, when it is there.
pub fn number_in(path: &Path) -> u32 {
    let mut number = None;
    wait_until(&format!("{} has a number", path.display()), LIMIT, || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    });
    number.expect("it was waited for")
}

/// A command that writes its number to `leader` and that of a child to `child`, and ends when
/// somebody ends it.
pub fn endless(dir: &Path) -> String {
    let dir = dir.display();
    format!("sleep 100000 & echo $! > {dir}/child; echo $$ > {dir}/leader; wait")
}

#[test]
fn a_cancelled_call_ends_its_command_with_all_that_it_started() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &["--new"]);
    let call = agent.begin("run", json!({"command": endless(repo.root())}));
    let leader = number_in(&repo.root().join("leader"));
    let child = number_in(&repo.root().join("child"));
    assert!(process::is_running(leader) && process::is_running(child));
    agent.cancel(call);
    wait_until("the command is gone", LIMIT, || {
        !process::is_running(leader) && !process::is_running(child)
    });
    // The session goes on.
    assert_eq!(
        agent.ok("run", json!({"command": "echo on"}))["stdout"],
        "on\n"
    );
}

#[test]
fn a_command_whose_time_is_over_is_ended_and_told() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &["--new"]);
    let ran = agent.ok(
        "run",
        json!({"command": "echo first; sleep 100000", "timeout_secs": 1}),
    );
    assert_eq!(ran["timed_out"], true);
    assert_eq!(ran["stdout"], "first\n");
    assert!(ran.get("exit_code").is_none(), "{ran}");
}

#[test]
fn calls_run_at_the_same_time_and_tell_of_their_progress() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &["--new"]);
    agent.ok("run", json!({"command": "mkfifo ../gate"}));
    // It waits for another call to write.
    let waiting = agent.begin("run", json!({"command": "cat ../gate"}));
    let told = || -> Vec<_> {
        let is_of_it = |message: &String| message.starts_with("runs cat ../gate");
        let said = agent.progress().into_iter();
        said.filter(|said| said.message.as_ref().is_some_and(is_of_it))
            .collect()
    };
    wait_until("progress is told", LIMIT, || told().len() >= 2);
    let progress = told();
    assert_eq!(progress[0].message.as_deref(), Some("runs cat ../gate"));
    assert!(progress[1].progress > progress[0].progress);
    assert!(
        progress
            .iter()
            .all(|said| said.progress_token == progress[0].progress_token)
    );
    agent.ok("write_file", json!({"path": "meanwhile", "content": ""}));
    agent.ok("run", json!({"command": "echo open > ../gate"}));
    let ran = agent.finish(waiting).unwrap().structured_content.unwrap();
    assert_eq!(ran["stdout"], "open\n");
}

#[test]
fn long_files_outputs_and_differences_come_in_bounds() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &["--new"]);
    let text: String = (1..=20_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    agent.ok("write_file", json!({"path": "long", "content": text}));
    let mut read = String::new();
    let mut next = json!(1);
    while !next.is_null() {
        let page = agent.ok("read_file", json!({"path": "long", "first_line": next}));
        assert_eq!(page["total_lines"], 20_000);
        read.push_str(page["text"].as_str().unwrap());
        next = page.get("next_line").cloned().unwrap_or(Value::Null);
    }
    assert!(read == text, "the pages are the file");

    let ran = agent.ok("run", json!({"command": "cat long"}));
    let out = ran["stdout"].as_str().unwrap();
    assert!(out.len() < 64 << 10 && out.starts_with("line 1\n") && out.ends_with("line 20000\n"));
    assert!(
        ran["stdout_left_out"].as_u64().unwrap() > 100_000,
        "{}",
        ran["stdout_left_out"]
    );

    let diff = agent.ok("diff", json!({}));
    assert_eq!(diff["truncated"], true);
    assert!(diff["diff"].as_str().unwrap().len() < 64 << 10);
    let stat = agent.ok("diff", json!({"stat": true}));
    assert!(stat["diff"].as_str().unwrap().contains("20000 +"), "{stat}");
    assert_eq!(stat["truncated"], false);

    let found = agent.ok("search", json!({"pattern": "line 1", "limit": 5}));
    assert_eq!(found["lines"].as_array().unwrap().len(), 5);
    assert_eq!(found["truncated"], true);
}

#[test]
fn what_tools_do_is_in_the_log_of_operations_and_taken_back() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &[]);
    let mount = agent.fork("mine");
    agent.ok(
        "edit_file",
        json!({"path": "docs/guide.md", "edits": [{"old": "two", "new": "2"}]}),
    );
    assert_eq!(
        std::fs::read_to_string(mount.join("docs/guide.md")).unwrap(),
        "one\n2\nthree\n"
    );
    assert!(
        tine.ok(&["op", "log", "mine"])
            .contains("mcp edit_file docs/guide.md")
    );
    tine.ok(&["undo", "mine"]);
    assert_eq!(
        agent.ok("read_file", json!({"path": "docs/guide.md"}))["text"],
        "one\ntwo\nthree\n"
    );
    agent.ok("redo", json!({"path": "docs/guide.md"}));
    assert_eq!(
        std::fs::read_to_string(mount.join("docs/guide.md")).unwrap(),
        "one\n2\nthree\n"
    );
    let log = agent.ok("log", json!({}));
    assert_eq!(log["operations"].as_array().unwrap().len(), 3, "{log}");
}

#[test]
fn a_fork_is_set_up_and_seen_at_the_main_checkout_where_the_user_wants_that() {
    require_namespace!();
    let repo = TestRepo::new();
    repo.git(&["config", "tine.setup", "pwd > set-up"]);
    repo.git(&["config", "tine.atOrigin", "true"]);
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &[]);
    let made = agent.ok("fork", json!({"name": "one"}));
    assert_eq!(made["notes"], json!([]));
    let main = format!("{}\n", repo.dir().display());
    let ran = agent.ok(
        "run",
        json!({"command": "cat set-up; pwd; exit 3", "dir": "docs"}),
    );
    assert_eq!(ran["exit_code"], 3);
    let ran = agent.ok("run", json!({"command": "cat set-up; pwd"}));
    assert_eq!(ran["stdout"], format!("{main}{main}"));
    let ran = agent.ok("run", json!({"command": "pwd", "dir": "docs"}));
    assert_eq!(ran["stdout"], format!("{}/docs\n", repo.dir().display()));
    // One that never ends is ended there, too.
    let call = agent.begin("run", json!({"command": endless(repo.root())}));
    let leader = number_in(&repo.root().join("leader"));
    agent.cancel(call);
    wait_until("the command is gone", LIMIT, || {
        !process::is_running(leader)
    });

    repo.git(&["config", "tine.setup", "echo broken; exit 1"]);
    let made = agent.ok("fork", json!({"name": "two"}));
    let note = made["notes"][0].as_str().unwrap();
    assert!(
        note.contains("the setup command of two failed") && note.contains("broken"),
        "{note}"
    );
    assert_eq!(made["name"], "two");
}
