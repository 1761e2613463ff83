//! Undo steps of an operation that may fail halfway.

use crate::StoreError;

/// Undo steps, run in reverse order on drop unless disarmed.
#[derive(Default)]
pub(super) struct Rollback<'a> {
    steps: Vec<Box<dyn FnOnce() -> Result<(), StoreError> + 'a>>,
}

impl<'a> Rollback<'a> {
    pub(super) fn push(&mut self, step: impl FnOnce() -> Result<(), StoreError> + 'a) {
        self.steps.push(Box::new(step));
    }

    pub(super) fn disarm(mut self) {
        self.steps.clear();
    }
}

impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        let mut is_undone = true;
        while let Some(step) = self.steps.pop() {
            if !is_undone && self.steps.is_empty() {
                // The first step removes the list of what must be removed. Keep it for the next
                // opening.
                return;
            }
            if let Err(error) = step() {
                is_undone = false;
                log::warn!("could not undo a step, the next opening of the store will: {error}");
            }
        }
    }
}
