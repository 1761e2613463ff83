//! `tine restore`: lets a fork be as it was at a point.

use super::context::Context;
use super::sequencing::{LeftArgs, go_on};
use super::{Exit, SUCCESS};
use crate::client::embedded_paths;
use crate::ops::protocol::{CommitLine, IndexKept, RestoreOutcome, Restored, RestoredHow};
use crate::ops::{self, Failure};
use crate::render::text::short_id;

// The operation, whose help this has, and who resolves conflicts.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_long_help = "\
Examples:
  tine restore fix-parser tried-regex
  tine restore fix-parser pristine                to its fork point
  tine restore fix-parser HEAD~2 --path src       one directory, as a commit has it
  tine restore fix-parser before-restore-1        take that back again")]
pub(super) struct Restore {
    #[command(flatten)]
    pub operation: ops::Restore,

    #[command(flatten)]
    pub left: LeftArgs,
}

pub(super) fn run(verb: &Restore, context: &Context) -> Result<Exit, Failure> {
    let operation = ops::Restore {
        review: verb.left.wish(),
        ..verb.operation.clone()
    };
    let mut connection = context.connect_for(&operation)?;
    let restored = match connection.call(&operation)? {
        RestoreOutcome::Restored(restored) => restored,
        RestoreOutcome::Sequenced(done) => {
            let way = format!(
                "HEAD has commits of others by now that {} lacks; `--exact` takes the files as they were there",
                operation.to
            );
            context.output.note(&way);
            return go_on(context, &mut connection, &done, &verb.left.resolving);
        }
    };
    if operation.paths.is_empty() {
        embedded_paths::again(context, &mut connection, &restored.fork);
    }
    let to = restored.to.as_deref().unwrap_or(&operation.to);
    let what = match operation.paths.len() {
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
pub(super) fn told(restored: &Restored, what: &str) -> String {
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
pub(super) fn index_kept(index: &IndexKept) -> String {
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
pub(super) fn lacking(left_out: &[CommitLine]) -> String {
    let mut text = String::new();
    if !left_out.is_empty() {
        text.push_str(
            "its files lack what these commits of HEAD brought; a commit would take them back:\n",
        );
    }
    for commit in left_out {
        text.push_str(&format!(
            "  {}  {}\n",
            short_id(&commit.commit),
            commit.summary
        ));
    }
    text
}
