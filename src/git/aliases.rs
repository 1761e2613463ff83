//! Aliases: branches that are symbolic refs to other branches.
//!
//! `git symbolic-ref refs/heads/alias refs/heads/main` makes one. Every operation on an alias
//! applies to its target branch, except deletion, which removes only the alias.

use super::program;
use super::refs::branch_ref;
use super::{GitError, Repository};

/// Maximum number of symbolic refs that git follows.
const MAX_HOPS: usize = 5;

impl Repository {
    /// Returns the branch (short name) that `name` leads to.
    ///
    /// A branch leads to itself. An alias leads to its target, whether that exists or not. An alias
    /// that leads to itself or to no branch is returned unchanged.
    pub fn branch_behind(&self, name: &str) -> String {
        let mut found = name.to_owned();
        for _ in 0..MAX_HOPS {
            match self.alias_of(&found) {
                Some(next) => match next.strip_prefix("refs/heads/") {
                    Some(short) => found = short.to_owned(),
                    None => return name.to_owned(),
                },
                None => return found,
            }
        }
        name.to_owned()
    }

    /// Returns the target branch of a full name in bytes.
    ///
    /// A name that is not UTF-8 is not an alias. See [`Repository::branch_behind`].
    pub(super) fn full_branch_behind(&self, full_name: &[u8]) -> Vec<u8> {
        let short = full_name
            .strip_prefix(b"refs/heads/")
            .and_then(|short| std::str::from_utf8(short).ok());
        match short {
            Some(short) => format!("refs/heads/{}", self.branch_behind(short)).into_bytes(),
            None => full_name.to_vec(),
        }
    }

    /// Returns the target of `name`, if it is an alias.
    ///
    /// `name` is a short name, the target a full name.
    pub fn alias_of(&self, name: &str) -> Option<String> {
        let full_name = branch_ref(name).ok()?;
        self.refuse_pipe_at(full_name.as_bstr()).ok()?;
        let repository = self.local();
        let found = repository.try_find_reference(full_name.as_ref()).ok()??;
        let target = found.target().try_name()?.as_bstr().to_string();
        Some(target)
    }

    /// Lists the aliases (short names) that lead to one of `branches`.
    ///
    /// `branches` are short names, which are not included in the result.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if the refs cannot be listed.
    pub fn aliases_to(&self, branches: &[&str]) -> Result<Vec<String>, GitError> {
        if branches.is_empty() {
            return Ok(Vec::new());
        }
        let mut list = program::command(self.common_dir());
        list.args([
            "for-each-ref",
            "--format=%(if)%(symref)%(then)%(refname)%(end)",
            "refs/heads",
        ]);
        let listed = program::run(&mut list, b"")?;
        let names = listed.split(|&byte| byte == b'\n').filter_map(|line| {
            let short = line.strip_prefix(b"refs/heads/")?;
            std::str::from_utf8(short).ok()
        });
        let leads_there = |name: &&str| {
            !branches.contains(name) && branches.contains(&self.branch_behind(name).as_str())
        };
        Ok(names.filter(leads_there).map(str::to_owned).collect())
    }

    /// Returns the error for an alias that leads to no commit.
    ///
    /// `name` (short) exists.
    pub(super) fn broken_alias(&self, name: &str) -> Option<GitError> {
        let target = self.alias_of(name)?;
        let behind = self.branch_behind(name);
        let alias = name.to_owned();
        Some(if behind == name && target.starts_with("refs/heads/") {
            GitError::AliasLoop { alias }
        } else {
            GitError::DanglingAlias {
                target: if behind == name { target } else { behind },
                alias,
            }
        })
    }
}
