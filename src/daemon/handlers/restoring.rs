//! Taking a fork, or parts of it, back to other points.

use std::sync::Arc;

use super::snapshots::{record_switch, restore_in};
use crate::change::revert::without_nested;
use crate::change::{Point, RevertOptions, RevertTo, revert as reverting};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::protocol::{Answer, Response, RestoreRequest, Restored, RevertRequest, Reverted};
use crate::daemon::slots::Daemon;
use crate::daemon::{points, report};
use crate::path::RepoPath;
use crate::workspace::{By, ForkName, OperationKind, SnapshotOptions, SnapshotReason, SnapshotRecord};

/// A point to which a fork can be taken as a whole, with all that git ignores; others are trees.
fn whole(daemon: &Daemon, name: &ForkName, word: &str) -> Result<Option<(Point, SnapshotRecord)>, Failure> {
    let snapshots = daemon.store.snapshots(name)?;
    let by_tree = snapshots
        .iter()
        .rfind(|snapshot| snapshot.tree.as_deref() == Some(word));
    if let Some(snapshot) = by_tree {
        return Ok(Some((Point::Snapshot(snapshot.name.clone()), snapshot.clone())));
    }
    let point = Point::find(&daemon.store, name, word)?.point;
    let record = match &point {
        Point::Snapshot(snapshot) => daemon.store.snapshot(name, snapshot)?,
        Point::Pristine => daemon.store.pristine(name)?,
        Point::Fork(_) | Point::SnapshotOf(..) | Point::Revision(_) => return Ok(None),
    };
    Ok(Some((point, record)))
}

pub fn restore(daemon: &Arc<Daemon>, by: By<'_>, request: &RestoreRequest) -> Response {
    let name = &request.fork;
    let to_whole = match request.paths.is_empty() {
        true => whole(daemon, name, &request.to)?,
        false => None,
    };
    if let Some((point, snapshot)) = to_whole {
        let slot = daemon.slot(name);
        let turn = daemon.turn(&slot)?;
        let open = turn.open_existing()?;
        let before = restore_in(&turn, &open, &snapshot)?;
        turn.forget_settled();
        record_switch(&turn, by, &before, OperationKind::Switch, None);
        return Ok(restored(name, point.to_string(), before));
    }
    // The trees of views are written before the fork's own turn.
    let repository = daemon.repository_now()?;
    let point = points::resolve(daemon, &repository, name, &request.to)?;
    let paths = request.paths.iter().map(|path| RepoPath::parse(path.to_bytes()));
    let mut paths = without_nested(paths.collect::<Result<_, _>>()?);
    if paths.is_empty() {
        paths.push(RepoPath::root());
    }
    let to = RevertTo {
        tree_id: point.tree_id,
        commit_id: point.commit_id,
    };
    let options = RevertOptions {
        force: request.force,
        dry_run: false,
    };
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open_existing()?;
    turn.settle(&repository, &fork)?;
    let kept = SnapshotOptions::because(SnapshotReason::BeforeRestore);
    let before = daemon.store.take_snapshot(name, &fork, &kept)?.name;
    if let Err(error) = reverting(&repository, name, &fork, by, to, &paths, options) {
        daemon.store.remove_snapshot(name, &before)?;
        return Err(error.into());
    }
    // What no mount keeps open is on the disk before this returns.
    if !turn.is_mounted() {
        fork.workspace.sync()?;
    }
    log::info!("{name}: restored to {}; what it was is {before}", point.point);
    Ok(restored(name, point.point.to_string(), before))
}

fn restored(name: &ForkName, to: String, before: ForkName) -> Answer {
    Answer::Restored(Restored {
        fork: name.clone(),
        to: Some(to),
        before: Some(before),
    })
}

pub fn revert(daemon: &Arc<Daemon>, by: By<'_>, request: &RevertRequest) -> Response {
    let name = &request.fork;
    let paths = request.paths.iter().map(|path| RepoPath::parse(path.to_bytes()));
    let paths = without_nested(paths.collect::<Result<_, _>>()?);
    if paths.is_empty() {
        return Err(Failure::new(ErrorCode::Usage, "no path is named")
            .hint("`.` is everything; `tine status FORK` shows what changed"));
    }
    let repository = daemon.repository_now()?;
    let point = match &request.to {
        Some(word) => points::resolve(daemon, &repository, name, word)?,
        None => points::pristine(daemon, &repository, name)?,
    };
    let to = RevertTo {
        tree_id: point.tree_id,
        commit_id: point.commit_id,
    };
    let options = RevertOptions {
        force: request.force,
        dry_run: request.dry_run,
    };
    let slot = daemon.slot(name);
    let turn = daemon.turn(&slot)?;
    let fork = turn.open_existing()?;
    turn.settle(&repository, &fork)?;
    let outcome = reverting(&repository, name, &fork, by, to, &paths, options)?;
    // What no mount keeps open is on the disk before this returns.
    if !turn.is_mounted() {
        fork.workspace.sync()?;
    }
    Ok(Answer::Reverted(Reverted {
        fork: name.clone(),
        to: (&point).into(),
        changes: outcome.changes.iter().map(report::change_line).collect(),
        left_alone: outcome.left_alone.iter().map(Into::into).collect(),
        dry_run: request.dry_run,
    }))
}
