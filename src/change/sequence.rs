//! Sequences: changes that are made on a commit one after another.
//!
//! Commits are merged or picked, mails and patches applied, and uncommitted changes taken along. A
//! sequence is a value that names all its inputs. So it can be run for a dry run, for the change
//! itself, and again after its conflicts are resolved. A run adds objects and moves nothing.

mod mails;
mod run;

pub use mails::{of_mailbox, take_messages};
pub use run::run;

use serde::{Deserialize, Serialize};

use super::merge::Tip;
use super::review::{ConflictRecord, ReviewRecord};
use tine_git::{Identity, ObjectId};
use tine_merge::MergeOptions;
use tine_path::text::PathText;

/// Request for a sequence.
///
/// A sequence is planned from it and from the state of the repository at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "kebab-case")]
pub enum SequenceRequest {
    /// Update a fork to a revision.
    Update {
        /// Revision; `None` takes the branch that the fork came from.
        from: Option<String>,
        /// True to rebase the fork's commits, false to merge.
        rebase: bool,
    },
    /// Pick commits.
    CherryPick {
        /// Revisions and ranges.
        commits: Vec<String>,
        /// Parent that a merge is compared with, counted from 1.
        mainline: Option<usize>,
        /// True to name the original commit in the message.
        says_origin: bool,
        /// Treatment of commits that would change nothing.
        emptied: Emptied,
    },
    /// Apply a patch to a fork's view.
    Patch {
        /// Blob of the patch, in hex.
        patch: String,
        /// Number of leading components that are stripped from its paths.
        strip: u8,
        /// True to apply it in reverse.
        reverse: bool,
        /// True to try a three-way merge first.
        three_way: bool,
    },
    /// Move a state's own changes onto the target's HEAD.
    Restore {
        /// State, as the user named it.
        point: String,
        /// Tree that the state's own changes are relative to, in hex.
        base_tree: String,
        /// Tree of the state's view, in hex.
        view_tree: String,
        /// Paths to restore; empty: all.
        paths: Vec<PathText>,
    },
    /// Make commits of a handoff.
    Mailbox {
        /// Number of the handoff.
        handoff: u64,
        /// True to fall back on a three-way merge.
        three_way: bool,
    },
}

/// Items to be done in order. Ids are in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// Commit that the sequence starts on; `None`: the target's.
    pub onto: Option<String>,
    /// Items from the first to the last.
    pub items: Vec<SequenceItem>,
    /// Treatment of commits that would change nothing any more.
    pub emptied: Emptied,
    /// True to pick commits that were empty from the start.
    pub keep_empty: bool,
    /// True to reuse a picked commit whose parent is the tip.
    pub reuse: bool,
}

/// Treatment of a commit that would change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Emptied {
    /// Nothing is done
    #[default]
    Stop,
    /// What became empty is left out
    Drop,
    /// They are made
    Keep,
}

/// Item of a sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "item", rename_all = "kebab-case")]
pub enum SequenceItem {
    /// Merge a commit, or fast-forward to it.
    Merge {
        /// Commit to be merged.
        commit: String,
        /// Message of the merge commit.
        message: String,
    },
    /// Pick the changes of a commit against its parent.
    Pick {
        /// Commit to be picked.
        commit: String,
        /// Its parent; `None` for a root commit.
        parent: Option<String>,
        /// True to name the original commit in the message.
        says_origin: bool,
    },
    /// Apply a mail as a commit.
    Mail {
        /// Original commit, if the mail names it; it may be unknown here.
        commit: Option<String>,
        /// Blob of the patch; `None` for a commit that changes nothing.
        patch: Option<String>,
        /// Subject of the mail.
        subject: String,
        /// Blob of the commit message.
        message: String,
        /// Author of the commit.
        author: Identity,
        /// True to fall back on a three-way merge.
        three_way: bool,
    },
    /// Apply a patch to the view.
    Patch {
        /// Blob of the patch.
        patch: String,
        /// Number of leading components that are stripped from its paths.
        strip: u8,
        /// True to apply it in reverse.
        reverse: bool,
        /// True to try a three-way merge first.
        three_way: bool,
    },
    /// Merge a state's own changes into the commit's tree.
    ///
    /// The result replaces the uncommitted changes.
    Restored {
        /// Tree that the state's own changes are relative to.
        base_tree: String,
        /// Tree of the state's view.
        view_tree: String,
        /// Paths to restore; empty: all.
        paths: Vec<PathText>,
    },
    /// Take uncommitted changes along.
    Uncommitted {
        /// Tree of HEAD that the changes are relative to.
        head_tree: String,
        /// Tree of the view with the changes.
        view_tree: String,
        /// True if the changes are `ours` in conflicts.
        ///
        /// They are in a merge, as the fork's commits are. In a rebase they are `theirs`, as the
        /// commits are.
        is_ours: bool,
    },
}

impl Sequence {
    /// Makes a sequence that picks commits as `git rebase` does.
    pub fn of(items: Vec<SequenceItem>) -> Sequence {
        Sequence {
            onto: None,
            items,
            emptied: Emptied::Drop,
            keep_empty: true,
            reuse: false,
        }
    }

    /// Returns all objects that the sequence needs, with their kinds.
    pub fn needs(&self) -> impl Iterator<Item = (NeededKind, &String)> {
        let of_items = self.items.iter().flat_map(|item| {
            let (first, second) = match item {
                SequenceItem::Merge { commit, .. } | SequenceItem::Pick { commit, .. } => {
                    (Some((NeededKind::Commit, commit)), None)
                }
                SequenceItem::Mail { patch, message, .. } => (
                    Some((NeededKind::Blob, message)),
                    patch.as_ref().map(|patch| (NeededKind::Blob, patch)),
                ),
                SequenceItem::Patch { patch, .. } => (Some((NeededKind::Blob, patch)), None),
                SequenceItem::Uncommitted {
                    head_tree,
                    view_tree,
                    ..
                }
                | SequenceItem::Restored {
                    base_tree: head_tree,
                    view_tree,
                    ..
                } => (
                    Some((NeededKind::Tree, head_tree)),
                    Some((NeededKind::Tree, view_tree)),
                ),
            };
            first.into_iter().chain(second)
        });
        self.onto
            .iter()
            .map(|onto| (NeededKind::Commit, onto))
            .chain(of_items)
    }

    /// Returns whether both do the same, apart from uncommitted changes.
    pub fn does_the_same(&self, other: &Sequence) -> bool {
        let items = |sequence: &Sequence| -> Vec<SequenceItem> {
            let is_commit =
                |item: &&SequenceItem| !matches!(item, SequenceItem::Uncommitted { .. });
            sequence.items.iter().filter(is_commit).cloned().collect()
        };
        let without_items = |sequence: &Sequence| Sequence {
            items: Vec::new(),
            ..sequence.clone()
        };
        items(self) == items(other) && without_items(self) == without_items(other)
    }

    /// Returns the index of the item that amendments are added to.
    ///
    /// It is the last item that makes a commit, else the last item.
    fn amended(&self) -> usize {
        let last = self.items.len().saturating_sub(1);
        self.items
            .iter()
            .rposition(SequenceItem::makes_commit)
            .unwrap_or(last)
    }
}

/// Kind of a needed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededKind {
    /// A commit.
    Commit,
    /// A tree.
    Tree,
    /// A blob.
    Blob,
}

impl SequenceItem {
    fn makes_commit(&self) -> bool {
        match self {
            SequenceItem::Merge { .. } | SequenceItem::Pick { .. } | SequenceItem::Mail { .. } => {
                true
            }
            SequenceItem::Patch { .. }
            | SequenceItem::Restored { .. }
            | SequenceItem::Uncommitted { .. } => false,
        }
    }

    /// Returns the item's name in a conflict, if it is a commit.
    ///
    /// The name is a commit in hex, or a mail's subject.
    fn name(&self) -> Option<String> {
        match self {
            SequenceItem::Pick { commit, .. } | SequenceItem::Merge { commit, .. } => {
                Some(commit.clone())
            }
            SequenceItem::Mail {
                commit, subject, ..
            } => Some(commit.as_ref().unwrap_or(subject).clone()),
            SequenceItem::Patch { .. }
            | SequenceItem::Restored { .. }
            | SequenceItem::Uncommitted { .. } => None,
        }
    }
}

/// Options for running a sequence.
#[derive(Debug, Clone, Default)]
pub struct RunOptions<'a> {
    /// Options for merging trees.
    pub merge: MergeOptions,
    /// True to merge tips without a common ancestor.
    pub allow_unrelated: bool,
    /// Author of merge commits; `None` takes git's own.
    pub author: Option<Identity>,
    /// Committer of all commits; `None` takes git's own.
    pub committer: Option<Identity>,
    /// Review with resolutions of conflicts.
    pub review: Option<&'a ReviewRecord>,
}

/// Outcome of running a sequence.
#[derive(Debug, Clone)]
pub struct SequenceOutcome {
    /// Last commit and its tree.
    pub tip: Tip,
    /// Tree of the new view; `None` if no item concerns the view.
    pub view: Option<ObjectId>,
    /// Items that are done, in order.
    pub done: Vec<ItemDone>,
    /// Conflicts that the strategy settled.
    pub settled: Vec<ConflictRecord>,
    /// Conflicts that the review resolved, with the resolutions.
    pub resolved: Vec<ConflictRecord>,
    /// Conflict that stopped the run; `None` if all items are done.
    pub stopped: Option<Stopped>,
}

impl SequenceOutcome {
    /// Returns the tree that the sequence leads to.
    ///
    /// If it stopped, this is the tree without the conflicts.
    pub fn tree_id(&self) -> ObjectId {
        match &self.stopped {
            Some(stopped) => stopped.tree_id,
            None => self.view.unwrap_or(self.tip.tree_id),
        }
    }
}

/// Item that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemDone {
    /// Index of the item in the sequence.
    pub item: usize,
    /// Kind of the outcome.
    pub how: ItemResult,
    /// Commit that came of it; `None` if there is none.
    pub commit_id: Option<ObjectId>,
}

/// Outcome of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemResult {
    /// A commit was made.
    Committed,
    /// HEAD moves to an existing commit.
    FastForward,
    /// The tip already had it.
    Contained,
    /// Its changes became empty, and it was dropped.
    LeftOut,
    /// The view has it.
    Applied,
}

/// State of a sequence that stopped at conflicts.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// Index of the item in the sequence.
    pub item: usize,
    /// Open conflicts, sorted by path.
    pub conflicts: Vec<ConflictRecord>,
    /// Tree of the item without the conflicts.
    pub tree_id: ObjectId,
}
