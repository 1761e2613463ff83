//! Moves of the fork's branch in the main repository.
//!
//! The fork moves the branch in its own git directory. It follows here unless a checkout uses it,
//! or another process has moved or deleted it.

use std::path::PathBuf;

use super::taking::Taking;
use super::tips::log_line_of;
use crate::{GitError, ObjectId};
use tine_sys::pause;

/// Label of the value that the fork's branch last had here.
pub(super) const BRANCH: &str = "git-branch";

/// State of the fork's branch in the main repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnBranch {
    /// The branch was created, or moved to the new value.
    Moved {
        /// New value.
        to: ObjectId,
    },
    /// The branch had the value already.
    Same,
    /// A checkout of the main repository uses the branch, which stays.
    CheckedOut {
        /// Directory of the checkout.
        at: PathBuf,
    },
    /// Another process moved the branch, which stays.
    MovedByOthers {
        /// Short name of the branch.
        branch: String,
        /// Value of the branch.
        at: ObjectId,
        /// Way in which it moved.
        way: OthersMove,
    },
    /// Another process deleted the branch, which is not created again.
    DeletedInMain,
    /// A branch with a conflicting name exists.
    InTheWay {
        /// Short name of that branch.
        branch: String,
    },
}

/// Way in which others moved a fork's branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OthersMove {
    /// The branch has more commits.
    On,
    /// The branch lost commits.
    Back,
    /// The branch has other commits instead of those after a common one.
    Rewritten {
        /// Value that the fork and the branch had in common last.
        former: ObjectId,
    },
}

impl Taking<'_> {
    /// Returns the last value of the fork's branch that was taken over.
    pub(super) fn former_branch(&self) -> Option<ObjectId> {
        let label = format!("git/heads/{}", self.own_branch?);
        self.kept.get(&label).copied().flatten()
    }

    /// Moves the fork's branch, if only the fork moved it before.
    pub(super) fn move_branch(&mut self) -> Result<Option<OwnBranch>, GitError> {
        let Some(own_branch) = self.own_branch else {
            return Ok(None);
        };
        let name = format!("heads/{own_branch}");
        let new = self.tips.named.get(&name).copied();
        let Some(new) = new.filter(|_| self.done.rejected.iter().all(|other| other.name != name))
        else {
            return Ok(None);
        };
        let recorded = self.kept.get(BRANCH).copied().flatten();
        let former = self.former_branch();
        let at = self.main.branch_target(own_branch)?;
        let done = match at {
            Some(at) if at == new => OwnBranch::Same,
            Some(at) if self.may_move(at, new, recorded, former)? => {
                match self.move_unless_checked_out(own_branch, Some(at), new)? {
                    OwnBranch::CheckedOut { at } => return Ok(Some(OwnBranch::CheckedOut { at })),
                    done => done,
                }
            }
            Some(at) => {
                let way = self.way_of_others(at, recorded.or(former))?;
                let branch = own_branch.to_owned();
                return Ok(Some(OwnBranch::MovedByOthers { branch, at, way }));
            }
            None if recorded.is_some() => return Ok(Some(OwnBranch::DeletedInMain)),
            None => {
                if let Some(branch) = self.main.conflicting_branch(own_branch)? {
                    return Ok(Some(OwnBranch::InTheWay { branch }));
                }
                match self.move_unless_checked_out(own_branch, None, new)? {
                    OwnBranch::CheckedOut { at } => return Ok(Some(OwnBranch::CheckedOut { at })),
                    done => done,
                }
            }
        };
        if recorded != Some(new) && done == OwnBranch::Same {
            self.main.keep(self.fork, BRANCH, new)?;
        }
        pause::at("branch-moved");
        Ok(Some(done))
    }

    fn may_move(
        &self,
        at: ObjectId,
        new: ObjectId,
        recorded: Option<ObjectId>,
        former: Option<ObjectId>,
    ) -> Result<bool, GitError> {
        if recorded == Some(at) || former == Some(at) {
            return Ok(true);
        }
        if !self.main.is_ancestor(at, new)? {
            return Ok(false);
        }
        // The fork has what others did with the branch, unless they moved it back.
        match recorded.or(former) {
            Some(known) => Ok(!self.main.is_ancestor(at, known)?),
            None => Ok(true),
        }
    }

    /// Returns how others moved the branch from `known` to `at`.
    fn way_of_others(&self, at: ObjectId, known: Option<ObjectId>) -> Result<OthersMove, GitError> {
        Ok(match known {
            Some(known) if self.main.is_ancestor(at, known)? => OthersMove::Back,
            Some(known) if !self.main.is_ancestor(known, at)? => {
                OthersMove::Rewritten { former: known }
            }
            _ => OthersMove::On,
        })
    }

    fn move_unless_checked_out(
        &self,
        branch: &str,
        from: Option<ObjectId>,
        to: ObjectId,
    ) -> Result<OwnBranch, GitError> {
        self.main.await_switch_to(branch)?;
        if let Some(at) = self.main.checked_out_at(branch)? {
            return Ok(OwnBranch::CheckedOut { at });
        }
        let line = log_line_of(self.dir, branch, to);
        let record = self.main.keeping_ref(self.fork, BRANCH)?;
        self.main.move_with_log((branch, record), from, to, line)?;
        Ok(OwnBranch::Moved { to })
    }
}
