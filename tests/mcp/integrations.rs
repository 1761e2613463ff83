//! Hooks for agents' own worktree features, with the JSON that they get.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    OutputExt, TestRepo, Tine, path_text, require_fuse, require_program, run_with_timeout_of,
};

fn hook(repo: &TestRepo, action: &str, dir: &Path, event: &str) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/integrations/worktree-hook");
    let mut command: Command = repo.command(program, dir);
    command.arg(action).env("TINE", Tine::program());
    run_with_timeout_of(&mut command, Duration::from_secs(60), event.as_bytes())
}

/// What Claude Code sends.
fn create_event(repo: &TestRepo, name: &str) -> String {
    json!({
        "session_id": "0d2f3a5e", "transcript_path": "/tmp/transcript.jsonl", "cwd": path_text(repo.dir()),
        "hook_event_name": "WorktreeCreate", "name": name
    })
    .to_string()
}

fn remove_event(path: &Path) -> String {
    json!({
        "session_id": "0d2f3a5e", "transcript_path": "/tmp/transcript.jsonl", "cwd": path_text(path),
        "hook_event_name": "WorktreeRemove", "worktree_path": path_text(path)
    })
    .to_string()
}

#[track_caller]
fn created(repo: &TestRepo, name: &str) -> PathBuf {
    let output =
        hook(repo, "create", repo.root(), &create_event(repo, name)).expect_success("create");
    let path = output.text();
    assert_eq!(path.lines().count(), 1, "{name:?}: {path}");
    let path = PathBuf::from(path);
    assert!(
        path.is_absolute() && path.join("README.md").is_file(),
        "{name:?}"
    );
    path
}

fn forks(tine: &Tine) -> Vec<Value> {
    tine.json(&["list"])["forks"].as_array().unwrap().clone()
}

#[test]
fn a_worktree_of_an_agent_is_a_fork_and_its_work_outlives_it() {
    require_fuse!();
    require_program!("python3");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let path = created(&repo, "agent-7");
    std::fs::write(path.join("made.txt"), "by an agent\n").unwrap();
    repo.git_in(&path, &["commit", "--allow-empty", "-qm", "Begin"]);
    std::fs::write(path.join("left.txt"), "not committed\n").unwrap();
    // The same name once more is the same worktree.
    assert_eq!(created(&repo, "agent-7"), path);

    hook(&repo, "remove", &path, &remove_event(&path)).expect_success("remove");
    assert!(!path.join("made.txt").exists());
    assert_eq!(forks(&tine), Vec::<Value>::new());
    let handoffs = tine.json(&["handoff", "list"])["handoffs"].clone();
    assert_eq!(handoffs[0]["commits"], 2, "{handoffs}");
    tine.ok(&["handoff", "apply", "1"]);
    assert_eq!(
        std::fs::read_to_string(repo.dir().join("made.txt")).unwrap(),
        "by an agent\n"
    );
    assert_eq!(
        std::fs::read_to_string(repo.dir().join("left.txt")).unwrap(),
        "not committed\n"
    );

    // One in which nothing was done leaves nothing behind.
    let path = created(&repo, "idle");
    hook(&repo, "remove", repo.dir(), &remove_event(&path)).expect_success("remove");
    assert_eq!(forks(&tine), Vec::<Value>::new());
    assert_eq!(
        tine.json(&["handoff", "list"])["handoffs"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn hostile_names_of_worktrees_become_names_of_forks() {
    require_fuse!();
    require_program!("python3");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let names = [
        "../../etc",
        "/etc/passwd",
        "a b",
        "a\nb",
        "$(touch pwned)",
        "--force",
        "-C",
        ".",
        "..",
        ".git",
        "x.lock",
        "a..b",
        "naïve",
        "\u{202e}x",
        "'; rm -rf / #",
        &"long".repeat(100),
        "feature/x",
        "\u{1b}[31m",
    ];
    let mut paths: Vec<PathBuf> = names.iter().map(|name| created(&repo, name)).collect();
    let parent = paths[0].parent().unwrap().to_owned();
    assert!(
        paths.iter().all(|path| path.parent() == Some(&parent)),
        "{paths:?}"
    );
    for path in &paths {
        hook(&repo, "remove", repo.root(), &remove_event(path)).expect_success("remove");
    }
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), names.len(), "each has its own");
    assert_eq!(forks(&tine), Vec::<Value>::new());
    assert!(!repo.dir().join("pwned").exists() && !repo.root().join("pwned").exists());
}

#[test]
fn what_is_no_fork_is_never_removed() {
    require_fuse!();
    require_program!("python3");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let path = created(&repo, "mine");
    let plain = repo.root().join("plain");
    std::fs::create_dir_all(plain.join("sub")).unwrap();
    symlink(&plain, repo.root().join("link")).unwrap();
    let inside = path.join("src");
    for wrong in [
        repo.dir(),
        &plain,
        &repo.root().join("link"),
        &inside,
        &repo.root().join("nowhere"),
    ] {
        let output = hook(&repo, "remove", repo.root(), &remove_event(wrong));
        assert_eq!(output.status.code(), Some(1), "{}", wrong.display());
        assert!(
            output.error_text().contains("nothing is removed"),
            "{}",
            output.error_text()
        );
    }
    assert!(
        plain.join("sub").is_dir()
            && path.join("README.md").is_file()
            && repo.dir().join("README.md").is_file()
    );
    for event in [
        "",
        "[]",
        "null",
        "{}",
        r#"{"worktree_path": 3}"#,
        r#"{"worktree_path": "relative"}"#,
        r#"{"name": ""}"#,
    ] {
        for action in ["create", "remove"] {
            let output = hook(&repo, action, repo.dir(), event);
            assert_eq!(
                (output.status.code(), output.text()),
                (Some(1), String::new()),
                "{action} {event}"
            );
        }
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = json!({"cwd": path_text(elsewhere.path()), "name": "x"}).to_string();
    let output = hook(&repo, "create", elsewhere.path(), &outside);
    assert_eq!(
        (output.status.code(), output.text()),
        (Some(1), String::new())
    );
    assert!(
        output
            .error_text()
            .contains("is not inside a git repository"),
        "{}",
        output.error_text()
    );
    assert_eq!(forks(&tine).len(), 1);
}

#[test]
fn a_fork_whose_work_cannot_be_handed_over_stays() {
    require_fuse!();
    require_program!("python3");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let path = created(&repo, "mine");
    std::fs::write(path.join("kept.txt"), "x\n").unwrap();
    // In the middle of a merge nothing can be committed for the agent.
    let head = repo.git_in(&path, &["rev-parse", "HEAD"]);
    let merging = repo.git_in(
        &path,
        &[
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "MERGE_HEAD",
        ],
    );
    std::fs::write(&merging, format!("{head}\n")).unwrap();
    let output = hook(&repo, "remove", repo.root(), &remove_event(&path));
    assert_eq!(output.status.code(), Some(1), "{}", output.error_text());
    assert!(
        output.error_text().contains("merge"),
        "{}",
        output.error_text()
    );
    assert_eq!(
        std::fs::read_to_string(path.join("kept.txt")).unwrap(),
        "x\n"
    );
    std::fs::remove_file(&merging).unwrap();
    hook(&repo, "remove", repo.root(), &remove_event(&path)).expect_success("remove");
    assert_eq!(forks(&tine), Vec::<Value>::new());
    assert_eq!(tine.json(&["handoff", "list"])["handoffs"][0]["commits"], 1);
}

#[test]
fn a_worktree_is_set_up_and_used_where_its_setup_fails() {
    require_fuse!();
    require_program!("python3");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    repo.git(&["config", "tine.setup", "echo made > set-up"]);
    let path = created(&repo, "one");
    assert!(path.join("set-up").is_file());
    repo.git(&["config", "tine.setup", "exit 9"]);
    let output = hook(&repo, "create", repo.dir(), &create_event(&repo, "two"));
    assert!(output.status.success(), "{}", output.error_text());
    assert!(
        output
            .error_text()
            .contains("the setup command of two failed"),
        "{}",
        output.error_text()
    );
    assert_eq!(forks(&tine).len(), 2);
}
