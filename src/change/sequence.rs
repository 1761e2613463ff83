//! Sequences: changes that are made on a commit one after another. Commits are merged or made
//! again, mails and patches applied, and what is uncommitted comes along.
//!
//! A sequence is a value that names all it needs, so that it can be run as often as anybody likes:
//! for a dry run, for what is really done, and once more when somebody has said what is to become
//! of its conflicts. Running one adds objects and moves nothing.

mod mails;
mod run;

pub use mails::{of_mailbox, take_messages};
pub use run::run;

use serde::{Deserialize, Serialize};

use super::ChangeError;
use super::merge::Tip;
use super::review::{ConflictRecord, ReviewRecord};
use tine_git::{Identity, ObjectId};
use tine_merge::MergeOptions;
use tine_path::text::PathText;

/// What somebody asks for. A sequence is made of it, of how things are then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "kebab-case")]
pub enum SequenceRequest {
    /// A fork is brought up to a revision, or to where the branch is that it came from.
    Update { from: Option<String>, rebase: bool },
    CherryPick {
        /// Revisions and ranges.
        commits: Vec<String>,
        /// Of merges: against which parent, counted from 1.
        mainline: Option<usize>,
        says_origin: bool,
        emptied: Emptied,
    },
    /// A patch, kept as a blob (its id in hex), is applied to a fork's view.
    Patch {
        patch: String,
        strip: u8,
        reverse: bool,
        three_way: bool,
    },
    /// What a state has of its own goes onto the target's HEAD. Trees in hex.
    Restore {
        /// The state, as it was named.
        point: String,
        /// What it has of its own it has against this tree.
        base_tree: String,
        view_tree: String,
        /// None: everything.
        paths: Vec<PathText>,
    },
    /// The commits of a handoff are made again.
    Mailbox { handoff: u64, three_way: bool },
}

/// What is to be done, from the first to the last. Ids are in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// The commit that it begins on; default: the target's.
    pub onto: Option<String>,
    pub items: Vec<Item>,
    /// What becomes of commits of whose changes nothing is left.
    pub emptied: Emptied,
    /// Whether commits that change nothing by themselves are made again.
    pub keep_empty: bool,
    /// Whether a commit that stands where it is to be made is taken as it is.
    pub reuse: bool,
}

/// What becomes of a commit that would change nothing.
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

/// One thing to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "item", rename_all = "kebab-case")]
pub enum Item {
    /// A commit is merged; where nothing but it is there, HEAD moves to it.
    Merge { commit: String, message: String },
    /// What a commit changed against its parent (`None`: it has none) is done again, as a commit.
    Pick {
        commit: String,
        parent: Option<String>,
        /// Whether the message says where it is from.
        says_origin: bool,
    },
    /// What a mail has is applied, as a commit.
    Mail {
        /// The commit that it was made of, where the mail says so; it need not be known here.
        commit: Option<String>,
        /// A blob; `None` of a commit that changes nothing.
        patch: Option<String>,
        subject: String,
        /// A blob.
        message: String,
        author: Identity,
        three_way: bool,
    },
    /// A patch is applied to the view.
    Patch {
        /// A blob.
        patch: String,
        strip: u8,
        reverse: bool,
        three_way: bool,
    },
    /// What a state has of its own, against `base_tree`, goes onto the commit, and takes the place
    /// of what is uncommitted.
    Restored {
        base_tree: String,
        view_tree: String,
        /// None: everything.
        paths: Vec<PathText>,
    },
    /// What is uncommitted comes along.
    Uncommitted {
        head_tree: String,
        view_tree: String,
        /// Whether that is `ours` in conflicts, as the fork's commits are in a merge; else it is
        /// put on what there is by then, as commits are in a rebase.
        is_ours: bool,
    },
}

impl Sequence {
    /// Of commits that are made again; the rest as `git rebase` has it.
    pub fn of(items: Vec<Item>) -> Sequence {
        Sequence {
            onto: None,
            items,
            emptied: Emptied::Drop,
            keep_empty: true,
            reuse: false,
        }
    }

    /// The ids of all blobs and commits that it needs.
    pub fn needs(&self) -> impl Iterator<Item = (NeededKind, &String)> {
        let of_items = self.items.iter().flat_map(|item| {
            let (first, second) = match item {
                Item::Merge { commit, .. } | Item::Pick { commit, .. } => {
                    (Some((NeededKind::Commit, commit)), None)
                }
                Item::Mail { patch, message, .. } => (
                    Some((NeededKind::Blob, message)),
                    patch.as_ref().map(|patch| (NeededKind::Blob, patch)),
                ),
                Item::Patch { patch, .. } => (Some((NeededKind::Blob, patch)), None),
                Item::Uncommitted {
                    head_tree,
                    view_tree,
                    ..
                }
                | Item::Restored {
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

    /// The item to whose tree changes beside the conflicts are added: the last that makes a commit.
    fn amended(&self) -> usize {
        let last = self.items.len().saturating_sub(1);
        self.items
            .iter()
            .rposition(Item::makes_commit)
            .unwrap_or(last)
    }
}

/// What kind of object is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededKind {
    Commit,
    Tree,
    Blob,
}

impl Sequence {
    /// Whether the same is done, to whatever is uncommitted.
    pub fn does_the_same(&self, other: &Sequence) -> bool {
        let items = |sequence: &Sequence| -> Vec<Item> {
            let is_commit = |item: &&Item| !matches!(item, Item::Uncommitted { .. });
            sequence.items.iter().filter(is_commit).cloned().collect()
        };
        let without_items = |sequence: &Sequence| Sequence {
            items: Vec::new(),
            ..sequence.clone()
        };
        items(self) == items(other) && without_items(self) == without_items(other)
    }
}

impl Item {
    fn makes_commit(&self) -> bool {
        match self {
            Item::Merge { .. } | Item::Pick { .. } | Item::Mail { .. } => true,
            Item::Patch { .. } | Item::Restored { .. } | Item::Uncommitted { .. } => false,
        }
    }

    /// How it is spoken of in a conflict: a commit in hex, a mail's subject; `None` of what is no
    /// commit.
    fn name(&self) -> Option<String> {
        match self {
            Item::Pick { commit, .. } | Item::Merge { commit, .. } => Some(commit.clone()),
            Item::Mail {
                commit, subject, ..
            } => Some(commit.as_ref().unwrap_or(subject).clone()),
            Item::Patch { .. } | Item::Restored { .. } | Item::Uncommitted { .. } => None,
        }
    }
}

/// How a sequence is run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions<'a> {
    pub merge: MergeOptions,
    pub allow_unrelated: bool,
    pub author: Option<Identity>,
    pub committer: Option<Identity>,
    /// What is to become of conflicts.
    pub review: Option<&'a ReviewRecord>,
}

/// What came of a sequence.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The last commit, and its tree.
    pub tip: Tip,
    /// What the view is to be, where that was asked about.
    pub view: Option<ObjectId>,
    pub done: Vec<Done>,
    /// Conflicts that the strategy settled.
    pub settled: Vec<ConflictRecord>,
    /// Those of the review's that were met, with their resolutions.
    pub resolved: Vec<ConflictRecord>,
    pub stopped: Option<Stopped>,
}

impl Ran {
    /// The tree that all of it leads to, or, where it stopped, what could be made without the
    /// conflicts.
    pub fn tree_id(&self) -> ObjectId {
        match &self.stopped {
            Some(stopped) => stopped.tree_id,
            None => self.view.unwrap_or(self.tip.tree_id),
        }
    }
}

/// An item that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Its place in the sequence.
    pub item: usize,
    pub how: DoneHow,
    /// The commit that it came to.
    pub commit_id: Option<ObjectId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoneHow {
    /// A commit was made.
    Committed,
    /// HEAD moves to a commit that was there.
    FastForward,
    /// Nothing was to be done.
    Contained,
    /// Nothing was left of its changes.
    LeftOut,
    /// The view has it.
    Applied,
}

/// Where a sequence has conflicts.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// Its place in the sequence.
    pub item: usize,
    /// Open ones, sorted by path.
    pub conflicts: Vec<ConflictRecord>,
    pub tree_id: ObjectId,
}

pub(super) fn parse_id(hex: &str) -> Result<ObjectId, ChangeError> {
    ObjectId::from_hex(hex.as_bytes()).map_err(|error| super::review::damaged(&error))
}
