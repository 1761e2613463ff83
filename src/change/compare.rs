//! Comparing a fork's view with a tree, without reading one file: pure over a [`Delta`], a
//! [`TreeReader`] and ignore rules.
//!
//! A directory needs a look only where the delta speaks of it or where its base tree differs from
//! the tree it is compared with; equal subtrees are skipped, so the cost is that of the changes.
//! The outcome names candidates: what a file holds that the fork wrote is found out later, by
//! [`super::changeset`].
//!
//! The rules are those of `git add -A`: directories are only implied by what is in them; a
//! submodule stays as it is while a directory stands in its place, unless that is a repository with
//! another commit; an untracked node that an ignore rule matches is set apart (the index may track
//! it nevertheless), and so are nested repositories; what git cannot hold is left out.

use std::collections::BTreeMap;

use super::{Change, Side};
use tine_git::{GitError, ObjectId, Repository, TreeEntry, TreeEntryKind};
use tine_path::{DOT_GIT, EntryName, RepoPath};
use tine_workspace::{Delta, DeltaDir, DeltaEntry, DeltaNode};

/// Reads trees.
pub trait TreeReader {
    /// The entries of a tree, in any order.
    fn read_tree(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError>;

    /// Fails where the tree holds more files than any checkout could have.
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

/// What a path leads to in the view.
#[derive(Debug, Clone)]
pub enum Found<'a> {
    /// Nothing that git would hold.
    Nothing,
    /// A base file that the layers do not touch, in place or in a directory that was moved; or a
    /// gitlink.
    Stored(Side),
    /// A node of the layers.
    Node(&'a DeltaNode),
}

/// A path that may differ from the tree it is compared with.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    pub path: RepoPath,
    pub old: Option<Side>,
    pub new: Found<'a>,
}

/// What a comparison found.
#[derive(Debug, Clone, Default)]
pub struct Comparison<'a> {
    /// Sorted by path.
    pub candidates: Vec<Candidate<'a>>,
    /// Nodes that the tree lacks and an ignore rule matches, sorted by path: they count only if the
    /// index tracks them.
    pub ignored: Vec<Candidate<'a>>,
    /// Directories with a repository of their own, sorted by path.
    pub nested: Vec<NestedRepository>,
    /// Nodes that are neither ignored nor anything that git would hold, sorted by path.
    pub left_out: Vec<RepoPath>,
}

/// A directory with a `.git` in it, other than the root. What is in it is not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedRepository {
    pub path: RepoPath,
    /// The gitlink that the tree has there.
    pub old: Option<Side>,
    /// Whether an ignore rule matches it; never where the tree has it.
    pub is_ignored: bool,
}

/// Past this many directories that differ it is found out whether there is an end to them.
const MIN_DIRECTORIES_TO_COUNT: usize = 10_000;

/// How modes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompareOptions {
    /// `core.fileMode`: whether the executable bit counts.
    pub file_mode: bool,
}

/// Compares the view with the tree `tree_id`. `is_ignored` says whether an ignore rule matches an
/// untracked path (for a directory: with `true`), for itself or for a directory above it.
pub fn compare<'a>(
    trees: &dyn TreeReader,
    delta: &'a Delta,
    tree_id: ObjectId,
    options: CompareOptions,
    is_ignored: &mut dyn FnMut(&RepoPath, bool) -> Result<bool, GitError>,
) -> Result<Comparison<'a>, GitError> {
    Walk::new(trees, options, is_ignored).run(ViewDir::Delta(&delta.root), tree_id)
}

/// What differs between two trees, gitlinks and executable bits included.
pub fn compare_trees(
    trees: &dyn TreeReader,
    old_tree_id: ObjectId,
    new_tree_id: ObjectId,
) -> Result<Vec<Change>, GitError> {
    let options = CompareOptions { file_mode: true };
    let never = &mut |_: &RepoPath, _| Ok(false);
    let mut walk = Walk::new(trees, options, never);
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

/// The kind of `new` as it counts beside `old`: without `core.fileMode` a regular file keeps the
/// mode it had.
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

/// A directory of the view.
#[derive(Clone, Copy)]
enum ViewDir<'a> {
    Delta(&'a DeltaDir),
    /// Untouched.
    Base(ObjectId),
    /// With nothing in it that counts: a submodule's, or none at all.
    Empty,
}

/// What the view has at one name.
enum Seen<'a> {
    Nothing,
    Dir(ViewDir<'a>),
    /// A gitlink, where they are told from directories.
    Gitlink(Side),
    Stored(Side),
    Node(&'a DeltaNode),
}

/// Whether a gitlink of the view is an empty directory, as in a checkout, or an entry, as in a
/// tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submodules {
    AreDirectories,
    AreEntries,
}

/// A directory still to be looked at. The walk keeps these itself: a view may be deeper than a
/// thread's stack.
struct Pending<'a> {
    path: RepoPath,
    view: ViewDir<'a>,
    /// The tree to compare with; `None` where it has no directory there.
    tree_id: Option<ObjectId>,
    /// Whether an ignore rule matched the directory, or one above, and the tree has none of it.
    ignored: bool,
}

type Names = BTreeMap<EntryName, Side>;

struct Walk<'a, 'w> {
    trees: &'w dyn TreeReader,
    options: CompareOptions,
    is_ignored: &'w mut dyn FnMut(&RepoPath, bool) -> Result<bool, GitError>,
    submodules: Submodules,
    pending: Vec<Pending<'a>>,
    found: Comparison<'a>,
}

impl<'a, 'w> Walk<'a, 'w> {
    fn new(
        trees: &'w dyn TreeReader,
        options: CompareOptions,
        is_ignored: &'w mut dyn FnMut(&RepoPath, bool) -> Result<bool, GitError>,
    ) -> Walk<'a, 'w> {
        Walk {
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

    fn directory(&mut self, dir: Pending<'a>) -> Result<(), GitError> {
        let (base_id, entries) = match dir.view {
            ViewDir::Delta(delta) => (delta.base_tree_id, Some(&delta.entries)),
            ViewDir::Base(tree_id) => (Some(tree_id), None),
            ViewDir::Empty => (None, None),
        };
        let is_silent = entries.is_none_or(BTreeMap::is_empty);
        if base_id == dir.tree_id && is_silent {
            return Ok(());
        }
        let tree = self.names_of(dir.tree_id)?;
        let base = match base_id == dir.tree_id {
            true => None,
            false => Some(self.names_of(base_id)?),
        };
        let at = |name: &EntryName| (dir.path.join(name), tree.get(name).cloned());

        for (name, entry) in entries.into_iter().flatten() {
            let (path, old) = at(name);
            let seen = match entry {
                DeltaEntry::Absent => Seen::Nothing,
                DeltaEntry::Directory(delta) => Seen::Dir(ViewDir::Delta(delta)),
                DeltaEntry::Node(node) => Seen::Node(node),
            };
            if name.is_dot_git() {
                continue;
            }
            if name.as_bytes().eq_ignore_ascii_case(DOT_GIT) {
                // No tree may hold it.
                if !matches!(seen, Seen::Nothing) {
                    self.leave_out(path, dir.ignored)?;
                }
                continue;
            }
            self.entry(path, old, seen, dir.ignored)?;
        }

        // Where the delta is silent the base shows through, which matters where it is not the tree
        // itself.
        let Some(base) = base else {
            return Ok(());
        };
        let is_spoken_of =
            |name: &EntryName| entries.is_some_and(|entries| entries.contains_key(name));
        for (name, side) in &base {
            if is_spoken_of(name) || tree.get(name) == Some(side) {
                continue;
            }
            let (path, old) = at(name);
            let seen = self.seen_in_base(side);
            self.entry(path, old, seen, dir.ignored)?;
        }
        for (name, side) in &tree {
            if !is_spoken_of(name) && !base.contains_key(name) {
                self.entry(
                    dir.path.join(name),
                    Some(side.clone()),
                    Seen::Nothing,
                    dir.ignored,
                )?;
            }
        }
        Ok(())
    }

    fn seen_in_base(&self, side: &Side) -> Seen<'a> {
        match side.kind {
            TreeEntryKind::Directory => Seen::Dir(ViewDir::Base(side.id)),
            TreeEntryKind::Submodule if self.submodules == Submodules::AreEntries => {
                Seen::Gitlink(side.clone())
            }
            TreeEntryKind::Submodule => Seen::Dir(ViewDir::Empty),
            TreeEntryKind::File | TreeEntryKind::Executable | TreeEntryKind::Symlink => {
                Seen::Stored(side.clone())
            }
        }
    }

    fn names_of(&self, tree_id: Option<ObjectId>) -> Result<Names, GitError> {
        let Some(tree_id) = tree_id else {
            return Ok(Names::new());
        };
        let entries = self.trees.read_tree(tree_id)?.into_iter();
        Ok(entries
            .map(|TreeEntry { name, kind, id }| (name, Side { kind, id }))
            .collect())
    }

    /// Compares what is seen at `path` with what the tree has there.
    fn entry(
        &mut self,
        path: RepoPath,
        old: Option<Side>,
        seen: Seen<'a>,
        ignored: bool,
    ) -> Result<(), GitError> {
        match old.as_ref().map(|old| old.kind) {
            None => self.untracked(path, seen, ignored),
            Some(TreeEntryKind::Directory) => {
                let view = match seen {
                    Seen::Dir(view) => view,
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
            // Populated or not, git looks into a submodule's directory only as a repository of its
            // own.
            Some(TreeEntryKind::Submodule) if self.submodules == Submodules::AreDirectories => {
                match seen {
                    Seen::Dir(view) if is_repository(view) => {
                        self.nest(path, old, false);
                        Ok(())
                    }
                    Seen::Dir(_) => Ok(()),
                    _ => self.tracked(path, old, seen, ignored),
                }
            }
            Some(_) => self.tracked(path, old, seen, ignored),
        }
    }

    /// The tree has a file, symlink or gitlink at `path`.
    fn tracked(
        &mut self,
        path: RepoPath,
        old: Option<Side>,
        seen: Seen<'a>,
        ignored: bool,
    ) -> Result<(), GitError> {
        let new = match seen {
            Seen::Nothing => Found::Nothing,
            Seen::Stored(side) | Seen::Gitlink(side) => {
                let kind = effective_kind(self.options, old.as_ref(), side.kind);
                Found::Stored(Side { kind, ..side })
            }
            Seen::Node(node) if node.tree_kind().is_some() => Found::Node(node),
            Seen::Node(_) | Seen::Dir(_) => {
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

    /// The tree has nothing at `path`, or something of another kind that is dealt with already.
    fn untracked(&mut self, path: RepoPath, seen: Seen<'a>, ignored: bool) -> Result<(), GitError> {
        let new = match seen {
            Seen::Nothing => return Ok(()),
            Seen::Dir(view) => return self.untracked_directory(path, view, ignored),
            Seen::Node(node) if node.tree_kind().is_none() => return self.leave_out(path, ignored),
            Seen::Node(node) => Found::Node(node),
            Seen::Stored(side) | Seen::Gitlink(side) => {
                let kind = effective_kind(self.options, None, side.kind);
                Found::Stored(Side { kind, ..side })
            }
        };
        let ignored = ignored || (self.is_ignored)(&path, false)?;
        let list = match ignored {
            true => &mut self.found.ignored,
            false => &mut self.found.candidates,
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
            self.nest(path, None, ignored);
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

    fn nest(&mut self, path: RepoPath, old: Option<Side>, is_ignored: bool) {
        self.found.nested.push(NestedRepository {
            path,
            old,
            is_ignored,
        });
    }

    fn leave_out(&mut self, path: RepoPath, ignored: bool) -> Result<(), GitError> {
        if !ignored && !(self.is_ignored)(&path, false)? {
            self.found.left_out.push(path);
        }
        Ok(())
    }
}

/// Whether a directory holds a `.git`. Base trees never do.
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
