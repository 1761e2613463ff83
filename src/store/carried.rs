//! Choice of the ignored files that a new fork carries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Store, files};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use tine_attr::{FileKind, Timestamp};
use tine_git::ignored::IgnoredPath;
use tine_git::patterns::PatternSet;
use tine_git::{Base, GitError, IgnoreRules, TreeEntryKind};
use tine_path::text::PathText;
use tine_path::{EntryName, RepoPath};
use tine_sys::beneath::{self, Access};
use tine_workspace::Workspace;
use tine_workspace::carry::tree::{DEPENDENCY_NAMES, VENV_MARK, count_package_names};
use tine_workspace::carry::{
    Carry, CarryRecord, CarryRules, DependencyTree, is_secret, moment_by, named_secrets,
};

/// File in the main checkout that lists files to carry.
///
/// Other tools use the same file.
const INCLUDE_FILE: &str = ".worktreeinclude";

/// Configuration variable with carried patterns. It may have several values.
const CONFIG_KEY: &str = "tine.carry";

/// Configuration variable with names of dependency trees. It may have several values.
const TREES_KEY: &str = "tine.dependencyTrees";

/// File that holds ignore rules.
const GITIGNORE: &str = ".gitignore";

/// Pattern line that selects every ignored file.
const ALL: &[u8] = b"ignored";

/// Rules that select the carried paths.
struct Choice {
    takes_all: bool,
    patterns: PatternSet,
    /// Patterns that ask for secrets by name.
    named: Vec<Vec<u8>>,
}

impl Choice {
    fn new(lines: &Lines) -> Result<Choice, GitError> {
        Ok(Choice {
            takes_all: lines.takes_all,
            named: named_secrets(lines.patterns.iter().map(Vec::as_slice)),
            patterns: PatternSet::parse(&lines.patterns.join(&b'\n'))?,
        })
    }

    fn is_empty(&self) -> bool {
        !self.takes_all && self.patterns.is_empty()
    }

    fn takes(&self, path: &RepoPath, is_dir: bool) -> bool {
        self.takes_all || self.patterns.choose(path, is_dir)
    }
}

/// Pattern lines that select the carried paths.
#[derive(Default)]
struct Lines {
    takes_all: bool,
    patterns: Vec<Vec<u8>>,
}

impl Lines {
    /// Adds lines from a user. A line [`ALL`] selects every ignored file.
    fn add_given(&mut self, lines: impl IntoIterator<Item = Vec<u8>>) {
        for line in lines {
            if line == ALL {
                self.takes_all = true;
            } else {
                self.patterns.push(line);
            }
        }
    }
}

impl Store {
    /// Selects what a fork on `base` carries.
    ///
    /// If nothing is configured or requested, this costs next to nothing.
    pub(super) fn choose_carried(
        &self,
        rules: &CarryRules,
        base: &Base,
    ) -> Result<Option<CarryRecord>, StoreError> {
        let Some(checkout) = self.repository.main_checkout() else {
            return Ok(None);
        };
        let given = |lines: &[String]| {
            lines
                .iter()
                .map(|line| line.clone().into_bytes())
                .collect::<Vec<_>>()
        };
        let mut lines = match rules {
            CarryRules::Nothing => return Ok(None),
            CarryRules::Only(_) => Lines::default(),
            CarryRules::AsConfigured | CarryRules::Also(_) => self.configured(checkout)?,
        };
        if let CarryRules::Only(patterns) | CarryRules::Also(patterns) = rules {
            lines.add_given(given(patterns));
        }
        let choice = Choice::new(&lines)?;
        if choice.is_empty() {
            return Ok(None);
        }
        let mut chosen = BTreeSet::new();
        for ignored in self.repository.ignored_paths(checkout)? {
            if choice.takes(&ignored.path, ignored.is_dir) {
                chosen.insert(ignored);
            } else if ignored.is_dir && choice.patterns.may_choose_in(&ignored.path) {
                choose_within(checkout, &ignored.path, &choice, &mut chosen)?;
            }
        }
        self.settle(checkout, base, &choice, chosen)
    }

    /// Reads the patterns of `tine.carry`, or else of [`INCLUDE_FILE`].
    fn configured(&self, checkout: &Path) -> Result<Lines, StoreError> {
        let mut lines = Lines::default();
        let values = self.repository.config_values(CONFIG_KEY)?;
        if !values.is_empty() {
            let is_off = |value: &Vec<u8>| matches!(value.as_slice(), b"" | b"none" | b"false");
            lines.add_given(values.into_iter().filter(|value| !is_off(value)));
            return Ok(lines);
        }
        let path = checkout.join(INCLUDE_FILE);
        match tine_sys::file::read(&path) {
            Ok(text) => lines
                .patterns
                .extend(text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
            }
            Err(error) => return Err(StoreError::io("read", &path)(error)),
        }
        Ok(lines)
    }

    /// Returns the record of the selected paths.
    ///
    /// It leaves out paths that the fork's tree has or cannot hold, paths that it does not ignore,
    /// and secrets not asked for by name.
    fn settle(
        &self,
        checkout: &Path,
        base: &Base,
        choice: &Choice,
        chosen: BTreeSet<IgnoredPath>,
    ) -> Result<Option<CarryRecord>, StoreError> {
        let mut rules =
            IgnoreRules::new(&self.repository, |dir: &RepoPath| ignore_file(base, dir))?;
        let named = PatternSet::parse(&choice.named.join(&b'\n'))?;
        let mut taken: BTreeSet<RepoPath> = BTreeSet::new();
        let (mut roots, mut only, mut held_back) = (BTreeSet::new(), Vec::new(), Vec::new());
        for IgnoredPath { path, is_dir } in chosen {
            let is_below_another = || {
                let above = std::iter::successors(path.split_last(), |(dir, _)| dir.split_last());
                above.into_iter().any(|(dir, _)| taken.contains(&dir))
            };
            if is_below_another() {
                continue;
            }
            if !(rules.is_ignored(&path, is_dir)?
                || is_dir && self.ignores_itself(checkout, base, &path)?)
            {
                continue;
            }
            let Some(root) = root_for(base, &path)? else {
                continue;
            };
            if is_secret(&path) && !named.choose(&path, is_dir) {
                held_back.push(text_of(&path, is_dir));
            } else if root == path {
                roots.insert(text_of(&path, is_dir));
                taken.insert(path);
            } else {
                roots.insert(text_of(&root, true));
                only.push(text_of(&path, is_dir));
                taken.insert(path);
            }
        }
        let roots: Vec<PathText> = roots.into_iter().collect();
        if roots.is_empty() && held_back.is_empty() {
            return Ok(None);
        }
        let trees = self.dependency_trees(checkout, roots.iter().chain(&only))?;
        Ok(Some(CarryRecord {
            from: checkout.to_owned(),
            trees,
            roots,
            only,
            named: choice
                .named
                .iter()
                .map(|line| PathText::from(line.as_slice()))
                .collect(),
            held_back,
            since: Some(self.carried_since()?),
        }))
    }

    /// Returns the carried paths that are dependency trees.
    ///
    /// A dependency tree has such a name, is in a directory of such a name, or is a virtual
    /// environment.
    fn dependency_trees<'p>(
        &self,
        checkout: &Path,
        carried: impl Iterator<Item = &'p PathText>,
    ) -> Result<Vec<DependencyTree>, StoreError> {
        let mut names: BTreeSet<Vec<u8>> =
            DEPENDENCY_NAMES.map(|name| name.as_bytes().to_vec()).into();
        let configured = self.repository.config_values(TREES_KEY)?;
        if !configured.is_empty() {
            let words = configured
                .iter()
                .flat_map(|value| value.split(u8::is_ascii_whitespace));
            names = words
                .filter(|word| !matches!(*word, b"" | b"none"))
                .map(<[u8]>::to_vec)
                .collect();
            if names.is_empty() {
                return Ok(Vec::new());
            }
        }
        let mut trees: Vec<(RepoPath, PathText)> = Vec::new();
        for text in carried {
            let bytes = text.to_bytes();
            let Ok(path) = RepoPath::parse(&bytes) else {
                continue;
            };
            let is_named = || {
                path.components()
                    .any(|name| names.contains(name.as_bytes()))
            };
            let is_tree = bytes.ends_with(b"/")
                && (is_named() || checkout.join(path.as_path()).join(VENV_MARK).is_file());
            if is_tree && !trees.iter().any(|(above, _)| path.starts_with(above)) {
                trees.push((path, text.clone()));
            }
        }
        Ok(trees
            .into_iter()
            .map(|(path, text)| {
                let names = count_package_names(&checkout.join(path.as_path()));
                DependencyTree::wanted(text, Some(names))
            })
            .collect())
    }

    /// Adds the dependency trees that the fork's record lacks.
    ///
    /// A record of an earlier version has none, and trees may have been made since the record was
    /// written.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], or an error of reading the configuration or writing the record.
    pub fn find_dependency_trees(&self, name: &ForkName) -> Result<ForkRecord, StoreError> {
        let record = self.record(name)?;
        let Some(carry) = &record.carry else {
            return Ok(record);
        };
        let found = self.dependency_trees(&carry.from, carry.roots.iter().chain(&carry.only))?;
        self.update_record(name, |record| {
            if let Some(carry) = &mut record.carry {
                for tree in found {
                    if !carry.trees.iter().any(|known| known.path == tree.path) {
                        carry.trees.push(tree);
                    }
                }
            }
        })
    }

    /// Returns whether a directory's own `.gitignore` ignores its whole content.
    ///
    /// The directory is at `path` of the main checkout. The fork on `base` must see the same file,
    /// so the base must not have the path.
    fn ignores_itself(
        &self,
        checkout: &Path,
        base: &Base,
        path: &RepoPath,
    ) -> Result<bool, StoreError> {
        let dir = checkout.join(path.as_path());
        let Ok(text) = tine_sys::file::read(&dir.join(GITIGNORE)) else {
            return Ok(false);
        };
        if base.find(path)?.is_some() {
            return Ok(false);
        }
        let mut rules = IgnoreRules::new(&self.repository, |dir: &RepoPath| {
            if dir == path {
                Ok(Some(text.clone()))
            } else {
                ignore_file(base, dir)
            }
        })?;
        let listed = std::fs::read_dir(&dir).map_err(StoreError::io("list", &dir))?;
        for entry in listed {
            let entry = entry.map_err(StoreError::io("list", &dir))?;
            let Ok(name) = EntryName::new(entry.file_name().as_bytes()) else {
                continue;
            };
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !rules.is_ignored(&path.join(&name), is_dir)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the time as of which a new fork shows carried directories.
    ///
    /// It must be taken before the main checkout's tracked files are compared with the fork's. Then
    /// build outputs made from them in between are not shown.
    fn carried_since(&self) -> Result<Timestamp, StoreError> {
        let scratch = files::temporary_beside(&self.places.root().join("moment"));
        moment_by(&scratch).map_err(StoreError::io("tell the time by", &scratch))
    }

    /// Selects what a fork of another fork carries.
    ///
    /// Files that both carry are shown as of the parent's moment. A parent without one uses `made`,
    /// the time of its base files: the new fork's base files are as old, and later build outputs of
    /// the main checkout were built from other sources.
    pub(super) fn inherit_carried(
        &self,
        rules: &CarryRules,
        base: &Base,
        inherited: Option<CarryRecord>,
        made: Timestamp,
    ) -> Result<Option<CarryRecord>, StoreError> {
        let since = inherited.as_ref().and_then(|inherited| inherited.since);
        let chosen = match rules {
            CarryRules::AsConfigured => return Ok(inherited),
            CarryRules::Nothing => return Ok(None),
            CarryRules::Only(_) => self.choose_carried(rules, base)?,
            CarryRules::Also(patterns) => {
                self.choose_carried(&CarryRules::Only(patterns.clone()), base)?
            }
        };
        let chosen = chosen.map(|chosen| CarryRecord {
            since: since.or(Some(made)),
            ..chosen
        });
        Ok(match (rules, inherited, chosen) {
            (CarryRules::Also(_), Some(inherited), Some(chosen)) => Some(inherited.with(chosen)),
            (CarryRules::Also(_), inherited, None) => inherited,
            (_, _, chosen) => chosen,
        })
    }

    /// Adds the carried files to the workspace of an open fork.
    pub(super) fn with_carried(&self, workspace: Workspace, record: &ForkRecord) -> Workspace {
        match self.open_carried(record) {
            Some(carry) => workspace.carrying(carry),
            None => workspace,
        }
    }

    /// Opens the carried files; `None` if the main checkout is gone.
    fn open_carried(&self, record: &ForkRecord) -> Option<Carry> {
        let carry = record
            .carry
            .as_ref()
            .filter(|carry| !carry.roots.is_empty())?;
        if !self.is_carry_there(carry) {
            log::warn!(
                "{} carries nothing: {} is the main checkout no more",
                record.name,
                carry.from.display()
            );
            return None;
        }
        let opened = Carry::open(carry, self.hasher.clone())
            .inspect(|opened| self.show_generations(record, carry, opened));
        opened
            .map_err(|error| {
                log::warn!(
                    "{} carries nothing: {} cannot be opened: {error}",
                    record.name,
                    carry.from.display()
                );
            })
            .ok()
    }

    /// Returns whether the main checkout that `carry` names still exists.
    pub fn is_carry_there(&self, carry: &CarryRecord) -> bool {
        self.repository.main_checkout() == Some(&carry.from) && carry.from.is_dir()
    }
}

/// Searches an ignored directory as deep as the patterns can match.
fn choose_within(
    checkout: &Path,
    dir: &RepoPath,
    choice: &Choice,
    chosen: &mut BTreeSet<IgnoredPath>,
) -> Result<(), StoreError> {
    let failed =
        |path: &RepoPath| StoreError::io("list", checkout.join(OsStr::from_bytes(path.as_bytes())));
    let top = beneath::open_top(checkout).map_err(failed(&RepoPath::root()))?;
    let mut open = vec![dir.clone()];
    while let Some(dir) = open.pop() {
        let names = match beneath::open(&top, dir.as_path(), Access::Read).and_then(beneath::list) {
            Ok(names) => names,
            // It was removed, is not a directory on this file system, or cannot be read by this
            // user.
            Err(error) => {
                log::debug!("nothing of {dir} is carried: {error}");
                continue;
            }
        };
        for (name, kind) in names {
            let Ok(name) = EntryName::new(name) else {
                continue;
            };
            let path = dir.join(&name);
            let is_dir = kind == Some(FileKind::Directory);
            if choice.takes(&path, is_dir) {
                chosen.insert(IgnoredPath { path, is_dir });
            } else if is_dir && choice.patterns.may_choose_in(&path) {
                open.push(path);
            }
        }
    }
    Ok(())
}

/// Returns the first part of `path` that the base lacks.
///
/// `None` if the base has the whole path, or something other than a directory on the way.
fn root_for(base: &Base, path: &RepoPath) -> Result<Option<RepoPath>, GitError> {
    let mut at = RepoPath::root();
    for name in path.components() {
        at.push(&name);
        match base.find(&at)? {
            None => return Ok(Some(at)),
            Some((dir, index)) if dir.entries[index].kind == TreeEntryKind::Directory => {}
            Some(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Formats a path; directories end in a slash.
fn text_of(path: &RepoPath, is_dir: bool) -> PathText {
    let mut text = path.as_bytes().to_vec();
    if is_dir {
        text.push(b'/');
    }
    PathText::from(text.as_slice())
}

/// Reads the `.gitignore` file of a base directory, if any.
fn ignore_file(base: &Base, dir: &RepoPath) -> Result<Option<Vec<u8>>, GitError> {
    let Ok(name) = EntryName::new(GITIGNORE) else {
        return Ok(None);
    };
    let path = dir.join(&name);
    let Some((dir, index)) = base.find(&path)? else {
        return Ok(None);
    };
    let entry = &dir.entries[index];
    match entry.kind {
        TreeEntryKind::File | TreeEntryKind::Executable => {
            let content = base.content(&path, entry.id)?;
            let mut bytes = vec![0; usize::try_from(content.len()).unwrap_or(0)];
            let read = content
                .read_at(&mut bytes, 0)
                .map_err(GitError::io("read", path.as_path()))?;
            bytes.truncate(read);
            Ok(Some(bytes))
        }
        TreeEntryKind::Symlink | TreeEntryKind::Directory | TreeEntryKind::Submodule => Ok(None),
    }
}
