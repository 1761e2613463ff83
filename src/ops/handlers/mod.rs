//! What the daemon does for each request: one module for each group of them.

mod branches;
pub mod buffers;
mod forks;
mod handoffs;
mod lifecycle;
mod merging;
mod mounting;
mod operations;
mod paths;
pub mod recovery;
mod remotes;
mod restoring;
mod reviews;
mod rounds;
mod sequencing;
mod snapshots;
mod stats;
pub mod target;
mod tools;
mod trees;
mod turns;
mod work;

use std::sync::Arc;

pub use buffers::Editor;
pub use handoffs::{commit_uncommitted, of_unmounted_later};
pub use lifecycle::{Insistence, end_if_displaced, stop};
pub use merging::merge;
pub use mounting::recover;
pub use snapshots::reset_to_head;

use super::monitor;
use super::policy::Signers;
use super::protocol::{Answer, RecoverRequest, Request, Response, UnmountAction};
use super::slots::Daemon;
use super::strays::Untold;
use tine_git::Identity;
use tine_sys::process::PeerCredentials;
use tine_workspace::store::{CheckOptions, Depth};
use tine_workspace::{By, Caller, MoveOptions};

/// Answers a request of `peer`, which may be an editor.
pub fn answer(
    daemon: &Arc<Daemon>,
    peer: PeerCredentials,
    editor: &Editor<'_>,
    request: Request,
) -> Response {
    let _loan = frees_space(&request).then(|| daemon.store.lend_reserve());
    match request {
        Request::Status => lifecycle::status(daemon),
        Request::Figures => lifecycle::figures(daemon),
        Request::Stats { fork, watch } => stats::stats(daemon, fork.as_ref(), watch),
        Request::Stop { force } => {
            let insistence = match force {
                true => Insistence::Force,
                false => Insistence::Refuse,
            };
            lifecycle::stop(daemon, insistence)
        }
        Request::New(request) => forks::new(daemon, peer, request),
        Request::Snapshot { fork, name, message } => snapshots::take(daemon, &fork, name, message),
        Request::Snapshots { fork } => snapshots::list(daemon, &fork),
        Request::RemoveSnapshot { fork, name, force } => snapshots::remove(daemon, &fork, &name, force),
        Request::Restore(request) => restoring::restore(daemon, by(peer, &request.command), &request),
        Request::Reset { fork, command } => snapshots::reset(daemon, by(peer, &command), &fork),
        Request::Recover(request) => recovery::answer(daemon, peer, *request),
        Request::Collect => snapshots::collect(daemon),
        Request::TakeUpTrees { fork, previous } => trees::take_up(daemon, &fork, previous),
        Request::SetAside { put_back } => lifecycle::set_aside(daemon, put_back),
        Request::Check {
            repair,
            brief,
            dry_run,
        } => {
            let depth = match brief {
                true => Depth::Places,
                false => Depth::Bytes,
            };
            lifecycle::check(
                daemon,
                CheckOptions {
                    depth,
                    repair,
                    dry_run,
                },
            )
        }
        Request::List => forks::list(daemon),
        Request::Show { fork } => forks::show(daemon, &fork),
        Request::ToldStrays { fork, strays } => {
            Untold::told(&daemon.store, &fork, &strays);
            Ok(Answer::Done)
        }
        Request::Mount {
            fork,
            dir,
            wishes,
            snapshot_every,
        } => mounting::mount(daemon, &fork, dir, wishes, snapshot_every),
        Request::Unmount {
            fork,
            action,
            force,
            author,
            committer,
        } => {
            let signers = signers(author, committer);
            mounting::unmount(
                daemon,
                by(peer, "tine unmount --merge"),
                &fork,
                action,
                force,
                signers,
            )
        }
        Request::Delete {
            fork,
            force,
            identity,
        } => forks::delete(daemon, &fork, force, identity, None),
        Request::Changes { fork, write } => work::changes(daemon, &fork, write),
        Request::Diff {
            fork,
            against,
            reverse,
        } => work::diff(daemon, &fork, against.as_deref(), reverse),
        Request::Revert(request) => restoring::revert(daemon, by(peer, &request.command), &request),
        Request::Commit {
            fork,
            message,
            author,
            committer,
            allow_revert,
        } => work::commit(daemon, &fork, message, author, committer, allow_revert),
        Request::State(request) => {
            let signers = signers(request.author.clone(), request.committer.clone());
            remotes::make_state(daemon, &request, signers)
        }
        Request::Merge(request) => {
            let signers = signers(request.author.clone(), request.committer.clone());
            merging::merge(daemon, by(peer, &request.command), &request, &signers)
        }
        Request::Branches { all } => branches::list(daemon, all),
        Request::CreateBranch(request) => branches::create(daemon, &request),
        Request::DeleteBranches {
            branches: names,
            force,
        } => branches::delete(daemon, &names, force),
        Request::RenameBranch { from, to } => branches::rename(daemon, &from, &to),
        Request::SwitchBranch(request) => branches::switch(daemon, by(peer, &request.command), &request),
        Request::Sequence(request) => {
            let signers = signers(request.author.clone(), request.committer.clone());
            sequencing::sequence(daemon, by(peer, &request.command), &request, &signers)
        }
        Request::Reviews { all } => reviews::list(daemon, by(peer, ""), all),
        Request::Review { review } => reviews::show(daemon, by(peer, ""), review),
        Request::Resolve(request) => reviews::resolve(daemon, by(peer, ""), &request),
        Request::Judge(request) => reviews::judge(daemon, by(peer, ""), &request),
        Request::RefreshReview { review } => reviews::refresh(daemon, by(peer, ""), review),
        Request::AbortReview { review } => reviews::abort(daemon, by(peer, ""), review),
        Request::CommitReview(request) => {
            let signers = signers(request.author.clone(), request.committer.clone());
            reviews::commit(daemon, by(peer, &request.command), &request, &signers)
        }
        Request::Handoff(request) => handoffs::answer(daemon, *request),
        Request::Round(request) => rounds::answer(daemon, peer, *request),
        Request::Tool(request) => tools::answer(daemon, by(peer, &request.command), &request),
        Request::Buffer(request) => buffers::answer(daemon, editor, *request),
        Request::Changed { fork, dir, token } => monitor::changed_since(daemon, &fork, &dir, &token),
        Request::Log { fork, limit } => work::log(daemon, &fork, limit),
        Request::Stat { fork, path } => paths::stat(daemon, &fork, &path),
        Request::Entries { fork, path, deep } => paths::entries(daemon, &fork, &path, deep),
        Request::Read { fork, paths } => paths::read(daemon, &fork, &paths),
        Request::Write(request) => paths::write(daemon, by(peer, &request.command), &request),
        Request::Move {
            fork,
            from,
            to,
            into,
            force,
            command,
        } => {
            let options = MoveOptions {
                force,
                into,
                parents: false,
            };
            paths::rename(daemon, by(peer, &command), &fork, (&from, &to), options)
        }
        Request::Remove {
            fork,
            paths,
            recursive,
            command,
        } => paths::remove(daemon, by(peer, &command), &fork, &paths, recursive),
        Request::Operations { fork, limit } => operations::list(daemon, &fork, limit),
        Request::TakeBack {
            fork,
            direction,
            path,
            command,
        } => operations::take_back(daemon, by(peer, &command), &fork, direction, path.as_ref()),
    }
}

/// Whether the request must succeed on a full disk, because it frees space or leads to what does.
fn frees_space(request: &Request) -> bool {
    match request {
        Request::Unmount { action, .. } => {
            matches!(action, None | Some(UnmountAction::Keep | UnmountAction::Discard))
        }
        Request::Recover(request) => matches!(**request, RecoverRequest::Purge { .. }),
        Request::Reset { .. }
        | Request::Collect
        | Request::RemoveSnapshot { .. }
        | Request::Delete { .. }
        | Request::Revert(_)
        | Request::Remove { .. }
        | Request::Stop { .. } => true,
        _ => false,
    }
}

/// A command line longer than this is not kept whole.
const COMMAND_MAX: usize = 1024;

/// Whom an operation is written down to.
fn by(peer: PeerCredentials, command: &str) -> By<'_> {
    let end = (0..=command.len().min(COMMAND_MAX)).rfind(|end| command.is_char_boundary(*end));
    By {
        caller: Caller::new(peer.uid, peer.gid),
        command: &command[..end.unwrap_or(0)],
    }
}

fn signers(author: Option<Identity>, committer: Option<Identity>) -> Signers {
    Signers { author, committer }
}
