//! Resolvers, which resolve conflicts one after another.
//!
//! A [`Resolver`] gets a [`Question`] and gives an [`Answer`]. [`CommandResolver`] runs a command,
//! with JSON on its standard input and output. If it fails, the conflict stays open.

mod command;

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::command::CommandResolver;
use super::review::ResolutionKind;
use tine_merge::ConflictKind;
use tine_path::text::PathText;

/// Time that an answer may take by default.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(300);

/// Bytes in JSON: text if they are UTF-8, else base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonBytes {
    /// UTF-8 text.
    Text(String),
    /// Standard base64 with padding, of any bytes.
    Base64(String),
}

impl From<Vec<u8>> for JsonBytes {
    fn from(bytes: Vec<u8>) -> JsonBytes {
        match String::from_utf8(bytes) {
            Ok(text) => JsonBytes::Text(text),
            Err(error) => JsonBytes::Base64(STANDARD.encode(error.as_bytes())),
        }
    }
}

/// Question to a resolver.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// A conflict that needs a resolution.
    Resolve(Box<ConflictQuestion>),
    /// A merge as a whole, for a judgement.
    Judge(Box<MergeQuestion>),
}

/// Conflict to be resolved.
#[derive(Debug, Clone, Serialize)]
pub struct ConflictQuestion {
    /// Kind of the conflict.
    pub kind: ConflictKind,
    /// Path that names the conflict.
    pub path: PathText,
    /// All paths of the conflict.
    pub paths: Vec<PathText>,
    /// Entries of the merge base; empty if it has none.
    pub base: Vec<QuestionVersion>,
    /// Entries of the target; empty if it has none.
    pub ours: Vec<QuestionVersion>,
    /// Entries of the source; empty if it has none.
    pub theirs: Vec<QuestionVersion>,
    /// Conflicting hunks of a text; empty for other kinds.
    pub hunks: Vec<QuestionHunk>,
    /// Commits that only the target has, the newest first.
    pub ours_commits: Vec<QuestionCommit>,
    /// Commits that only the source has, the newest first.
    pub theirs_commits: Vec<QuestionCommit>,
    /// Other paths that the merge changes in the target.
    pub other_paths: Vec<PathText>,
}

/// Entry of one side of a conflict.
#[derive(Debug, Clone, Serialize)]
pub struct QuestionVersion {
    /// Path of the entry.
    pub path: PathText,
    /// git's octal mode, as in `100644`.
    pub mode: String,
    /// Object id in hex.
    pub id: String,
    /// Content of the blob; `None` for a submodule.
    pub content: Option<JsonBytes>,
}

/// Conflicting hunk of a text, with its three contents.
#[derive(Debug, Clone, Serialize)]
pub struct QuestionHunk {
    /// First line in the merge base's text, counted from 1.
    pub base_line: usize,
    /// First line in the target's text, counted from 1.
    pub ours_line: usize,
    /// First line in the source's text, counted from 1.
    pub theirs_line: usize,
    /// Lines of the merge base.
    pub base: JsonBytes,
    /// Lines of the target.
    pub ours: JsonBytes,
    /// Lines of the source.
    pub theirs: JsonBytes,
}

/// Commit that only one side has.
#[derive(Debug, Clone, Serialize)]
pub struct QuestionCommit {
    /// Commit id in hex.
    pub id: String,
    /// Author of the commit.
    pub author: String,
    /// Full commit message.
    pub message: String,
}

/// Merge whose conflicts are all resolved.
#[derive(Debug, Clone, Serialize)]
pub struct MergeQuestion {
    /// Source of the merge, as a point.
    pub source: String,
    /// Target of the merge.
    pub target: String,
    /// Changes of the merge to the target, as a patch of git.
    pub patch: JsonBytes,
    /// Paths of the patch.
    pub changed_paths: Vec<PathText>,
    /// Resolutions of the conflicts.
    pub resolutions: Vec<QuestionResolution>,
}

/// Resolution of a conflict, as shown to a judge.
#[derive(Debug, Clone, Serialize)]
pub struct QuestionResolution {
    /// Path that names the conflict.
    pub path: PathText,
    /// Kind of the resolution.
    pub how: ResolutionKind,
    /// Reason of the resolver; `None` if it gave none.
    pub reasoning: Option<String>,
}

/// Answer to a conflict.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Resolution of the conflict.
    pub resolution: AnsweredResolution,
    /// Reason for the resolution; `None` if there is none.
    pub reasoning: Option<String>,
    /// Metadata to keep with the resolution, as any JSON.
    pub metadata: Option<serde_json::Value>,
}

/// Resolution in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnsweredResolution {
    /// The given content.
    Content {
        /// Full content of the file.
        bytes: Vec<u8>,
        /// True for an executable file; `None` keeps the mode.
        executable: Option<bool>,
    },
    /// The merge base's lines in conflicting hunks, all else merged.
    ///
    /// A conflict that is not a text takes the whole version.
    Base,
    /// The target's lines in conflicting hunks, all else merged.
    Ours,
    /// The source's lines in conflicting hunks, all else merged.
    Theirs,
    /// The lines of both sides in conflicting hunks.
    Union,
    /// The target's whole version.
    OursFile,
    /// The source's whole version.
    TheirsFile,
    /// No file.
    Delete,
    /// No resolution: the conflict stays open.
    Skip,
}

/// Judgement of a merge as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Verdict on the merge.
    pub verdict: VerdictKind,
    /// Changed paths with their new contents; `None`: deleted.
    ///
    /// Empty unless the verdict is [`VerdictKind::Amend`].
    pub changes: Vec<(PathText, Option<Vec<u8>>)>,
    /// Reason for the verdict; `None` if there is none.
    pub reasoning: Option<String>,
    /// Metadata to keep with the verdict, as any JSON.
    pub metadata: Option<serde_json::Value>,
}

/// Verdict on a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// The merge may be committed.
    Accept,
    /// The merge may be committed with changes.
    Amend,
    /// The merge must not be committed.
    Veto,
}

impl VerdictKind {
    /// Returns the verdict as a past participle, as in `accepted`.
    pub fn in_words(self) -> &'static str {
        match self {
            VerdictKind::Accept => "accepted",
            VerdictKind::Amend => "amended",
            VerdictKind::Veto => "vetoed",
        }
    }
}

/// Error of asking a resolver.
#[derive(Debug, Error)]
pub enum ResolverError {
    /// The command cannot be started or waited for.
    #[error("the resolver cannot be run: {0}")]
    NotRun(#[source] io::Error),
    /// The command exceeded its time.
    #[error("the resolver did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The command exited with an error.
    #[error("the resolver failed ({status}): {stderr}")]
    Failed {
        /// Exit code or signal, in words.
        status: String,
        /// Beginning of its standard error.
        stderr: String,
    },
    /// The output is not a valid answer.
    #[error("the resolver's answer is not understood: {0}")]
    Malformed(String),
}

/// Implementation that resolves conflicts and judges merges.
pub trait Resolver {
    /// Resolves a conflict.
    ///
    /// # Errors
    /// [`ResolverError`] if there is no valid answer. The conflict stays open then.
    fn resolve(&self, question: &ConflictQuestion) -> Result<Answer, ResolverError>;

    /// Judges the merge as a whole, after all conflicts are resolved.
    ///
    /// # Errors
    /// [`ResolverError`] if there is no valid answer.
    fn judge(&self, question: &MergeQuestion) -> Result<Judgement, ResolverError>;
}
