//! A fork's name and its durable record.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::places::Places;
use crate::snapshot::SnapshotEvery;
use crate::{Store, StoreError};
use tine_attr::Timestamp;
use tine_git::{ConversionSettings, GitError, ObjectId, Repository, Worktree};
use tine_path::text::{host_path, optional_host_path};
use tine_workspace::{BaseAttrs, CarryRecord, HeadMove};

/// Validated name of a fork.
///
/// It has 1 to 64 ASCII letters, digits, `.`, `_` and `-`, and begins with a letter or digit. It
/// contains no `..` and does not end in `.` or `.lock`. So it can be a directory name, a ref
/// component and part of a branch name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ForkName(String);

impl ForkName {
    /// Validates `name`.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] if `name` breaks a rule of [`ForkName`].
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

    /// Returns the name as text.
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

/// Policy for a fork's changes when it is unmounted.
///
/// Written as `keep`, `commit`, `discard`, `merge`, `merge:TARGET`, `handoff` or `handoff:TARGET`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UnmountPolicy {
    /// Keeps the layer unchanged.
    #[default]
    Keep,
    /// Commits the changes that `git add -A` would take. The rest of the layer stays.
    Commit,
    /// Empties the layer, after a snapshot of its state.
    Discard,
    /// Commits what `git add -A` would take and merges the commits.
    Merge {
        /// Fork or branch to merge into. `None`: the branch that the fork came from.
        into: Option<String>,
    },
    /// Keeps the layer unchanged and hands its commits over.
    Handoff {
        /// Fork or branch that gets the commits. `None`: the parent fork or branch.
        to: Option<String>,
    },
}

impl UnmountPolicy {
    /// Returns the fork or branch that the policy names, if any.
    pub fn target(&self) -> Option<&str> {
        match self {
            UnmountPolicy::Merge { into: target } | UnmountPolicy::Handoff { to: target } => {
                target.as_deref()
            }
            UnmountPolicy::Keep | UnmountPolicy::Commit | UnmountPolicy::Discard => None,
        }
    }

    /// Returns the target of [`UnmountPolicy::target`] for modification.
    pub fn target_mut(&mut self) -> Option<&mut String> {
        match self {
            UnmountPolicy::Merge { into: target } | UnmountPolicy::Handoff { to: target } => {
                target.as_mut()
            }
            UnmountPolicy::Keep | UnmountPolicy::Commit | UnmountPolicy::Discard => None,
        }
    }

    /// Parses the written form; `None` if `word` is not one.
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

/// Resources of a fork outside the store, removed together with the fork.
///
/// A scan of the store would not find them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// Branch (short name) to delete, and its expected commit (hex).
    ///
    /// A branch that has moved since, or that is checked out, stays.
    pub branch: Option<(String, String)>,
    /// Mount directory, removed if it is empty.
    #[serde(with = "optional_host_path", default)]
    pub mount_dir: Option<PathBuf>,
}

/// Kind of work that a mount is tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountProfile {
    /// Many files: opening one costs nothing
    #[default]
    Everyday,
    /// Large files: the kernel reads them by itself; opening any file takes longer (root only)
    LargeFiles,
}

/// Kind of a fork's git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitKind {
    /// A directory: the fork is a repository of its own
    Own,
    /// A file: the fork is a linked worktree of the main repository
    #[default]
    Linked,
}

impl GitKind {
    /// Returns whether the fork is a linked worktree.
    pub fn is_linked(&self) -> bool {
        *self == GitKind::Linked
    }
}

/// Settings of a fork's mount that differ from the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountSettings {
    /// True if users other than the fork's owner may enter.
    pub allow_other: bool,
    /// True if set-id bits and file capabilities are honoured. Only root can allow it.
    pub suid: bool,
    /// True if device nodes give access to devices. Only root can allow it.
    pub dev: bool,
    /// Kind of work that the mount is tuned for.
    pub profile: MountProfile,
    /// True if unsaved editor text is shown in place of file content.
    pub overlay_buffers: bool,
    /// Path at which commands that tine runs see the fork.
    ///
    /// `None`: the configuration `tine.atOrigin` decides.
    pub at_origin: Option<VisiblePath>,
}

/// Path at which commands that tine runs see a fork.
///
/// Serialized as `false`, `true` or `"parent"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SeenAtText", into = "SeenAtText")]
pub enum VisiblePath {
    /// The fork's mount directory.
    Own,
    /// The main checkout's path.
    Origin,
    /// The mount directory of the fork's parent.
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

impl From<SeenAtText> for VisiblePath {
    fn from(text: SeenAtText) -> VisiblePath {
        match text {
            SeenAtText::IsOrigin(false) => VisiblePath::Own,
            SeenAtText::IsOrigin(true) => VisiblePath::Origin,
            SeenAtText::Named(SeenAtName::Parent) => VisiblePath::Parent,
        }
    }
}

impl From<VisiblePath> for SeenAtText {
    fn from(seen_at: VisiblePath) -> SeenAtText {
        match seen_at {
            VisiblePath::Own => SeenAtText::IsOrigin(false),
            VisiblePath::Origin => SeenAtText::IsOrigin(true),
            VisiblePath::Parent => SeenAtText::Named(SeenAtName::Parent),
        }
    }
}

/// Options of a mount command, applied over the fork's [`MountSettings`].
///
/// `None` keeps the fork's setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountRequest {
    /// True to let users other than the owner enter. False does not revoke it.
    pub allow_other: bool,
    /// True to honour set-id bits and capabilities. False does not revoke it.
    pub suid: bool,
    /// True to give access to devices. False does not revoke it.
    pub dev: bool,
    /// Kind of work that the mount is tuned for.
    pub profile: Option<MountProfile>,
    /// True to show unsaved editor text in place of the file's content.
    pub overlay_buffers: Option<bool>,
    /// Path at which commands that tine runs see the fork.
    pub at_origin: Option<VisiblePath>,
}

impl MountSettings {
    /// Returns the settings with `request` applied.
    ///
    /// A permission that the fork has stays. For the other settings the request wins.
    #[must_use]
    pub fn with(self, request: MountRequest) -> MountSettings {
        MountSettings {
            allow_other: self.allow_other || request.allow_other,
            suid: self.suid || request.suid,
            dev: self.dev || request.dev,
            profile: request.profile.unwrap_or(self.profile),
            overlay_buffers: request.overlay_buffers.unwrap_or(self.overlay_buffers),
            at_origin: request.at_origin.or(self.at_origin),
        }
    }
}

/// Fork that another fork was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Name of the parent. It may have been deleted since.
    pub fork: ForkName,
    /// Snapshot of the parent that the fork began at; `None`: the parent's live state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<ForkName>,
}

/// Intent record of a move of HEAD and the view.
///
/// Written before the move begins. If the process dies, the next opening of the fork finishes the
/// move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advancing {
    /// Old and new HEAD of the move.
    #[serde(flatten)]
    pub moved: HeadMove,
    /// Message for the reflog of HEAD.
    pub reflog: String,
    /// Command line that caused the move.
    pub command: String,
}

/// Returns the path of a fork's own git directory.
pub(crate) fn own_git_dir(repository: &Repository, name: &ForkName) -> PathBuf {
    let root = Store::dir_of(repository);
    Places { root }.git_dir(name)
}

/// Commit after which a fork's own commits begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForkPoint {
    /// The own commits come after this commit (hex).
    After(String),
    /// All commits of the branch are the fork's own, including the root.
    Root,
}

impl ForkPoint {
    /// Returns the commit in hex; `None` for [`ForkPoint::Root`].
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
    /// Returns whether the worktree with this private git directory is the fork's.
    pub fn has_git_dir(&self, git_dir: &Path) -> bool {
        git_dir.ends_with(match self.git_kind {
            GitKind::Own => Path::new("forks").join(self.name.as_str()).join("git"),
            GitKind::Linked => Path::new("worktrees").join(&self.worktree_id),
        })
    }

    /// Opens the fork's worktree.
    ///
    /// # Errors
    /// [`GitError::Io`] if it does not exist or is not complete.
    pub fn open_worktree(&self, repository: &Repository) -> Result<Worktree, GitError> {
        match self.git_kind {
            GitKind::Own => Worktree::open_own(own_git_dir(repository, &self.name)),
            GitKind::Linked => Worktree::open(repository, &self.worktree_id),
        }
    }

    /// Records the fork point; `None` if all commits are the fork's own.
    pub fn put_fork_point(&mut self, commit_id: Option<ObjectId>) {
        self.fork_point = Some(commit_id.into());
        self.former_fork_point = None;
    }
}

/// Marker for file times that the open layer's first commit must hold.
///
/// If the open layer has nothing but `.git`, the process died before that commit, and the next
/// opening of the fork sets the times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewed {
    /// Snapshot of the fork's state before the switch.
    pub before: ForkName,
    /// Id of the open layer that the times belong to.
    pub open_layer: u64,
}

/// Restore of HEAD, refs and index, which follows that of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoring {
    /// Tree of the git point, in hex.
    pub point: String,
    /// Command, for the reflogs and the journal.
    pub command: String,
    /// Snapshot of the state before.
    pub before: Option<ForkName>,
}

/// Durable record of a fork, stored as one atomically replaced file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkRecord {
    /// Name of the fork, equal to the name of its directory.
    pub name: ForkName,
    /// Creation time in seconds since 1970.
    pub created_secs: i64,
    /// Commit of the fork's base, in hex. Changes only when the fork is reset.
    ///
    /// `None` if the repository had no commit yet.
    pub base_commit: Option<String>,
    /// Tree of the base, in hex. For a fork made from a state it is the state's tree.
    pub base_tree: String,
    /// Owner, mode and times of base nodes.
    pub base_attrs: BaseAttrs,
    /// Conversion settings for base files, fixed when the fork was made.
    ///
    /// Forks of earlier versions have none and use the settings configured at the time of opening.
    #[serde(default)]
    pub conversions: Option<ConversionSettings>,
    /// Fork that this one was made from. It may have been deleted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Branch that the fork was made on (short name), followed through renames.
    ///
    /// Informational: HEAD of the worktree decides.
    pub branch: String,
    /// Branch that HEAD was last seen on, if not `branch` (short name).
    ///
    /// If the worktree is lost, HEAD is restored to this branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_branch: Option<String>,
    /// Branch that the fork came from (short name): its default merge target.
    ///
    /// `None` if the fork began at a commit without a named branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_branch: Option<String>,
    /// Fork point: where the fork's own commits begin.
    ///
    /// `None` for forks of earlier versions.
    #[serde(
        rename = "own_commits",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub fork_point: Option<ForkPoint>,
    /// Fork point in the format of earlier versions, in hex.
    ///
    /// For a fork on an existing branch it is the tip that the branch had.
    #[serde(
        rename = "fork_point",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub former_fork_point: Option<String>,
    /// Move of HEAD that was begun and not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advancing: Option<Advancing>,
    /// Restore of HEAD, refs and index that was begun and not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    /// Kind of the fork's git directory.
    ///
    /// Forks of earlier versions are linked worktrees.
    #[serde(rename = "git", default, skip_serializing_if = "GitKind::is_linked")]
    pub git_kind: GitKind,
    /// True if programs in the fork are not trusted.
    ///
    /// What would make git run a program cannot be written there. Never taken back: a program may
    /// have left something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// Name of a linked worktree's directory in `worktrees/` of the common directory.
    ///
    /// Empty for a fork with a git directory of its own.
    pub worktree_id: String,
    /// Branch (short name) of the main repository that follows the fork's.
    ///
    /// Only for a fork with a git directory of its own. `None`: no branch follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed_branch: Option<String>,
    /// Policy for the fork's changes when it is unmounted.
    pub on_unmount: UnmountPolicy,
    /// Interval of automatic snapshots while mounted, in time or changes.
    ///
    /// `None`: none are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every: Option<SnapshotEvery>,
    /// Directory at which the fork is mounted, or would be.
    #[serde(with = "host_path")]
    pub mount_dir: PathBuf,
    /// Settings of the mount.
    #[serde(flatten)]
    pub settings: MountSettings,
    /// True if the fork should be mounted. A daemon mounts it when it starts.
    pub mounted: bool,
    /// Files carried from the main checkout; `None` for forks of earlier versions.
    #[serde(default)]
    pub carry: Option<CarryRecord>,
    /// Lower bound of shown ctimes: the last switch to an earlier state, if any.
    ///
    /// See [`LowerStack::since`](tine_workspace::LowerStack::since).
    #[serde(
        rename = "stands_since",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub min_ctime: Option<Timestamp>,
    /// Id of the open layer.
    pub open_layer: u64,
    /// Ids of the frozen layers below the open one, newest first.
    pub frozen_layers: Vec<u64>,
    /// True if a snapshot list was written. If the list is missing then, it is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_snapshots: bool,
    /// File times to set after a switch to another state, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Renewed>,
}
