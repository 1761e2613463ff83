//! `tine` alone: the forks, open reviews and handoffs, and suggested commands.

use std::path::PathBuf;

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone, table};
use super::{Exit, SUCCESS};
use crate::change::handoff::HandoffState;
use crate::client::Client;
use crate::ops;
use crate::ops::protocol::{ForkInfo, HandoffInfo, ReviewInfo};
use crate::ops::{ErrorCode, Failure};
use crate::path::text::host_path;
use crate::render::failure::FailureBody;
use crate::render::text::counted;
use crate::store::ForkName;

/// Total layer size, in bytes, up to which uncommitted paths are counted.
///
/// The count may have to read the layers.
const LITTLE_BYTES: u64 = 32 << 20;

/// Most commands that are suggested.
const SUGGESTED: usize = 4;

#[derive(Serialize)]
struct Overview<'a> {
    forks: Vec<ForkLine>,
    reviews: Vec<ReviewLine>,
    handoffs: Vec<HandoffLine>,
    next: Vec<Suggestion>,
    damaged: Vec<FailureBody<'a>>,
}

#[derive(Serialize)]
struct ForkLine {
    name: ForkName,
    branch: Option<String>,
    mounted: bool,
    #[serde(with = "host_path")]
    mount_dir: PathBuf,
    /// Number of uncommitted paths; `None` if too slow to count, or failed.
    uncommitted: Option<usize>,
    /// True if the command runs in the fork's mount.
    here: bool,
}

/// An open review.
#[derive(Serialize)]
struct ReviewLine {
    id: u64,
    source: String,
    into: String,
    conflicts: usize,
    open: usize,
}

/// A handoff that waits to be applied.
#[derive(Serialize)]
struct HandoffLine {
    id: u64,
    fork: Option<ForkName>,
    to: Option<String>,
    commits: u64,
}

/// A command that fits the current state.
#[derive(Serialize)]
struct Suggestion {
    command: String,
    about: &'static str,
}

pub(super) fn run(context: &Context) -> Result<Exit, Failure> {
    let connection = context.connect_to_forks().map_err(welcomed)?;
    let (mut forks, mut reviews, mut handoffs, mut damaged) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    if let Some(mut connection) = connection {
        let (infos, broken) = connection.forks()?;
        forks = fork_lines(context, &mut connection, infos);
        damaged.extend(broken);
        let listed = connection.call(&ops::ListReviews { all: false })?;
        reviews = listed.reviews.into_iter().map(ReviewLine::from).collect();
        damaged.extend(listed.damaged);
        let listed = connection.call(&ops::ListHandoffs { all: false })?;
        handoffs = listed
            .handoffs
            .into_iter()
            .filter(|handoff| handoff.record.state == HandoffState::Ready)
            .map(HandoffLine::from)
            .collect();
        damaged.extend(listed.damaged);
    }
    let overview = Overview {
        next: next(&forks, &reviews, &handoffs),
        forks,
        reviews,
        handoffs,
        damaged: damaged.iter().map(FailureBody::from).collect(),
    };
    let output = &context.output;
    if output.is_json() {
        output.json(&overview)?;
        return Ok(SUCCESS);
    }
    output.text(&format_overview(&overview, output))?;
    for failure in &damaged {
        output.trouble(failure);
    }
    Ok(SUCCESS)
}

/// Adds a hint for a first call outside any repository.
fn welcomed(failure: Failure) -> Failure {
    match failure.code {
        ErrorCode::NotARepository => failure.hint(
            "tine gives every coding agent a workspace of its own over a git repository: go into one (or name it with `-C DIR`) and run `tine new NAME`; `tine --help` lists the commands",
        ),
        _ => failure,
    }
}

fn fork_lines(context: &Context, connection: &mut Client, infos: Vec<ForkInfo>) -> Vec<ForkLine> {
    let here = context.here_of(&infos).map(|fork| fork.name.clone());
    let all_bytes: u64 = infos.iter().map(|fork| fork.layer_bytes).sum();
    let mut lines = Vec::new();
    for fork in infos {
        // If the changes cannot be listed, `tine status` tells why.
        let changes = (all_bytes <= LITTLE_BYTES).then(|| connection.changes(&fork.name, false));
        lines.push(ForkLine {
            uncommitted: changes
                .and_then(Result::ok)
                .map(|changes| changes.changes.len()),
            here: here.as_ref() == Some(&fork.name),
            name: fork.name,
            branch: fork.branch,
            mounted: fork.mounted,
            mount_dir: fork.mount_dir,
        });
    }
    lines
}

impl From<ReviewInfo> for ReviewLine {
    fn from(review: ReviewInfo) -> ReviewLine {
        ReviewLine {
            id: review.record.id,
            conflicts: review.record.conflicts.len(),
            source: review.record.merge.source,
            into: review.record.merge.into,
            open: review.open,
        }
    }
}

impl From<HandoffInfo> for HandoffLine {
    fn from(handoff: HandoffInfo) -> HandoffLine {
        HandoffLine {
            id: handoff.record.id,
            fork: handoff.record.fork,
            to: handoff.record.to,
            commits: handoff.record.commits,
        }
    }
}

/// Suggests two to four commands.
fn next(forks: &[ForkLine], reviews: &[ReviewLine], handoffs: &[HandoffLine]) -> Vec<Suggestion> {
    let mut next = Vec::new();
    let mut suggest = |command: String, about| next.push(Suggestion { command, about });
    if let Some(review) = reviews.first() {
        match review.open {
            0 => suggest(
                format!("tine review commit {}", review.id),
                "merge what is resolved",
            ),
            _ => suggest(
                format!("tine review show {}", review.id),
                "see its conflicts",
            ),
        }
    }
    if let Some(handoff) = handoffs.first() {
        suggest(
            format!("tine handoff show {}", handoff.id),
            "see what is handed over",
        );
    }
    let is_changed = |fork: &&ForkLine| fork.uncommitted.is_some_and(|paths| paths > 0);
    // The fork of the current directory comes first.
    let mut by_place: Vec<&ForkLine> = forks.iter().collect();
    by_place.sort_by_key(|fork| !fork.here);
    if let Some(fork) = by_place.iter().copied().find(is_changed) {
        suggest(format!("tine diff {}", fork.name), "see what changed");
        suggest(format!("tine commit {} -m MSG", fork.name), "commit it");
    }
    match by_place.iter().find(|fork| !fork.here) {
        Some(fork) if fork.mounted => suggest(format!("tine shell {}", fork.name), "work in it"),
        Some(fork) => suggest(format!("tine mount {}", fork.name), "mount it"),
        None => {}
    }
    suggest(
        "tine new NAME".to_owned(),
        "make a fork of HEAD, and mount it",
    );
    if next.len() == 1 {
        next.push(Suggestion {
            command: "tine --help".to_owned(),
            about: "see all commands",
        });
    }
    next.truncate(SUGGESTED);
    next
}

fn format_overview(overview: &Overview, output: &Output) -> String {
    let mut text = if overview.forks.is_empty() {
        "there are no forks yet\n".to_owned()
    } else {
        output.table(&fork_rows(&overview.forks, output))
    };
    let waiting = overview.reviews.iter().map(|review| {
        let state = match review.open {
            0 => "resolved".to_owned(),
            open => format!("{open} of {} open", counted(review.conflicts, "conflict")),
        };
        (
            format!("review {}", review.id),
            format!("{} into {}, {state}", review.source, review.into),
        )
    });
    let waiting = waiting.chain(overview.handoffs.iter().map(|handoff| {
        let fork = handoff
            .fork
            .as_ref()
            .map_or("imported".to_owned(), ToString::to_string);
        let to = handoff
            .to
            .as_ref()
            .map(|to| format!(" to {to}"))
            .unwrap_or_default();
        let commits = usize::try_from(handoff.commits).unwrap_or(usize::MAX);
        let about = format!("{fork}{to}, {}", counted(commits, "commit"));
        (format!("handoff {}", handoff.id), about)
    }));
    let rows: Vec<Vec<Cell>> = waiting
        .map(|(what, about)| {
            vec![
                Cell::new(what).toned(output, Tone::Careful),
                Cell::new(about),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&output.table(&rows));
    }
    let rows: Vec<Vec<Cell>> = overview
        .next
        .iter()
        .map(|next| {
            vec![
                Cell::indented(&next.command),
                Cell::new(next.about).toned(output, Tone::Faint),
            ]
        })
        .collect();
    text.push_str("\nnext:\n");
    // Commands are not shortened, so that they can be copied whole.
    text.push_str(&table(&rows));
    text
}

fn fork_rows(forks: &[ForkLine], output: &Output) -> Vec<Vec<Cell>> {
    let is_in_fork = forks.iter().any(|fork| fork.here);
    let mark = |here| match (is_in_fork, here) {
        (false, _) => "",
        (true, true) => "* ",
        (true, false) => "  ",
    };
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for fork in forks {
        let state = if fork.mounted {
            Cell::new("mounted").toned(output, Tone::Good)
        } else {
            Cell::new("unmounted").toned(output, Tone::Faint)
        };
        let uncommitted = match fork.uncommitted {
            Some(0) => Cell::new("nothing uncommitted").toned(output, Tone::Faint),
            Some(paths) => Cell::new(format!("{} uncommitted", counted(paths, "path"))),
            None => Cell::new(""),
        };
        rows.push(vec![
            Cell::marked(mark(fork.here), fork.name.as_str()).toned(output, Tone::Name),
            Cell::new(fork.branch.as_deref().unwrap_or("(detached)")),
            state,
            uncommitted,
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(name: &str, mounted: bool, uncommitted: usize, here: bool) -> ForkLine {
        ForkLine {
            name: ForkName::parse(name).unwrap(),
            branch: None,
            mounted,
            mount_dir: PathBuf::from("/"),
            uncommitted: Some(uncommitted),
            here,
        }
    }

    fn commands(forks: &[ForkLine], reviews: &[ReviewLine]) -> Vec<String> {
        next(forks, reviews, &[])
            .into_iter()
            .map(|next| next.command)
            .collect()
    }

    #[test]
    fn what_is_suggested_fits_how_things_stand() {
        assert_eq!(commands(&[], &[]), ["tine new NAME", "tine --help"]);
        assert_eq!(
            commands(&[fork("a", true, 0, false)], &[]),
            ["tine shell a", "tine new NAME"]
        );
        assert_eq!(
            commands(&[fork("a", false, 0, false), fork("b", true, 2, true)], &[]),
            [
                "tine diff b",
                "tine commit b -m MSG",
                "tine mount a",
                "tine new NAME"
            ]
        );
        assert_eq!(
            commands(&[fork("a", true, 0, true)], &[]),
            ["tine new NAME", "tine --help"]
        );
        let review = |open| ReviewLine {
            id: 3,
            source: "a".to_owned(),
            into: "main".to_owned(),
            conflicts: 2,
            open,
        };
        let forks = [fork("a", true, 1, false)];
        assert_eq!(
            commands(&forks, &[review(1)]),
            [
                "tine review show 3",
                "tine diff a",
                "tine commit a -m MSG",
                "tine shell a"
            ]
        );
        assert_eq!(commands(&forks, &[review(0)])[0], "tine review commit 3");
    }
}
