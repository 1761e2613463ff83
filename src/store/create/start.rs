//! Branch, commit and fork point at which a new fork begins.

use std::path::Path;

use super::ForkOptions;
use crate::fork::Traces;
use crate::initial::ParentOptions;
use crate::{Store, StoreError};
use tine_git::{GitError, Head, ObjectId};

/// Beginning of the names of the branches that tine makes for forks.
const OWN_BRANCHES: &str = "tine/";

/// Branch and commit at which a new fork begins.
pub(crate) struct Start {
    /// Short name.
    pub branch: String,
    /// True if the branch must be made.
    pub is_new: bool,
    /// True if HEAD is on no branch.
    pub is_detached: bool,
    /// `None` in a repository without a commit.
    pub commit_id: Option<ObjectId>,
    /// Branch that the fork comes from (short name).
    pub from_branch: Option<String>,
    /// Commit after which the own commits begin; `None` if all are own.
    pub fork_point: Option<ObjectId>,
}

impl Start {
    /// Returns the resources outside the store to remove if creation fails.
    pub(super) fn traces(&self, options: &ForkOptions) -> Traces {
        let branch = self.commit_id.filter(|_| self.is_new);
        Traces {
            branch: branch.map(|commit_id| (self.branch.clone(), commit_id.to_string())),
            mount_dir: (!options.mount_dir.exists()).then(|| options.mount_dir.clone()),
        }
    }

    pub(crate) fn head(&self) -> Head {
        let name = format!("refs/heads/{}", self.branch);
        match self.commit_id {
            Some(commit_id) if self.is_detached => Head::Detached { commit_id },
            Some(commit_id) => Head::Branch { name, commit_id },
            None => Head::Unborn { name },
        }
    }
}

impl Store {
    /// Returns the branch of the main repository that follows the new fork's.
    ///
    /// A branch that was there before is the user's, unless tine made it for a fork that is gone.
    pub(super) fn followed_by(&self, start: &Start, options: &ForkOptions) -> Option<String> {
        if options.git_kind.is_linked() || start.is_detached {
            return None;
        }
        let branch = &start.branch;
        let is_left_over = || {
            let records = self.records().0;
            let mut followed = records.iter().map(|record| &record.followed_branch);
            branch.starts_with(OWN_BRANCHES)
                && !followed.any(|other| other.as_ref() == Some(branch))
        };
        (start.is_new || options.follow || is_left_over()).then(|| branch.clone())
    }

    /// Decides branch and commit of a new fork. Changes nothing.
    ///
    /// The caller holds the branch's lease.
    pub(super) fn start_of(&self, options: &ForkOptions) -> Result<Start, StoreError> {
        let repository = &self.repository;
        let branch = options.branch();
        repository.check_branch_name(&branch)?;
        // A fork that is a repository of its own has a branch of its own.
        if options.git_kind.is_linked()
            && let Some(at) = self.checked_out_at(&branch)?
        {
            return Err(GitError::BranchCheckedOut { branch, at }.into());
        }
        let wanted = match (&options.state, &options.from) {
            (Some(state), _) => state.head,
            (None, Some(revision)) => Some(repository.resolve_commit(&options.git_dir, revision)?),
            (None, None) => None,
        };
        let tip = if options.detached {
            None
        } else {
            repository.branch(&branch)?
        };
        if let Some(tip) = tip {
            // The parent's changes are relative to its HEAD, so the branch must be at that commit.
            let wanted = match &options.parent {
                Some(parent) => self.head_of_parent(parent)?,
                None => wanted,
            };
            let is_asked_for = match &options.state {
                // The branch must have the commits of the state.
                Some(_) => wanted == Some(tip),
                None => options.branch.is_some() && wanted.is_none_or(|wanted| wanted == tip),
            };
            if !is_asked_for {
                return Err(GitError::BranchExists(branch).into());
            }
        }
        let commit_id = match (&options.parent, tip.or(wanted)) {
            (None, None) if options.state.is_some() => None,
            (None, Some(commit_id)) => Some(commit_id),
            (None, None) => repository.head_of(&options.git_dir)?.commit_id(),
            (Some(parent), _) => self.head_of_parent(parent)?,
        };
        if options.detached && commit_id.is_none() {
            return Err(GitError::UnknownRevision("HEAD".to_owned()).into());
        }
        let mut from_branch = self
            .branch_it_comes_from(options)?
            .filter(|from| *from != branch);
        if tip.is_some()
            && from_branch.is_none()
            && options.parent.is_none()
            && options.state.is_none()
        {
            // `--from` names the branch itself.
            let head = repository.head_of(&options.git_dir)?;
            from_branch = head
                .short_branch()
                .map(str::to_owned)
                .filter(|from| *from != branch);
        }
        let fork_point = match (&options.state, tip) {
            (Some(state), _) => state.fork_point,
            (None, Some(tip)) if options.parent.is_none() => {
                self.fork_point_of_branch(options, tip, from_branch.as_deref())?
            }
            (None, _) => commit_id,
        };
        Ok(Start {
            from_branch,
            fork_point,
            branch,
            is_new: tip.is_none() && !options.detached,
            is_detached: options.detached,
            commit_id,
        })
    }

    /// Returns the fork point for a fork on an existing branch.
    ///
    /// The branch is at `tip`. The fork point is its merge base with the branch that the fork comes
    /// from (`from`), or with HEAD. Of several it is the one that git lists first.
    fn fork_point_of_branch(
        &self,
        options: &ForkOptions,
        tip: ObjectId,
        from: Option<&str>,
    ) -> Result<Option<ObjectId>, StoreError> {
        let origin = match from {
            Some(from) => self.repository.branch(from)?,
            None => self.repository.head_of(&options.git_dir)?.commit_id(),
        };
        Ok(match origin {
            Some(origin) => self.repository.merge_bases(tip, origin)?.first().copied(),
            None => None,
        })
    }

    /// Returns the branch from which the fork begins.
    fn branch_it_comes_from(&self, options: &ForkOptions) -> Result<Option<String>, StoreError> {
        let repository = &self.repository;
        let head_of = |git_dir: &Path| -> Result<Option<String>, StoreError> {
            let head = repository.head_of(git_dir)?;
            if let Head::Unborn { .. } = head
                && let Some(branch) = head.short_branch()
            {
                // An alias to a missing branch is refused before a fork comes from it.
                repository.branch(branch)?;
            }
            Ok(head.short_branch().map(str::to_owned))
        };
        if let Some(state) = &options.state {
            return Ok(state.from_branch.clone());
        }
        match (&options.parent, options.from.as_deref()) {
            (Some(parent), _) => head_of(parent.fork.worktree.git_dir()),
            (None, None | Some("HEAD" | "@")) => head_of(&options.git_dir),
            (None, Some(revision)) => {
                let name = revision.strip_prefix("refs/heads/").unwrap_or(revision);
                let is_branch = repository.check_branch_name(name).is_ok()
                    && repository.branch(name)?.is_some();
                Ok(is_branch.then(|| name.to_owned()))
            }
        }
    }

    fn head_of_parent(&self, parent: &ParentOptions) -> Result<Option<ObjectId>, StoreError> {
        match &parent.snapshot {
            None => Ok(self.repository.head_left_at(
                &parent.fork.worktree,
                parent.fork.name().as_str(),
                &parent.fork.made_on,
            )?),
            Some(snapshot) => {
                let hex = snapshot.head_commit.as_deref();
                Ok(hex.and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok()))
            }
        }
    }
}
