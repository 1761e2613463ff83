//! Plans merges of two tips without moving anything.
//!
//! A dry run is a plan. Carrying it out writes the commit and moves the target
//! ([`advance`](super::advance), or a ref).

use super::ChangeError;
use super::advance::followed;
use tine_git::{ObjectId, Repository};
use tine_merge::{MergeInput, MergeOptions, MergeOutcome, merge};

/// One side of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tip {
    /// Commit of the tip; `None` for a tree without history.
    pub commit_id: Option<ObjectId>,
    /// Tree of the tip.
    pub tree_id: ObjectId,
}

/// Rule for a target that has no commits that the source lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FastForward {
    /// The target moves to the source if it can.
    #[default]
    WherePossible,
    /// A merge commit is made in any case.
    Never,
    /// Everything but a fast-forward is refused.
    Only,
}

/// Options for planning a merge.
#[derive(Debug, Clone, Copy, Default)]
pub struct MergeSpec {
    /// Merge base, a commit or tree; `None`: found in history.
    pub base: Option<ObjectId>,
    /// Options for merging the trees.
    pub options: MergeOptions,
    /// Rule for fast-forwards.
    pub fast_forward: FastForward,
    /// True to merge tips without a common ancestor.
    pub allow_unrelated: bool,
}

/// Outcome of planning a merge.
#[derive(Debug, Clone)]
pub enum Planned {
    /// The target already has the whole source.
    Contained,
    /// The target only moves to this commit of the source.
    FastForward(ObjectId),
    /// Both sides were merged; open conflicts prevent the commit.
    Merged(MergeOutcome),
}

/// Plans a merge of `theirs` into `ours`. Adds only objects.
///
/// # Errors
/// [`ChangeError::NoMergeBase`] if `theirs` is a bare tree and no base is given,
/// [`ChangeError::NotFastForward`] if only that is allowed, and the errors of reading objects.
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
        // A bare tree has no history to join.
        None if brings_nothing => Ok(Planned::Contained),
        _ => Ok(Planned::Merged(outcome)),
    }
}

/// Merges the target's uncommitted changes with its move to another tip.
///
/// `view` is the tree of the target's view; the target moves from `from` to `to`. If no changed
/// path is in the way, the view follows as in any move.
///
/// # Errors
/// [`ChangeError::Git`] if objects cannot be read or written.
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
