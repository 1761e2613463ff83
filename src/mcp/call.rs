//! One call under way.

use tine_ops::{ErrorCode, Failure};
use tine_tools::run::Cancel;

/// Whether a call is still wanted; shared by the thread that does it and the one that hears the
/// client.
#[derive(Default)]
pub struct ToolCall {
    cancel: Cancel,
}

impl ToolCall {
    /// The client, or the end of the session, wants it no more.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// What ends commands with the call.
    pub fn canceller(&self) -> &Cancel {
        &self.cancel
    }

    /// Fails where it is wanted no more. To be asked before a step that changes something.
    pub fn check(&self) -> Result<(), Failure> {
        match self.cancel.is_cancelled() {
            true => Err(cancelled()),
            false => Ok(()),
        }
    }
}

/// What a call ends with that is wanted no more.
pub(crate) fn cancelled() -> Failure {
    Failure::new(ErrorCode::Cancelled, "the call was cancelled")
        .hint("what it had done by then stays; `status` and `log` tell what that is")
}
