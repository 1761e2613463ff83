//! Contents of files in JSON.

use super::context::Context;
use crate::change::resolver::Content;
use crate::git::ObjectId;
use crate::ops::{ErrorCode, Failure};

/// One side's bytes as git stores them; `None` where there is no such side, and for a submodule, which has none.
pub fn content(context: &Context, mode: Option<&str>, id: Option<&str>) -> Result<Option<Content>, Failure> {
    let (Some(mode), Some(id)) = (mode, id) else {
        return Ok(None);
    };
    if mode == "160000" {
        return Ok(None);
    }
    let bytes = context.repository()?.read_blob(object_id(id)?)?;
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
