//! Verbs whose arguments are an operation.

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::ops::{Failure, Operation};

/// Operation that is a verb of the command line.
pub(super) trait Shown: Operation + Clone {
    /// Runs steps in the caller's process after the operation.
    fn after(&self, _answer: &Self::Answer, _context: &Context, _client: &mut Client) {}

    /// Prints the answer as text.
    fn show(&self, answer: &Self::Answer, context: &Context) -> Result<(), Failure>;

    /// Returns the exit code for this answer.
    fn exit(_answer: &Self::Answer) -> Exit {
        SUCCESS
    }
}

/// Calls the operation and shows its answer as text or JSON.
pub(super) fn run<O: Shown>(verb: &O, context: &Context) -> Result<Exit, Failure> {
    call(verb, &mut context.connect_for(verb)?, context)
}

/// Does the same as [`run`] over an existing connection.
pub(super) fn call<O: Shown>(
    verb: &O,
    client: &mut Client,
    context: &Context,
) -> Result<Exit, Failure> {
    let answer = client.call(verb)?;
    print(verb, &answer, client, context)
}

/// Shows the answer to a call.
pub(super) fn print<O: Shown>(
    verb: &O,
    answer: &O::Answer,
    client: &mut Client,
    context: &Context,
) -> Result<Exit, Failure> {
    verb.after(answer, context, client);
    context
        .output
        .json_or(answer, || verb.show(answer, context))?;
    Ok(O::exit(answer))
}
