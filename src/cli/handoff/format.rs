//! Handoffs as text.

use crate::change::handoff::{HandoffRecord, HandoffState};
use crate::cli::output::{Cell, Output, Tone};
use crate::ops::protocol::{HandoffInfo, HandoffShown};
use crate::render::handoffs::{format_line, origin_and_recipient, size, state_text};
use crate::render::text::{human_age, now_secs, one_line, short_id};

/// Formats handoffs as a table.
pub(super) fn format_table(handoffs: &[HandoffInfo], output: &Output) -> String {
    let rows: Vec<Vec<Cell>> = handoffs
        .iter()
        .map(|HandoffInfo { record, .. }| {
            vec![
                Cell::new(record.id.to_string()).right(),
                Cell::new(origin_and_recipient(record)).toned(output, Tone::Name),
                Cell::new(state_text(record)).toned(output, tone(record)),
                Cell::new(size(record)),
                Cell::new(human_age(record.created_secs, now_secs())),
            ]
        })
        .collect();
    output.table(&rows)
}

/// Formats a handoff with its commits.
pub(super) fn format_shown(shown: &HandoffShown, output: &Output) -> String {
    let record = &shown.info.record;
    let mut text = format_line(&shown.info);
    if let (Some(head), Some(branch)) = (&record.head_commit, &record.branch) {
        text.push_str(&format!("{branch} was at {}\n", short_id(head)));
    }
    if let Some(file) = &record.imported_from {
        text.push_str(&format!("imported from {}\n", one_line(file)));
    }
    if let Some(mailbox) = &shown.info.mailbox {
        text.push_str(&format!("{}\n", one_line(&mailbox.display().to_string())));
    }
    let rows: Vec<Vec<Cell>> = shown
        .patches
        .iter()
        .map(|patch| {
            let commit = patch.commit.as_deref().map(short_id).unwrap_or_default();
            vec![
                Cell::new(commit).toned(output, Tone::Careful),
                Cell::new(patch.summary.as_str()),
                Cell::new(patch.author_name.as_str()).toned(output, Tone::Faint),
            ]
        })
        .collect();
    text.push_str(&output.table(&rows));
    text
}

fn tone(record: &HandoffRecord) -> Tone {
    match record.state {
        HandoffState::Ready => Tone::Good,
        HandoffState::Failed => Tone::Bad,
        HandoffState::Pending => Tone::Careful,
        HandoffState::Skipped => Tone::Faint,
    }
}
