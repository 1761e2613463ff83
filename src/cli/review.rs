//! `tine review`: stored merges with conflicts.

use super::context::Context;
use super::merge::{print_merged, with_contents};
use super::output::{Cell, Output, Tone};
use super::shown::{self, Shown};
use super::trees::Difference;
use super::{Exit, SUCCESS, sequencing};
use crate::change::review::ReviewState;
use crate::client;
use crate::client::Client;
use crate::client::hooks::HookOutput;
use crate::client::merging::HookOptions;
use crate::merge::MergeSide;
use crate::ops::protocol::{ReviewInfo, ReviewOutcome, ReviewShown, Reviews};
use crate::ops::{
    AbortReview, CommitReview, Failure, ListReviews, Operation, RefreshReview, ShowReview,
};
use crate::render::merging::kind_in_words;
use crate::render::text::{counted, human_age, now_secs, one_line, quoted, short_id};

/// Look at merges with conflicts, and commit or abort them
///
/// `tine merge --review` keeps a merge with conflicts as a review. `tine resolve` says what is to
/// become of each conflict; it may be said again. Nothing is merged before `tine review commit`,
/// and nothing is changed by `tine review abort`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine review list
  tine review show 3
  tine resolve 3 src/main.rs --theirs
  tine review diff 3
  tine review commit 3 -m 'Merge the parser'")]
pub(super) struct Review {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    List(ListReviews),
    Show(ShowReview),
    Diff(Diff),
    Commit(CommitReview),
    Refresh(RefreshReview),
    Abort(AbortReview),
}

/// Show what a review would change in the target
///
/// Open conflicts are left out: their paths appear as deleted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  tine review diff 3 --stat")]
pub(super) struct Diff {
    /// Its number
    #[arg(value_name = "REVIEW")]
    pub review: u64,

    /// Show how many lines change in each file
    #[arg(long)]
    pub stat: bool,
}

pub(super) fn run(verb: &Review, context: &Context) -> Result<Exit, Failure> {
    match &verb.action {
        Action::List(verb) => shown::run(verb, context),
        Action::Show(verb) => show(verb, context, &mut context.connect()?),
        Action::Refresh(verb) => show(verb, context, &mut context.connect()?),
        Action::Abort(verb) => show(verb, context, &mut context.connect()?),
        Action::Diff(verb) => diff(verb, context, &mut context.connect()?),
        Action::Commit(verb) => commit(context, &mut context.connect()?, verb.clone()),
    }
}

impl Shown for ListReviews {
    fn show(&self, listed: &Reviews, context: &Context) -> Result<(), Failure> {
        for failure in &listed.damaged {
            context.output.trouble(failure);
        }
        let rows: Vec<Vec<Cell>> = listed
            .reviews
            .iter()
            .map(|review| {
                vec![
                    Cell::new(review.record.id.to_string()).right(),
                    Cell::new(format!(
                        "{} into {}",
                        review.record.merge.source, review.record.merge.into
                    )),
                    Cell::new(state_text(review)),
                    Cell::new(human_age(review.record.created_secs, now_secs())),
                ]
            })
            .collect();
        context.output.long(&context.output.table(&rows))
    }
}

/// Describes the review's state in a few words.
fn state_text(review: &ReviewInfo) -> String {
    let record = &review.record;
    match record.state {
        ReviewState::Committed => {
            format!(
                "committed as {}",
                short_id(record.commit.as_deref().unwrap_or_default())
            )
        }
        ReviewState::Aborted => "aborted".to_owned(),
        ReviewState::Open if review.gone.contains(&MergeSide::Ours) => {
            "its target is gone".to_owned()
        }
        ReviewState::Open if !review.moved.is_empty() => "outdated".to_owned(),
        ReviewState::Open => match review.open {
            0 => "resolved".to_owned(),
            open => format!(
                "{open} of {} open",
                counted(record.conflicts.len(), "conflict")
            ),
        },
    }
}

/// Calls an operation whose answer is a review, and shows the review.
pub(super) fn show(
    operation: &impl Operation<Answer = ReviewShown>,
    context: &Context,
    connection: &mut Client,
) -> Result<Exit, Failure> {
    let shown = connection.call(operation)?;
    let output = &context.output;
    if output.is_json() {
        output.json(&with_contents(
            context,
            &shown,
            &shown.info.record.conflicts,
        )?)?;
    } else {
        output.long(&format_review(&shown, output))?;
    }
    Ok(SUCCESS)
}

fn format_review(shown: &ReviewShown, output: &Output) -> String {
    let record = &shown.info.record;
    let mut text = format!(
        "review {}: {} into {}, {}\n",
        record.id,
        record.merge.source,
        record.merge.into,
        state_text(&shown.info)
    );
    let rows: Vec<Vec<Cell>> = record
        .conflicts
        .iter()
        .map(|conflict| {
            let resolution = match &conflict.resolution {
                None => Cell::new("open").toned(output, Tone::Bad),
                Some(resolution) => {
                    let how = resolution.how.in_words();
                    Cell::new(format!("{how} by {}", resolution.by)).toned(output, Tone::Good)
                }
            };
            let reasoning = conflict
                .resolution
                .as_ref()
                .and_then(|resolution| resolution.reasoning.as_deref());
            vec![
                Cell::new(quoted(&conflict.path)),
                Cell::new(kind_in_words(conflict)),
                resolution,
                Cell::new(one_line(reasoning.unwrap_or_default())),
            ]
        })
        .collect();
    text.push_str(&output.table(&rows));
    if let Some(verdict) = &record.verdict {
        let word = verdict.kind.in_words();
        let reasoning = one_line(verdict.reasoning.as_deref().unwrap_or_default());
        text.push_str(&format!(
            "{word} by {}: {reasoning}\n",
            one_line(&verdict.by)
        ));
    }
    for amendment in &record.amendments {
        text.push_str(&format!("amended: {}\n", quoted(&amendment.path)));
    }
    let id = record.id;
    if record.state == ReviewState::Aborted {
        text.push_str(&format!("`tine review refresh {id}` takes it up again\n"));
    }
    if record.state != ReviewState::Open {
        return text;
    }
    let info = &shown.info;
    let (source, into) = (&record.merge.source, &record.merge.into);
    if info.gone.contains(&MergeSide::Ours) {
        text.push_str(&format!(
            "{into} is gone: `tine review commit {id}` says what brings it back, `tine review abort {id}` lets the review go\n"
        ));
        return text;
    }
    if info.gone.contains(&MergeSide::Theirs) {
        text.push_str(&format!(
            "{source} is gone: the review goes on from the commits that it keeps\n"
        ));
    }
    for side in &info.moved {
        let who = match side {
            MergeSide::Ours => into,
            _ => source,
        };
        text.push_str(&format!(
            "{who} has moved on since: `tine review refresh {id}` plans it again\n"
        ));
    }
    if info.moved.is_empty() {
        text.push_str(&match info.open {
            0 => format!("`tine review commit {id}` merges it\n"),
            _ => format!(
                "`tine resolve {id} PATH --ours|--theirs|--base|--file F|--delete` resolves a conflict\n"
            ),
        });
    }
    text
}

fn diff(verb: &Diff, context: &Context, connection: &mut Client) -> Result<Exit, Failure> {
    let shown = connection.call(&ShowReview {
        review: verb.review,
    })?;
    let difference = Difference {
        old_tree: &shown.old_tree,
        new_tree: &shown.new_tree,
        changes: &shown.changes,
    };
    difference.show(context, if verb.stat { &["--stat"] } else { &[] })
}

/// Commits a merge with a review's resolutions.
pub(super) fn commit(
    context: &Context,
    connection: &mut Client,
    request: CommitReview,
) -> Result<Exit, Failure> {
    let hooks = HookOptions {
        output: HookOutput::Shown,
        no_verify: false,
    };
    match client::review::commit(context, connection, request, hooks)? {
        ReviewOutcome::Sequenced(done) => sequencing::print_sequenced(context, &done),
        ReviewOutcome::Merge(merged) => print_merged(context, &merged),
    }
}
