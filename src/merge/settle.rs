//! Settling of conflicts by a rule: the lines or files of one side, or both.

use super::classify::is_regular;
use super::conflict::without_entries_below_files;
use super::text::{Favor, TextMerge, is_binary, merge_text};
use super::{
    Conflict, ConflictKind, Level, MergeOptions, MergeOutcome, MergeSide, Resolution, Strategy,
    Version,
};
use tine_git::{GitError, ObjectId, Repository, TreeChange, TreeEntryKind};
use tine_path::RepoPath;

/// Maximum size of a text that is merged by lines, in bytes.
pub(super) const MAX_TEXT_BYTES: u64 = 32 << 20;

/// Merges the texts of a conflict line by line.
///
/// `None` if the conflict is not about the contents of regular files, or if a version is binary or
/// larger than 32 MiB.
///
/// # Errors
/// [`GitError`] if a blob cannot be read.
pub fn text_of(
    repository: &Repository,
    conflict: &Conflict,
) -> Result<Option<TextMerge>, GitError> {
    // A file that the attributes declare binary is not merged as text, whatever it contains.
    let is_binary_kind = conflict.kind == ConflictKind::Binary;
    let Some(FileVersions { base, ours, theirs }) =
        FileVersions::of(conflict).filter(|_| !is_binary_kind)
    else {
        return Ok(None);
    };
    let mut texts = [Vec::new(), Vec::new(), Vec::new()];
    for (text, version) in texts.iter_mut().zip([base, Some(ours), Some(theirs)]) {
        let Some(version) = version else {
            continue;
        };
        if repository.blob_size(version.id)? > MAX_TEXT_BYTES {
            return Ok(None);
        }
        *text = repository.read_blob(version.id)?;
        if is_binary(text) {
            return Ok(None);
        }
    }
    let [base, ours, theirs] = &texts;
    Ok(Some(merge_text(base, ours, theirs)))
}

/// Versions of a conflict about the contents of regular files.
#[derive(Clone, Copy)]
struct FileVersions<'a> {
    /// `None` if the base has no regular file at the path.
    base: Option<&'a Version>,
    ours: &'a Version,
    theirs: &'a Version,
}

impl FileVersions<'_> {
    fn of(conflict: &Conflict) -> Option<FileVersions<'_>> {
        let is_content = matches!(
            conflict.kind,
            ConflictKind::BothModified | ConflictKind::BothAdded | ConflictKind::Binary
        );
        let ([ours], [theirs], [] | [_]) = (
            conflict.ours.as_slice(),
            conflict.theirs.as_slice(),
            conflict.base.as_slice(),
        ) else {
            return None;
        };
        let found = FileVersions {
            base: conflict.base.first().filter(|base| is_regular(base.kind)),
            ours,
            theirs,
        };
        (is_content && is_regular(ours.kind) && is_regular(theirs.kind)).then_some(found)
    }
}

/// Merges the mode of a file that both sides have.
///
/// If both sides changed it, `favor` decides.
fn merged_kind(
    base: Option<TreeEntryKind>,
    ours: TreeEntryKind,
    theirs: TreeEntryKind,
    favor: Favor,
) -> TreeEntryKind {
    if ours == theirs || base == Some(theirs) {
        return ours;
    }
    if base == Some(ours) {
        return theirs;
    }
    match (favor, base) {
        (Favor::Base, Some(base)) => base,
        (Favor::Base | Favor::Ours, _) => ours,
        (Favor::Theirs, _) => theirs,
        (Favor::Union, _) => TreeEntryKind::Executable,
    }
}

/// Settles a conflict with the lines of `favor`, and merges everything else.
///
/// This is what `-X ours` and `-X theirs` do in git. A binary file gets the contents of that side;
/// its mode is merged.
///
/// `None` if the conflict is not about the contents of regular files, for [`Favor::Union`] of a
/// binary file, and for [`Favor::Base`] without a file in the base.
///
/// # Errors
/// [`GitError`] if a blob cannot be read or written.
pub fn settle_content(
    repository: &Repository,
    conflict: &Conflict,
    favor: Favor,
) -> Result<Option<Version>, GitError> {
    let Some(versions) = FileVersions::of(conflict) else {
        return Ok(None);
    };
    let FileVersions { base, ours, theirs } = versions;
    let id = match text_of(repository, conflict)? {
        // Without a base, both texts are one whole conflict: no lines remain, so no file does.
        Some(_) if favor == Favor::Base && base.is_none() => return Ok(None),
        Some(text) => {
            let content = text.settle(favor);
            repository.write_blob(&mut content.as_slice(), content.len() as u64)?
        }
        None => match (favor, base) {
            (Favor::Ours, _) => ours.id,
            (Favor::Theirs, _) => theirs.id,
            (Favor::Base, Some(base)) => base.id,
            (Favor::Base, None) | (Favor::Union, _) => return Ok(None),
        },
    };
    Ok(Some(Version {
        path: ours.path.clone(),
        kind: merged_kind(base.map(|base| base.kind), ours.kind, theirs.kind, favor),
        id,
    }))
}

/// Returns the path and kind for new contents that resolve a conflict.
///
/// The contents become a file with the merged mode, or a symlink if every side that has an entry
/// has a symlink. `None` if all have submodules.
pub fn content_place(conflict: &Conflict) -> Option<(RepoPath, TreeEntryKind)> {
    let first = |side| conflict.versions(side).first();
    let (base, ours, theirs) = (
        first(MergeSide::Base),
        first(MergeSide::Ours),
        first(MergeSide::Theirs),
    );
    let Some(present) = ours.or(theirs).or(base) else {
        return Some((conflict.path.clone(), TreeEntryKind::File));
    };
    let mut sides = [ours, theirs].into_iter().flatten().peekable();
    let kinds: Vec<TreeEntryKind> = match sides.peek() {
        Some(_) => sides.map(|version| version.kind).collect(),
        None => vec![present.kind],
    };
    let regular: Vec<TreeEntryKind> = kinds
        .iter()
        .copied()
        .filter(|kind| is_regular(*kind))
        .collect();
    let kind = match regular.as_slice() {
        [ours, theirs] => {
            let base = base.map(|base| base.kind).filter(|kind| is_regular(*kind));
            merged_kind(base, *ours, *theirs, Favor::Ours)
        }
        [only, ..] => *only,
        [] if kinds.iter().all(|kind| *kind == TreeEntryKind::Symlink) => TreeEntryKind::Symlink,
        [] if kinds.iter().all(|kind| *kind == TreeEntryKind::Submodule) => return None,
        [] => TreeEntryKind::File,
    };
    Some((present.path.clone(), kind))
}

/// Settles the conflicts for which the strategy has a resolution.
pub(super) fn settle(
    repository: &Repository,
    tree_id: ObjectId,
    conflicts: Vec<Conflict>,
    options: &MergeOptions,
) -> Result<MergeOutcome, GitError> {
    let mut outcome = MergeOutcome {
        tree_id,
        conflicts: Vec::new(),
        settled: Vec::new(),
    };
    let mut changes: Vec<TreeChange> = Vec::new();
    for conflict in conflicts {
        match resolution(repository, &conflict, options)? {
            Some(resolution) => {
                changes.extend(conflict.edits(&resolution));
                outcome.settled.push(conflict);
            }
            None => outcome.conflicts.push(conflict),
        }
    }
    let changes = without_entries_below_files(changes);
    outcome.tree_id = repository.edit_tree(tree_id, &changes)?;
    Ok(outcome)
}

fn resolution(
    repository: &Repository,
    conflict: &Conflict,
    options: &MergeOptions,
) -> Result<Option<Resolution>, GitError> {
    let (favor, side) = match options.strategy {
        Strategy::Abort => return Ok(None),
        Strategy::Ours => (Favor::Ours, Some(MergeSide::Ours)),
        Strategy::Theirs => (Favor::Theirs, Some(MergeSide::Theirs)),
        Strategy::Union => (Favor::Union, None),
    };
    let whole_files = options.level == Level::Path && side.is_some();
    if !whole_files && let Some(version) = settle_content(repository, conflict, favor)? {
        return Ok(Some(Resolution::Versions(vec![version])));
    }
    Ok(side.map(Resolution::Side).or_else(|| both(conflict)))
}

/// Returns a resolution that keeps both sides of a conflict without text.
fn both(conflict: &Conflict) -> Option<Resolution> {
    let (ours, theirs) = (conflict.ours.as_slice(), conflict.theirs.as_slice());
    match conflict.kind {
        ConflictKind::ModifyDelete | ConflictKind::RenameDelete => match (ours, theirs) {
            (_, []) => Some(Resolution::Side(MergeSide::Ours)),
            ([], _) => Some(Resolution::Side(MergeSide::Theirs)),
            _ => None,
        },
        ConflictKind::ModeChanged => {
            let version = Version {
                kind: TreeEntryKind::Executable,
                ..ours.first()?.clone()
            };
            Some(Resolution::Versions(vec![version]))
        }
        ConflictKind::BothModified
        | ConflictKind::BothAdded
        | ConflictKind::RenameRename
        | ConflictKind::TypeChanged
        | ConflictKind::Binary
        | ConflictKind::DirectoryFile
        | ConflictKind::DirectoryRenamed
        | ConflictKind::Submodule
        | ConflictKind::Rejected => None,
    }
}
