//! What a check finds, and what can be done about it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::fork::ForkName;
use crate::store::RecordKind;
use tine_git::ObjectId;
use tine_layer::check::Depth;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A record of a fork, of its snapshots, of a review, a handoff or a session cannot be read.
    RecordDamaged,
    /// A record may be whole, and cannot be read: it is another user's, for example.
    RecordUnreadable,
    /// HEAD, the index, the worktree, the refs or a layer of a fork, or the store's format, may be
    /// whole, and cannot be read.
    Unreadable,
    /// A named pipe, a socket or a device stands in the place of a file.
    NotAFile,
    /// HEAD of a fork holds no HEAD, or leads to a commit or branch that is gone.
    HeadDamaged,
    /// The index of a fork is no index, or is gone.
    IndexDamaged,
    /// The `.git` file of a fork leads nowhere.
    DotGitDamaged,
    /// The file of a branch holds no ref.
    RefDamaged,
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
    /// A dependency tree that was kept for a fork is lost or damaged.
    GenerationDamaged,
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
    /// What a repair would do about it, in a dry run of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<String>,
}

impl Finding {
    /// With what a repair would do, in a dry run of one.
    #[must_use]
    pub fn planned(mut self, is_wanted: bool, plan: &str) -> Finding {
        self.planned = is_wanted.then(|| plan.to_owned());
        self
    }

    /// With what came of putting it right, if that was tried.
    #[must_use]
    pub fn told<E: std::fmt::Display>(
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
pub(super) enum Remedy {
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
    /// HEAD goes back to the newest commit of its own that the repository has.
    MendHead(ForkName),
    /// The branch (short name) goes back to the newest commit of its own that the repository has.
    MendBranch(String),
    /// The index is made again, of HEAD.
    MendIndex(ForkName),
    MendDotGit(ForkName),
    /// `format` and its copy are written anew.
    MendFormat,
    /// The fork's record, or its list of snapshots, is moved aside with all that only it names.
    SetForkAside(String),
    SetDocumentAside(RecordKind, u64),
    /// A file in the place of a directory, at this path in the store, is moved aside.
    SetFileAside(PathBuf),
    /// What stands in the place of a file at this path is moved aside, under this name.
    SetSpecialAside(PathBuf, PathBuf),
    /// The log of the fork's open layer is cut before the damage.
    CutLayer(ForkName, u64),
    /// What nothing names is freed.
    Collect,
}

impl Remedy {
    /// What it does, in words; `None` where it does nothing.
    pub(super) fn plan(&self) -> Option<String> {
        Some(match self {
            Remedy::None => return None,
            Remedy::Keep { group, label, id } => format!("set refs/tine/{group}/{label} to {id}"),
            Remedy::Hold { id, .. } => format!("set a ref that keeps {id}"),
            Remedy::Release { group, labels } => {
                format!("remove refs/tine/{group}/{{{}}}", labels.join(","))
            }
            Remedy::RegisterWorktree(_) => "register the worktree again".to_owned(),
            Remedy::MendHead(_) => "take HEAD to the newest commit of its own that is there".to_owned(),
            Remedy::MendBranch(_) => "put it back at the newest commit of its own that is there".to_owned(),
            Remedy::MendIndex(_) => "make the index again, of HEAD".to_owned(),
            Remedy::MendDotGit(_) => "write `.git` anew".to_owned(),
            Remedy::MendFormat => "write it anew, of its copy".to_owned(),
            Remedy::SetForkAside(_) | Remedy::SetDocumentAside(..) => {
                "move it aside, with what only it may name, and remove its refs, which others take over"
                    .to_owned()
            }
            Remedy::SetFileAside(_) | Remedy::SetSpecialAside(..) => "move it aside".to_owned(),
            Remedy::CutLayer(..) => {
                "set a copy of the layer aside, and cut its log before the first damaged record, so that the fork shows what was before; an empty log takes the place of one that is missing"
                    .to_owned()
            }
            Remedy::Collect => "free it".to_owned(),
        })
    }
}

/// A finding, and the way out of it.
pub(super) struct Found {
    pub finding: Finding,
    pub remedy: Remedy,
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
            remedy: Remedy::None,
        }
    }

    /// Whether it is the same trouble, which a repair may have said more about.
    pub(super) fn is_as(&self, other: &Found) -> bool {
        let (one, other) = (&self.finding, &other.finding);
        one.kind == other.kind && one.what == other.what && one.detail.starts_with(&other.detail)
    }

    pub(super) fn with(mut self, remedy: Remedy) -> Found {
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
    /// It is only said what a repair would do.
    pub dry_run: bool,
}
