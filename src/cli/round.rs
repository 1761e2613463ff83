//! `tine round`: rounds of several agents on one task.

mod arguments;
mod format;
mod merging;
mod private;

use serde::Serialize;

pub(super) use self::arguments::Round;
use self::arguments::{Action, Diff, Show};
use self::format::{
    format_attempt, format_cleaned, format_comparison, format_finished, format_prompt,
    format_reader, format_session,
};
use super::context::Context;
use super::shown::{self, Shown};
use super::trees::become_git_diff;
use super::{Exit, SUCCESS};
use crate::client::Client;
use crate::client::identity;
use crate::ops;
use crate::ops::protocol::{
    AttemptCounted, BranchStays, ResultLine, RoundCompared, RoundFinished, RoundPresented,
};
use crate::ops::{
    CleanRounds, CompareRound, CountAttempt, CountAttemptIn, ErrorCode, Failure, FinishRound,
    PresentRound, StartRound,
};
use crate::store::ForkName;

pub(super) fn run(verb: &Round, context: &Context) -> Result<Exit, Failure> {
    let place = match &verb.no_git {
        Some(dir) => Some(private::find(
            context,
            dir,
            matches!(verb.action, Action::Start(_)),
        )?),
        None => None,
    };
    let elsewhere = place
        .as_ref()
        .map(|place| context.in_dir(place.common_dir.clone()));
    let round = Rounds {
        session: &verb.session,
        place: place.as_ref(),
        context: elsewhere.as_ref().unwrap_or(context),
    };
    match &verb.action {
        Action::Start(verb) => round.start(verb),
        Action::Finish(verb) => round.finish(verb),
        Action::Show(verb) => round.show(verb),
        Action::Diff(verb) => round.diff(verb),
        Action::Compare(verb) => round.call(&CompareRound {
            session: round.named(),
            ..verb.clone()
        }),
        Action::Present(verb) => round.call(&PresentRound {
            session: round.named(),
            ..verb.clone()
        }),
        Action::Merge(verb) => merging::merge(verb, &round),
        Action::Attempt(verb) => round.call(&CountAttempt {
            session: round.named(),
            ..verb.clone()
        }),
        Action::Clean(verb) => round.clean(verb),
    }
}

/// Session of a command, and its place.
struct Rounds<'a> {
    session: &'a ForkName,
    /// Place of a directory without git; `None` in a repository.
    place: Option<&'a private::Place>,
    context: &'a Context,
}

impl Rounds<'_> {
    /// Connects for a command that needs an existing session.
    ///
    /// If the repository has no store, nothing is started.
    fn connect(&self) -> Result<Client, Failure> {
        self.context.connect_to_forks()?.ok_or_else(|| {
            Failure::new(
                ErrorCode::NoSuchSession,
                format!("there is no session {} of rounds", self.session),
            )
            .hint("`tine round start --agents A,B` begins one; `--session` names another")
        })
    }

    /// Returns the session in the form that operations take.
    fn named(&self) -> Option<ForkName> {
        Some(self.session.clone())
    }

    fn call<O: Shown>(&self, verb: &O) -> Result<Exit, Failure> {
        shown::call(verb, &mut self.connect()?, self.context)
    }

    fn start(&self, verb: &StartRound) -> Result<Exit, Failure> {
        let context = self.context;
        context.repository()?;
        let mut connection = context.connect()?;
        if let Some(place) = self.place {
            place.take_in_unless_begun(&mut connection, self.session)?;
        }
        let request = StartRound {
            session: self.named(),
            directory: self.place.map(|place| place.directory.clone()),
            ..verb.clone()
        };
        let shown = connection.call(&request)?;
        context
            .output
            .json_or_text(&shown, || format_session(&shown, &context.output))?;
        for BranchStays { branch, checkout } in &shown.stays {
            context.output.note(&format!(
                "the branch {branch} of an earlier round stays: it is checked out at {}",
                checkout.display()
            ));
        }
        Ok(SUCCESS)
    }

    fn finish(&self, verb: &FinishRound) -> Result<Exit, Failure> {
        let context = self.context;
        let mut connection = self.connect()?;
        // The current directory would keep its mount busy.
        context.step_out();
        let signers = identity::signers_if_any(context.repository()?.common_dir());
        let verb = FinishRound {
            session: self.named(),
            ..verb.clone()
        };
        let finished = connection.call_as(&verb, &signers)?;
        shown::print(&verb, &finished, &mut connection, context)
    }

    fn show(&self, verb: &Show) -> Result<Exit, Failure> {
        let output = &self.context.output;
        let mut connection = self.connect()?;
        let session = self.session.clone();
        let Some(reader) = verb.reader.clone() else {
            let shown = connection.call(&ops::ShowRound { session })?;
            output.json_or_text(&shown, || format_session(&shown, output))?;
            return Ok(SUCCESS);
        };
        let shown = connection.call(&ops::ShowRoundTo { session, reader })?;
        if verb.prompt {
            let prompt = format_prompt(&shown);
            output.json_or(&serde_json::json!({ "prompt": prompt }), || {
                output.text(&prompt)
            })?;
        } else {
            output.json_or_text(&shown, || format_reader(&shown, output))?;
        }
        Ok(SUCCESS)
    }

    /// Reads the agents' results.
    fn results(
        &self,
        connection: &mut Client,
        agents: &[ForkName],
        finished: bool,
    ) -> Result<Vec<ResultLine>, Failure> {
        let request = ops::ReadResults {
            session: self.session.clone(),
            agents: agents.to_vec(),
            finished,
        };
        connection.call(&request).map(|answer| answer.results)
    }

    fn diff(&self, verb: &Diff) -> Result<Exit, Failure> {
        let context = self.context;
        let agents = [verb.a.clone(), verb.b.clone()];
        let results = self.results(&mut self.connect()?, &agents, false)?;
        let [a, b] = results.as_slice() else {
            return Err(Failure::new(
                ErrorCode::Internal,
                "two results were asked for",
            ));
        };
        if context.output.is_json() {
            #[derive(Serialize)]
            struct Difference<'a> {
                a: &'a ResultLine,
                b: &'a ResultLine,
                old_tree: &'a str,
                new_tree: &'a str,
            }
            context.output.json(&Difference {
                a,
                b,
                old_tree: &a.work.tree,
                new_tree: &b.work.tree,
            })?;
            return Ok(SUCCESS);
        }
        become_git_diff(context, (&a.work.tree, &b.work.tree), verb.form.flags())
    }

    fn clean(&self, verb: &CleanRounds) -> Result<Exit, Failure> {
        let output = &self.context.output;
        let mut connection = self.connect()?;
        self.context.repository()?;
        self.context.step_out();
        let request = CleanRounds {
            session: self.named(),
            ..verb.clone()
        };
        let mut cleaned = connection.call(&request)?;
        if let Some(place) = self.place
            && place.remove_if_unused(connection)?
        {
            // The removed repository held the commits of the session.
            for seat in &mut cleaned.seats {
                seat.commit = None;
            }
        }
        let place = self.place.map(|place| place.common_dir.as_path());
        output.json_or_text(&cleaned, || format_cleaned(&cleaned, place))?;
        Ok(SUCCESS)
    }
}

impl Shown for FinishRound {
    fn show(&self, finished: &RoundFinished, context: &Context) -> Result<(), Failure> {
        context.output.text(&format_finished(finished))
    }
}

impl Shown for CompareRound {
    fn show(&self, compared: &RoundCompared, context: &Context) -> Result<(), Failure> {
        let output = &context.output;
        output.text(&format_comparison(compared, output))
    }
}

impl Shown for PresentRound {
    fn show(&self, presented: &RoundPresented, context: &Context) -> Result<(), Failure> {
        context.output.path(&presented.fork.mount_dir)
    }
}

impl Shown for CountAttempt {
    fn show(&self, counted: &AttemptCounted, context: &Context) -> Result<(), Failure> {
        context
            .output
            .text(&format!("{}\n", format_attempt(counted)))
    }
}

/// Counts an attempt of the fork's agent, before a command runs there.
pub(super) fn count_attempt(context: &Context, fork: &ForkName) -> Result<(), Failure> {
    let counted = context
        .connect()?
        .call(&CountAttemptIn { fork: fork.clone() })?;
    if !context.output.is_json() {
        context.output.note(&format_attempt(&counted));
    }
    Ok(())
}
