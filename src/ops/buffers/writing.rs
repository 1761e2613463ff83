//! Writes agents' texts of open buffers to files that commands read.
//!
//! Only agents' changes are written, merged with the saved file; a person's unsaved text never is.
//! The buffers stay open, and their editors get an event. If the command fails, the files are
//! restored.

use super::closing::{COMMAND, Files, ForkFiles, PathContent, write_beside};
use crate::failure::{ErrorCode, Failure};
use crate::protocol::AgentTexts;
use crate::state::slots::{Daemon, ForkGuard};
use tine_path::RepoPath;
use tine_path::shell::shell_word;
use tine_store::{Fork, ForkName};
use tine_sys::pause;
use tine_tools::BufferKey;
use tine_tools::buffers::Filed;
use tine_workspace::{Actor, Caller, Direction};

/// Treatment of an agent's text that does not fit the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnfitPolicy {
    /// It stays in the buffer, and the answer names it.
    LeftOut,
    /// It is written beside the file, because its buffer ends.
    Beside,
}

/// Runs `act` after writing agents' texts of the fork's buffers to files.
///
/// Returns the result of `act` and the files.
///
/// # Errors
/// The error of `act`, or a failure to write a file. Then the files are as before.
pub fn with_agent_texts<T>(
    guard: &ForkGuard<'_>,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, AgentTexts), Failure> {
    with_texts_written(guard, None, UnfitPolicy::LeftOut, act)
}

/// Does the same as [`with_agent_texts`] for files at and under these paths.
///
/// # Errors
/// As [`with_agent_texts`].
pub fn with_agent_texts_at<T>(
    guard: &ForkGuard<'_>,
    paths: &[RepoPath],
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, AgentTexts), Failure> {
    with_texts_written(guard, Some(paths), UnfitPolicy::LeftOut, act)
}

/// Runs `act` after writing all agents' texts to files; the buffers end.
///
/// A text that does not fit its file is written beside it.
///
/// # Errors
/// As [`with_agent_texts`].
pub fn with_all_agent_texts<T>(
    guard: &ForkGuard<'_>,
    act: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_texts_written(guard, None, UnfitPolicy::Beside, act).map(|(done, _)| done)
}

/// Lists files whose newest agent text is only in an open buffer.
pub fn in_buffers_only(daemon: &Daemon, fork: &ForkName) -> Vec<RepoPath> {
    let keys = daemon.buffers.of(Some(fork)).into_iter();
    let unfiled = keys.filter(|key| daemon.buffers.unfiled(key).is_some());
    unfiled.map(|key| key.path).collect()
}

fn with_texts_written<T>(
    guard: &ForkGuard<'_>,
    paths: Option<&[RepoPath]>,
    unfit: UnfitPolicy,
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
    let mut written = WrittenTexts {
        guard,
        texts: AgentTexts::default(),
        filed: Vec::new(),
        written: Vec::new(),
    };
    // `act` may open an unmounted fork, which can be open only once.
    let outcome = guard.open_existing().and_then(|fork| {
        keys.iter()
            .try_for_each(|key| written.write(&fork, key, unfit))
    });
    let done = outcome.and_then(|()| act());
    match done {
        Ok(done) => Ok((done, written.texts)),
        Err(failure) => {
            let left_out = std::mem::take(&mut written.texts.left_out);
            written.roll_back();
            let paths_left_out = left_out
                .into_iter()
                .filter(|_| failure.code == ErrorCode::NothingToCommit)
                .map(|path| path.to_bytes())
                .collect::<Vec<_>>();
            Err(paths_left_out.into_iter().fold(failure, |failure, path| {
                failure.cause(format!(
                    "{} is without what an agent wrote to its open buffer: they exclude each other (`tine buffer merge {}` settles it)",
                    String::from_utf8_lossy(&path),
                    shell_word(&path)
                ))
            }))
        }
    }
}

/// Files and records that were changed so far.
struct WrittenTexts<'a> {
    guard: &'a ForkGuard<'a>,
    texts: AgentTexts,
    filed: Vec<(BufferKey, Filed)>,
    /// Files that were written, in order.
    written: Vec<RepoPath>,
}

impl WrittenTexts<'_> {
    fn write(&mut self, fork: &Fork, key: &BufferKey, unfit: UnfitPolicy) -> Result<(), Failure> {
        let (daemon, path) = (self.guard.daemon, &key.path);
        let mut is_written = false;
        while let Some(record) = daemon.buffers.unfiled(key) {
            let files = ForkFiles(fork);
            let (before, mut outcome) = match files.read(path)? {
                // The person's text of a file that was never saved must not be written.
                PathContent::Nothing if !record.existed && unfit == UnfitPolicy::LeftOut => {
                    (None, record.outcome(Some(b"")))
                }
                PathContent::Nothing => (None, record.outcome(None)),
                PathContent::File(content) => {
                    let outcome = record.outcome(Some(&content));
                    (Some(content), outcome)
                }
                PathContent::Other => (None, record.outcome_beside()),
            };
            if let Some(content) = &outcome.content {
                if !files.write(path, before.as_deref(), content)? {
                    continue;
                }
                is_written = true;
                self.written.push(path.clone());
            }
            if unfit == UnfitPolicy::Beside {
                for text in &outcome.beside {
                    self.written.extend(write_beside(&files, path, text)?);
                }
                outcome.fits.fill(true);
            }
            if !outcome.fits.contains(&true) {
                break;
            }
            // The file must be on disk before the store's record forgets the text.
            fork.workspace.sync()?;
            // With `Beside` the buffer ends, and the editor hears of that instead.
            let sends_event = unfit == UnfitPolicy::LeftOut;
            let filed =
                daemon
                    .buffers
                    .filed(&daemon.store, key, &record, &outcome.fits, sends_event)?;
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
        } else if is_written {
            self.texts.brought.push(path.into());
        }
        Ok(())
    }

    /// Restores files and buffers.
    ///
    /// If that fails, the agent's text stays in the file, where it is not lost.
    fn roll_back(self) {
        let guard = self.guard;
        if let Err(failure) = self.try_roll_back() {
            let what = failure.context("what an agent wrote stays in the files");
            log::error!("{}: {what}", guard.name());
        }
    }

    fn try_roll_back(self) -> Result<(), Failure> {
        // The store's records first: a daemon killed in between must find the text in one of the
        // two.
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
        for path in self.written.iter().rev() {
            fork.workspace.take_back(by, Direction::Undo, Some(path))?;
            pause::at("text-taken-back");
        }
        Ok(fork.workspace.sync()?)
    }
}
