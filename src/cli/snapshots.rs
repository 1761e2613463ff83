//! `tine snapshots`: the snapshots of a fork.

use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::shown::Shown;
use crate::ops::protocol::{SnapshotInfo, Snapshots};
use crate::ops::{Failure, ListSnapshots};
use crate::render::text::{human_age, now_secs};
use crate::store::SnapshotReason;

impl Shown for ListSnapshots {
    fn show(&self, listed: &Snapshots, context: &Context) -> Result<(), Failure> {
        let output = &context.output;
        if listed.snapshots.is_empty() {
            let fork = &listed.fork;
            output.note(&format!(
                "{fork} has no snapshots: `tine snapshot {fork}` takes one"
            ));
            return Ok(());
        }
        output.long(&output.table(&rows(&listed.snapshots, output)))
    }
}

fn rows(snapshots: &[SnapshotInfo], output: &Output) -> Vec<Vec<Cell>> {
    let now_secs = now_secs();
    let heading = |text| Cell::new(text).toned(output, Tone::Faint);
    let mut rows = vec![vec![
        heading("NAME"),
        heading("AGE").right(),
        heading("BRANCH"),
        heading("ABOUT"),
    ]];
    rows.extend(snapshots.iter().map(|snapshot| {
        let about = snapshot
            .message
            .as_deref()
            .unwrap_or(match snapshot.reason {
                SnapshotReason::Asked => "",
                SnapshotReason::Periodic => "taken by itself",
                SnapshotReason::BeforeRestore => "taken before a restore",
                SnapshotReason::BeforeReset => "taken before a reset",
                SnapshotReason::BeforeDiscard => "taken before the changes were discarded",
                SnapshotReason::BeforeMerge => "taken before a merge",
                SnapshotReason::BeforeSwitch => "taken before it went to another branch",
                SnapshotReason::BeforeUpdate => "taken before an update",
                SnapshotReason::BeforeCherryPick => "taken before a cherry-pick",
                SnapshotReason::BeforeApply => "taken before patches were applied",
            });
        vec![
            Cell::new(snapshot.name.as_str()).toned(output, Tone::Name),
            Cell::new(human_age(snapshot.created_secs, now_secs)).right(),
            Cell::new(snapshot.branch.as_deref().unwrap_or("(detached)")),
            Cell::new(about),
        ]
    }));
    rows
}
