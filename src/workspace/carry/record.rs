//! Rules for carried files, and a fork's record of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::arrivals::ArrivalsRef;
use super::generation::GenerationId;
use tine_attr::Timestamp;
use tine_git::ignored::IgnoredPath;
use tine_path::RepoPath;
use tine_path::text::{PathText, host_path};

/// Rules for the files that a new fork carries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarryRules {
    /// The files that `tine.carry` names, or else `.worktreeinclude`.
    #[default]
    AsConfigured,
    /// No files at all.
    Nothing,
    /// The configured or inherited files, and those these lines select.
    ///
    /// The lines are as in a `.gitignore`. The line `ignored` selects every ignored file.
    Also(Vec<String>),
    /// Only the files that these lines select, whatever is configured.
    #[serde(alias = "patterns")]
    Only(Vec<String>),
}

/// Carried files of a fork. Paths of directories end in a slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarryRecord {
    /// Directory of the main checkout.
    #[serde(with = "host_path")]
    pub from: PathBuf,
    /// Carried roots, relative to the checkout, sorted. None is below another.
    pub roots: Vec<PathText>,
    /// Carried paths in roots that are not carried as a whole.
    #[serde(default)]
    pub only: Vec<PathText>,
    /// Patterns that ask for secrets by name.
    #[serde(default)]
    pub named: Vec<PathText>,
    /// Paths that would be roots, but are held back as likely secrets.
    #[serde(default)]
    pub held_back: Vec<PathText>,
    /// Creation time of the fork, by the clock of the host's files.
    ///
    /// Files below carried directories that the main checkout changes from then on are hidden.
    /// `None`: they are shown.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Dependency trees among the carried paths. Records of earlier versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<DependencyTree>,
}

/// Carried directory that is shown as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DependencyTree {
    /// Path from the top of the checkout, ending in a slash.
    pub path: PathText,
    /// Generation that the fork shows; `None`: the main checkout's tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationId>,
    /// Generation that the fork showed before, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<GenerationId>,
    /// Arrival times of the files; `None` with the first generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalsRef>,
    /// Reason for which no generation is made; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
    /// Number of package names when the fork was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<u64>,
}

impl DependencyTree {
    /// Returns a tree that waits for a generation. `path` ends in a slash.
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

    /// Returns whether the tree waits for a generation.
    pub fn is_wanted(&self) -> bool {
        self.generation.is_none() && self.given_up.is_none()
    }

    /// Returns whether a tree with `names` package names is complete.
    ///
    /// It is if the fork has shown a generation, or if there are at least as many names as when the
    /// fork was made. A tree with fewer is being removed.
    pub fn is_whole_with(&self, names: u64) -> bool {
        self.generation.is_some() || self.names.is_none_or(|before| before <= names)
    }

    /// Returns the path without the slash; `None` if it is invalid.
    pub fn path(&self) -> Option<RepoPath> {
        path_of(&self.path).map(|dir| dir.path)
    }

    /// Switches to `generation`; returns whether it is another than before.
    ///
    /// If so, `arrivals` replaces the arrival times.
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
    /// Returns the main checkout, if anything of it is carried.
    pub fn shows_files_of(&self) -> Option<&Path> {
        (!self.roots.is_empty()).then_some(self.from.as_path())
    }

    /// Returns the carried roots, without invalid paths.
    pub fn roots(&self) -> impl Iterator<Item = IgnoredPath> + '_ {
        self.roots.iter().filter_map(path_of)
    }

    /// Returns the paths of the dependency trees.
    pub fn tree_paths(&self) -> impl Iterator<Item = RepoPath> {
        let paths = self.trees.iter().filter_map(|tree| path_of(&tree.path));
        paths.map(|tree| tree.path)
    }

    /// Returns the generations that the record names.
    pub fn generations(&self) -> impl Iterator<Item = &GenerationId> {
        let trees = self.trees.iter();
        trees.flat_map(|tree| tree.generation.iter().chain(&tree.previous))
    }

    /// Returns the arrivals that the record names.
    pub fn arrivals(&self) -> impl Iterator<Item = &ArrivalsRef> {
        self.trees.iter().filter_map(|tree| tree.arrivals.as_ref())
    }

    /// Counts the roots that are directories at the top of the checkout.
    pub fn dirs_at_the_top(&self) -> u32 {
        let at_top = |root: &IgnoredPath| root.is_dir && root.path.components().count() == 1;
        u32::try_from(self.roots().filter(at_top).count()).unwrap_or(u32::MAX)
    }

    /// Returns the carried paths in roots not carried as a whole.
    pub fn only(&self) -> impl Iterator<Item = IgnoredPath> + '_ {
        self.only.iter().filter_map(path_of)
    }

    /// Returns all carried paths: whole roots, and the parts of others.
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

    /// Returns the union with `other`, with this record's time.
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
        let is_below_whole = |path: &RepoPath| {
            path.directories_above()
                .any(|dir| whole.contains(&text_of_dir(&dir)))
        };
        let only: BTreeSet<PathText> = self.only.iter().chain(&other.only).cloned().collect();
        let only: Vec<PathText> = only
            .into_iter()
            .filter(|text| {
                !whole.contains(text)
                    && path_of(text).is_none_or(|only| !is_below_whole(&only.path))
            })
            .collect();
        let is_needed = |root: &IgnoredPath| {
            !is_below_whole(&root.path)
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

    /// Returns the roots that are carried as a whole, in written form.
    fn whole_roots(&self) -> BTreeSet<PathText> {
        let only: Vec<RepoPath> = self.only().map(|only| only.path).collect();
        self.roots()
            .filter(|root| !only.iter().any(|only| only.starts_with(&root.path)))
            .map(|root| text_of(&root))
            .collect()
    }

    /// Returns the patterns that ask for secrets, one per line.
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

/// Formats a path; directories end in a slash.
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
