//! `tine diff`: a fork's difference to HEAD or another point.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;

use clap_complete::engine::ArgValueCompleter;
use serde::Serialize;

use super::context::Context;
use super::trees::FormArgs;
use super::{Exit, SUCCESS, completing};
use crate::change::resolver::JsonBytes;
use crate::client::content::content;
use crate::client::diff::{check_paths, git_diff};
use crate::git::GitError;
use crate::git::line_counts::{self, NUMSTAT_FLAGS};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::{ChangeLine, Difference, PointInfo};
use crate::path::text::PathText;
use crate::render::text::quoted;
use crate::store::ForkName;

/// Show the changes of a fork since its last commit or another point
///
/// git shows them, with your pager, colours and diff settings: new files, too, as `git add -A`
/// would take them. Paths after -- narrow it; they are relative to the fork's root, or to where you
/// are inside the mount.
///
/// --against names what else to compare with: a snapshot of the fork, another fork (as it is now),
/// `pristine` (the fork point), or a revision as git understands it in the fork. Where a word means
/// several of these the first is taken, and a note says so; `snapshot:NAME`, `fork:NAME`,
/// `fork:NAME@SNAPSHOT` and `rev:REVISION` mean one thing only.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine diff fix-parser
  tine diff fix-parser --stat -- src
  tine diff fix-parser --content > fix.patch     complete, binary files too: `git apply` takes it
  tine diff fix-parser --content --json          both sides' bytes
  tine diff fix-parser --against pristine        all since the fork point, commits included
  tine diff fix-parser --against other-fork      what this fork has and that one has not
  tine diff fix-parser --against rev:main --reverse")]
pub(super) struct Diff {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(completing::forks))]
    pub name: Option<String>,

    /// Compare with a snapshot, fork or revision instead of HEAD
    #[arg(long, value_name = "POINT")]
    pub against: Option<String>,

    /// Show what leads from the fork to the other point
    #[arg(long, short = 'R')]
    pub reverse: bool,

    #[command(flatten)]
    pub form: FormArgs,

    /// Show everything: binary files too; with --json both sides' bytes
    #[arg(long, group = "form")]
    pub content: bool,

    /// Only these paths, as git understands them
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<OsString>,
}

pub(super) fn run(verb: &Diff, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    let difference = connection.call(&ops::Diff {
        fork: name.clone(),
        against: verb.against.clone(),
        reverse: verb.reverse,
    })?;
    let place = match connection.show(&name)? {
        // Inside the mount, git takes paths as relative to the current directory.
        fork if fork.mounted && context.is_beneath(&fork.mount_dir) => context.cwd().to_owned(),
        _ => context.repository()?.common_dir().to_owned(),
    };
    if let (Some(word), Some(point)) = (&verb.against, &difference.against) {
        context.output.note_meaning(word, point);
    }
    check_paths(&difference, &place, &verb.paths)?;
    for path in &difference.left_out {
        context
            .output
            .note(&format!("{} is left out: git cannot hold it", quoted(path)));
    }
    for path in &difference.in_buffers {
        context.output.note(&format!(
            "{} is without what an agent wrote to its open buffer",
            quoted(path)
        ));
    }
    if context.output.is_json() {
        return print_json(verb, context, &difference, &place);
    }
    let mut flags: Vec<&str> = context.output.color_flag().into_iter().collect();
    flags.extend(verb.form.flags());
    if verb.content {
        flags.extend(["--binary", "--full-index", "--no-ext-diff", "--no-textconv"]);
    }
    let mut git = git_diff(&difference, &place, &flags, &verb.paths);
    context.output.page(&mut git);
    Err(GitError::GitMissing(git.exec()).into())
}

/// Output of `tine diff --json`: the difference with more detail for each path.
#[derive(Serialize)]
struct Document<'a> {
    fork: &'a ForkName,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    in_buffers: &'a [PathText],
    branch: &'a Option<String>,
    head_commit: &'a Option<String>,
    head_tree: &'a str,
    view_tree: &'a str,
    against: &'a Option<PointInfo>,
    old_tree: &'a str,
    new_tree: &'a str,
    changes: Vec<Line<'a>>,
    left_out: &'a [PathText],
}

/// One changed path, with the requested details.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    change: &'a ChangeLine,
    /// `None`: not requested. `null` inside: a binary file.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    lines: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    contents: Option<Contents>,
}

#[derive(Serialize, Clone, Copy)]
struct Counts {
    added_lines: Option<u64>,
    removed_lines: Option<u64>,
}

#[derive(Serialize)]
struct Contents {
    old_content: Option<JsonBytes>,
    new_content: Option<JsonBytes>,
}

fn print_json(
    verb: &Diff,
    context: &Context,
    difference: &Difference,
    place: &Path,
) -> Result<Exit, Failure> {
    let counts = if verb.form.stat || !verb.paths.is_empty() {
        Some(counts_of(difference, place, &verb.paths)?)
    } else {
        None
    };
    let mut lines = Vec::new();
    for change in &difference.changes {
        let counted = match &counts {
            // git left the path out: it is not among the requested paths.
            Some(counts) => match counts.get(&change.path.to_bytes()) {
                Some(counted) => Some(*counted),
                None => continue,
            },
            None => None,
        };
        let contents = if verb.content {
            Some(Contents {
                old_content: content(
                    context,
                    change.old_mode.as_deref(),
                    change.old_id.as_deref(),
                )?,
                new_content: content(
                    context,
                    change.new_mode.as_deref(),
                    change.new_id.as_deref(),
                )?,
            })
        } else {
            None
        };
        lines.push(Line {
            change,
            lines: counted.filter(|_| verb.form.stat),
            contents,
        });
    }
    context.output.json(&Document {
        fork: &difference.fork,
        in_buffers: &difference.in_buffers,
        branch: &difference.branch,
        head_commit: &difference.head_commit,
        head_tree: &difference.head_tree,
        view_tree: &difference.view_tree,
        against: &difference.against,
        old_tree: &difference.old_tree,
        new_tree: &difference.new_tree,
        changes: lines,
        left_out: &difference.left_out,
    })?;
    Ok(SUCCESS)
}

/// Counts added and removed lines by path; empty `paths` means all.
fn counts_of(
    difference: &Difference,
    place: &Path,
    paths: &[OsString],
) -> Result<BTreeMap<Vec<u8>, Counts>, Failure> {
    let mut git = git_diff(difference, place, &NUMSTAT_FLAGS, paths);
    let counts = line_counts::run(&mut git)?
        .into_iter()
        .map(|(path, lines)| {
            let counts = Counts {
                added_lines: lines.added,
                removed_lines: lines.removed,
            };
            (path, counts)
        });
    Ok(counts.collect())
}
