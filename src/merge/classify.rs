//! Classification of the conflicts that git reports.
//!
//! This is a pure function of git's unmerged entries and messages.
//!
//! git reports one conflict in pieces: an unmerged entry for each version, and a message for each
//! problem. Pieces that share a path, or whose paths one message names, belong to one conflict. git
//! moves a file that cannot be at its path to another (`path~<label>`) and reports that; here the
//! file gets its own path back.

use std::collections::{BTreeMap, BTreeSet};

use super::{Conflict, ConflictKind, Version};
use tine_git::{IndexStage, MergeMessage, StageSide, TreeEntryKind};
use tine_path::RepoPath;

/// Conflicts of a merge.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Classified {
    /// Conflicts, sorted by path.
    pub conflicts: Vec<Conflict>,
    /// Paths at which git's tree has versions of the conflicts.
    ///
    /// They include paths that git made up. A directory in the place of a file is not part of the
    /// conflict.
    pub left_out: BTreeSet<RepoPath>,
    /// Paths of conflicts at which no side has a version.
    ///
    /// They are old names and renamed directories. Another file may be at such a path.
    pub named_only: BTreeSet<RepoPath>,
}

/// Kinds of git's messages, the most significant first.
///
/// `None` and missing kinds are classified by their versions.
const KINDS: [(&str, Option<ConflictKind>); 18] = [
    (
        "CONFLICT (file/directory)",
        Some(ConflictKind::DirectoryFile),
    ),
    ("CONFLICT (distinct modes)", Some(ConflictKind::TypeChanged)),
    ("CONFLICT (rename/rename)", Some(ConflictKind::RenameRename)),
    (
        "CONFLICT (rename involved in collision)",
        Some(ConflictKind::RenameRename),
    ),
    ("CONFLICT (rename/delete)", Some(ConflictKind::RenameDelete)),
    ("CONFLICT (submodule)", Some(ConflictKind::Submodule)),
    (
        "CONFLICT (submodule with possible resolution)",
        Some(ConflictKind::Submodule),
    ),
    (
        "CONFLICT (submodule not initialized)",
        Some(ConflictKind::Submodule),
    ),
    (
        "CONFLICT (submodule history not available)",
        Some(ConflictKind::Submodule),
    ),
    (
        "CONFLICT (submodule may have rewinds)",
        Some(ConflictKind::Submodule),
    ),
    (
        "CONFLICT (submodule lacks merge base)",
        Some(ConflictKind::Submodule),
    ),
    ("CONFLICT (binary)", Some(ConflictKind::Binary)),
    ("CONFLICT (modify/delete)", Some(ConflictKind::ModifyDelete)),
    // Texts, symlinks, modes.
    ("CONFLICT (contents)", None),
    (
        "CONFLICT (directory rename suggested)",
        Some(ConflictKind::DirectoryRenamed),
    ),
    (
        "CONFLICT (file in way of directory rename)",
        Some(ConflictKind::DirectoryRenamed),
    ),
    (
        "CONFLICT(directory rename collision)",
        Some(ConflictKind::DirectoryRenamed),
    ),
    (
        "CONFLICT(directory rename unclear split)",
        Some(ConflictKind::DirectoryRenamed),
    ),
];

/// Groups the pieces of each conflict.
pub(super) fn classify(stages: &[IndexStage], messages: &[MergeMessage]) -> Classified {
    let messages: Vec<&MergeMessage> = messages
        .iter()
        .filter(|message| message.kind.starts_with("CONFLICT"))
        .collect();
    let real = RealPaths::new(&messages);
    let mut groups = Groups::default();
    for stage in stages {
        groups.join([real.of(&stage.path)]);
    }
    for message in &messages {
        groups.join(message.paths.iter().map(|path| real.of(path)));
    }
    let mut parts: BTreeMap<usize, Parts> = BTreeMap::new();
    for stage in stages {
        let path = real.of(&stage.path);
        let parts = parts.entry(groups.of(&path)).or_default();
        parts.side(stage.stage).push(Version {
            path,
            kind: stage.kind,
            id: stage.id,
        });
    }
    for message in &messages {
        if let Some(first) = message.paths.first() {
            let parts = parts.entry(groups.of(&real.of(first))).or_default();
            parts.messages.push(message);
        }
    }
    for (path, group) in groups.members() {
        if let Some(parts) = parts.get_mut(&group) {
            parts.paths.push(path.clone());
        }
    }
    let mut conflicts: Vec<Conflict> = parts
        .into_values()
        .filter_map(|parts| parts.conflict(&real))
        .collect();
    conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    let staged: BTreeSet<RepoPath> = stages.iter().map(|stage| real.of(&stage.path)).collect();
    let named_only = conflicts
        .iter()
        .flat_map(|conflict| &conflict.paths)
        .filter(|path| !staged.contains(path))
        .cloned()
        .collect();
    Classified {
        conflicts,
        left_out: stages.iter().map(|stage| stage.path.clone()).collect(),
        named_only,
    }
}

/// Original paths of files that git moved.
struct RealPaths<'a>(BTreeMap<&'a RepoPath, &'a RepoPath>);

impl<'a> RealPaths<'a> {
    fn new(messages: &[&'a MergeMessage]) -> RealPaths<'a> {
        let mut moved = BTreeMap::new();
        for message in messages {
            match (message.kind.as_str(), message.paths.as_slice()) {
                // The new path, then the path of the directory.
                ("CONFLICT (file/directory)", [new, old, ..]) => {
                    moved.insert(new, old);
                }
                // The original path, then the new ones of one or both sides.
                ("CONFLICT (distinct modes)", [old, new @ ..]) => {
                    moved.extend(new.iter().map(|new| (new, old)));
                }
                _ => {}
            }
        }
        RealPaths(moved)
    }

    /// Returns the original path of `path`.
    ///
    /// A file moved out of a directory's way may be moved again, out of a symlink's way.
    fn of(&self, path: &RepoPath) -> RepoPath {
        let mut path = path;
        for _ in 0..=self.0.len() {
            match self.0.get(path) {
                Some(old) => path = old,
                None => break,
            }
        }
        path.clone()
    }
}

/// Partition of the paths into conflicts.
#[derive(Default)]
struct Groups {
    /// Number of each path's group.
    of: BTreeMap<RepoPath, usize>,
    /// Group that each group was joined into, itself if none.
    joined: Vec<usize>,
}

impl Groups {
    fn join(&mut self, paths: impl IntoIterator<Item = RepoPath>) {
        let mut first = None;
        for path in paths {
            let group = match self.of.get(&path) {
                Some(&group) => self.root(group),
                None => {
                    let group = self.joined.len();
                    self.joined.push(group);
                    self.of.insert(path, group);
                    group
                }
            };
            match first {
                None => first = Some(group),
                Some(first) => {
                    if let Some(joined) = self.joined.get_mut(group) {
                        *joined = first;
                    }
                }
            }
        }
    }

    fn root(&self, mut group: usize) -> usize {
        while let Some(&next) = self.joined.get(group).filter(|&&next| next != group) {
            group = next;
        }
        group
    }

    fn of(&self, path: &RepoPath) -> usize {
        self.of
            .get(path)
            .map_or(usize::MAX, |&group| self.root(group))
    }

    fn members(&self) -> impl Iterator<Item = (&RepoPath, usize)> {
        self.of
            .iter()
            .map(|(path, &group)| (path, self.root(group)))
    }
}

/// Pieces of one conflict.
#[derive(Default)]
struct Parts<'a> {
    /// Paths of the conflict, sorted.
    paths: Vec<RepoPath>,
    base: Vec<Version>,
    ours: Vec<Version>,
    theirs: Vec<Version>,
    messages: Vec<&'a MergeMessage>,
}

impl Parts<'_> {
    fn side(&mut self, side: StageSide) -> &mut Vec<Version> {
        match side {
            StageSide::Base => &mut self.base,
            StageSide::Ours => &mut self.ours,
            StageSide::Theirs => &mut self.theirs,
        }
    }

    fn conflict(mut self, real: &RealPaths) -> Option<Conflict> {
        for versions in [&mut self.base, &mut self.ours, &mut self.theirs] {
            versions.sort();
            versions.dedup();
        }
        let all_versions = [&self.base, &self.ours, &self.theirs].into_iter().flatten();
        let staged: BTreeSet<&RepoPath> = all_versions.map(|version| &version.path).collect();
        let ranked = self.messages.iter().filter_map(|message| {
            let rank = KINDS.iter().position(|(kind, _)| *kind == message.kind)?;
            Some((rank, real.of(message.paths.first()?)))
        });
        let reported = ranked.min();
        let kind = reported
            .as_ref()
            .and_then(|(rank, _)| KINDS.get(*rank)?.1)
            .unwrap_or_else(|| by_versions(&self.base, &self.ours, &self.theirs));
        let named = reported.map(|(_, path)| path);
        let path = named
            .filter(|path| staged.is_empty() || staged.contains(path))
            .or_else(|| staged.first().map(|path| (*path).clone()))
            .or_else(|| self.paths.first().cloned())?;
        Some(Conflict {
            kind,
            path,
            paths: self.paths,
            base: self.base,
            ours: self.ours,
            theirs: self.theirs,
        })
    }
}

/// Classifies a conflict by its versions.
pub(super) fn by_versions(base: &[Version], ours: &[Version], theirs: &[Version]) -> ConflictKind {
    let all_versions = || [base, ours, theirs].into_iter().flatten();
    if all_versions().any(|version| version.kind == TreeEntryKind::Submodule) {
        return ConflictKind::Submodule;
    }
    match (ours, theirs) {
        ([ours], [theirs]) if ours.id == theirs.id && ours.kind != theirs.kind => {
            if is_regular(ours.kind) && is_regular(theirs.kind) {
                ConflictKind::ModeChanged
            } else {
                ConflictKind::TypeChanged
            }
        }
        ([ours], [theirs]) if is_regular(ours.kind) != is_regular(theirs.kind) => {
            ConflictKind::TypeChanged
        }
        ([], _) | (_, []) => ConflictKind::ModifyDelete,
        _ if base.is_empty() => ConflictKind::BothAdded,
        _ => ConflictKind::BothModified,
    }
}

pub(super) fn is_regular(kind: TreeEntryKind) -> bool {
    matches!(kind, TreeEntryKind::File | TreeEntryKind::Executable)
}

#[cfg(test)]
mod tests;
