//! Text for merges and their conflicts.

use tine_change::review::ConflictRecord;
use tine_merge::ConflictKind;
use tine_ops::protocol::MergeTarget;

/// Returns the name of a merge's target: its branch, its fork or `HEAD`.
pub fn target_name(target: &MergeTarget) -> String {
    match (&target.branch, &target.fork) {
        (Some(branch), _) => branch.clone(),
        (None, Some(fork)) => fork.to_string(),
        (None, None) => "HEAD".to_owned(),
    }
}

/// Describes what each side did to the conflict's path.
pub fn kind_in_words(conflict: &ConflictRecord) -> String {
    let by_side = |ours: &str, theirs: &str| {
        if conflict.ours.is_empty() {
            theirs.to_owned()
        } else {
            ours.to_owned()
        }
    };
    match conflict.kind {
        ConflictKind::BothModified => "both modified".to_owned(),
        ConflictKind::BothAdded => "both added".to_owned(),
        ConflictKind::ModifyDelete => by_side(
            "modified here, deleted there",
            "deleted here, modified there",
        ),
        ConflictKind::RenameRename => "both renamed".to_owned(),
        ConflictKind::RenameDelete => {
            by_side("renamed here, deleted there", "deleted here, renamed there")
        }
        ConflictKind::TypeChanged => "file types differ".to_owned(),
        ConflictKind::ModeChanged => "executable on one side".to_owned(),
        ConflictKind::Binary => "both modified, binary".to_owned(),
        ConflictKind::DirectoryFile => {
            by_side("file here, directory there", "directory here, file there")
        }
        ConflictKind::DirectoryRenamed => "in a directory that was renamed".to_owned(),
        ConflictKind::Submodule => "submodule moved on both sides".to_owned(),
        ConflictKind::Rejected => "the patch does not fit".to_owned(),
    }
}
