//! Bringing what agents wrote to open buffers into the files, before a command takes these.
//!
//! Only what agents did is brought, merged with what is saved: never a person's text that is not.
//! The buffers stay open, and their editors are told. Where the command fails after all, the files
//! are again what they were.

use super::keeping::{COMMAND, Files, InFork, There, put_beside};
use crate::failure::{ErrorCode, Failure};
use crate::protocol::AgentTexts;
use crate::state::slots::{Daemon, ForkGuard};
use tine_path::RepoPath;
use tine_path::shell::shell_word;
use tine_sys::pause;
use tine_tools::BufferKey;
use tine_tools::buffers::Filed;
use tine_workspace::{Actor, Caller, Direction, Fork, ForkName};

/// What becomes of an agent's text that does not fit the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// It stays in the buffer, and is named.
    LeftOut,
    /// It goes beside the file: its buffer is about to end.
    Beside,
}

/// Runs `act` when what agents wrote to the fork's open buffers is in the files; what it gave, and
/// which files these are.
pub fn with_agent_texts<T>(
    guard: &ForkGuard<'_>,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, AgentTexts), Failure> {
    with_brought(guard, None, Rest::LeftOut, act)
}

/// As [`with_agent_texts`], for files at and beneath these paths.
pub fn with_agent_texts_at<T>(
    guard: &ForkGuard<'_>,
    paths: &[RepoPath],
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, AgentTexts), Failure> {
    with_brought(guard, Some(paths), Rest::LeftOut, act)
}

/// As [`with_agent_texts`] before the buffers end: all that agents wrote is in files then.
pub fn with_all_agent_texts<T>(
    guard: &ForkGuard<'_>,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_brought(guard, None, Rest::Beside, act).map(|(done, _)| done)
}

/// Files of the fork whose newest text by an agent is in an open buffer only.
pub fn in_buffers_only(daemon: &Daemon, fork: &ForkName) -> Vec<RepoPath> {
    let keys = daemon.buffers.of(Some(fork)).into_iter();
    let unfiled = keys.filter(|key| daemon.buffers.unfiled(key).is_some());
    unfiled.map(|key| key.path).collect()
}

fn with_brought<T>(
    guard: &ForkGuard<'_>,
    paths: Option<&[RepoPath]>,
    rest: Rest,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, AgentTexts), Failure> {
    let daemon = guard.daemon;
    let mut keys = daemon.buffers.of(Some(guard.name()));
    if let Some(paths) = paths {
        keys.retain(|key| paths.iter().any(|path| key.path.starts_with(path)));
    }
    keys.retain(|key| daemon.buffers.unfiled(key).is_some());
    if keys.is_empty() {
        return Ok((act()?, AgentTexts::default()));
    }
    let mut bringing = Bringing {
        guard,
        texts: AgentTexts::default(),
        filed: Vec::new(),
        put: Vec::new(),
    };
    // An unmounted fork is open once at a time: not while `act` runs.
    let brought = guard.open_existing().and_then(|fork| {
        keys.iter()
            .try_for_each(|key| bringing.bring(&fork, key, rest))
    });
    let done = brought.and_then(|()| act());
    match done {
        Ok(done) => Ok((done, bringing.texts)),
        Err(failure) => {
            let left_out = std::mem::take(&mut bringing.texts.left_out);
            bringing.take_back();
            let told = left_out
                .into_iter()
                .filter(|_| failure.code == ErrorCode::NothingToCommit)
                .map(|path| path.to_bytes())
                .collect::<Vec<_>>();
            Err(told.into_iter().fold(failure, |failure, path| {
                failure.cause(format!(
                    "{} is without what an agent wrote to its open buffer: they exclude each other (`tine buffer merge {}` settles it)",
                    String::from_utf8_lossy(&path),
                    shell_word(&path)
                ))
            }))
        }
    }
}

/// What was brought into files so far.
struct Bringing<'a> {
    guard: &'a ForkGuard<'a>,
    texts: AgentTexts,
    filed: Vec<(BufferKey, Filed)>,
    /// Files that were written, in their order.
    put: Vec<RepoPath>,
}

impl Bringing<'_> {
    fn bring(&mut self, fork: &Fork, key: &BufferKey, rest: Rest) -> Result<(), Failure> {
        let (daemon, path) = (self.guard.daemon, &key.path);
        let mut is_put = false;
        while let Some(record) = daemon.buffers.unfiled(key) {
            let files = InFork(fork);
            let (before, mut outcome) = match files.look(path)? {
                // Of a file that was never saved the person's text is no part.
                There::Nothing if !record.existed && rest == Rest::LeftOut => {
                    (None, record.outcome(Some(b"")))
                }
                There::Nothing => (None, record.outcome(None)),
                There::File(content) => {
                    let outcome = record.outcome(Some(&content));
                    (Some(content), outcome)
                }
                There::Other => (None, record.outcome_beside()),
            };
            if let Some(content) = &outcome.content {
                if !files.put(path, before.as_deref(), content)? {
                    continue;
                }
                is_put = true;
                self.put.push(path.clone());
            }
            if rest == Rest::Beside {
                for text in &outcome.beside {
                    self.put.extend(put_beside(&files, path, text)?);
                }
                outcome.fits.fill(true);
            }
            if !outcome.fits.contains(&true) {
                break;
            }
            // What the record in the store forgets the file has for good.
            fork.workspace.sync()?;
            // An editor whose buffer is about to end hears of that.
            let is_told = rest == Rest::LeftOut;
            let filed =
                daemon
                    .buffers
                    .filed(&daemon.store, key, &record, &outcome.fits, is_told)?;
            let Some(filed) = filed else {
                continue;
            };
            self.filed.push((key.clone(), filed));
            if outcome.fits.contains(&false) {
                break;
            }
        }
        let is_left = daemon.buffers.unfiled(key).is_some();
        if is_left {
            self.texts.left_out.push(path.into());
        } else if is_put {
            self.texts.brought.push(path.into());
        }
        Ok(())
    }

    /// Lets files and buffers be what they were. Where that fails, the agent's text is in the file,
    /// where it is not lost.
    fn take_back(self) {
        let guard = self.guard;
        if let Err(failure) = self.try_take_back() {
            let what = failure.context("what an agent wrote stays in the files");
            log::error!("{}: {what}", guard.name());
        }
    }

    fn try_take_back(self) -> Result<(), Failure> {
        // First the records in the store: what is in neither, a daemon that is killed between the
        // two does not find.
        let daemon = self.guard.daemon;
        for (key, filed) in self.filed.into_iter().rev() {
            daemon.buffers.unfiled_again(&daemon.store, &key, filed)?;
        }
        let fork = self.guard.open_existing()?;
        let attrs = fork.workspace.base_attrs();
        let by = Actor {
            caller: Caller::new(attrs.uid, attrs.gid),
            command: COMMAND,
        };
        for path in self.put.iter().rev() {
            fork.workspace.take_back(by, Direction::Undo, Some(path))?;
            pause::at("text-taken-back");
        }
        Ok(fork.workspace.sync()?)
    }
}
