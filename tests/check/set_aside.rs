//! Forks that are deleted though something of them cannot be kept by itself: they go out of the way
//! as a whole, and come back.

use std::fs;

use serde_json::Value;

use super::layers::dir_of;
use super::support::{TestRepo, require_fuse};
use super::{Stopped, flip};

/// Deletes the fork; the number by which it comes back.
#[track_caller]
fn deleted(stopped: &Stopped<'_>, fork: &str, lost: &str) -> String {
    let deleted = stopped.tine.json(&["delete", fork, "--force"]);
    let words = deleted["lost"].as_array().unwrap();
    assert!(words.contains(&Value::from(lost)), "{deleted}");
    assert!(deleted["because"].is_string(), "{deleted}");
    let list = stopped.tine.json(&["list"]);
    assert!(
        list["forks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["name"] != fork),
        "{list}"
    );
    assert_eq!(list["damaged"].as_array().unwrap().len(), 0, "{list}");
    deleted["set_aside"].to_string()
}

/// Others go on, nothing of what is aside is freed, and then it comes back.
#[track_caller]
fn back_after_others_went_on(stopped: &Stopped<'_>, repo: &TestRepo, number: &str) {
    let tine = &stopped.tine;
    tine.ok(&["new", "three"]);
    fs::write(dir_of(repo, "three").join("three.txt"), "three\n").unwrap();
    tine.ok(&["commit", "three", "-m", "three"]);
    repo.git(&["reflog", "expire", "--all", "--expire=now"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    tine.ok(&["gc"]);
    tine.ok(&["daemon", "stop"]);
    stopped.check(&[], 0);
    let list = tine.json(&["recover"]);
    let way_back = format!("tine check --put-back {number}");
    let elsewhere = list["elsewhere"].as_array().unwrap();
    assert!(
        elsewhere
            .iter()
            .any(|line| line["way_back"] == way_back.as_str()),
        "{list}"
    );
    tine.ok(&["check", "--put-back", number]);
    tine.ok(&["daemon", "stop"]);
}

#[test]
fn a_fork_with_a_damaged_layer_comes_back_to_be_repaired() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    // What the two share stays while the one is aside, also when the other has gone.
    stopped.tine.ok(&["new", "other", "--from-fork", "one"]);
    let log = stopped.open_layer("one").join("log");
    let log_len = fs::metadata(&log).unwrap().len() as usize;
    fs::write(dir_of(&repo, "one").join("last.txt"), "last\n").unwrap();
    stopped.tine.ok(&["daemon", "stop"]);
    flip(&log, log_len + 60);
    let before = stopped.record("one");

    let number = deleted(&stopped, "one", "what was not committed");
    assert!(!repo.git_dir_of_fork("one").exists());
    stopped.tine.ok(&["delete", "other", "--force"]);
    back_after_others_went_on(&stopped, &repo, &number);
    assert_eq!(stopped.record("one"), before);
    assert_eq!(stopped.only("layer-damaged")["fork"], "one");
    stopped.check(&["--repair"], 0);
    stopped.tine.ok(&["mount", "one"]);
    let dir = dir_of(&repo, "one");
    assert_eq!(
        fs::read_to_string(dir.join("small.txt")).unwrap(),
        "small, of one\n"
    );
    assert_eq!(
        repo.git_in(&dir, &["symbolic-ref", "HEAD"]),
        "refs/heads/tine/one"
    );
    stopped.tine.ok(&["daemon", "stop"]);
}

#[test]
fn a_fork_without_a_record_takes_its_layers_along() {
    require_fuse!();
    for of in ["fork.json", "snapshots.json"] {
        let repo = TestRepo::new();
        let stopped = Stopped::new(&repo);
        let file = stopped.store().join("forks/two").join(of);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, "no record").unwrap();
        let number = deleted(&stopped, "two", "its snapshots");
        back_after_others_went_on(&stopped, &repo, &number);
        fs::write(&file, whole).unwrap();
        stopped.check(&[], 0);
        stopped.tine.ok(&["mount", "two"]);
        assert_eq!(
            fs::read_to_string(dir_of(&repo, "two").join("small.txt")).unwrap(),
            "small, of two\n"
        );
        stopped.tine.ok(&["new", "kept", "--from-fork", "two@kept"]);
        stopped.tine.ok(&["daemon", "stop"]);
    }
}

#[test]
fn a_fork_that_git_cannot_commit_comes_back_as_it_was() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.git(&["config", "filter.fails.clean", "false"]);
    repo.git(&["config", "filter.fails.required", "true"]);
    let stopped = Stopped::new(&repo);
    stopped.tine.ok(&["mount", "one"]);
    let dir = dir_of(&repo, "one");
    fs::write(dir.join(".gitattributes"), "*.filtered filter=fails\n").unwrap();
    fs::write(dir.join("a.filtered"), "filtered\n").unwrap();
    let number = deleted(&stopped, "one", "what was not committed");
    back_after_others_went_on(&stopped, &repo, &number);
    stopped.tine.ok(&["mount", "one"]);
    assert_eq!(
        fs::read_to_string(dir.join("a.filtered")).unwrap(),
        "filtered\n"
    );
    stopped.tine.ok(&["daemon", "stop"]);
}

#[test]
fn nothing_that_is_set_aside_is_uninstalled_unasked() {
    require_fuse!();
    let repo = TestRepo::new();
    let stopped = Stopped::new(&repo);
    fs::write(stopped.store().join("forks/two/fork.json"), "no record").unwrap();
    let number = deleted(&stopped, "two", "its snapshots");
    let refused = stopped.tine.fails(3, &["uninstall"]);
    let way_back = format!("is set aside (`tine check --put-back {number}`");
    assert!(
        refused.contains("forks/two") && refused.contains(&way_back),
        "{refused}"
    );
    stopped.tine.ok(&["uninstall", "--force"]);
}
