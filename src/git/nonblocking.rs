//! Nonblocking attempts at work that other threads wait for.
//!
//! A nonblocking thread refuses slow operations before they begin. These are reading, copying or
//! fetching a large blob, converting a blob (a filter may run a program), and waiting for another
//! thread that does so. After a refusal, the caller retries on another thread, which may block.

use std::cell::Cell;

use super::GitError;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Blocking,
    Nonblocking,
    Refused,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Blocking) };
}

/// An attempt that was refused because it would have been slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Runs `run` in nonblocking mode on this thread.
///
/// # Errors
/// [`Refused`] if an operation in `run` was refused; the result is then dropped.
pub fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, Refused> {
    STATE.set(State::Nonblocking);
    let result = run();
    match STATE.replace(State::Blocking) {
        State::Refused => Err(Refused),
        State::Blocking | State::Nonblocking => Ok(result),
    }
}

/// Refuses to continue on a nonblocking thread. Call it before slow work.
///
/// # Errors
/// [`GitError::TakesLong`] in nonblocking mode.
pub fn check() -> Result<(), GitError> {
    match STATE.get() {
        State::Blocking => Ok(()),
        State::Nonblocking | State::Refused => {
            STATE.set(State::Refused);
            Err(GitError::TakesLong)
        }
    }
}

/// Returns whether this thread's current attempt refused something.
pub fn was_refused() -> bool {
    STATE.get() == State::Refused
}

/// Accepts the attempt's result in spite of a refusal.
pub fn accept() {
    if was_refused() {
        STATE.set(State::Nonblocking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_in_haste_is_refused() {
        assert!(check().is_ok());
        assert_eq!(attempt(|| 5), Ok(5));
        let refused = attempt(|| {
            assert!(!was_refused());
            assert!(matches!(check(), Err(GitError::TakesLong)));
            was_refused()
        });
        assert_eq!(refused, Err(Refused));
        assert!(!was_refused());
        assert!(check().is_ok());
    }

    #[test]
    fn part_of_an_answer_can_be_of_use() {
        let accepted = attempt(|| {
            let _ = check();
            accept();
            7
        });
        assert_eq!(accepted, Ok(7));
    }
}
