//! Applies handoffs.

use super::SequenceArgs;
use crate::failure::{ErrorCode, Failure};
use crate::protocol::{MergeStatus, MergeTarget, Sequenced};
use crate::state::handoffs;
use crate::state::slots::Daemon;
use crate::target::{NotedMove, Target, was_taken_back};
use tine_attr::Timestamp;
use tine_change::handoff::{HandoffRecord, HandoffState};
use tine_change::sequence::{SequenceItem, SequenceRequest, of_mailbox, take_messages};
use tine_git::Repository;
use tine_git::mailbox::Subjects;

/// Refuses a handoff that cannot be applied now, and returns its parent.
///
/// It must be ready. Without `force` it must not be applied already.
pub(super) fn check(daemon: &Daemon, id: u64, force: bool) -> Result<Option<String>, Failure> {
    let record = HandoffRecord::load(&daemon.store, id)?;
    let record = unless_taken_back(daemon, &daemon.repository_now()?, record);
    let refused = |message: String| Failure::new(ErrorCode::HandoffState, message);
    match record.state {
        HandoffState::Ready => {}
        HandoffState::Pending => {
            return Err(refused(format!("the handoff {id} is still being made"))
                .hint(format!("`tine handoff await {id}` waits until it is ready")));
        }
        HandoffState::Failed | HandoffState::Skipped => {
            let failure = refused(format!("the handoff {id} is {}", record.state.word()));
            let failure = record.reason.into_iter().fold(failure, Failure::cause);
            return Err(match record.fork {
                Some(fork) => failure.hint(format!(
                    "`tine handoff create {fork}` hands over what there is by now"
                )),
                None => failure.hint("have it handed over again where it comes from"),
            });
        }
    }
    if record.applied_secs.is_some() && !force {
        let to = record.applied_to.unwrap_or_default();
        return Err(
            refused(format!("the handoff {id} was applied to {to} already"))
                .hint("`--force` applies it once more; what is there already is left out"),
        );
    }
    Ok(record.to)
}

/// Returns the handoff without its application, if that was taken back.
pub(crate) fn unless_taken_back(
    daemon: &Daemon,
    repository: &Repository,
    mut record: HandoffRecord,
) -> HandoffRecord {
    if let (Some(to), Some(head), Some(from)) = (
        &record.applied_to,
        &record.applied_head,
        &record.applied_from,
    ) {
        let noted = NotedMove {
            target: to,
            branch: record.applied_on.as_deref(),
            before: Some(from),
            after: head,
        };
        if was_taken_back(daemon, repository, &noted) {
            record.applied_secs = None;
            record.applied_to = None;
            record.applied_head = None;
            record.applied_from = None;
            record.applied_on = None;
        }
    }
    record
}

/// Returns the commits of a handoff, from its mailbox.
pub(super) fn items(
    target: &Target<'_>,
    id: u64,
    three_way: bool,
) -> Result<Vec<SequenceItem>, Failure> {
    let store = &target.daemon.store;
    let record = HandoffRecord::load(store, id)?;
    record.verify(store)?;
    let subjects = if record.keeps_subjects() {
        Subjects::Kept
    } else {
        Subjects::Cut
    };
    let mailbox = record.mailbox(store);
    let mut items = of_mailbox(store, target.repository, &mailbox, subjects, three_way)?;
    if record.range()?.is_some() {
        take_messages(target.repository, &mut items)?;
    }
    Ok(items)
}

/// Records that the handoff was applied. A failure is only logged, as the target has moved.
pub(super) fn note_applied(daemon: &Daemon, args: &SequenceArgs, done: &Sequenced) {
    let is_there = matches!(
        done.status,
        MergeStatus::Merged | MergeStatus::NothingToMerge
    );
    let SequenceRequest::Mailbox { handoff, .. } = args.request else {
        return;
    };
    if args.dry_run || !is_there {
        return;
    }
    let noted = handoffs::update(daemon, handoff, |record| {
        record.applied_secs = Some(Timestamp::now().secs);
        record.applied_to = Some(word(&done.target));
        record.applied_head.clone_from(&done.after);
        record.applied_from.clone_from(&done.before);
        record.applied_on.clone_from(&done.target.branch);
        Ok(())
    });
    if let Err(failure) = noted {
        log::error!("the handoff {handoff} is applied, which could not be written down: {failure}");
    }
}

fn word(target: &MergeTarget) -> String {
    match (&target.fork, &target.branch) {
        (Some(fork), _) => format!("fork:{fork}"),
        (None, Some(branch)) => format!("branch:{branch}"),
        (None, None) => "HEAD".to_owned(),
    }
}
