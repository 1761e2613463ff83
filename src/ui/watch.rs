//! Waits until something that the page shows is otherwise.
//!
//! A *pulse* is a number made of all that the daemon tells of forks, open reviews, handoffs and
//! sessions in short. It takes little to make, and no more of the time than one part in ten is
//! spent on it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;
use std::time::{Duration, Instant};

use super::routes::PageContext;
use tine_client::Client;
use tine_ops::{self as ops, Failure, Operation};

/// How long a page waits for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_millis(400);

/// How many times as long as a look takes is waited for the next one.
const RESTS: u32 = 10;

/// The pulse where no daemon runs.
const STOPPED: &str = "stopped";

/// The pulse as soon as it is another than `known`, or after a while the same.
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
    // What cannot be told is told to whoever looks at it.
    let told = match client.call(operation) {
        Ok(answer) => serde_json::to_string(&answer),
        Err(failure) => serde_json::to_string(&failure),
    };
    told.unwrap_or_default().hash(hasher);
}
