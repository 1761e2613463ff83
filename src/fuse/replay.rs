//! Answers to the threads that replay changes ([`super::replayer`]).
//!
//! These threads see names as they were before the change. Their calls are acknowledged and never
//! carried out:
//!
//! ```text
//! LOOKUP of a name whose step is pending        ─► the former node or ENOENT, not to be cached
//! UNLINK, RMDIR, RENAME, MKNOD, MKDIR, SYMLINK  ─► success, if the view is as the step says
//! SETATTR                                       ─► the attributes as they are
//! any other request to change something         ─► refused
//! ```
//!
//! The kernel names the thread in each request. Once a step is taken, its names are seen as they
//! are now. Two threads that replay one change never take steps in the same directory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::errno::Errno;
use tine_attr::{Attr, FileKind, Ino};
use tine_path::EntryName;
use tine_workspace::{Caller, FsError, NameOutcome, NamePlace, ViewStep, Workspace};

/// Result of a replaying thread's lookup of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// The name has no pending step: the current node.
    Current,
    /// Nothing was there.
    Nothing,
    /// This node was there.
    Node(Attr),
}

/// Change that a system call of a replaying thread requests.
///
/// A name is given with its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act<'a> {
    /// Removal of a name.
    Remove(Ino, &'a [u8]),
    /// Creation of a name.
    Make(Ino, &'a [u8]),
    /// Move of a name to another.
    Rename((Ino, &'a [u8]), (Ino, &'a [u8])),
    /// Change of a node's attributes.
    SetAttributes(Ino),
}

/// Reason why a request is not acknowledged.
#[derive(Debug)]
pub(super) enum Unacknowledged {
    /// The workspace failed.
    Fs(FsError),
    /// The request does not match the step or the view.
    Errno(Errno),
}

impl From<FsError> for Unacknowledged {
    fn from(error: FsError) -> Unacknowledged {
        Unacknowledged::Fs(error)
    }
}

/// Largest number of threads that replay one change.
pub(super) const REPLAYERS: usize = 2;

/// State of the replay of a mount, if one is running.
#[derive(Default)]
pub(super) struct Replay {
    /// IDs of the replaying threads, or 0. Each thread writes only its own.
    threads: [AtomicU32; REPLAYERS],
    /// Steps of the change, protected by the lock.
    script: Mutex<Script>,
}

/// Steps of a change that is replayed.
#[derive(Default)]
struct Script {
    /// Former nodes of names with pending steps, by directory.
    names: HashMap<Ino, HashMap<EntryName, Option<Attr>>>,
    /// All former nodes, by inode number.
    nodes: HashMap<Ino, Attr>,
    /// Current step of each thread.
    steps: [Option<ViewStep>; REPLAYERS],
    /// Test name, and whether the replaying thread has looked it up.
    ///
    /// It shows whether the kernel names the thread in requests.
    test_name: Option<(Vec<u8>, bool)>,
}

impl Script {
    /// Adds a name that had `node` before the change.
    fn add(&mut self, at: &NamePlace, node: Option<Attr>) {
        let names = self.names.entry(at.dir).or_default();
        names.entry(at.name.clone()).or_insert(node);
        self.nodes.extend(node.map(|node| (node.ino, node)));
    }

    /// Updates a name whose node was removed or moved away.
    fn leave(&mut self, at: &NamePlace, then: NameOutcome) {
        match then {
            NameOutcome::Nowhere => self.set(at, None),
            // The new node is visible only after its own step.
            NameOutcome::WithItsDirectory | NameOutcome::To(_) => self.set(at, Some(None)),
        }
    }

    /// Replaces the former node of a name; `None` makes it current.
    fn set(&mut self, at: &NamePlace, node: Option<Option<Attr>>) {
        let names = self.names.entry(at.dir).or_default();
        match node {
            Some(node) => names.insert(at.name.clone(), node),
            None => names.remove(&at.name),
        };
    }
}

/// Returns whether a vacated name is as the step expects.
///
/// It may also be missing, or have gone with its directory.
fn leads(then: NameOutcome, now: Option<Ino>) -> bool {
    match (then, now) {
        (NameOutcome::WithItsDirectory, _) | (_, None) => true,
        (NameOutcome::To(then), Some(now)) => now == then,
        (NameOutcome::Nowhere, Some(_)) => false,
    }
}

/// Running replay, dropped by the thread that began it.
///
/// Dropping it ends the replay, and the thread is like any other.
pub(super) struct RunningReplay<'a>(&'a Replay);

impl Drop for RunningReplay<'_> {
    fn drop(&mut self) {
        for thread in &self.0.threads {
            thread.store(0, Ordering::Release);
        }
        *self.0.script.lock() = Script::default();
    }
}

/// Participation of a second thread in a replay, until dropped.
pub(super) struct Participant<'a>(&'a AtomicU32);

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Replay {
    /// Starts a replay on the calling thread, whose ID is `thread`.
    pub(super) fn begin(
        &self,
        thread: u32,
        steps: &[ViewStep],
        test_name: &[u8],
    ) -> RunningReplay<'_> {
        let mut script = Script {
            test_name: Some((test_name.to_vec(), false)),
            ..Script::default()
        };
        for step in steps {
            match step {
                ViewStep::Remove { at, node, .. } => script.add(at, Some(*node)),
                ViewStep::Make { at, .. } => script.add(at, None),
                ViewStep::Move {
                    from,
                    to,
                    node,
                    replaced,
                    ..
                } => {
                    script.add(from, Some(*node));
                    script.add(to, *replaced);
                }
                ViewStep::Write { .. } | ViewStep::SetMode { .. } => {}
            }
        }
        *self.script.lock() = script;
        let [first, ..] = &self.threads;
        first.store(thread, Ordering::Release);
        RunningReplay(self)
    }

    /// Joins a running replay as thread number `worker`.
    ///
    /// `thread` is the ID of the calling thread. `None` if there are too many threads.
    pub(super) fn join(&self, thread: u32, worker: usize) -> Option<Participant<'_>> {
        let place = self.threads.get(worker)?;
        place.store(thread, Ordering::Release);
        Some(Participant(place))
    }

    /// Returns whether the replaying thread has looked up the test name.
    pub(super) fn has_test_lookup(&self) -> bool {
        let script = self.script.lock();
        script.test_name.as_ref().is_some_and(|(_, came)| *came)
    }

    /// Sets the current step of a thread.
    pub(super) fn take(&self, worker: usize, step: &ViewStep) {
        if let Some(place) = self.script.lock().steps.get_mut(worker) {
            *place = Some(step.clone());
        }
    }

    /// Returns the directory that a current step removes, if any.
    pub(super) fn removed_dir(&self) -> Option<Ino> {
        let script = self.script.lock();
        script.steps.iter().flatten().find_map(|step| match step {
            ViewStep::Remove { node, .. } if node.kind == FileKind::Directory => Some(node.ino),
            _ => None,
        })
    }

    /// Returns the caller's number among the replaying threads, if any.
    pub(super) fn replayed_by(&self, caller: Caller) -> Option<usize> {
        let is_caller = |thread: &AtomicU32| match thread.load(Ordering::Acquire) {
            0 => false,
            thread => thread == caller.thread,
        };
        self.threads.iter().position(is_caller)
    }

    /// Returns the former node of a name, counting one lookup.
    pub(super) fn lookup(&self, workspace: &Workspace, parent: Ino, name: &[u8]) -> Former {
        let mut script = self.script.lock();
        if let Some((test_name, came)) = &mut script.test_name
            && parent == Ino::ROOT
            && test_name == name
        {
            *came = true;
            return Former::Nothing;
        }
        let former = script.names.get(&parent).and_then(|names| names.get(name));
        match former {
            None => Former::Current,
            Some(None) => Former::Nothing,
            Some(Some(node)) => {
                workspace.remember_former(node.ino);
                Former::Node(*node)
            }
        }
    }

    /// Returns the attributes of a former node.
    pub(super) fn former_node(&self, ino: Ino) -> Option<Attr> {
        self.script.lock().nodes.get(&ino).copied()
    }

    /// Acknowledges a request, if it matches the thread's step and the view.
    pub(super) fn acknowledge(
        &self,
        workspace: &Workspace,
        worker: usize,
        act: Act<'_>,
    ) -> Result<(), Unacknowledged> {
        let mut script = self.script.lock();
        let step = script.steps.get(worker).cloned().flatten();
        let is_at =
            |at: &NamePlace, dir: Ino, name: &[u8]| at.dir == dir && at.name.as_bytes() == name;
        match (act, step) {
            (Act::Remove(dir, name), Some(ViewStep::Remove { at, then, .. }))
                if is_at(&at, dir, name) =>
            {
                let now = match workspace.number_at(dir, name) {
                    // The directory has been replaced by another file.
                    Err(FsError::NotADirectory) => None,
                    now => now?,
                };
                if !leads(then, now) {
                    return Err(Unacknowledged::Errno(Errno::EPERM));
                }
                script.leave(&at, then);
                Ok(())
            }
            (Act::Make(dir, name), Some(ViewStep::Make { at, node })) if is_at(&at, dir, name) => {
                if workspace.number_at(dir, name)? != Some(node.ino) {
                    return Err(Unacknowledged::Errno(Errno::EPERM));
                }
                script.set(&at, None);
                Ok(())
            }
            (
                Act::Rename((dir, name), (new_dir, new_name)),
                Some(ViewStep::Move {
                    from,
                    to,
                    node,
                    then,
                    ..
                }),
            ) if is_at(&from, dir, name) && is_at(&to, new_dir, new_name) => {
                if workspace.number_at(new_dir, new_name)? != Some(node.ino)
                    || !leads(then, workspace.number_at(dir, name)?)
                {
                    return Err(Unacknowledged::Errno(Errno::EPERM));
                }
                script.leave(&from, then);
                script.set(&to, None);
                Ok(())
            }
            (
                Act::SetAttributes(ino),
                Some(ViewStep::Write { ino: meant, .. } | ViewStep::SetMode { ino: meant, .. }),
            ) if ino == meant => Ok(()),
            (Act::SetAttributes(ino), Some(ViewStep::Make { node, .. })) if ino == node.ino => {
                Ok(())
            }
            _ => Err(Unacknowledged::Errno(Errno::EPERM)),
        }
    }
}
