//! `tine apply`: applies a patch to a fork's files.

use std::path::PathBuf;

use super::Exit;
use super::context::Context;
use super::inside::{sent_content, store_dir};
use super::sequencing::{ConflictArgs, carry_out, request};
use crate::ops::Failure;
use crate::ops::protocol::SequenceWish;

/// Apply a patch to a fork's files
///
/// As `git apply`, mounted or not: what comes of it is uncommitted, in one step that `tine undo`
/// takes back. Patches of git's and of `diff -u` are understood, with renames, modes and binary
/// files; paths are from the fork's root. A patch that does not fit changes nothing: the files and
/// hunks are listed, and the exit code is 3. --review keeps what fits, to resolve the rest.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine apply fix-parser fix.patch
  git diff | tine apply fix-parser - --3way   merge where the text has moved on
  tine apply fix-parser fix.patch --check     see whether it fits")]
pub(super) struct Apply {
    /// The fork
    #[arg(value_name = "FORK")]
    pub fork: String,

    /// The patch; `-` is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,

    /// Merge what the patch was made of with what is there, where the repository has it
    #[arg(short = '3', long = "3way")]
    pub three_way: bool,

    /// Apply it backwards
    #[arg(short = 'R', long)]
    pub reverse: bool,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, visible_alias = "dry-run", conflicts_with_all = ["review", "resolver"])]
    pub check: bool,

    /// How many leading parts to take from the patch's paths
    #[arg(short = 'p', value_name = "N", default_value_t = 1)]
    pub strip: u8,

    #[command(flatten)]
    pub conflicts: ConflictArgs,
}

pub(super) fn run(verb: &Apply, context: &Context) -> Result<Exit, Failure> {
    let (mut connection, name) = context.connect_to_fork(Some(&verb.fork))?;
    // Before anything is read: the fork may not be there.
    connection.show(&name)?;
    let file = (verb.file.as_os_str() != "-").then_some(verb.file.as_path());
    let store_dir = store_dir(context)?;
    let content = sent_content(&store_dir, file)?;
    let wish = SequenceWish::Patch {
        content: content.clone(),
        strip: verb.strip,
        reverse: verb.reverse,
        three_way: verb.three_way,
    };
    let request = request(context, Some(&name), wish, &verb.conflicts, verb.check)?;
    carry_out(
        context,
        &mut connection,
        &request,
        &verb.conflicts.left.resolving,
    )
    .inspect_err(|_| content.withdraw(&store_dir))
}
