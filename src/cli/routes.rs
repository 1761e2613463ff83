//! Operations on files that an agent may call: one form of calling and showing them.

use serde::Serialize;

use super::context::Context;
use super::{Exit, SUCCESS};
use crate::ops::protocol::{Route, ToolAnswer};
use crate::ops::{ExitCode, Failure, Operation};

/// Operation that answers agents with `A` and people with `S`.
pub(super) trait RoutedVerb<A, S>: Operation<Answer = ToolAnswer<A, S>> + Clone {
    /// Returns the text of an agent's answer.
    fn agents_text(&self, answer: &A, context: &Context) -> String;

    /// Prints an answer about saved files.
    fn show_saved(&self, answer: &S, context: &Context) -> Result<(), Failure>;
}

/// Calls the operation. Without a store an agent's call does nothing and starts no daemon.
pub(super) fn call<O, A, S>(verb: &O, context: &Context) -> Result<O::Answer, Failure>
where
    O: Operation<Answer = ToolAnswer<A, S>> + Clone,
{
    let mut asked = verb.clone();
    let is_agents = asked.agent().is_some_and(|agent| agent.is_agents());
    let is_named = asked.fork().is_some_and(|fork| fork.is_some());
    if !is_agents || is_named {
        return context.connect_for(verb)?.call(verb);
    }
    match context.connect_to_forks()? {
        Some(mut connection) => connection.call(verb),
        None => Ok(ToolAnswer::passthrough()),
    }
}

/// Calls the operation as an agent's tool, with or without `--agent`.
pub(super) fn run_as_agent<O: RoutedVerb<A, S>, A: Serialize, S: Serialize>(
    verb: &O,
    context: &Context,
) -> Result<Exit, Failure> {
    let mut verb = verb.clone();
    if let Some(agent) = verb.agent() {
        agent.agent.get_or_insert_default();
    }
    run(&verb, context)
}

/// Calls the operation and shows its answer as text or JSON.
pub(super) fn run<O: RoutedVerb<A, S>, A: Serialize, S: Serialize>(
    verb: &O,
    context: &Context,
) -> Result<Exit, Failure> {
    let answer = call(verb, context)?;
    show(verb, &answer, context)
}

/// Shows an answer.
pub(super) fn show<O: RoutedVerb<A, S>, A: Serialize, S: Serialize>(
    verb: &O,
    answer: &O::Answer,
    context: &Context,
) -> Result<Exit, Failure> {
    let output = &context.output;
    if let ToolAnswer::Passthrough { .. } = answer {
        return passed_through(answer, context);
    }
    output.json_or(answer, || match answer {
        ToolAnswer::Agents(answer) => output.text(&verb.agents_text(answer, context)),
        ToolAnswer::Saved(answer) => verb.show_saved(answer, context),
        ToolAnswer::Passthrough { .. } => Ok(()),
    })?;
    Ok(SUCCESS)
}

/// Notes that nothing was done.
pub(super) fn passed_through(answer: &impl Serialize, context: &Context) -> Result<Exit, Failure> {
    let output = &context.output;
    if output.is_json() {
        output.json(answer)?;
    } else {
        output.note(
            "no fork is active here, and no buffer is open there: nothing was done. `--fork NAME` names a fork",
        );
    }
    Ok(ExitCode::Nothing.code())
}

/// Returns a suffix that names the buffer, if one was changed.
pub(super) fn in_buffer(route: Route) -> &'static str {
    match route {
        Route::Buffer => " in the open buffer",
        Route::Fork => "",
    }
}
