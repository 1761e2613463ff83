//! Waiting for a visible change.
//!
//! A *pulse* is a hash of the daemon's brief answers about forks, open reviews, handoffs and
//! sessions. Making one is cheap, and takes at most one part in ten of the time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;
use std::time::{Duration, Instant};

use super::routes::PageContext;
use tine_client::Client;
use tine_ops::{self as ops, Failure, Operation};

/// Maximum time until a page gets an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Minimum time between two pulses.
const PAUSE: Duration = Duration::from_millis(400);

/// Multiple of a pulse's own time to wait before the next one.
const RESTS: u32 = 10;

/// Pulse if no daemon runs.
const STOPPED: &str = "stopped";

/// Blocks until the pulse differs from `known`, and returns it.
///
/// Returns the same pulse after [`PATIENCE`].
pub(crate) fn next_pulse(place: &PageContext, known: &str) -> Result<String, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let begun = Instant::now();
        let pulse = pulse(place)?;
        if pulse != known || Instant::now() >= deadline {
            return Ok(pulse);
        }
        thread::sleep((begun.elapsed() * RESTS).clamp(PAUSE, PATIENCE));
    }
}

fn pulse(place: &PageContext) -> Result<String, Failure> {
    let Some(mut client) = place.running()? else {
        return Ok(STOPPED.to_owned());
    };
    let mut hasher = DefaultHasher::new();
    look(&mut client, &ops::ListForks {}, &mut hasher);
    look(&mut client, &ops::ListReviews { all: false }, &mut hasher);
    look(&mut client, &ops::ListHandoffs { all: true }, &mut hasher);
    look(&mut client, &ops::ListSessions {}, &mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

fn look<O: Operation>(client: &mut Client, operation: &O, hasher: &mut DefaultHasher) {
    // Failures are hashed, too.
    let answer = match client.call(operation) {
        Ok(answer) => serde_json::to_string(&answer),
        Err(failure) => serde_json::to_string(&failure),
    };
    answer.unwrap_or_default().hash(hasher);
}
