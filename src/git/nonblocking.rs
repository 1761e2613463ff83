//! Work that others wait for must not take long: a thread in haste is refused what would, before it
//! begins.
//!
//! What takes long is to read or copy a large blob, to convert one (a filter may run a program), to
//! fetch one, and to wait for somebody who does. Whoever is refused has another thread try again,
//! which takes its time.

use std::cell::Cell;

use super::GitError;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Patient,
    Hasty,
    Refused,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Patient) };
}

/// What was attempted would have taken long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Runs `run` in haste. Where something in it was refused, its result is of no use.
pub fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, Refused> {
    STATE.set(State::Hasty);
    let result = run();
    match STATE.replace(State::Patient) {
        State::Refused => Err(Refused),
        State::Patient | State::Hasty => Ok(result),
    }
}

/// To be called before what takes long.
pub fn check() -> Result<(), GitError> {
    match STATE.get() {
        State::Patient => Ok(()),
        State::Hasty | State::Refused => {
            STATE.set(State::Refused);
            Err(GitError::TakesLong)
        }
    }
}

/// Whether something was refused in the attempt that this thread is in.
pub fn was_refused() -> bool {
    STATE.get() == State::Refused
}

/// Makes an attempt count although something was refused in it: what it has is of use.
pub fn accept() {
    if was_refused() {
        STATE.set(State::Hasty);
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
