//! Selection and content of commits that are rewritten.

use std::collections::HashSet;
use std::path::Path;

use gix::objs::Kind;

use super::{CommitTime, GitError, Identity, ObjectId, Repository, program};

/// Content of a commit to be rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitContent {
    /// Id of the original commit.
    pub commit_id: ObjectId,
    /// Root tree of the commit.
    pub tree_id: ObjectId,
    /// Parents in the commit's order.
    pub parent_ids: Vec<ObjectId>,
    /// Author with time and zone.
    pub author: Identity,
    /// Message, in UTF-8 if the commit declares its encoding.
    pub message: Vec<u8>,
}

impl Repository {
    /// Lists the commits that `words` name, in the order of `git cherry-pick`.
    ///
    /// They are in the given order, or, if a range is among them, from the oldest on. They are
    /// resolved in the worktree with `git_dir`.
    ///
    /// # Errors
    /// [`GitError::UnknownRevision`] if a word does not name commits.
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
        let mut list = if is_range {
            git(&["rev-list", "--reverse"])
        } else {
            git(&["rev-list", "--no-walk=unsorted"])
        };
        ids(&program::run(list.args(words).arg("--"), b"")?)
    }

    /// Returns whether `tip` reaches the commit or an equivalent one.
    ///
    /// An equivalent commit has the same tree and parents.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the history; otherwise fails as
    /// [`Repository::is_ancestor`].
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

    /// Lists the commits that `git rebase` would take, from the oldest on.
    ///
    /// These are the commits of `tip` that are neither in `onto` nor in `point`, without merges and
    /// without those whose change `onto` already has by another commit. Empty commits are included.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the history.
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
                // An empty commit matters for its message, even if `onto` has another empty commit.
                if !is_there || self.changes_nothing(id)? {
                    commit_ids.push(id);
                }
            }
        }
        Ok(commit_ids)
    }

    /// Lists the commits reachable from `tips` but not from `hidden`.
    ///
    /// The newest comes first.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the history.
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

    /// Lists the commits between `hidden` and `tip` that another branch reaches.
    ///
    /// The branches `own` (short names) do not count, neither here nor in a remote. The newest
    /// commit comes first.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if git cannot list the history.
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
            // Otherwise git fails if another process deletes a branch meanwhile.
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

    /// Reads commits, in the given order.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if a commit is missing, or [`GitError::Library`] if git's output is
    /// not as expected.
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
        let found = commits.iter().map(|commit| commit.commit_id);
        if found.eq(commit_ids.iter().copied()) {
            Ok(commits)
        } else {
            Err(unexpected("the commits are not those that were asked for"))
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

/// Parses `<seconds> <zone>`.
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
