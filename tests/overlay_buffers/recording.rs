//! What is recorded: by git, by what git starts, and by tine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::support::{require_fuse, require_program, require_root};
use super::{SAVED, TYPED, assert_read, overlaid, repo, saved, type_text};
use tine::store::{SnapshotOptions, SnapshotReason};

#[test]
fn git_sees_and_commits_what_is_saved() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let git = |args: &[&str]| repo.git_in(fork.path(), args);
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(git(&["diff"]), "");
    fs::write(fork.path().join("other.txt"), "new\n").unwrap();
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    assert_eq!(git(&["show", "HEAD:notes.txt"]), SAVED.trim_end());
    assert_read(&fork, "notes.txt", TYPED);

    fs::write(fork.path().join("notes.txt"), "saved again\n").unwrap();
    assert_read(&fork, "notes.txt", TYPED);
    assert_eq!(git(&["status", "--porcelain"]), " M notes.txt");
    assert!(git(&["diff"]).contains("+saved again"));
    git(&["commit", "-q", "-a", "-m", "second"]);
    assert_eq!(git(&["show", "HEAD:notes.txt"]), "saved again");
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_read(&fork, "notes.txt", TYPED);
}

/// Large files git maps, and the index says how large a file was.
#[test]
fn git_sees_the_size_and_the_bytes_of_what_is_saved_however_large() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let git = |args: &[&str]| repo.git_in(fork.path(), args);
    let large = "saved, and large\n".repeat(50_000);
    fs::write(fork.path().join("notes.txt"), &large).unwrap();
    for text in ["", "short", &"typed\n".repeat(300_000)] {
        type_text(&fork, "notes.txt", text);
        assert_eq!(
            fs::read_to_string(fork.path().join("notes.txt")).unwrap(),
            text
        );
        git(&["add", "notes.txt"]);
        assert_eq!(
            git(&["cat-file", "-s", ":notes.txt"]),
            large.len().to_string()
        );
        assert_eq!(git(&["show", ":notes.txt"]), large.trim_end());
        assert_eq!(git(&["diff-files"]), "");
    }
}

#[test]
fn git_stash_and_checkout_change_the_file_and_not_what_is_shown() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let git = |args: &[&str]| repo.git_in(fork.path(), args);
    fs::write(fork.path().join("notes.txt"), "saved again\n").unwrap();
    type_text(&fork, "notes.txt", TYPED);
    git(&["stash"]);
    assert_eq!(saved(&fork, "notes.txt"), SAVED);
    assert_read(&fork, "notes.txt", TYPED);
    git(&["stash", "pop"]);
    assert_eq!(saved(&fork, "notes.txt"), "saved again\n");
    git(&["checkout", "-q", "notes.txt"]);
    assert_eq!(saved(&fork, "notes.txt"), SAVED);
    git(&["rm", "-q", "notes.txt"]);
    assert!(!fork.path().join("notes.txt").exists());
    git(&["reset", "-q", "--hard"]);
    assert_eq!(saved(&fork, "notes.txt"), SAVED);
    assert_read(&fork, "notes.txt", TYPED);
}

/// A filter is a program of its own, whose output git records.
#[test]
fn what_git_starts_sees_what_is_saved() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    let git = |args: &[&str]| repo.git_in(fork.path(), args);
    git(&[
        "config",
        "filter.copy.clean",
        "sh -c 'cat >/dev/null; cat \"$1\"' - %f",
    ]);
    fs::write(fork.path().join(".gitattributes"), "*.txt filter=copy\n").unwrap();
    fs::write(fork.path().join("notes.txt"), "saved again\n").unwrap();
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    git(&["add", "-A"]);
    assert_eq!(git(&["show", ":notes.txt"]), "saved again");

    // A script that calls itself git, and runs another program.
    let wrapper = repo.root().join("git");
    fs::write(&wrapper, "#!/bin/sh\ncat notes.txt\n").unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(repo.sh_in(fork.path(), "../../git"), "saved again");
    assert_eq!(repo.sh_in(fork.path(), "cat notes.txt"), TYPED.trim_end());
}

#[test]
fn tine_commits_and_keeps_what_is_saved() {
    require_fuse!();
    let repo = repo();
    let fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    assert_read(&fork, "notes.txt", TYPED);
    assert!(fork.changes().changes.is_empty());
    assert!(fork.workspace().is_unwritten(), "nothing was written");
    fs::write(fork.path().join("notes.txt"), "saved again\n").unwrap();
    let options = SnapshotOptions::because(SnapshotReason::Periodic);
    fork.store()
        .take_snapshot(fork.name(), fork.fork(), &options)
        .unwrap();
    assert_eq!(saved(&fork, "notes.txt"), "saved again\n");
    fork.commit("by tine").unwrap();
    assert_eq!(
        repo.git_in(fork.path(), &["show", "HEAD:notes.txt"]),
        "saved again"
    );
    assert_read(&fork, "notes.txt", TYPED);
}

/// As agents' sandboxes are: the daemon sees the processes in it, by other numbers than they have.
#[test]
fn a_pid_namespace_beneath_is_looked_into() {
    require_fuse!();
    require_program!("unshare");
    require_root!("make a PID namespace");
    let repo = repo();
    let fork = overlaid(&repo, "one");
    type_text(&fork, "notes.txt", TYPED);
    let within = |script: &str| {
        let shell = format!("unshare --pid --fork --mount-proc sh -euc '{script}'");
        repo.sh_in(fork.path(), &shell)
    };
    assert_eq!(within("cat notes.txt"), TYPED.trim_end());
    assert_eq!(
        within("git hash-object notes.txt"),
        repo.git(&["rev-parse", "HEAD:notes.txt"])
    );
    within("echo more >> notes.txt");
    assert_eq!(saved(&fork, "notes.txt"), format!("{SAVED}more\n"));
}
