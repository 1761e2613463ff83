//! Requests of the page, and the calls of the daemon for them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::contents::{self, document};
use super::sides::SidesOptions;
use super::watch;
use tine_client::hooks::HookOutput;
use tine_client::merging::HookOptions;
use tine_client::{self as client, Client, identity, place as caller};
use tine_git::Repository;
use tine_ops as ops;
use tine_ops::protocol::{Forks, ResolveWith, ReviewPolicy, ReviewShown};
use tine_ops::transfer::Outgoing;
use tine_ops::{CallerContext, ErrorCode, Failure};
use tine_path::text::PathText;
use tine_store::{ForkName, Store};

/// Command name that the page's operations are recorded with.
const COMMAND: &str = "tine ui";

/// Default number of unchanged lines around a difference.
const CONTEXT_LINES: usize = 3;

/// Default maximum number of rows of one file.
const ROWS: usize = 400;

/// Upper limit for the number of rows of one file.
const ROWS_MAX: usize = 200_000;

/// Repository that the page shows.
pub struct PageContext {
    /// The repository's common git directory.
    pub common_dir: PathBuf,
    /// Git directory in which revisions resolve: the private one of a worktree.
    pub git_dir: PathBuf,
    /// Directory where the page was opened. Hooks and identities are found from there.
    pub cwd: PathBuf,
}

impl PageContext {
    /// Connects to the daemon, if it runs.
    ///
    /// A page that is only open does not start one.
    ///
    /// # Errors
    /// [`Failure`] if the daemon runs and cannot be connected to.
    pub fn running(&self) -> Result<Option<Client>, Failure> {
        Client::connect(&self.common_dir)
    }

    fn look(&self) -> Result<Client, Failure> {
        self.running()?.ok_or_else(|| {
            Failure::new(ErrorCode::DaemonUnreachable, "the daemon is stopped")
                .hint("any tine command starts it, and so does the button")
        })
    }

    fn act(&self) -> Result<Client, Failure> {
        Client::connect_or_start(&self.common_dir)
    }

    /// Opens the repository again, because the daemon may have packed new objects.
    fn repository(&self) -> Result<Repository, Failure> {
        Ok(Repository::open(&self.common_dir)?)
    }
}

/// Request of the page.
pub(crate) struct Asked {
    /// Decoded fields of the query.
    pub fields: Vec<(String, String)>,
    /// Body of a POST, as JSON.
    pub body: Vec<u8>,
}

impl Asked {
    fn text(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| value.as_str())
    }

    fn needed(&self, name: &str) -> Result<&str, Failure> {
        self.text(name)
            .ok_or_else(|| not_understood(&format!("{name} is missing")))
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Result<N, Failure> {
        let value = self.needed(name)?;
        value
            .parse()
            .map_err(|_| not_understood(&format!("{name} is {value:?}, which is no number")))
    }

    fn number_or<N: std::str::FromStr>(&self, name: &str, default: N) -> Result<N, Failure> {
        match self.text(name) {
            Some(_) => self.number(name),
            None => Ok(default),
        }
    }

    fn fork(&self, name: &str) -> Result<ForkName, Failure> {
        Ok(ForkName::parse(self.needed(name)?)?)
    }

    fn body<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| not_understood(&error.to_string()))
    }
}

fn not_understood(cause: &str) -> Failure {
    Failure::new(ErrorCode::Usage, "what the page asks is not understood")
        .cause(cause)
        .hint("reload the page: the program may have been replaced since")
}

/// Kind of a request: one that reads or one that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Reads only. Sent as GET.
    Look,
    /// Changes something. Sent as POST.
    Act,
}

/// Request that the page may make.
pub(crate) struct Route {
    pub name: &'static str,
    pub manner: Manner,
    pub answer: fn(&PageContext, &Asked) -> Result<Value, Failure>,
}

const ROUTES: [Route; 18] = [
    look("pulse", pulse),
    look("forks", forks),
    look("uncommitted", uncommitted),
    look("diff", diff),
    look("sides", sides),
    look("reviews", reviews),
    look("review", review),
    look("conflict", conflict),
    look("handoffs", handoffs),
    look("handoff", handoff),
    look("sessions", sessions),
    look("session", session),
    act("start", start),
    act("resolve", resolve),
    act("refresh", refresh),
    act("commit", commit),
    act("abort", abort),
    act("apply", apply),
];

const fn look(
    name: &'static str,
    answer: fn(&PageContext, &Asked) -> Result<Value, Failure>,
) -> Route {
    Route {
        name,
        manner: Manner::Look,
        answer,
    }
}

const fn act(
    name: &'static str,
    answer: fn(&PageContext, &Asked) -> Result<Value, Failure>,
) -> Route {
    Route {
        name,
        manner: Manner::Act,
        answer,
    }
}

/// Returns the route of that name.
pub(crate) fn find(name: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.name == name)
}

fn pulse(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let pulse = watch::next_pulse(place, asked.text("known").unwrap_or_default())?;
    Ok(json!({ "pulse": pulse }))
}

fn forks(place: &PageContext, _: &Asked) -> Result<Value, Failure> {
    let mut client = place.look()?;
    let Forks { forks, damaged } = client.call(&ops::ListForks {})?;
    let mut snapshots = serde_json::Map::new();
    for fork in &forks {
        let of_fork = client.call(&ops::ListSnapshots {
            fork: Some(fork.name.clone()),
        });
        // A fork that was deleted meanwhile has no snapshots.
        if let Ok(of_fork) = of_fork {
            snapshots.insert(fork.name.to_string(), document(&of_fork.snapshots)?);
        }
    }
    Ok(
        json!({ "forks": document(&forks)?, "damaged": document(&damaged)?, "snapshots": snapshots }),
    )
}

/// Returns the number of uncommitted paths of each fork, or its failure.
fn uncommitted(place: &PageContext, _: &Asked) -> Result<Value, Failure> {
    let mut client = place.look()?;
    let forks = client.call(&ops::ListForks {})?.forks;
    let mut told = serde_json::Map::new();
    for fork in forks {
        let changes = client.call(&ops::Status {
            fork: fork.name.clone(),
            write: false,
        });
        let line = match changes {
            Ok(changes) => json!({ "paths": changes.changes.len() }),
            Err(failure) => json!({ "trouble": document(&failure)? }),
        };
        told.insert(fork.name.to_string(), line);
    }
    Ok(Value::Object(told))
}

fn diff(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let request = ops::Diff {
        fork: asked.fork("fork")?,
        against: asked.text("against").map(str::to_owned),
        reverse: false,
    };
    let difference = place.look()?.call(&request)?;
    let trees = (difference.old_tree.as_str(), difference.new_tree.as_str());
    let changes = contents::with_line_counts(&place.repository()?, trees, &difference.changes)?;
    Ok(with(document(&difference)?, "changes", changes))
}

/// Returns `document` with another value in `field`.
fn with(mut document: Value, field: &str, value: Value) -> Value {
    if let Some(fields) = document.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
    document
}

fn sides(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let side = |mode, id| asked.text(mode).zip(asked.text(id));
    let options = SidesOptions {
        context: asked.number_or("context", CONTEXT_LINES)?,
        max_rows: asked.number_or("rows", ROWS)?.min(ROWS_MAX),
    };
    let repository = place.repository()?;
    let (old, new) = (side("old_mode", "old_id"), side("new_mode", "new_id"));
    document(&contents::compare(&repository, old, new, options)?)
}

fn reviews(place: &PageContext, _: &Asked) -> Result<Value, Failure> {
    document(&place.look()?.call(&ops::ListReviews { all: true })?)
}

/// Converts a review to JSON, with the line counts of its changes.
fn format_review(place: &PageContext, shown: &ReviewShown) -> Result<Value, Failure> {
    let trees = (shown.old_tree.as_str(), shown.new_tree.as_str());
    let changes = contents::with_line_counts(&place.repository()?, trees, &shown.changes)?;
    Ok(with(document(shown)?, "changes", changes))
}

fn review(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let request = ops::ShowReview {
        review: asked.number("review")?,
    };
    format_review(place, &place.look()?.call(&request)?)
}

fn conflict(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let review = asked.number("review")?;
    let number: usize = asked.number("conflict")?;
    let shown = place.look()?.call(&ops::ShowReview { review })?;
    let record = shown.info.record.conflicts.get(number).ok_or_else(|| {
        Failure::new(
            ErrorCode::NoSuchConflict,
            format!("review {review} has no conflict {number}"),
        )
        .hint("reload the page: it was planned again, perhaps")
    })?;
    contents::conflict(&place.repository()?, record)
}

fn handoffs(place: &PageContext, _: &Asked) -> Result<Value, Failure> {
    let request = ops::ListHandoffs { all: true };
    document(&place.look()?.call(&request)?)
}

fn handoff(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let request = ops::ShowHandoff {
        id: asked.number("handoff")?,
    };
    let shown = place.look()?.call(&request)?;
    let told = document(&shown)?;
    match (&shown.old_tree, &shown.new_tree) {
        (Some(old_tree), Some(new_tree)) => {
            let repository = place.repository()?;
            let changes =
                contents::with_line_counts(&repository, (old_tree, new_tree), &shown.changes)?;
            Ok(with(told, "changes", changes))
        }
        _ => Ok(told),
    }
}

fn sessions(place: &PageContext, _: &Asked) -> Result<Value, Failure> {
    document(&place.look()?.call(&ops::ListSessions {})?)
}

fn session(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let request = ops::ShowRound {
        session: asked.fork("session")?,
    };
    document(&place.look()?.call(&request)?)
}

fn start(place: &PageContext, _: &Asked) -> Result<Value, Failure> {
    place.act()?;
    Ok(json!({}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    review: u64,
    path: PathText,
    how: ResolveWith,
    content: Option<String>,
    reason: Option<String>,
}

fn resolve(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let wish: Resolve = asked.body()?;
    let mut client = place.act()?;
    let store_dir = Store::dir_of(&place.repository()?);
    let bytes = match (wish.how, &wish.content) {
        (ResolveWith::Content, Some(text)) => Some(text.clone().into_bytes()),
        (ResolveWith::Content, None) => return Err(not_understood("there is no content")),
        _ => None,
    };
    let content = match bytes {
        Some(bytes) => {
            let mut outgoing = Outgoing::new(&store_dir);
            outgoing.add(&bytes)?;
            Some(outgoing.finish())
        }
        None => None,
    };
    let request = ops::Resolve {
        review: wish.review,
        path: wish.path,
        how: wish.how,
        content: content.clone(),
        executable: None,
        by: "hand".to_owned(),
        reason: wish.reason.filter(|reason| !reason.trim().is_empty()),
        metadata: None,
    };
    let shown = client.call(&request).inspect_err(|_| {
        if let Some(content) = &content {
            content.withdraw(&store_dir);
        }
    })?;
    format_review(place, &shown)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfReview {
    review: u64,
    message: Option<String>,
}

fn refresh(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let OfReview { review, .. } = asked.body()?;
    let shown = place.act()?.call(&ops::RefreshReview { review })?;
    format_review(place, &shown)
}

fn abort(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let OfReview { review, .. } = asked.body()?;
    let shown = place.act()?.call(&ops::AbortReview { review })?;
    format_review(place, &shown)
}

/// Commits the result of a review: a merge or a sequence.
fn commit(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let OfReview { review, message } = asked.body()?;
    let message = message.filter(|message| !message.trim().is_empty());
    let request = ops::CommitReview {
        review,
        message: message.into_iter().collect(),
        ..ops::CommitReview::default()
    };
    let hooks = HookOptions {
        output: HookOutput::Kept,
        no_verify: false,
    };
    let caller = caller::Place::at(place.cwd.clone(), Arc::new(caller::Silent));
    let mut client = caller.connect()?;
    document(&client::review::commit(
        &caller,
        &mut client,
        request,
        hooks,
    )?)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Apply {
    handoff: u64,
    /// Fork or branch to apply to. None for the one that the handoff is for.
    into: Option<String>,
}

/// Applies a handoff. Conflicts become a review.
fn apply(place: &PageContext, asked: &Asked) -> Result<Value, Failure> {
    let Apply { handoff, into } = asked.body()?;
    let signers = identity::signers(&place.common_dir)?;
    let request = ops::ApplyHandoff {
        handoff,
        into: into.filter(|into| !into.trim().is_empty()),
        review: ReviewPolicy::OnConflict,
        ..ops::ApplyHandoff::default()
    };
    let mut client = place.act()?;
    client.from = CallerContext {
        command: COMMAND.to_owned(),
        author: signers.author,
        committer: signers.committer,
        git_dir: Some(place.git_dir.clone()),
        ..CallerContext::default()
    };
    document(&client.call(&request)?)
}
