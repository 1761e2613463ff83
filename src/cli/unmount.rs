//! `tine unmount`: takes a fork's mount away and does with its layer what is asked for, or what the fork's policy says.

use super::context::Context;
use super::output::short_id;
use super::{Exit, SUCCESS, identity};
use crate::daemon::Failure;
use crate::daemon::protocol::{Request, UnmountAction, Unmounted};
use crate::git::CallerConfig;
use crate::workspace::UnmountPolicy;

/// Unmount a fork and keep, commit or discard its changes
///
/// Without a flag the fork's own policy decides (`tine new --on-unmount`), as it does after a plain `umount`. What is
/// discarded is kept as a commit under refs/tine/NAME/, from which it can be brought back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine unmount fix-parser
  tine unmount fix-parser --commit -m 'Fix the parser'
  tine unmount fix-parser --discard")]
pub struct Unmount {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Leave the changes in the layer
    #[arg(long, group = "action")]
    pub keep: bool,

    /// Commit the changes to the fork's branch
    #[arg(long, group = "action", requires = "message")]
    pub commit: bool,

    /// Throw the changes away
    #[arg(long, group = "action")]
    pub discard: bool,

    /// The commit's message
    #[arg(short, long, value_name = "MSG", requires = "commit")]
    pub message: Option<String>,

    /// Detach the mount even while programs use it
    #[arg(short, long)]
    pub force: bool,
}

impl Unmount {
    fn action(&self) -> Option<UnmountAction> {
        match (&self.message, self.keep, self.discard) {
            (Some(message), ..) => Some(UnmountAction::Commit {
                message: message.clone(),
            }),
            (None, true, _) => Some(UnmountAction::Keep),
            (None, false, true) => Some(UnmountAction::Discard),
            (None, false, false) => None,
        }
    }
}

pub fn run(verb: &Unmount, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    // A policy may ask for a commit; where it needs an identity and there is none, the daemon says so.
    let dir = context.repository()?.common_dir();
    let config = CallerConfig::of(dir);
    let author = identity::author(dir, config.as_ref(), None).ok();
    let committer = identity::committer(dir, config.as_ref()).ok();
    context.step_out();
    let unmounted = connection.unmount(&Request::Unmount {
        fork: name,
        action: verb.action(),
        force: verb.force,
        author,
        committer,
    })?;
    match context.output.is_json() {
        true => context.output.json(&unmounted)?,
        false => context.output.text(&told(&unmounted))?,
    }
    Ok(SUCCESS)
}

fn told(unmounted: &Unmounted) -> String {
    let fork = &unmounted.fork;
    let then = match (unmounted.policy, &unmounted.commit, &unmounted.snapshot) {
        (UnmountPolicy::Keep, ..) => "its changes are kept".to_owned(),
        (UnmountPolicy::Commit, Some(commit), _) => format!("its changes are commit {}", short_id(commit)),
        (UnmountPolicy::Commit, None, _) => "there was nothing to commit".to_owned(),
        (UnmountPolicy::Discard, _, Some(kept)) => {
            format!("its changes are discarded (`tine restore {fork} {kept}` brings them back)")
        }
        (UnmountPolicy::Discard, _, None) => "there was nothing to discard".to_owned(),
    };
    format!("unmounted {fork}: {then}\n")
}
