//! What takes something away says how it comes back, and it does.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::written;
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, run_with_timeout_of, wait_until,
};

/// The commands between backquotes in `said`, without those that are patterns.
fn named(said: &str) -> Vec<String> {
    let commands = said.split('`').skip(1).step_by(2);
    commands
        .filter(|command| command.starts_with("tine ") || command.starts_with("git "))
        .map(str::to_owned)
        .collect()
}

/// Runs what was said to lead back; `NAME` stands for a new one.
#[track_caller]
fn go_back(repo: &TestRepo, tine: &Tine, said: &str) {
    let commands = named(said);
    let command = commands
        .first()
        .unwrap_or_else(|| panic!("no way back is named: {said:?}"));
    let words: Vec<&str> = command
        .split(' ')
        .map(|word| if word == "NAME" { "brought-back" } else { word })
        .collect();
    let output = match words.split_first() {
        Some((&"tine", args)) => tine.run(args),
        Some((&"git", args)) => {
            let mut git = repo.command("git", repo.dir());
            run_with_timeout(git.args(args))
        }
        _ => panic!("{command}"),
    };
    output.expect_success(command);
}

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn what_happens_to_files_is_taken_back_as_the_message_says() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let guide = dir.join("docs/guide.md");
    let mine = "mine\n";
    let prepare = || {
        fs::create_dir_all(guide.parent().unwrap()).unwrap();
        fs::write(&guide, mine).unwrap();
    };
    prepare();

    go_back(
        &repo,
        &tine,
        &tine.ok(&["rm", "--fork", "demo", "docs/guide.md"]),
    );
    assert_eq!(content(&guide), mine, "rm");

    go_back(
        &repo,
        &tine,
        &tine.ok(&["rm", "--fork", "demo", "-r", "docs", "src"]),
    );
    assert_eq!(content(&guide), mine, "rm -r");

    let said = written(
        &tine,
        &["write", "--fork", "demo", "docs/guide.md"],
        b"other\n",
    );
    assert_eq!(content(&guide), "other\n");
    go_back(&repo, &tine, &said);
    assert_eq!(content(&guide), mine, "write");

    tine.fails(5, &["mv", "--fork", "demo", "README.md", "docs/guide.md"]);
    go_back(
        &repo,
        &tine,
        &tine.ok(&[
            "mv",
            "--fork",
            "demo",
            "README.md",
            "docs/guide.md",
            "--force",
        ]),
    );
    assert_eq!(content(&guide), mine, "mv --force");
    assert!(dir.join("README.md").exists());

    go_back(&repo, &tine, &tine.ok(&["revert", "demo", "docs"]));
    assert_eq!(content(&guide), mine, "revert");

    let patch = "--- a/docs/guide.md\n+++ b/docs/guide.md\n@@ -1 +1 @@\n-mine\n+patched\n";
    let said = written(&tine, &["apply", "demo", "-"], patch.as_bytes());
    assert_eq!(content(&guide), "patched\n");
    go_back(&repo, &tine, &said);
    assert_eq!(content(&guide), mine, "apply");

    tine.ok(&["snapshot", "demo", "here"]);
    fs::write(&guide, "later\n").unwrap();
    go_back(&repo, &tine, &tine.ok(&["restore", "demo", "here"]));
    assert_eq!(content(&guide), "later\n", "restore");
    go_back(
        &repo,
        &tine,
        &tine.ok(&["restore", "demo", "here", "--path", "docs"]),
    );
    assert_eq!(content(&guide), "later\n", "restore --path");

    // A snapshot is the way back itself: one that somebody asked for goes by force only.
    let refused = tine.fails(3, &["snapshot", "demo", "here", "--delete"]);
    assert!(refused.contains("--from-fork demo@here"), "{refused}");
    assert!(tine.ok(&["snapshots", "demo"]).contains("here"));

    go_back(&repo, &tine, &tine.ok(&["reset", "demo"]));
    assert_eq!(content(&guide), "later\n", "reset");

    repo.git(&["branch", "topic"]);
    tine.ok(&["commit", "demo", "-m", "Mine"]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    go_back(
        &repo,
        &tine,
        &tine.ok(&["branch", "switch", "demo", "topic"]),
    );
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "--short", "HEAD"]),
        "tine/demo"
    );
    assert_eq!(
        repo.git_in(&dir, &["rev-parse", "HEAD"]),
        head,
        "branch switch"
    );
    assert_eq!(content(&guide), "later\n");

    fs::write(&guide, "last\n").unwrap();
    let said = tine.ok(&["unmount", "demo", "--discard"]);
    go_back(&repo, &tine, &said);
    tine.ok(&["mount", "demo"]);
    assert_eq!(content(&guide), "last\n", "unmount --discard");
}

#[test]
fn forks_branches_and_handoffs_come_back_as_the_message_says() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    tine.fails(3, &["delete", "demo"]);
    let said = tine.ok(&["delete", "demo", "--force"]);
    go_back(&repo, &tine, &said);
    assert_eq!(content(&dir.join("new.txt")), "new\n", "delete --force");
    assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "?? new.txt");
    tine.ok(&["delete", "demo", "--force"]);

    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    tine.ok(&["commit", "demo", "-m", "New"]);
    let head = repo.git_in(&dir, &["rev-parse", "HEAD"]);
    tine.ok(&["handoff", "create", "demo"]);
    let said = tine.ok(&["delete", "demo"]);
    go_back(&repo, &tine, &said);
    assert_eq!(content(&dir.join("new.txt")), "new\n", "delete");
    tine.ok(&["delete", "demo"]);

    tine.fails(3, &["branch", "delete", "tine/demo"]);
    let said = tine.ok(&["branch", "delete", "tine/demo", "--force"]);
    go_back(&repo, &tine, &said);
    assert_eq!(
        repo.git(&["rev-parse", "tine/demo"]),
        head,
        "branch delete --force"
    );
    tine.ok(&["branch", "delete", "tine/demo", "--force"]);

    tine.fails(3, &["handoff", "delete", "1"]);
    let said = tine.ok(&["handoff", "delete", "1", "--force"]);
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    go_back(&repo, &tine, &said);
    assert_eq!(
        repo.git(&["rev-parse", "brought-back"]),
        head,
        "handoff delete --force"
    );
}

#[test]
fn a_review_that_was_aborted_is_taken_up_again_with_its_resolutions() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    for name in ["same.txt", "other.txt"] {
        fs::write(dir.join(name), "theirs\n").unwrap();
        repo.write(name, "ours\n");
    }
    tine.ok(&["commit", "demo", "-m", "Theirs"]);
    repo.commit_all("Ours");
    let output = tine.run(&["merge", "demo", "--into", "main", "--review"]);
    assert_eq!(output.status.code(), Some(3), "{}", output.error_text());
    tine.ok(&["resolve", "1", "same.txt", "--theirs"]);
    let before = tine.json(&["review", "show", "1"]);
    let said = tine.ok(&["review", "abort", "1"]);
    assert_eq!(
        tine.json(&["review", "list"])["reviews"],
        serde_json::json!([])
    );
    repo.sh_in(
        repo.dir(),
        "git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    assert_eq!(
        tine.json(&["recover"])["entries"][0]["way_back"],
        "tine review refresh 1"
    );
    go_back(&repo, &tine, &said);
    assert_eq!(tine.json(&["review", "show", "1"]), before);
    tine.ok(&["resolve", "1", "other.txt", "--ours"]);
    tine.ok(&["review", "commit", "1"]);
    assert_eq!(content(&repo.dir().join("same.txt")), "theirs\n");
    // What was committed stays so.
    let said = tine.fails(3, &["review", "refresh", "1"]);
    assert!(said.contains("review 1 is committed already"), "{said}");
}

#[test]
fn a_patch_in_review_is_taken_up_again_too() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let patch =
        "--- a/docs/guide.md\n+++ b/docs/guide.md\n@@ -1 +1 @@\n-nothing like it\n+patched\n";
    let limit = Duration::from_secs(60);
    let output = run_with_timeout_of(
        &mut tine.command(&["apply", "demo", "-", "--review"]),
        limit,
        patch.as_bytes(),
    );
    assert_eq!(output.status.code(), Some(3), "{}", output.error_text());
    go_back(&repo, &tine, &tine.ok(&["review", "abort", "1"]));
    tine.ok(&["resolve", "1", "docs/guide.md", "--ours"]);
    assert_eq!(content(&dir.join("docs/guide.md")), "one\ntwo\nthree\n");
}

#[test]
fn the_work_of_a_session_comes_back_as_the_message_says() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let started = tine.json(&["round", "start", "--agents", "coder"]);
    let dir = started["agents"][0]["seat"]["mount_dir"].as_str();
    let dir = dir
        .unwrap_or_else(|| panic!("no seat: {started}"))
        .to_owned();
    fs::write(Path::new(&dir).join("new.txt"), "new\n").unwrap();
    tine.ok(&["round", "finish"]);
    tine.fails(3, &["round", "clean"]);
    let said = tine.ok(&["round", "clean", "--force"]);
    go_back(&repo, &tine, &said);
    assert_eq!(repo.git(&["show", "brought-back:new.txt"]), "new");
}

#[test]
fn a_cleaning_that_was_cut_off_names_what_it_had_dropped_when_it_is_done() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let started = tine.json(&["round", "start", "--agents", "a,b,c,d,e,f"]);
    let agents = started["agents"].as_array().unwrap();
    for agent in agents {
        let dir = agent["seat"]["mount_dir"].as_str().unwrap();
        fs::write(Path::new(dir).join("new.txt"), "new\n").unwrap();
    }
    let words = ["round", "clean", "--force"];
    let mut cleaning = tine.command(&words).spawn().unwrap();
    let first = repo.common_dir().join("refs/tine/+recover/1");
    wait_until("the first seat is kept", Duration::from_secs(30), || {
        first.exists()
    });
    tine.kill_daemon();
    // It may start a daemon anew, and ask it to go on.
    let _ = cleaning.kill();
    cleaning.wait().unwrap();

    let cleaned = tine.json(&words);
    let seats = cleaned["seats"].as_array().unwrap();
    assert_eq!(seats.len(), agents.len());
    let ids = |list: &serde_json::Value| -> Vec<u64> {
        let list = list.as_array().unwrap();
        list.iter().filter_map(serde_json::Value::as_u64).collect()
    };
    assert!(
        seats.iter().all(|seat| !ids(&seat["recover"]).is_empty()),
        "{cleaned}"
    );
    let mut named: Vec<u64> = seats
        .iter()
        .flat_map(|seat| ids(&seat["recover"]))
        .collect();
    named.sort_unstable();
    let entries = tine.json(&["recover"]);
    let entries = entries["entries"].as_array().unwrap();
    let mut kept: Vec<u64> = entries
        .iter()
        .filter_map(|entry| entry["id"].as_u64())
        .collect();
    kept.sort_unstable();
    assert_eq!(named, kept, "{cleaned}");
}

#[test]
fn collecting_takes_nothing_that_somebody_may_come_back_to() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::write(dir.join("new.txt"), "new\n").unwrap();
    let said = tine.ok(&["reset", "demo"]);
    let operation = tine.ok(&["rm", "--fork", "demo", "README.md"]);
    tine.ok(&["gc"]);
    go_back(&repo, &tine, &operation);
    assert!(dir.join("README.md").exists());
    go_back(&repo, &tine, &said);
    assert_eq!(content(&dir.join("new.txt")), "new\n");
}

#[test]
fn an_undo_that_is_too_late_names_a_revert_only_of_a_merge() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let update = |name: &str| {
        repo.write(name, "main\n");
        repo.commit_all(name);
        tine.ok(&["update", "demo"]);
        let merged = repo.git_in(&dir, &["rev-parse", "HEAD"]);
        fs::write(dir.join(format!("own-{name}")), "own\n").unwrap();
        tine.ok(&["commit", "demo", "-m", "own"]);
        let refused = tine.fails(3, &["undo", "demo"]);
        assert!(refused.contains("HEAD has moved on"), "{refused}");
        (merged, refused)
    };
    // It went forward to a commit of somebody else.
    let (_, refused) = update("one");
    assert!(!refused.contains("git revert"), "{refused}");
    let (merged, refused) = update("two");
    assert!(
        refused.contains(&format!("`git revert -m 1 {merged}`")),
        "{refused}"
    );
    repo.git_in(&dir, &["revert", "--no-edit", "-m", "1", &merged]);
    assert!(dir.join("one").exists() && !dir.join("two").exists());
}
