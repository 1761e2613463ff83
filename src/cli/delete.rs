//! `tine delete`: removes a fork.

use std::os::unix::ffi::OsStrExt;

use super::context::Context;
use super::list::some_of;
use super::{Exit, SUCCESS};
use crate::client::identity;
use crate::ops::protocol::Deleted;
use crate::ops::{Delete, Failure};
use crate::path::shell::shell_word;
use crate::render::text::{counted, one_line};
use crate::store::own_branch;

pub(super) fn run(verb: &Delete, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to(verb.fork.as_ref())?;
    let signers = identity::signers_if_any(context.repository()?.common_dir());
    // A damaged fork can be deleted but not shown.
    let branch = connection.show(&name).ok().and_then(|fork| fork.branch);
    context.step_out();
    let deleted = connection.call_as(verb, &signers)?;
    // A branch of the fork alone went with it.
    let left = branch
        .as_deref()
        .filter(|branch| has_branch(context, branch));
    context.output.json_or_text(&deleted, || {
        format_deleted(&deleted, branch.as_deref(), left)
    })?;
    Ok(SUCCESS)
}

fn has_branch(context: &Context, branch: &str) -> bool {
    let repository = context.repository();
    repository.is_ok_and(|repository| matches!(repository.branch(branch), Ok(Some(_))))
}

/// Describes a deletion.
///
/// `branch` is the one that the fork was on, and `left` the same if the main repository has it
/// still.
fn format_deleted(deleted: &Deleted, branch: Option<&str>, left: Option<&str>) -> String {
    let fork = &deleted.fork;
    let kept = match (deleted.recover, left) {
        (Some(id), _) if !deleted.snapshots_only => {
            format!("; its changes are kept (`tine recover {id}` brings them back)")
        }
        (_, Some(branch)) if !deleted.branch_deleted || branch != own_branch(fork) => {
            format!(
                "; `tine new {fork} --branch {}` goes on with its branch",
                shell_word(branch)
            )
        }
        (_, _) => String::new(),
    };
    let snapshots = match (deleted.recover, deleted.superseded) {
        (Some(id), 0) if deleted.snapshots_only && deleted.refs == 0 => {
            format!("; its snapshots are kept (`tine recover show {id}`)")
        }
        (Some(id), count @ 1..) => {
            let commits = counted(count, "commit");
            format!("; {commits} kept that no branch has (`tine recover show {id}`)")
        }
        _ => String::new(),
    };
    let refs = match (deleted.recover, deleted.refs) {
        (Some(id), count @ 1..) => {
            let refs = counted(count, "ref");
            format!(
                "; {refs} kept that it alone had (`tine recover {id}` brings the fork back with them)"
            )
        }
        _ => String::new(),
    };
    let own = own_branch(fork);
    let branch = match (deleted.branch_deleted, branch) {
        (true, Some(branch)) if branch != own => {
            format!(", and its first branch {own}, which had no commit of its own")
        }
        (true, _) => ", and its branch, which had no commit of its own".to_owned(),
        (false, _) => String::new(),
    };
    let lost = if deleted.not_kept {
        "; what was not committed is gone, because the disk had no room to keep it"
    } else {
        ""
    };
    let aside = match deleted.set_aside {
        None => String::new(),
        Some(number) => {
            let because = deleted.because.as_deref().unwrap_or("it is damaged");
            format!(
                "\nwhat cannot be kept by itself: {} ({})\nthe fork is set aside as it was; `tine check --put-back {number}` brings it back",
                one_line(&deleted.lost.join(", ")),
                one_line(because)
            )
        }
    };
    let left = match &deleted.left {
        None => String::new(),
        Some(left) => format!(
            "; {} stays, which was never in the fork: {}",
            shell_word(left.mount_dir.as_os_str().as_bytes()),
            some_of(&left.paths)
        ),
    };
    format!("deleted {fork}{branch}{kept}{snapshots}{refs}{lost}{left}{aside}\n")
}
