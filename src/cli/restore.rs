//! `tine restore`: sets a fork, or paths of it, to a point.

use super::context::Context;
use super::sequencing::{ConflictArgs, resolve_and_print};
use super::{Exit, SUCCESS};
use crate::client::embedded_paths;
use crate::ops::protocol::{CommitLine, IndexKept, RestoreMethod, RestoreOutcome, Restored};
use crate::ops::{self, Failure};
use crate::render::text::short_id;

// The operation, whose doc comment is the help, and the choice of a resolver.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_long_help = "\
Examples:
  tine restore fix-parser tried-regex
  tine restore fix-parser pristine                to its fork point
  tine restore fix-parser HEAD~2 --path src       one directory, as a commit has it
  tine restore fix-parser tried-regex --with-git
  tine restore fix-parser before-restore-1        take that back again")]
pub(super) struct Restore {
    #[command(flatten)]
    pub operation: ops::Restore,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

pub(super) fn run(verb: &Restore, context: &Context) -> Result<Exit, Failure> {
    let operation = ops::Restore {
        review: verb.conflicts.review_policy(),
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
            return resolve_and_print(context, &mut connection, &done, &verb.conflicts.resolving);
        }
    };
    if operation.paths.is_empty() {
        embedded_paths::rewrite_again(context, &mut connection, &restored.fork);
    }
    let to = restored.to.as_deref().unwrap_or(&operation.to);
    let what = match operation.paths.len() {
        _ if restored.how == RestoreMethod::OntoHead => {
            format!("has what {to} had of its own, on HEAD, which has commits of others by now")
        }
        0 if restored.git.is_some() => format!("is as at {to}, with HEAD, refs and index"),
        0 => format!("is as at {to}"),
        1 => format!("has 1 path as at {to}"),
        count => format!("has {count} paths as at {to}"),
    };
    context
        .output
        .json_or_text(&restored, || format_restored(&restored, &what))?;
    Ok(SUCCESS)
}

/// Describes the restore and how to take it back.
pub(super) fn format_restored(restored: &Restored, what: &str) -> String {
    let fork = &restored.fork;
    let mut text = match &restored.before {
        Some(_) if restored.git.is_some() => {
            format!("{fork} {what}; `tine undo {fork}` takes that back\n")
        }
        Some(before) => format!("{fork} {what}; `tine restore {fork} {before}` takes that back\n"),
        None => format!("{fork} {what}\n"),
    };
    text.push_str(&lacking(&restored.left_out));
    text.push_str(&index_kept(&restored.index));
    text
}

/// Describes how to get the staged content back that no file has.
///
/// The same for an index that could not be read.
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

/// Lists the commits of HEAD whose work the restored files lack.
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
