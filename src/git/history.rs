//! Commits to be made again: which they are, and what is in them.

use std::collections::HashSet;
use std::path::Path;

use gix::objs::Kind;

use super::{CommitTime, GitError, Identity, ObjectId, Repository, program};

/// What a commit holds, read to be made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitContent {
    pub commit_id: ObjectId,
    pub tree_id: ObjectId,
    pub parent_ids: Vec<ObjectId>,
    pub author: Identity,
    /// In UTF-8 where the commit says how it is written.
    pub message: Vec<u8>,
}

impl Repository {
    /// The commits that `words` name, in the order in which `git cherry-pick` takes them: as they
    /// stand, or, where a range is among them, from the oldest on. Understood in the worktree with
    /// `git_dir`.
    ///
    /// # Errors
    /// [`GitError::UnknownRevision`].
    pub fn named_commits(
        &self,
        git_dir: &Path,
        words: &[String],
    ) -> Result<Vec<ObjectId>, GitError> {
        let git = |arguments: &[&str]| {
            let mut command = program::command(self.common_dir());
            command.arg("--git-dir").arg(git_dir).args(arguments);
            command
        };
        for word in words {
            let mut parse = git(&["rev-parse", "--quiet", "--revs-only", "--end-of-options"]);
            let parsed = program::finish(parse.arg(word), b"")?;
            let named = parsed.stdout.trim_ascii();
            if word.starts_with('-') || !parsed.status.success() || named.is_empty() {
                return Err(GitError::UnknownRevision(word.clone()));
            }
            for line in named.split(|&byte| byte == b'\n') {
                let id = ids(line.strip_prefix(b"^").unwrap_or(line))?;
                if let [id] = *id
                    && !matches!(self.object_header(id)?.0, Kind::Commit | Kind::Tag)
                {
                    return Err(GitError::UnknownRevision(word.clone()));
                }
            }
        }
        let mut parse = git(&["rev-parse", "--revs-only"]);
        let parsed = program::run(parse.args(words), b"")?;
        let is_range = parsed
            .split(|&byte| byte == b'\n')
            .any(|line| line.starts_with(b"^"));
        let mut list = match is_range {
            true => git(&["rev-list", "--reverse"]),
            false => git(&["rev-list", "--no-walk=unsorted"]),
        };
        ids(&program::run(list.args(words).arg("--"), b"")?)
    }

    /// Whether `tip` reaches the commit, or one with the same tree and the same parents.
    pub fn reaches_the_same(&self, commit_id: ObjectId, tip: ObjectId) -> Result<bool, GitError> {
        if self.is_ancestor(commit_id, tip)? {
            return Ok(true);
        }
        let info = self.commit_info(commit_id)?;
        let parents: Vec<String> = info.parent_ids.iter().map(ToString::to_string).collect();
        let mut log = program::command(self.common_dir());
        log.args(["log", "--format=%T %P", &tip.to_string()]);
        log.args((!parents.is_empty()).then_some("--not"))
            .args(&parents)
            .arg("--");
        let wanted = format!("{} {}", info.tree_id, parents.join(" "));
        let listed = program::run(&mut log, b"")?;
        let mut lines = listed.split(|&byte| byte == b'\n');
        Ok(lines.any(|line| line == wanted.as_bytes()))
    }

    /// The commits of `tip` that are neither in `onto` nor in `point`, from the oldest on, without
    /// merges and without those whose change is in `onto` by another commit: what `git rebase`
    /// takes. Such as change nothing are among them.
    pub fn commits_to_rebase(
        &self,
        tip: ObjectId,
        onto: ObjectId,
        point: Option<ObjectId>,
    ) -> Result<Vec<ObjectId>, GitError> {
        let mut list = program::command(self.common_dir());
        list.arg("--git-dir").arg(self.common_dir()).args([
            "rev-list",
            "--reverse",
            "--topo-order",
            "--no-merges",
            "--right-only",
            "--cherry-mark",
        ]);
        list.arg(format!("{onto}...{tip}"));
        if let Some(point) = point {
            list.arg(format!("^{point}"));
        }
        let mut commit_ids = Vec::new();
        for line in program::run(list.arg("--"), b"")?.split(|&byte| byte == b'\n') {
            let (is_there, hex) = match line {
                [b'=', hex @ ..] => (true, hex),
                [b'+' | b'>', hex @ ..] => (false, hex),
                hex => (false, hex),
            };
            for id in ids(hex)? {
                // One that changes nothing is there for its message, whatever else changes nothing.
                if !is_there || self.changes_nothing(id)? {
                    commit_ids.push(id);
                }
            }
        }
        Ok(commit_ids)
    }

    /// The commits that one of `tips` reaches and none of `hidden` does, the newest first.
    pub fn commits_between(
        &self,
        tips: &[ObjectId],
        hidden: &[ObjectId],
    ) -> Result<Vec<ObjectId>, GitError> {
        let mut list = program::command(self.common_dir());
        list.arg("--git-dir").arg(self.common_dir()).arg("rev-list");
        list.args(tips.iter().map(ObjectId::to_string));
        list.args(hidden.iter().map(|id| format!("^{id}")));
        ids(&program::run(list.arg("--"), b"")?)
    }

    /// Those of [`Repository::commits_between`] that a branch other than `own` (short names)
    /// reaches, here or in a remote.
    pub fn commits_of_others(
        &self,
        tip: ObjectId,
        hidden: ObjectId,
        own: &[String],
    ) -> Result<Vec<ObjectId>, GitError> {
        let all = self.commits_between(&[tip], &[hidden])?;
        if all.is_empty() {
            return Ok(all);
        }
        let mut list = program::command(self.common_dir());
        list.arg("--git-dir").arg(self.common_dir());
        list.args([
            "rev-list".to_owned(),
            // git stumbles over a branch that somebody deletes meanwhile.
            "--ignore-missing".to_owned(),
            tip.to_string(),
            format!("^{hidden}"),
            "--not".to_owned(),
        ]);
        list.args(own.iter().map(|branch| format!("--exclude={branch}")));
        list.arg("--branches");
        list.args(own.iter().map(|branch| format!("--exclude=*/{branch}")));
        list.arg("--remotes");
        let own: HashSet<ObjectId> = ids(&program::run(list.arg("--"), b"")?)?
            .into_iter()
            .collect();
        Ok(all.into_iter().filter(|id| !own.contains(id)).collect())
    }

    fn changes_nothing(&self, commit_id: ObjectId) -> Result<bool, GitError> {
        let info = self.commit_info(commit_id)?;
        let before = self.tree_of(info.parent_ids.first().copied())?;
        Ok(info.tree_id == before)
    }

    /// Reads commits, in this order.
    pub fn commit_contents(&self, commit_ids: &[ObjectId]) -> Result<Vec<CommitContent>, GitError> {
        if commit_ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut log = program::command(self.common_dir());
        log.arg("--git-dir")
            .arg(self.common_dir())
            .args([
                "-c",
                "log.showSignature=false",
                "log",
                "--no-walk=unsorted",
                "-z",
                "--stdin",
            ])
            .args([
                "--encoding=UTF-8",
                "--date=raw",
                "--no-show-signature",
                "--no-mailmap",
                "--no-notes",
            ])
            .arg("--format=%H%n%T%n%P%n%an%n%ae%n%ad%n%B");
        let wanted: Vec<String> = commit_ids.iter().map(|id| format!("{id}\n")).collect();
        let output = program::run(&mut log, wanted.concat().as_bytes())?;
        let commits: Vec<CommitContent> = output
            .split(|&byte| byte == 0)
            .filter(|record| !record.is_empty())
            .map(content)
            .collect::<Result<_, _>>()?;
        match commits
            .iter()
            .map(|commit| commit.commit_id)
            .eq(commit_ids.iter().copied())
        {
            true => Ok(commits),
            false => Err(unexpected("the commits are not those that were asked for")),
        }
    }
}

fn ids(lines: &[u8]) -> Result<Vec<ObjectId>, GitError> {
    lines
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|hex| ObjectId::from_hex(hex).map_err(GitError::library("read a commit's id")))
        .collect()
}

fn content(record: &[u8]) -> Result<CommitContent, GitError> {
    let mut fields = record.splitn(7, |&byte| byte == b'\n');
    let mut next = || {
        fields
            .next()
            .ok_or_else(|| unexpected("a commit ends early"))
    };
    let id = |hex: &[u8]| ObjectId::from_hex(hex).map_err(GitError::library("read a commit's id"));
    let (commit_id, tree_id) = (id(next()?)?, id(next()?)?);
    let parent_ids = next()?
        .split(|&byte| byte == b' ')
        .filter(|hex| !hex.is_empty())
        .map(id)
        .collect::<Result<_, _>>()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (name, email, date) = (text(next()?), text(next()?), text(next()?));
    let message = next()?;
    Ok(CommitContent {
        commit_id,
        tree_id,
        parent_ids,
        author: Identity {
            name,
            email,
            time: Some(raw_time(&date).ok_or_else(|| unexpected(&date))?),
        },
        message: message.to_vec(),
    })
}

/// `<seconds> <zone>`
fn raw_time(text: &str) -> Option<CommitTime> {
    let (secs, zone) = text.trim().split_once(' ')?;
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let number: i32 = digits.parse().ok()?;
    Some(CommitTime {
        secs: secs.parse().ok()?,
        offset_secs: sign * (number / 100 * 60 + number % 100) * 60,
    })
}

fn unexpected(what: &str) -> GitError {
    GitError::Library {
        action: "read what git says of commits",
        reason: what.to_owned(),
    }
}
