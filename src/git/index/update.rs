//! Update of a worktree's index to a tree after a commit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Range};

use gix::index::entry::{Flags, Mode, Stage};
use gix::index::extension::Tree;

use super::lock::{IndexLock, PreparedIndex};
use super::untracked::KnownFiles;
use super::writer::{CachedTree, Encoder, EntryFlags, EntryStat, index_time};
use super::{check_depth, find_entry, is_in_skipped_directory, on_deep_stack, read_index};
use crate::{GitError, ObjectId, Repository, TreeEntryKind, Worktree};
use tine_attr::{Attr, Timestamp};
use tine_path::RepoPath;

/// One path whose index entry changes.
#[derive(Debug, Clone)]
pub struct IndexChange {
    /// Path in the index.
    pub path: RepoPath,
    /// New entry with its attributes; `None` removes the path.
    pub new: Option<(TreeEntryKind, ObjectId, Attr)>,
}

/// A state of a fork's files since which changes are tracked.
#[derive(Clone, Copy)]
pub struct KnownState<'a> {
    /// Token of the state, in the index and in git's query.
    pub token: &'a str,
    /// Change time that exactly the unchanged files have.
    pub changed: Timestamp,
    /// Returns whether changes since the state of a token are tracked.
    ///
    /// If so for the old index's token, its knowledge is kept.
    pub is_known: &'a (dyn Fn(&str) -> bool + Sync),
}

/// The new content of an index.
#[derive(Debug, Clone)]
pub struct IndexTarget {
    /// Tree that the index will match.
    pub tree_id: ObjectId,
    /// Changed paths with their attributes.
    pub changes: Vec<IndexChange>,
    /// Intents to add.
    ///
    /// Paths that the tree has, or that conflict with its paths, are ignored.
    pub intents: Vec<RepoPath>,
}

/// Prepares the worktree's index for a tree, as after a commit.
///
/// The result is that of `git add -A && git commit`. Entries in the target's changes get their
/// stat. Other entries that differ from the tree get none, so git reads those files again. All
/// others keep their stat and flags. Conflicts are resolved, and only the target's intents to add
/// remain. Takes git's `index.lock`, which the result holds.
///
/// With `known_state`, git later checks only the files that changed since then. git's list of
/// untracked files is kept for directories in which no path was added to the index or removed from
/// it, if changes since git's own token are tracked. Otherwise it is dropped, and git lists the
/// directories once.
///
/// It does not read directories whose tree id the old index knows, so it costs O(changes) tree
/// reads. `target` is called after the old index has been read, so that the tree can be written
/// meanwhile.
///
/// # Errors
/// [`GitError::IndexLocked`] if git holds the lock; errors of `target`, and of reading or writing
/// the index.
pub fn prepare_index(
    repository: &Repository,
    worktree: &Worktree,
    known_state: Option<&KnownState<'_>>,
    target: impl FnOnce() -> Result<IndexTarget, GitError> + Send,
) -> Result<PreparedIndex, GitError> {
    let index_path = worktree.index_path();
    let lock = IndexLock::acquire(worktree)?;
    let updated = on_deep_stack(&index_path, || {
        let old = read_index(repository, worktree)?;
        let known_files = known_state.and_then(|state| {
            let hash_len = repository.hash_kind().len_in_bytes();
            let known = KnownFiles::read(&tine_sys::file::read(&index_path).ok()?, hash_len)?;
            (state.is_known)(&known.token).then_some(known)
        });
        let IndexTarget {
            tree_id,
            changes,
            intents,
        } = target()?;
        let mut update = Update::new(repository, &old, &changes, known_state, known_files);
        update.intents = intents_beside(repository, tree_id, intents)?.into();
        update.run(tree_id)
    })?;
    lock.write(&updated)
}

/// Prepares an index and puts it in place.
#[cfg(test)]
pub(super) fn update_index(
    repository: &Repository,
    worktree: &Worktree,
    tree_id: ObjectId,
    changes: &[IndexChange],
    known_state: Option<&KnownState<'_>>,
) -> Result<super::UpdatedIndex, GitError> {
    let changes = changes.to_vec();
    prepare_index(repository, worktree, known_state, || {
        Ok(IndexTarget {
            tree_id,
            changes,
            intents: Vec::new(),
        })
    })?
    .put_in_place()
}

/// An update of an index in progress, path by path.
struct Update<'a> {
    repository: &'a Repository,
    old: &'a gix::index::File,
    /// Mtime of the old index in seconds since 1970.
    ///
    /// The old index may lack changes of files at this time or later.
    old_index_secs: i64,
    changes: BTreeMap<&'a [u8], &'a IndexChange>,
    /// Intents to add that are not written yet, sorted.
    intents: VecDeque<RepoPath>,
    known_state: Option<&'a KnownState<'a>>,
    /// Knowledge of the old index, if it is kept.
    known_files: Option<KnownFiles>,
    /// True for each old entry whose path is in the new index.
    is_kept: Vec<bool>,
    encoder: Encoder,
}

impl<'a> Update<'a> {
    fn new(
        repository: &'a Repository,
        old: &'a gix::index::File,
        changes: &'a [IndexChange],
        known_state: Option<&'a KnownState<'a>>,
        known_files: Option<KnownFiles>,
    ) -> Update<'a> {
        Update {
            repository,
            old,
            old_index_secs: old.timestamp().unix_seconds(),
            changes: changes
                .iter()
                .map(|change| (change.path.as_bytes(), change))
                .collect(),
            intents: VecDeque::new(),
            known_state,
            known_files,
            is_kept: vec![false; old.entries().len()],
            encoder: Encoder::new(repository.hash_kind(), old.entries().len() + changes.len()),
        }
    }

    fn run(mut self, tree_id: ObjectId) -> Result<Vec<u8>, GitError> {
        // Entries of a sparse index may be directories, and the cached trees count each as one
        // entry.
        let cached = self.old.tree().filter(|_| !self.old.is_sparse());
        let all = 0..self.old.entries().len();
        let tree = self.directory(b"", Vec::new(), tree_id, all, cached)?;
        let Some(mut known) = self.known_files else {
            let token = self.known_state.map(|state| state.token);
            return self.encoder.finish(&tree, token, None);
        };
        for (entry, _) in self
            .old
            .entries()
            .iter()
            .zip(&self.is_kept)
            .filter(|(_, is_kept)| !**is_kept)
        {
            known.invalidate(entry.path(self.old));
        }
        let untracked = known.encode_untracked();
        self.encoder
            .finish(&tree, Some(&known.token), Some(&untracked))
    }

    /// Writes the entries under a directory.
    ///
    /// `prefix` is its path with a slash, `range` the old entries under it, and `cached` its TREE
    /// node in the old index.
    fn directory(
        &mut self,
        prefix: &[u8],
        name: Vec<u8>,
        tree_id: ObjectId,
        range: Range<usize>,
        cached: Option<&Tree>,
    ) -> Result<CachedTree, GitError> {
        self.push_intents(|path| path < prefix);
        // The remaining ones sort after the prefix.
        let is_beneath = |path: &[u8]| path.starts_with(prefix);
        let has_intents = self
            .intents
            .front()
            .is_some_and(|path| is_beneath(path.as_bytes()));
        if !has_intents
            && let Some(kept) = self.keep_directory(prefix, tree_id, range.clone(), cached)
        {
            return Ok(kept);
        }
        check_depth(prefix.iter().filter(|&&byte| byte == b'/').count(), tree_id)?;
        let count_before = self.encoder.count();
        let mut children = Vec::new();
        let mut next = range.start;
        for entry in self.repository.read_tree(tree_id)? {
            let mut path = [prefix, entry.name.as_bytes()].concat();
            if entry.kind == TreeEntryKind::Directory {
                path.push(b'/');
                let start = self.first_at_or_after(&path, next..range.end);
                let end = self.end_of_prefix(&path, start..range.end);
                let name = entry.name.as_bytes().to_vec();
                let below = cached
                    .and_then(|tree| tree.children.iter().find(|child| child.name[..] == name));
                children.push(self.directory(&path, name, entry.id, start..end, below)?);
                next = end;
            } else {
                next = self.first_at_or_after(&path, next..range.end);
                self.file(&path, entry.kind, entry.id, next, range.end);
            }
        }
        self.push_intents(is_beneath);
        Ok(CachedTree {
            name,
            id: tree_id,
            entry_count: (!has_intents).then(|| self.encoder.count() - count_before),
            children,
        })
    }

    /// Writes the intents to add while the next one `is_next`.
    fn push_intents(&mut self, is_next: impl Fn(&[u8]) -> bool) {
        while self
            .intents
            .front()
            .is_some_and(|path| is_next(path.as_bytes()))
            && let Some(path) = self.intents.pop_front()
        {
            let path = path.as_bytes();
            let mode = find_entry(self.old, path).and_then(|entry| kind_of(entry.mode));
            let flags = EntryFlags {
                is_intent_to_add: true,
                ..EntryFlags::default()
            };
            self.encoder.push(
                path,
                mode.unwrap_or(TreeEntryKind::File),
                ObjectId::empty_blob(self.repository.hash_kind()),
                &EntryStat::default(),
                flags,
            );
            self.encoder.mark_dirty();
        }
    }

    /// Copies the entries of an unchanged directory without reading its tree.
    ///
    /// The old index must have the id `tree_id` for it, and no change may be under it.
    fn keep_directory(
        &mut self,
        prefix: &[u8],
        tree_id: ObjectId,
        range: Range<usize>,
        cached: Option<&Tree>,
    ) -> Option<CachedTree> {
        let is_whole = |tree: &&Tree| {
            tree.num_entries
                .is_some_and(|count| count as usize == range.len())
        };
        let tree = cached.filter(|tree| tree.id == tree_id).filter(is_whole)?;
        // Distrust a tree that is marked as whole but contains a conflict or the like.
        let entries = &self.old.entries()[range.clone()];
        let fits = |entry: &gix::index::Entry| is_plain(entry) && kind_of(entry.mode).is_some();
        if self.has_changes_under(prefix) || !entries.iter().all(fits) {
            return None;
        }
        let kept = cached_tree(tree)?;
        for (at, entry) in range.zip(entries) {
            if let Some(kind) = kind_of(entry.mode) {
                let stat = self.kept_stat(entry);
                self.is_kept[at] = true;
                self.push(
                    entry.path(self.old),
                    kind,
                    entry.id,
                    &stat,
                    flags_of(entry),
                    Some(at),
                );
            }
        }
        Some(kept)
    }

    fn has_changes_under(&self, prefix: &[u8]) -> bool {
        let from_prefix = (Bound::Included(prefix), Bound::Unbounded);
        let first = self.changes.range::<[u8], _>(from_prefix).next();
        first.is_some_and(|(path, _)| path.starts_with(prefix))
    }

    /// Writes the entry of one file.
    ///
    /// The old entries for its path, if any, begin at `at`.
    fn file(&mut self, path: &[u8], kind: TreeEntryKind, id: ObjectId, at: usize, end: usize) {
        let changed = self.changes.get(path).map(|change| &change.new);
        let is_there = self.old.entries()[at..end]
            .first()
            .filter(|entry| entry.path(self.old) == path);
        let is_same = is_there.is_some_and(|entry| {
            changed.is_none()
                && is_plain(entry)
                && entry.id == id
                && kind_of(entry.mode) == Some(kind)
        });
        match (is_there, &mut self.known_files) {
            (Some(_), _) => self.is_kept[at] = true,
            (None, Some(known)) => known.invalidate(path),
            (None, None) => {}
        }
        let (stat, flags) = match changed {
            Some(Some((new_kind, new_id, attr))) if *new_kind == kind && *new_id == id => {
                (EntryStat::of(attr), EntryFlags::default())
            }
            Some(_) => Default::default(),
            None => self.old.entries()[at..end]
                .first()
                .filter(|entry| entry.path(self.old) == path && is_plain(entry))
                .filter(|entry| entry.id == id && kind_of(entry.mode) == Some(kind))
                .map(|entry| (self.kept_stat(entry), flags_of(entry)))
                .unwrap_or_else(|| (EntryStat::default(), self.flags_of_new(path))),
        };
        let stat = match kind {
            TreeEntryKind::Submodule => EntryStat::default(),
            _ => stat,
        };
        self.push(path, kind, id, &stat, flags, is_same.then_some(at));
    }

    /// Writes an entry. `kept` is the index of the old entry if unchanged.
    fn push(
        &mut self,
        path: &[u8],
        kind: TreeEntryKind,
        id: ObjectId,
        stat: &EntryStat,
        flags: EntryFlags,
        kept: Option<usize>,
    ) {
        self.push_intents(|intent| intent < path);
        self.encoder.push(path, kind, id, stat, flags);
        if let Some(known) = &self.known_files {
            if kept.is_none_or(|at| known.is_dirty(at)) {
                self.encoder.mark_dirty();
            }
            return;
        }
        let is_as_known = |state: &KnownState| stat.ctime == index_time(state.changed);
        if !self.known_state.is_some_and(is_as_known) {
            self.encoder.mark_dirty();
        }
    }

    /// Returns the flags of an entry that the old index lacks.
    ///
    /// A path in a skipped directory of a sparse index stays skipped.
    fn flags_of_new(&self, path: &[u8]) -> EntryFlags {
        EntryFlags {
            is_skip_worktree: is_in_skipped_directory(self.old, path),
            ..EntryFlags::default()
        }
    }

    /// Returns the stat of an entry that is kept.
    ///
    /// If the file could have changed in the second in which the old index was written, the entry
    /// may be stale. It then gets size 0, so that git compares the content: a younger index would
    /// hide the race (`ce_smudge_racily_clean_entry` in git's read-cache.c). A change within that
    /// second has a ctime in it, so an earlier ctime excludes such a change.
    fn kept_stat(&self, entry: &gix::index::Entry) -> EntryStat {
        let stat = &entry.stat;
        let latest_secs = i64::from(stat.mtime.secs.min(stat.ctime.secs));
        let is_racy = latest_secs >= self.old_index_secs;
        EntryStat {
            ctime: (stat.ctime.secs, stat.ctime.nsecs),
            mtime: (stat.mtime.secs, stat.mtime.nsecs),
            dev: stat.dev,
            ino: stat.ino,
            uid: stat.uid,
            gid: stat.gid,
            size: if is_racy { 0 } else { stat.size },
        }
    }

    /// Returns the first old entry in `range` at or after `path`.
    fn first_at_or_after(&self, path: &[u8], range: Range<usize>) -> usize {
        let entries = &self.old.entries()[range.clone()];
        range.start + entries.partition_point(|entry| entry.path(self.old) < path)
    }

    /// Returns the end of the old entries with `prefix`, which begin `range`.
    fn end_of_prefix(&self, prefix: &[u8], range: Range<usize>) -> usize {
        let entries = &self.old.entries()[range.clone()];
        range.start + entries.partition_point(|entry| entry.path(self.old).starts_with(prefix))
    }
}

/// Returns those of `intents` that do not conflict with the tree, sorted.
fn intents_beside(
    repository: &Repository,
    tree_id: ObjectId,
    mut intents: Vec<RepoPath>,
) -> Result<Vec<RepoPath>, GitError> {
    intents.sort();
    intents.dedup();
    let all: BTreeSet<RepoPath> = intents.iter().cloned().collect();
    let mut beside = Vec::new();
    for path in intents {
        let is_file = |above: RepoPath| match repository.tree_entry(tree_id, &above)? {
            Some(entry) => Ok::<_, GitError>(entry.kind != TreeEntryKind::Directory),
            None => Ok(all.contains(&above)),
        };
        let mut is_taken = repository.tree_entry(tree_id, &path)?.is_some();
        for above in path.directories_above() {
            is_taken = is_taken || is_file(above)?;
        }
        if !is_taken {
            beside.push(path);
        }
    }
    Ok(beside)
}

/// Returns whether an entry has content and no other stages.
fn is_plain(entry: &gix::index::Entry) -> bool {
    entry.stage() == Stage::Unconflicted && !entry.flags.contains(Flags::INTENT_TO_ADD)
}

fn flags_of(entry: &gix::index::Entry) -> EntryFlags {
    EntryFlags {
        is_assumed_valid: entry.flags.contains(Flags::ASSUME_VALID),
        is_skip_worktree: entry.flags.contains(Flags::SKIP_WORKTREE),
        is_intent_to_add: false,
    }
}

pub(crate) fn kind_of(mode: Mode) -> Option<TreeEntryKind> {
    Some(match mode {
        Mode::FILE => TreeEntryKind::File,
        Mode::FILE_EXECUTABLE => TreeEntryKind::Executable,
        Mode::SYMLINK => TreeEntryKind::Symlink,
        Mode::COMMIT => TreeEntryKind::Submodule,
        _ => return None,
    })
}

/// Converts a node of the old index, if it is valid.
fn cached_tree(tree: &Tree) -> Option<CachedTree> {
    Some(CachedTree {
        name: tree.name.to_vec(),
        id: tree.id,
        entry_count: Some(tree.num_entries?),
        children: tree
            .children
            .iter()
            .map(cached_tree)
            .collect::<Option<_>>()?,
    })
}
