//! Refs and files that were not taken over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gix::ObjectId;

/// Shortest pause before a tip that lacked an object is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// A ref or file that was not taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRef {
    /// Label below `git/`, or the file's path in the own git directory.
    pub name: String,
    /// Object that it names; `None` if its content is not valid.
    pub id: Option<ObjectId>,
    /// Reason, in one line.
    pub reason: String,
    /// Attempts that failed because an object was missing.
    missing: Option<Missing>,
}

/// Times of the first and the last attempt that lacked an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Missing {
    first: Instant,
    last: Instant,
}

impl Missing {
    /// Returns whether it is time for another attempt.
    ///
    /// The pauses grow, because some objects never come back.
    fn is_due(&self) -> bool {
        let pause = self.last.duration_since(self.first);
        self.last.elapsed() >= pause.max(RETRY_INTERVAL)
    }
}

impl RejectedRef {
    /// Makes the rejection of a name and its object. `before` is that of the last call.
    pub(super) fn new(
        (name, id): (String, Option<ObjectId>),
        reason: String,
        before: Option<&RejectedRef>,
    ) -> RejectedRef {
        let missing = is_for_missing(&reason).then(|| {
            let last = Instant::now();
            let before = before.filter(|old| old.id == id);
            let first = before.and_then(|old| old.missing);
            let first = first.map_or(last, |missing| missing.first);
            Missing { first, last }
        });
        RejectedRef {
            name,
            id,
            reason,
            missing,
        }
    }

    /// Returns whether it is time for another attempt.
    pub(super) fn is_due(&self) -> bool {
        self.missing.as_ref().is_some_and(Missing::is_due)
    }
}

/// Returns whether a tip is rejected because an object is missing.
///
/// A program in the main repository may have removed it for a moment.
fn is_for_missing(reason: &str) -> bool {
    const STARTS: [&str; 3] = ["did not receive expected object", "bad object", "missing "];
    reason.ends_with(" is missing") || STARTS.iter().any(|start| reason.starts_with(start))
}

/// Returns rejections by name.
pub(super) fn by_name(rejected: &[RejectedRef]) -> HashMap<String, RejectedRef> {
    let rejected = rejected.iter();
    rejected
        .map(|rejected| (rejected.name.clone(), rejected.clone()))
        .collect()
}
