//! Findings of a check, and their repairs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::RecordKind;
use crate::fork::ForkName;
use tine_git::ObjectId;
use tine_layer::check::Depth;

/// Kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A damaged record of a fork, snapshots, review, handoff or session.
    RecordDamaged,
    /// An unreadable record that may be valid, for example another user's.
    RecordUnreadable,
    /// An unreadable file that may be valid.
    ///
    /// It is HEAD, index, worktree, refs or a layer of a fork, or the store's format.
    Unreadable,
    /// A named pipe, socket or device in the place of a file.
    NotAFile,
    /// A fork's HEAD that is invalid or leads nowhere.
    HeadDamaged,
    /// A fork's index that is invalid or missing.
    IndexDamaged,
    /// A fork's `.git` file that leads nowhere.
    DotGitDamaged,
    /// A branch whose file is not a valid ref.
    RefDamaged,
    /// A missing ref that must keep an object from `git gc`.
    RefMissing,
    /// A ref of a deleted fork.
    RefLeaked,
    /// A needed object that git has lost.
    ObjectMissing,
    /// A missing linked worktree of a fork.
    WorktreeMissing,
    /// A missing layer that a record names.
    LayerMissing,
    /// A layer whose log is unreadable or another layer's.
    LayerDamaged,
    /// A layer that nothing names.
    LayerLeaked,
    /// Missing bytes of a file.
    ContentMissing,
    /// Incomplete or unreadable bytes of a file.
    ContentDamaged,
    /// A lost or damaged generation of a dependency tree.
    GenerationDamaged,
    /// A handoff whose patches have changed.
    MailboxDamaged,
}

impl FindingKind {
    /// Returns whether the finding costs only disk space.
    pub fn is_leak(self) -> bool {
        matches!(self, FindingKind::LayerLeaked | FindingKind::RefLeaked)
    }

    /// Returns the serialized form.
    pub fn word(self) -> &'static str {
        match self {
            FindingKind::RecordDamaged => "record-damaged",
            FindingKind::RecordUnreadable => "record-unreadable",
            FindingKind::Unreadable => "unreadable",
            FindingKind::NotAFile => "not-a-file",
            FindingKind::HeadDamaged => "head-damaged",
            FindingKind::IndexDamaged => "index-damaged",
            FindingKind::DotGitDamaged => "dot-git-damaged",
            FindingKind::RefDamaged => "ref-damaged",
            FindingKind::RefMissing => "ref-missing",
            FindingKind::RefLeaked => "ref-leaked",
            FindingKind::ObjectMissing => "object-missing",
            FindingKind::WorktreeMissing => "worktree-missing",
            FindingKind::LayerMissing => "layer-missing",
            FindingKind::LayerDamaged => "layer-damaged",
            FindingKind::LayerLeaked => "layer-leaked",
            FindingKind::ContentMissing => "content-missing",
            FindingKind::ContentDamaged => "content-damaged",
            FindingKind::GenerationDamaged => "generation-damaged",
            FindingKind::MailboxDamaged => "mailbox-damaged",
        }
    }
}

/// Damage that a check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Kind of the damage.
    pub kind: FindingKind,
    /// Name of the affected fork, if any.
    pub fork: Option<String>,
    /// The damaged file, ref or object.
    pub what: String,
    /// Description of the damage.
    pub detail: String,
    /// Suggested action.
    pub hint: String,
    /// Description of the repair that was done; `None` if none was.
    pub repaired: Option<String>,
    /// Description of the repair that a dry run would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<String>,
}

impl Finding {
    /// Adds the planned repair if `is_wanted`, for a dry run.
    #[must_use]
    pub fn planned(mut self, is_wanted: bool, plan: &str) -> Finding {
        self.planned = is_wanted.then(|| plan.to_owned());
        self
    }

    /// Adds the result of a repair, if one was tried.
    #[must_use]
    pub fn with_result<E: std::fmt::Display>(
        mut self,
        done: Option<Result<(), E>>,
        word: &str,
    ) -> Finding {
        match done {
            Some(Ok(())) => self.repaired = Some(word.to_owned()),
            Some(Err(error)) => {
                self.detail = format!("{}; it could not be put right: {error}", self.detail);
            }
            None => {}
        }
        self
    }
}

/// Counts of checked items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Number of forks.
    pub forks: u64,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Number of layers.
    pub layers: u64,
    /// Number of file contents in layers.
    pub contents: u64,
    /// Total size of these contents, in bytes.
    pub content_bytes: u64,
    /// Number of other records: reviews, handoffs, sessions.
    pub records: u64,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Counts of checked items.
    pub checked: Checked,
    /// Damage found, sorted by fork and kind.
    pub findings: Vec<Finding>,
}

/// Repair of a finding.
#[derive(Debug, Clone)]
pub(super) enum Repair {
    /// No automatic repair; a user must decide.
    None,
    /// Sets the ref `refs/tine/<group>/<label>` to this object.
    SetRef {
        group: String,
        label: String,
        id: ObjectId,
    },
    /// Sets any free ref in the group to this object.
    AddRef {
        group: String,
        id: ObjectId,
    },
    /// Removes these refs below `refs/tine/<group>/`.
    DeleteRefs {
        group: String,
        labels: Vec<String>,
    },
    RegisterWorktree(ForkName),
    /// Sets HEAD to its newest commit that still exists.
    MendHead(ForkName),
    /// Sets the branch (short name) to its newest commit that still exists.
    MendBranch(String),
    /// Rebuilds the index from HEAD.
    MendIndex(ForkName),
    MendDotGit(ForkName),
    /// Rewrites `format` and its copy.
    MendFormat,
    /// Moves a fork's record or snapshot list aside.
    ///
    /// Everything that only it names goes with it.
    SetForkAside(String),
    SetDocumentAside(RecordKind, u64),
    /// Moves aside a file in the place of a store directory.
    SetFileAside(PathBuf),
    /// Moves aside a special file at this path, under this name.
    SetSpecialAside(PathBuf, PathBuf),
    /// Cuts the log of the fork's open layer before the damage.
    CutLayer(ForkName, u64),
    /// Frees everything that nothing names.
    Collect,
}

impl Repair {
    /// Describes the repair; `None` if there is none.
    pub(super) fn plan(&self) -> Option<String> {
        Some(match self {
            Repair::None => return None,
            Repair::SetRef { group, label, id } => format!("set refs/tine/{group}/{label} to {id}"),
            Repair::AddRef { id, .. } => format!("set a ref that keeps {id}"),
            Repair::DeleteRefs { group, labels } => {
                format!("remove refs/tine/{group}/{{{}}}", labels.join(","))
            }
            Repair::RegisterWorktree(_) => "register the worktree again".to_owned(),
            Repair::MendHead(_) => "take HEAD to the newest commit of its own that is there".to_owned(),
            Repair::MendBranch(_) => "put it back at the newest commit of its own that is there".to_owned(),
            Repair::MendIndex(_) => "make the index again, of HEAD".to_owned(),
            Repair::MendDotGit(_) => "write `.git` anew".to_owned(),
            Repair::MendFormat => "write it anew, of its copy".to_owned(),
            Repair::SetForkAside(_) | Repair::SetDocumentAside(..) => {
                "move it aside, with what only it may name, and remove its refs, which others take over"
                    .to_owned()
            }
            Repair::SetFileAside(_) | Repair::SetSpecialAside(..) => "move it aside".to_owned(),
            Repair::CutLayer(..) => {
                "set a copy of the layer aside, and cut its log before the first damaged record, so that the fork shows what was before; an empty log takes the place of one that is missing"
                    .to_owned()
            }
            Repair::Collect => "free it".to_owned(),
        })
    }
}

/// Finding with its repair.
pub(super) struct Found {
    pub finding: Finding,
    pub repair: Repair,
}

impl Found {
    pub(super) fn new(
        kind: FindingKind,
        fork: Option<&str>,
        what: impl ToString,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Found {
        Found {
            finding: Finding {
                kind,
                fork: fork.map(str::to_owned),
                what: what.to_string(),
                detail: detail.into(),
                hint: hint.into(),
                repaired: None,
                planned: None,
            },
            repair: Repair::None,
        }
    }

    /// Returns whether it is the same damage, ignoring a repair's additions.
    pub(super) fn is_same_damage(&self, other: &Found) -> bool {
        let (one, other) = (&self.finding, &other.finding);
        one.kind == other.kind && one.what == other.what && one.detail.starts_with(&other.detail)
    }

    pub(super) fn with(mut self, repair: Repair) -> Found {
        self.repair = repair;
        self
    }
}

/// Options of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    /// Depth of the check of contents.
    pub depth: Depth,
    /// True to repair what can be repaired.
    pub repair: bool,
    /// True to report only what a repair would do.
    pub dry_run: bool,
}
