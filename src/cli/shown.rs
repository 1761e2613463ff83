//! Operations as they are: the line that was typed is called, and the answer shown.

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::ops::{Failure, Operation};

/// An operation whose type is a verb's arguments.
pub trait Shown: Operation + Clone {
    /// What the caller's process does when it is done, whatever is shown of it.
    fn after(&self, _answer: &Self::Answer, _context: &Context, _client: &mut Client) {}

    /// Tells a person.
    fn show(&self, answer: &Self::Answer, context: &Context) -> Result<(), Failure>;

    /// How the command ends.
    fn exit(_answer: &Self::Answer) -> Exit {
        SUCCESS
    }
}

/// Calls it and shows the answer: in JSON just as it is.
pub fn run<O: Shown>(verb: &O, context: &Context) -> Result<Exit, Failure> {
    call(verb, &mut context.connect_for(verb)?, context)
}

/// The same, of a client that is there already.
pub fn call<O: Shown>(verb: &O, client: &mut Client, context: &Context) -> Result<Exit, Failure> {
    let answer = client.call(verb)?;
    tell(verb, &answer, client, context)
}

/// Shows the answer to what was called.
pub fn tell<O: Shown>(
    verb: &O,
    answer: &O::Answer,
    client: &mut Client,
    context: &Context,
) -> Result<Exit, Failure> {
    verb.after(answer, context, client);
    match context.output.is_json() {
        true => context.output.json(answer)?,
        false => verb.show(answer, context)?,
    }
    Ok(O::exit(answer))
}
