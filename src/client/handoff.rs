//! Creation of handoffs.

use crate::Client;
use tine_change::handoff::HandoffState;
use tine_ops::protocol::HandoffInfo;
use tine_ops::{self as ops, CreateHandoff, Failure, Signers};

/// Creates a handoff.
///
/// With `wait`, blocks until the handoff is not pending any more, and returns its final state.
///
/// # Errors
/// The errors of [`CreateHandoff`] and [`AwaitHandoffs`](ops::AwaitHandoffs).
pub fn make(
    connection: &mut Client,
    request: &CreateHandoff,
    signers: &Signers,
    wait: bool,
) -> Result<HandoffInfo, Failure> {
    let handoff = connection.call_as(request, signers)?;
    if !wait || handoff.record.state != HandoffState::Pending {
        return Ok(handoff);
    }
    let request = ops::AwaitHandoffs {
        ids: vec![handoff.record.id],
        timeout_secs: None,
    };
    let waited = connection.call(&request)?.handoffs;
    Ok(match waited.into_iter().next() {
        Some(waited) => HandoffInfo {
            agent_texts: handoff.agent_texts,
            ..waited
        },
        None => handoff,
    })
}
