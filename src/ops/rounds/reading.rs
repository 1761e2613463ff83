//! Reads sessions: the whole record for the orchestrator, finished work for an agent.
//!
//! An agent learns its own branch. It learns the latest finished work of other agents under their
//! labels, sorted by label. It learns no agent's name and no order of agents, and the session's
//! name only in the paths of archives. It learns neither its own label nor the paths of its own
//! archives, which contain the label.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::{recorded_commit, refuse_unless_finished, refuse_unless_open};
use crate::failure::Failure;
use crate::protocol::{
    AgentShown, ArchiveShown, OtherShown, PairCompared, ReaderShown, ResultLine, RoundCompared,
    SeatShown, SessionLine, SessionShown, WorkShown,
};
use crate::state::slots::Daemon;
use tine_change::changeset::{self, Blobs};
use tine_change::round::{self, ArchiveRecord, RoundRecord, Seat, SeatState};
use tine_git::{CommitSpec, Identity, ObjectId, Repository};
use tine_merge::{MergeInput, MergeOptions, merge};
use tine_path::RepoPath;
use tine_store::{ForkName, StoreError};

/// Work of a seat.
pub(super) struct Work {
    /// Last commit.
    pub commit: Option<ObjectId>,
    /// Tree with uncommitted changes.
    pub tree: ObjectId,
    /// Number of uncommitted paths.
    pub uncommitted: usize,
}

/// Reads the work of a seat; `None` if none is left.
pub(super) fn find_work(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &RoundRecord,
    seat: &Seat,
) -> Result<Option<Work>, Failure> {
    let tip = match &seat.branch {
        Some(branch) => repository.branch(branch)?,
        None => None,
    };
    if let Err(StoreError::NoSuchFork(_)) = daemon.store.record(&seat.fork) {
        let Some(commit_id) = tip else {
            return Ok(None);
        };
        return Ok(Some(Work {
            commit: Some(commit_id),
            tree: repository.commit_info(commit_id)?.tree_id,
            uncommitted: 0,
        }));
    }
    let slot = daemon.slot(&seat.fork);
    let guard = daemon.lock_fork(&slot)?;
    let fork = guard.open_existing()?;
    guard.settle(repository, &fork)?;
    let changeset = changeset::changeset(repository, &fork, Blobs::Write)?;
    let commit = match tip.or(changeset.head_commit) {
        Some(commit_id) => commit_id,
        None => recorded_commit(record, &seat.base_commit)?,
    };
    let uncommitted = changeset.changes.len();
    let tree = match uncommitted {
        0 => repository.commit_info(commit)?.tree_id,
        _ => changeset::write_tree(repository, &changeset)?,
    };
    Ok(Some(Work {
        commit: Some(commit),
        tree,
        uncommitted,
    }))
}

fn work_shown(
    repository: &Repository,
    record: &RoundRecord,
    seat: &Seat,
    work: Option<&Work>,
) -> Result<WorkShown, Failure> {
    let base = recorded_commit(record, &seat.base_commit)?;
    let base_tree = repository.commit_info(base)?.tree_id;
    let tree = work.map_or(base_tree, |work| work.tree);
    let counts = if tree == base_tree {
        Default::default()
    } else {
        repository.line_counts(base_tree, tree)?
    };
    let total = |lines: fn(&tine_git::line_counts::LineCounts) -> Option<u64>| {
        counts
            .values()
            .filter_map(lines)
            .fold(0, u64::saturating_add)
    };
    Ok(WorkShown {
        base_commit: seat.base_commit.clone(),
        commit: work.and_then(|work| work.commit).map(|id| id.to_string()),
        tree: tree.to_string(),
        uncommitted: work.is_some_and(|work| work.uncommitted > 0),
        files_changed: counts.len(),
        insertions: total(|lines| lines.added),
        deletions: total(|lines| lines.removed),
        damage: None,
    })
}

fn work_of(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &RoundRecord,
    seat: &Seat,
) -> Result<WorkShown, Failure> {
    let looked = find_work(daemon, repository, record, seat)
        .and_then(|work| work_shown(repository, record, seat, work.as_ref()));
    match looked {
        Ok(shown) => Ok(shown),
        // Damage of one seat must not hide the others.
        Err(failure) => Ok(WorkShown {
            damage: Some(failure.to_string()),
            ..work_shown(repository, record, seat, None)?
        }),
    }
}

pub(super) fn show(daemon: &Arc<Daemon>, session: &ForkName) -> Result<SessionShown, Failure> {
    let record = RoundRecord::load(&daemon.store, session)?;
    shown(daemon, &daemon.repository_now()?, &record)
}

/// Describes a session for its orchestrator.
pub(super) fn shown(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &RoundRecord,
) -> Result<SessionShown, Failure> {
    let seat = |seat: &Option<Seat>| {
        let seat = seat.as_ref();
        seat.map(|seat| seat_shown(daemon, repository, record, seat))
            .transpose()
    };
    let agents = record.agents.iter().map(|agent| {
        Ok(AgentShown {
            agent: agent.name.clone(),
            budget: agent.budget,
            seat: seat(&agent.seat)?,
            before: seat(&agent.before)?,
        })
    });
    Ok(SessionShown {
        stays: Vec::new(),
        session: record.session.clone(),
        round: record.round,
        stage: record.stage,
        mode: record.mode,
        directory: record.directory.clone(),
        base_commit: record.base_commit.clone(),
        from_branch: record.from_branch.clone(),
        scratch: record.scratch.clone(),
        agents: agents.collect::<Result<_, Failure>>()?,
        presenter: seat(&record.presenter)?,
        archives: record
            .archives
            .iter()
            .map(|archive| ArchiveShown {
                agent: archive.agent.clone(),
                label: archive.label.clone(),
                round: archive.round,
                path: archive_path(daemon, record, archive),
            })
            .collect(),
    })
}

fn seat_shown(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &RoundRecord,
    seat: &Seat,
) -> Result<SeatShown, Failure> {
    Ok(SeatShown {
        round: seat.round,
        label: seat.label().clone(),
        fork: seat.fork.clone(),
        branch: seat.branch.clone(),
        mount_dir: daemon
            .store
            .record(&seat.fork)
            .ok()
            .map(|fork| fork.mount_dir),
        mounted: daemon.slot(&seat.fork).is_mounted(),
        state: seat.state,
        attempts: seat.attempts,
        work: work_of(daemon, repository, record, seat)?,
    })
}

/// Returns the directory of an archive.
pub(super) fn archive_path(
    daemon: &Daemon,
    record: &RoundRecord,
    archive: &ArchiveRecord,
) -> PathBuf {
    round::archive_dir(daemon.store.dir(), &record.session).join(record.archive_name(archive))
}

/// Describes a session for the agent `reader`.
pub(super) fn show_to(
    daemon: &Arc<Daemon>,
    session: &ForkName,
    reader: &ForkName,
) -> Result<ReaderShown, Failure> {
    let repository = daemon.repository_now()?;
    let record = RoundRecord::load(&daemon.store, session)?;
    let own = record.agent(reader)?;
    let mut others = Vec::new();
    for agent in record.agents.iter().filter(|agent| agent.name != *reader) {
        let Some(seat) = agent.latest() else { continue };
        let archive = record
            .archives
            .iter()
            .find(|archive| archive.agent == agent.name && archive.round == seat.round);
        others.push(OtherShown {
            label: seat.label().clone(),
            round: seat.round,
            fork: seat.fork.clone(),
            branch: seat.branch.clone(),
            work: work_of(daemon, &repository, &record, seat)?,
            archive: archive.map(|archive| archive_path(daemon, &record, archive)),
        });
    }
    others.sort_by(|a, b| a.label.cmp(&b.label));
    let seat = own.seat.as_ref();
    let fork = seat.and_then(|seat| daemon.store.record(&seat.fork).ok());
    Ok(ReaderShown {
        round: record.round,
        fork: seat.map(|seat| seat.fork.clone()),
        branch: seat.and_then(|seat| seat.branch.clone()),
        mount_dir: fork.map(|fork| fork.mount_dir),
        work: seat
            .map(|seat| work_of(daemon, &repository, &record, seat))
            .transpose()?,
        previous_branch: own.before.as_ref().and_then(|seat| seat.branch.clone()),
        scratch: record.scratch.clone(),
        attempts: seat.map_or(0, |seat| seat.attempts),
        budget: own.budget,
        others,
    })
}

/// Lists all sessions, sorted by name.
pub(super) fn sessions(daemon: &Daemon) -> Result<Vec<SessionLine>, Failure> {
    let mut sessions: Vec<SessionLine> = RoundRecord::all(&daemon.store)?
        .into_iter()
        .map(|record| {
            let seats: Vec<&Seat> = record.seated().map(|(_, seat)| seat).collect();
            SessionLine {
                round: record.round,
                stage: record.stage,
                agents: seats.len(),
                finished: seats
                    .iter()
                    .filter(|seat| seat.state == SeatState::Finished)
                    .count(),
                attempts: seats.iter().map(|seat| seat.attempts).sum(),
                session: record.session.clone(),
            }
        })
        .collect();
    sessions.sort_by(|a, b| a.session.cmp(&b.session));
    Ok(sessions)
}

/// Reads the work of the given agents; of all if none.
fn found(
    daemon: &Arc<Daemon>,
    repository: &Repository,
    record: &RoundRecord,
    agents: &[ForkName],
    finished: bool,
) -> Result<Vec<(ResultLine, Work)>, Failure> {
    refuse_unless_open(record)?;
    let names: Vec<ForkName> = if agents.is_empty() {
        record
            .seated()
            .map(|(agent, _)| agent.name.clone())
            .collect()
    } else {
        agents.to_vec()
    };
    let mut found = Vec::new();
    for name in names {
        let seat = record.seat(&name)?;
        if finished {
            refuse_unless_finished(&name, seat)?;
        }
        let Some(work) = find_work(daemon, repository, record, seat)? else {
            return Err(StoreError::NoSuchFork(seat.fork.to_string()).into());
        };
        let line = ResultLine {
            agent: name,
            label: seat.label().clone(),
            branch: seat.branch.clone(),
            point: seat.point(),
            work: work_shown(repository, record, seat, Some(&work))?,
        };
        found.push((line, work));
    }
    Ok(found)
}

pub(super) fn results(
    daemon: &Arc<Daemon>,
    session: &ForkName,
    agents: &[ForkName],
    finished: bool,
) -> Result<Vec<ResultLine>, Failure> {
    let record = RoundRecord::load(&daemon.store, session)?;
    let found = found(daemon, &daemon.repository_now()?, &record, agents, finished)?;
    Ok(found.into_iter().map(|(line, _)| line).collect())
}

/// Compares each pair of results.
///
/// Adds objects to the repository and changes nothing else.
pub(super) fn compare(
    daemon: &Arc<Daemon>,
    session: &ForkName,
    agents: &[ForkName],
) -> Result<RoundCompared, Failure> {
    let repository = daemon.repository_now()?;
    let record = RoundRecord::load(&daemon.store, session)?;
    let found = found(daemon, &repository, &record, agents, false)?;
    let mut sides = Vec::new();
    for (line, work) in &found {
        let base = recorded_commit(&record, &line.work.base_commit)?;
        let base_tree = repository.commit_info(base)?.tree_id;
        let paths: BTreeSet<Vec<u8>> = repository
            .line_counts(base_tree, work.tree)?
            .into_keys()
            .collect();
        sides.push((&line.agent, paths, commit_of(&repository, work)?));
    }
    let mut pairs = Vec::new();
    for (index, (a, a_paths, a_commit)) in sides.iter().enumerate() {
        for (b, b_paths, b_commit) in sides.iter().skip(index.saturating_add(1)) {
            let input = MergeInput {
                base: None,
                ours: *a_commit,
                theirs: *b_commit,
                allow_unrelated: true,
            };
            let outcome = merge(&repository, &input, &MergeOptions::default())?;
            let overlap = a_paths.intersection(b_paths);
            pairs.push(PairCompared {
                a: (*a).clone(),
                b: (*b).clone(),
                overlap: overlap
                    .filter_map(|path| RepoPath::parse(path).ok())
                    .map(|path| (&path).into())
                    .collect(),
                conflicts: outcome
                    .conflicts
                    .iter()
                    .map(|conflict| (&conflict.path).into())
                    .collect(),
            });
        }
    }
    Ok(RoundCompared {
        session: record.session,
        round: record.round,
        results: found.into_iter().map(|(line, _)| line).collect(),
        pairs,
    })
}

/// Returns a commit of all the work.
///
/// Makes one that no ref reaches if there are uncommitted changes.
pub(super) fn commit_of(repository: &Repository, work: &Work) -> Result<ObjectId, Failure> {
    match (work.uncommitted, work.commit) {
        (0, Some(commit_id)) => Ok(commit_id),
        (_, head) => Ok(repository.write_commit(&CommitSpec {
            tree_id: work.tree,
            parent_ids: head.into_iter().collect(),
            message: "tine: what is compared".to_owned().into(),
            author: Some(Identity::tine()),
            committer: Some(Identity::tine()),
        })?),
    }
}
