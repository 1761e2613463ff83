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

    fn connect(&self) -> Result<Client, Failure> {
        self.running()?.ok_or_else(|| {
            Failure::new(ErrorCode::DaemonUnreachable, "the daemon is stopped")
                .hint("any tine command starts it, and so does the button")
        })
    }

    fn connect_or_start(&self) -> Result<Client, Failure> {
        Client::connect_or_start(&self.common_dir)
    }

    /// Opens the repository again, because the daemon may have packed new objects.
    fn repository(&self) -> Result<Repository, Failure> {
        Ok(Repository::open(&self.common_dir)?)
    }
}

/// Request of the page.
pub(crate) struct PageRequest {
    /// Decoded fields of the query.
    pub fields: Vec<(String, String)>,
    /// Body of a POST, as JSON.
    pub body: Vec<u8>,
}

impl PageRequest {
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
pub(crate) enum Method {
    /// Reads only. Sent as GET.
    Get,
    /// Changes something. Sent as POST.
    Post,
}

/// Request that the page may make.
pub(crate) struct Route {
    pub name: &'static str,
    pub method: Method,
    pub answer: fn(&PageContext, &PageRequest) -> Result<Value, Failure>,
}

const ROUTES: [Route; 18] = [
    get("pulse", pulse),
    get("forks", forks),
    get("uncommitted", uncommitted),
    get("diff", diff),
    get("sides", sides),
    get("reviews", reviews),
    get("review", review),
    get("conflict", conflict),
    get("handoffs", handoffs),
    get("handoff", handoff),
    get("sessions", sessions),
    get("session", session),
    post("start", start),
    post("resolve", resolve),
    post("refresh", refresh),
    post("commit", commit),
    post("abort", abort),
    post("apply", apply),
];

const fn get(
    name: &'static str,
    answer: fn(&PageContext, &PageRequest) -> Result<Value, Failure>,
) -> Route {
    Route {
        name,
        method: Method::Get,
        answer,
    }
}

const fn post(
    name: &'static str,
    answer: fn(&PageContext, &PageRequest) -> Result<Value, Failure>,
) -> Route {
    Route {
        name,
        method: Method::Post,
        answer,
    }
}

/// Returns the route of that name.
pub(crate) fn find(name: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.name == name)
}

fn pulse(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let pulse = watch::next_pulse(place, input.text("known").unwrap_or_default())?;
    Ok(json!({ "pulse": pulse }))
}

fn forks(place: &PageContext, _: &PageRequest) -> Result<Value, Failure> {
    let mut client = place.connect()?;
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
fn uncommitted(place: &PageContext, _: &PageRequest) -> Result<Value, Failure> {
    let mut client = place.connect()?;
    let forks = client.call(&ops::ListForks {})?.forks;
    let mut counts = serde_json::Map::new();
    for fork in forks {
        let changes = client.call(&ops::Status {
            fork: fork.name.clone(),
            write: false,
        });
        let line = match changes {
            Ok(changes) => json!({ "paths": changes.changes.len() }),
            Err(failure) => json!({ "trouble": document(&failure)? }),
        };
        counts.insert(fork.name.to_string(), line);
    }
    Ok(Value::Object(counts))
}

fn diff(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let request = ops::Diff {
        fork: input.fork("fork")?,
        against: input.text("against").map(str::to_owned),
        reverse: false,
    };
    let difference = place.connect()?.call(&request)?;
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

fn sides(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let side = |mode, id| input.text(mode).zip(input.text(id));
    let options = SidesOptions {
        context: input.number_or("context", CONTEXT_LINES)?,
        max_rows: input.number_or("rows", ROWS)?.min(ROWS_MAX),
    };
    let repository = place.repository()?;
    let (old, new) = (side("old_mode", "old_id"), side("new_mode", "new_id"));
    document(&contents::compare(&repository, old, new, options)?)
}

fn reviews(place: &PageContext, _: &PageRequest) -> Result<Value, Failure> {
    document(&place.connect()?.call(&ops::ListReviews { all: true })?)
}

/// Converts a review to JSON, with the line counts of its changes.
fn format_review(place: &PageContext, shown: &ReviewShown) -> Result<Value, Failure> {
    let trees = (shown.old_tree.as_str(), shown.new_tree.as_str());
    let changes = contents::with_line_counts(&place.repository()?, trees, &shown.changes)?;
    Ok(with(document(shown)?, "changes", changes))
}

fn review(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let request = ops::ShowReview {
        review: input.number("review")?,
    };
    format_review(place, &place.connect()?.call(&request)?)
}

fn conflict(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let review = input.number("review")?;
    let number: usize = input.number("conflict")?;
    let shown = place.connect()?.call(&ops::ShowReview { review })?;
    let record = shown.info.record.conflicts.get(number).ok_or_else(|| {
        Failure::new(
            ErrorCode::NoSuchConflict,
            format!("review {review} has no conflict {number}"),
        )
        .hint("reload the page: it was planned again, perhaps")
    })?;
    contents::conflict(&place.repository()?, record)
}

fn handoffs(place: &PageContext, _: &PageRequest) -> Result<Value, Failure> {
    let request = ops::ListHandoffs { all: true };
    document(&place.connect()?.call(&request)?)
}

fn handoff(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let request = ops::ShowHandoff {
        id: input.number("handoff")?,
    };
    let shown = place.connect()?.call(&request)?;
    let answer = document(&shown)?;
    match (&shown.old_tree, &shown.new_tree) {
        (Some(old_tree), Some(new_tree)) => {
            let repository = place.repository()?;
            let changes =
                contents::with_line_counts(&repository, (old_tree, new_tree), &shown.changes)?;
            Ok(with(answer, "changes", changes))
        }
        _ => Ok(answer),
    }
}

fn sessions(place: &PageContext, _: &PageRequest) -> Result<Value, Failure> {
    document(&place.connect()?.call(&ops::ListSessions {})?)
}

fn session(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let request = ops::ShowRound {
        session: input.fork("session")?,
    };
    document(&place.connect()?.call(&request)?)
}

fn start(place: &PageContext, _: &PageRequest) -> Result<Value, Failure> {
    place.connect_or_start()?;
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

fn resolve(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let body: Resolve = input.body()?;
    let mut client = place.connect_or_start()?;
    let store_dir = Store::dir_of(&place.repository()?);
    let bytes = match (body.how, &body.content) {
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
        review: body.review,
        path: body.path,
        how: body.how,
        content: content.clone(),
        executable: None,
        by: "hand".to_owned(),
        reason: body.reason.filter(|reason| !reason.trim().is_empty()),
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

fn refresh(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let OfReview { review, .. } = input.body()?;
    let shown = place
        .connect_or_start()?
        .call(&ops::RefreshReview { review })?;
    format_review(place, &shown)
}

fn abort(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let OfReview { review, .. } = input.body()?;
    let shown = place
        .connect_or_start()?
        .call(&ops::AbortReview { review })?;
    format_review(place, &shown)
}

/// Commits the result of a review: a merge or a sequence.
fn commit(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let OfReview { review, message } = input.body()?;
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
fn apply(place: &PageContext, input: &PageRequest) -> Result<Value, Failure> {
    let Apply { handoff, into } = input.body()?;
    let signers = identity::signers(&place.common_dir)?;
    let request = ops::ApplyHandoff {
        handoff,
        into: into.filter(|into| !into.trim().is_empty()),
        review: ReviewPolicy::OnConflict,
        ..ops::ApplyHandoff::default()
    };
    let mut client = place.connect_or_start()?;
    client.from = CallerContext {
        command: COMMAND.to_owned(),
        author: signers.author,
        committer: signers.committer,
        git_dir: Some(place.git_dir.clone()),
        ..CallerContext::default()
    };
    document(&client.call(&request)?)
}
