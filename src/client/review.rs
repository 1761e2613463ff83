//! Commit of a review, with hooks.

use crate::merging::{self, HookOptions};
use crate::place::Place;
use crate::{Client, identity};
use tine_ops::protocol::ReviewOutcome;
use tine_ops::{CommitReview, Failure};

/// Commits a review.
///
/// The result is a merge or a sequence, as the review is. Hooks run only for a merge, and not in a
/// dry run.
///
/// # Errors
/// `no-identity`, `hook-refused` with the hook's output as causes, and the errors of
/// [`CommitReview`].
pub fn commit(
    place: &Place,
    connection: &mut Client,
    mut request: CommitReview,
    hooks: HookOptions,
) -> Result<ReviewOutcome, Failure> {
    let signers = identity::signers(place.repository()?.common_dir())?;
    if request.dry_run || !merging::may_have_hooks(place)? {
        return connection.call_as(&request, &signers);
    }
    let plan = CommitReview {
        dry_run: true,
        ..request.clone()
    };
    // git runs no merge hooks for a sequence, which repeats existing commits.
    let ReviewOutcome::Merge(planned) = connection.call_as(&plan, &signers)? else {
        return connection.call_as(&request, &signers);
    };
    let prepared = merging::prepare(place, connection, &planned, false, hooks)?;
    request.whole_message = prepared.messages.first().cloned().flatten();
    Ok(match connection.call_as(&request, &signers)? {
        ReviewOutcome::Merge(merged) => {
            ReviewOutcome::Merge(Box::new(prepared.with_committed(*merged)))
        }
        done => done,
    })
}
