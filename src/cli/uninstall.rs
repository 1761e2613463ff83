//! `tine uninstall`: removes all of tine's data from a repository.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::change::handoff::HandoffState;
use crate::change::recovery;
use crate::client::{Client, ending, identity};
use crate::git::Repository;
use crate::git::traces::OwnRef;
use crate::ops;
use crate::ops::protocol::{ForkInfo, Handoffs, Reviews, SessionLine};
use crate::ops::{ErrorCode, ExitCode, Failure};
use crate::path::text::PathText;
use crate::render::text::{counted, one_line, quoted};
use crate::store::default_mount_root;
use crate::store::{ForkName, Store};

/// Remove all that tine keeps for this repository
///
/// Deletes the forks, with their mounts and worktrees, ends the daemon, and removes the store, the
/// refs under refs/tine/ and tine's settings. Branches and their commits stay, but for branches
/// of forks that have no commit of their own.
///
/// It is refused while there is work that nothing else has: what is uncommitted in a fork,
/// snapshots that were asked for, open reviews, handoffs that were not applied, sessions of
/// rounds, what is set aside. With --force what can be kept as a commit is kept, under refs/tine/,
/// and the rest goes. What tine put elsewhere on the machine (the program, completions, man pages)
/// is `scripts/uninstall`'s to remove.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine uninstall --dry-run
  tine -C ~/project uninstall --force")]
pub(super) struct Uninstall {
    /// Say what would be removed; ends with exit code 3 where that would be refused
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Remove it even if there is uncommitted work, or programs use a mount
    #[arg(short, long)]
    pub force: bool,

    /// Leave every ref under refs/tine/ where it is
    #[arg(long)]
    pub keep_refs: bool,
}

/// Removed data, or data that a dry run would remove.
#[derive(Serialize)]
struct Removed {
    dry_run: bool,
    repository: PathText,
    /// Work that exists nowhere else, in words.
    work: Vec<String>,
    forks: Vec<ForkGone>,
    /// `null` without a store.
    store: Option<PathText>,
    refs: Vec<String>,
    refs_kept: Vec<String>,
    settings: Vec<String>,
}

#[derive(Serialize)]
struct ForkGone {
    fork: String,
    mount_dir: Option<PathText>,
    recover: Option<u64>,
    branch_deleted: bool,
    /// Parts that could not be kept, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<String>,
}

/// Data found in the repository.
struct Found {
    forks: Vec<ForkInfo>,
    /// Forks with a directory but no readable record.
    damaged: Vec<ForkName>,
    work: Vec<String>,
}

pub(super) fn run(verb: &Uninstall, context: &Context) -> Result<Exit, Failure> {
    let repository = context.repository()?;
    let store_dir = Store::dir_of(repository);
    let was_running = Client::connect(repository.common_dir())?.is_some();
    let mut connection = context.connect_to_forks()?;
    let mut found = match &mut connection {
        Some(connection) => find_installed(connection, repository)?,
        None => Found {
            forks: Vec::new(),
            damaged: Vec::new(),
            work: Vec::new(),
        },
    };
    if !verb.keep_refs {
        let kept = work_refs(repository)?;
        found.work.extend(
            kept.iter()
                .map(|own| format!("{} has commits that no branch and no tag has", own.name)),
        );
    }
    let is_refused = !found.work.is_empty() && !verb.force;
    if (is_refused || verb.dry_run) && !was_running {
        // Ends the daemon, which was started only to look.
        drop(connection.take());
        ending::stop(repository, false)?;
    }
    if is_refused && !verb.dry_run {
        return Err(refusal(&found.work));
    }

    let mut removed = Removed {
        dry_run: verb.dry_run,
        repository: path_text(repository.common_dir()),
        work: found.work,
        forks: Vec::new(),
        store: store_dir.exists().then(|| path_text(&store_dir)),
        refs: Vec::new(),
        refs_kept: Vec::new(),
        settings: repository.own_settings()?,
    };
    if verb.dry_run {
        removed.forks = found.forks.iter().map(would_go).collect();
        (removed.refs_kept, removed.refs) = split_refs(verb, repository, repository.own_refs()?)?;
        let exit = if is_refused {
            ExitCode::Refused.code()
        } else {
            SUCCESS
        };
        return print_removed(context, &removed, exit);
    }

    context.step_out();
    // Automatic snapshots are not work. Without this, their forks could not be deleted without
    // `--force`.
    let mut let_go: BTreeSet<String> = BTreeSet::new();
    if let Some(connection) = &mut connection {
        let signers = identity::signers_if_any(repository.common_dir());
        let shown = found
            .forks
            .iter()
            .map(|fork| (&fork.name, Some(&fork.mount_dir)));
        let damaged = found.damaged.iter().map(|name| (name, None));
        for (name, mount_dir) in shown.chain(damaged) {
            let request = ops::Delete {
                fork: Some(name.clone()),
                force: verb.force,
            };
            let deleted = connection.call_as(&request, &signers)?;
            let goes = deleted.snapshots_only
                && deleted.superseded == 0
                && deleted.refs == 0
                && !verb.force
                && !verb.keep_refs;
            if goes && let Some(id) = deleted.recover {
                let_go.insert(recovery::ref_name(id));
            }
            removed.forks.push(ForkGone {
                fork: name.to_string(),
                mount_dir: mount_dir.map(|dir| path_text(dir)),
                recover: deleted.recover.filter(|_| !goes),
                branch_deleted: deleted.branch_deleted,
                lost: deleted.lost,
            });
        }
    }
    drop(connection);
    ending::stop(repository, verb.force)?;
    match fs::remove_dir_all(&store_dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Failure::io("remove", &store_dir, &error));
        }
        _ => {}
    }
    let own_refs = repository.own_refs()?;
    (removed.refs_kept, removed.refs) = split_refs(verb, repository, own_refs.clone())?;
    removed.refs_kept.retain(|name| !let_go.contains(name));
    let_go.retain(|name| !removed.refs.contains(name));
    removed.refs.extend(let_go);
    let going: Vec<OwnRef> = own_refs
        .into_iter()
        .filter(|own| removed.refs.contains(&own.name))
        .collect();
    repository.remove_own_refs(&going)?;
    repository.remove_own_settings()?;
    // Removes the mount root if the deletion of the last fork left it. It stays if it is not empty:
    // its files belong to the user.
    let _ = fs::remove_dir(default_mount_root(repository.checkout_dir()));
    print_removed(context, &removed, SUCCESS)
}

/// Collects all that the daemon knows.
fn find_installed(connection: &mut Client, repository: &Repository) -> Result<Found, Failure> {
    let (forks, damaged) = connection.forks()?;
    let mut work = Vec::new();
    for fork in &forks {
        let name = &fork.name;
        // The content of a damaged fork is unknown, so only `--force` removes it.
        match connection
            .changes(name, false)
            .map(|found| found.changes.len())
        {
            Ok(0) => {}
            Ok(changes) => work.push(format!(
                "{name} has changes in {} that are not committed",
                counted(changes, "path")
            )),
            Err(failure) => work.push(format!("{name} is damaged: {failure}")),
        }
        let snapshots = match connection.call(&ops::ListSnapshots {
            fork: Some(name.clone()),
        }) {
            Ok(listed) => listed.snapshots,
            Err(failure) => {
                work.push(format!("the snapshots of {name} cannot be read: {failure}"));
                continue;
            }
        };
        let asked = snapshots
            .iter()
            .filter(|snapshot| !snapshot.reason.is_automatic());
        let asked: Vec<&str> = asked.map(|snapshot| snapshot.name.as_str()).collect();
        if !asked.is_empty() {
            work.push(format!("{name} has snapshots: {}", asked.join(", ")));
        }
    }
    work.extend(damaged.iter().map(ToString::to_string));

    let Reviews { reviews, damaged } = connection.call(&ops::ListReviews { all: false })?;
    work.extend(damaged.iter().map(ToString::to_string));
    work.extend(
        reviews
            .iter()
            .map(|review| format!("the review {} is open", review.record.id)),
    );
    let Handoffs { handoffs, damaged } = connection.call(&ops::ListHandoffs { all: false })?;
    work.extend(damaged.iter().map(ToString::to_string));
    for handoff in handoffs {
        let record = &handoff.record;
        let is_ready = matches!(record.state, HandoffState::Ready | HandoffState::Pending);
        if is_ready
            && record.applied_secs.is_none()
            && !is_reached(repository, record.head_commit.as_deref())?
        {
            work.push(format!("the handoff {} was not applied", record.id));
        }
    }
    let sessions = connection.call(&ops::ListSessions {})?.sessions;
    work.extend(
        sessions
            .iter()
            .map(|session| format!("the session {} of rounds is not ended", session.session)),
    );
    let archives = names_in(&Store::dir_of(repository).join("rounds"));
    let archives = archives.iter().filter(|session| {
        let has_one = |shown: &SessionLine| shown.session.as_str() == session.as_str();
        !session.starts_with('.') && !sessions.iter().any(has_one)
    });
    work.extend(archives.map(|session| format!("the session {session} of rounds left archives")));
    let set_aside = connection
        .call(&ops::ListSetAside { put_back: None })?
        .set_aside;
    work.extend(set_aside.iter().map(|aside| {
        format!(
            "{} is set aside (`tine check --put-back {}` brings it back)",
            aside.paths.join(", "),
            aside.number
        )
    }));
    let damaged = names_in(&Store::dir_of(repository).join("forks"))
        .iter()
        .filter_map(|name| ForkName::parse(name).ok())
        .filter(|name| forks.iter().all(|fork| fork.name != *name))
        .collect();
    Ok(Found {
        forks,
        damaged,
        work,
    })
}

/// Returns the names in a directory; none if it does not exist.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn is_reached(repository: &Repository, commit: Option<&str>) -> Result<bool, Failure> {
    match commit.and_then(|commit| commit.parse().ok()) {
        Some(commit_id) => Ok(repository.reached_otherwise(commit_id, &[])?.is_some()),
        None => Ok(false),
    }
}

/// Returns the refs that keep work which no branch or tag has.
fn work_refs(repository: &Repository) -> Result<Vec<OwnRef>, Failure> {
    let mut kept = repository.own_refs()?;
    kept.retain(OwnRef::may_be_work);
    let mut work = Vec::new();
    for own in kept {
        if own.is_recoverable() {
            if recovery::may_be_work(repository, own.object_id) {
                work.push(own);
            }
            continue;
        }
        // An object that is not a commit is reached by nothing else.
        let reached = repository
            .reached_otherwise(own.object_id, &[])
            .unwrap_or(None);
        if reached.is_none() {
            work.push(own);
        }
    }
    Ok(work)
}

/// Splits the refs into names that stay and names that go.
fn split_refs(
    verb: &Uninstall,
    repository: &Repository,
    refs: Vec<OwnRef>,
) -> Result<(Vec<String>, Vec<String>), Failure> {
    let work = work_refs(repository)?;
    let (kept, gone): (Vec<OwnRef>, Vec<OwnRef>) = refs
        .into_iter()
        .partition(|own| verb.keep_refs || work.contains(own));
    let names = |refs: Vec<OwnRef>| refs.into_iter().map(|own| own.name).collect();
    Ok((names(kept), names(gone)))
}

fn would_go(fork: &ForkInfo) -> ForkGone {
    ForkGone {
        fork: fork.name.to_string(),
        mount_dir: Some(path_text(&fork.mount_dir)),
        recover: None,
        branch_deleted: false,
        lost: Vec::new(),
    }
}

fn refusal(work: &[String]) -> Failure {
    let failure = Failure::new(
        ErrorCode::UncommittedChanges,
        "there is work of tine's forks that nothing else has",
    );
    work.iter()
        .fold(failure, |failure, line| failure.cause(line.as_str()))
        .hint("`tine commit`, `tine handoff apply`, `tine review` and `tine round clean` bring it elsewhere; `tine recover purge --all` lets go of what was dropped; with `--force` commits stay under refs/tine/ and the rest is lost")
}

fn path_text(path: &Path) -> PathText {
    use std::os::unix::ffi::OsStrExt;
    PathText::from(path.as_os_str().as_bytes())
}

fn print_removed(context: &Context, removed: &Removed, exit: Exit) -> Result<Exit, Failure> {
    if context.output.is_json() {
        context.output.json(removed)?;
        return Ok(exit);
    }
    context.output.text(&format_removed(removed))?;
    Ok(exit)
}

fn format_removed(removed: &Removed) -> String {
    let verb = if removed.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let mut text = String::new();
    if removed.dry_run {
        for line in &removed.work {
            text.push_str(&format!("refused without --force: {line}\n"));
        }
    }
    for fork in &removed.forks {
        let branch = if fork.branch_deleted {
            ", and its branch, which had no commit of its own"
        } else {
            ""
        };
        let kept = match fork.recover {
            Some(id) => format!("; `tine recover {id}` brings its changes back"),
            None => String::new(),
        };
        let dir = match &fork.mount_dir {
            Some(dir) => format!(" at {}", quoted(dir)),
            None => String::new(),
        };
        let lost = if fork.lost.is_empty() {
            String::new()
        } else {
            format!("; damaged and gone: {}", one_line(&fork.lost.join(", ")))
        };
        text.push_str(&format!(
            "{verb} the fork {}{dir}{branch}{kept}{lost}\n",
            fork.fork
        ));
    }
    if let Some(store) = &removed.store {
        text.push_str(&format!("{verb} the store {}\n", quoted(store)));
    }
    if !removed.refs.is_empty() {
        text.push_str(&format!(
            "{verb} {} beneath refs/tine/\n",
            counted(removed.refs.len(), "ref")
        ));
    }
    for setting in &removed.settings {
        text.push_str(&format!("{verb} the setting {setting}\n"));
    }
    if text.is_empty() {
        text.push_str("there is nothing of tine's in this repository\n");
    }
    for kept in &removed.refs_kept {
        let stays = if removed.dry_run {
            "would stay"
        } else {
            "stays"
        };
        text.push_str(&format!("{kept} {stays}\n"));
    }
    text
}
