//! Moving the branch of an ordinary checkout forward, as `git merge --ff-only` does.

use std::path::Path;

use super::program::{self, Finished};
use super::{GitError, ObjectId, Repository};

impl Repository {
    /// Whether nothing that git tracks is changed in the checkout, staged or not.
    pub fn is_checkout_clean(&self, checkout_dir: &Path) -> Result<bool, GitError> {
        let mut command = program::command(checkout_dir);
        command.args([
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--ignore-submodules=dirty",
        ]);
        Ok(program::run(&mut command, b"")?.is_empty())
    }

    /// Fails where [`Repository::fast_forward_checkout`] would, as far as that can be known; refreshes the index of the checkout.
    ///
    /// # Errors
    /// [`GitError::CheckoutInTheWay`] with what git says, [`GitError::IndexLocked`].
    pub fn check_fast_forward(&self, checkout_dir: &Path, commit_id: ObjectId) -> Result<(), GitError> {
        // What it tells is told again below.
        program::finish(
            program::command(checkout_dir).args(["update-index", "-q", "--refresh"]),
            b"",
        )?;
        let mut command = program::command(checkout_dir);
        command
            .args(["read-tree", "--dry-run", "-m", "-u", "HEAD"])
            .arg(commit_id.to_string());
        let finished = program::finish(&mut command, b"")?;
        refusal(checkout_dir, &command, &finished)
    }

    /// Moves the branch that is checked out in `checkout_dir` forward to `commit_id`, with index and files and the hook
    /// `post-merge`. `action` is what the reflog says.
    ///
    /// # Errors
    /// [`GitError::CheckoutInTheWay`] where files are in the way, or the commit is not ahead, [`GitError::IndexLocked`].
    pub fn fast_forward_checkout(
        &self,
        checkout_dir: &Path,
        commit_id: ObjectId,
        action: &str,
    ) -> Result<(), GitError> {
        let mut command = program::command(checkout_dir);
        command
            .env("GIT_REFLOG_ACTION", super::refs::reflog_message(action))
            .args(["merge", "--ff-only", "--quiet", "--no-stat", "--no-autostash"])
            .arg(commit_id.to_string());
        let finished = program::finish(&mut command, b"")?;
        refusal(checkout_dir, &command, &finished)
    }
}

fn refusal(
    checkout_dir: &Path,
    command: &std::process::Command,
    finished: &Finished,
) -> Result<(), GitError> {
    if finished.status.success() {
        return Ok(());
    }
    let lock = Repository::git_dir_at(checkout_dir)?.join("index.lock");
    if lock.exists() {
        return Err(GitError::IndexLocked { lock });
    }
    match finished.status.code() {
        Some(1 | 128) => Err(GitError::CheckoutInTheWay {
            dir: checkout_dir.to_owned(),
            reason: String::from_utf8_lossy(&finished.stderr).trim().to_owned(),
        }),
        _ => Err(program::failed(command, finished)),
    }
}
