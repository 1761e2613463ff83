//! The operations that put changes onto a fork or branch.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SequenceArgs, mailboxes, sequence, write_content};
use crate::failure::{ErrorCode, Failure};
use crate::operation::{Call, Operation, joined_message};
use crate::protocol::{ReviewPolicy, Sequenced};
use crate::restoring::ConflictOptions;
use crate::transfer::Transfer;
use tine_change::sequence::{Emptied, SequenceRequest};
use tine_store::ForkName;

/// Bring a fork up to date with the branch that it came from
///
/// The fork moves to where that branch is now, or to --from, and its own changes are merged onto
/// it: commits by a merge commit, or with --rebase made again one by one, and what is uncommitted
/// stays uncommitted. A fork without commits of its own merely moves. Mounted or not, it is one
/// step, and only files that differ are touched.
///
/// Conflicts change nothing: they are listed, and the exit code is 3. It is 7 where there is
/// nothing new. `ours` is the fork's, `theirs` what comes; with --rebase it is the other way round,
/// as with git.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[command(after_long_help = "\
Examples:
  tine update fix-parser                    to where its branch is now
  tine update fix-parser --fetch --rebase   ask the remote first, and make its commits again
  tine update fix-parser --from v2.0        to a tag
  tine update fix-parser --carried          take up the node_modules that the main checkout has now
  tine update fix-parser --review           keep conflicts, to be resolved one by one")]
pub struct Update {
    /// The fork [default: the one you stand in]
    #[arg(value_name = "FORK")]
    #[schemars(skip)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// What to bring it up to: a revision, or another fork's HEAD [default: the branch that it came
    /// from]
    #[arg(long, value_name = "REV")]
    #[serde(default)]
    pub from: Option<String>,

    /// Make the fork's commits again, instead of merging
    #[arg(long)]
    #[serde(default)]
    pub rebase: bool,

    /// The merge commit's message
    #[arg(short, long, value_name = "MSG", conflicts_with = "rebase")]
    #[schemars(skip)]
    #[serde(default)]
    pub message: Vec<String>,

    /// Options that other commands share.
    #[command(flatten)]
    #[serde(flatten)]
    pub onto: SequenceOptions,
}

impl Operation for Update {
    const NAME: &'static str = "update";
    const PROGRESS: &'static str = "putting commits on it";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let request = SequenceRequest::Update {
            from: self.from,
            rebase: self.rebase,
        };
        let message = joined_message(&self.message);
        self.onto.run(call, self.fork, request, message)
    }
}

/// Make commits again on a fork
///
/// As `git cherry-pick`, mounted or not, and all or nothing: authors, dates and messages stay. What
/// is uncommitted in the fork stays, too; where a commit would overwrite it, it is refused.
///
/// Conflicts change nothing: they are listed with the commit that they are in, and the exit code is
/// 3.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine cherry-pick fix-parser main~2          one commit
  tine cherry-pick fix-parser main~5..main    a range
  tine cherry-pick fix-parser 3f2a91c -x      and say in the message where it is from")]
pub struct CherryPick {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// Commits and ranges, as git understands them
    #[arg(value_name = "COMMIT", required = true)]
    pub commits: Vec<String>,

    /// Say in each message which commit it is from
    #[arg(short = 'x')]
    #[serde(default)]
    pub says_origin: bool,

    /// Of merges: take what changed against this parent, counted from 1
    #[arg(short, long, value_name = "PARENT")]
    #[serde(default)]
    pub mainline: Option<usize>,

    /// What becomes of commits that would change nothing
    #[arg(long, value_enum, value_name = "HOW", default_value = "stop")]
    #[serde(default)]
    pub empty: Emptied,

    /// Options that other commands share.
    #[command(flatten)]
    #[serde(flatten)]
    pub onto: SequenceOptions,
}

impl Operation for CherryPick {
    const NAME: &'static str = "cherry-pick";
    const PROGRESS: &'static str = "putting commits on it";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let request = SequenceRequest::CherryPick {
            commits: self.commits,
            mainline: self.mainline,
            says_origin: self.says_origin,
            emptied: self.empty,
        };
        self.onto.run(call, self.fork, request, None)
    }
}

// Options of the commands that apply a sequence to a fork.
#[expect(
    missing_docs,
    reason = "a doc comment would become the help of the commands that flatten this"
)]
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize, JsonSchema)]
pub struct SequenceOptions {
    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    #[serde(default)]
    pub dry_run: bool,

    /// Choices for conflicts.
    #[command(flatten)]
    #[schemars(skip)]
    #[serde(default)]
    pub choices: ConflictOptions,

    /// Policy for keeping the sequence as a review instead of applying it.
    #[arg(skip)]
    #[schemars(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,
}

impl SequenceOptions {
    /// Runs the sequence on `fork`. `None` means the caller's fork.
    fn run(
        self,
        call: &Call<'_>,
        fork: Option<ForkName>,
        request: SequenceRequest,
        message: Option<String>,
    ) -> Result<Sequenced, Failure> {
        let fork = call.fork(fork)?;
        let args = SequenceArgs {
            message,
            dry_run: self.dry_run,
            review: self.review,
            ..SequenceArgs::of(
                format!("fork:{fork}"),
                request,
                self.choices,
                call.git_dir()?,
            )
        };
        sequence(call, &args)
    }
}

/// Apply a patch to a fork's files
///
/// As `git apply`, mounted or not: what comes of it is uncommitted, in one step that `tine undo`
/// takes back. Patches of git's and of `diff -u` are understood, with renames, modes and binary
/// files; paths are from the fork's root. A patch that does not fit changes nothing: the files and
/// hunks are listed, and the exit code is 3. --review keeps what fits, to resolve the rest.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine apply fix-parser fix.patch
  git diff | tine apply fix-parser - --3way   merge where the text has moved on
  tine apply fix-parser fix.patch --check     see whether it fits")]
pub struct ApplyPatch {
    /// The fork
    #[arg(value_name = "FORK", required = true)]
    #[serde(default)]
    pub fork: Option<ForkName>,

    /// The patch; `-` is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    #[serde(skip)]
    pub file: PathBuf,

    /// Merge what the patch was made of with what is there, where the repository has it
    #[arg(short = '3', long = "3way")]
    #[serde(default)]
    pub three_way: bool,

    /// Apply it backwards
    #[arg(short = 'R', long)]
    #[serde(default)]
    pub reverse: bool,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, visible_alias = "dry-run", conflicts_with_all = ["review", "resolver"])]
    #[serde(default)]
    pub check: bool,

    /// How many leading parts to take from the patch's paths
    #[arg(short = 'p', value_name = "N", default_value_t = 1)]
    pub strip: u8,

    /// Choices for conflicts.
    #[command(flatten)]
    #[serde(default)]
    pub choices: ConflictOptions,

    /// Policy for keeping the patch as a review instead of applying it.
    #[arg(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,

    /// Content of the patch, in transit to the daemon.
    #[arg(skip)]
    pub content: Transfer,
}

impl Operation for ApplyPatch {
    const NAME: &'static str = "apply";
    const PROGRESS: &'static str = "applying the patch";
    type Answer = Sequenced;

    fn fork(&mut self) -> Option<&mut Option<ForkName>> {
        Some(&mut self.fork)
    }

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let patch = write_content(call.daemon, &call.daemon.repository_now()?, &self.content)?;
        let request = SequenceRequest::Patch {
            patch: patch.to_string(),
            strip: self.strip,
            reverse: self.reverse,
            three_way: self.three_way,
        };
        let options = SequenceOptions {
            dry_run: self.check,
            choices: self.choices,
            review: self.review,
        };
        options.run(call, self.fork, request, None)
    }
}

/// Apply a handoff to a fork or branch
///
/// As `git am --3way` does, all or nothing: authors, dates and messages stay. Patches that are
/// there already are left out. Conflicts change nothing: they are listed with the commit that they
/// are in, and the exit code is 3.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(after_long_help = "\
Examples:
  tine handoff apply 3                       to whom it is for
  tine handoff apply 3 --into main --dry-run
  tine handoff apply 3 --review              keep conflicts, to be resolved one by one")]
pub struct ApplyHandoff {
    /// Its number
    #[arg(value_name = "ID")]
    pub handoff: u64,

    /// The fork or branch to apply it to [default: whom it is for]
    #[arg(long, value_name = "TARGET")]
    #[serde(default)]
    pub into: Option<String>,

    /// Show what would come of it, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["review", "resolver"])]
    #[serde(default)]
    pub dry_run: bool,

    /// Do not merge where a patch does not fit as it stands
    #[arg(long)]
    #[serde(default)]
    pub no_3way: bool,

    /// Apply it even if it was applied, or something is uncommitted there
    #[arg(long)]
    #[serde(default)]
    pub force: bool,

    /// Apply also what takes commits of the target's back, after `tine restore --exact` in the fork
    #[arg(long)]
    #[serde(default)]
    pub allow_revert: bool,

    /// Choices for conflicts.
    #[command(flatten)]
    #[serde(default)]
    pub choices: ConflictOptions,

    /// Policy for keeping the handoff as a review instead of applying it.
    #[arg(skip)]
    #[serde(default)]
    pub review: ReviewPolicy,
}

impl Operation for ApplyHandoff {
    const NAME: &'static str = "apply-handoff";
    const PROGRESS: &'static str = "applying the handoff";
    type Answer = Sequenced;

    fn run(self, call: &Call<'_>) -> Result<Sequenced, Failure> {
        let parent = mailboxes::check(call.daemon, self.handoff, self.force)?;
        let Some(into) = self.into.or(parent) else {
            return Err(Failure::new(ErrorCode::Usage, "no target is named")
                .hint("name a fork or branch: `--into TARGET`"));
        };
        let request = SequenceRequest::Mailbox {
            handoff: self.handoff,
            three_way: !self.no_3way,
        };
        let args = SequenceArgs {
            is_clean: !self.force,
            dry_run: self.dry_run,
            review: self.review,
            allow_revert: self.allow_revert,
            ..SequenceArgs::of(into, request, self.choices, call.git_dir()?)
        };
        sequence(call, &args)
    }
}
