//! Moves of a worktree's HEAD to another branch or commit.
//!
//! They are the last step of `git switch`, after the files are in place.

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use gix::refs::store::WriteReflog;
use gix::refs::transaction::{Change, LogChange, PreviousValue, RefEdit, RefLog};
use gix::refs::{FullName, Target};

use super::refs::{branch_ref, read_if_there, reflog_message};
use super::{GitError, Head, ObjectId, Repository, Worktree, program};
use tine_sys::pause;

/// A branch that another worktree or command moved under its worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedUnder {
    /// Short name.
    pub branch: String,
    /// Commit at which the worktree left the branch.
    pub left_at: ObjectId,
    /// Commit at which the branch is now.
    pub now: ObjectId,
    /// Author and message of the move, if the branch's reflog has them.
    pub by: Option<String>,
}

/// A deleted branch that a worktree is still on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneBranch {
    /// Short name.
    pub branch: String,
    /// Commit at which the worktree left the branch.
    pub left_at: ObjectId,
}

impl Repository {
    /// Finds out whether the branch of `worktree` was deleted under it.
    ///
    /// The reflog of its HEAD decides. A branch without any commit, as after `git switch --orphan`,
    /// does not count, nor does one that was deleted in the worktree itself, which the reflog
    /// records. `made_on` is the branch (short name) that the worktree began on. Without reflogs
    /// the result is `None`.
    ///
    /// # Errors
    /// Fails if HEAD or its reflog cannot be read.
    pub fn gone_branch(
        &self,
        worktree: &Worktree,
        made_on: &str,
    ) -> Result<Option<GoneBranch>, GitError> {
        let head = self.head_of(worktree.git_dir())?;
        let (Head::Unborn { .. }, Some(branch)) = (&head, head.short_branch()) else {
            return Ok(None);
        };
        let log = read_if_there(&worktree.git_dir().join("logs/HEAD"))?.unwrap_or_default();
        let lines: Vec<LogLine> = log_lines(&log).collect();
        let last_on = lines.iter().rev().find_map(LogLine::branch_after);
        let left_at = lines.last().map(|line| line.new).filter(|id| !id.is_null());
        Ok(left_at
            .filter(|_| last_on.unwrap_or(made_on) == branch)
            .map(|left_at| GoneBranch {
                branch: branch.to_owned(),
                left_at,
            }))
    }

    /// Returns the HEAD commit of the fork `fork`, which has `worktree`.
    ///
    /// If its branch moved under it, this is the commit at which the fork left it. `made_on` is the
    /// branch (short name) that the worktree began on.
    ///
    /// # Errors
    /// Fails as [`Repository::moved_under`].
    pub fn head_left_at(
        &self,
        worktree: &Worktree,
        fork: &str,
        made_on: &str,
    ) -> Result<Option<ObjectId>, GitError> {
        match self.moved_under(worktree, fork, made_on)? {
            Some(moved) => Ok(Some(moved.left_at)),
            None => Ok(self.head_of(worktree.git_dir())?.commit_id()),
        }
    }

    /// Finds out whether the branch of `worktree` was moved from outside.
    ///
    /// Another worktree, or a command that does not know this one, may have moved the branch, or
    /// deleted and recreated it. The reflogs decide. Where they have expired or were lost with the
    /// power, as git does not sync them, the ref that is kept for the fork `fork` and its index
    /// decide. `made_on` is the branch (short name) that the worktree began on. If reflogs are
    /// disabled the result is `None`.
    ///
    /// # Errors
    /// Fails if HEAD, a reflog or the kept ref cannot be read.
    pub fn moved_under(
        &self,
        worktree: &Worktree,
        fork: &str,
        made_on: &str,
    ) -> Result<Option<MovedUnder>, GitError> {
        if worktree.is_own() {
            // Nobody else moves its branches.
            return Ok(None);
        }
        let head = self.head_of(worktree.git_dir())?;
        let (Some(branch), Some(now)) = (head.short_branch(), head.commit_id()) else {
            return Ok(None);
        };
        if self.config_bool("core.logAllRefUpdates") == Some(false) {
            return Ok(None);
        }
        let head_log = read_if_there(&worktree.git_dir().join("logs/HEAD"))?.unwrap_or_default();
        let lines: Vec<LogLine> = log_lines(&head_log).collect();
        // A worktree that deleted its own branch left it at the branch's old commit.
        let ids = lines.iter().rev().flat_map(|line| [line.new, line.old]);
        let Some(left_at) = ids.into_iter().find(|id| !id.is_null()) else {
            let Some(left_at) = self.kept_as(fork, "head")? else {
                return Ok(None);
            };
            // The fork may have gone back (`tine undo`), and its files lack no commit then.
            let is_moved = left_at != now
                && self.has_object(left_at)
                && !self.is_ancestor(now, left_at)?
                && self.index_lacks(worktree, left_at, now)?;
            return Ok(is_moved.then(|| MovedUnder {
                branch: branch.to_owned(),
                left_at,
                now,
                by: None,
            }));
        };
        if left_at == now {
            return Ok(None);
        }
        // If this branch was never at that commit, a command that logs nothing moved HEAD here. A
        // recreated branch has a new log without its earlier values.
        let last_on = lines.iter().rev().find_map(LogLine::branch_after);
        let is_same_branch = last_on.unwrap_or(made_on) == branch;
        let branch_log = self.common_dir().join("logs/refs/heads").join(branch);
        let branch_log = read_if_there(&branch_log)?.unwrap_or_default();
        let was_there =
            log_lines(&branch_log).any(|line| line.old == left_at || line.new == left_at);
        let by = log_lines(&branch_log)
            .last()
            .filter(|line| line.new == now)
            .map(|line| line.by);
        let is_moved = (is_same_branch || was_there)
            && (by.is_some()
                || !self.has_object(left_at)
                || self.index_lacks(worktree, left_at, now)?);
        Ok(is_moved.then(|| MovedUnder {
            branch: branch.to_owned(),
            left_at,
            now,
            by,
        }))
    }

    /// Returns the existing commits in the reflog of the ref `name`.
    ///
    /// `name` is as a user types it (`main`, `origin/main`, or a full name). The result is `None`
    /// if it is not a ref.
    ///
    /// # Errors
    /// [`GitError::Io`] if the reflog cannot be read.
    pub fn has_been_at(&self, name: &str) -> Result<Option<Vec<ObjectId>>, GitError> {
        let repository = self.local();
        let found = repository.try_find_reference(name).ok().flatten();
        let Some(found) = found else {
            return Ok(None);
        };
        let name = found.name();
        let name = name
            .to_path()
            .map_err(GitError::library("read the branch"))?;
        let log = self.common_dir().join("logs").join(name);
        let log = read_if_there(&log)?.unwrap_or_default();
        let been_at: HashSet<ObjectId> = log_lines(&log)
            .flat_map(|line| [line.old, line.new])
            .collect();
        Ok(Some(
            been_at
                .into_iter()
                .filter(|id| self.has_object(*id))
                .collect(),
        ))
    }

    /// Returns whether only commands in the branch's own checkout moved it.
    ///
    /// Reads the reflog of the branch `name` (short) back from `to` to `from`.
    ///
    /// # Errors
    /// [`GitError::Io`] if the reflog cannot be read.
    pub fn was_moved_in_checkout(
        &self,
        name: &str,
        from: ObjectId,
        to: ObjectId,
    ) -> Result<bool, GitError> {
        const BY_A_CHECKOUT: [&str; 7] = [
            "commit",
            "merge",
            "pull",
            "rebase",
            "cherry-pick",
            "revert",
            "am",
        ];
        let log = self.common_dir().join("logs/refs/heads").join(name);
        let log = read_if_there(&log)?.unwrap_or_default();
        let lines: Vec<_> = log_lines(&log).collect();
        let mut at = to;
        for line in lines.iter().rev() {
            if at == from {
                return Ok(true);
            }
            let said = line.by.split_once(": ").map_or("", |(_, message)| message);
            let word = said.split([':', ' ']).next().unwrap_or_default();
            if line.new != at || !BY_A_CHECKOUT.contains(&word) {
                return Ok(false);
            }
            at = line.old;
        }
        Ok(at == from)
    }

    /// Returns the newest existing commit in the reflog of a worktree's HEAD.
    ///
    /// # Errors
    /// [`GitError::Io`] if the reflog cannot be read.
    pub fn newest_of_head(&self, git_dir: &Path) -> Result<Option<ObjectId>, GitError> {
        self.newest_in_log(&git_dir.join("logs/HEAD"))
    }

    /// Returns the newest existing commit of the branch `name` (short).
    ///
    /// Reads the branch's reflog, and then those of the HEADs that are on it.
    ///
    /// # Errors
    /// [`GitError::Io`] if a reflog or the list of worktrees cannot be read.
    pub fn newest_of_branch(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        let full_name = format!("refs/heads/{name}");
        if let Some(newest) =
            self.newest_in_log(&self.common_dir().join("logs").join(&full_name))?
        {
            return Ok(Some(newest));
        }
        for checkout in self.checkouts()? {
            if checkout.branch.as_deref() == Some(full_name.as_bytes())
                && let Some(newest) = self.newest_of_head(&checkout.git_dir)?
            {
                return Ok(Some(newest));
            }
        }
        Ok(None)
    }

    fn newest_in_log(&self, log: &Path) -> Result<Option<ObjectId>, GitError> {
        let log = read_if_there(log)?.unwrap_or_default();
        let lines: Vec<_> = log_lines(&log).collect();
        let ids = lines
            .into_iter()
            .rev()
            .flat_map(|line| [line.new, line.old]);
        Ok(ids
            .into_iter()
            .find(|id| !id.is_null() && self.has_object(*id)))
    }

    /// Returns whether the index of `worktree` lacks every change to `now`.
    ///
    /// The changes are those since `left_at`. After a commit or reset by git in the mount, the index has them. A file that is new in
    /// `now` and that the index has in another version was changed since.
    fn index_lacks(
        &self,
        worktree: &Worktree,
        left_at: ObjectId,
        now: ObjectId,
    ) -> Result<bool, GitError> {
        let git = |arguments: &[&str]| {
            let mut git = program::command(self.common_dir());
            git.arg("--git-dir").arg(worktree.git_dir()).args(arguments);
            program::run(&mut git, b"")
        };
        let (old, new) = (left_at.to_string(), now.to_string());
        let options = ["-z", "--name-status", "--no-renames"];
        let changed = git(&[&["diff-tree", "-r"], &options[..], &[&old, &new]].concat())?;
        let staged = git(&[&["diff-index", "--cached"], &options[..], &[&new]].concat())?;
        let staged: HashMap<&[u8], &[u8]> = statuses(&staged).collect();
        let mut is_changed = false;
        for (path, status) in statuses(&changed) {
            is_changed = true;
            match staged.get(path) {
                None => return Ok(false),
                Some(&b"M") if status == b"A" => return Ok(false),
                Some(_) => {}
            }
        }
        Ok(is_changed)
    }

    /// Switches the HEAD of `worktree` from `from` to the branch `to`.
    ///
    /// `to` is the short name. The branch must be at `commit_id`. If `to` is `None`, HEAD is
    /// detached at that commit. Branches do not move. On return, the move is on disk.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] if HEAD is not `from` or the branch is not at `commit_id`, or
    /// [`GitError::RefLocked`]. In both cases nothing has changed.
    pub fn switch_head(
        &self,
        worktree: &Worktree,
        from: &Head,
        to: Option<&str>,
        commit_id: ObjectId,
    ) -> Result<(), GitError> {
        if self.head_of(worktree.git_dir())? != *from {
            return Err(moved("HEAD"));
        }
        let refs = self.refs_at(worktree.git_dir());
        let new = match to {
            Some(branch) if refs.branch(branch)? != Some(commit_id) => return Err(moved(branch)),
            Some(branch) => Target::Symbolic(branch_ref(branch)?),
            None => Target::Object(commit_id),
        };
        let expected = match from {
            Head::Branch { name, .. } | Head::Unborn { name } => Target::Symbolic(
                FullName::try_from(name.as_str()).map_err(GitError::library("read HEAD"))?,
            ),
            Head::Detached { commit_id } => Target::Object(*commit_id),
        };
        let mut store = self.ref_store(Some(worktree.git_dir()));
        let is_logged = store.write_reflog != WriteReflog::Disable;
        // The library does not log a change of HEAD's target, so that follows separately.
        store.write_reflog = WriteReflog::Disable;
        let edit = RefEdit {
            name: FullName::try_from("HEAD").map_err(GitError::library("name HEAD"))?,
            change: Change::Update {
                log: LogChange {
                    mode: RefLog::AndReference,
                    force_create_reflog: false,
                    message: Default::default(),
                },
                expected: PreviousValue::MustExistAndMatch(expected),
                new,
            },
            deref: false,
        };
        self.apply_ref_edit(&store, edit, &worktree.git_dir().join("HEAD"))?;
        pause::at("head-switched");
        if is_logged
            && let Err(error) = self.log_switch(
                worktree,
                (from.short_branch(), from.commit_id()),
                (to, commit_id),
            )
        {
            log::warn!("HEAD is moved, and its reflog does not say so: {error}");
        }
        Ok(())
    }

    /// Completes the HEAD reflog after an interrupted [`Repository::switch_head`].
    ///
    /// Without that line the branch would seem to have moved under the worktree.
    ///
    /// # Errors
    /// [`GitError::Io`] if the reflog cannot be read or written.
    pub fn finish_switch(
        &self,
        worktree: &Worktree,
        from: (Option<&str>, Option<ObjectId>),
        to: (Option<&str>, ObjectId),
    ) -> Result<(), GitError> {
        let path = worktree.git_dir().join("logs/HEAD");
        let log = read_if_there(&path)?.unwrap_or_default();
        let is_logged = log
            .trim_ascii_end()
            .ends_with(format!("\t{}", switch_message(from, to)).as_bytes());
        let is_on = self.ref_store(Some(worktree.git_dir())).write_reflog != WriteReflog::Disable;
        if is_on && !is_logged {
            self.log_switch(worktree, from, to)
        } else {
            Ok(())
        }
    }

    /// Completes the HEAD reflog after an interrupted [`Repository::advance_head`].
    ///
    /// That also has two steps: the branch, and then the line.
    ///
    /// # Errors
    /// [`GitError::Io`] if the reflog cannot be read or written.
    pub fn finish_advance(
        &self,
        worktree: &Worktree,
        from: Option<ObjectId>,
        to: ObjectId,
        reflog: &str,
    ) -> Result<(), GitError> {
        let git_dir = worktree.git_dir();
        let log = read_if_there(&git_dir.join("logs/HEAD"))?.unwrap_or_default();
        let is_logged = log_lines(&log).last().is_some_and(|line| line.new == to);
        let is_on = self.ref_store(Some(git_dir)).write_reflog != WriteReflog::Disable;
        if is_on && !is_logged {
            self.log_head(git_dir, from, to, reflog)
        } else {
            Ok(())
        }
    }

    fn log_switch(
        &self,
        worktree: &Worktree,
        from: (Option<&str>, Option<ObjectId>),
        to: (Option<&str>, ObjectId),
    ) -> Result<(), GitError> {
        self.log_head(worktree.git_dir(), from.1, to.1, &switch_message(from, to))
    }

    /// Appends a line to the reflog of the worktree's HEAD.
    pub(super) fn log_head(
        &self,
        git_dir: &Path,
        from: Option<ObjectId>,
        to: ObjectId,
        message: &str,
    ) -> Result<(), GitError> {
        let path = git_dir.join("logs/HEAD");
        let from = from.unwrap_or(ObjectId::null(to.kind()));
        let mut line = format!("{from} {to} ").into_bytes();
        self.reflog_signature()
            .write_to(&mut line)
            .and_then(|()| {
                line.extend_from_slice(format!("\t{}\n", reflog_message(message)).as_bytes());
                if let Some(dir) = path.parent() {
                    std::fs::create_dir_all(dir)?;
                }
                let mut options = OpenOptions::new();
                tine_sys::file::open_with(&path, options.append(true).create(true))?
                    .write_all(&line)
            })
            .map_err(GitError::io("write", path))
    }
}

fn moved(name: &str) -> GitError {
    GitError::RefMoved {
        name: name.to_owned(),
    }
}

/// A line of a reflog.
struct LogLine {
    old: ObjectId,
    new: ObjectId,
    /// Author and message: `<name>: <message>`.
    by: String,
}

impl LogLine {
    /// Returns the new target of HEAD, if this line records a switch.
    ///
    /// It parses the messages of git and of [`Repository::switch_head`]. The target is a branch
    /// (short name), or another name of a commit.
    fn branch_after(&self) -> Option<&str> {
        let (_, message) = self.by.split_once(": ")?;
        let to = ["checkout: moving from ", "Branch: renamed "]
            .iter()
            .find_map(|verb| Some(message.strip_prefix(verb)?.rsplit_once(" to ")?.1));
        // A rebase of another branch ends on that branch.
        let returned = || Some(message.rsplit_once("(finish): returning to ")?.1);
        let name = to.or_else(returned)?;
        Some(name.strip_prefix("refs/heads/").unwrap_or(name))
    }
}

/// Parses the lines of a reflog, and skips invalid ones.
fn log_lines(log: &[u8]) -> impl Iterator<Item = LogLine> {
    log.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = String::from_utf8_lossy(line);
        let (old, rest) = line.split_once(' ')?;
        let (new, rest) = rest.split_once(' ')?;
        let (who, message) = rest.split_once('\t').unwrap_or((rest, ""));
        let name = who.split(" <").next().unwrap_or(who);
        Some(LogLine {
            old: ObjectId::from_hex(old.as_bytes()).ok()?,
            new: ObjectId::from_hex(new.as_bytes()).ok()?,
            by: format!("{name}: {message}"),
        })
    })
}

/// Formats the HEAD reflog message of a switch.
///
/// `git switch -` and `@{-1}` search for it.
fn switch_message(
    (from, from_id): (Option<&str>, Option<ObjectId>),
    (to, to_id): (Option<&str>, ObjectId),
) -> String {
    let name = |head: Option<&str>, id: Option<ObjectId>| match (head, id) {
        (Some(branch), _) => branch.to_owned(),
        (None, Some(id)) => id.to_string(),
        (None, None) => "HEAD".to_owned(),
    };
    format!(
        "checkout: moving from {} to {}",
        name(from, from_id),
        name(to, Some(to_id))
    )
}

/// Returns each path and its status in git's answer to `--name-status -z`.
fn statuses(listed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut fields = listed.split(|&byte| byte == 0);
    std::iter::from_fn(move || {
        let status = fields.next().filter(|status| !status.is_empty())?;
        Some((fields.next()?, status))
    })
}
