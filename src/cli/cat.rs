//! `tine cat`: contents of files in a fork.

use std::ffi::OsString;
use std::io::Read;

use serde::Serialize;

use super::context::Context;
use super::inside::{Inside, store_dir};
use super::{Exit, SUCCESS};
use crate::change::resolver::Content;
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::FileLine;
use crate::ops::transfer::unread;
use crate::path::text::PathText;
use crate::workspace::ForkName;

/// Print files of a fork, mounted or not
///
/// Byte for byte, one after the other, as the mount would show them; nothing is printed if one of them cannot be read.
/// Symlinks are followed within the fork. With --json a content is {"text": …} or, where it is not UTF-8, {"base64": …}.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine cat fix-parser src/main.rs
  tine cat fix-parser logo.png > logo.png")]
pub struct Cat {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// From the fork's root, or absolute in its mount
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

#[derive(Serialize)]
struct Contents {
    fork: ForkName,
    files: Vec<FileContent>,
}

#[derive(Serialize)]
struct FileContent {
    #[serde(flatten)]
    file: FileLine,
    content: Content,
}

pub fn run(verb: &Cat, context: &Context) -> Result<Exit, Failure> {
    let mut inside = Inside::new(context, &verb.fork)?;
    let paths: Vec<PathText> = inside.paths(verb.paths.iter().map(OsString::as_os_str))?;
    let fork = inside.fork.clone();
    let request = ops::ReadFiles {
        fork: fork.clone(),
        paths,
    };
    let read = inside.connection.call(&request)?;
    let (files, contents) = (read.files, read.contents);
    let arrived = contents.take(&store_dir(context)?)?;
    let output = &context.output;
    if !output.is_json() {
        output.arrived(arrived)?;
        return Ok(SUCCESS);
    }
    let mut input = arrived.into_reader();
    let mut told = Vec::with_capacity(files.len());
    for file in files {
        let mut bytes = Vec::new();
        (&mut input)
            .take(file.size)
            .read_to_end(&mut bytes)
            .map_err(|error| unread(&error))?;
        let content = bytes.into();
        told.push(FileContent { file, content });
    }
    output.json(&Contents { fork, files: told })?;
    Ok(SUCCESS)
}
