//! `tine snapshots`: the snapshots of a fork.

use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::{Exit, SUCCESS};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::SnapshotInfo;
use crate::render::text::{human_age, now_secs};
use crate::workspace::SnapshotReason;

/// List the snapshots of a fork
///
/// The oldest comes first. Those that tine took by itself, before something was thrown away, say so; `tine gc` lets these go
/// after 30 days.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine snapshots fix-parser
  tine snapshots fix-parser --json | jq -r '.snapshots[].name'")]
pub struct Snapshots {
    /// The fork [default: the one this runs in]
    #[arg(value_name = "FORK")]
    pub fork: Option<String>,
}

pub fn run(verb: &Snapshots, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to_fork(verb.fork.as_deref())?;
    let listed = connection.call(&ops::ListSnapshots { fork: fork.clone() })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&listed)?;
    } else if listed.snapshots.is_empty() {
        output.note(&format!(
            "{fork} has no snapshots: `tine snapshot {fork}` takes one"
        ));
    } else {
        output.long(&output.table(&rows(&listed.snapshots, output)))?;
    }
    Ok(SUCCESS)
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
        let about = snapshot.message.as_deref().unwrap_or(match snapshot.reason {
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
