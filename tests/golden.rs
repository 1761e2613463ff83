//! What `--json` and MCP answer, whole and in order, as files in `tests/golden/`: a change of any
//! key, value or failure shows.
//!
//! Ids, times, sizes and paths of the machine are replaced. `TINE_UPDATE_GOLDEN=1` writes the files
//! anew.

mod support;

#[path = "mcp/agent.rs"]
#[allow(dead_code)]
mod agent;
#[path = "golden/record.rs"]
mod record;

use serde_json::json;

use agent::Agent;
use record::Record;
use support::{TestRepo, Tine, require_fuse};

/// A repository with two commits.
fn sample() -> TestRepo {
    let repo = TestRepo::new();
    repo.commit_files(
        &[
            ("src/lib.rs", b"one\ntwo\nthree\n"),
            ("notes.txt", b"alpha\n"),
        ],
        "second",
    );
    repo
}

#[test]
fn forks_are_made_listed_and_removed() {
    require_fuse!();
    let repo = sample();
    let mut record = Record::new(&repo);
    record.run("new one");
    record.run("new two --from-fork one --no-mount");
    record.run("new one");
    record.run("list");
    record.run("");
    record.run("path one");
    record.run("path --main");
    record.run("path three");
    record.run("tree");
    record.run("unmount one");
    record.run("mount one");
    record.run("status one");
    record.run("daemon status");
    record.run("check");
    record.run("delete two");
    record.run("delete three");
    record.run("recover");
    record.run("gc");
    record.compare("forks");
}

#[test]
fn files_are_read_changed_and_undone() {
    require_fuse!();
    let repo = sample();
    let mut record = Record::new(&repo);
    record.run("new one");
    record.run("ls --fork one");
    record.run("ls --fork one src");
    record.run("ls --deep --fork one src");
    record.run("stat --fork one notes.txt");
    record.run("cat --fork one notes.txt");
    record.run("cat --fork one nothing");
    record.feed("write --fork one notes.txt", "beta\n");
    record.feed("write --fork one src/new.rs", "new\n");
    record.run("mv --fork one src/lib.rs src/main.rs");
    record.run("rm --fork one notes.txt");
    record.run("status one");
    record.run("diff one");
    record.run("diff one --stat");
    record.run("op log one");
    record.run("undo one");
    record.run("redo one");
    record.run("undo one");
    record.run("undo one nothing");
    record.run("revert one src/new.rs");
    record.run("cat --agent --fork one notes.txt");
    record.feed("write --agent --fork one notes.txt", "gamma\n");
    record.run("edit --fork one notes.txt --old gamma --new delta");
    record.run("edit --fork one notes.txt --old gamma --new delta");
    record.run("ls --agent --fork one");
    record.run("search --fork one delta");
    record.run("mv --agent --fork one notes.txt moved.txt");
    record.run("rm --agent --fork one moved.txt");
    record.run("run --fork one -- true");
    record.run("context --fork one");
    record.compare("files");
}

#[test]
fn work_is_committed_merged_and_brought_up_to_date() {
    require_fuse!();
    let repo = sample();
    let mut record = Record::new(&repo);
    record.run("new one");
    record.run("new two");
    record.feed("write --fork one src/lib.rs", "ONE\ntwo\nthree\n");
    record.feed("write --fork two src/lib.rs", "uno\ntwo\nthree\n");
    record.feed("write --fork two other.txt", "other\n");
    record.run("commit one -m first");
    record.run("commit one -m nothing");
    record.run("commit two -m second");
    record.run("log one");
    record.run("merge one --dry-run");
    record.run("merge one");
    record.run("merge one");
    record.run("merge two");
    record.run("merge two --review");
    record.run("review list");
    record.run("review show 1");
    record.run("resolve 1 src/lib.rs --theirs");
    record.run("review commit 1");
    record.run("update one");
    record.run("update one");
    record.run("branch list");
    record.run("branch create topic");
    record.run("branch switch one topic");
    record.run("branch rename topic subject");
    record.run("branch delete subject");
    record.run("cherry-pick one tine/two");
    record.run("push one");
    record.run("fetch");
    record.compare("merging");
}

#[test]
fn snapshots_are_taken_and_gone_back_to() {
    require_fuse!();
    let repo = sample();
    let mut record = Record::new(&repo);
    record.run("new one");
    record.feed("write --fork one notes.txt", "beta\n");
    record.run("snapshot one -m kept first");
    record.feed("write --fork one notes.txt", "gamma\n");
    record.run("snapshots one");
    record.run("diff one --against first");
    record.run("restore one first");
    record.run("restore one nothing");
    record.run("restore one first --path notes.txt");
    record.run("reset one");
    record.run("snapshots one");
    record.run("undo one");
    record.run("delete one --force");
    record.run("recover list");
    record.run("recover show 1");
    record.run("recover 1");
    record.run("recover 9");
    record.compare("snapshots");
}

#[test]
fn handoffs_and_buffers_are_listed_and_applied() {
    require_fuse!();
    let repo = sample();
    let mut record = Record::new(&repo);
    record.run("new one");
    record.feed("write --fork one notes.txt", "beta\n");
    record.run("commit one -m first");
    record.run("handoff create one --to main");
    record.run("handoff list");
    record.run("handoff show 1");
    record.run("handoff diff 1");
    // Applied to the commit that it was made on, and within a second, it would be the same commit.
    repo.commit_files(&[("src/other.rs", b"other\n")], "another");
    record.run("handoff apply 1");
    record.run("handoff list");
    record.run("handoff delete 1");
    record.run("buffer list");
    record.run("buffer show notes.txt");
    record.compare("handoffs");
}

#[test]
fn an_agent_is_answered_over_mcp() {
    require_fuse!();
    let repo = sample();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &["--new"]);
    let mut record = Record::new(&repo);
    for tool in agent.tools() {
        let properties = tool
            .input_schema
            .get("properties")
            .and_then(|value| value.as_object());
        let arguments: Vec<&String> = properties
            .into_iter()
            .flat_map(|properties| properties.keys())
            .collect();
        let required = tool.input_schema.get("required");
        let tells =
            json!({"arguments": arguments, "required": required, "annotations": tool.annotations});
        record.note(&tool.name, tells);
    }
    for (tool, arguments) in [
        ("list_directory", json!({})),
        ("read_file", json!({"path": "notes.txt"})),
        ("read_file", json!({"path": "nothing"})),
        (
            "write_file",
            json!({"path": "notes.txt", "content": "beta\n"}),
        ),
        (
            "edit_file",
            json!({"path": "notes.txt", "edits": [{"old": "beta", "new": "gamma"}]}),
        ),
        (
            "edit_file",
            json!({"path": "notes.txt", "edits": [{"old": "beta", "new": "gamma"}]}),
        ),
        ("search", json!({"pattern": "gamma"})),
        ("run", json!({"command": "cat notes.txt"})),
        ("status", json!({})),
        ("diff", json!({})),
        ("snapshot", json!({"name": "first"})),
        ("commit", json!({"message": "work"})),
        ("commit", json!({"message": "nothing"})),
        ("undo", json!({})),
        ("merge", json!({})),
    ] {
        record.call(&agent, tool, arguments);
    }
    record.compare("mcp");
}
