//! What is to be carried, and what a fork's record says of it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::attr::Timestamp;
use crate::git::ignored::IgnoredPath;
use crate::path::RepoPath;
use crate::path::text::{PathText, host_path};

/// What somebody who makes a fork wants carried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarryWish {
    /// What `tine.carry` says, or else `.worktreeinclude`.
    #[default]
    AsConfigured,
    Nothing,
    /// Lines as in a `.gitignore`; the line `ignored` stands for all that git ignores.
    Patterns(Vec<String>),
}

/// What a fork carries. Paths of directories end in a slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarryRecord {
    /// The main checkout.
    #[serde(with = "host_path")]
    pub from: PathBuf,
    /// The carried roots: from the top of the checkout, sorted, none beneath another.
    pub roots: Vec<PathText>,
    /// Of roots that are not carried as a whole: what is carried in them.
    #[serde(default)]
    pub only: Vec<PathText>,
    /// The patterns that ask for secrets.
    #[serde(default)]
    pub named: Vec<PathText>,
    /// What looks like a secret and is not carried for that reason, as far as it would have been a root.
    #[serde(default)]
    pub held_back: Vec<PathText>,
    /// When the fork was made, by the clock of the host's files: what the main checkout changes from then on beneath carried
    /// directories is not there. `None`: it is seen.
    #[serde(default)]
    pub since: Option<Timestamp>,
}

impl CarryRecord {
    /// The main checkout, if anything of it is carried.
    pub fn shows_files_of(&self) -> Option<&Path> {
        (!self.roots.is_empty()).then_some(self.from.as_path())
    }

    /// The roots; what is no path is left out.
    pub fn roots(&self) -> impl Iterator<Item = IgnoredPath> + '_ {
        self.roots.iter().filter_map(path_of)
    }

    /// How many of the roots are directories at the top of the checkout.
    pub fn dirs_at_the_top(&self) -> u32 {
        let at_top = |root: &IgnoredPath| root.is_dir && root.path.components().count() == 1;
        u32::try_from(self.roots().filter(at_top).count()).unwrap_or(u32::MAX)
    }

    /// What is carried in roots that are not carried as a whole.
    pub fn only(&self) -> impl Iterator<Item = IgnoredPath> + '_ {
        self.only.iter().filter_map(path_of)
    }

    /// What is carried: whole roots, and what is carried in others.
    pub fn paths(&self) -> Vec<PathText> {
        let only: Vec<RepoPath> = self.only().map(|only| only.path).collect();
        let is_whole = |root: &&PathText| {
            path_of(root).is_some_and(|root| !only.iter().any(|only| only.starts_with(&root.path)))
        };
        let mut paths: Vec<PathText> = self.roots.iter().filter(is_whole).cloned().collect();
        paths.extend(self.only.iter().cloned());
        paths.sort();
        paths
    }

    /// The patterns that ask for secrets, a line each.
    pub fn named_text(&self) -> Vec<u8> {
        let lines: Vec<Vec<u8>> = self.named.iter().map(PathText::to_bytes).collect();
        lines.join(&b'\n')
    }
}

fn path_of(text: &PathText) -> Option<IgnoredPath> {
    let bytes = text.to_bytes();
    Some(IgnoredPath {
        is_dir: bytes.ends_with(b"/"),
        path: RepoPath::parse(&bytes).ok().filter(|path| !path.is_root())?,
    })
}
