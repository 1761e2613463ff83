//! Fast-forward of an ordinary checkout under git's locks, as `git merge --ff-only`.
//!
//! The index is locked first, so that no other git command changes index, files or HEAD meanwhile.
//! git updates the files with a second copy of the index, which replaces the index only when all
//! files are written. The branch is locked before the first file changes, and moves last, by
//! compare-and-swap. A failure rolls the files back.
//!
//! | step | recovery by the next process |
//! |---|---|
//! | `index.lock` exists, with `index.tine` beside it, which git holds open while it writes files | it waits for that git |
//! | some files are new | the index is old: files with (the beginning of) the new content are rolled back, those of filters from copies in `tine-kept` |
//! | the index is new | the branch is old: it is moved |
//! | the branch is new | only the locks are left |

mod in_the_way;
mod place;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use self::place::Place;
use super::index::{IndexLock, release_stale_at};
use super::program;
use super::refs::{lock_of, reflog_message, remove_stale_lock};
use super::{GitError, ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;
use tine_sys::{file, pause};

/// Maximum wait for a checkout's index that git has locked.
const INDEX_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time that an orphaned git may go on writing files.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that git waits for a locked ref.
const REF_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum wait before a ref's lock counts as stale.
const STALE_LOCK_TIMEOUT: Duration = Duration::from_millis(500);

const INTERVAL: Duration = Duration::from_millis(10);

/// A checkout that is about to follow its branch.
///
/// The index is locked until this is dropped. Nothing has changed yet.
pub struct CheckoutMove<'r> {
    repository: &'r Repository,
    place: Place,
    /// Short name.
    branch: String,
    from: ObjectId,
    to: ObjectId,
    lock: IndexLock,
}

impl Repository {
    /// Returns whether the checkout has no staged or unstaged changes.
    ///
    /// Untracked files do not count.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if `git status` fails.
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

    /// Locks the index of `checkout_dir`, and checks a move to `to`.
    ///
    /// `branch` (short name) is checked out there at `from`. Waits up to two seconds for another
    /// git command.
    ///
    /// # Errors
    /// [`GitError::CheckoutInTheWay`] or [`GitError::UntrackedInTheWay`] if files are in the way or
    /// `to` is not ahead, [`GitError::IndexLocked`], [`GitError::RefMoved`], or
    /// [`GitError::BranchCheckedOut`] if another branch is checked out by now.
    pub fn prepare_checkout_move(
        &self,
        checkout_dir: &Path,
        branch: &str,
        from: ObjectId,
        to: ObjectId,
    ) -> Result<CheckoutMove<'_>, GitError> {
        let moving = self.lock_checkout(checkout_dir, branch, from, to)?;
        moving.check_free()?;
        moving.place.take_scratch_index()?;
        moving.check_files()?;
        Ok(moving)
    }

    /// Completes a move that a dead process began, or rolls it back.
    ///
    /// If the index is new, the branch follows; otherwise the files are rolled back. If the branch
    /// has moved since, or HEAD is on another one, removes only the locks. Returns whether the
    /// branch is at `to`.
    ///
    /// # Errors
    /// [`GitError::IndexLocked`], [`GitError::RefLocked`], or an error of git or of the file
    /// system.
    pub fn finish_checkout_move(
        &self,
        checkout_dir: &Path,
        branch: &str,
        (from, to): (ObjectId, ObjectId),
        action: &str,
    ) -> Result<bool, GitError> {
        let place = Place::of(checkout_dir)?;
        place.wait_for_orphan()?;
        if release_stale_at(&place.git_dir)? {
            for path in [
                place.git_dir.join("HEAD"),
                place.git_dir.join("ORIG_HEAD"),
                self.common_dir().join("refs/heads").join(branch),
            ] {
                release_if_stale(&lock_of(&path))?;
            }
        }
        place.remove_scratch_index()?;
        match self.lock_checkout(checkout_dir, branch, from, to) {
            Ok(moving) => {
                if !moving.is_index_new()? {
                    moving.roll_back_files()?;
                    return Ok(false);
                }
                RefMove::prepare(&moving, &message_of(action))?.commit()?;
                Ok(true)
            }
            Err(GitError::RefMoved { .. } | GitError::BranchCheckedOut { .. }) => {
                Ok(self.branch(branch)? == Some(to))
            }
            Err(error) => Err(error),
        }
    }

    /// Runs the `post-merge` hook and maintenance, as git does after a merge.
    ///
    /// Failures are only logged.
    pub fn after_checkout_move(&self, checkout_dir: &Path) {
        let commands: [&[&str]; 2] = [
            &["hook", "run", "--ignore-missing", "post-merge", "--", "0"],
            &["maintenance", "run", "--auto", "--quiet"],
        ];
        for args in commands {
            let mut command = program::command(checkout_dir);
            program::speak_as_user(&mut command);
            if let Err(error) = program::run(command.args(args), b"") {
                log::info!("after the merge in {}: {error}", checkout_dir.display());
            }
        }
    }

    fn lock_checkout(
        &self,
        checkout_dir: &Path,
        branch: &str,
        from: ObjectId,
        to: ObjectId,
    ) -> Result<CheckoutMove<'_>, GitError> {
        let place = Place::of(checkout_dir)?;
        let lock = IndexLock::acquire_at(&place.git_dir, INDEX_LOCK_TIMEOUT)?;
        // A git that outlives this process keeps it locked.
        file::try_lock(lock.file()).map_err(GitError::io("lock", &place.git_dir))?;
        let head = self.head_of(&place.git_dir)?;
        // HEAD may be on an alias of the branch.
        if head
            .short_branch()
            .map(|name| self.branch_behind(name))
            .as_deref()
            != Some(branch)
        {
            return Err(GitError::BranchCheckedOut {
                branch: branch.to_owned(),
                at: place.dir,
            });
        }
        if head.commit_id() != Some(from) {
            return Err(moved(branch));
        }
        Ok(CheckoutMove {
            repository: self,
            place,
            branch: branch.to_owned(),
            from,
            to,
            lock,
        })
    }
}

impl CheckoutMove<'_> {
    /// Moves files, index and branch, all or nothing.
    ///
    /// `action` is the start of the reflog message.
    ///
    /// # Errors
    /// Fails as [`Repository::prepare_checkout_move`], with nothing changed;
    /// [`GitError::CheckoutHalfMoved`] if the rollback failed, which
    /// [`Repository::finish_checkout_move`] retries.
    pub fn go(self, action: &str) -> Result<(), GitError> {
        pause::at("before-ref");
        let refs = RefMove::prepare(&self, &message_of(action))?;
        pause::at("before-index");
        let followed = self
            .keep_filtered()
            .and_then(|()| self.read_tree(&[], (self.from, self.to), Some(self.lock.file())))
            .and_then(|()| self.place.put_scratch_index());
        if let Err(error) = followed {
            return Err(self.failed(error, self.roll_back_files()));
        }
        if let Err(error) = refs.commit() {
            return Err(self.failed(error, self.roll_back_all()));
        }
        self.lock.wait_for_readers_in(&self.place.dir);
        Ok(())
    }

    /// Returns the error of a failed move, after its rollback.
    ///
    /// It is [`GitError::CheckoutHalfMoved`] if the rollback failed as well.
    fn failed(&self, error: GitError, rolled_back: Result<(), GitError>) -> GitError {
        match rolled_back {
            Ok(()) => error,
            Err(stays) => {
                let dir = &self.place.dir;
                log::error!(
                    "files in {} may be those of {}: {stays}",
                    dir.display(),
                    self.to
                );
                GitError::CheckoutHalfMoved {
                    dir: dir.clone(),
                    reason: stays.to_string(),
                    cause: Box::new(error),
                }
            }
        }
    }

    /// Makes the checks of `git merge --ff-only` that precede those of files.
    fn check_free(&self) -> Result<(), GitError> {
        let in_the_way = |reason: &str| GitError::CheckoutInTheWay {
            dir: self.place.dir.clone(),
            reason: reason.to_owned(),
        };
        for (name, operation) in [("MERGE_HEAD", "merge"), ("CHERRY_PICK_HEAD", "cherry-pick")] {
            if self.place.git_dir.join(name).exists() {
                return Err(in_the_way(&format!("a {operation} is under way there")));
            }
        }
        if self.repository.is_ancestor(self.from, self.to)? {
            Ok(())
        } else {
            Err(in_the_way("the commit is not ahead of the branch"))
        }
    }

    /// Refreshes the scratch index, and refuses if files are in the way.
    fn check_files(&self) -> Result<(), GitError> {
        self.refresh()?;
        self.read_tree(&["--dry-run"], (self.from, self.to), None)?;
        self.refuse_over_untracked()
    }

    /// Copies the changed files that a filter writes.
    ///
    /// If the filter fails, it cannot write the old content either.
    fn keep_filtered(&self) -> Result<(), GitError> {
        self.place.remove_kept()?;
        let mut config = program::command(&self.place.dir);
        config.args(["config", "--get-regexp", r"^filter\..*\.(smudge|process)$"]);
        if !program::finish(&mut config, b"")?.status.success() {
            return Ok(());
        }
        let mut names = Vec::new();
        for path in self.changed()? {
            names.extend_from_slice(path.as_bytes());
            names.push(0);
        }
        let mut attributes = program::command(&self.place.dir);
        attributes.args(["check-attr", "-z", "--stdin", "filter"]);
        let output = program::run(&mut attributes, &names)?;
        let mut fields = output.split(|byte| *byte == 0);
        // The fields are a path, the attribute's name, and its value.
        while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next())
        {
            if !matches!(value, b"unspecified" | b"unset")
                && let Ok(path) = RepoPath::parse(path)
            {
                self.place.keep(&path)?;
            }
        }
        Ok(())
    }

    fn refresh(&self) -> Result<(), GitError> {
        let mut command = self.place.git();
        // A failing status only reports changed files.
        program::finish(command.args(["update-index", "-q", "--refresh"]), b"").map(drop)
    }

    /// Moves the scratch index from one commit to another with git.
    ///
    /// Also writes the files, unless `options` has `--dry-run`. git holds `held` open meanwhile.
    fn read_tree(
        &self,
        options: &[&str],
        (from, to): (ObjectId, ObjectId),
        held: Option<&File>,
    ) -> Result<(), GitError> {
        let mut command = self.place.git();
        command
            .arg("read-tree")
            .args(options)
            .args(["-m", "-u"])
            .args([from.to_string(), to.to_string()]);
        let input = match held {
            Some(file) => file
                .try_clone()
                .map_err(GitError::io("share", &self.place.git_dir))?
                .into(),
            None => Stdio::null(),
        };
        let finished = program::finish_reading(&mut command, input)?;
        self.place.move_error(&command, &finished)
    }

    /// Returns whether the index is already the new one.
    ///
    /// It checks the first of the changed paths.
    fn is_index_new(&self) -> Result<bool, GitError> {
        let to = self.to.to_string();
        let differ = paths(program::command(&self.place.dir).args([
            "diff-index",
            "--cached",
            "-z",
            "--name-only",
            "--no-renames",
            &to,
            "--",
        ]))?;
        let changed = self.changed()?;
        Ok(changed.first().is_none_or(|path| !differ.contains(path)))
    }

    /// Rolls back the files that this move wrote, from the old index.
    fn roll_back_files(&self) -> Result<(), GitError> {
        self.place.take_scratch_index()?;
        self.refresh()?;
        let old_tree = self.repository.commit_info(self.from)?.tree_id;
        let mut old = Vec::new();
        for path in self.written_paths()? {
            let place = self.place.file(&path);
            let found = fs::symlink_metadata(&place).ok();
            let is_directory = found.as_ref().is_some_and(fs::Metadata::is_dir);
            if found.is_some() && !is_directory && !self.is_written(&path, &place)? {
                // Another program has changed it meanwhile.
                continue;
            }
            let was_there = self.repository.tree_entry(old_tree, &path)?;
            if was_there.is_some_and(|entry| entry.kind != TreeEntryKind::Directory) {
                old.push(path);
            } else if found.is_some() && !is_directory {
                fs::remove_file(&place).map_err(GitError::io("remove", &place))?;
                self.place.remove_empty_above(&path);
            }
        }
        let is_free = |path: &RepoPath| {
            let mut above = path.directories_above();
            let place = self.place.file(path);
            let is_directory = place.is_dir() && !place.is_symlink();
            let in_the_way = |dir: RepoPath| {
                let found = fs::symlink_metadata(self.place.file(&dir));
                found.is_ok_and(|found| !found.is_dir())
            };
            !is_directory && !above.any(in_the_way)
        };
        let mut names = Vec::new();
        for path in old.iter().filter(|path| is_free(path)) {
            if self.place.restore_kept(path)? {
                continue;
            }
            names.extend_from_slice(path.as_bytes());
            names.push(0);
        }
        let mut command = self.place.git();
        command.args(["checkout-index", "-q", "-f", "-z", "--stdin"]);
        program::run(&mut command, &names).map(drop)
    }

    /// Rolls index and files back after both were moved.
    fn roll_back_all(&self) -> Result<(), GitError> {
        self.place.take_scratch_index()?;
        self.refresh()?;
        self.read_tree(&[], (self.to, self.from), None)?;
        self.place.put_scratch_index()
    }

    /// Lists the changed paths whose files differ from the scratch index.
    ///
    /// Includes paths that the index lacks.
    fn written_paths(&self) -> Result<Vec<RepoPath>, GitError> {
        let changed = self.changed()?;
        let differ = paths(self.place.git().args(["diff-files", "-z", "--name-only"]))?;
        let known = paths(self.place.git().args(["ls-files", "-z"]))?;
        let is_touched =
            |path: &RepoPath| differ.contains(path) || known.binary_search(path).is_err();
        Ok(changed.into_iter().filter(is_touched).collect())
    }

    /// Lists the paths that the move changes, sorted.
    fn changed(&self) -> Result<Vec<RepoPath>, GitError> {
        self.differing(&[])
    }

    /// Lists the paths at which the two commits differ, sorted.
    ///
    /// `options` of `git diff-tree` restrict them.
    fn differing(&self, options: &[&str]) -> Result<Vec<RepoPath>, GitError> {
        let mut command = program::command(&self.place.dir);
        command.args(["diff-tree", "-r", "-z", "--name-only", "--no-renames"]);
        command
            .args(options)
            .args([self.from.to_string(), self.to.to_string()]);
        paths(&mut command)
    }

    /// Returns whether this move wrote the file or symlink.
    ///
    /// Its content is then the new commit's, or a beginning of it.
    fn is_written(&self, path: &RepoPath, place: &Path) -> Result<bool, GitError> {
        let content = match fs::symlink_metadata(place) {
            Ok(found) if found.is_file() => fs::read(place).map_err(GitError::io("read", place))?,
            Ok(found) if found.is_symlink() => fs::read_link(place)
                .map_err(GitError::io("read", place))?
                .into_os_string()
                .into_vec(),
            _ => return Ok(false),
        };
        let mut command = program::command(&self.place.dir);
        let mut name = format!("{}:", self.to).into_bytes();
        name.extend_from_slice(path.as_bytes());
        command
            .args(["cat-file", "--filters"])
            .arg(OsStr::from_bytes(&name));
        let finished = program::finish(&mut command, b"")?;
        Ok(finished.status.success() && finished.stdout.starts_with(&content))
    }
}

impl Drop for CheckoutMove<'_> {
    fn drop(&mut self) {
        for removed in [self.place.remove_scratch_index(), self.place.remove_kept()] {
            if let Err(error) = removed {
                log::warn!("{error}");
            }
        }
    }
}

/// A branch that is locked at its old commit.
///
/// It moves on commit. Dropping it leaves the branch where it is.
struct RefMove {
    child: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    branch: String,
    lock: PathBuf,
}

impl RefMove {
    /// Locks the branch of a checkout, and checks its old commit.
    ///
    /// git also writes `ORIG_HEAD` and the reflog of HEAD, and runs the `reference-transaction`
    /// hook.
    fn prepare(moving: &CheckoutMove<'_>, message: &str) -> Result<RefMove, GitError> {
        let mut command = program::command(&moving.place.dir);
        command
            // git's default of 100 ms is too short under load.
            .args([
                "-c",
                &format!("core.filesRefLockTimeout={}", REF_LOCK_TIMEOUT.as_millis()),
            ])
            .args(["update-ref", "-m", message, "--stdin"])
            // Its error messages are parsed.
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = program::spawn(&mut command)?;
        let (Some(input), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(GitError::GitMissing(ErrorKind::BrokenPipe.into()));
        };
        let path = moving
            .repository
            .common_dir()
            .join("refs/heads")
            .join(&moving.branch);
        let mut refs = RefMove {
            child,
            input: Some(input),
            answers: BufReader::new(answers),
            branch: moving.branch.clone(),
            lock: lock_of(&path),
        };
        let (branch, from, to) = (&moving.branch, moving.from, moving.to);
        refs.send_and_wait("start")?;
        refs.send(&format!(
            "update ORIG_HEAD {from}\nupdate refs/heads/{branch} {to} {from}\n"
        ))?;
        refs.send_and_wait("prepare")?;
        Ok(refs)
    }

    fn commit(mut self) -> Result<(), GitError> {
        self.send_and_wait("commit")
    }

    fn send(&mut self, text: &str) -> Result<(), GitError> {
        let told = match &mut self.input {
            Some(input) => input
                .write_all(text.as_bytes())
                .and_then(|()| input.flush()),
            None => Ok(()),
        };
        match told {
            Ok(()) => Ok(()),
            // git has ended, and its error output has the reason.
            Err(_) => Err(self.failure()),
        }
    }

    /// Sends a command, and waits until git reports that it is done.
    fn send_and_wait(&mut self, verb: &str) -> Result<(), GitError> {
        self.send(&format!("{verb}\n"))?;
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        if read.is_ok() && answer.trim_end() == format!("{verb}: ok") {
            Ok(())
        } else {
            Err(self.failure())
        }
    }

    /// Returns the reason why git ended early.
    fn failure(&mut self) -> GitError {
        let is_locked = self.lock.exists();
        self.input = None;
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            // If it cannot be read, the text stays empty.
            let _ = std::io::Read::read_to_string(&mut errors, &mut said);
        }
        if let Some(error) = program::format_io_error(&said) {
            let path = self.lock.with_extension("");
            return GitError::io("move the branch at", path)(error);
        }
        if said.contains("but expected") || said.contains("unable to resolve reference") {
            return moved(&self.branch);
        }
        // git also locks HEAD and `ORIG_HEAD`.
        let named = said
            .split_once("Unable to create '")
            .map_or("", |(_, rest)| rest);
        let named = named
            .split('\'')
            .next()
            .filter(|path| path.ends_with(".lock"));
        let lock = named
            .map(PathBuf::from)
            .or(is_locked.then(|| self.lock.clone()));
        if let Some(lock) = lock.filter(|_| said.contains(".lock")) {
            return GitError::RefLocked {
                name: self.branch.clone(),
                lock,
            };
        }
        GitError::GitFailed {
            command: format!("update-ref refs/heads/{}", self.branch),
            stderr: said.trim().to_owned(),
        }
    }
}

impl Drop for RefMove {
    fn drop(&mut self) {
        // git rolls back what was not committed.
        self.input = None;
        if let Err(error) = self.child.wait() {
            log::warn!("git that moved {}: {error}", self.branch);
        }
    }
}

/// Returns git's own reflog message for a fast-forward.
fn message_of(action: &str) -> String {
    format!("{}: Fast-forward", reflog_message(action))
}

/// Removes a ref's lock if it is stale.
fn release_if_stale(lock: &Path) -> Result<(), GitError> {
    let deadline = Instant::now() + STALE_LOCK_TIMEOUT;
    while lock.exists() {
        if Instant::now() >= deadline {
            return remove_stale_lock(lock);
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Lists the NUL-terminated paths that a command prints, sorted.
fn paths(command: &mut Command) -> Result<Vec<RepoPath>, GitError> {
    let output = program::run(command, b"")?;
    let paths = output
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty());
    let mut paths: Vec<RepoPath> = paths
        .filter_map(|path| RepoPath::parse(path).ok())
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn moved(branch: &str) -> GitError {
    GitError::RefMoved {
        name: branch.to_owned(),
    }
}
