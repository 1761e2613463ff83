//! What git says inside the mount must be what tine says of the fork.

use std::collections::BTreeSet;
use std::fs;

use tine::change::ChangeKind;
use tine::change::changeset::write_tree;

use super::reference::Reference;
use super::steps::joined;
use crate::support::repo::path_text;
use crate::support::{OutputExt, TestFork, TestRepo, run_with_timeout};

/// Checks a mounted fork that `git status` and the changeset name the same paths in the same way,
/// and that the changeset applied to HEAD's tree is the tree that `git add -A && git write-tree`
/// gives.
pub fn check(repo: &TestRepo, fork: &TestFork, reference: &Reference) {
    if fifo_in_the_way(repo, fork, reference) {
        return;
    }
    let changes = fork.changes();
    let ours: BTreeSet<(&str, Vec<u8>)> = changes
        .changes
        .iter()
        .map(|change| {
            let code = match change.kind() {
                ChangeKind::Added => "??",
                ChangeKind::Modified => " M",
                ChangeKind::Deleted => " D",
                ChangeKind::TypeChanged => " T",
            };
            (code, change.path.as_bytes().to_vec())
        })
        .collect();
    let status = repo
        .try_git_in(
            fork.path(),
            &[
                "status",
                "--porcelain=v1",
                "-z",
                "--no-renames",
                "--untracked-files=all",
            ],
        )
        .expect_success("git status");
    let theirs: BTreeSet<(&str, Vec<u8>)> = status
        .stdout
        .split(|&b| b == 0)
        .filter(|line| !line.is_empty())
        .map(|line| {
            (
                std::str::from_utf8(&line[..2]).expect("codes are ASCII"),
                line[3..].to_vec(),
            )
        })
        .collect();
    let only = |a: &BTreeSet<(&str, Vec<u8>)>, b: &BTreeSet<(&str, Vec<u8>)>| -> Vec<String> {
        a.difference(b)
            .map(|(code, path)| format!("{code} {}", String::from_utf8_lossy(path)))
            .collect()
    };
    assert!(
        ours == theirs,
        "status differs: only tine has {:?}, only git has {:?}",
        only(&ours, &theirs),
        only(&theirs, &ours)
    );

    let index = repo.root().join("temporary-index");
    let own_index = fork.fork().worktree.index_path();
    if own_index.exists() {
        fs::copy(&own_index, &index).expect("the worktree's index can be read");
    }
    let git = |args: &[&str]| {
        let mut command = repo.command("git", fork.path());
        command.env("GIT_INDEX_FILE", path_text(&index)).args(args);
        run_with_timeout(&mut command)
            .expect_success(&format!("git {args:?}"))
            .text()
    };
    git(&["add", "-A"]);
    let theirs = git(&["write-tree"]);
    let ours = write_tree(fork.repository(), &changes)
        .expect("the tree is written")
        .to_string();
    if ours != theirs {
        let difference = repo.git(&["diff-tree", "-r", "--no-renames", &theirs, &ours]);
        panic!("the trees differ, from git's to tine's:\n{difference}");
    }
    fs::remove_file(&index).expect("git wrote it");
}

/// Whether there is nothing to agree with: `git add -A` refuses a checkout with a fifo where a
/// tracked file was, and waits for ever for somebody to write to a fifo called `.gitignore`.
fn fifo_in_the_way(repo: &TestRepo, fork: &TestFork, reference: &Reference) -> bool {
    let fifos = reference.fifos();
    if fifos
        .iter()
        .any(|path| path.last().is_some_and(|name| name == b".gitignore"))
    {
        return true;
    }
    let fifos: BTreeSet<Vec<u8>> = fifos.iter().map(joined).collect();
    !fifos.is_empty()
        && repo
            .try_git_in(fork.path(), &["ls-tree", "-rz", "--name-only", "HEAD"])
            .expect_success("git ls-tree")
            .stdout
            .split(|&b| b == 0)
            .any(|path| fifos.contains(path))
}
