//! Branches: listing, creation, renaming, and removal of their settings.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::program;
use super::refs::{read_if_there, ref_locked};
use super::{GitError, ObjectId, Repository, Worktree};

/// A branch with a summary of its tip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchTip {
    /// Short name in bytes, as git has it.
    pub name: Vec<u8>,
    /// Commit at the tip.
    pub commit_id: ObjectId,
    /// First paragraph of the commit's message, in one line.
    pub subject: String,
}

/// The distance between two histories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance {
    /// Number of commits that only the first history has.
    pub ahead: usize,
    /// Number of commits that only the second history has.
    pub behind: usize,
}

impl Repository {
    /// Lists all branches, or those of `only` (short names) that exist.
    ///
    /// The list is sorted by name. It takes one git process for any number of branches.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if the refs cannot be listed.
    pub fn branch_tips(&self, only: Option<&[String]>) -> Result<Vec<BranchTip>, GitError> {
        let mut command = program::command(self.common_dir());
        // Ask for ids only: for details of commits, git would fail if one of them were missing.
        command.args(["for-each-ref", "--format=%(refname)%00%(objectname)"]);
        let wanted: Vec<Vec<u8>> = match only {
            // Without a pattern, git would list everything.
            Some([]) => return Ok(Vec::new()),
            Some(names) => names.iter().map(|name| name.clone().into_bytes()).collect(),
            None => Vec::new(),
        };
        let mut patterns = Vec::new();
        match only {
            Some(_) => {
                command.arg("--stdin");
                for name in &wanted {
                    patterns.extend([b"refs/heads/", name.as_slice(), b"\n"].concat());
                }
            }
            None => {
                command.arg("refs/heads");
            }
        }
        let output = program::run(&mut command, &patterns)?;
        let mut tips = Vec::new();
        for line in output
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let mut fields = line.splitn(2, |byte| *byte == 0);
            let (Some(name), Some(id)) = (fields.next(), fields.next()) else {
                continue;
            };
            let name = name.strip_prefix(b"refs/heads/").unwrap_or(name);
            // A pattern also matches the names under it.
            if only.is_some() && !wanted.iter().any(|wanted| wanted == name) {
                continue;
            }
            let commit_id = ObjectId::from_hex(id).map_err(GitError::library("list branches"))?;
            // `damaged_branches` lists branches whose commit is missing.
            if let Ok(commit) = self.commit_info(commit_id) {
                tips.push(BranchTip {
                    name: name.to_vec(),
                    commit_id,
                    subject: commit.summary,
                });
            }
        }
        Ok(tips)
    }

    /// Creates the branch `name` (short) at the revision `start`.
    ///
    /// `start` is resolved in the worktree with `git_dir`. A branch that begins at a remote one
    /// follows that, as `branch.autoSetupMerge` says.
    ///
    /// # Errors
    /// [`GitError::BranchExists`], [`GitError::InvalidBranchName`], or [`GitError::GitFailed`].
    pub fn begin_branch(&self, git_dir: &Path, name: &str, start: &str) -> Result<(), GitError> {
        self.check_branch_is_free(name)?;
        let mut command = program::command(self.common_dir());
        command
            .env("GIT_DIR", git_dir)
            .args(["branch", "--quiet", "--", name, start]);
        program::run(&mut command, b"").map(drop)
    }

    /// Renames a branch (short names).
    ///
    /// Its reflog and settings are renamed too, and every HEAD on it follows.
    ///
    /// # Errors
    /// [`GitError::RefLocked`] if git holds a lock that the rename needs; the branch then keeps its
    /// old name. [`GitError::BranchExists`], [`GitError::InvalidBranchName`], [`GitError::IsAlias`]
    /// or [`GitError::HasAlias`] if the names do not permit it.
    pub fn rename_branch(&self, old: &str, new: &str) -> Result<(), GitError> {
        self.check_branch_name(new)?;
        if self.branch(new)?.is_some() {
            return Err(GitError::BranchExists(new.to_owned()));
        }
        if self.alias_of(old).is_some() {
            return Err(GitError::IsAlias {
                alias: old.to_owned(),
                branch: self.branch_behind(old),
            });
        }
        if let Some(alias) = self.aliases_to(&[old])?.into_iter().next() {
            return Err(GitError::HasAlias {
                alias,
                branch: old.to_owned(),
            });
        }
        // The old branch does not conflict, as with `a` and `a/b`: the rename removes it.
        if let Some(in_the_way) = self.conflicting_branch(new)?.filter(|found| found != old) {
            return Err(GitError::BranchExists(in_the_way));
        }
        // git notices some of these locks only halfway through.
        let locked = self.locked_by_renaming(old, new)?;
        for path in &locked {
            self.check_unlocked_for_a_while(path)?;
        }
        // git needs a readable HEAD, even if another branch is renamed.
        let on_it = format!("refs/heads/{old}").into_bytes();
        let mut checkouts = self.checkouts()?.into_iter();
        let git_dir = checkouts
            .find(|checkout| checkout.branch.as_ref() == Some(&on_it))
            .map_or_else(|| self.common_dir().to_owned(), |checkout| checkout.git_dir);
        let rename = |from: &str, to: &str| {
            let mut command = program::command(self.common_dir());
            command
                .arg("--git-dir")
                .arg(&git_dir)
                .args(["branch", "-m", "--", from, to]);
            program::run(&mut command, b"").map(drop)
        };
        let tip = self.branch(old)?;
        let Err(error) = rename(old, new) else {
            return Ok(());
        };
        let is_renamed = tip.is_some() && self.branch(old)?.is_none() && self.branch(new)? == tip;
        if is_renamed {
            // This fails at the same point as the first rename, after the needed changes are made.
            let taken_back = rename(new, old);
            if self.branch(old)? != tip {
                taken_back?;
            }
        }
        let lock = locked
            .iter()
            .find_map(|path| ref_locked(self.common_dir(), path));
        Err(lock.unwrap_or(error))
    }

    /// Lists the files that git locks to rename a branch (short names).
    fn locked_by_renaming(&self, old: &str, new: &str) -> Result<Vec<PathBuf>, GitError> {
        let full_name = format!("refs/heads/{old}");
        let on_it = self.checkouts()?.into_iter();
        let on_it =
            on_it.filter(|checkout| checkout.branch.as_deref() == Some(full_name.as_bytes()));
        let mut locked: Vec<PathBuf> = on_it
            .map(|checkout| checkout.git_dir.join("HEAD"))
            .collect();
        locked.push(self.common_dir().join("config"));
        let branches = self.common_dir().join("refs/heads");
        locked.extend([branches.join(old), branches.join(new)]);
        Ok(locked)
    }

    /// Returns the branch (short name) that the worktree was on before.
    ///
    /// This is `-` in `git switch -`, for the worktree with `git_dir`.
    ///
    /// # Errors
    /// [`GitError::UnknownRevision`] if no such branch is known.
    pub fn branch_before(&self, git_dir: &Path) -> Result<String, GitError> {
        let unknown = || GitError::UnknownRevision("-".to_owned());
        let mut command = program::command(self.common_dir());
        command.env("GIT_DIR", git_dir).args([
            "rev-parse",
            "--quiet",
            "--verify",
            "--symbolic-full-name",
            "@{-1}",
        ]);
        let finished = program::finish(&mut command, b"")?;
        let name = String::from_utf8(finished.stdout).map_err(|_| unknown())?;
        let short = name.trim_end().strip_prefix("refs/heads/");
        short
            .filter(|_| finished.status.success())
            .map(str::to_owned)
            .ok_or_else(unknown)
    }

    /// Sets the upstream of the new branch `name` (short) to `start`.
    ///
    /// It does so only if `start` is a remote branch and `branch.autoSetupMerge` permits it. A
    /// failure is only logged, because the branch itself is created.
    pub fn follow_remote_branch(&self, worktree: &Worktree, name: &str, start: &str) {
        let git_dir = worktree.git_dir();
        // What the main repository lends is not in a fork's own directory.
        let main = worktree.is_own().then(|| self.common_dir());
        let mut dirs = [Some(git_dir), main].into_iter().flatten();
        let Some(remote_ref) = dirs.find_map(|dir| self.remote_ref(dir, start)) else {
            return;
        };
        if self.config_bool("branch.autoSetupMerge") == Some(false) {
            return;
        }
        let followed = if worktree.is_own() {
            self.set_upstream_in(&git_dir.join("config"), name, &remote_ref)
        } else {
            let mut command = program::command(self.common_dir());
            command.env("GIT_DIR", git_dir).args([
                "branch",
                "--quiet",
                &format!("--set-upstream-to={start}"),
                "--",
                name,
            ]);
            program::run(&mut command, b"").map(drop)
        };
        if let Err(error) = followed {
            log::warn!("{name} follows no remote branch: {error}");
        }
    }

    /// Returns the remote branch that `start` names, without `refs/remotes/`.
    fn remote_ref(&self, git_dir: &Path, start: &str) -> Option<String> {
        let mut full_name = program::command(self.common_dir());
        full_name
            .env("GIT_DIR", git_dir)
            .args([
                "rev-parse",
                "--quiet",
                "--verify",
                "--symbolic-full-name",
                "--end-of-options",
            ])
            .arg(start);
        let name = String::from_utf8(program::run(&mut full_name, b"").ok()?).ok()?;
        let short = name.trim_end().strip_prefix("refs/remotes/")?;
        Some(short.to_owned())
    }

    /// Writes the upstream of a branch (short name) to a configuration file.
    ///
    /// `git branch` finds no remote branch that the file's own repository lacks.
    fn set_upstream_in(&self, file: &Path, name: &str, remote_ref: &str) -> Result<(), GitError> {
        let remotes = self.remotes()?;
        let split = |remote: &String| Some((remote.clone(), remote_ref.strip_prefix(remote)?));
        let branches = remotes.iter().filter_map(split);
        let branches =
            branches.filter_map(|(remote, rest)| Some((remote, rest.strip_prefix('/')?)));
        let Some((remote, branch)) = branches.max_by_key(|(remote, _)| remote.len()) else {
            return Ok(());
        };
        for (variable, value) in [
            ("remote", remote),
            ("merge", format!("refs/heads/{branch}")),
        ] {
            let mut command = program::command(self.common_dir());
            command.args(["config", "--file"]).arg(file);
            command.args([&format!("branch.{name}.{variable}"), &value]);
            program::run(&mut command, b"")?;
        }
        Ok(())
    }

    /// Removes the settings of a deleted branch (short name).
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if `git config` fails.
    pub fn forget_branch_settings(&self, name: &str) -> Result<(), GitError> {
        let has_settings = {
            let local = self.local_with_fresh_config()?;
            let config = local.config_snapshot();
            config.plumbing().section("branch", name).is_ok()
        };
        if !has_settings {
            return Ok(());
        }
        let mut command = program::command(self.common_dir());
        command
            .args(["config", "--file"])
            .arg(self.common_dir().join("config"))
            .args(["--remove-section", &format!("branch.{name}")]);
        program::run(&mut command, b"").map(drop)
    }

    /// Checks that a branch with this (short) name can be created.
    ///
    /// # Errors
    /// [`GitError::BranchExists`] if it exists or conflicts with another one, or
    /// [`GitError::InvalidBranchName`].
    pub fn check_branch_is_free(&self, name: &str) -> Result<(), GitError> {
        self.check_branch_name(name)?;
        if self.branch(name)?.is_some() {
            return Err(GitError::BranchExists(name.to_owned()));
        }
        match self.conflicting_branch(name)? {
            Some(in_the_way) => Err(GitError::BranchExists(in_the_way)),
            None => Ok(()),
        }
    }

    /// Finds the new name of a branch that was renamed.
    ///
    /// `name` (short) no longer exists. The reflogs must record the rename at `since_secs` (seconds
    /// since 1970) or later.
    ///
    /// # Errors
    /// [`GitError::Io`] if a reflog cannot be read.
    pub fn renamed_to(&self, name: &str, since_secs: i64) -> Result<Option<String>, GitError> {
        let root = self.common_dir().join("logs/refs/heads");
        let mut open = vec![root.clone()];
        while let Some(dir) = open.pop() {
            for (path, is_dir) in entries(&dir)? {
                if is_dir {
                    open.push(path);
                    continue;
                }
                let Some(found) = path.strip_prefix(&root).ok().and_then(Path::to_str) else {
                    continue;
                };
                let log = read_if_there(&path)?.unwrap_or_default();
                if was_renamed(&log, name, found, since_secs) && self.branch(found)?.is_some() {
                    return Ok(Some(found.to_owned()));
                }
            }
        }
        Ok(None)
    }

    /// Counts the commits that only one of `tip` and `from` has.
    ///
    /// # Errors
    /// [`GitError::Library`] if the history cannot be walked.
    pub fn distance(&self, tip: ObjectId, from: ObjectId) -> Result<Distance, GitError> {
        if tip == from {
            return Ok(Distance {
                ahead: 0,
                behind: 0,
            });
        }
        let failed = "walk the history";
        let count = |of: ObjectId, without: ObjectId| {
            self.with_local(|local| {
                let walk = local
                    .rev_walk([of])
                    .with_hidden([without])
                    .all()
                    .map_err(GitError::library(failed))?;
                let mut count: usize = 0;
                for found in walk {
                    found.map_err(GitError::library(failed))?;
                    count = count.saturating_add(1);
                }
                Ok(count)
            })
        };
        Ok(Distance {
            ahead: count(tip, from)?,
            behind: count(from, tip)?,
        })
    }

    /// Finds a ref other than `without` that reaches `tip`.
    ///
    /// It may be a branch, a tag or a remote branch, and is returned as a short name. The branches
    /// `without` (short names) and their aliases do not count.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if the refs cannot be listed.
    pub fn reached_otherwise(
        &self,
        tip: ObjectId,
        without: &[&str],
    ) -> Result<Option<String>, GitError> {
        // An alias of a removed branch leads nowhere.
        let aliases = self.aliases_to(without)?;
        let without: Vec<&str> = without
            .iter()
            .copied()
            .chain(aliases.iter().map(String::as_str))
            .collect();
        let refs = program::run(
            program::command(self.common_dir())
                .args(["for-each-ref", "--format=%(refname)"])
                // One more than the number of excluded names.
                .arg(format!("--count={}", without.len().saturating_add(1)))
                .arg(format!("--contains={tip}"))
                .args(["refs/heads", "refs/remotes", "refs/tags"]),
            b"",
        )?;
        let counts = |name: &&[u8]| {
            let short = name.strip_prefix(b"refs/heads/");
            !name.is_empty()
                && !short
                    .is_some_and(|short| without.iter().any(|without| without.as_bytes() == short))
        };
        let found = refs.split(|&byte| byte == b'\n').find(counts);
        Ok(found.map(|name| {
            let name = String::from_utf8_lossy(name);
            name.splitn(3, '/').last().unwrap_or_default().to_owned()
        }))
    }
}

/// Returns whether a reflog records a rename of `before`.
///
/// `now` is the branch's current name. A later copy does not count.
fn was_renamed(log: &[u8], before: &str, now: &str, since_secs: i64) -> bool {
    let renamed = format!("Branch: renamed refs/heads/{before} to refs/heads/");
    let to_now = format!(" to refs/heads/{now}");
    let mut is_found = false;
    let mut last_name = None;
    for line in log.split(|byte| *byte == b'\n') {
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
            continue;
        };
        let (who, message) = line.split_at(tab);
        let Some(message) = message
            .get(1..)
            .filter(|message| message.starts_with(b"Branch: "))
        else {
            continue;
        };
        last_name = Some(message);
        // `… <address> 1700000000 +0100`
        let secs = std::str::from_utf8(who)
            .ok()
            .and_then(|who| who.rsplit(' ').nth(1)?.parse::<i64>().ok());
        is_found |=
            message.starts_with(renamed.as_bytes()) && secs.is_some_and(|secs| secs >= since_secs);
    }
    is_found
        && last_name.is_some_and(|message| {
            message.starts_with(b"Branch: renamed ") && message.ends_with(to_now.as_bytes())
        })
}

/// Lists the paths in `dir`, and whether each is a directory.
///
/// Returns nothing if `dir` is not a directory.
fn entries(dir: &Path) -> Result<Vec<(PathBuf, bool)>, GitError> {
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(GitError::io("list", dir)(error)),
    };
    let mut entries = Vec::new();
    for entry in listing {
        let entry = entry.map_err(GitError::io("list", dir))?;
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entries.push((entry.path(), is_dir));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reflog_tells_what_a_branch_was_called() {
        let line = |secs: u32, message: &str| {
            format!("0 1 A U Thor <a@example.org> {secs} +0100\t{message}\n").into_bytes()
        };
        let first = line(10, "Branch: renamed refs/heads/a to refs/heads/b");
        let both = [
            first.clone(),
            line(20, "Branch: renamed refs/heads/b to refs/heads/c"),
        ]
        .concat();
        assert!(was_renamed(&first, "a", "b", 10));
        assert!(
            !was_renamed(&first, "a", "b", 11),
            "another branch of that name"
        );
        assert!(was_renamed(&both, "a", "c", 10), "twice");
        assert!(!was_renamed(&both, "a", "b", 10));
        let copied = [
            first,
            line(30, "Branch: copied refs/heads/b to refs/heads/d"),
        ]
        .concat();
        assert!(!was_renamed(&copied, "a", "d", 10));
        assert!(!was_renamed(b"damaged", "a", "b", 0));
    }
}
