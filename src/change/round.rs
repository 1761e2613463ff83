//! Rounds: the records of an orchestrator whose agents work in turns.
//!
//! A *session* is one record. In each *round* every agent has a *seat*: a fork, and with
//! [`Mode::Branches`] a branch. Their names are random, so that they reveal neither agent nor round
//! nor session. Each stage is recorded before it begins, and the same command given again finishes
//! it:
//!
//! | stage | state of the seats |
//! |---|---|
//! | `starting` | planned; some forks may be missing, and outgoing ones may still exist |
//! | `open` | every seat has its fork, and is open, finishing or finished |
//! | `cleaning` | all of the session is being deleted |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ChangeError;
use super::branches::rename_in;
use tine_path::text::optional_host_path;
use tine_store::{ForkName, RecordKind, Store, StoreError};

/// Group under `refs/tine/` with last commits of deleted seats.
///
/// It is not a valid fork name. The commits are kept until the session goes.
pub const KEPT: &str = "+rounds";

/// Kind of a session's seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each seat has a branch, and its result is commits.
    #[default]
    Branches,
    /// Each seat is only a layer.
    ///
    /// HEAD is on no branch, and nothing is committed.
    Layers,
}

/// Stage of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// A round is being started.
    Starting,
    /// Agents can work.
    Open,
    /// The session is being deleted.
    Cleaning,
}

/// State of a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeatState {
    /// Its fork may not exist yet.
    Planned,
    /// Its agent works.
    Open,
    /// Its result is being taken.
    Finishing,
    /// Its result is final.
    Finished,
}

/// Place of an agent in one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Number of the round, from 1.
    pub round: u64,
    /// Name that others see; `None`: the fork's name.
    ///
    /// The fork's name is also the suffix of the branch.
    pub label: Option<ForkName>,
    /// Fork of the seat.
    pub fork: ForkName,
    /// Short name of the branch; `None` with [`Mode::Layers`].
    pub branch: Option<String>,
    /// Commit that the seat started at, in hex.
    pub base_commit: String,
    /// State of the seat.
    pub state: SeatState,
    /// Number of verification attempts so far.
    pub attempts: u64,
}

impl Seat {
    /// Returns the name that others see.
    pub fn label(&self) -> &ForkName {
        self.label.as_ref().unwrap_or(&self.fork)
    }

    /// Returns the seat's result as a point.
    pub fn point(&self) -> String {
        match &self.branch {
            Some(branch) => format!("rev:{branch}"),
            None => format!("fork:{}", self.fork),
        }
    }
}

/// Agent of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Name of the agent.
    pub name: ForkName,
    /// Seat in the current round; `None`: not taking part.
    pub seat: Option<Seat>,
    /// Seat in the previous round, which others may read.
    pub before: Option<Seat>,
    /// Seat that is deleted when the new round opens.
    pub outgoing: Option<Seat>,
    /// Verification attempts allowed in a round; `None`: any number.
    pub budget: Option<u64>,
}

impl AgentRecord {
    /// Returns the newest finished seat.
    pub fn latest(&self) -> Option<&Seat> {
        let is_finished = |seat: &&Seat| seat.state == SeatState::Finished;
        let seats = self.seat.iter().chain(&self.before);
        seats.into_iter().find(is_finished)
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.seat.iter().chain(&self.before).chain(&self.outgoing)
    }
}

/// Scratch directory that was archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveRecord {
    /// Agent that owned it, or the presenter's label.
    pub agent: ForkName,
    /// Label of the seat in that round.
    pub label: ForkName,
    /// Number of the round.
    pub round: u64,
}

/// Record of a session, one atomically replaced file of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// Number of the record; 0 before the first save.
    pub id: u64,
    /// Name of the session.
    pub session: ForkName,
    /// Time of creation in seconds since 1970.
    pub created_secs: i64,
    /// Kind of the seats.
    pub mode: Mode,
    /// Plain directory that the session began as; `None` in a repository.
    #[serde(with = "optional_host_path", default)]
    pub directory: Option<PathBuf>,
    /// Commit last written to that directory or read from it, in hex.
    #[serde(default)]
    pub written_commit: Option<String>,
    /// Name of the scratch directory, at the root of each fork.
    pub scratch: String,
    /// Stage of the session.
    pub stage: Stage,
    /// Number of the current round, from 1; 0 before the first.
    pub round: u64,
    /// Commit that the round started at, in hex.
    ///
    /// If several forks with layers were named, it is that of the last one.
    pub base_commit: String,
    /// Short name of the branch that the round came from.
    pub from_branch: Option<String>,
    /// Fork that the seats with layers start as.
    #[serde(default)]
    pub from_fork: Option<ForkName>,
    /// Agents, in the order in which they were named.
    pub agents: Vec<AgentRecord>,
    /// Seat of the presenter in this round, if there is one.
    pub presenter: Option<Seat>,
    /// Archived scratch directories.
    pub archives: Vec<ArchiveRecord>,
}

/// Options for the next round.
#[derive(Debug, Clone)]
pub struct NextRound {
    /// Agents in their order, each with its label if it has one.
    pub agents: Vec<(ForkName, Option<ForkName>)>,
    /// Commit that the round starts at, in hex.
    pub base_commit: String,
    /// Short name of the branch that the round comes from.
    pub from_branch: Option<String>,
    /// Fork that the seats with layers start as.
    pub from_fork: Option<ForkName>,
    /// New budget of every agent; `None` keeps each agent's.
    pub budget: Option<u64>,
}

impl RoundRecord {
    /// Makes a session before its first round.
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

    /// Reads all sessions.
    ///
    /// One unreadable record is an error, since its forks must not seem unused.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if a record cannot be read.
    pub fn all(store: &Store) -> Result<Vec<RoundRecord>, ChangeError> {
        let (records, damaged) = store.documents::<RoundRecord>(RecordKind::Rounds)?;
        match damaged.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(records),
        }
    }

    /// Reads a session by name; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if a record cannot be read.
    pub fn find(store: &Store, session: &ForkName) -> Result<Option<RoundRecord>, ChangeError> {
        let all = RoundRecord::all(store)?;
        Ok(all.into_iter().find(|record| record.session == *session))
    }

    /// Reads a session by name.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchSession`], or [`ChangeError::Store`] if a record cannot be read.
    pub fn load(store: &Store, session: &ForkName) -> Result<RoundRecord, ChangeError> {
        RoundRecord::find(store, session)?
            .ok_or_else(|| ChangeError::NoSuchSession(session.clone()))
    }

    /// Renames a branch (short names) in the record.
    ///
    /// Returns whether the record named it.
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

    /// Writes the record. A new one gets its number.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if it cannot be written.
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

    /// Removes the record.
    ///
    /// # Errors
    /// [`ChangeError::Store`] if it cannot be removed.
    pub fn remove(&self, store: &Store) -> Result<(), ChangeError> {
        Ok(store.remove_document(RecordKind::Rounds, self.id, None)?)
    }

    /// Returns the agent with a name.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchAgent`].
    pub fn agent(&self, name: &ForkName) -> Result<&AgentRecord, ChangeError> {
        self.agents
            .iter()
            .find(|agent| agent.name == *name)
            .ok_or_else(|| self.no_such_agent(name))
    }

    /// Returns the agent with a name, for a change.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchAgent`].
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

    /// Returns the agents with a seat in the current round.
    pub fn seated(&self) -> impl Iterator<Item = (&AgentRecord, &Seat)> {
        self.agents
            .iter()
            .filter_map(|agent| Some((agent, agent.seat.as_ref()?)))
    }

    /// Returns the seat of `name` in the current round.
    ///
    /// `name` is an agent, or the label of the presenter.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchAgent`], also if the agent has no seat.
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

    /// Returns the seat of `name`, for a change.
    ///
    /// # Errors
    /// [`ChangeError::NoSuchAgent`], also if the agent has no seat.
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

    /// Returns all seats with the names of their owners.
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

    /// Returns the branches of all seats.
    pub fn branches(&self) -> Vec<String> {
        let seats = self.seats().into_iter();
        seats.filter_map(|(_, seat)| seat.branch).collect()
    }

    /// Returns whether no other agent of this round has `label`.
    pub fn is_label_free(&self, name: &ForkName, label: &ForkName) -> bool {
        let of_others = self.seated().filter(|(agent, _)| agent.name != *name);
        of_others
            .map(|(_, seat)| seat.label())
            .all(|other| other != label)
    }

    /// Plans the next round.
    ///
    /// Each agent's seat becomes the previous one, and the previous seat becomes outgoing. `names`
    /// returns a name for each new fork.
    ///
    /// # Errors
    /// The errors of `names`.
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

    /// Records that the outgoing seats are gone and agents can work.
    pub fn opened(&mut self) {
        for agent in &mut self.agents {
            agent.outgoing = None;
        }
        self.agents
            .retain(|agent| agent.seat.is_some() || agent.before.is_some());
        self.stage = Stage::Open;
    }

    /// Records an archive.
    ///
    /// It replaces one of the same label and round.
    pub fn note_archive(&mut self, archive: ArchiveRecord) {
        self.archives
            .retain(|known| (&known.label, known.round) != (&archive.label, archive.round));
        self.archives.push(archive);
    }

    /// Returns the directory name of an archive.
    ///
    /// The newest archive of a label has the label as its name. Older ones add the number of their
    /// round.
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

/// Returns the name of an archive that is not its label's newest.
///
/// It is not a valid label.
pub fn older_archive(label: &ForkName, round: u64) -> String {
    format!("{label}~{round}")
}

/// Returns the directory of a session's archives.
pub fn archive_dir(store: &Path, session: &ForkName) -> PathBuf {
    session_dir(store, session).join("scratch")
}

/// Returns the directory with everything that a session leaves.
pub fn session_dir(store: &Path, session: &ForkName) -> PathBuf {
    store.join("rounds").join(session.as_str())
}

/// Returns the first name that occurs twice.
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
