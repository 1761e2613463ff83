//! Aliases: branches that are symbolic refs to others, as
//! `git symbolic-ref refs/heads/alias refs/heads/main` makes them.
//!
//! Whatever happens to an alias happens to the branch behind it, but for its deletion: that removes
//! the alias alone.

use super::program;
use super::refs::branch_ref;
use super::{GitError, Repository};

/// git follows five symbolic refs, and no more.
const MAX_HOPS: usize = 5;

impl Repository {
    /// The branch (short names) that `name` leads to: itself, or as an alias another one, whether
    /// that exists or not. An alias that leads back to itself or to no branch stands for itself.
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

    /// As [`Repository::branch_behind`], of full names in bytes. What is not UTF-8 is no alias.
    pub(super) fn full_branch_behind(&self, full_name: &[u8]) -> Vec<u8> {
        let short = full_name
            .strip_prefix(b"refs/heads/")
            .and_then(|short| std::str::from_utf8(short).ok());
        match short {
            Some(short) => format!("refs/heads/{}", self.branch_behind(short)).into_bytes(),
            None => full_name.to_vec(),
        }
    }

    /// The ref (full name) to which the branch `name` (short) is a symbolic ref, if it is one.
    pub fn alias_of(&self, name: &str) -> Option<String> {
        let full_name = branch_ref(name).ok()?;
        self.refuse_pipe_at(full_name.as_bstr()).ok()?;
        let repository = self.local();
        let found = repository.try_find_reference(full_name.as_ref()).ok()??;
        let target = found.target().try_name()?.as_bstr().to_string();
        Some(target)
    }

    /// The aliases (short names) that lead to one of these branches (short names), and are none of
    /// them.
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

    /// Why the branch `name` (short), which is there, leads to no commit, where it is an alias.
    pub(super) fn broken_alias(&self, name: &str) -> Option<GitError> {
        let target = self.alias_of(name)?;
        let behind = self.branch_behind(name);
        let alias = name.to_owned();
        Some(match behind == name && target.starts_with("refs/heads/") {
            true => GitError::AliasLoop { alias },
            false => GitError::AliasOfNothing {
                target: match behind == name {
                    true => target,
                    false => behind,
                },
                alias,
            },
        })
    }
}
