//! States: forks as single commits, which can travel to other machines.
//!
//! ```text
//! tree      the fork's view, as `git add -A` would take it
//! parent    HEAD's commit, and with it all commits; none on a branch without a commit
//! message   a subject, and trailers that say what the fork was:
//!           Tine-Fork, Tine-Branch (unless HEAD is detached), Tine-Base and
//!           Tine-Fork-Point (unless there is none), Tine-Format
//! ```
//!
//! As one commit, it moves as one ref, whole or not at all. It does not distinguish staged from
//! unstaged changes.

use super::changeset::{Blobs, Examined, Scope, examine, write_tree};
use super::commit::check_landed;
use super::{ChangeError, Changeset};
use tine_git::commit::clean_message;
use tine_git::refs::STATE;
use tine_git::{CommitSpec, GitError, Identity, ObjectId, Repository};
use tine_store::{Fork, ForkName, ForkRecord};

/// Version of the trailers.
const FORMAT: &str = "1";

const FORK: &str = "Tine-Fork: ";
const BRANCH: &str = "Tine-Branch: ";
const BASE: &str = "Tine-Base: ";
const FORK_POINT: &str = "Tine-Fork-Point: ";
const FORMAT_KEY: &str = "Tine-Format: ";

/// State, as read from its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Commit of the state.
    pub commit_id: ObjectId,
    /// Tree of the fork's view.
    pub tree_id: ObjectId,
    /// Commit of the fork's HEAD; `None` on an unborn branch.
    pub head: Option<ObjectId>,
    /// Name of the fork where the state was made.
    pub fork: ForkName,
    /// Branch of the fork (short name); `None` if HEAD was detached.
    pub branch: Option<String>,
    /// Commit that is the fork's base. It may be missing here.
    pub base: Option<ObjectId>,
    /// Fork point; `None`: all commits are the fork's own.
    ///
    /// The commit may be missing here.
    pub fork_point: Option<ObjectId>,
    /// True if the view differs from HEAD's tree.
    pub is_uncommitted: bool,
    /// Subject of HEAD's commit; `None` on an unborn branch.
    pub summary: Option<String>,
    /// Name of the person who sent it.
    pub sender_name: String,
    /// Mail address of the person who sent it.
    pub sender_email: String,
    /// Time of sending in seconds since 1970.
    pub sent_secs: i64,
}

/// Options for making a state.
#[derive(Debug, Clone, Default)]
pub struct StateOptions {
    /// Author of the commit; `None` takes git's own.
    pub author: Option<Identity>,
    /// Committer of the commit; `None` takes git's own.
    pub committer: Option<Identity>,
    /// Fork point of the fork.
    pub fork_point: Option<ObjectId>,
    /// Existing state that is reused if it is the same.
    pub known: Option<ObjectId>,
}

/// State that was made or reused.
#[derive(Debug, Clone)]
pub struct MadeState {
    /// Commit of the state.
    pub commit_id: ObjectId,
    /// Tree of the fork's view.
    pub tree_id: ObjectId,
    /// Branch of HEAD (short name); `None` if HEAD is detached.
    pub branch: Option<String>,
    /// Changes of the view against HEAD.
    pub changeset: Changeset,
}

/// Makes the state of a fork, and keeps it from `git gc`.
///
/// It is kept until the next state is made or the fork is deleted. If the last state or
/// `options.known` is the same, that one is returned.
///
/// # Errors
/// [`ChangeError::Unstable`] if a file keeps changing, [`ChangeError::NotLanded`] if the new tree
/// is wrong, and the errors of reading the fork and writing objects.
pub fn make(
    repository: &Repository,
    record: &ForkRecord,
    fork: &Fork,
    options: &StateOptions,
) -> Result<MadeState, ChangeError> {
    let head = repository.head_of(fork.worktree.git_dir())?;
    let branch = head.short_branch().map(str::to_owned);
    let left_at = repository.head_left_at(&fork.worktree, fork.name().as_str(), &fork.made_on)?;
    let Examined { changeset, .. } =
        examine(repository, fork, left_at, Blobs::Write, Scope::Everything)?;
    let tree_id = write_tree(repository, &changeset)?;
    check_landed(repository, &changeset, tree_id)?;
    let message = message(record, branch.as_deref(), options.fork_point);
    let spec = CommitSpec {
        tree_id,
        parent_ids: left_at.into_iter().collect(),
        message: message.as_str().into(),
        author: options.author.clone(),
        committer: options.committer.clone(),
    };
    let name = record.name.as_str();
    let last = repository.kept_as(name, STATE)?;
    let known = [options.known, last].into_iter().flatten();
    let same = known
        .into_iter()
        .find(|id| is_same_state(repository, *id, &spec, &message));
    let commit_id = match same {
        Some(same) => same,
        None => repository.write_commit(&spec)?,
    };
    if last != Some(commit_id) {
        repository.keep(name, STATE, commit_id)?;
    }
    Ok(MadeState {
        commit_id,
        tree_id,
        branch,
        changeset,
    })
}

/// Reads the state in a commit.
///
/// # Errors
/// [`ChangeError::NotAState`] if the commit is not one, [`ChangeError::NewerState`] if a newer tine
/// made it.
pub fn read(repository: &Repository, commit_id: ObjectId) -> Result<State, ChangeError> {
    let not_a_state = || ChangeError::NotAState { commit_id };
    let info = repository
        .commit_info(commit_id)
        .map_err(|error| match error {
            GitError::CorruptObject { .. } => not_a_state(),
            error => error.into(),
        })?;
    let message = repository.commit_message(commit_id)?;
    let Trailers {
        format,
        fork,
        branch,
        base,
        fork_point,
    } = trailers(&message);
    match format {
        Some(FORMAT) => {}
        Some(_) => return Err(ChangeError::NewerState { commit_id }),
        None => return Err(not_a_state()),
    }
    let fork = fork.and_then(|fork| ForkName::parse(fork).ok());
    let fork = fork.ok_or_else(not_a_state)?;
    let head = match info.parent_ids.as_slice() {
        [] => None,
        [head] => Some(*head),
        _ => return Err(not_a_state()),
    };
    let commit = |hex: &str| ObjectId::from_hex(hex.as_bytes()).ok();
    let (head_tree, summary) = match head {
        Some(head) => {
            let head = repository.commit_info(head)?;
            (head.tree_id, Some(head.summary))
        }
        None => (repository.empty_tree_id(), None),
    };
    Ok(State {
        commit_id,
        tree_id: info.tree_id,
        head,
        fork,
        branch: branch.map(str::to_owned),
        base: base.and_then(commit),
        fork_point: fork_point.and_then(commit),
        is_uncommitted: head_tree != info.tree_id,
        summary,
        sender_name: info.author_name,
        sender_email: info.author_email,
        sent_secs: info.author_time_secs,
    })
}

/// Returns the base commit for a fork made of `state` here.
///
/// It is the commit that the state names. If that is missing, it is the merge base of the state's
/// HEAD and `trunk` (the commit that work starts at here), else that HEAD.
///
/// # Errors
/// [`ChangeError::Git`] if history cannot be read.
pub fn base_here(
    repository: &Repository,
    state: &State,
    trunk: Option<ObjectId>,
) -> Result<Option<ObjectId>, ChangeError> {
    if let Some(base) = state.base.filter(|id| is_commit(repository, *id)) {
        return Ok(Some(base));
    }
    let (Some(_), Some(head), Some(trunk)) = (state.base, state.head, trunk) else {
        // The fork began on an unborn branch, so all commits are its own.
        return Ok(match state.base {
            Some(_) => state.head,
            None => None,
        });
    };
    let bases = repository.merge_bases(head, trunk)?;
    Ok(Some(bases.first().copied().unwrap_or(head)))
}

/// Returns the fork point for a fork made of `state` here.
///
/// `base` is the commit from [`base_here`]. A state may claim that it has no own commits while
/// `trunk` lacks its HEAD. It may then be of a version that took a branch's tip as the fork point.
///
/// # Errors
/// [`ChangeError::Git`] if history cannot be read.
pub fn fork_point_here(
    repository: &Repository,
    state: &State,
    base: Option<ObjectId>,
    trunk: Option<ObjectId>,
) -> Result<Option<ObjectId>, ChangeError> {
    Ok(match (state.fork_point, trunk) {
        (Some(point), Some(trunk))
            if state.head == Some(point) && !repository.is_ancestor(point, trunk)? =>
        {
            repository.merge_bases(point, trunk)?.first().copied()
        }
        (Some(point), _) if is_commit(repository, point) => Some(point),
        (Some(_), _) => base,
        (None, _) => None,
    })
}

fn is_commit(repository: &Repository, id: ObjectId) -> bool {
    repository.has_object(id) && repository.commit_info(id).is_ok()
}

fn message(record: &ForkRecord, branch: Option<&str>, fork_point: Option<ObjectId>) -> String {
    let name = &record.name;
    let mut message = format!("tine: state of {name}\n\n{FORK}{name}\n");
    if let Some(branch) = branch {
        message.push_str(&format!("{BRANCH}{branch}\n"));
    }
    if let Some(base) = &record.base_commit {
        message.push_str(&format!("{BASE}{base}\n"));
    }
    if let Some(point) = fork_point {
        message.push_str(&format!("{FORK_POINT}{point}\n"));
    }
    message.push_str(&format!("{FORMAT_KEY}{FORMAT}\n"));
    message
}

/// Returns whether the commit `id` differs only in authorship.
fn is_same_state(repository: &Repository, id: ObjectId, spec: &CommitSpec, message: &str) -> bool {
    let (Ok(info), Ok(said)) = (repository.commit_info(id), repository.commit_message(id)) else {
        return false;
    };
    info.tree_id == spec.tree_id
        && info.parent_ids == spec.parent_ids
        && said.as_bytes() == clean_message(message.as_bytes())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Trailers<'a> {
    format: Option<&'a str>,
    fork: Option<&'a str>,
    branch: Option<&'a str>,
    base: Option<&'a str>,
    fork_point: Option<&'a str>,
}

/// Returns the trailers in the last paragraph of a message.
fn trailers(message: &str) -> Trailers<'_> {
    let Some((_, last)) = message.trim_end().rsplit_once("\n\n") else {
        return Trailers::default();
    };
    let value = |key: &str| last.lines().find_map(|line| line.strip_prefix(key));
    Trailers {
        format: value(FORMAT_KEY),
        fork: value(FORK),
        branch: value(BRANCH),
        base: value(BASE),
        fork_point: value(FORK_POINT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_the_last_paragraph() {
        let message =
            "tine: state of demo\n\nTine-Fork: demo\nTine-Branch: a/b c\nTine-Format: 1\n";
        let expected = Trailers {
            format: Some("1"),
            fork: Some("demo"),
            branch: Some("a/b c"),
            base: None,
            fork_point: None,
        };
        assert_eq!(trailers(message), expected);
        for none in ["", "Tine-Format: 1", "s\n\nTine-Format: 1\n\nmore\n"] {
            assert_eq!(trailers(none), Trailers::default(), "{none:?}");
        }
    }
}
