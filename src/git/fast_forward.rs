//! Moving the branch of an ordinary checkout forward, as `git merge --ff-only` does, under git's
//! own locks.
//!
//! The index is locked first, so that no other git command changes index, files or HEAD meanwhile.
//! git brings the files along over a second name of the index, which replaces the index only when
//! all files are there. The branch is locked before the first file changes, and moves last, by
//! compare-and-swap. A failure takes the files back.
//!
//! | step | found by the next process |
//! |---|---|
//! | `index.lock`, with `index.tine` beside it, which git has open while it writes files | it waits for that git |
//! | some files are new | the index is old: files that are as the new commit has them, or begin so, go back, those of filters from copies in `tine-kept` |
//! | the index is new | the branch is old: it follows |
//! | the branch is new | nothing is left but the locks |

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

/// How long the index of a checkout that git has locked is waited for.
const INDEX_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a git that outlived its daemon may go on writing files.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that git waits for a ref that another process has locked.
const REF_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a ref may stay locked before the lock counts as left behind.
const REF_LOCK_PATIENCE: Duration = Duration::from_millis(500);

const INTERVAL: Duration = Duration::from_millis(10);

/// A checkout that is about to follow its branch. The index is locked until this is dropped;
/// nothing has changed yet.
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

    /// Locks the index of `checkout_dir`, where `branch` (short name) is checked out at `from`, and
    /// finds out whether index and files can follow to `to`. Waits a moment for another git
    /// command.
    ///
    /// # Errors
    /// [`GitError::CheckoutInTheWay`] where files are in the way, or the commit is not ahead,
    /// [`GitError::IndexLocked`], [`GitError::RefMoved`], [`GitError::BranchCheckedOut`] where
    /// another branch is checked out by now.
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

    /// Ends a move that a process which died had begun: where the index is in its place the branch
    /// follows, else the files go back. Whether the branch is at `to` then. Where somebody else has
    /// moved it since, or put HEAD on another one, only the locks go.
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
                release_after_a_while(&lock_of(&path))?;
            }
        }
        place.remove_scratch_index()?;
        match self.lock_checkout(checkout_dir, branch, from, to) {
            Ok(moving) => {
                if !moving.is_index_new()? {
                    moving.take_back()?;
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

    /// Runs what git runs after a merge in a checkout: the hook `post-merge`, and maintenance.
    /// Neither can fail the merge.
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
        // HEAD may be on an alias of it.
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
    /// Brings files, index and branch along, all or nothing. `action` is what the reflogs say.
    ///
    /// # Errors
    /// As [`Repository::prepare_checkout_move`]; nothing has changed then.
    /// [`GitError::CheckoutHalfMoved`] where a failure could not be taken back:
    /// [`Repository::finish_checkout_move`] tries again.
    pub fn go(self, action: &str) -> Result<(), GitError> {
        pause::at("before-ref");
        let refs = RefMove::prepare(&self, &message_of(action))?;
        pause::at("before-index");
        let followed = self
            .keep_filtered()
            .and_then(|()| self.read_tree(&[], (self.from, self.to), Some(self.lock.file())))
            .and_then(|()| self.place.put_scratch_index());
        if let Err(error) = followed {
            return Err(self.failed(error, self.take_back()));
        }
        if let Err(error) = refs.commit() {
            return Err(self.failed(error, self.go_back()));
        }
        self.lock.hold_off_readers(&self.place.dir);
        Ok(())
    }

    /// Returns why the move failed, or that it is half done where the files could not be taken
    /// back.
    fn failed(&self, error: GitError, taken_back: Result<(), GitError>) -> GitError {
        match taken_back {
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

    /// Refuses what `git merge --ff-only` refuses before it looks at files.
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
        match self.repository.is_ancestor(self.from, self.to)? {
            true => Ok(()),
            false => Err(in_the_way("the commit is not ahead of the branch")),
        }
    }

    /// Refreshes the scratch index, and refuses where files are in the way.
    fn check_files(&self) -> Result<(), GitError> {
        self.refresh()?;
        self.read_tree(&["--dry-run"], (self.from, self.to), None)?;
        self.refuse_over_untracked()
    }

    /// Copies the files that the move is about and that a filter writes: where that fails, it
    /// cannot write the old ones either.
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
        // A path, the attribute's name, and its value.
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
        // What it tells of changed files is no failure.
        program::finish(command.args(["update-index", "-q", "--refresh"]), b"").map(drop)
    }

    /// Has git bring the scratch index, and without `--dry-run` the files, from one commit to
    /// another. It has `held` open meanwhile.
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
        self.place.refusal(&command, &finished)
    }

    /// Whether the index is the new one already: of the paths that the move is about, the first is
    /// as the new commit has it.
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

    /// Puts files back that this move has written, as the index, which is the old one still, has
    /// them.
    fn take_back(&self) -> Result<(), GitError> {
        self.place.take_scratch_index()?;
        self.refresh()?;
        let old_tree = self.repository.commit_info(self.from)?.tree_id;
        let mut old = Vec::new();
        for path in self.touched()? {
            let place = self.place.file(&path);
            let found = fs::symlink_metadata(&place).ok();
            let is_directory = found.as_ref().is_some_and(fs::Metadata::is_dir);
            if found.is_some() && !is_directory && !self.is_written(&path, &place)? {
                // Somebody else was there meanwhile.
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
            if self.place.put_back_kept(path)? {
                continue;
            }
            names.extend_from_slice(path.as_bytes());
            names.push(0);
        }
        let mut command = self.place.git();
        command.args(["checkout-index", "-q", "-f", "-z", "--stdin"]);
        program::run(&mut command, &names).map(drop)
    }

    /// Puts index and files back that are there already.
    fn go_back(&self) -> Result<(), GitError> {
        self.place.take_scratch_index()?;
        self.refresh()?;
        self.read_tree(&[], (self.to, self.from), None)?;
        self.place.put_scratch_index()
    }

    /// Paths that the move is about, whose files are not as the scratch index has them, or that it
    /// has not.
    fn touched(&self) -> Result<Vec<RepoPath>, GitError> {
        let changed = self.changed()?;
        let differ = paths(self.place.git().args(["diff-files", "-z", "--name-only"]))?;
        let known = paths(self.place.git().args(["ls-files", "-z"]))?;
        let is_touched =
            |path: &RepoPath| differ.contains(path) || known.binary_search(path).is_err();
        Ok(changed.into_iter().filter(is_touched).collect())
    }

    /// The paths that the move is about, sorted.
    fn changed(&self) -> Result<Vec<RepoPath>, GitError> {
        self.differing(&[])
    }

    /// The paths at which the two commits differ, as these options of `git diff-tree` choose them;
    /// sorted.
    fn differing(&self, options: &[&str]) -> Result<Vec<RepoPath>, GitError> {
        let mut command = program::command(&self.place.dir);
        command.args(["diff-tree", "-r", "-z", "--name-only", "--no-renames"]);
        command
            .args(options)
            .args([self.from.to_string(), self.to.to_string()]);
        paths(&mut command)
    }

    /// Whether the file, or symlink, has the new commit's content, or the beginning of it: this
    /// move has written it.
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

/// A branch that is locked at its old commit, and about to move. Dropping it leaves the branch
/// where it is.
struct RefMove {
    child: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    branch: String,
    lock: PathBuf,
}

impl RefMove {
    /// Locks the branch of a checkout; git verifies that it is where it is believed to be. git also
    /// writes the reflog of HEAD, `ORIG_HEAD`, and asks the hook `reference-transaction`.
    fn prepare(moving: &CheckoutMove<'_>, message: &str) -> Result<RefMove, GitError> {
        let mut command = program::command(&moving.place.dir);
        command
            // A tenth of a second, which git waits by itself, is little where much goes on.
            .args([
                "-c",
                &format!("core.filesRefLockTimeout={}", REF_LOCK_TIMEOUT.as_millis()),
            ])
            .args(["update-ref", "-m", message, "--stdin"])
            // What it says is looked into.
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
        refs.ask("start")?;
        refs.tell(&format!(
            "update ORIG_HEAD {from}\nupdate refs/heads/{branch} {to} {from}\n"
        ))?;
        refs.ask("prepare")?;
        Ok(refs)
    }

    fn commit(mut self) -> Result<(), GitError> {
        self.ask("commit")
    }

    fn tell(&mut self, text: &str) -> Result<(), GitError> {
        let told = match &mut self.input {
            Some(input) => input
                .write_all(text.as_bytes())
                .and_then(|()| input.flush()),
            None => Ok(()),
        };
        match told {
            Ok(()) => Ok(()),
            // It has ended, and says why.
            Err(_) => Err(self.failure()),
        }
    }

    /// Sends a command, and waits until git says that it is done.
    fn ask(&mut self, verb: &str) -> Result<(), GitError> {
        self.tell(&format!("{verb}\n"))?;
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        match read.is_ok() && answer.trim_end() == format!("{verb}: ok") {
            true => Ok(()),
            false => Err(self.failure()),
        }
    }

    /// Why git ended without having done what it was told.
    fn failure(&mut self) -> GitError {
        let is_locked = self.lock.exists();
        self.input = None;
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            // What cannot be read is told by its absence.
            let _ = std::io::Read::read_to_string(&mut errors, &mut said);
        }
        if let Some(error) = program::format_io_error(&said) {
            let path = self.lock.with_extension("");
            return GitError::io("move the branch at", path)(error);
        }
        if said.contains("but expected") || said.contains("unable to resolve reference") {
            return moved(&self.branch);
        }
        // It locks HEAD and `ORIG_HEAD`, too.
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
        // git gives up what it was not told to commit.
        self.input = None;
        if let Err(error) = self.child.wait() {
            log::warn!("git that moved {}: {error}", self.branch);
        }
    }
}

/// What git's own reflog would say.
fn message_of(action: &str) -> String {
    format!("{}: Fast-forward", reflog_message(action))
}

/// Removes a ref's lock, unless it goes by itself.
fn release_after_a_while(lock: &Path) -> Result<(), GitError> {
    let deadline = Instant::now() + REF_LOCK_PATIENCE;
    while lock.exists() {
        if Instant::now() >= deadline {
            return remove_stale_lock(lock);
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// The paths that a command prints, each with a zero byte after it; sorted.
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
