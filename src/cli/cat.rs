//! `tine cat`: contents of files in a fork.

use std::io::Read;

use serde::Serialize;

use super::contents::store_dir;
use super::context::Context;
use super::{Exit, SUCCESS};
use crate::change::resolver::JsonBytes;
use crate::ops::protocol::FileLine;
use crate::ops::transfer::unread;
use crate::ops::{Failure, ReadFiles};
use crate::store::ForkName;

#[derive(Serialize)]
struct Contents {
    fork: ForkName,
    files: Vec<FileContent>,
}

#[derive(Serialize)]
struct FileContent {
    #[serde(flatten)]
    file: FileLine,
    content: JsonBytes,
}

pub(super) fn run(verb: &ReadFiles, context: &Context) -> Result<Exit, Failure> {
    let read = context.connect_for(verb)?.call(verb)?;
    let (fork, files) = (read.fork, read.files);
    let arrived = read.contents.take(&store_dir(context)?)?;
    let output = &context.output;
    if !output.is_json() {
        output.arrived(arrived)?;
        return Ok(SUCCESS);
    }
    let mut input = arrived.into_reader();
    let mut contents = Vec::with_capacity(files.len());
    for file in files {
        let mut bytes = Vec::new();
        (&mut input)
            .take(file.size)
            .read_to_end(&mut bytes)
            .map_err(|error| unread(&error))?;
        let content = bytes.into();
        contents.push(FileContent { file, content });
    }
    output.json(&Contents {
        fork,
        files: contents,
    })?;
    Ok(SUCCESS)
}
