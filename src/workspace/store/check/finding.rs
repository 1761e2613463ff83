//! What a check finds, and what can be done about it.

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::layer::check::Depth;
use crate::workspace::fork::ForkName;
use crate::workspace::store::Shelf;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A record of a fork, of its snapshots, of a review, a handoff or a session cannot be read.
    RecordDamaged,
    /// The ref is gone that keeps something from `git gc`.
    RefMissing,
    /// A ref is kept for a fork that is no more.
    RefLeaked,
    /// Git has lost an object that is needed.
    ObjectMissing,
    /// The linked worktree of a fork is gone.
    WorktreeMissing,
    /// A layer that a record names is not there.
    LayerMissing,
    /// The log of a layer cannot be read, or it is another layer's.
    LayerDamaged,
    /// Nothing names a layer.
    LayerLeaked,
    /// The bytes of a file are gone.
    ContentMissing,
    /// The bytes of a file are there in part, or cannot be read.
    ContentDamaged,
    /// The patches of a handoff are not as they were made.
    MailboxDamaged,
}

impl FindingKind {
    /// Whether it costs nothing but room.
    pub fn is_leak(self) -> bool {
        matches!(self, FindingKind::LayerLeaked | FindingKind::RefLeaked)
    }

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            FindingKind::RecordDamaged => "record-damaged",
            FindingKind::RefMissing => "ref-missing",
            FindingKind::RefLeaked => "ref-leaked",
            FindingKind::ObjectMissing => "object-missing",
            FindingKind::WorktreeMissing => "worktree-missing",
            FindingKind::LayerMissing => "layer-missing",
            FindingKind::LayerDamaged => "layer-damaged",
            FindingKind::LayerLeaked => "layer-leaked",
            FindingKind::ContentMissing => "content-missing",
            FindingKind::ContentDamaged => "content-damaged",
            FindingKind::MailboxDamaged => "mailbox-damaged",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// The fork that it is about, if it is about one.
    pub fork: Option<String>,
    /// The file, ref or object.
    pub what: String,
    /// What is wrong with it.
    pub detail: String,
    /// What to do.
    pub hint: String,
    /// What was done about it; `None` where nothing was, or could be.
    pub repaired: Option<String>,
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    pub forks: u64,
    pub snapshots: u64,
    pub layers: u64,
    /// Contents of files in layers, and their bytes.
    pub contents: u64,
    pub content_bytes: u64,
    /// Reviews, handoffs and sessions.
    pub records: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    pub checked: Checked,
    pub findings: Vec<Finding>,
}

/// What can be done about a finding.
#[derive(Debug, Clone)]
pub enum Remedy {
    /// Somebody has to decide.
    None,
    /// The ref `refs/tine/<group>/<label>` is to point there.
    Keep {
        group: String,
        label: String,
        id: ObjectId,
    },
    /// … by whatever free label.
    Hold {
        group: String,
        id: ObjectId,
    },
    /// These labels beneath `refs/tine/<group>/` are let go of.
    Release {
        group: String,
        labels: Vec<String>,
    },
    RegisterWorktree(ForkName),
    /// The fork's record, or its list of snapshots, is moved aside with all that only it names.
    SetForkAside(String),
    SetDocumentAside(Shelf, u64),
    /// What nothing names is freed.
    Collect,
}

/// A finding, and the way out of it.
pub struct Found {
    pub finding: Finding,
    pub remedy: Remedy,
}

impl Found {
    pub fn new(
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
            },
            remedy: Remedy::None,
        }
    }

    pub fn with(mut self, remedy: Remedy) -> Found {
        self.remedy = remedy;
        self
    }
}

/// How a store is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckOptions {
    pub depth: Depth,
    /// What can be put right is.
    pub repair: bool,
}
