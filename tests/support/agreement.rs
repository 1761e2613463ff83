//! Whether all that tells where a fork stands tells the same.

use std::path::PathBuf;

use super::{TestRepo, Tine, mounts_beneath};

/// HEAD, index and view of a fork agree, but for `uncommitted` (as `git diff --name-status` has
/// it); mounted, git says so, too.
#[track_caller]
pub fn assert_agreement(repo: &TestRepo, tine: &Tine, fork: &str, uncommitted: &str) {
    let head = repo.git_of_fork(fork, &["rev-parse", "HEAD^{tree}"]);
    assert_eq!(
        repo.git_of_fork(fork, &["write-tree"]),
        head,
        "the index of {fork}"
    );
    assert_eq!(
        tine.ok(&["diff", fork, "--name-status"]),
        uncommitted,
        "{fork}"
    );
    let dir = PathBuf::from(tine.ok(&["path", fork]));
    if !mounts_beneath(&dir).is_empty() {
        let status = repo.status(&dir);
        assert_eq!(
            status.lines().count(),
            uncommitted.lines().count(),
            "{fork}: {status}"
        );
    }
}
