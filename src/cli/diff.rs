//! `tine diff`: the changes of a fork against its HEAD, as git shows them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine;
use serde::Serialize;

use super::context::Context;
use super::output::quoted;
use super::{Exit, SUCCESS};
use crate::daemon::protocol::{ChangeLine, Changes};
use crate::daemon::{ErrorCode, Failure};
use crate::git::{GitError, ObjectId, program};
use crate::path::text::PathText;
use crate::workspace::ForkName;

/// Show the changes of a fork since its last commit
///
/// git shows them, with your pager, colours and diff settings: new files, too, as `git add -A` would take them. Paths
/// after -- narrow it; they are relative to the fork's root, or to where you are inside the mount.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine diff fix-parser
  tine diff fix-parser --stat -- src
  tine diff fix-parser --content > fix.patch     complete, binary files too: `git apply` takes it
  tine diff fix-parser --content --json          both sides' bytes")]
pub struct Diff {
    /// The fork [default: the one whose mount this is]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Show how many lines changed in each file
    #[arg(long, group = "form")]
    pub stat: bool,

    /// Show only the names of changed files
    #[arg(long, group = "form")]
    pub name_only: bool,

    /// Show everything: binary files too; with --json both sides' bytes
    #[arg(long, group = "form")]
    pub content: bool,

    /// Only these paths, as git understands them
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<OsString>,
}

pub fn run(verb: &Diff, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(verb.name.as_deref())?;
    let changes = connection.changes(&name, true)?;
    let place = match connection.show(&name)? {
        // Inside the mount git understands paths as relative to where one stands.
        fork if fork.mounted && context.is_beneath(&fork.mount_dir) => context.cwd().to_owned(),
        _ => context.repository()?.common_dir().to_owned(),
    };
    for path in &changes.left_out {
        context
            .output
            .note(&format!("{} is left out: git cannot hold it", quoted(path)));
    }
    let sides = Sides::of(&changes)?;
    if context.output.is_json() {
        return tell_json(verb, context, &changes, &sides, place);
    }
    let mut git = sides.git_diff(&place);
    git.args(context.output.color_flag());
    if verb.stat {
        git.arg("--stat");
    } else if verb.name_only {
        git.arg("--name-only");
    } else if verb.content {
        git.args(["--binary", "--full-index", "--no-ext-diff", "--no-textconv"]);
    }
    sides.add_to(&mut git, &verb.paths);
    Err(GitError::GitMissing(git.exec()).into())
}

/// The two trees.
struct Sides<'a> {
    head_tree: &'a str,
    view_tree: &'a str,
}

impl<'a> Sides<'a> {
    fn of(changes: &'a Changes) -> Result<Sides<'a>, Failure> {
        let view_tree = changes
            .view_tree
            .as_deref()
            .ok_or_else(|| Failure::new(ErrorCode::Internal, "the daemon did not write the fork's tree"))?;
        Ok(Sides {
            head_tree: &changes.head_tree,
            view_tree,
        })
    }

    /// `git diff` in `place`, with the attributes of the fork's own view.
    fn git_diff(&self, place: &std::path::Path) -> Command {
        let mut command = program::command(place);
        command
            .arg(format!("--attr-source={}", self.view_tree))
            .arg("diff");
        command
    }

    fn add_to(&self, command: &mut Command, paths: &[OsString]) {
        command.args([self.head_tree, self.view_tree, "--"]).args(paths);
    }
}

/// What `tine diff --json` prints.
#[derive(Serialize)]
struct Document<'a> {
    fork: &'a ForkName,
    branch: &'a Option<String>,
    head_commit: &'a Option<String>,
    head_tree: &'a str,
    view_tree: &'a str,
    changes: Vec<Line<'a>>,
    left_out: &'a [PathText],
}

/// One changed path, with what was asked for.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    change: &'a ChangeLine,
    /// `None`: not asked for. `null` inside: a binary file.
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
    old_content: Option<Content>,
    new_content: Option<Content>,
}

/// Bytes in JSON: as text where they are UTF-8, else in base64.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Text(String),
    Base64(String),
}

fn tell_json(
    verb: &Diff,
    context: &Context,
    changes: &Changes,
    sides: &Sides,
    place: PathBuf,
) -> Result<Exit, Failure> {
    let counts = match verb.stat || !verb.paths.is_empty() {
        true => Some(line_counts(sides, &place, &verb.paths)?),
        false => None,
    };
    let mut lines = Vec::new();
    for change in &changes.changes {
        let counted = match &counts {
            // git left it out: it is not among the paths.
            Some(counts) => match counts.get(&change.path.to_bytes()) {
                Some(counted) => Some(*counted),
                None => continue,
            },
            None => None,
        };
        let contents = match verb.content {
            true => Some(Contents {
                old_content: content(context, change.old_mode.as_deref(), change.old_id.as_deref())?,
                new_content: content(context, change.new_mode.as_deref(), change.new_id.as_deref())?,
            }),
            false => None,
        };
        lines.push(Line {
            change,
            lines: counted.filter(|_| verb.stat),
            contents,
        });
    }
    context.output.json(&Document {
        fork: &changes.fork,
        branch: &changes.branch,
        head_commit: &changes.head_commit,
        head_tree: sides.head_tree,
        view_tree: sides.view_tree,
        changes: lines,
        left_out: &changes.left_out,
    })?;
    Ok(SUCCESS)
}

/// How many lines git says were added and removed in each of `paths` (all, where none is named).
fn line_counts(
    sides: &Sides,
    place: &std::path::Path,
    paths: &[OsString],
) -> Result<BTreeMap<Vec<u8>, Counts>, Failure> {
    let mut git = sides.git_diff(place);
    git.args([
        "--numstat",
        "-z",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--no-relative",
    ]);
    sides.add_to(&mut git, paths);
    let printed = program::run(&mut git, b"")?;
    let mut counts: BTreeMap<Vec<u8>, Counts> = BTreeMap::new();
    for record in printed
        .split(|&byte| byte == 0)
        .filter(|record| !record.is_empty())
    {
        let mut fields = record.splitn(3, |&byte| byte == b'\t');
        let mut number = || {
            let field = std::str::from_utf8(fields.next()?).ok()?;
            field.parse::<u64>().ok()
        };
        let (added, removed) = (number(), number());
        let Some(path) = fields.next() else { continue };
        // A path whose type changed has a record for each side.
        let entry = counts.entry(path.to_vec()).or_insert(Counts {
            added_lines: Some(0),
            removed_lines: Some(0),
        });
        entry.added_lines = entry.added_lines.zip(added).map(|(a, b)| a.saturating_add(b));
        entry.removed_lines = entry.removed_lines.zip(removed).map(|(a, b)| a.saturating_add(b));
    }
    Ok(counts)
}

/// One side's bytes as git stores them; `None` where there is no such side, and for a submodule, which has none.
fn content(context: &Context, mode: Option<&str>, id: Option<&str>) -> Result<Option<Content>, Failure> {
    let (Some(mode), Some(id)) = (mode, id) else {
        return Ok(None);
    };
    if mode == "160000" {
        return Ok(None);
    }
    let id = ObjectId::from_hex(id.as_bytes()).map_err(|error| {
        Failure::new(
            ErrorCode::Internal,
            format!("the daemon named {id:?}, which is no object id"),
        )
        .cause(error.to_string())
    })?;
    let bytes = context.repository()?.read_blob(id)?;
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) => Content::Text(text),
        Err(error) => Content::Base64(base64::engine::general_purpose::STANDARD.encode(error.as_bytes())),
    }))
}
