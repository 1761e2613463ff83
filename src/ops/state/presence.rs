//! Who is connected and what is being answered: when the daemon may end, and when it must.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long the end of the process waits for answers that are on their way.
const FAREWELL: Duration = Duration::from_secs(5);

/// Clients and requests of the moment.
pub struct Presence {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    clients: usize,
    /// Requests that are not answered yet.
    requests: usize,
    /// When the last client left, or the daemon began.
    left: Instant,
    quit: bool,
    /// No request is taken any more.
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
    /// Counts a client; how many there are now.
    pub fn arrive(&self) -> usize {
        let mut state = self.state.lock();
        state.clients += 1;
        state.clients
    }

    pub fn leave(&self) {
        let mut state = self.state.lock();
        state.clients = state.clients.saturating_sub(1);
        state.left = Instant::now();
    }

    /// Counts a request that is about to be read until the guard is dropped, which is after the
    /// answer was sent. `None` where the process is about to end: what was not read by then was not
    /// begun, and the client can tell.
    pub fn request(&self) -> Option<InFlight<'_>> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.requests += 1;
        Some(InFlight(self))
    }

    /// How long no client has been connected; `None` while one is.
    pub fn alone_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        (state.clients == 0).then(|| state.left.elapsed())
    }

    /// Lets the daemon's main thread end.
    pub fn quit(&self) {
        self.state.lock().quit = true;
        self.changed.notify_all();
    }

    /// Waits until the daemon is to end, at most until `deadline`; whether it is.
    pub fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.quit {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.quit
    }

    /// Waits, for a bounded time, until whoever asked has the answer; then no request is taken any
    /// more.
    pub fn close(&self) {
        let deadline = Instant::now() + FAREWELL;
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

/// A request that is being answered.
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
