//! Handoffs in words.

use crate::change::handoff::{HandoffRecord, HandoffState};
use crate::cli::output::{Cell, Output, Tone, counted, human_age, human_size, now_secs, one_line, short_id};
use crate::ops::protocol::{HandoffInfo, HandoffShown};

/// Handoffs as a table.
pub fn told_table(handoffs: &[HandoffInfo], output: &Output) -> String {
    let rows: Vec<Vec<Cell>> = handoffs
        .iter()
        .map(|HandoffInfo { record, .. }| {
            vec![
                Cell::new(record.id.to_string()).right(),
                Cell::new(whose(record)).toned(output, Tone::Name),
                Cell::new(stands(record)).toned(output, tone(record)),
                Cell::new(size(record)),
                Cell::new(human_age(record.created_secs, now_secs())),
            ]
        })
        .collect();
    output.table(&rows)
}

/// A handoff in a line.
pub fn told_line(handoff: &HandoffInfo) -> String {
    let record = &handoff.record;
    let mut line = format!("handoff {}: {}: {}", record.id, whose(record), stands(record));
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

/// A handoff with its commits.
pub fn told_shown(shown: &HandoffShown, output: &Output) -> String {
    let record = &shown.info.record;
    let mut text = told_line(&shown.info);
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

/// Whose work it is, and who is to have it.
fn whose(record: &HandoffRecord) -> String {
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

fn stands(record: &HandoffRecord) -> String {
    match (&record.applied_to, record.applied_secs) {
        (Some(to), _) => format!("applied to {to}"),
        (None, Some(_)) => "applied".to_owned(),
        (None, None) => record.state.word().to_owned(),
    }
}

fn tone(record: &HandoffRecord) -> Tone {
    match record.state {
        HandoffState::Ready => Tone::Good,
        HandoffState::Failed => Tone::Bad,
        HandoffState::Pending => Tone::Careful,
        HandoffState::Skipped => Tone::Faint,
    }
}

fn size(record: &HandoffRecord) -> String {
    match record.state {
        HandoffState::Ready => format!(
            "{}, {}",
            counted(usize::try_from(record.commits).unwrap_or(usize::MAX), "commit"),
            human_size(record.mailbox_bytes)
        ),
        _ => String::new(),
    }
}

/// What is no part of it.
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
