//! One call under way.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::daemon::{ErrorCode, Failure};

/// Whether a call is still wanted; shared by the thread that does it and the one that hears the client.
#[derive(Debug, Default)]
pub struct Call {
    cancelled: AtomicBool,
}

impl Call {
    /// The client, or the end of the session, wants it no more.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Fails where it is wanted no more. To be asked before a step that changes something.
    pub fn check(&self) -> Result<(), Failure> {
        match self.cancelled.load(Ordering::Acquire) {
            true => Err(Failure::new(ErrorCode::Cancelled, "the call was cancelled")
                .hint("what it had done by then stays; `status` and `log` tell what that is")),
            false => Ok(()),
        }
    }
}
