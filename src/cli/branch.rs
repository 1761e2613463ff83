//! `tine branch`: branches, and forks put on others.

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::client::hooks::{HookOutput, PostCheckout, post_checkout};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::{
    BranchDeleted, BranchInfo, Branches, CreateBranchRequest, SwitchRequest, Switched,
};
use crate::path::shell::shell_word;
use crate::render::failure::FailureBody;
use crate::render::text::{counted, quoted, short_id};
use crate::workspace::ForkName;

/// List, make, delete and rename branches, and put forks on others
///
/// Each branch may be checked out in one fork, in the main checkout, in another worktree, or nowhere. What git's own commands do
/// to branches, in a mount or beside it, counts as well.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine branch list
  tine branch create topic --at fix-parser
  tine branch switch fix-parser topic
  tine branch rename topic parser
  tine branch delete parser")]
pub struct Branch {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    #[command(aliases = ["ls"])]
    List(List),
    #[command(aliases = ["new", "add"])]
    Create(Create),
    #[command(aliases = ["rm", "remove", "del"])]
    Delete(Delete),
    #[command(aliases = ["mv", "move"])]
    Rename(Rename),
    #[command(aliases = ["checkout"])]
    Switch(Switch),
}

/// List the branches of forks
///
/// One line a branch: its name, its commit, who has it checked out, which fork it was made for, how many commits it is ahead of and
/// behind what it came from, and what its commit is about.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine branch list
  tine branch list --all --json | jq -r '.branches[] | select(.checkout == null) | .name'")]
pub struct List {
    /// All local branches, those too that no fork has to do with
    #[arg(short, long)]
    pub all: bool,
}

/// Make a branch
///
/// It is checked out nowhere: `tine branch switch` puts a fork on it. A branch begins at a commit: of a fork or a snapshot that
/// has uncommitted changes it gets HEAD, and a note says so.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine branch create topic
  tine branch create topic --at origin/topic
  tine branch create before --at fix-parser@before")]
pub struct Create {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Where it begins: FORK, FORK@SNAPSHOT or a revision [default: HEAD of the fork, else of where this runs]
    #[arg(long, value_name = "POINT")]
    pub at: Option<String>,

    /// The fork that is spoken of [default: the one whose mount this is, if any]
    #[arg(long, value_name = "FORK")]
    pub fork: Option<String>,
}

/// Delete branches
///
/// All of them, or none. Refused where one is checked out, and where it has commits that no other branch, no tag and no remote branch
/// has; with --force these are kept under refs/tine/.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine branch delete topic
  tine branch delete try-1 try-2 --force")]
pub struct Delete {
    /// The branches
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,

    /// Delete it even if nothing else has its commits
    #[arg(short, long)]
    pub force: bool,
}

/// Rename a branch
///
/// Its reflog and its settings go with it. Whoever is on it stays on it, forks as well as checkouts of git's, and forks that came
/// from it go on to be merged into it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine branch rename tine/fix-parser parser")]
pub struct Rename {
    /// The branch
    #[arg(value_name = "OLD")]
    pub old: String,

    /// What it is to be called
    #[arg(value_name = "NEW")]
    pub new: String,
}

/// Put a fork on another branch
///
/// As `git switch` does, mounted or not: files that differ follow, uncommitted changes stay. Where these are in the way nothing is
/// changed, unless --merge can merge both. What the fork was becomes a snapshot first, and `tine undo` takes the switch back.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine branch switch fix-parser main
  tine branch switch fix-parser second-try --create
  tine branch switch fix-parser topic --create --at origin/topic
  tine branch switch fix-parser -")]
pub struct Switch {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// The branch; `-` is the one that it was on before
    #[arg(value_name = "BRANCH")]
    pub branch: String,

    /// Make the branch
    #[arg(short, long)]
    pub create: bool,

    /// Where it begins: FORK, FORK@SNAPSHOT, or a revision [default: the fork's HEAD]
    #[arg(long, value_name = "POINT", requires = "create")]
    pub at: Option<String>,

    /// Merge uncommitted changes that are in the way with what the branch has
    #[arg(short, long)]
    pub merge: bool,
}

pub fn run(verb: &Branch, context: &Context) -> Result<Exit, Failure> {
    match &verb.action {
        Action::List(verb) => list(verb, context),
        Action::Create(verb) => create(verb, context),
        Action::Delete(verb) => delete(verb, context),
        Action::Rename(verb) => rename(verb, context),
        Action::Switch(verb) => switch(verb, context),
    }
}

fn list(verb: &List, context: &Context) -> Result<Exit, Failure> {
    let connection = match verb.all {
        true => Some(context.connect()?),
        false => context.connect_to_forks()?,
    };
    let Branches { branches, damaged } = match connection {
        Some(mut connection) => connection.call(&ops::ListBranches { all: verb.all })?,
        None => Branches {
            branches: Vec::new(),
            damaged: Vec::new(),
        },
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
        output.note("no fork has a branch: `--all` lists all branches, `tine new NAME` makes a fork");
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
        // A branch by its name, a commit by a part of it.
        let from = branch.from.as_deref().unwrap_or_default();
        let is_id = matches!(from.len(), 40 | 64) && from.bytes().all(|byte| byte.is_ascii_hexdigit());
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

fn create(verb: &Create, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = match &verb.fork {
        Some(name) => {
            let (connection, fork) = context.connect_to_fork(Some(name))?;
            (connection, Some(fork))
        }
        None => {
            let mut connection = context.connect()?;
            let fork = context.fork_if_here(&mut connection)?;
            (connection, fork)
        }
    };
    let request = CreateBranchRequest {
        branch: verb.name.clone(),
        at: verb.at.clone(),
        fork,
        git_dir: context.git_dir()?,
    };
    let created = connection.call(&request)?;
    let output = &context.output;
    if output.is_json() {
        output.json(&created)?;
        return Ok(SUCCESS);
    }
    if let Some(other) = created.also.first() {
        output.note(&format!("{} was meant, there is {other} as well", created.at));
    }
    if created.uncommitted {
        output.note(UNCOMMITTED);
    }
    output.text(&format!(
        "created {} at {}\n",
        created.branch,
        short_id(&created.commit)
    ))?;
    Ok(SUCCESS)
}

/// Of what a branch begins at.
const UNCOMMITTED: &str = "what is uncommitted there is not in the branch: it begins at HEAD's commit";

fn delete(verb: &Delete, context: &Context) -> Result<Exit, Failure> {
    let request = ops::DeleteBranches {
        branches: verb.names.clone(),
        force: verb.force,
    };
    let deleted = context.connect()?.call(&request)?.branches;
    if context.output.is_json() {
        #[derive(Serialize)]
        struct Deleted {
            branches: Vec<BranchDeleted>,
        }
        context.output.json(&Deleted { branches: deleted })?;
        return Ok(SUCCESS);
    }
    let told = deleted.iter().map(|deleted| {
        let BranchDeleted {
            branch,
            commit,
            recover,
            alias_of,
        } = deleted;
        let way_back = match (recover, alias_of) {
            (Some(id), _) => format!("tine recover {id}"),
            (None, Some(target)) => format!(
                "git symbolic-ref {} {}",
                shell_word(format!("refs/heads/{branch}")),
                shell_word(target)
            ),
            (None, None) => format!("git branch {} {commit}", shell_word(branch)),
        };
        format!(
            "deleted {branch}, which was at {}; `{way_back}` brings it back\n",
            short_id(commit)
        )
    });
    context.output.text(&told.collect::<String>())?;
    Ok(SUCCESS)
}

fn rename(verb: &Rename, context: &Context) -> Result<Exit, Failure> {
    let request = ops::RenameBranch {
        from: verb.old.clone(),
        to: verb.new.clone(),
    };
    let renamed = context.connect()?.call(&request)?;
    match context.output.is_json() {
        true => context.output.json(&renamed)?,
        false => context
            .output
            .text(&format!("renamed {} to {}\n", renamed.from, renamed.branch))?,
    }
    Ok(SUCCESS)
}

fn switch(verb: &Switch, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, fork) = context.connect_to_fork(Some(&verb.fork))?;
    let switched = ask_to_switch(&mut connection, verb, fork)?;
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
    output.text(&told(&switched))?;
    if let Some(failure) = &failed {
        output.trouble(failure);
    }
    Ok(exit)
}

/// Runs git's `post-checkout`, as `git switch` does, in a fork that is mounted here; the failure where it failed.
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
    let failed = post_checkout(&fork.mount_dir, &fork.mount_dir, old, commit, HookOutput::Shown)?;
    Ok(failed.map(PostCheckout::failure))
}

fn ask_to_switch(connection: &mut Client, verb: &Switch, fork: ForkName) -> Result<Switched, Failure> {
    let request = SwitchRequest {
        fork,
        branch: verb.branch.clone(),
        create: verb.create,
        at: verb.at.clone(),
        merge: verb.merge,
    };
    connection.call(&request)
}

fn told(switched: &Switched) -> String {
    let Switched { fork, branch, .. } = switched;
    let Some(snapshot) = &switched.snapshot else {
        if switched.created {
            return format!("{fork} is on the new branch {branch} now, where it left the one that moved\n");
        }
        return format!("{fork} is on {branch} already\n");
    };
    let new = match switched.created {
        true => "new branch ",
        false => "branch ",
    };
    let merged = match switched.merged {
        true => ", uncommitted changes merged",
        false => "",
    };
    format!(
        "{fork} is on the {new}{branch} now, {} changed{merged}; `tine undo {fork}` takes that back, what it was is the snapshot {snapshot}\n",
        counted(switched.changes.len(), "path"),
    )
}
