//! Requests and answers about reviews.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, FromArgMatches, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChangeLine, Merged, Sequenced};
use crate::failure::Failure;
use tine_change::review::ReviewRecord;
use tine_merge::MergeSide;

/// Resolution of a conflict.
///
/// On the command line each is a flag, except [`ResolveWith::Content`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ResolveWith {
    /// What the target has, where both conflict
    Ours,
    /// What the source has, where both conflict
    Theirs,
    /// What both began as, where both conflict
    Base,
    /// The lines of both where they conflict, the target's first
    #[serde(alias = "both")]
    Union,
    /// The target's whole file, without any change of the source
    OursFile,
    /// The source's whole file, without any change of the target
    TheirsFile,
    /// The given content
    #[value(skip)]
    Content,
    /// No file
    Delete,
    /// Nothing yet: it is open again
    #[serde(alias = "open")]
    Reopen,
}

/// Resolutions that are flags, in the order of the help.
const FLAGS: [(&str, ResolveWith); 8] = [
    ("ours", ResolveWith::Ours),
    ("theirs", ResolveWith::Theirs),
    ("base", ResolveWith::Base),
    ("union", ResolveWith::Union),
    ("ours-file", ResolveWith::OursFile),
    ("theirs-file", ResolveWith::TheirsFile),
    ("delete", ResolveWith::Delete),
    ("reopen", ResolveWith::Reopen),
];

impl clap::Args for ResolveWith {
    fn augment_args(command: Command) -> Command {
        let flag = |(name, resolution): (&'static str, ResolveWith)| {
            let value = resolution.to_possible_value();
            let help = value.and_then(|value| value.get_help().cloned());
            let flag = Arg::new(name).long(name).group("how");
            flag.action(ArgAction::SetTrue)
                .help(help.unwrap_or_default())
        };
        command
            .args(FLAGS.map(flag))
            .group(ArgGroup::new("how").required(true))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ResolveWith::augment_args(command)
    }
}

impl FromArgMatches for ResolveWith {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ResolveWith, clap::Error> {
        let given = FLAGS.iter().find(|(name, _)| matches.get_flag(name));
        Ok(given.map_or(ResolveWith::Content, |(_, resolution)| *resolution))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ResolveWith::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Review and its state now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReviewInfo {
    /// Record of the review.
    #[serde(flatten)]
    pub record: ReviewRecord,
    /// Number of open conflicts.
    pub open: usize,
    /// Sides that changed since the merge was planned.
    pub moved: Vec<MergeSide>,
    /// Sides that no longer exist.
    ///
    /// Without `theirs` the review continues with the objects that it keeps. Without `ours` it
    /// waits until the target exists again.
    #[serde(default)]
    pub gone: Vec<MergeSide>,
}

/// Review with the changes that it would make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReviewShown {
    /// The review.
    #[serde(flatten)]
    pub info: ReviewInfo,
    /// Tree of the target, in hex.
    pub old_tree: String,
    /// Merged tree, in hex, without the open conflicts.
    pub new_tree: String,
    /// Changes from `old_tree` to `new_tree`.
    pub changes: Vec<ChangeLine>,
}

/// List of reviews.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reviews {
    /// Reviews, in order of their numbers.
    pub reviews: Vec<ReviewInfo>,
    /// Failures of reviews that cannot be read.
    pub damaged: Vec<Failure>,
}

/// Outcome of committing a review.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ReviewOutcome {
    /// Outcome of a merge.
    Merge(Box<Merged>),
    /// Outcome of a sequence.
    Sequenced(Box<Sequenced>),
}
