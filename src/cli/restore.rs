//! `tine restore`: lets a fork be as it was at a point.

use std::ffi::OsString;

use super::context::Context;
use super::inside::Inside;
use super::sequencing::{ConflictArgs, go_on};
use super::{Exit, SUCCESS};
use crate::client::leads;
use crate::ops::Failure;
use crate::ops::protocol::{CommitLine, IndexKept, RestoreOutcome, RestoreRequest, Restored, RestoredHow};
use crate::render::text::short_id;

/// Let a fork, or paths of it, be as they were at a point
///
/// Of a snapshot, and of its fork point, a fork gets everything back as it was, ignored files included. A file that changes gets the
/// present time, an ignored one the time that it had. Of another fork or a revision it gets what git takes; ignored files stay. Programs in the mount see it at once, and what they have open stays
/// as they opened it. HEAD and the index are left alone. What the fork was becomes a snapshot first, which is named.
///
/// Where HEAD has commits of others by now that the point lacks (an update, a merge), what the point had of its own is merged onto
/// HEAD, so that nobody's work is taken back. Conflicts change nothing. --exact takes the files as they were, and says which commits'
/// work they lack.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine restore fix-parser tried-regex
  tine restore fix-parser pristine                to its fork point
  tine restore fix-parser HEAD~2 --path src       one directory, as a commit has it
  tine restore fix-parser before-restore-1        take that back again")]
pub struct Restore {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// Where to: a snapshot or its tree id, `pristine` (its fork point), another fork, or any revision of the repository
    #[arg(value_name = "POINT")]
    pub to: String,

    /// Restore only this path, and what is beneath, in so far as git takes it; may be given several times
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<OsString>,

    /// Let go what is in the way and git ignores, where not all is restored from a snapshot
    #[arg(short, long)]
    pub force: bool,

    /// Take the files exactly as they are there, also where HEAD has commits of others by now that they lack
    #[arg(long)]
    pub exact: bool,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

pub fn run(verb: &Restore, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let paths = inside.paths(verb.paths.iter().map(OsString::as_os_str))?;
    let request = RestoreRequest {
        fork: inside.fork.clone(),
        to: verb.to.clone(),
        paths,
        force: verb.force,
        exact: verb.exact,
        level: verb.conflicts.level.into(),
        strategy: verb.conflicts.strategy.into(),
        review: verb.conflicts.resolving.review_wish(verb.conflicts.review),
    };
    let restored = match inside.connection.call(&request)? {
        RestoreOutcome::Restored(restored) => restored,
        RestoreOutcome::Sequenced(done) => {
            let way = format!(
                "HEAD has commits of others by now that {} lacks; `--exact` takes the files as they were there",
                verb.to
            );
            context.output.note(&way);
            let resolving = &verb.conflicts.resolving;
            return go_on(context, &mut inside.connection, &done, resolving);
        }
    };
    if verb.paths.is_empty() {
        leads::again(context, &mut inside.connection, &restored.fork);
    }
    let to = restored.to.as_deref().unwrap_or(&verb.to);
    let what = match verb.paths.len() {
        _ if restored.how == RestoredHow::OntoHead => {
            format!("has what {to} had of its own, on HEAD, which has commits of others by now")
        }
        0 => format!("is as at {to}"),
        1 => format!("has 1 path as at {to}"),
        count => format!("has {count} paths as at {to}"),
    };
    match context.output.is_json() {
        true => context.output.json(&restored)?,
        false => context.output.text(&told(&restored, &what))?,
    }
    Ok(SUCCESS)
}

/// What happened, and the way back.
pub fn told(restored: &Restored, what: &str) -> String {
    let fork = &restored.fork;
    let mut text = match &restored.before {
        Some(before) => format!("{fork} {what}; `tine restore {fork} {before}` takes that back\n"),
        None => format!("{fork} {what}\n"),
    };
    text.push_str(&lacking(&restored.left_out));
    text.push_str(&index_kept(&restored.index));
    text
}

/// The ways back to what was staged and in no file, and to an index that could not be read.
pub fn index_kept(index: &IndexKept) -> String {
    let mut text = String::new();
    if let Some(id) = index.staged {
        text.push_str(&format!(
            "  what was staged and in no file is kept (`tine recover {id} NAME` brings it back as a fork)\n"
        ));
    }
    if let Some(number) = index.set_aside {
        text.push_str(&format!(
            "  its index could not be read, and is set aside (`tine check --put-back {number}` brings it back)\n"
        ));
    }
    text
}

/// The commits of others whose work files lack that went back past them.
pub fn lacking(left_out: &[CommitLine]) -> String {
    let mut text = String::new();
    if !left_out.is_empty() {
        text.push_str("its files lack what these commits of HEAD brought; a commit would take them back:\n");
    }
    for commit in left_out {
        text.push_str(&format!("  {}  {}\n", short_id(&commit.commit), commit.summary));
    }
    text
}
