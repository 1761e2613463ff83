//! Connects reviews with git's recorded resolutions (`git rerere`).
//!
//! A recorded resolution resolves a conflict of a review. A resolution of a review is recorded.
//! Both are a no-op if `git rerere` is not enabled.

use super::ChangeError;
use super::review::{
    ConflictRecord, ResolutionKind, ResolutionRecord, ReviewRecord, VersionRecord,
};
use tine_git::rerere::TextConflict;
use tine_git::{ObjectId, Repository};
use tine_merge::{Conflict, MarkerOptions, Version, text_of};
use tine_store::Store;

/// Author of resolutions from git's record.
const AUTHOR: &str = "git rerere";

/// Resolves the open conflicts that git has recorded.
///
/// Returns their number.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged or there is no scratch space,
/// [`ChangeError::Git`] if git fails.
pub fn recall(
    store: &Store,
    repository: &Repository,
    review: &mut ReviewRecord,
) -> Result<usize, ChangeError> {
    let mut recalled = 0;
    if !repository.remembers_resolutions() {
        return Ok(recalled);
    }
    for record in &mut review.conflicts {
        let Some(conflict) =
            text_conflict(repository, record)?.filter(|_| record.resolution.is_none())
        else {
            continue;
        };
        let scratch = store.scratch_dir()?;
        let Some(text) = repository.remembered_resolution(&conflict, scratch.path())? else {
            continue;
        };
        let Some((path, kind)) = record.content_place()? else {
            continue;
        };
        let id = repository.write_blob(&mut text.as_slice(), text.len() as u64)?;
        record.resolution = Some(ResolutionRecord {
            how: ResolutionKind::Content,
            versions: vec![VersionRecord {
                path,
                kind,
                id: id.to_string(),
            }],
            by: AUTHOR.to_owned(),
            reasoning: None,
            metadata: None,
        });
        recalled += 1;
    }
    Ok(recalled)
}

/// Records the resolutions of a review in git.
///
/// # Errors
/// [`ChangeError::Store`] if the record is damaged or there is no scratch space,
/// [`ChangeError::Git`] if git fails.
pub fn remember(
    store: &Store,
    repository: &Repository,
    review: &ReviewRecord,
) -> Result<(), ChangeError> {
    if !repository.remembers_resolutions() {
        return Ok(());
    }
    for record in &review.conflicts {
        let resolution = record
            .resolution
            .as_ref()
            .filter(|resolution| resolution.by != AUTHOR);
        let Some([version]) = resolution.map(|resolution| resolution.versions.as_slice()) else {
            continue;
        };
        let (Some(conflict), Ok(id)) = (
            text_conflict(repository, record)?,
            ObjectId::from_hex(version.id.as_bytes()),
        ) else {
            continue;
        };
        let scratch = store.scratch_dir()?;
        repository.remember_resolution(&conflict, &repository.read_blob(id)?, scratch.path())?;
    }
    Ok(())
}

/// Returns the conflict as git would have it in a checkout.
///
/// `None` if it is not a conflict of texts.
fn text_conflict(
    repository: &Repository,
    record: &ConflictRecord,
) -> Result<Option<TextConflict>, ChangeError> {
    let conflict: Conflict = record.conflict()?;
    let Some(text) = text_of(repository, &conflict)? else {
        return Ok(None);
    };
    let stage = |versions: &[Version]| versions.first().map(|version| (version.kind, version.id));
    Ok(Some(TextConflict {
        stages: [
            stage(&conflict.base),
            stage(&conflict.ours),
            stage(&conflict.theirs),
        ],
        path: conflict.path,
        marked: text.render(&MarkerOptions {
            ours_label: Some("ours".to_owned()),
            theirs_label: Some("theirs".to_owned()),
            ..MarkerOptions::default()
        }),
    }))
}
