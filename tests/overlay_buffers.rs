//! Unsaved text of editors in a mount: programs read it, and nothing records it.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::command::shell;
use support::{
    OutputExt, Random, SayWhich, TestFork, TestRepo, require_fuse, require_program, run_with_timeout,
};
use tine::path::RepoPath;
use tine::workspace::{Caller, PutOptions};

const SAVED: &str = "what is saved\n";
const TYPED: &str = "what was typed and not saved\n";

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).unwrap()
}

/// A mounted fork that shows texts, with `notes.txt` in it.
fn overlaid(repo: &TestRepo, name: &str) -> TestFork {
    let mut fork = TestFork::with(repo, name, |options| options.settings.overlay_buffers = true);
    fork.mount();
    fork
}

fn repo() -> TestRepo {
    let repo = TestRepo::new();
    repo.commit_files(
        &[
            ("notes.txt", SAVED.as_bytes()),
            ("src/deep/code.txt", SAVED.as_bytes()),
        ],
        "begin",
    );
    repo
}

fn type_text(fork: &TestFork, at: &str, text: &str) {
    fork.workspace().show_text(&path(at), Some(text.as_bytes()));
}

fn end(fork: &TestFork, at: &str) {
    fork.workspace().show_text(&path(at), None);
}

fn sh(repo: &TestRepo, dir: &Path, script: &str) -> String {
    repo.sh_in(dir, script)
}

#[track_caller]
fn assert_read(repo: &TestRepo, fork: &TestFork, at: &str, text: &str) {
    let file = fork.path().join(at);
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "read by this process");
    assert_eq!(file.metadata().unwrap().len(), text.len() as u64);
    assert_eq!(
        sh(repo, fork.path(), &format!("cat {at}")),
        text.trim_end_matches('\n')
    );
    assert_eq!(
        sh(repo, fork.path(), &format!("wc -c < {at}")),
        text.len().to_string()
    );
    assert_eq!(
        sh(repo, fork.path(), &format!("stat -c %s {at}")),
        text.len().to_string()
    );
}

#[test]
fn every_text_is_seen_at_once_and_none_after_its_end() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    for at in ["notes.txt", "src/deep/code.txt"] {
        assert_read(&repo, &fork, at, SAVED);
        type_text(&fork, at, TYPED);
        assert_read(&repo, &fork, at, TYPED);
        for text in [
            "",
            "a",
            "much longer than the one before, and the one before that\n",
        ] {
            type_text(&fork, at, text);
            assert_read(&repo, &fork, at, text);
        }
        end(&fork, at);
        assert_read(&repo, &fork, at, SAVED);
    }
}

#[test]
fn git_sees_what_is_saved() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&repo, &fork, "notes.txt", TYPED);
    assert_eq!(repo.git_in(fork.path(), &["status", "--porcelain"]), "");
    assert_eq!(repo.git_in(fork.path(), &["diff"]), "");
    fs::write(fork.path().join("other.txt"), "new\n").unwrap();
    repo.git_in(fork.path(), &["add", "-A"]);
    repo.git_in(fork.path(), &["commit", "-q", "-m", "first"]);
    assert_eq!(
        repo.git_in(fork.path(), &["show", "HEAD:notes.txt"]),
        SAVED.trim_end()
    );
    assert_read(&repo, &fork, "notes.txt", TYPED);
}

#[test]
fn who_writes_writes_to_the_file() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&repo, &fork, "notes.txt", TYPED);
    sh(&repo, fork.path(), "echo appended >> notes.txt");
    let saved = || String::from_utf8(fork.workspace().read_path(&path("notes.txt")).unwrap()).unwrap();
    assert_eq!(saved(), format!("{SAVED}appended\n"));
    assert_read(&repo, &fork, "notes.txt", TYPED);
    sh(&repo, fork.path(), "echo all of it > notes.txt");
    assert_eq!(saved(), "all of it\n");
    sh(&repo, fork.path(), "truncate -s 3 notes.txt");
    assert_eq!(saved(), "all");
    assert_read(&repo, &fork, "notes.txt", TYPED);
}
