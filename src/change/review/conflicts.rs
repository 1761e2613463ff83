//! Conflicts as reviews remember them: with paths and ids as text, and with what is to become of
//! them.

use serde::{Deserialize, Serialize};

use super::damaged;
use crate::ChangeError;
use crate::resolver::JsonBytes;
use tine_git::{ObjectId, TreeEntryKind};
use tine_merge::{Conflict, ConflictKind, MergeSide, Version, content_place};
use tine_path::text::PathText;
use tine_path::{PathError, RepoPath};

/// What a conflict with uncommitted work is in.
const UNCOMMITTED: &str = "what is uncommitted";

/// A conflict, and what is to become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictRecord {
    pub kind: ConflictKind,
    pub path: PathText,
    pub paths: Vec<PathText>,
    pub base: Vec<VersionRecord>,
    pub ours: Vec<VersionRecord>,
    pub theirs: Vec<VersionRecord>,
    /// Of several commits that are made one after another: the one it is in, in hex, or a mail's
    /// subject. Of the target's uncommitted work: that it is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Of a patch that does not fit: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// `None`: it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ResolutionRecord>,
}

/// What of a patch does not fit a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// In git's words.
    pub reason: String,
    /// As git writes them to a `.rej` file; `None` where the file is not there to be patched, or
    /// should not be.
    pub hunks: Option<JsonBytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    pub path: PathText,
    /// git's octal mode.
    #[serde(rename = "mode", with = "mode_text")]
    pub kind: TreeEntryKind,
    pub id: String,
}

/// What is to become of a conflict, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolutionRecord {
    pub how: ResolvedHow,
    /// Exactly these come to the conflict's place.
    pub versions: Vec<VersionRecord>,
    /// Who did it: a person's command, or a resolver's.
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Whatever a resolver wants to have remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResolvedHow {
    /// One side where both conflict, and all else merged.
    Base,
    Ours,
    Theirs,
    /// The lines of both sides where they conflict.
    Union,
    /// The whole version of a side.
    BaseFile,
    OursFile,
    TheirsFile,
    Content,
    Delete,
}

impl ResolvedHow {
    /// What became of the conflict, in a few words.
    pub fn in_words(self) -> &'static str {
        match self {
            ResolvedHow::Base => "base",
            ResolvedHow::Ours => "ours",
            ResolvedHow::Theirs => "theirs",
            ResolvedHow::Union => "both",
            ResolvedHow::BaseFile => "base's file",
            ResolvedHow::OursFile => "our file",
            ResolvedHow::TheirsFile => "their file",
            ResolvedHow::Content => "content",
            ResolvedHow::Delete => "deleted",
        }
    }
}

/// A mode as git writes it: `100644`.
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
            path: parse(&self.path)?,
            kind: self.kind,
            id: ObjectId::from_hex(self.id.as_bytes()).map_err(|error| damaged(&error))?,
        })
    }
}

pub(super) fn parse(path: &PathText) -> Result<RepoPath, ChangeError> {
    RepoPath::parse(path.to_bytes()).map_err(|error: PathError| damaged(&error))
}

impl ConflictRecord {
    /// An open one.
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

    /// An open one with what is uncommitted in the target.
    pub fn of_uncommitted(conflict: &Conflict) -> ConflictRecord {
        ConflictRecord {
            of: Some(UNCOMMITTED.to_owned()),
            ..ConflictRecord::of(conflict)
        }
    }

    pub fn versions(&self, side: MergeSide) -> &[VersionRecord] {
        match side {
            MergeSide::Base => &self.base,
            MergeSide::Ours => &self.ours,
            MergeSide::Theirs => &self.theirs,
        }
    }

    /// The conflict as the merge had it.
    pub fn conflict(&self) -> Result<Conflict, ChangeError> {
        let versions = |records: &[VersionRecord]| -> Result<Vec<Version>, ChangeError> {
            records.iter().map(VersionRecord::version).collect()
        };
        let paths: Result<Vec<RepoPath>, ChangeError> = self.paths.iter().map(parse).collect();
        Ok(Conflict {
            kind: self.kind,
            path: parse(&self.path)?,
            paths: paths?,
            base: versions(&self.base)?,
            ours: versions(&self.ours)?,
            theirs: versions(&self.theirs)?,
        })
    }

    /// Whether it is about the same contents at the same places.
    pub(super) fn has_same_inputs(&self, other: &ConflictRecord) -> bool {
        (&self.path, &self.paths) == (&other.path, &other.paths)
            && (&self.base, &self.ours, &self.theirs) == (&other.base, &other.ours, &other.theirs)
    }

    /// The place and mode of a content that is given for it; `None` where all sides have
    /// submodules.
    ///
    /// # Errors
    /// Where the record is damaged.
    pub fn content_place(&self) -> Result<Option<(PathText, TreeEntryKind)>, ChangeError> {
        let place = content_place(&self.conflict()?);
        Ok(place.map(|(path, kind)| ((&path).into(), kind)))
    }
}
