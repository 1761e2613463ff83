//! Contents of files in JSON.

use crate::place::Place;
use tine_change::resolver::{JsonBytes, QuestionHunk};
use tine_change::review::ConflictRecord;
use tine_git::ObjectId;
use tine_merge::{TextHunk, text_of};
use tine_ops::{ErrorCode, Failure};

/// One side's bytes as git stores them; `None` where there is no such side, and for a submodule,
/// which has none.
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

/// An id as the daemon tells it.
pub fn object_id(hex: &str) -> Result<ObjectId, Failure> {
    ObjectId::from_hex(hex.as_bytes()).map_err(|error| {
        Failure::new(
            ErrorCode::Internal,
            format!("the daemon named {hex:?}, which is no object id"),
        )
        .cause(error.to_string())
    })
}

/// What conflicts in a text; nothing of what is no text.
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
