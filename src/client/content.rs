//! File contents of a conflict, for JSON output.

use crate::place::Place;
use tine_change::resolver::{JsonBytes, QuestionHunk};
use tine_change::review::ConflictRecord;
use tine_git::ObjectId;
use tine_merge::{TextHunk, text_of};
use tine_ops::{ErrorCode, Failure};

/// Reads the blob of one side of a conflict.
///
/// `mode` is octal, `id` is a hexadecimal object id. Returns `None` if the side does not exist or
/// is a submodule.
///
/// # Errors
/// `internal` if `id` is not an object id. Other codes if the repository or the blob cannot be
/// read.
pub fn content(
    place: &Place,
    mode: Option<&str>,
    id: Option<&str>,
) -> Result<Option<JsonBytes>, Failure> {
    let (Some(mode), Some(id)) = (mode, id) else {
        return Ok(None);
    };
    if mode == "160000" {
        return Ok(None);
    }
    let bytes = place.repository()?.read_blob(object_id(id)?)?;
    Ok(Some(bytes.into()))
}

/// Parses an object id from the daemon's answer.
///
/// # Errors
/// `internal` if `hex` is not an object id.
pub fn object_id(hex: &str) -> Result<ObjectId, Failure> {
    ObjectId::from_hex(hex.as_bytes()).map_err(|error| {
        Failure::new(
            ErrorCode::Internal,
            format!("the daemon named {hex:?}, which is not an object id"),
        )
        .cause(error.to_string())
    })
}

/// Lists the conflict hunks of a text file.
///
/// The list is empty if a side is binary, too large, or not a regular file.
///
/// # Errors
/// Fails if the record is damaged, or if the repository or a blob cannot be read.
pub fn hunks(place: &Place, conflict: &ConflictRecord) -> Result<Vec<QuestionHunk>, Failure> {
    let Some(text) = text_of(place.repository()?, &conflict.conflict()?)? else {
        return Ok(Vec::new());
    };
    let hunk = |hunk: TextHunk<'_>| QuestionHunk {
        base_line: hunk.base_lines.start,
        ours_line: hunk.ours_lines.start,
        theirs_line: hunk.theirs_lines.start,
        base: hunk.base.to_vec().into(),
        ours: hunk.ours.to_vec().into(),
        theirs: hunk.theirs.to_vec().into(),
    };
    Ok(text.hunks().into_iter().map(hunk).collect())
}
