//! `tine branch`: branches, and moving forks to other branches.

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::shown::{self, Shown};
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::client::hooks::{HookOutput, PostCheckout, post_checkout};
use crate::ops::protocol::{
    BranchCreated, BranchDeleted, BranchInfo, BranchRenamed, Branches, BranchesDeleted, Switched,
};
use crate::ops::{CreateBranch, DeleteBranches, Failure, ListBranches, RenameBranch, SwitchBranch};
use crate::path::shell::shell_word;
use crate::render::failure::FailureBody;
use crate::render::text::{counted, quoted, short_id};
use crate::store::ForkName;

/// List, make, delete and rename branches, and put forks on others
///
/// Each branch may be checked out in one fork, in the main checkout, in another worktree, or
/// nowhere. What git's own commands do to branches, in a mount or beside it, counts as well.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine branch list
  tine branch create topic --at fix-parser
  tine branch switch fix-parser topic
  tine branch rename topic parser
  tine branch delete parser")]
pub(super) struct Branch {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    #[command(aliases = ["ls"])]
    List(ListBranches),
    #[command(aliases = ["new", "add"])]
    Create(CreateBranch),
    #[command(aliases = ["rm", "remove", "del"])]
    Delete(DeleteBranches),
    #[command(aliases = ["mv", "move"])]
    Rename(RenameBranch),
    #[command(aliases = ["checkout"])]
    Switch(SwitchBranch),
}

pub(super) fn run(verb: &Branch, context: &Context) -> Result<Exit, Failure> {
    match &verb.action {
        Action::List(verb) => list(verb, context),
        Action::Create(verb) => shown::run(verb, context),
        Action::Delete(verb) => shown::run(verb, context),
        Action::Rename(verb) => shown::run(verb, context),
        Action::Switch(verb) => switch(verb, context),
    }
}

fn list(verb: &ListBranches, context: &Context) -> Result<Exit, Failure> {
    let connection = if verb.all {
        Some(context.connect()?)
    } else {
        context.connect_to_forks()?
    };
    let Branches { branches, damaged } = match connection {
        Some(mut connection) => connection.call(verb)?,
        None => Branches::default(),
    };
    let output = &context.output;
    if output.is_json() {
        #[derive(Serialize)]
        struct Listing<'a> {
            branches: &'a [BranchInfo],
            damaged: Vec<FailureBody<'a>>,
        }
        output.json(&Listing {
            branches: &branches,
            damaged: damaged.iter().map(FailureBody::from).collect(),
        })?;
        return Ok(SUCCESS);
    }
    if !branches.is_empty() {
        output.long(&output.table(&rows(&branches, output)))?;
    } else if damaged.is_empty() && !verb.all {
        output
            .note("no fork has a branch: `--all` lists all branches, `tine new NAME` makes a fork");
    }
    for failure in &damaged {
        output.trouble(failure);
    }
    Ok(SUCCESS)
}

fn rows(branches: &[BranchInfo], output: &Output) -> Vec<Vec<Cell>> {
    let heading = |text| Cell::new(text).toned(output, Tone::Faint);
    let mut rows = vec![vec![
        heading("BRANCH"),
        heading("COMMIT"),
        heading("CHECKED OUT"),
        heading("MADE FOR"),
        heading("FROM"),
        heading("AHEAD").right(),
        heading("BEHIND").right(),
        heading("ABOUT"),
    ]];
    let number = |number: Option<usize>| {
        Cell::new(number.map(|number| number.to_string()).unwrap_or_default()).right()
    };
    let name = |fork: &Option<ForkName>| fork.as_ref().map(ForkName::to_string).unwrap_or_default();
    rows.extend(branches.iter().map(|branch| {
        let holder = match (&branch.fork, &branch.checkout) {
            (Some(fork), _) => Cell::new(fork.as_str()).toned(output, Tone::Good),
            (None, Some(_)) if branch.is_main => Cell::new("(main checkout)"),
            (None, Some(dir)) => Cell::new(dir.display().to_string()).ending(),
            (None, None) => Cell::new(""),
        };
        // A branch is shown by its name, a commit by its short id.
        let from = branch.from.as_deref().unwrap_or_default();
        let is_id =
            matches!(from.len(), 40 | 64) && from.bytes().all(|byte| byte.is_ascii_hexdigit());
        vec![
            Cell::new(quoted(&branch.name)).toned(output, Tone::Name),
            Cell::new(short_id(&branch.commit)).toned(output, Tone::Faint),
            holder,
            Cell::new(name(&branch.made_for)),
            Cell::new(if is_id { short_id(from) } else { from }),
            number(branch.ahead),
            number(branch.behind),
            Cell::new(branch.subject.as_str()),
        ]
    }));
    rows
}

impl Shown for CreateBranch {
    fn show(&self, created: &BranchCreated, context: &Context) -> Result<(), Failure> {
        let output = &context.output;
        if let Some(other) = created.also.first() {
            output.note(&format!(
                "{} was meant, there is {other} as well",
                created.at
            ));
        }
        if created.uncommitted {
            output.note(UNCOMMITTED);
        }
        output.text(&format!(
            "created {} at {}\n",
            created.branch,
            short_id(&created.commit)
        ))
    }
}

/// Note about uncommitted work at the start of a new branch.
const UNCOMMITTED: &str =
    "what is uncommitted there is not in the branch: it begins at HEAD's commit";

impl Shown for DeleteBranches {
    fn show(&self, deleted: &BranchesDeleted, context: &Context) -> Result<(), Failure> {
        let lines = deleted.branches.iter().map(format_deleted);
        context.output.text(&lines.collect::<String>())
    }
}

fn format_deleted(deleted: &BranchDeleted) -> String {
    let BranchDeleted {
        branch,
        commit,
        recover,
        alias_of,
    } = deleted;
    let recover_command = match (recover, alias_of) {
        (Some(id), _) => format!("tine recover {id}"),
        (None, Some(target)) => format!(
            "git symbolic-ref {} {}",
            shell_word(format!("refs/heads/{branch}")),
            shell_word(target)
        ),
        (None, None) => format!("git branch {} {commit}", shell_word(branch)),
    };
    format!(
        "deleted {branch}, which was at {}; `{recover_command}` brings it back\n",
        short_id(commit)
    )
}

impl Shown for RenameBranch {
    fn show(&self, renamed: &BranchRenamed, context: &Context) -> Result<(), Failure> {
        let line = format!("renamed {} to {}\n", renamed.from, renamed.branch);
        context.output.text(&line)
    }
}

fn switch(verb: &SwitchBranch, context: &Context) -> Result<Exit, Failure> {
    let mut connection = context.connect_for(verb)?;
    let switched = connection.call(verb)?;
    let failed = after_switch(context, &mut connection, &switched)?;
    let output = &context.output;
    let exit = match &failed {
        Some(failure) => failure.exit.code(),
        None => SUCCESS,
    };
    if output.is_json() {
        #[derive(Serialize)]
        struct Done<'a> {
            #[serde(flatten)]
            switched: &'a Switched,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            failed: Vec<FailureBody<'a>>,
        }
        output.json(&Done {
            switched: &switched,
            failed: failed.iter().map(FailureBody::from).collect(),
        })?;
        return Ok(exit);
    }
    if switched.uncommitted {
        output.note(UNCOMMITTED);
    }
    output.text(&format_switched(&switched))?;
    if let Some(failure) = &failed {
        output.trouble(failure);
    }
    Ok(exit)
}

/// Runs git's `post-checkout` hook in a fork that is mounted here.
///
/// Returns the hook's failure, if it failed.
fn after_switch(
    context: &Context,
    connection: &mut Client,
    switched: &Switched,
) -> Result<Option<Failure>, Failure> {
    let fork = connection.show(&switched.fork)?;
    let Some(commit) = switched.commit.as_deref().filter(|_| fork.mounted) else {
        return Ok(None);
    };
    if context.check_mounted_here(connection, &fork).is_err() {
        return Ok(None);
    }
    let old = switched.from_commit.as_deref();
    let failed = post_checkout(
        &fork.mount_dir,
        &fork.mount_dir,
        old,
        commit,
        HookOutput::Shown,
    )?;
    Ok(failed.map(PostCheckout::failure))
}

fn format_switched(switched: &Switched) -> String {
    let Switched { fork, branch, .. } = switched;
    let Some(snapshot) = &switched.snapshot else {
        if switched.created {
            return format!(
                "{fork} is on the new branch {branch} now, where it left the one that moved\n"
            );
        }
        return format!("{fork} is on {branch} already\n");
    };
    let new = if switched.created {
        "new branch "
    } else {
        "branch "
    };
    let merged = if switched.merged {
        ", uncommitted changes merged"
    } else {
        ""
    };
    format!(
        "{fork} is on the {new}{branch} now, {} changed{merged}; `tine undo {fork}` takes that back, what it was is the snapshot {snapshot}\n",
        counted(switched.changes.len(), "path"),
    )
}
