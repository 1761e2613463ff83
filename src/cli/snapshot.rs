//! `tine snapshot`: takes or deletes a snapshot of a fork.

use clap_complete::engine::ArgValueCompleter;

use super::context::Context;
use super::shown::{self, Shown};
use super::{Exit, SUCCESS, completing};
use crate::client::Client;
use crate::client::commit::note_agent_texts;
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::SnapshotInfo;

// The operation, whose doc comment is the help, or the deletion of a snapshot.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine snapshot fix-parser                           mark this point; tine names it
  tine snapshot fix-parser regex -m 'too slow'       name it and say why
  tine restore fix-parser regex                      go back to it
  tine new other --from-fork fix-parser@regex
  tine snapshot fix-parser regex --delete --force    let it go")]
#[command(mut_arg("name", |name| name.add(ArgValueCompleter::new(completing::snapshots))))]
pub(super) struct Snapshot {
    #[command(flatten)]
    pub take: ops::TakeSnapshot,

    /// Forget the snapshot NAME, and free what nothing else reaches
    #[arg(long, requires = "name", conflicts_with = "message")]
    pub delete: bool,

    /// Forget it also if a person or agent took it; `tine recover` brings it back
    #[arg(short, long, requires = "delete")]
    pub force: bool,
}

pub(super) fn run(verb: &Snapshot, context: &Context) -> Result<Exit, Failure> {
    let (true, Some(fork), Some(name)) = (verb.delete, &verb.take.fork, &verb.take.name) else {
        return shown::run(&verb.take, context);
    };
    let delete = ops::DeleteSnapshot {
        fork: fork.clone(),
        name: name.clone(),
        force: verb.force,
    };
    let recover = context.connect_for(&verb.take)?.call(&delete)?.recover;
    let recovery = match recover {
        Some(id) => format!("; `tine recover {id} NAME` brings it back as a fork"),
        None => String::new(),
    };
    let (output, answer) = (
        &context.output,
        serde_json::json!({"fork": fork, "deleted": name, "recover": recover}),
    );
    output.json_or(&answer, || {
        output.note(&format!("deleted {fork}@{name}{recovery}"));
        Ok(())
    })?;
    Ok(SUCCESS)
}

impl Shown for ops::TakeSnapshot {
    fn after(&self, snapshot: &SnapshotInfo, context: &Context, _client: &mut Client) {
        note_agent_texts(context, &snapshot.agent_texts);
    }

    fn show(&self, snapshot: &SnapshotInfo, context: &Context) -> Result<(), Failure> {
        context.output.text(&format!("{}\n", snapshot.name))
    }
}
