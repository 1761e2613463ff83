//! Cancellation of one running call.

use tine_ops::{ErrorCode, Failure};
use tine_tools::run::Cancel;

/// Cancellation of a call.
///
/// The thread that does the work and the one that listens to the client share it.
#[derive(Default)]
pub struct ToolCall {
    cancel: Cancel,
}

impl ToolCall {
    /// Cancels the call, at the client's request or the session's end.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Returns the handle that ends commands together with the call.
    pub fn canceller(&self) -> &Cancel {
        &self.cancel
    }

    /// Fails if the call was cancelled.
    ///
    /// A tool checks this before each step that changes something.
    ///
    /// # Errors
    /// [`ErrorCode::Cancelled`] after [`ToolCall::cancel`].
    pub fn check(&self) -> Result<(), Failure> {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        Ok(())
    }
}

/// Returns the failure of a cancelled call.
pub(crate) fn cancelled() -> Failure {
    Failure::new(ErrorCode::Cancelled, "the call was cancelled")
        .hint("what it had done by then stays; `status` and `log` tell what that is")
}
