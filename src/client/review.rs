//! Committing a review, with hooks.

use crate::merging::{self, HookOptions};
use crate::place::Place;
use crate::{Client, identity};
use tine_ops as ops;
use tine_ops::Failure;
use tine_ops::protocol::ReviewOutcome;

/// Has the daemon commit a review; what came of it, a merge or a sequence.
pub fn commit(
    place: &Place,
    connection: &mut Client,
    review: u64,
    message: Option<String>,
    dry_run: bool,
    allow_revert: bool,
    hooks: HookOptions,
) -> Result<ReviewOutcome, Failure> {
    let signers = identity::signers(place.repository()?.common_dir())?;
    let mut request = ops::CommitReview {
        review,
        message,
        whole_message: None,
        allow_revert,
        dry_run,
    };
    if dry_run || !merging::are_there(place)? {
        return connection.call_as(&request, &signers);
    }
    let plan = ops::CommitReview {
        dry_run: true,
        ..request.clone()
    };
    // The commits of a sequence are those of others, made again.
    let ReviewOutcome::Merge(planned) = connection.call_as(&plan, &signers)? else {
        return connection.call_as(&request, &signers);
    };
    let prepared = merging::prepare(place, connection, &planned, false, hooks)?;
    request.whole_message = prepared.messages.first().cloned().flatten();
    Ok(match connection.call_as(&request, &signers)? {
        ReviewOutcome::Merge(merged) => ReviewOutcome::Merge(Box::new(prepared.noted_in(*merged))),
        done => done,
    })
}
