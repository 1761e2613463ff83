//! What goes wrong is told to the model, with codes that stay, and changes nothing.

use std::os::unix::fs::PermissionsExt;

use rmcp::service::ServiceError;
use serde_json::json;

use super::agent::Agent;
use crate::support::{TestRepo, Tine, require_fuse};

#[test]
fn without_a_fork_nothing_is_read_or_written() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &[]);
    let before = repo.status(repo.dir());
    for (tool, arguments) in [
        ("read_file", json!({"path": "README.md"})),
        ("write_file", json!({"path": "README.md", "content": ""})),
        (
            "edit_file",
            json!({"path": "README.md", "edits": [{"old": "A test", "new": ""}]}),
        ),
        ("delete_file", json!({"path": "README.md"})),
        ("move_file", json!({"from": "README.md", "to": "x"})),
        ("list_directory", json!({})),
        ("search", json!({"pattern": "."})),
        ("run", json!({"command": "touch x"})),
        ("status", json!({})),
        ("commit", json!({"message": "x"})),
        ("snapshot", json!({})),
        ("undo", json!({})),
        ("merge", json!({})),
        ("handoff", json!({})),
    ] {
        let error = agent.fails("not-in-fork", tool, arguments);
        assert!(
            error["hint"].as_str().unwrap().contains("`fork`"),
            "{error}"
        );
    }
    assert_eq!(repo.status(repo.dir()), before);
}

#[test]
fn arguments_that_do_not_fit_are_errors_that_a_model_sees() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &[]);
    for (tool, arguments, cause) in [
        ("read_file", json!({}), "missing field `path`"),
        ("read_file", json!({"path": 1}), "invalid type"),
        (
            "read_file",
            json!({"path": "x", "offset": 3}),
            "unknown field `offset`",
        ),
        (
            "edit_file",
            json!({"path": "x", "edits": [{"old": "a"}]}),
            "missing field `new`",
        ),
        ("merge", json!({"settle": "mine"}), "unknown variant `mine`"),
        ("context", json!({"fork": "x"}), "unknown field `fork`"),
    ] {
        let error = agent.fails("usage", tool, arguments);
        assert!(
            error["causes"][0].as_str().unwrap().contains(cause),
            "{error}"
        );
        assert!(error["hint"].is_string(), "{error}");
    }
    let unknown = agent.begin("rm_rf", json!({}));
    let Err(ServiceError::McpError(error)) = agent.finish(unknown) else {
        panic!("there is no such tool");
    };
    assert_eq!(error.code.0, -32602);
}

#[test]
fn failures_have_the_codes_of_the_command_line() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &["--new"]);
    let read = |path: &str| json!({ "path": path });
    agent.fails("no-such-path", "read_file", read("nowhere"));
    agent.fails("wrong-kind", "read_file", read("src"));
    agent.fails(
        "path-refused",
        "write_file",
        json!({"path": ".git", "content": "x"}),
    );
    for path in [
        "../x",
        "/etc/passwd",
        "src/../../x",
        "/proc/self/root/etc/passwd",
    ] {
        agent.fails("path-refused", "read_file", read(path));
        agent.fails(
            "path-refused",
            "write_file",
            json!({"path": path, "content": "x"}),
        );
    }
    agent.fails("usage", "read_file", read("a\0b"));
    let edit = |old: &str, new: &str| json!({"path": "docs/guide.md", "edits": [{"old": old, "new": new}]});
    agent.fails("edit-not-found", "edit_file", edit("four", "x"));
    agent.fails("edit-identical", "edit_file", edit("one", "one"));
    agent.fails("edit-ambiguous", "edit_file", edit("e", "x"));
    agent.fails("nothing-to-commit", "commit", json!({"message": "x"}));
    agent.fails("empty-message", "commit", json!({"message": " \n"}));
    agent.fails("no-such-point", "restore", json!({"to": "nowhere"}));
    agent.fails("nothing-to-undo", "undo", json!({}));
    agent.fails("no-such-review", "show_review", json!({"review": 77}));
    agent.fails("no-such-fork", "use_fork", json!({"name": "nobody"}));
    agent.fails("invalid-fork-name", "fork", json!({"name": "../x"}));
    agent.fails("fork-exists", "fork", json!({"name": "mcp-1"}));
    agent.fails(
        "usage",
        "fork",
        json!({"from": "HEAD", "from_active": true}),
    );
    agent.fails(
        "usage",
        "read_file",
        json!({"path": "README.md", "first_line": 99}),
    );
    assert_eq!(agent.ok("status", json!({}))["changes"]["total"], 0);
    // Whatever failed, the session goes on as it was.
    assert_eq!(agent.ok("context", json!({}))["fork"]["name"], "mcp-1");
}

#[test]
fn what_a_hook_says_reaches_the_model_and_not_the_protocol() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let hook = repo.git_dir().join("hooks/pre-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(
        &hook,
        "#!/bin/sh\necho 'line 3 is too long'\ntest ! -e bad\n",
    )
    .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let agent = Agent::start(&tine, &["--new"]);
    agent.ok("write_file", json!({"path": "bad", "content": "x\n"}));
    let error = agent.fails("hook-refused", "commit", json!({"message": "Add it"}));
    assert!(
        error["causes"].to_string().contains("line 3 is too long"),
        "{error}"
    );
    agent.ok("move_file", json!({"from": "bad", "to": "good"}));
    let made = agent.ok(
        "commit",
        json!({"message": "Add it", "author": "Eve <eve@example.org>"}),
    );
    assert_eq!(made["hooks_skipped"], false);
    let commit = made["commit"].as_str().unwrap();
    assert_eq!(
        repo.git(&["log", "-1", "--format=%an %s", commit]),
        "Eve Add it"
    );
}
