//! Compares a fork's view with a tree without reading a file.
//!
//! The comparison is pure over a [`Delta`], a [`TreeReader`] and ignore rules.
//!
//! A directory is read only if the delta has an entry for it or if its base tree differs from the
//! tree that it is compared with. Equal subtrees are skipped, so the cost is proportional to the
//! changes. The outcome is a list of candidates. [`super::changeset`] then reads the files that the
//! fork wrote.
//!
//! The rules are those of `git add -A`:
//!
//! - Directories exist only through their files.
//! - A submodule is unchanged while a directory is in its place, unless that directory is a
//!   repository at another commit.
//! - An untracked node that an ignore rule matches is listed separately, since the index may track
//!   it.
//! - Nested repositories are listed separately.
//! - Nodes that git cannot hold are left out.

use std::collections::BTreeMap;

use super::{Change, Side};
use tine_git::{GitError, ObjectId, Repository, TreeEntry, TreeEntryKind};
use tine_path::{DOT_GIT, EntryName, RepoPath};
use tine_workspace::{Delta, DeltaDir, DeltaEntry, DeltaNode};

/// Source of trees.
pub trait TreeReader {
    /// Returns the entries of a tree, in any order.
    ///
    /// # Errors
    /// [`GitError`] if the tree cannot be read.
    fn read_tree(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError>;

    /// Checks that the tree has no more files than a checkout could.
    ///
    /// # Errors
    /// [`GitError`] if it has more, or cannot be read.
    fn check_file_count(&self, tree_id: ObjectId) -> Result<(), GitError>;
}

impl TreeReader for Repository {
    fn read_tree(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        Repository::read_tree(self, tree_id)
    }

    fn check_file_count(&self, tree_id: ObjectId) -> Result<(), GitError> {
        Repository::check_file_count(self, tree_id)
    }
}

/// Object that a path leads to in the view.
#[derive(Debug, Clone)]
pub enum Found<'a> {
    /// Nothing that git would hold.
    Nothing,
    /// An unmodified base file, in place or renamed, or a gitlink.
    ///
    /// A base file is renamed if a directory above it was.
    Stored(Side),
    /// A node of the layers.
    Node(&'a DeltaNode),
}

/// Path that may differ from the tree of the comparison.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Path relative to the root of the repository.
    pub path: RepoPath,
    /// Entry of the tree; `None` if it has none.
    pub old: Option<Side>,
    /// Object in the view.
    pub new: Found<'a>,
}

/// Outcome of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Comparison<'a> {
    /// Paths that may differ, sorted by path.
    pub candidates: Vec<Candidate<'a>>,
    /// Ignored nodes that the tree lacks, sorted by path.
    ///
    /// They count only if the index tracks them.
    pub ignored: Vec<Candidate<'a>>,
    /// Directories that are repositories, sorted by path.
    pub nested: Vec<NestedRepository>,
    /// Nodes that are not ignored and that git cannot hold, by path.
    pub left_out: Vec<RepoPath>,
}

/// Directory with a `.git` in it, other than the root.
///
/// Its files are not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedRepository {
    /// Path of the directory.
    pub path: RepoPath,
    /// Gitlink of the tree at the path; `None` if it has none.
    pub old: Option<Side>,
    /// True if a rule ignores the path and the tree lacks it.
    pub is_ignored: bool,
}

/// Number of differing directories after which the tree's files are counted.
const MIN_DIRECTORIES_TO_COUNT: usize = 10_000;

/// Options for comparing modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareOptions {
    /// True if the executable bit counts (`core.fileMode`).
    pub file_mode: bool,
}

/// Compares the view with the tree `tree_id`.
///
/// `is_ignored` returns whether an ignore rule matches an untracked path or a directory above it.
/// Its second argument is true for a directory.
///
/// # Errors
/// [`GitError`] if a tree cannot be read, has too many files, or `is_ignored` fails.
pub fn compare<'a>(
    trees: &dyn TreeReader,
    delta: &'a Delta,
    tree_id: ObjectId,
    options: CompareOptions,
    is_ignored: &mut dyn FnMut(&RepoPath, bool) -> Result<bool, GitError>,
) -> Result<Comparison<'a>, GitError> {
    TreeWalk::new(trees, options, is_ignored).run(ViewDir::Delta(&delta.root), tree_id)
}

/// Compares two trees, gitlinks and executable bits included.
///
/// # Errors
/// [`GitError`] if a tree cannot be read or has too many files.
pub fn compare_trees(
    trees: &dyn TreeReader,
    old_tree_id: ObjectId,
    new_tree_id: ObjectId,
) -> Result<Vec<Change>, GitError> {
    let options = CompareOptions { file_mode: true };
    let never = &mut |_: &RepoPath, _| Ok(false);
    let mut walk = TreeWalk::new(trees, options, never);
    walk.submodules = Submodules::AreEntries;
    let comparison = walk.run(ViewDir::Base(new_tree_id), old_tree_id)?;
    let change = |candidate: Candidate<'_>| Change {
        path: candidate.path,
        old: candidate.old,
        new: match candidate.new {
            Found::Stored(side) => Some(side),
            Found::Nothing | Found::Node(_) => None,
        },
        attr: None,
    };
    Ok(comparison.candidates.into_iter().map(change).collect())
}

/// Returns the kind of `new` that counts in a comparison with `old`.
///
/// Without `core.fileMode` a regular file keeps its old mode.
pub(super) fn effective_kind(
    options: CompareOptions,
    old: Option<&Side>,
    new: TreeEntryKind,
) -> TreeEntryKind {
    use TreeEntryKind::{Executable, File};
    match (options.file_mode, new, old.map(|old| old.kind)) {
        (false, File | Executable, Some(kind @ (File | Executable))) => kind,
        (false, Executable, _) => File,
        _ => new,
    }
}

/// Directory of the view.
#[derive(Clone, Copy)]
enum ViewDir<'a> {
    Delta(&'a DeltaDir),
    /// Untouched directory of the base.
    Base(ObjectId),
    /// Directory without relevant entries: a submodule's, or a missing one.
    Empty,
}

/// Object that the view has at one name.
enum ViewEntry<'a> {
    Nothing,
    Dir(ViewDir<'a>),
    /// A gitlink, if the walk treats gitlinks as entries.
    Gitlink(Side),
    Stored(Side),
    Node(&'a DeltaNode),
}

/// Treatment of a gitlink in the view.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submodules {
    /// An empty directory, as in a checkout.
    AreDirectories,
    /// An entry, as in a tree.
    AreEntries,
}

/// Directory that the walk still has to compare.
///
/// The walk keeps its own stack: a view may be deeper than a thread's stack allows.
struct Pending<'a> {
    path: RepoPath,
    view: ViewDir<'a>,
    /// Tree to compare with; `None` if the tree has no directory there.
    tree_id: Option<ObjectId>,
    /// True if a rule ignores the directory, and the tree lacks it.
    ///
    /// The rule may match a directory above.
    ignored: bool,
}

/// Entries of one tree, by name.
type SideMap = BTreeMap<EntryName, Side>;

/// Walk over view and tree in parallel.
struct TreeWalk<'a, 'w> {
    trees: &'w dyn TreeReader,
    options: CompareOptions,
    is_ignored: &'w mut dyn FnMut(&RepoPath, bool) -> Result<bool, GitError>,
    submodules: Submodules,
    pending: Vec<Pending<'a>>,
    found: Comparison<'a>,
}

impl<'a, 'w> TreeWalk<'a, 'w> {
    fn new(
        trees: &'w dyn TreeReader,
        options: CompareOptions,
        is_ignored: &'w mut dyn FnMut(&RepoPath, bool) -> Result<bool, GitError>,
    ) -> TreeWalk<'a, 'w> {
        TreeWalk {
            trees,
            options,
            is_ignored,
            submodules: Submodules::AreDirectories,
            pending: Vec::new(),
            found: Comparison::default(),
        }
    }

    fn run(mut self, view: ViewDir<'a>, tree_id: ObjectId) -> Result<Comparison<'a>, GitError> {
        self.pending.push(Pending {
            path: RepoPath::root(),
            view,
            tree_id: Some(tree_id),
            ignored: false,
        });
        let mut directories = 0;
        while let Some(dir) = self.pending.pop() {
            self.directory(dir)?;
            directories += 1;
            if directories == MIN_DIRECTORIES_TO_COUNT {
                self.trees.check_file_count(tree_id)?;
            }
        }
        self.found.candidates.sort_by(|a, b| a.path.cmp(&b.path));
        self.found.ignored.sort_by(|a, b| a.path.cmp(&b.path));
        self.found.nested.sort_by(|a, b| a.path.cmp(&b.path));
        self.found.left_out.sort();
        Ok(self.found)
    }

    /// Compares one directory with its tree, if they can differ.
    fn directory(&mut self, dir: Pending<'a>) -> Result<(), GitError> {
        let (base_id, entries) = match dir.view {
            ViewDir::Delta(delta) => (delta.base_tree_id, Some(&delta.entries)),
            ViewDir::Base(tree_id) => (Some(tree_id), None),
            ViewDir::Empty => (None, None),
        };
        let is_untouched = entries.is_none_or(BTreeMap::is_empty);
        if base_id == dir.tree_id && is_untouched {
            return Ok(());
        }
        let tree = self.names_of(dir.tree_id)?;
        let base = if base_id == dir.tree_id {
            None
        } else {
            Some(self.names_of(base_id)?)
        };
        let at = |name: &EntryName| (dir.path.join(name), tree.get(name).cloned());

        for (name, entry) in entries.into_iter().flatten() {
            let (path, old) = at(name);
            let seen = match entry {
                DeltaEntry::Absent => ViewEntry::Nothing,
                DeltaEntry::Directory(delta) => ViewEntry::Dir(ViewDir::Delta(delta)),
                DeltaEntry::Node(node) => ViewEntry::Node(node),
            };
            if name.is_dot_git() {
                continue;
            }
            if name.as_bytes().eq_ignore_ascii_case(DOT_GIT) {
                // A tree cannot hold this name.
                if !matches!(seen, ViewEntry::Nothing) {
                    self.leave_out(path, dir.ignored)?;
                }
                continue;
            }
            self.entry(path, old, seen, dir.ignored)?;
        }

        // Names that the delta lacks show the base, which matters only if the base is another tree.
        let Some(base) = base else {
            return Ok(());
        };
        let is_in_delta =
            |name: &EntryName| entries.is_some_and(|entries| entries.contains_key(name));
        for (name, side) in &base {
            if is_in_delta(name) || tree.get(name) == Some(side) {
                continue;
            }
            let (path, old) = at(name);
            let seen = self.seen_in_base(side);
            self.entry(path, old, seen, dir.ignored)?;
        }
        for (name, side) in &tree {
            if !is_in_delta(name) && !base.contains_key(name) {
                self.entry(
                    dir.path.join(name),
                    Some(side.clone()),
                    ViewEntry::Nothing,
                    dir.ignored,
                )?;
            }
        }
        Ok(())
    }

    fn seen_in_base(&self, side: &Side) -> ViewEntry<'a> {
        match side.kind {
            TreeEntryKind::Directory => ViewEntry::Dir(ViewDir::Base(side.id)),
            TreeEntryKind::Submodule if self.submodules == Submodules::AreEntries => {
                ViewEntry::Gitlink(side.clone())
            }
            TreeEntryKind::Submodule => ViewEntry::Dir(ViewDir::Empty),
            TreeEntryKind::File | TreeEntryKind::Executable | TreeEntryKind::Symlink => {
                ViewEntry::Stored(side.clone())
            }
        }
    }

    fn names_of(&self, tree_id: Option<ObjectId>) -> Result<SideMap, GitError> {
        let Some(tree_id) = tree_id else {
            return Ok(SideMap::new());
        };
        let entries = self.trees.read_tree(tree_id)?.into_iter();
        Ok(entries
            .map(|TreeEntry { name, kind, id }| (name, Side { kind, id }))
            .collect())
    }

    /// Compares the view's object at `path` with the tree's entry.
    fn entry(
        &mut self,
        path: RepoPath,
        old: Option<Side>,
        seen: ViewEntry<'a>,
        ignored: bool,
    ) -> Result<(), GitError> {
        match old.as_ref().map(|old| old.kind) {
            None => self.untracked(path, seen, ignored),
            Some(TreeEntryKind::Directory) => {
                let view = match seen {
                    ViewEntry::Dir(view) => view,
                    other => {
                        self.untracked(path.clone(), other, ignored)?;
                        ViewDir::Empty
                    }
                };
                self.pending.push(Pending {
                    path,
                    view,
                    tree_id: old.map(|old| old.id),
                    ignored: false,
                });
                Ok(())
            }
            // Populated or not, git looks into a submodule's directory only if it is a repository.
            Some(TreeEntryKind::Submodule) if self.submodules == Submodules::AreDirectories => {
                match seen {
                    ViewEntry::Dir(view) if is_repository(view) => {
                        self.add_nested(path, old, false);
                        Ok(())
                    }
                    ViewEntry::Dir(_) => Ok(()),
                    _ => self.tracked(path, old, seen, ignored),
                }
            }
            Some(_) => self.tracked(path, old, seen, ignored),
        }
    }

    /// Compares a path with a file, symlink or gitlink of the tree.
    fn tracked(
        &mut self,
        path: RepoPath,
        old: Option<Side>,
        seen: ViewEntry<'a>,
        ignored: bool,
    ) -> Result<(), GitError> {
        let new = match seen {
            ViewEntry::Nothing => Found::Nothing,
            ViewEntry::Stored(side) | ViewEntry::Gitlink(side) => {
                let kind = effective_kind(self.options, old.as_ref(), side.kind);
                Found::Stored(Side { kind, ..side })
            }
            ViewEntry::Node(node) if node.tree_kind().is_some() => Found::Node(node),
            ViewEntry::Node(_) | ViewEntry::Dir(_) => {
                self.untracked(path.clone(), seen, ignored)?;
                Found::Nothing
            }
        };
        let is_same = matches!(&new, Found::Stored(side) if old.as_ref() == Some(side));
        if !is_same {
            self.found.candidates.push(Candidate { path, old, new });
        }
        Ok(())
    }

    /// Adds a path at which the tree has nothing to compare with.
    ///
    /// The tree has no entry, or one of another kind that the caller handles.
    fn untracked(
        &mut self,
        path: RepoPath,
        seen: ViewEntry<'a>,
        ignored: bool,
    ) -> Result<(), GitError> {
        let new = match seen {
            ViewEntry::Nothing => return Ok(()),
            ViewEntry::Dir(view) => return self.untracked_directory(path, view, ignored),
            ViewEntry::Node(node) if node.tree_kind().is_none() => {
                return self.leave_out(path, ignored);
            }
            ViewEntry::Node(node) => Found::Node(node),
            ViewEntry::Stored(side) | ViewEntry::Gitlink(side) => {
                let kind = effective_kind(self.options, None, side.kind);
                Found::Stored(Side { kind, ..side })
            }
        };
        let ignored = ignored || (self.is_ignored)(&path, false)?;
        let list = if ignored {
            &mut self.found.ignored
        } else {
            &mut self.found.candidates
        };
        list.push(Candidate {
            path,
            old: None,
            new,
        });
        Ok(())
    }

    fn untracked_directory(
        &mut self,
        path: RepoPath,
        view: ViewDir<'a>,
        ignored: bool,
    ) -> Result<(), GitError> {
        if let ViewDir::Empty = view {
            return Ok(());
        }
        let ignored = ignored || (self.is_ignored)(&path, true)?;
        if is_repository(view) {
            self.add_nested(path, None, ignored);
            return Ok(());
        }
        self.pending.push(Pending {
            path,
            view,
            tree_id: None,
            ignored,
        });
        Ok(())
    }

    fn add_nested(&mut self, path: RepoPath, old: Option<Side>, is_ignored: bool) {
        self.found.nested.push(NestedRepository {
            path,
            old,
            is_ignored,
        });
    }

    /// Adds a path to the left-out ones, unless it is ignored.
    fn leave_out(&mut self, path: RepoPath, ignored: bool) -> Result<(), GitError> {
        if !ignored && !(self.is_ignored)(&path, false)? {
            self.found.left_out.push(path);
        }
        Ok(())
    }
}

/// Returns whether a directory has a `.git`. Base trees never do.
fn is_repository(view: ViewDir<'_>) -> bool {
    match view {
        ViewDir::Delta(delta) => delta
            .entries
            .get(DOT_GIT)
            .is_some_and(|entry| !matches!(entry, DeltaEntry::Absent)),
        ViewDir::Base(_) | ViewDir::Empty => false,
    }
}

#[cfg(test)]
mod tests;
