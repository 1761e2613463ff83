//! How a server begins and ends, and what stays.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::agent::Agent;
use super::calls::{endless, number_in};
use crate::support::{
    OutputExt, TestRepo, Tine, process, require_fuse, run_with_timeout_of, wait_until,
};

const LIMIT: Duration = Duration::from_secs(60);

const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);

fn call(id: u32, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    )
}

fn spawned(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tine starts")
}

#[test]
fn what_was_asked_is_answered_when_the_client_has_said_all_and_its_fork_stays() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let asked = format!(
        "{HELLO}{}",
        call(1, "write_file", &json!({"path": "kept", "content": "x\n"}))
    );
    let output = run_with_timeout_of(
        &mut tine.command(&["mcp", "--new", "mine"]),
        LIMIT,
        asked.as_bytes(),
    )
    .expect_success("tine mcp");
    let lines: Vec<Value> = output
        .text()
        .lines()
        .map(|line| {
            serde_json::from_str(line).expect("nothing but the protocol is on standard output")
        })
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0]["result"]["serverInfo"]["name"], "tine");
    assert_eq!(lines[1]["result"]["structuredContent"]["created"], true);
    let noted = output.error_text();
    assert!(noted.contains("the fork mine stays"), "{noted}");
    assert_eq!(tine.ok(&["cat", "--fork", "mine", "kept"]), "x");
}

#[test]
fn a_client_that_says_nothing_or_nonsense_gets_a_clean_end() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let silent =
        run_with_timeout_of(&mut tine.command(&["mcp"]), LIMIT, b"").expect_success("tine mcp");
    assert_eq!(
        (silent.text(), silent.error_text()),
        (String::new(), String::new())
    );
    let asked = format!("this is no JSON\n{{\"jsonrpc\":\"2.0\"}}\n\u{7f}\n{HELLO}");
    let output = run_with_timeout_of(&mut tine.command(&["mcp"]), LIMIT, asked.as_bytes());
    for line in output.text().lines() {
        serde_json::from_str::<Value>(line)
            .expect("nothing but the protocol is on standard output");
    }
    assert!(
        output.text().contains("serverInfo"),
        "{}{}",
        output.text(),
        output.error_text()
    );
}

#[test]
fn a_signal_ends_the_server_and_the_commands_that_it_runs() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mut server = spawned(&mut tine.command(&["mcp", "--new", "mine"]));
    let mut stdin = server.stdin.take().expect("it is piped");
    let asked = format!(
        "{HELLO}{}",
        call(1, "run", &json!({"command": endless(repo.root())}))
    );
    stdin
        .write_all(asked.as_bytes())
        .expect("the server listens");
    let leader = number_in(&repo.root().join("leader"));
    let child = number_in(&repo.root().join("child"));
    let pid = Pid::from_raw(i32::try_from(server.id()).expect("a process has a number"));
    kill(pid, Signal::SIGTERM).expect("the server is there");
    let mut ended = None;
    wait_until("the server has ended", LIMIT, || {
        ended = server.try_wait().expect("it can be waited for");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
    assert!(!process::is_running(leader) && !process::is_running(child));
    assert!(tine.ok(&["list"]).contains("mine"));
}

#[test]
fn the_fork_is_the_one_that_is_named_or_stood_in() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("first");
    tine.ok(&["new", "second", "--no-mount"]);
    let fork_of = |agent: &Agent| agent.ok("context", json!({}))["fork"]["name"].clone();

    let agent = Agent::over(tine.command_in(&mount.join("src"), &["mcp"]));
    assert_eq!(fork_of(&agent), "first");
    // It stands in no mount: that can be unmounted.
    tine.ok(&["unmount", "first"]);
    agent.leave();

    let agent = Agent::start(&tine, &["--fork", "second"]);
    assert_eq!(fork_of(&agent), "second");
    assert_eq!(tine.json(&["path", "second"])["mounted"], true);
    assert_eq!(
        agent.ok("use_fork", json!({"name": "first"}))["mounted"],
        true
    );
    assert_eq!(fork_of(&agent), "first");
    assert_eq!(agent.ok("fork", json!({}))["name"], "mcp-1");
    assert_eq!(
        agent.ok("fork", json!({"from_fork": "second"}))["name"],
        "mcp-2"
    );
    // The daemon goes and comes back; the session does not notice.
    tine.ok(&["daemon", "stop", "--force"]);
    assert_eq!(fork_of(&agent), "mcp-2");
    tine.ok(&["delete", "mcp-2", "--force"]);
    agent.fails("no-such-fork", "status", json!({}));
    agent.ok("use_fork", json!({"name": "mcp-1"}));

    assert!(
        tine.fails(4, &["mcp", "--fork", "nobody"])
            .contains("no fork called nobody")
    );
    assert!(
        tine.fails(2, &["mcp", "--fork", "first", "--new"])
            .contains("cannot be used with")
    );
    assert!(tine.fails(2, &["mcp", "--new", "../x"]).contains("../x"));
}

#[test]
fn a_new_fork_is_made_when_it_is_needed_and_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &["--new", "mine"]);
    agent.tools();
    assert_eq!(agent.resources(), []);
    assert_eq!(agent.ok("list_forks", json!({}))["forks"], json!([]));
    let calls: Vec<_> = (0..8)
        .map(|_| agent.begin("list_directory", json!({})))
        .collect();
    for call in calls {
        assert_ne!(
            agent.finish(call).expect("a tool answers").is_error,
            Some(true)
        );
    }
    let forks = agent.ok("list_forks", json!({}))["forks"].clone();
    assert_eq!(forks.as_array().map(Vec::len), Some(1), "{forks}");
    assert_eq!(forks[0]["name"], "mine");
    // The name is taken: the model is told, and chooses another.
    let other = Agent::start(&tine, &["--new", "mine"]);
    other.fails("fork-exists", "status", json!({}));
    assert_eq!(other.ok("fork", json!({}))["name"], "mcp-1");
    assert_eq!(other.ok("status", json!({}))["fork"], "mcp-1");
}
