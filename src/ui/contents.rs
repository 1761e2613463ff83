//! Contents that the page shows in addition to the daemon's answers.
//!
//! These are line counts, texts, and conflicts with all their contents.

use serde::Serialize;
use serde_json::Value;

use super::sides::{Sides, SidesOptions, sides};
use tine_change::review::{ConflictRecord, VersionRecord};
use tine_git::{ObjectId, Repository, TreeEntryKind};
use tine_merge::{MarkerOptions, Style, TextHunk, is_binary, text_of};
use tine_ops::protocol::ChangeLine;
use tine_ops::{ErrorCode, Failure};

/// Maximum size of a file that is shown, in bytes.
const SHOWN_MAX: u64 = 4 << 20;

/// Labels of the conflict markers in a draft.
const LABELS: [&str; 3] = ["base", "ours", "theirs"];

/// Converts a value to JSON.
pub(crate) fn document(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| {
        Failure::new(ErrorCode::Internal, "the answer cannot be told").cause(error.to_string())
    })
}

pub(crate) fn object_id(hex: &str) -> Result<ObjectId, Failure> {
    ObjectId::from_hex(hex.as_bytes()).map_err(|error| {
        Failure::new(ErrorCode::Usage, format!("{hex:?} is not an object id"))
            .cause(error.to_string())
            .hint("reload the page")
    })
}

/// Converts changes between two trees to JSON, with their line counts.
pub(crate) fn with_line_counts(
    repository: &Repository,
    (old_tree, new_tree): (&str, &str),
    changes: &[ChangeLine],
) -> Result<Value, Failure> {
    let counts = repository.line_counts(object_id(old_tree)?, object_id(new_tree)?)?;
    let lines: Result<Vec<Value>, Failure> = changes
        .iter()
        .map(|change| {
            let mut line = document(change)?;
            let count = counts
                .get(&change.path.to_bytes())
                .copied()
                .unwrap_or_default();
            if let Some(fields) = line.as_object_mut() {
                fields.insert("added_lines".to_owned(), count.added.into());
                fields.insert("removed_lines".to_owned(), count.removed.into());
            }
            Ok(line)
        })
        .collect();
    Ok(Value::Array(lines?))
}

/// Content of one side of a path.
#[derive(Debug, Serialize)]
#[serde(tag = "form", rename_all = "kebab-case")]
pub(crate) enum Shown {
    /// Text. `exact` is true if it is the content byte for byte.
    Text {
        text: String,
        exact: bool,
        bytes: u64,
    },
    Binary {
        bytes: u64,
    },
    /// File that is too large to show.
    Large {
        bytes: u64,
    },
    Submodule {
        commit: String,
    },
}

impl Shown {
    fn of(repository: &Repository, mode: &str, id: &str) -> Result<Shown, Failure> {
        Ok(match read(repository, mode, id)? {
            Read::Bytes(bytes) => {
                let length = bytes.len() as u64;
                match String::from_utf8(bytes) {
                    Ok(text) => Shown::Text {
                        text,
                        exact: true,
                        bytes: length,
                    },
                    Err(error) => Shown::Text {
                        text: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                        exact: false,
                        bytes: length,
                    },
                }
            }
            Read::Other(shown) => shown,
        })
    }

    /// Returns the text if it is the whole content.
    fn exact(&self) -> Option<&str> {
        match self {
            Shown::Text {
                text, exact: true, ..
            } => Some(text),
            _ => None,
        }
    }
}

enum Read {
    Bytes(Vec<u8>),
    Other(Shown),
}

fn read(repository: &Repository, mode: &str, id: &str) -> Result<Read, Failure> {
    if TreeEntryKind::of_mode_text(mode.as_bytes()) == Some(TreeEntryKind::Submodule) {
        return Ok(Read::Other(Shown::Submodule {
            commit: id.to_owned(),
        }));
    }
    let id = object_id(id)?;
    let bytes = repository.blob_size(id)?;
    if bytes > SHOWN_MAX {
        return Ok(Read::Other(Shown::Large { bytes }));
    }
    let content = repository.read_blob(id)?;
    if is_binary(&content) {
        return Ok(Read::Other(Shown::Binary { bytes }));
    }
    Ok(Read::Bytes(content))
}

/// One side of a changed path: git's mode and the object id.
pub(crate) type Side<'a> = Option<(&'a str, &'a str)>;

/// Changed path, side by side.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    /// Content of the old side. None if both sides are texts, or the side is a text.
    old: Option<Shown>,
    /// Content of the new side, like `old`.
    new: Option<Shown>,
    /// Comparison of the texts. None if a side is not a text.
    sides: Option<Sides>,
}

pub(crate) fn compare(
    repository: &Repository,
    old: Side<'_>,
    new: Side<'_>,
    options: SidesOptions,
) -> Result<Compared, Failure> {
    let read = |side: Side<'_>| match side {
        Some((mode, id)) => read(repository, mode, id),
        None => Ok(Read::Bytes(Vec::new())),
    };
    let other = |read: Read| match read {
        Read::Bytes(_) => None,
        Read::Other(shown) => Some(shown),
    };
    Ok(match (read(old)?, read(new)?) {
        (Read::Bytes(old), Read::Bytes(new)) => Compared {
            old: None,
            new: None,
            sides: Some(sides(&old, &new, options)),
        },
        (old, new) => Compared {
            old: other(old),
            new: other(new),
            sides: None,
        },
    })
}

/// Conflict with its contents, in the order of its versions.
#[derive(Debug, Serialize)]
struct ConflictShown<'a> {
    #[serde(flatten)]
    record: &'a ConflictRecord,
    base_contents: Vec<Shown>,
    ours_contents: Vec<Shown>,
    theirs_contents: Vec<Shown>,
    result_contents: Vec<Shown>,
    /// Conflicting hunks of a text.
    hunks: Vec<HunkShown>,
    /// True if both sides can be kept.
    has_both: bool,
    /// Text to begin a resolution with.
    ///
    /// It has conflict markers if both sides are texts.
    draft: Option<String>,
}

/// Line ranges of a hunk: start from 1, end excluded.
#[derive(Debug, Serialize)]
struct HunkShown {
    base: [usize; 2],
    ours: [usize; 2],
    theirs: [usize; 2],
}

impl From<TextHunk<'_>> for HunkShown {
    fn from(hunk: TextHunk<'_>) -> HunkShown {
        HunkShown {
            base: [hunk.base_lines.start, hunk.base_lines.end],
            ours: [hunk.ours_lines.start, hunk.ours_lines.end],
            theirs: [hunk.theirs_lines.start, hunk.theirs_lines.end],
        }
    }
}

/// Converts a conflict to JSON, with its contents.
pub(crate) fn conflict(repository: &Repository, record: &ConflictRecord) -> Result<Value, Failure> {
    let contents = |versions: &[VersionRecord]| -> Result<Vec<Shown>, Failure> {
        versions
            .iter()
            .map(|version| Shown::of(repository, &version.kind.mode_text(), &version.id))
            .collect()
    };
    let merged = text_of(repository, &record.conflict()?)?;
    let (base, ours, theirs) = (
        contents(&record.base)?,
        contents(&record.ours)?,
        contents(&record.theirs)?,
    );
    let draft = match &merged {
        Some(merged) => String::from_utf8(merged.render(&markers())).ok(),
        // The only side that exists, or the target's.
        None => {
            let first = ours.first().or(theirs.first()).or(base.first());
            first.and_then(Shown::exact).map(str::to_owned)
        }
    };
    document(&ConflictShown {
        record,
        base_contents: base,
        ours_contents: ours,
        theirs_contents: theirs,
        result_contents: match &record.resolution {
            Some(resolution) => contents(&resolution.versions)?,
            None => Vec::new(),
        },
        hunks: merged
            .iter()
            .flat_map(|merged| merged.hunks())
            .map(HunkShown::from)
            .collect(),
        has_both: merged.is_some(),
        draft,
    })
}

fn markers() -> MarkerOptions {
    let [base, ours, theirs] = LABELS.map(|label| Some(label.to_owned()));
    MarkerOptions {
        style: Style::Diff3,
        base_label: base,
        ours_label: ours,
        theirs_label: theirs,
        ..MarkerOptions::default()
    }
}
