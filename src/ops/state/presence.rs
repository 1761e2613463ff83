//! Counts clients and unanswered requests, which the daemon's end depends on.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Time that the ending process waits for unanswered requests.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Connected clients and unanswered requests.
pub struct Presence {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    clients: usize,
    /// Requests without an answer yet.
    requests: usize,
    /// Time when the last client left, or the daemon started.
    left: Instant,
    quit: bool,
    /// True if no further request is accepted.
    closed: bool,
}

impl Default for Presence {
    fn default() -> Presence {
        Presence {
            state: Mutex::new(State {
                clients: 0,
                requests: 0,
                left: Instant::now(),
                quit: false,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }
}

impl Presence {
    /// Counts a client and returns the number of connected clients.
    pub fn arrive(&self) -> usize {
        let mut state = self.state.lock();
        state.clients += 1;
        state.clients
    }

    /// Counts a client as gone.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.clients = state.clients.saturating_sub(1);
        state.left = Instant::now();
    }

    /// Counts an unread request until the returned guard is dropped.
    ///
    /// The caller drops the guard after it has sent the answer. Returns `None` if the process is
    /// about to end: a request that was not read by then was not started, and the client can detect
    /// that.
    pub fn request(&self) -> Option<InFlight<'_>> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.requests += 1;
        Some(InFlight(self))
    }

    /// Returns how long no client has been connected; `None` while one is.
    pub fn alone_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        (state.clients == 0).then(|| state.left.elapsed())
    }

    /// Signals the daemon's main thread to end.
    pub fn quit(&self) {
        self.state.lock().quit = true;
        self.changed.notify_all();
    }

    /// Waits until [`Presence::quit`] is called, and returns whether it was.
    ///
    /// Blocks at most until `deadline`.
    pub fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.quit {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.quit
    }

    /// Waits until all requests are answered, then accepts no further request.
    ///
    /// Blocks for five seconds at most.
    pub fn close(&self) {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut state = self.state.lock();
        while state.requests > 0 {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                log::warn!("{} requests were not answered", state.requests);
                break;
            }
        }
        state.closed = true;
    }
}

/// Guard of one request; the request is unanswered while it exists.
pub struct InFlight<'a>(&'a Presence);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests = state.requests.saturating_sub(1);
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_alone_when_the_last_client_left() {
        let presence = Presence::default();
        assert!(presence.alone_for().is_some());
        presence.arrive();
        presence.arrive();
        presence.leave();
        assert_eq!(presence.alone_for(), None);
        presence.leave();
        assert!(presence.alone_for().is_some());
    }

    #[test]
    fn the_end_waits_for_answers() {
        let presence = Presence::default();
        let request = presence.request();
        assert!(request.is_some());
        assert!(!presence.wait(Instant::now()));
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| {
                presence.close();
                presence.state.lock().requests
            });
            presence.quit();
            drop(request);
            assert_eq!(ended.join().expect("it does not panic"), 0);
        });
        assert!(presence.wait(Instant::now()));
        assert!(presence.request().is_none(), "too late");
    }
}
