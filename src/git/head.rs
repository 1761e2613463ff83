//! HEAD of a worktree put on another branch, or on a commit by itself, as `git switch` does when
//! the files are there.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use gix::refs::store::WriteReflog;
use gix::refs::transaction::{Change, LogChange, PreviousValue, RefEdit, RefLog};
use gix::refs::{FullName, Target};

use super::refs::{branch_ref, read_if_there, reflog_message};
use super::{GitError, Head, LinkedWorktree, ObjectId, Repository, program};
use tine_sys::pause;

/// A branch that is not where the worktree that is on it left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedUnder {
    /// Short name.
    pub branch: String,
    pub left_at: ObjectId,
    pub now: ObjectId,
    /// Who moved it there, and by what, where the branch's reflog says so.
    pub by: Option<String>,
}

/// A branch that is gone while a worktree is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneBranch {
    /// Short name.
    pub branch: String,
    /// Where the worktree left it.
    pub left_at: ObjectId,
}

impl Repository {
    /// Whether the branch that `worktree` is on was deleted under it, by the reflog of its HEAD. A
    /// branch that never had a commit, as after `git switch --orphan`, is none of these; nor is one
    /// that was deleted in the worktree itself, which the reflog says. `made_on` is the branch
    /// (short name) that the worktree began on. Without reflogs nothing is known.
    pub fn gone_branch(
        &self,
        worktree: &LinkedWorktree,
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

    /// The commit of HEAD of the fork `fork`, which has `worktree`; where its branch moved under
    /// it, the commit at which the fork left it. `made_on` is the branch (short name) that the
    /// worktree began on.
    pub fn head_left_at(
        &self,
        worktree: &LinkedWorktree,
        fork: &str,
        made_on: &str,
    ) -> Result<Option<ObjectId>, GitError> {
        match self.moved_under(worktree, fork, made_on)? {
            Some(moved) => Ok(Some(moved.left_at)),
            None => Ok(self.head_of(worktree.git_dir())?.commit_id()),
        }
    }

    /// Whether the branch that `worktree` is on is elsewhere than the worktree left it: another
    /// worktree, or a command that knew nothing of this one, has moved it, or deleted it and made
    /// it again. The reflog of its HEAD says so; where that has expired, what is kept for the fork
    /// `fork`. `made_on` is the branch (short name) that the worktree began on. Where reflogs are
    /// turned off nothing is known.
    pub fn moved_under(
        &self,
        worktree: &LinkedWorktree,
        fork: &str,
        made_on: &str,
    ) -> Result<Option<MovedUnder>, GitError> {
        let head = self.head_of(worktree.git_dir())?;
        let (Some(branch), Some(now)) = (head.short_branch(), head.commit_id()) else {
            return Ok(None);
        };
        if self.config_bool("core.logAllRefUpdates") == Some(false) {
            return Ok(None);
        }
        let head_log = read_if_there(&worktree.git_dir().join("logs/HEAD"))?.unwrap_or_default();
        let lines: Vec<LogLine> = log_lines(&head_log).collect();
        // A worktree that has deleted its own branch left it where the branch was.
        let ids = lines.iter().rev().flat_map(|line| [line.new, line.old]);
        let Some(left_at) = ids.into_iter().find(|id| !id.is_null()) else {
            let left_at = self.kept_left_at(worktree, fork, now)?;
            return Ok(left_at.map(|left_at| MovedUnder {
                branch: branch.to_owned(),
                left_at,
                now,
                by: None,
            }));
        };
        if left_at == now {
            return Ok(None);
        }
        // HEAD was put on another branch by a command that logs nothing, if this one never was
        // there. A branch that was made again has a new log, which knows nothing of what was
        // before.
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
        Ok((is_same_branch || was_there).then(|| MovedUnder {
            branch: branch.to_owned(),
            left_at,
            now,
            by,
        }))
    }

    /// The commits, of those that are left, at which the ref has been that a person calls `name`
    /// (`main`, `origin/main`, or in full), by its reflog; `None` where it is no ref.
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

    /// Whether the log of the branch `name` (short) says that only git commands in its own checkout
    /// moved it from `from` to `to`.
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

    /// The newest commit of those that are there which HEAD of the worktree with `git_dir` was on,
    /// by its log.
    pub fn newest_of_head(&self, git_dir: &Path) -> Result<Option<ObjectId>, GitError> {
        self.newest_in_log(&git_dir.join("logs/HEAD"))
    }

    /// The newest commit of those that are there which the branch `name` (short) was at, by its
    /// log, or by that of a HEAD that is on it.
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

    /// The HEAD that was kept for the fork `fork` most recently, where the branch came to `now`
    /// without the fork: its index has nothing of what changed since. After a commit or a reset by
    /// git in the mount it has. Where `now` is a commit before the kept one, the fork may have gone
    /// back (`tine undo`), and no commit of others is missing in its files.
    fn kept_left_at(
        &self,
        worktree: &LinkedWorktree,
        fork: &str,
        now: ObjectId,
    ) -> Result<Option<ObjectId>, GitError> {
        let Some(left_at) = self.kept_as(fork, "head")?.filter(|head| *head != now) else {
            return Ok(None);
        };
        if !self.has_object(left_at) || self.is_ancestor(now, left_at)? {
            return Ok(None);
        }
        let git = |arguments: &[&str]| {
            let mut git = program::command(self.common_dir());
            git.arg("--git-dir").arg(worktree.git_dir()).args(arguments);
            program::run(&mut git, b"")
        };
        let (old, new) = (left_at.to_string(), now.to_string());
        let changed = git(&[
            "diff-tree",
            "-r",
            "-z",
            "--name-only",
            "--no-renames",
            &old,
            &new,
        ])?;
        let lacking = git(&[
            "diff-index",
            "--cached",
            "-z",
            "--name-only",
            "--no-renames",
            &new,
        ])?;
        let lacking: HashSet<&[u8]> = lacking.split(|&byte| byte == 0).collect();
        let mut changed = changed
            .split(|&byte| byte == 0)
            .filter(|path| !path.is_empty())
            .peekable();
        let is_without = changed.peek().is_some() && changed.all(|path| lacking.contains(path));
        Ok(is_without.then_some(left_at))
    }

    /// Puts the HEAD of `worktree`, which is `from`, on the branch `to` (short name) at
    /// `commit_id`, or with `None` on that commit by itself. No branch moves. When it returns, the
    /// move is on disk.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] where HEAD is not `from` or the branch is elsewhere,
    /// [`GitError::RefLocked`]; nothing has changed then.
    pub fn switch_head(
        &self,
        worktree: &LinkedWorktree,
        from: &Head,
        to: Option<&str>,
        commit_id: ObjectId,
    ) -> Result<(), GitError> {
        if self.head_of(worktree.git_dir())? != *from {
            return Err(moved("HEAD"));
        }
        let new = match to {
            Some(branch) if self.branch(branch)? != Some(commit_id) => return Err(moved(branch)),
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
        // The library logs no change of what HEAD names: that follows.
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

    /// Lets the reflog of HEAD end with the move of [`Repository::switch_head`] that a process died
    /// in: without that line the branch would seem to have moved under the worktree.
    pub fn finish_switch(
        &self,
        worktree: &LinkedWorktree,
        from: (Option<&str>, Option<ObjectId>),
        to: (Option<&str>, ObjectId),
    ) -> Result<(), GitError> {
        let path = worktree.git_dir().join("logs/HEAD");
        let log = read_if_there(&path)?.unwrap_or_default();
        let is_logged = log
            .trim_ascii_end()
            .ends_with(format!("\t{}", switch_message(from, to)).as_bytes());
        let is_on = self.ref_store(Some(worktree.git_dir())).write_reflog != WriteReflog::Disable;
        match is_on && !is_logged {
            true => self.log_switch(worktree, from, to),
            false => Ok(()),
        }
    }

    /// Lets the reflog of HEAD end with the move of [`Repository::advance_head`] that a process
    /// died in, which is likewise two steps: the branch, and that line.
    pub fn finish_advance(
        &self,
        worktree: &LinkedWorktree,
        from: Option<ObjectId>,
        to: ObjectId,
        reflog: &str,
    ) -> Result<(), GitError> {
        let git_dir = worktree.git_dir();
        let log = read_if_there(&git_dir.join("logs/HEAD"))?.unwrap_or_default();
        let is_logged = log_lines(&log).last().is_some_and(|line| line.new == to);
        let is_on = self.ref_store(Some(git_dir)).write_reflog != WriteReflog::Disable;
        match is_on && !is_logged {
            true => self.log_head(git_dir, from, to, reflog),
            false => Ok(()),
        }
    }

    fn log_switch(
        &self,
        worktree: &LinkedWorktree,
        from: (Option<&str>, Option<ObjectId>),
        to: (Option<&str>, ObjectId),
    ) -> Result<(), GitError> {
        self.log_head(worktree.git_dir(), from.1, to.1, &switch_message(from, to))
    }

    /// Adds a line to the reflog of the worktree's HEAD.
    fn log_head(
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
    /// `<name>: <message>`
    by: String,
}

impl LogLine {
    /// What HEAD was put on by this, as the messages of git and of [`Repository::switch_head`] have
    /// it: a branch (short name), or whatever names a commit.
    fn branch_after(&self) -> Option<&str> {
        let (_, message) = self.by.split_once(": ")?;
        let to = ["checkout: moving from ", "Branch: renamed "]
            .iter()
            .find_map(|verb| Some(message.strip_prefix(verb)?.rsplit_once(" to ")?.1));
        // A rebase of another branch ends on that.
        let returned = || Some(message.rsplit_once("(finish): returning to ")?.1);
        let name = to.or_else(returned)?;
        Some(name.strip_prefix("refs/heads/").unwrap_or(name))
    }
}

/// The lines of a reflog that can be read.
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

/// What the reflog of HEAD says of a move between branches: `git switch -` and `@{-1}` look for it.
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
