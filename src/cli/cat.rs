//! `tine cat`: contents of files in a fork.

use std::io::Read;

use serde::Serialize;

use super::contents::store_dir;
use super::context::Context;
use super::{Exit, SUCCESS, routes};
use crate::change::resolver::JsonBytes;
use crate::ops::protocol::{FileLine, ToolAnswer, ToolRead};
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
    let read = match routes::call(verb, context)? {
        ToolAnswer::Agents(read) => return show_agents(read, context),
        ToolAnswer::Saved(read) => read,
        answer @ ToolAnswer::Passthrough { .. } => {
            return routes::passed_through(&answer, context);
        }
    };
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

fn show_agents(read: ToolRead, context: &Context) -> Result<Exit, Failure> {
    let output = &context.output;
    let arrived = read.content.take(&store_dir(context)?)?;
    if output.is_json() {
        output.json(&ToolRead {
            content: JsonBytes::from(arrived.into_bytes()?),
            route: read.route,
            path: read.path,
            size: read.size,
        })?;
    } else {
        output.arrived(arrived)?;
    }
    Ok(SUCCESS)
}
