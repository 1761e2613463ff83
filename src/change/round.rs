//! Rounds: the books of an orchestrator that has several agents work several turns.
//!
//! A *session* is one record. In each *round* every agent has a *seat*: a fork, and with
//! [`Mode::Branches`] a branch, whose names are random, so that nothing in them tells an agent,
//! round or session. What is about to be done is written down before it begins, and the same
//! command given again does the rest:
//!
//! | stage | what is there |
//! |---|---|
//! | `starting` | seats are planned; some of their forks may not be there yet, and what goes may still be |
//! | `open` | every seat has its fork, and is on its own way: open, being finished, finished |
//! | `cleaning` | all of it is going |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ChangeError;
use super::branches::rename_in;
use tine_path::text::optional_host_path;
use tine_workspace::store::RecordKind;
use tine_workspace::{ForkName, Store, StoreError};

/// Beneath `refs/tine/`, where no fork can be called so: the last commits of seats that went before
/// their session.
pub const KEPT: &str = "+rounds";

/// What a session's seats are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each has a branch, and what it leaves is commits.
    #[default]
    Branches,
    /// A layer alone: HEAD is on no branch, nothing is committed.
    Layers,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Starting,
    Open,
    Cleaning,
}

/// How a seat stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeatState {
    Planned,
    Open,
    Finishing,
    Finished,
}

/// An agent's place in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub round: u64,
    /// What others know it by; `None`: the fork's name, which is the branch's suffix.
    pub label: Option<ForkName>,
    pub fork: ForkName,
    /// Short name; `None` with [`Mode::Layers`].
    pub branch: Option<String>,
    /// The commit that it began at, in hex.
    pub base_commit: String,
    pub state: SeatState,
    /// Verification attempts.
    pub attempts: u64,
}

impl Seat {
    pub fn label(&self) -> &ForkName {
        self.label.as_ref().unwrap_or(&self.fork)
    }

    /// The seat's result as a point.
    pub fn point(&self) -> String {
        match &self.branch {
            Some(branch) => format!("rev:{branch}"),
            None => format!("fork:{}", self.fork),
        }
    }
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub name: ForkName,
    /// In the current round; `None` of one that has no part in it.
    pub seat: Option<Seat>,
    /// In the round before, for the others to read.
    pub before: Option<Seat>,
    /// What goes with the round that is being started.
    pub outgoing: Option<Seat>,
    /// Verification attempts that it may make in a round; `None`: any number.
    pub budget: Option<u64>,
}

impl AgentRecord {
    /// The newest seat that is finished.
    pub fn latest(&self) -> Option<&Seat> {
        let is_finished = |seat: &&Seat| seat.state == SeatState::Finished;
        let seats = self.seat.iter().chain(&self.before);
        seats.into_iter().find(is_finished)
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.seat.iter().chain(&self.before).chain(&self.outgoing)
    }
}

/// A scratch directory that was archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveRecord {
    /// Of whom; the presenter's own label.
    pub agent: ForkName,
    pub label: ForkName,
    pub round: u64,
}

/// What the store remembers of a session: one atomically replaced file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundRecord {
    pub id: u64,
    pub session: ForkName,
    pub created_secs: i64,
    pub mode: Mode,
    /// The directory without git that the session stands on.
    #[serde(with = "optional_host_path", default)]
    pub directory: Option<PathBuf>,
    /// What was last brought to that directory, or came from it: commits in hex.
    #[serde(default)]
    pub written_commit: Option<String>,
    /// The scratch directories' name, at the root of each fork.
    pub scratch: String,
    pub stage: Stage,
    /// The current round, from 1 on.
    pub round: u64,
    /// The commit that it began at, in hex; of several agents' forks in layers, the last.
    pub base_commit: String,
    /// The branch that it came from (short name).
    pub from_branch: Option<String>,
    /// The fork that layers begin as.
    #[serde(default)]
    pub from_fork: Option<ForkName>,
    /// In the order in which they were named.
    pub agents: Vec<AgentRecord>,
    pub presenter: Option<Seat>,
    pub archives: Vec<ArchiveRecord>,
}

/// A round that is to begin.
#[derive(Debug, Clone)]
pub struct NextRound {
    /// Its agents in their order, each with a label if one is given.
    pub agents: Vec<(ForkName, Option<ForkName>)>,
    pub base_commit: String,
    pub from_branch: Option<String>,
    pub from_fork: Option<ForkName>,
    /// Replaces each agent's.
    pub budget: Option<u64>,
}

impl RoundRecord {
    /// A session in which no round was.
    pub fn new(session: ForkName, mode: Mode, scratch: String, created_secs: i64) -> RoundRecord {
        RoundRecord {
            id: 0,
            session,
            created_secs,
            mode,
            directory: None,
            written_commit: None,
            scratch,
            stage: Stage::Open,
            round: 0,
            base_commit: String::new(),
            from_branch: None,
            from_fork: None,
            agents: Vec::new(),
            presenter: None,
            archives: Vec::new(),
        }
    }

    /// All sessions. One that cannot be read is an error: nobody may take its forks for nobody's.
    pub fn all(store: &Store) -> Result<Vec<RoundRecord>, ChangeError> {
        let (records, damaged) = store.documents::<RoundRecord>(RecordKind::Rounds)?;
        match damaged.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(records),
        }
    }

    pub fn find(store: &Store, session: &ForkName) -> Result<Option<RoundRecord>, ChangeError> {
        let all = RoundRecord::all(store)?;
        Ok(all.into_iter().find(|record| record.session == *session))
    }

    /// # Errors
    /// [`ChangeError::NoSuchSession`].
    pub fn load(store: &Store, session: &ForkName) -> Result<RoundRecord, ChangeError> {
        RoundRecord::find(store, session)?
            .ok_or_else(|| ChangeError::NoSuchSession(session.clone()))
    }

    /// Has it name a branch (short names) that was renamed; whether it named it.
    pub fn rename_branch(&mut self, old: &str, new: &str) -> bool {
        let of_agents = self.agents.iter_mut().flat_map(|agent| {
            [&mut agent.seat, &mut agent.before, &mut agent.outgoing]
                .into_iter()
                .flatten()
        });
        let seats = of_agents.chain(&mut self.presenter);
        let words = seats
            .filter_map(|seat| seat.branch.as_mut())
            .chain(&mut self.from_branch);
        words.fold(false, |is_renamed, word| {
            rename_in(word, old, new) | is_renamed
        })
    }

    /// Writes it down; a new one gets its number.
    pub fn save(&mut self, store: &Store) -> Result<(), ChangeError> {
        if self.id > 0 {
            return Ok(store.write_document(RecordKind::Rounds, self.id, self)?);
        }
        let record = self.clone();
        let added = store.add_document(RecordKind::Rounds, |id| {
            Ok::<_, StoreError>(RoundRecord { id, ..record })
        })?;
        self.id = added.id;
        Ok(())
    }

    pub fn remove(&self, store: &Store) -> Result<(), ChangeError> {
        Ok(store.remove_document(RecordKind::Rounds, self.id, None)?)
    }

    /// # Errors
    /// [`ChangeError::NoSuchAgent`].
    pub fn agent(&self, name: &ForkName) -> Result<&AgentRecord, ChangeError> {
        self.agents
            .iter()
            .find(|agent| agent.name == *name)
            .ok_or_else(|| self.no_such_agent(name))
    }

    pub fn agent_mut(&mut self, name: &ForkName) -> Result<&mut AgentRecord, ChangeError> {
        let missing = self.no_such_agent(name);
        let mut agents = self.agents.iter_mut();
        agents.find(|agent| agent.name == *name).ok_or(missing)
    }

    fn no_such_agent(&self, agent: &ForkName) -> ChangeError {
        ChangeError::NoSuchAgent {
            session: self.session.clone(),
            agent: agent.clone(),
        }
    }

    /// The agents with a seat in the current round.
    pub fn seated(&self) -> impl Iterator<Item = (&AgentRecord, &Seat)> {
        self.agents
            .iter()
            .filter_map(|agent| Some((agent, agent.seat.as_ref()?)))
    }

    /// The seat of `name`, an agent or the presenter, in the current round.
    pub fn seat(&self, name: &ForkName) -> Result<&Seat, ChangeError> {
        match self.presenter.as_ref().filter(|seat| seat.label() == name) {
            Some(seat) => Ok(seat),
            None => self
                .agent(name)?
                .seat
                .as_ref()
                .ok_or_else(|| self.no_such_agent(name)),
        }
    }

    pub fn seat_mut(&mut self, name: &ForkName) -> Result<&mut Seat, ChangeError> {
        let missing = self.no_such_agent(name);
        if self
            .presenter
            .as_ref()
            .is_some_and(|seat| seat.label() == name)
        {
            return self.presenter.as_mut().ok_or(missing);
        }
        self.agent_mut(name)?.seat.as_mut().ok_or(missing)
    }

    /// All seats, with the names of those who have them.
    pub fn seats(&self) -> Vec<(ForkName, Seat)> {
        let of_agents = self
            .agents
            .iter()
            .flat_map(|agent| agent.seats().map(|seat| (agent.name.clone(), seat.clone())));
        let of_presenter = self
            .presenter
            .iter()
            .map(|seat| (seat.label().clone(), seat.clone()));
        of_agents.chain(of_presenter).collect()
    }

    /// The branches of all seats.
    pub fn branches(&self) -> Vec<String> {
        let seats = self.seats().into_iter();
        seats.filter_map(|(_, seat)| seat.branch).collect()
    }

    /// Whether the agent `name` could be called `label`: nobody else is in this round.
    pub fn is_label_free(&self, name: &ForkName, label: &ForkName) -> bool {
        let of_others = self.seated().filter(|(agent, _)| agent.name != *name);
        of_others
            .map(|(_, seat)| seat.label())
            .all(|other| other != label)
    }

    /// Begins the next round: everybody's seat becomes the one before, and the one before that
    /// goes. `names` gives a name for each fork.
    pub fn plan(
        &mut self,
        next: &NextRound,
        names: &mut dyn FnMut() -> Result<ForkName, StoreError>,
    ) -> Result<(), ChangeError> {
        self.round = self.round.saturating_add(1);
        self.stage = Stage::Starting;
        self.base_commit = next.base_commit.clone();
        self.from_branch = next.from_branch.clone();
        self.from_fork = next.from_fork.clone();
        for agent in &mut self.agents {
            agent.outgoing = agent.before.take();
            agent.before = agent.seat.take();
        }
        let mut former = std::mem::take(&mut self.agents);
        for (name, label) in &next.agents {
            let known = former.iter().position(|agent| agent.name == *name);
            let mut agent = match known {
                Some(index) => former.remove(index),
                None => AgentRecord {
                    name: name.clone(),
                    seat: None,
                    before: None,
                    outgoing: None,
                    budget: None,
                },
            };
            let fork = names()?;
            agent.budget = next.budget.or(agent.budget);
            agent.seat = Some(Seat {
                round: self.round,
                label: label.clone(),
                branch: (self.mode == Mode::Branches).then(|| format!("tine/{fork}")),
                fork,
                base_commit: next.base_commit.clone(),
                state: SeatState::Planned,
                attempts: 0,
            });
            self.agents.push(agent);
        }
        self.agents.append(&mut former);
        Ok(())
    }

    /// Notes that what the round replaced is gone, and that everybody can work.
    pub fn opened(&mut self) {
        for agent in &mut self.agents {
            agent.outgoing = None;
        }
        self.agents
            .retain(|agent| agent.seat.is_some() || agent.before.is_some());
        self.stage = Stage::Open;
    }

    /// Notes an archive. Made again for the same round it is the same one.
    pub fn note_archive(&mut self, archive: ArchiveRecord) {
        self.archives
            .retain(|known| (&known.label, known.round) != (&archive.label, archive.round));
        self.archives.push(archive);
    }

    /// The directory of an archive's name: the newest of a label bears the label, each before it
    /// also the number of its round.
    pub fn archive_name(&self, archive: &ArchiveRecord) -> String {
        let of_label = self
            .archives
            .iter()
            .filter(|other| other.label == archive.label);
        match of_label.map(|other| other.round).max() {
            Some(newest) if newest > archive.round => older_archive(&archive.label, archive.round),
            _ => archive.label.to_string(),
        }
    }
}

/// What the archive of an earlier round is called when the label has another. No label can be
/// called so.
pub fn older_archive(label: &ForkName, round: u64) -> String {
    format!("{label}~{round}")
}

/// Where the archives of a session are.
pub fn archive_dir(store: &Path, session: &ForkName) -> PathBuf {
    session_dir(store, session).join("scratch")
}

/// All that a session leaves.
pub fn session_dir(store: &Path, session: &ForkName) -> PathBuf {
    store.join("rounds").join(session.as_str())
}

/// The first that is there twice.
pub fn repeated<'n>(names: impl IntoIterator<Item = &'n ForkName>) -> Option<&'n ForkName> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ForkName {
        ForkName::parse(text).unwrap()
    }

    fn next(agents: &[&str]) -> NextRound {
        NextRound {
            agents: agents.iter().map(|agent| (name(agent), None)).collect(),
            base_commit: "c0".to_owned(),
            from_branch: None,
            from_fork: None,
            budget: None,
        }
    }

    fn play(record: &mut RoundRecord, agents: &[&str], count: &mut u32) {
        record
            .plan(&next(agents), &mut || {
                *count += 1;
                ForkName::parse(&format!("f{count}"))
            })
            .unwrap();
    }

    #[test]
    fn an_agent_has_one_seat_and_the_one_before_and_what_is_older_goes() {
        let mut record = RoundRecord::new(name("s"), Mode::Branches, ".scratch".to_owned(), 0);
        let mut count = 0;
        for _ in 0..2 {
            play(&mut record, &["a", "b"], &mut count);
            assert!(record.agents.iter().all(|agent| agent.outgoing.is_none()));
            record.opened();
        }
        play(&mut record, &["b", "c"], &mut count);
        let forks = |record: &RoundRecord, agent: &str| {
            let agent = record.agent(&name(agent)).unwrap();
            let fork = |seat: &Option<Seat>| seat.as_ref().map(|seat| seat.fork.to_string());
            [
                fork(&agent.seat),
                fork(&agent.before),
                fork(&agent.outgoing),
            ]
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(forks(&record, "a"), [None, some("f3"), some("f1")]);
        assert_eq!(forks(&record, "b"), [some("f5"), some("f4"), some("f2")]);
        assert_eq!(forks(&record, "c"), [some("f6"), None, None]);
        assert_eq!((record.round, record.stage), (3, Stage::Starting));
        record.opened();
        play(&mut record, &["b", "c"], &mut count);
        assert_eq!(forks(&record, "a"), [None, None, some("f3")]);
        record.opened();
        assert!(record.agent(&name("a")).is_err(), "nothing of it is left");
    }

    #[test]
    fn the_newest_archive_of_a_label_bears_the_label() {
        let mut record = RoundRecord::new(name("s"), Mode::Branches, ".scratch".to_owned(), 0);
        for round in [1, 2, 2, 3] {
            record.note_archive(ArchiveRecord {
                agent: name("a"),
                label: name("x"),
                round,
            });
        }
        let names: Vec<String> = record
            .archives
            .iter()
            .map(|archive| record.archive_name(archive))
            .collect();
        assert_eq!(names, ["x~1", "x~2", "x"]);
    }
}
