//! Text for handoffs.

use crate::text::{counted, human_size, one_line};
use tine_change::handoff::{HandoffRecord, HandoffState};
use tine_ops::protocol::HandoffInfo;

/// Formats a handoff in one line.
///
/// A second line names the work that the handoff leaves out, if there is any.
pub fn format_line(handoff: &HandoffInfo) -> String {
    let record = &handoff.record;
    let mut line = format!(
        "handoff {}: {}: {}",
        record.id,
        origin_and_recipient(record),
        state_text(record)
    );
    let size = size(record);
    if !size.is_empty() {
        line.push_str(&format!(", {size}"));
    }
    if let Some(reason) = &record.reason {
        line.push_str(&format!(" ({})", one_line(reason)));
    }
    line.push('\n');
    if let Some(rest) = left_out(record) {
        line.push_str(&format!("{rest}\n"));
    }
    line
}

/// Returns the handoff's origin and, if it has one, its recipient.
pub fn origin_and_recipient(record: &HandoffRecord) -> String {
    let fork = match (&record.fork, &record.imported_from) {
        (Some(fork), _) => fork.to_string(),
        (None, Some(file)) => one_line(file),
        (None, None) => String::new(),
    };
    match &record.to {
        Some(to) => format!("{fork} to {to}"),
        None => fork,
    }
}

/// Returns the handoff's state, and its target if it was applied.
pub fn state_text(record: &HandoffRecord) -> String {
    match (&record.applied_to, record.applied_secs) {
        (Some(to), _) => format!("applied to {to}"),
        (None, Some(_)) => "applied".to_owned(),
        (None, None) => record.state.word().to_owned(),
    }
}

/// Returns the number of commits and the mailbox size.
///
/// Empty if the handoff is not ready.
pub fn size(record: &HandoffRecord) -> String {
    match record.state {
        HandoffState::Ready => format!(
            "{}, {}",
            counted(
                usize::try_from(record.commits).unwrap_or(usize::MAX),
                "commit"
            ),
            human_size(record.mailbox_bytes)
        ),
        _ => String::new(),
    }
}

/// Returns a text for the work that the handoff leaves out.
fn left_out(record: &HandoffRecord) -> Option<String> {
    let merges = usize::try_from(record.merges).unwrap_or(usize::MAX);
    let merges = (merges > 0).then(|| format!("{} left out", counted(merges, "merge")));
    let uncommitted = record.uncommitted.then(|| {
        "the fork has uncommitted changes, which are no part of it (`--include-uncommitted` commits them)"
            .to_owned()
    });
    let parts: Vec<String> = merges.into_iter().chain(uncommitted).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
