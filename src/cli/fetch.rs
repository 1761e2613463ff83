//! `tine fetch`: learns which forks git remotes have.

use serde::Serialize;

use super::context::Context;
use super::output::{Cell, Output, Tone};
use super::{Exit, SUCCESS};
use crate::change::state::{self, State};
use crate::git::{Head, ObjectId, Repository};
use crate::ops::Failure;
use crate::render::failure::FailureBody;
use crate::render::text::{human_age, human_ago, now_secs, one_line};
use crate::store::ForkName;

/// Fetch the forks that a git remote has
///
/// All forks of the remote are listed, and which of them are new or have changed since they were
/// last seen here. `tine new --from-remote` takes one up. No fork and no branch of this repository
/// changes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tine fetch
  tine new fix-parser --from-remote fix-parser   take one of them up
  tine fetch --all --prune
  tine fetch --json | jq -r '.forks[] | select(.news == \"new\") | .name'")]
pub(super) struct Fetch {
    /// The remote [default: the one that git would fetch from]
    #[arg(value_name = "REMOTE", conflicts_with = "all")]
    pub remote: Option<String>,

    /// Fetch from all remotes
    #[arg(long)]
    pub all: bool,

    /// Forget forks that a remote has no more
    #[arg(short, long)]
    pub prune: bool,
}

/// Change of a remote's fork since the last fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum News {
    New,
    Changed,
    /// The remote does not have it any more.
    Gone,
}

/// One fork of a remote.
#[derive(Serialize)]
struct Line {
    remote: String,
    name: ForkName,
    news: Option<News>,
    /// Name of the fork in the repository that pushed it.
    fork: Option<ForkName>,
    branch: Option<String>,
    commit: String,
    head_commit: Option<String>,
    base_commit: Option<String>,
    summary: Option<String>,
    uncommitted: bool,
    sender_name: Option<String>,
    sender_email: Option<String>,
    sent_secs: Option<i64>,
}

#[derive(Serialize)]
struct Listing<'a> {
    forks: &'a [Line],
    /// Forks on remotes that cannot be read, and so not taken up.
    damaged: Vec<FailureBody<'a>>,
    /// Remotes that could not be reached.
    failures: Vec<FailureBody<'a>>,
}

pub(super) fn run(verb: &Fetch, context: &Context) -> Result<Exit, Failure> {
    let repository = context.repository()?;
    let remotes = if verb.all {
        repository.remotes_to_fetch()?
    } else {
        let head = head_here(context)?;
        vec![repository.fetch_remote(verb.remote.as_deref(), head.short_branch())?]
    };
    let (mut lines, mut damaged, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for remote in &remotes {
        match fetched(context, repository, remote, verb.prune) {
            Ok((found, unreadable)) => {
                lines.extend(found);
                damaged.extend(unreadable);
            }
            Err(failure) if !verb.all => return Err(failure),
            Err(failure) => failures.push(failure),
        }
    }
    let output = &context.output;
    if output.is_json() {
        output.json(&Listing {
            forks: &lines,
            damaged: damaged.iter().map(FailureBody::from).collect(),
            failures: failures.iter().map(FailureBody::from).collect(),
        })?;
    } else {
        if lines.is_empty() {
            output.note(&format!(
                "no forks are on {}: `tine push FORK` sends one",
                match remotes.as_slice() {
                    [only] => only.as_str(),
                    _ => "any remote",
                }
            ));
        } else {
            output.text(&output.table(&rows(&lines, verb.all, output)))?;
        }
        for failure in damaged.iter().chain(&failures) {
            output.trouble(failure);
        }
    }
    Ok(failures
        .first()
        .map_or(SUCCESS, |failure| failure.exit.code()))
}

/// Returns HEAD of the worktree that the command runs in.
pub(super) fn head_here(context: &Context) -> Result<Head, Failure> {
    let repository = context.repository()?;
    Ok(repository.head_of(&Repository::git_dir_at(context.cwd())?)?)
}

/// Formats the sender and age of a state: `Ada <ada@example.org> pushed it 3 min ago`.
pub(super) fn sent(state: &State, what: &str) -> String {
    format!(
        "{} <{}> pushed {what} {}",
        one_line(&state.sender_name),
        one_line(&state.sender_email),
        human_ago(state.sent_secs, now_secs())
    )
}

/// Fetches one fork of a remote.
pub(super) fn fetch_one(context: &Context, remote: &str, name: &ForkName) -> Result<(), Failure> {
    let repository = context.repository()?;
    Ok(context.output.with_progress(|progress| {
        repository.fetch_states(remote, Some(name.as_str()), false, progress)
    })?)
}

/// Fetches the forks of a remote.
///
/// Returns the forks as they are now, and a failure for each that cannot be read.
fn fetched(
    context: &Context,
    repository: &Repository,
    remote: &str,
    prune: bool,
) -> Result<(Vec<Line>, Vec<Failure>), Failure> {
    let before = repository.all_tracked(remote)?;
    let output = &context.output;
    output.with_progress(|progress| repository.fetch_states(remote, None, prune, progress))?;
    let after = repository.all_tracked(remote)?;
    let (mut lines, mut damaged) = (Vec::new(), Vec::new());
    for (name, id) in &after {
        // Other names do not come from tine.
        let Ok(name) = ForkName::parse(name) else {
            continue;
        };
        let news = match before.iter().find(|(known, _)| known == name.as_str()) {
            None => Some(News::New),
            Some((_, known)) if known != id => Some(News::Changed),
            Some(_) => None,
        };
        match state::read(repository, *id) {
            Ok(state) => lines.push(line(remote, name, news, *id, Some(state))),
            Err(error) => {
                damaged.push(
                    Failure::from(error).context(format!("{name} on {remote} cannot be taken up")),
                );
            }
        }
    }
    let is_gone = |name: &str| after.iter().all(|(known, _)| known != name);
    for (name, id) in before.iter().filter(|(name, _)| is_gone(name)) {
        if let Ok(name) = ForkName::parse(name) {
            let state = state::read(repository, *id).ok();
            lines.push(line(remote, name, Some(News::Gone), *id, state));
        }
    }
    Ok((lines, damaged))
}

fn line(
    remote: &str,
    name: ForkName,
    news: Option<News>,
    id: ObjectId,
    state: Option<State>,
) -> Line {
    let hex = |id: ObjectId| id.to_string();
    let of_state = state.as_ref();
    Line {
        remote: remote.to_owned(),
        name,
        news,
        commit: hex(id),
        head_commit: of_state.and_then(|state| state.head).map(hex),
        base_commit: of_state.and_then(|state| state.base).map(hex),
        uncommitted: of_state.is_some_and(|state| state.is_uncommitted),
        sent_secs: of_state.map(|state| state.sent_secs),
        fork: of_state.map(|state| state.fork.clone()),
        branch: of_state.and_then(|state| state.branch.clone()),
        summary: of_state.and_then(|state| state.summary.clone()),
        sender_name: of_state.map(|state| state.sender_name.clone()),
        sender_email: state.map(|state| state.sender_email),
    }
}

fn rows(lines: &[Line], shows_remotes: bool, output: &Output) -> Vec<Vec<Cell>> {
    let now_secs = now_secs();
    let heading = |text| Cell::new(text).toned(output, Tone::Faint);
    let mut rows = vec![vec![
        heading("NAME"),
        heading("NEWS"),
        heading("BRANCH"),
        heading("UNCOMMITTED"),
        heading("BY"),
        heading("AGE").right(),
        heading("LAST COMMIT"),
    ]];
    rows.extend(lines.iter().map(|line| {
        let name = if shows_remotes {
            format!("{}/{}", line.remote, line.name)
        } else {
            line.name.to_string()
        };
        let news = match line.news {
            Some(News::New) => Cell::new("new").toned(output, Tone::Good),
            Some(News::Changed) => Cell::new("changed").toned(output, Tone::Good),
            Some(News::Gone) => Cell::new("gone").toned(output, Tone::Bad),
            None => Cell::new(""),
        };
        let age = line.sent_secs.map(|secs| human_age(secs, now_secs));
        let text = |text: &Option<String>, none: &str| one_line(text.as_deref().unwrap_or(none));
        vec![
            Cell::new(name).toned(output, Tone::Name),
            news,
            Cell::new(text(&line.branch, "(detached)")),
            Cell::new(if line.uncommitted { "yes" } else { "" }),
            Cell::new(text(&line.sender_name, "")),
            Cell::new(age.unwrap_or_default()).right(),
            Cell::new(text(&line.summary, "")),
        ]
    }));
    rows
}
