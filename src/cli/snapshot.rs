//! `tine snapshot`: marks a point of a fork to come back to.

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::client::commit::note_agent_texts;
use crate::ops;
use crate::ops::Failure;

use crate::workspace::ForkName;

/// Mark a point of a fork to come back to
///
/// All that the fork has at this moment is kept, uncommitted and ignored files included, while programs go on working in it.
/// It costs milliseconds and no disk, however much has changed. The name is all that is printed on standard output.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine snapshot fix-parser                           mark this point; tine names it
  tine snapshot fix-parser regex -m 'too slow'       name it and say why
  tine restore fix-parser regex                      go back to it
  tine new other --from-fork fix-parser@regex
  tine snapshot fix-parser regex --delete --force    let it go")]
pub struct Snapshot {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// The snapshot's name: letters, digits, '.', '_' and '-' [default: snapshot-NUMBER]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// What to remember about it
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,

    /// Forget the snapshot NAME, and free what nothing else reaches
    #[arg(long, requires = "name", conflicts_with = "message")]
    pub delete: bool,

    /// Forget it although somebody asked for it; `tine recover` brings it back
    #[arg(short, long, requires = "delete")]
    pub force: bool,
}

pub fn run(verb: &Snapshot, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to_fork(Some(&verb.fork))?;
    let name = verb.name.as_deref().map(ForkName::parse).transpose()?;
    if let (true, Some(name)) = (verb.delete, &name) {
        let request = ops::DeleteSnapshot {
            fork: fork.clone(),
            name: name.clone(),
            force: verb.force,
        };
        let recover = connection.call(&request)?.recover;
        let way_back = match recover {
            Some(id) => format!("; `tine recover {id} NAME` brings it back as a fork"),
            None => String::new(),
        };
        match context.output.is_json() {
            true => context
                .output
                .json(&serde_json::json!({"fork": fork, "deleted": name, "recover": recover}))?,
            false => context.output.note(&format!("deleted {fork}@{name}{way_back}")),
        }
        return Ok(SUCCESS);
    }
    let snapshot = connection.call(&ops::TakeSnapshot {
        fork,
        name,
        message: verb.message.clone(),
    })?;
    note_agent_texts(context, &snapshot.agent_texts);
    match context.output.is_json() {
        true => context.output.json(&snapshot)?,
        false => context.output.text(&format!("{}\n", snapshot.name))?,
    }
    Ok(SUCCESS)
}
