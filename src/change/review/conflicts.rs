//! Conflicts in records of reviews, with their resolutions.
//!
//! Paths and ids are text.

use serde::{Deserialize, Serialize};

use super::{damaged, parse_id};
use crate::ChangeError;
use crate::resolver::JsonBytes;
use tine_git::TreeEntryKind;
use tine_merge::{Conflict, ConflictKind, MergeSide, Version, content_place};
use tine_path::text::PathText;
use tine_path::{PathError, RepoPath};

/// Value of [`ConflictRecord::of`] for conflicts with uncommitted changes.
const UNCOMMITTED: &str = "what is uncommitted";

/// Conflict and its resolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictRecord {
    /// Kind of the conflict.
    pub kind: ConflictKind,
    /// Path that names the conflict.
    pub path: PathText,
    /// All paths of the conflict.
    pub paths: Vec<PathText>,
    /// Entries of the merge base.
    pub base: Vec<VersionRecord>,
    /// Entries of the target.
    pub ours: Vec<VersionRecord>,
    /// Entries of the source.
    pub theirs: Vec<VersionRecord>,
    /// Part of the work with the conflict; `None` for a plain merge.
    ///
    /// In a sequence it is a commit in hex or the subject of a mail. For the target's uncommitted
    /// changes it is a fixed text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Reason that a patch does not apply; `None` for other conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// Resolution; `None` while the conflict is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ResolutionRecord>,
}

/// Part of a patch that does not apply to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Reason in git's words.
    pub reason: String,
    /// Hunks as git writes them to a `.rej` file.
    ///
    /// `None` if the file is missing but should be patched, or exists but should not.
    pub hunks: Option<JsonBytes>,
}

/// Entry of one side of a conflict, or of a resolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// Path of the entry.
    pub path: PathText,
    /// Kind of the entry, stored as git's octal mode.
    #[serde(rename = "mode", with = "mode_text")]
    pub kind: TreeEntryKind,
    /// Object id in hex.
    pub id: String,
}

/// Resolution of a conflict, and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolutionRecord {
    /// Kind of the resolution.
    pub how: ResolutionKind,
    /// Entries that replace the conflict; empty: the paths are deleted.
    pub versions: Vec<VersionRecord>,
    /// Author: a person's command, or a resolver.
    pub by: String,
    /// Reason for the resolution; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Metadata of the resolver, as any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

/// Kind of a resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResolutionKind {
    /// The merge base's lines in conflicting hunks, all else merged.
    Base,
    /// The target's lines in conflicting hunks, all else merged.
    Ours,
    /// The source's lines in conflicting hunks, all else merged.
    Theirs,
    /// The lines of both sides in conflicting hunks.
    Union,
    /// The merge base's whole version.
    BaseFile,
    /// The target's whole version.
    OursFile,
    /// The source's whole version.
    TheirsFile,
    /// A given content.
    Content,
    /// No file.
    Delete,
}

impl ResolutionKind {
    /// Returns the resolution in a few words.
    pub fn in_words(self) -> &'static str {
        match self {
            ResolutionKind::Base => "base",
            ResolutionKind::Ours => "ours",
            ResolutionKind::Theirs => "theirs",
            ResolutionKind::Union => "both",
            ResolutionKind::BaseFile => "base's file",
            ResolutionKind::OursFile => "our file",
            ResolutionKind::TheirsFile => "their file",
            ResolutionKind::Content => "content",
            ResolutionKind::Delete => "deleted",
        }
    }
}

/// A mode as git writes it, such as `100644`.
mod mode_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use tine_git::TreeEntryKind;

    pub(super) fn serialize<S: Serializer>(
        kind: &TreeEntryKind,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&kind.mode_text())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<TreeEntryKind, D::Error> {
        let text = String::deserialize(deserializer)?;
        TreeEntryKind::of_mode_text(text.as_bytes())
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no mode of git's")))
    }
}

impl From<&Version> for VersionRecord {
    fn from(version: &Version) -> VersionRecord {
        VersionRecord {
            path: (&version.path).into(),
            kind: version.kind,
            id: version.id.to_string(),
        }
    }
}

impl VersionRecord {
    pub(super) fn version(&self) -> Result<Version, ChangeError> {
        Ok(Version {
            path: parse_path(&self.path)?,
            kind: self.kind,
            id: parse_id(&self.id)?,
        })
    }
}

pub(super) fn parse_path(path: &PathText) -> Result<RepoPath, ChangeError> {
    RepoPath::parse(path.to_bytes()).map_err(|error: PathError| damaged(&error))
}

impl ConflictRecord {
    /// Makes an open record of a conflict.
    pub fn of(conflict: &Conflict) -> ConflictRecord {
        let versions = |side| {
            conflict
                .versions(side)
                .iter()
                .map(VersionRecord::from)
                .collect()
        };
        ConflictRecord {
            kind: conflict.kind,
            path: (&conflict.path).into(),
            paths: conflict.paths.iter().map(Into::into).collect(),
            base: versions(MergeSide::Base),
            ours: versions(MergeSide::Ours),
            theirs: versions(MergeSide::Theirs),
            of: None,
            rejected: None,
            resolution: None,
        }
    }

    /// Makes an open record of a conflict with uncommitted changes.
    pub fn of_uncommitted(conflict: &Conflict) -> ConflictRecord {
        ConflictRecord {
            of: Some(UNCOMMITTED.to_owned()),
            ..ConflictRecord::of(conflict)
        }
    }

    /// Returns the entries of one side.
    pub fn versions(&self, side: MergeSide) -> &[VersionRecord] {
        match side {
            MergeSide::Base => &self.base,
            MergeSide::Ours => &self.ours,
            MergeSide::Theirs => &self.theirs,
        }
    }

    /// Returns the conflict as the merge found it.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged.
    pub fn conflict(&self) -> Result<Conflict, ChangeError> {
        let versions = |records: &[VersionRecord]| -> Result<Vec<Version>, ChangeError> {
            records.iter().map(VersionRecord::version).collect()
        };
        let paths: Result<Vec<RepoPath>, ChangeError> = self.paths.iter().map(parse_path).collect();
        Ok(Conflict {
            kind: self.kind,
            path: parse_path(&self.path)?,
            paths: paths?,
            base: versions(&self.base)?,
            ours: versions(&self.ours)?,
            theirs: versions(&self.theirs)?,
        })
    }

    /// Returns whether both have the same contents at the same paths.
    pub(super) fn has_same_inputs(&self, other: &ConflictRecord) -> bool {
        (&self.path, &self.paths) == (&other.path, &other.paths)
            && (&self.base, &self.ours, &self.theirs) == (&other.base, &other.ours, &other.theirs)
    }

    /// Returns path and mode for a content that resolves the conflict.
    ///
    /// `None` if all sides are submodules.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if the record is damaged.
    pub fn content_place(&self) -> Result<Option<(PathText, TreeEntryKind)>, ChangeError> {
        let place = content_place(&self.conflict()?);
        Ok(place.map(|(path, kind)| ((&path).into(), kind)))
    }
}
