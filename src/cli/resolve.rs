//! `tine resolve`: resolves a conflict of a review.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap_complete::engine::ArgValueCompleter;

use super::contents::send_with;
use super::context::Context;
use super::{Exit, completing, review};
use crate::merge::MergeSide;
use crate::ops;
use crate::ops::Failure;
use crate::ops::protocol::ResolutionRequest;
use crate::path::RepoPath;

/// Resolve a conflict of a review
///
/// --ours and --theirs say whose lines stay where both sides changed the same ones, as
/// `git merge -X ours` does: what else either side changed in the file stays merged, its mode, too.
/// Binary files, symlinks and renames have no lines: there they take the whole version; --ours-file
/// and --theirs-file do so for a text. A content that is given goes into a file in the merged mode;
/// if the conflict is about a symlink, it is the link's target.
///
/// Until the review is committed, a conflict can be resolved again, and differently.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine resolve 3 src/main.rs --theirs
  tine resolve 3 Cargo.lock --theirs-file
  tine resolve 3 src/main.rs --file merged.rs --reason 'both limits are needed'
  sed s/x/y/ old | tine resolve 3 src/main.rs --stdin
  tine resolve 3 notes.md --delete")]
#[command(group(clap::ArgGroup::new("how").required(true)))]
pub(super) struct Resolve {
    /// The review's number
    #[arg(value_name = "REVIEW")]
    pub review: u64,

    /// The conflict's path, from the root of the repository
    #[arg(value_name = "PATH", add = ArgValueCompleter::new(completing::conflicts))]
    pub path: OsString,

    /// What the target has, where both conflict
    #[arg(long, group = "how")]
    pub ours: bool,

    /// What the source has, where both conflict
    #[arg(long, group = "how")]
    pub theirs: bool,

    /// What both began as, where both conflict
    #[arg(long, group = "how")]
    pub base: bool,

    /// The lines of both where they conflict, the target's first
    #[arg(long, group = "how")]
    pub union: bool,

    /// The target's whole file, without any change of the source
    #[arg(long, group = "how")]
    pub ours_file: bool,

    /// The source's whole file, without any change of the target
    #[arg(long, group = "how")]
    pub theirs_file: bool,

    /// The content of FILE
    #[arg(short = 'F', long, group = "how", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// The content of standard input
    #[arg(long, group = "how")]
    pub stdin: bool,

    /// No file
    #[arg(long, group = "how")]
    pub delete: bool,

    /// Nothing yet: it is open again
    #[arg(long, group = "how")]
    pub reopen: bool,

    /// Why; it goes into the merge commit
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

pub(super) fn run(verb: &Resolve, context: &Context) -> Result<Exit, Failure> {
    let mut connection = context.connect()?;
    let mut resolve = |wish| {
        let request = ops::Resolve {
            review: verb.review,
            path: (&RepoPath::parse(verb.path.as_bytes())?).into(),
            wish,
            by: "hand".to_owned(),
            reasoning: verb.reason.clone(),
            metadata: None,
        };
        review::show(&request, context, &mut connection)
    };
    if verb.stdin || verb.file.is_some() {
        return send_with(context, verb.file.as_deref(), |content| {
            resolve(ResolutionRequest::Content {
                content,
                executable: None,
            })
        });
    }
    resolve(if verb.ours {
        ResolutionRequest::Side(MergeSide::Ours)
    } else if verb.theirs {
        ResolutionRequest::Side(MergeSide::Theirs)
    } else if verb.base {
        ResolutionRequest::Side(MergeSide::Base)
    } else if verb.union {
        ResolutionRequest::Union
    } else if verb.ours_file {
        ResolutionRequest::Whole(MergeSide::Ours)
    } else if verb.theirs_file {
        ResolutionRequest::Whole(MergeSide::Theirs)
    } else if verb.delete {
        ResolutionRequest::Delete
    } else {
        ResolutionRequest::Open
    })
}
