//! Settling conflicts by a rule: the lines or the files of one side, or both.

use super::classify::is_regular;
use super::conflict::without_what_is_beneath_files;
use super::text::{Favor, TextMerge, is_binary, merge_text};
use super::{
    Conflict, ConflictKind, Level, MergeOptions, MergeOutcome, MergeSide, Resolution, Strategy, Version,
};
use crate::git::{GitError, ObjectId, Repository, TreeChange, TreeEntryKind};

/// The largest text that is merged line by line here, in bytes.
pub(super) const MAX_TEXT_BYTES: u64 = 32 << 20;

/// The texts of a conflict, merged; `None` where it is about something else, or where one is no text or larger than
/// 32 MiB.
pub fn text_of(repository: &Repository, conflict: &Conflict) -> Result<Option<TextMerge>, GitError> {
    let Some(TextVersions { base, ours, theirs }) = TextVersions::of(conflict) else {
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

/// The files of a conflict that is about what regular files hold.
#[derive(Clone, Copy)]
struct TextVersions<'a> {
    /// Over a symlink, say, both are new.
    base: Option<&'a Version>,
    ours: &'a Version,
    theirs: &'a Version,
}

impl TextVersions<'_> {
    fn of(conflict: &Conflict) -> Option<TextVersions<'_>> {
        let is_text = matches!(
            conflict.kind,
            ConflictKind::BothModified | ConflictKind::BothAdded
        );
        let ([ours], [theirs], [] | [_]) = (
            conflict.ours.as_slice(),
            conflict.theirs.as_slice(),
            conflict.base.as_slice(),
        ) else {
            return None;
        };
        let found = TextVersions {
            base: conflict.base.first().filter(|base| is_regular(base.kind)),
            ours,
            theirs,
        };
        (is_text && is_regular(ours.kind) && is_regular(theirs.kind)).then_some(found)
    }

    /// Executable or not: as the side that changed it has it.
    fn kind(&self, favor: Favor) -> TreeEntryKind {
        let base = self.base.map(|base| base.kind);
        let (ours, theirs) = (self.ours.kind, self.theirs.kind);
        if ours == theirs || base == Some(theirs) {
            return ours;
        }
        if base == Some(ours) {
            return theirs;
        }
        match favor {
            Favor::Ours => ours,
            Favor::Theirs => theirs,
            Favor::Union => TreeEntryKind::Executable,
        }
    }
}

/// Settles what the strategy has an answer for.
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
    let changes = without_what_is_beneath_files(changes);
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
    if let Some(versions) = TextVersions::of(conflict).filter(|_| !whole_files)
        && let Some(text) = text_of(repository, conflict)?
    {
        let content = text.settle(favor);
        let version = Version {
            path: versions.ours.path.clone(),
            kind: versions.kind(favor),
            id: repository.write_blob(&mut content.as_slice(), content.len() as u64)?,
        };
        return Ok(Some(Resolution::Versions(vec![version])));
    }
    Ok(side.map(Resolution::Side).or_else(|| both(conflict)))
}

/// What is both sides' at once, of what is no text.
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
