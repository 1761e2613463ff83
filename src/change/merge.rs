//! Planning merges of histories: what comes of merging one tip into another, before anything moves.
//!
//! A plan is all there is to a dry run; carrying it out is writing the commit and moving the target
//! ([`advance`](super::advance), or a ref).

use super::ChangeError;
use super::advance::followed;
use tine_git::{ObjectId, Repository};
use tine_merge::{MergeInput, MergeOptions, MergeOutcome, merge};

/// One side: a tree, and the commit that has it. A tree by itself has no history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tip {
    pub commit_id: Option<ObjectId>,
    pub tree_id: ObjectId,
}

/// Whether a target that has nothing of its own merely moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FastForward {
    #[default]
    WherePossible,
    /// A merge commit is made in any case.
    Never,
    /// Anything else is refused.
    Only,
}

/// How it is merged.
#[derive(Debug, Clone, Copy, Default)]
pub struct MergeSpec {
    /// A commit or tree; default: found in history.
    pub base: Option<ObjectId>,
    pub options: MergeOptions,
    pub fast_forward: FastForward,
    pub allow_unrelated: bool,
}

/// What comes of merging.
#[derive(Debug, Clone)]
pub enum Planned {
    /// The target has all of it already.
    Contained,
    /// The target has nothing that the source has not: it moves there.
    FastForward(ObjectId),
    /// A commit is to be made of both sides, unless conflicts are open.
    Merged(MergeOutcome),
}

/// Plans merging `theirs` into `ours`. Adds objects, and changes nothing.
pub fn plan(
    repository: &Repository,
    ours: &Tip,
    theirs: &Tip,
    spec: &MergeSpec,
) -> Result<Planned, ChangeError> {
    match (ours.commit_id, theirs.commit_id) {
        (Some(ours), Some(theirs)) if spec.base.is_none() => {
            if repository.is_ancestor(theirs, ours)? {
                return Ok(Planned::Contained);
            }
            if spec.fast_forward != FastForward::Never && repository.is_ancestor(ours, theirs)? {
                return Ok(Planned::FastForward(theirs));
            }
        }
        (None, Some(theirs)) => return Ok(Planned::FastForward(theirs)),
        (_, None) if spec.base.is_none() => return Err(ChangeError::NoMergeBase),
        _ => {}
    }
    if spec.fast_forward == FastForward::Only {
        return Err(ChangeError::NotFastForward);
    }
    let outcome = merge(
        repository,
        &MergeInput {
            base: spec.base,
            ours: ours.commit_id.unwrap_or(ours.tree_id),
            theirs: theirs.commit_id.unwrap_or(theirs.tree_id),
            allow_unrelated: spec.allow_unrelated,
        },
        &spec.options,
    )?;
    let brings_nothing = outcome.conflicts.is_empty() && outcome.tree_id == ours.tree_id;
    match theirs.commit_id {
        // There is no history to be joined.
        None if brings_nothing => Ok(Planned::Contained),
        _ => Ok(Planned::Merged(outcome)),
    }
}

/// Merges what is uncommitted in a target, whose view is the tree `view`, with its move from `from`
/// to `to`: what the view is then. Where no path is in the way, the view follows as it does in any
/// move.
pub fn carry_along(
    repository: &Repository,
    from: Tip,
    view: ObjectId,
    to: Tip,
    options: &MergeOptions,
) -> Result<MergeOutcome, ChangeError> {
    if let Some(tree_id) = followed(repository, (from.tree_id, to.tree_id), view)? {
        return Ok(MergeOutcome {
            tree_id,
            conflicts: Vec::new(),
            settled: Vec::new(),
        });
    }
    let input = MergeInput {
        base: Some(from.tree_id),
        ours: view,
        theirs: to.tree_id,
        allow_unrelated: false,
    };
    Ok(merge(repository, &input, options)?)
}
