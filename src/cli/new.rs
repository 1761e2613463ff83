//! `tine new`: makes a fork, mounts it, prints where.

use std::path::PathBuf;

use serde::Serialize;

use super::context::Context;
use super::fetch::{fetch_one, here, sent};
use super::{Exit, SUCCESS};
use crate::change::state;
use crate::client::after_new::after_new;
use crate::client::commit::note_agent_texts;
use crate::client::embedded_paths::{self, EmbeddedPath};
use crate::client::hooks::HookOutput;
use crate::client::place::umask;
use crate::client::{Client, cargo_target};
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::{ForkInfo, RemoteFork};
use crate::render::failure::FailureBody;
use crate::workspace::{
    CarryRules, ForkName, MountProfile, MountRequest, SeenAt, SnapshotEvery, UnmountPolicy,
};

/// Make a fork, mount it and print its path
///
/// The fork stands on the commit that HEAD names in the worktree the command runs in (inside a
/// fork's mount: that fork's HEAD), or on the one that --from names, and is on a branch of its own.
/// Its path is all that is printed on standard output.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine new fix-parser                           from HEAD, on the branch tine/fix-parser
  tine new hotfix --from v1.2 --branch hotfix   from a tag, on a branch of your choice
  cd \"$(tine new fix-parser)\"                   make it and go there
  tine new other --from-fork fix-parser         from all that another fork has, committed or not
  tine new again --from-fork other@before       from one of its snapshots
  tine new ada --from-remote fix-parser         from what was pushed to a git remote
  tine new try --on-unmount discard             throw the changes away when it is unmounted
  tine new warm --carry target                  see what was built in the main checkout
  tine new pair --overlay-buffers               tests read what you have typed and not saved")]
pub(super) struct New {
    /// The fork's name: letters, digits, '.', '_' and '-'
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Only make it; `tine mount` mounts it later
    #[arg(long, conflicts_with_all = ["allow_other", "suid", "dev", "profile", "overlay_buffers", "no_overlay_buffers"])]
    pub no_mount: bool,

    /// Have commands that tine runs in the fork see it at the main checkout's path: exec, shell,
    /// tine.setup, an agent's `run` [default: what tine.atOrigin says, or the fork that it begins
    /// as]
    #[arg(long)]
    pub at_origin: bool,

    /// Have them see it at the path of the fork that it begins as, where what it inherits was built
    #[arg(long, conflicts_with = "at_origin", requires = "from_fork")]
    pub at_parent: bool,

    /// Have them see it at its own path
    #[arg(long, conflicts_with_all = ["at_origin", "at_parent"])]
    pub no_at_origin: bool,

    #[command(flatten)]
    pub options: NewOptions,
}

// What `tine exec --new` takes, too. (A doc comment here would become the verb's help.)
#[derive(Debug, clap::Args)]
pub(super) struct NewOptions {
    /// The revision to start from [default: HEAD, or the tip of --branch where it exists]
    #[arg(long, value_name = "REV")]
    pub from: Option<String>,

    /// Begin as another fork is at this moment, uncommitted and ignored files and all, or as it was
    /// when a snapshot was taken
    #[arg(long, value_name = "FORK[@SNAPSHOT]", conflicts_with = "from")]
    pub from_fork: Option<String>,

    /// Take up a fork that was pushed to a remote, uncommitted changes and all, as it was last
    /// fetched (which is done where it never was)
    #[arg(long, value_name = "[REMOTE/]FORK", conflicts_with_all = ["from", "from_fork"])]
    pub from_remote: Option<String>,

    /// The branch to be on; made where it does not exist [default: tine/NAME]
    #[arg(short, long, value_name = "BRANCH")]
    pub branch: Option<String>,

    /// Where to mount; an empty or missing directory [default: <repository>.forks/NAME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub at: Option<PathBuf>,

    /// Ignored files of the main checkout that the fork sees without copying them, beside those
    /// that tine.carry or .worktreeinclude names: a pattern as in .gitignore, or `ignored` for all;
    /// may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub carry: Vec<String>,

    /// As --carry, and nothing of what tine.carry or .worktreeinclude names
    #[arg(long, value_name = "PATTERN", conflicts_with = "carry")]
    pub carry_only: Vec<String>,

    /// See no ignored files of the main checkout
    #[arg(long, conflicts_with_all = ["carry", "carry_only"])]
    pub no_carry: bool,

    /// Do not run the command that tine.setup names
    #[arg(long)]
    pub no_setup: bool,

    /// What unmounting does with uncommitted changes: `keep`, `commit`, `discard` (they are kept as
    /// a snapshot), `merge` (into the branch that it came from) or `merge:TARGET`, `handoff` (hand
    /// over what is committed) or `handoff:TARGET`
    #[arg(long, value_parser = parse_policy, value_name = "POLICY", default_value = "keep")]
    pub on_unmount: UnmountPolicy,

    /// Take a snapshot every so often while it is mounted, if anything was written: a time (30s,
    /// 5m, 2h) or a number of changes (100ops)
    #[arg(long, value_name = "30s|100ops", value_parser = snapshot_every)]
    pub snapshot_every: Option<SnapshotEvery>,

    #[command(flatten)]
    pub settings: MountFlags,
}

fn snapshot_every(word: &str) -> Result<SnapshotEvery, String> {
    SnapshotEvery::try_from(word.to_owned())
}

// How it is mounted: `tine mount` takes it, too.
#[derive(Debug, clap::Args)]
pub struct MountFlags {
    /// Let other users enter the mount
    #[arg(long)]
    pub allow_other: bool,

    /// Let set-user-id programs and file capabilities have their effect (root only)
    #[arg(long)]
    pub suid: bool,

    /// Let device nodes lead to devices (root only)
    #[arg(long)]
    pub dev: bool,

    /// What kind of work to mount it for [default: everyday, or as before]
    #[arg(long, value_enum, value_name = "PROFILE")]
    pub profile: Option<ProfileWord>,

    /// Have programs in the mount read what a person has in an editor and has not saved; git sees
    /// and records what is saved
    #[arg(long, conflicts_with = "no_overlay_buffers")]
    pub overlay_buffers: bool,

    /// Have them read what is saved, as usual; for a fork that was mounted with --overlay-buffers
    #[arg(long)]
    pub no_overlay_buffers: bool,
}

/// [`MountProfile`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProfileWord {
    /// Many files: opening one costs nothing
    Everyday,
    /// Large files: the kernel reads them by itself; opening any file takes longer (root only)
    LargeFiles,
}

impl From<ProfileWord> for MountProfile {
    fn from(word: ProfileWord) -> MountProfile {
        match word {
            ProfileWord::Everyday => MountProfile::Everyday,
            ProfileWord::LargeFiles => MountProfile::LargeFiles,
        }
    }
}

impl From<&MountFlags> for MountRequest {
    fn from(flags: &MountFlags) -> MountRequest {
        MountRequest {
            allow_other: flags.allow_other,
            suid: flags.suid,
            dev: flags.dev,
            profile: flags.profile.map(MountProfile::from),
            overlay_buffers: (flags.overlay_buffers || flags.no_overlay_buffers)
                .then_some(flags.overlay_buffers),
            at_origin: None,
        }
    }
}

/// [`UnmountPolicy`] on the command line.
fn parse_policy(word: &str) -> Result<UnmountPolicy, String> {
    UnmountPolicy::try_from(word.to_owned())
}

impl NewOptions {
    fn carry_wish(&self) -> CarryRules {
        match (
            self.no_carry,
            self.carry.is_empty(),
            self.carry_only.is_empty(),
        ) {
            (true, _, _) => CarryRules::Nothing,
            (false, _, false) => CarryRules::Only(self.carry_only.clone()),
            (false, false, true) => CarryRules::Also(self.carry.clone()),
            (false, true, true) => CarryRules::AsConfigured,
        }
    }
}

pub(super) fn run(verb: &New, context: &Context) -> Result<Exit, Failure> {
    let name = ForkName::parse(&verb.name)?;
    let at_origin = match (verb.at_origin, verb.at_parent, verb.no_at_origin) {
        (true, ..) => Some(SeenAt::Origin),
        (_, true, _) => Some(SeenAt::Parent),
        (.., true) => Some(SeenAt::Own),
        (false, false, false) => None,
    };
    let (mut connection, fork) = make(context, name, &verb.options, !verb.no_mount, at_origin)?;
    note_agent_texts(context, &fork.agent_texts);
    context.check_mounted_here(&connection, &fork)?;
    let after = after_new(
        context,
        &mut connection,
        &fork,
        !verb.options.no_setup,
        HookOutput::Shown,
    );
    if context.output.is_json() {
        context.output.json(&Made {
            fork: &fork,
            leads: &after.leads,
            failed: after.failed.iter().map(FailureBody::from).collect(),
        })?;
    } else {
        note_leads(context, &fork, &after.leads);
        note_cargo_target(context, &fork);
        for failure in &after.failed {
            context.output.trouble(failure);
        }
        context.output.path(&fork.mount_dir)?;
        if !fork.mounted {
            context
                .output
                .note(&format!("it is not mounted: `tine mount {}`", fork.name));
        }
    }
    Ok(after.exit.unwrap_or(SUCCESS))
}

/// A new fork in JSON.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    fork: &'a ForkInfo,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    leads: &'a [EmbeddedPath],
    /// Steps that failed after it was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<FailureBody<'a>>,
}

/// Says which trees of the fork lead elsewhere, and what to do about it.
pub(super) fn note_leads(context: &Context, fork: &ForkInfo, found: &[EmbeddedPath]) {
    match embedded_paths::notes(context, fork, found) {
        Ok(notes) => notes.iter().for_each(|note| context.output.note(note)),
        Err(failure) => log::warn!("{}: {failure}", fork.name),
    }
}

/// Says that cargo in the fork shares its target directory with other trees.
fn note_cargo_target(context: &Context, fork: &ForkInfo) {
    if let Some(note) = cargo_target::note(context, &fork.mount_dir).filter(|_| fork.mounted) {
        context.output.note(&note);
    }
}

/// Makes the fork `name`.
pub(super) fn make(
    context: &Context,
    name: ForkName,
    options: &NewOptions,
    mount: bool,
    at_origin: Option<SeenAt>,
) -> Result<(Client, ForkInfo), Failure> {
    // What is wrong with the repository is told before anything is started.
    context.repository()?;
    let from_remote = options.from_remote.as_deref();
    let from_remote = from_remote
        .map(|word| find_on_remote(context, word))
        .transpose()?;
    let taken_up = from_remote.clone();
    let request = ops::New {
        fork: name,
        git_dir: context.git_dir()?,
        from: options.from.clone(),
        from_fork: options.from_fork.clone(),
        from_remote,
        branch: options.branch.clone(),
        detached: false,
        dir: options.at.as_deref().map(|dir| context.absolute(dir)),
        mount,
        wishes: MountRequest {
            at_origin,
            ..(&options.settings).into()
        },
        on_unmount: options.on_unmount.clone(),
        snapshot_every: options.snapshot_every,
        umask: umask(),
        carry: options.carry_wish(),
    };
    let mut connection = context.connect()?;
    let fork = connection.call(&request)?;
    if !context.output.is_json() {
        note_carried(context, options, &fork);
        if let Some(from) = taken_up {
            note_taken_up(context, &from)?;
        }
    }
    Ok((connection, fork))
}

/// The fork on a remote that `word` names, `[REMOTE/]FORK`. It is fetched where it was never seen
/// here.
fn find_on_remote(context: &Context, word: &str) -> Result<RemoteFork, Failure> {
    // Names of remotes may have slashes in them, those of forks may not.
    let (remote, name) = match word.rsplit_once('/') {
        Some((remote, name)) => (Some(remote), name),
        None => (None, word),
    };
    let name = ForkName::parse(name)?;
    let repository = context.repository()?;
    let remote = repository.fetch_remote(remote, here(context)?.short_branch())?;
    if repository.tracked(&remote, name.as_str())?.is_none() {
        fetch_one(context, &remote, &name)?;
    }
    Ok(RemoteFork { remote, name })
}

/// Says whose work was taken up, and what there is not of it.
fn note_taken_up(context: &Context, from: &RemoteFork) -> Result<(), Failure> {
    let repository = context.repository()?;
    let Some(commit_id) = repository.tracked(&from.remote, from.name.as_str())? else {
        return Ok(());
    };
    let state = state::read(repository, commit_id)?;
    let uncommitted = match state.is_uncommitted {
        true => "with what was uncommitted",
        false => "with nothing uncommitted",
    };
    context.output.note(&format!(
        "{}; taken up {uncommitted}, and without what git ignores, staging, times and extended attributes",
        sent(&state, &format!("{} to {}", from.name, from.remote))
    ));
    Ok(())
}

/// Says what was not carried though somebody may have expected it.
fn note_carried(context: &Context, options: &NewOptions, fork: &ForkInfo) {
    let paths = fork.carry.as_ref().map_or(0, |carry| carry.paths.len());
    let is_asked_for = !options.carry.is_empty() || !options.carry_only.is_empty();
    if is_asked_for && paths == 0 {
        let is_bare = context
            .repository()
            .is_ok_and(|repository| repository.main_checkout().is_none());
        let why = match is_bare {
            true => "the repository is bare, so there is no main checkout to carry from",
            false => "no path that git ignores in the main checkout, and in the fork, is chosen",
        };
        context.output.note(&format!("nothing is carried: {why}"));
    }
    let held_back = fork.carry.iter().flat_map(|carry| &carry.held_back);
    let held_back: Vec<String> = held_back
        .map(|path| String::from_utf8_lossy(&path.to_bytes()).into_owned())
        .collect();
    if !held_back.is_empty() {
        context.output.note(&format!(
            "not carried, as it may be secret: {} (a pattern that names it carries it)",
            held_back.join(", ")
        ));
    }
}
