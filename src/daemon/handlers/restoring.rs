//! Taking a fork, or parts of it, back to other points.

use std::sync::Arc;

use crate::change::revert::without_nested;
use crate::change::{RevertOptions, RevertTo, revert as reverting};
use crate::daemon::failure::{ErrorCode, Failure};
use crate::daemon::protocol::{Answer, Response, RevertRequest, Reverted};
use crate::daemon::slots::Daemon;
use crate::daemon::{points, report};
use crate::path::RepoPath;

pub fn revert(daemon: &Arc<Daemon>, request: &RevertRequest) -> Response {
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
    let outcome = reverting(&repository, name, &fork, to, &paths, options)?;
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
