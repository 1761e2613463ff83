//! What is to be carried, and what a fork's record says of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::arrivals::ArrivalsRef;
use super::generation::GenerationId;
use tine_attr::Timestamp;
use tine_git::ignored::IgnoredPath;
use tine_path::RepoPath;
use tine_path::text::{PathText, host_path};

/// What somebody who makes a fork wants carried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarryRules {
    /// What `tine.carry` says, or else `.worktreeinclude`.
    #[default]
    AsConfigured,
    Nothing,
    /// What is configured, or inherited, and what these lines choose: lines as in a `.gitignore`;
    /// the line `ignored` stands for all that git ignores.
    Also(Vec<String>),
    /// What such lines choose, whatever is configured.
    #[serde(alias = "patterns")]
    Only(Vec<String>),
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
    /// What looks like a secret and is not carried for that reason, as far as it would have been a
    /// root.
    #[serde(default)]
    pub held_back: Vec<PathText>,
    /// When the fork was made, by the clock of the host's files: what the main checkout changes
    /// from then on beneath carried directories is not there. `None`: it is seen.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// The dependency trees in it. Records of earlier versions name none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<DependencyTree>,
}

/// A carried directory that is shown as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyTree {
    /// From the top of the checkout; it ends in a slash.
    pub path: PathText,
    /// What the fork shows of it; `None`: what the main checkout has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationId>,
    /// What it showed before another one was taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<GenerationId>,
    /// When the fork got what it shows; `None`: with the first generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalsRef>,
    /// Why no generation is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
    /// How many names were where packages stand side by side in it when the fork was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<u64>,
}

impl DependencyTree {
    /// Of which a generation is to be made; `path` ends in a slash.
    pub fn wanted(path: PathText, names: Option<u64>) -> DependencyTree {
        DependencyTree {
            path,
            names,
            generation: None,
            previous: None,
            arrivals: None,
            given_up: None,
        }
    }

    /// Whether a generation is to be made.
    pub fn is_wanted(&self) -> bool {
        self.generation.is_none() && self.given_up.is_none()
    }

    /// Whether a tree with so many names of packages has as many as when the fork was made, or the
    /// fork has shown a generation since. One with fewer is being removed.
    pub fn is_whole_with(&self, names: u64) -> bool {
        self.generation.is_some() || self.names.is_none_or(|before| before <= names)
    }

    /// `None` for what is no path.
    pub fn path(&self) -> Option<RepoPath> {
        path_of(&self.path).map(|dir| dir.path)
    }

    /// Shows `generation`, with files as of `arrivals` if it is another than before; whether it is.
    pub fn take_up(&mut self, generation: GenerationId, arrivals: Option<ArrivalsRef>) -> bool {
        self.given_up = None;
        if self.generation.as_ref() == Some(&generation) {
            return false;
        }
        self.previous = self.generation.replace(generation);
        self.arrivals = arrivals;
        true
    }
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

    /// Where the dependency trees are.
    pub fn tree_paths(&self) -> impl Iterator<Item = RepoPath> {
        let paths = self.trees.iter().filter_map(|tree| path_of(&tree.path));
        paths.map(|tree| tree.path)
    }

    /// The generations that it names.
    pub fn generations(&self) -> impl Iterator<Item = &GenerationId> {
        let trees = self.trees.iter();
        trees.flat_map(|tree| tree.generation.iter().chain(&tree.previous))
    }

    /// The arrivals that it names.
    pub fn arrivals(&self) -> impl Iterator<Item = &ArrivalsRef> {
        self.trees.iter().filter_map(|tree| tree.arrivals.as_ref())
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

    /// What this record or `other` has, as of the moment of this one.
    #[must_use]
    pub fn with(self, other: CarryRecord) -> CarryRecord {
        if self.from != other.from {
            return CarryRecord {
                since: self.since.or(other.since),
                ..other
            };
        }
        let mut whole = self.whole_roots();
        whole.append(&mut other.whole_roots());
        let is_beneath_a_whole = |path: &RepoPath| {
            path.directories_above()
                .any(|dir| whole.contains(&text_of_dir(&dir)))
        };
        let only: BTreeSet<PathText> = self.only.iter().chain(&other.only).cloned().collect();
        let only: Vec<PathText> = only
            .into_iter()
            .filter(|text| {
                !whole.contains(text)
                    && path_of(text).is_none_or(|only| !is_beneath_a_whole(&only.path))
            })
            .collect();
        let is_needed = |root: &IgnoredPath| {
            !is_beneath_a_whole(&root.path)
                && (whole.contains(&text_of(root))
                    || only
                        .iter()
                        .filter_map(path_of)
                        .any(|only| only.path.starts_with(&root.path)))
        };
        let roots: BTreeSet<PathText> = self
            .roots()
            .chain(other.roots())
            .filter(is_needed)
            .map(|root| text_of(&root))
            .collect();
        let named: BTreeSet<PathText> = self.named.iter().chain(&other.named).cloned().collect();
        let mut trees = self.trees.clone();
        let is_new =
            |tree: &&DependencyTree| !self.trees.iter().any(|known| known.path == tree.path);
        trees.extend(other.trees.iter().filter(is_new).cloned());
        let held_back: BTreeSet<PathText> = self
            .held_back
            .iter()
            .chain(&other.held_back)
            .cloned()
            .collect();
        CarryRecord {
            from: self.from,
            roots: roots.into_iter().collect(),
            only,
            named: named.into_iter().collect(),
            held_back: held_back.into_iter().collect(),
            since: self.since.or(other.since),
            trees,
        }
    }

    /// The roots that are carried as a whole, as they are written.
    fn whole_roots(&self) -> BTreeSet<PathText> {
        let only: Vec<RepoPath> = self.only().map(|only| only.path).collect();
        self.roots()
            .filter(|root| !only.iter().any(|only| only.starts_with(&root.path)))
            .map(|root| text_of(&root))
            .collect()
    }

    /// The patterns that ask for secrets, a line each.
    pub fn named_text(&self) -> Vec<u8> {
        let lines: Vec<Vec<u8>> = self.named.iter().map(PathText::to_bytes).collect();
        lines.join(&b'\n')
    }
}

fn text_of_dir(path: &RepoPath) -> PathText {
    text_of(&IgnoredPath {
        path: path.clone(),
        is_dir: true,
    })
}

/// Directories end in a slash.
fn text_of(path: &IgnoredPath) -> PathText {
    let mut text = path.path.as_bytes().to_vec();
    if path.is_dir {
        text.push(b'/');
    }
    PathText::from(text.as_slice())
}

fn path_of(text: &PathText) -> Option<IgnoredPath> {
    let bytes = text.to_bytes();
    Some(IgnoredPath {
        is_dir: bytes.ends_with(b"/"),
        path: RepoPath::parse(&bytes)
            .ok()
            .filter(|path| !path.is_root())?,
    })
}
