//! A fork's name and its durable record.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::base_nodes::BaseAttrs;
use super::carry::CarryRecord;
use super::error::StoreError;
use super::operations::HeadMove;
use super::snapshot::SnapshotEvery;
use tine_attr::Timestamp;
use tine_git::{ConversionSettings, ObjectId};
use tine_path::text::{host_path, optional_host_path};

/// A fork's name: 1 to 64 ASCII letters, digits, `.`, `_` and `-`, beginning with a letter or
/// digit, without `..`, and not ending in `.` or `.lock`, so that it can be a directory, a ref
/// component and a branch part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ForkName(String);

impl ForkName {
    pub fn parse(name: &str) -> Result<ForkName, StoreError> {
        let invalid = |reason| {
            Err(StoreError::InvalidName {
                name: name.to_owned(),
                reason,
            })
        };
        if name.is_empty() {
            return invalid("it is empty");
        }
        if name.len() > 64 {
            return invalid("it is longer than 64 bytes");
        }
        if !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        {
            return invalid("only letters, digits, '.', '_' and '-' may be in it");
        }
        if !name.as_bytes()[0].is_ascii_alphanumeric() {
            return invalid("it must begin with a letter or a digit");
        }
        if name.contains("..") || name.ends_with('.') || name.ends_with(".lock") {
            return invalid("'..' in it, and '.' or '.lock' at its end, are not allowed in a ref");
        }
        Ok(ForkName(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ForkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ForkName {
    type Err = StoreError;
    fn from_str(name: &str) -> Result<ForkName, StoreError> {
        ForkName::parse(name)
    }
}

impl TryFrom<String> for ForkName {
    type Error = StoreError;
    fn try_from(name: String) -> Result<ForkName, StoreError> {
        ForkName::parse(&name)
    }
}

impl From<ForkName> for String {
    fn from(name: ForkName) -> String {
        name.0
    }
}

/// What unmounting does with the layer: in words `keep`, `commit`, `discard`, `merge`,
/// `merge:TARGET`, `handoff` or `handoff:TARGET`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UnmountPolicy {
    /// The layer stays as it is.
    #[default]
    Keep,
    /// What `git add -A` would take is committed; the rest of the layer stays.
    Commit,
    /// The layer is emptied, after its state was kept as a snapshot.
    Discard,
    /// What `git add -A` would take is committed and merged into a fork or branch; default: the
    /// branch it came from.
    Merge { into: Option<String> },
    /// The layer stays as it is, and what is committed is handed over to a fork or branch; default:
    /// what it came from.
    Handoff { to: Option<String> },
}

impl UnmountPolicy {
    /// The fork or branch that it names.
    pub fn target(&self) -> Option<&str> {
        match self {
            UnmountPolicy::Merge { into: target } | UnmountPolicy::Handoff { to: target } => {
                target.as_deref()
            }
            UnmountPolicy::Keep | UnmountPolicy::Commit | UnmountPolicy::Discard => None,
        }
    }

    /// As [`UnmountPolicy::target`].
    pub fn target_mut(&mut self) -> Option<&mut String> {
        match self {
            UnmountPolicy::Merge { into: target } | UnmountPolicy::Handoff { to: target } => {
                target.as_mut()
            }
            UnmountPolicy::Keep | UnmountPolicy::Commit | UnmountPolicy::Discard => None,
        }
    }

    /// `None` for what is no such word.
    pub fn parse(word: &str) -> Option<UnmountPolicy> {
        match word.split_once(':') {
            Some(("merge", into)) if !into.is_empty() => Some(UnmountPolicy::Merge {
                into: Some(into.to_owned()),
            }),
            Some(("handoff", to)) if !to.is_empty() => Some(UnmountPolicy::Handoff {
                to: Some(to.to_owned()),
            }),
            Some(_) => None,
            None => match word {
                "keep" => Some(UnmountPolicy::Keep),
                "commit" => Some(UnmountPolicy::Commit),
                "discard" => Some(UnmountPolicy::Discard),
                "merge" => Some(UnmountPolicy::Merge { into: None }),
                "handoff" => Some(UnmountPolicy::Handoff { to: None }),
                _ => None,
            },
        }
    }
}

impl fmt::Display for UnmountPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnmountPolicy::Keep => f.write_str("keep"),
            UnmountPolicy::Commit => f.write_str("commit"),
            UnmountPolicy::Discard => f.write_str("discard"),
            UnmountPolicy::Merge { into: None } => f.write_str("merge"),
            UnmountPolicy::Merge { into: Some(into) } => write!(f, "merge:{into}"),
            UnmountPolicy::Handoff { to: None } => f.write_str("handoff"),
            UnmountPolicy::Handoff { to: Some(to) } => write!(f, "handoff:{to}"),
        }
    }
}

impl TryFrom<String> for UnmountPolicy {
    type Error = String;

    fn try_from(word: String) -> Result<UnmountPolicy, String> {
        UnmountPolicy::parse(&word).ok_or_else(|| {
            format!("{word:?} is none of `keep`, `commit`, `discard`, `merge`, `merge:TARGET`, `handoff` and `handoff:TARGET`")
        })
    }
}

impl From<UnmountPolicy> for String {
    fn from(policy: UnmountPolicy) -> String {
        policy.to_string()
    }
}

/// What a fork has outside the store that no scan would find, and that goes with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// A branch (short name), and the commit (hex) at which it is deleted; one that moved, or that
    /// somebody has checked out, stays.
    pub branch: Option<(String, String)>,
    /// A directory, which is removed if it is empty.
    #[serde(with = "optional_host_path", default)]
    pub mount_dir: Option<PathBuf>,
}

/// What kind of work a mount is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountProfile {
    /// Many files: opening one costs nothing
    #[default]
    Everyday,
    /// Large files: the kernel reads them by itself; opening any file takes longer (root only)
    LargeFiles,
}

/// How a fork is mounted: what is not as usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountSettings {
    /// Users other than the fork's owner may enter.
    pub allow_other: bool,
    /// Set-id bits and capabilities of files count. Root's to allow.
    pub suid: bool,
    /// Device nodes lead to devices. Root's to allow.
    pub dev: bool,
    pub profile: MountProfile,
    /// Text that a person has in an editor and has not saved is shown in place of what is in the
    /// file.
    pub overlay_buffers: bool,
    /// Where commands that tine runs in the fork see it; `None`: as `tine.atOrigin` says.
    pub at_origin: Option<SeenAt>,
}

/// Where commands that tine runs in a fork see it. Written as `false`, `true` and `"parent"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SeenAtText", into = "SeenAtText")]
pub enum SeenAt {
    Own,
    /// The main checkout's path.
    Origin,
    /// The place of the fork that it began as.
    Parent,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SeenAtText {
    IsOrigin(bool),
    Named(SeenAtName),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SeenAtName {
    Parent,
}

impl From<SeenAtText> for SeenAt {
    fn from(text: SeenAtText) -> SeenAt {
        match text {
            SeenAtText::IsOrigin(false) => SeenAt::Own,
            SeenAtText::IsOrigin(true) => SeenAt::Origin,
            SeenAtText::Named(SeenAtName::Parent) => SeenAt::Parent,
        }
    }
}

impl From<SeenAt> for SeenAtText {
    fn from(seen_at: SeenAt) -> SeenAtText {
        match seen_at {
            SeenAt::Own => SeenAtText::IsOrigin(false),
            SeenAt::Origin => SeenAtText::IsOrigin(true),
            SeenAt::Parent => SeenAtText::Named(SeenAtName::Parent),
        }
    }
}

/// What somebody who mounts a fork asks for, beside the settings that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountRequest {
    pub allow_other: bool,
    pub suid: bool,
    pub dev: bool,
    pub profile: Option<MountProfile>,
    pub overlay_buffers: Option<bool>,
    pub at_origin: Option<SeenAt>,
}

impl MountSettings {
    /// What was allowed stays allowed; of the rest the wish counts.
    #[must_use]
    pub fn with(self, wishes: MountRequest) -> MountSettings {
        MountSettings {
            allow_other: self.allow_other || wishes.allow_other,
            suid: self.suid || wishes.suid,
            dev: self.dev || wishes.dev,
            profile: wishes.profile.unwrap_or(self.profile),
            overlay_buffers: wishes.overlay_buffers.unwrap_or(self.overlay_buffers),
            at_origin: wishes.at_origin.or(self.at_origin),
        }
    }
}

/// The fork that another one began as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub fork: ForkName,
    /// As of which snapshot; `None` as it was at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<ForkName>,
}

/// A move of HEAD, and the view with it. Written down before it begins: whatever of it
/// was done when the process died, the rest is done when the fork is opened next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advancing {
    #[serde(flatten)]
    pub moved: HeadMove,
    pub reflog: String,
    /// The command line.
    pub command: String,
}

/// Where a fork's own commits begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForkPoint {
    /// After this commit, in hex.
    After(String),
    /// With a root commit: all are its own.
    Root,
}

impl ForkPoint {
    /// The commit in hex; `None` where all commits are its own.
    pub fn commit(&self) -> Option<&str> {
        match self {
            ForkPoint::After(commit) => Some(commit),
            ForkPoint::Root => None,
        }
    }
}

impl From<Option<ObjectId>> for ForkPoint {
    fn from(commit_id: Option<ObjectId>) -> ForkPoint {
        match commit_id {
            Some(commit_id) => ForkPoint::After(commit_id.to_string()),
            None => ForkPoint::Root,
        }
    }
}

impl ForkRecord {
    /// Records where the fork's own commits begin; `None`: all are its own.
    pub fn put_fork_point(&mut self, commit_id: Option<ObjectId>) {
        self.fork_point = Some(commit_id.into());
        self.former_fork_point = None;
    }
}

/// Times that the first record in a fork's open layer gives to files, by which it can be told
/// whether it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// The snapshot of what the fork was before.
    pub before: ForkName,
    pub open_layer: u64,
}

/// What the store remembers of a fork: one atomically replaced file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkRecord {
    pub name: ForkName,
    /// Seconds since 1970.
    pub created_secs: i64,
    /// The commit the fork stands on, in hex; `None` where the repository had none yet. Changes
    /// only when the fork is reset.
    pub base_commit: Option<String>,
    /// Its tree, in hex; of a fork that took up a state the state's tree.
    pub base_tree: String,
    pub base_attrs: BaseAttrs,
    /// What base files are converted by: the settings of the time when the fork was made. Forks of
    /// earlier versions have none and take those that are configured when they are opened.
    #[serde(default)]
    pub conversions: Option<ConversionSettings>,
    /// The fork that it began as. It may have been deleted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The branch it was made on (short name), under the name that this has now, for reference;
    /// HEAD of the worktree is what counts.
    pub branch: String,
    /// The branch that HEAD was on when somebody looked last (short name), where that is another:
    /// what HEAD is put on should the worktree vanish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_branch: Option<String>,
    /// The branch that it came from (short name), into which its work goes if nobody says where;
    /// `None` where it began at a commit that no branch was named for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_branch: Option<String>,
    /// Where the fork's own commits begin. Forks of earlier versions have none.
    #[serde(
        rename = "own_commits",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub fork_point: Option<ForkPoint>,
    /// The same as earlier versions wrote it, in hex: of a fork on a branch that was there before
    /// it, that branch's tip.
    #[serde(
        rename = "fork_point",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub former_fork_point: Option<String>,
    /// A move of HEAD that was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advancing: Option<Advancing>,
    /// `worktrees/<id>` in the common directory.
    pub worktree_id: String,
    pub on_unmount: UnmountPolicy,
    /// How often a snapshot is taken while it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every: Option<SnapshotEvery>,
    /// Where it is, or would be, mounted.
    #[serde(with = "host_path")]
    pub mount_dir: PathBuf,
    #[serde(flatten)]
    pub settings: MountSettings,
    /// Whether it should be mounted: a daemon that starts mounts it again.
    pub mounted: bool,
    /// What it carries of the main checkout; forks of earlier versions carry nothing.
    #[serde(default)]
    pub carry: Option<CarryRecord>,
    /// When the fork went back to a state, most recently: see
    /// [`LowerStack::since`](super::standing::Standing::since).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_since: Option<Timestamp>,
    /// The open layer's id, and the frozen ones beneath it, newest first.
    pub open_layer: u64,
    pub frozen_layers: Vec<u64>,
    /// A list of snapshots was written, so that one that is not there is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_snapshots: bool,
    /// The fork went to another state in which files have other times than they had there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Renewed>,
}
