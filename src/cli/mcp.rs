//! `tine mcp`: a Model Context Protocol server on standard input and output.

use std::sync::Arc;

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::mcp::{ForkRequest, Session, serve};
use crate::ops::Failure;
use crate::store::ForkName;

/// Serve a fork's tools to an agent over the Model Context Protocol
///
/// It speaks on standard input and output until the client closes them, and is started by an MCP
/// client, not by hand. The tools mean one fork, the active one: --fork, one that --new makes, or
/// the one in whose mount the command runs. Without any of these none is active until the agent
/// makes or chooses one. The main checkout is never written to by a tool other than a merge.
///
/// A fork that was made stays when the client goes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine mcp --new                       a fork of its own for this client
  tine mcp --fork fix-parser           a fork that is there
  tine -C ~/src/project mcp --new      for clients that start it elsewhere")]
pub(super) struct Mcp {
    /// The fork that is active first; mounted if it is not
    #[arg(long, value_name = "FORK", conflicts_with = "new")]
    pub fork: Option<String>,

    /// Make a fork when the client first needs one [NAME default: the first free one of mcp-1,
    /// mcp-2, …]
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    pub new: Option<Option<String>>,

    /// Leave files that are open in editors alone: read and write what is saved
    #[arg(long)]
    pub no_buffers: bool,
}

pub(super) fn run(verb: &Mcp, context: &Context) -> Result<Exit, Failure> {
    let session = Arc::new(Session::new(context, !verb.no_buffers)?);
    match (&verb.fork, &verb.new) {
        (Some(fork), _) => {
            session.activate(ForkName::parse(fork)?)?;
        }
        (None, Some(name)) => {
            session.want_fork(ForkRequest {
                name: name.clone(),
                ..ForkRequest::default()
            })?;
        }
        (None, None) => {
            if let Some(mut connection) = context.connect_to_forks()?
                && let Some(fork) = context.fork_if_here(&mut connection)?
            {
                session.activate(fork)?;
            }
        }
    }
    // A server runs as long as its client. It must not keep a mount busy.
    context.step_out();
    let served = serve(Arc::clone(&session));
    for fork in session.made() {
        context.output.note(&format!(
            "the fork {fork} stays: `tine status {fork}` tells what is in it, `tine delete {fork}` removes it"
        ));
    }
    served?;
    Ok(SUCCESS)
}
