//! `tine round`: several agents, several turns.

mod arguments;
mod merging;
mod private;
mod telling;

use serde::Serialize;

pub use self::arguments::Round;
use self::arguments::{Action, Attempt, Clean, Compare, Diff, Finish, Present, Show, Start};
use self::telling::{
    told_attempt, told_cleaned, told_comparison, told_finished, told_prompt, told_reader, told_session,
};
use super::context::Context;
use super::trees::become_git_diff;
use super::{Exit, SUCCESS};
use crate::change::round::Mode;
use crate::client::Client;
use crate::client::identity;
use crate::client::place::umask;
use crate::ops;
use crate::ops::protocol::{
    AttemptCounted, AttemptOf, BranchStays, CleanRounds, FinishRound, PresentRound, ResultLine, StartRound,
};
use crate::ops::{ErrorCode, Failure};
use crate::workspace::ForkName;

pub fn run(verb: &Round, context: &Context) -> Result<Exit, Failure> {
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
        Action::Compare(verb) => round.compare(verb),
        Action::Present(verb) => round.present(verb),
        Action::Merge(verb) => merging::merge(verb, &round),
        Action::Attempt(verb) => round.attempt(verb),
        Action::Clean(verb) => round.clean(verb),
    }
}

/// The session that a command is about, and where it is.
struct Rounds<'a> {
    session: &'a ForkName,
    /// Of a directory without git.
    place: Option<&'a private::Place>,
    context: &'a Context,
}

impl Rounds<'_> {
    /// Connects for a command that needs a session to be there: where the repository has no store, nothing is started.
    fn connect(&self) -> Result<Client, Failure> {
        self.context.connect_to_forks()?.ok_or_else(|| {
            Failure::new(
                ErrorCode::NoSuchSession,
                format!("there is no session {} of rounds", self.session),
            )
            .hint("`tine round start --agents A,B` begins one; `--session` names another")
        })
    }

    fn start(&self, verb: &Start) -> Result<Exit, Failure> {
        let context = self.context;
        context.repository()?;
        let mut connection = context.connect()?;
        if let Some(place) = self.place {
            place.take_in_unless_begun(&mut connection, self.session)?;
        }
        let request = StartRound {
            session: self.session.clone(),
            round: verb.round,
            agents: verb.agents.clone(),
            labels: verb.labels.clone(),
            from: verb.from.clone(),
            from_agent: verb.from_agent.clone(),
            git_dir: context.git_dir()?,
            mode: verb.no_branch.then_some(Mode::Layers),
            directory: self.place.map(|place| place.directory.clone()),
            scratch: verb.scratch.clone(),
            budget: verb.budget,
            umask: umask(),
        };
        let shown = connection.call(&request)?;
        match context.output.is_json() {
            true => context.output.json(&shown)?,
            false => context.output.text(&told_session(&shown, &context.output))?,
        }
        for BranchStays { branch, checkout } in &shown.stays {
            context.output.note(&format!(
                "the branch {branch} of an earlier round stays: it is checked out at {}",
                checkout.display()
            ));
        }
        Ok(SUCCESS)
    }

    fn finish(&self, verb: &Finish) -> Result<Exit, Failure> {
        let context = self.context;
        let mut connection = self.connect()?;
        // A mount in which this process stands would be in use.
        context.step_out();
        let signers = identity::signers_if_any(context.repository()?.common_dir());
        let request = FinishRound {
            session: self.session.clone(),
            agent: verb.agent.clone(),
            label: verb.label.clone(),
            force: verb.force,
        };
        let finished = connection.call_as(&request, &signers)?;
        match context.output.is_json() {
            true => context.output.json(&finished)?,
            false => context.output.text(&told_finished(&finished))?,
        }
        Ok(SUCCESS)
    }

    fn show(&self, verb: &Show) -> Result<Exit, Failure> {
        let output = &self.context.output;
        let mut connection = self.connect()?;
        let session = self.session.clone();
        let Some(reader) = verb.reader.clone() else {
            let shown = connection.call(&ops::ShowRound { session })?;
            match output.is_json() {
                true => output.json(&shown)?,
                false => output.text(&told_session(&shown, output))?,
            }
            return Ok(SUCCESS);
        };
        let shown = connection.call(&ops::ShowRoundTo { session, reader })?;
        match (output.is_json(), verb.prompt) {
            (true, true) => {
                #[derive(Serialize)]
                struct Prompt {
                    prompt: String,
                }
                output.json(&Prompt {
                    prompt: told_prompt(&shown),
                })?;
            }
            (true, false) => output.json(&shown)?,
            (false, true) => output.text(&told_prompt(&shown))?,
            (false, false) => output.text(&told_reader(&shown, output))?,
        }
        Ok(SUCCESS)
    }

    /// What agents have.
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
            return Err(Failure::new(ErrorCode::Internal, "two results were asked for"));
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

    fn compare(&self, verb: &Compare) -> Result<Exit, Failure> {
        let output = &self.context.output;
        let request = ops::CompareRound {
            session: self.session.clone(),
            agents: verb.agents.clone(),
        };
        let compared = self.connect()?.call(&request)?;
        match output.is_json() {
            true => output.json(&compared)?,
            false => output.text(&told_comparison(&compared, output))?,
        }
        Ok(SUCCESS)
    }

    fn present(&self, verb: &Present) -> Result<Exit, Failure> {
        let context = self.context;
        let mut connection = self.connect()?;
        let request = PresentRound {
            session: self.session.clone(),
            winner: verb.winner.clone(),
            label: verb.label.clone(),
            git_dir: context.git_dir()?,
            umask: umask(),
        };
        let presented = connection.call(&request)?;
        match context.output.is_json() {
            true => context.output.json(&presented)?,
            false => context.output.path(&presented.fork.mount_dir)?,
        }
        Ok(SUCCESS)
    }

    fn attempt(&self, verb: &Attempt) -> Result<Exit, Failure> {
        let output = &self.context.output;
        let of = AttemptOf::Agent {
            session: self.session.clone(),
            agent: verb.agent.clone(),
        };
        let counted = count(&mut self.connect()?, of, verb.budget)?;
        match output.is_json() {
            true => output.json(&counted)?,
            false => output.text(&format!("{}\n", told_attempt(&counted)))?,
        }
        Ok(SUCCESS)
    }

    fn clean(&self, verb: &Clean) -> Result<Exit, Failure> {
        let output = &self.context.output;
        let mut connection = self.connect()?;
        self.context.repository()?;
        self.context.step_out();
        let request = CleanRounds {
            session: self.session.clone(),
            force: verb.force,
            archives: verb.archives,
        };
        let mut cleaned = connection.call(&request)?;
        if let Some(place) = self.place
            && place.remove_if_unused(connection)?
        {
            // No commit of the session is there any more.
            for seat in &mut cleaned.seats {
                seat.commit = None;
            }
        }
        match output.is_json() {
            true => output.json(&cleaned)?,
            false => {
                let place = self.place.map(|place| place.common_dir.as_path());
                output.text(&told_cleaned(&cleaned, place))?;
            }
        }
        Ok(SUCCESS)
    }
}

fn count(connection: &mut Client, of: AttemptOf, budget: Option<u64>) -> Result<AttemptCounted, Failure> {
    let request = ops::CountAttempt { of, budget };
    connection.call(&request)
}

/// Counts an attempt of the agent whose fork it is, before a command is run there.
pub fn count_attempt(context: &Context, fork: &ForkName) -> Result<(), Failure> {
    let of = AttemptOf::Fork { fork: fork.clone() };
    let counted = count(&mut context.connect()?, of, None)?;
    if !context.output.is_json() {
        context.output.note(&told_attempt(&counted));
    }
    Ok(())
}
