//! The answers to the threads that replay changes ([`super::replayer`]): they see names as they
//! were, and each of their calls is acknowledged as done and never carried out.
//!
//! ```text
//! LOOKUP of a name whose step is still to be taken ─► the node that was there, or ENOENT     not to be remembered
//! UNLINK, RMDIR, RENAME, MKNOD, MKDIR, SYMLINK     ─► done, if the view is as the step says
//! SETATTR                                          ─► the attributes as they are
//! anything else that would change something        ─► refused
//! ```
//!
//! The kernel names the thread in each request. A name is seen as it is once its step is taken.
//! Threads that replay one change together never take steps in the same directory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::errno::Errno;
use tine_attr::{Attr, FileKind, Ino};
use tine_path::EntryName;
use tine_workspace::{Caller, FsError, NameOutcome, NamePlace, ViewStep, Workspace};

/// What the replaying thread finds at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// What everybody finds.
    AsItIs,
    Nothing,
    Node(Attr),
}

/// What a call says to have done. Names are in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act<'a> {
    Remove(Ino, &'a [u8]),
    Make(Ino, &'a [u8]),
    Rename((Ino, &'a [u8]), (Ino, &'a [u8])),
    SetAttributes(Ino),
}

/// Why an act is not acknowledged.
#[derive(Debug)]
pub(super) enum Unacknowledged {
    Fs(FsError),
    Errno(Errno),
}

impl From<FsError> for Unacknowledged {
    fn from(error: FsError) -> Unacknowledged {
        Unacknowledged::Fs(error)
    }
}

/// How many threads replay one change at most.
pub(super) const REPLAYERS: usize = 2;

/// What a mount knows of the replay that is under way.
#[derive(Default)]
pub(super) struct Replay {
    /// The replaying threads; 0 where there is none. Each is written by that thread alone.
    threads: [AtomicU32; REPLAYERS],
    script: Mutex<Script>,
}

#[derive(Default)]
struct Script {
    /// Names as they were, of steps that are still to be taken.
    names: HashMap<Ino, HashMap<EntryName, Option<Attr>>>,
    /// Nodes that were there.
    nodes: HashMap<Ino, Attr>,
    /// What each thread is about.
    steps: [Option<ViewStep>; REPLAYERS],
    /// A name that is only looked up to find out whether the kernel names the thread, and whether
    /// it did.
    greeting: Option<(Vec<u8>, bool)>,
}

impl Script {
    fn put(&mut self, at: &NamePlace, node: Option<Attr>) {
        let names = self.names.entry(at.dir).or_default();
        names.entry(at.name.clone()).or_insert(node);
        self.nodes.extend(node.map(|node| (node.ino, node)));
    }

    /// The name has lost its node.
    fn leave(&mut self, at: &NamePlace, then: NameOutcome) {
        match then {
            NameOutcome::Nowhere => self.set(at, None),
            // The new node is not seen before its step.
            NameOutcome::WithItsDirectory | NameOutcome::To(_) => self.set(at, Some(None)),
        }
    }

    fn set(&mut self, at: &NamePlace, node: Option<Option<Attr>>) {
        let names = self.names.entry(at.dir).or_default();
        match node {
            Some(node) => names.insert(at.name.clone(), node),
            None => names.remove(&at.name),
        };
    }
}

/// Whether a name whose node was removed or moved leads to what the step expects, or to nothing.
fn leads(then: NameOutcome, now: Option<Ino>) -> bool {
    match (then, now) {
        (NameOutcome::WithItsDirectory, _) | (_, None) => true,
        (NameOutcome::To(then), Some(now)) => now == then,
        (NameOutcome::Nowhere, Some(_)) => false,
    }
}

/// A replay that is under way. Dropped by the thread that began it, which is then one like others.
pub(super) struct Begun<'a>(&'a Replay);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        for thread in &self.0.threads {
            thread.store(0, Ordering::Release);
        }
        *self.0.script.lock() = Script::default();
    }
}

/// A thread that helps with a replay until this is dropped.
pub(super) struct Helping<'a>(&'a AtomicU32);

impl Drop for Helping<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Replay {
    /// Begins, on the thread that replays.
    pub(super) fn begin(&self, thread: u32, steps: &[ViewStep], greeting: &[u8]) -> Begun<'_> {
        let mut script = Script {
            greeting: Some((greeting.to_vec(), false)),
            ..Script::default()
        };
        for step in steps {
            match step {
                ViewStep::Remove { at, node, .. } => script.put(at, Some(*node)),
                ViewStep::Make { at, .. } => script.put(at, None),
                ViewStep::Move {
                    from,
                    to,
                    node,
                    replaced,
                    ..
                } => {
                    script.put(from, Some(*node));
                    script.put(to, *replaced);
                }
                ViewStep::Write { .. } | ViewStep::SetMode { .. } => {}
            }
        }
        *self.script.lock() = script;
        let [first, ..] = &self.threads;
        first.store(thread, Ordering::Release);
        Begun(self)
    }

    /// Joins a replay that another thread began, as its thread number `worker`, on the thread that
    /// joins.
    pub(super) fn help(&self, thread: u32, worker: usize) -> Option<Helping<'_>> {
        let place = self.threads.get(worker)?;
        place.store(thread, Ordering::Release);
        Some(Helping(place))
    }

    /// Whether the greeting came from the replaying thread.
    pub(super) fn was_greeted(&self) -> bool {
        let script = self.script.lock();
        script.greeting.as_ref().is_some_and(|(_, came)| *came)
    }

    /// The step that the thread takes from now on.
    pub(super) fn take(&self, worker: usize, step: &ViewStep) {
        if let Some(place) = self.script.lock().steps.get_mut(worker) {
            *place = Some(step.clone());
        }
    }

    /// The node of a directory that a step removes.
    pub(super) fn removed_dir(&self) -> Option<Ino> {
        let script = self.script.lock();
        script.steps.iter().flatten().find_map(|step| match step {
            ViewStep::Remove { node, .. } if node.kind == FileKind::Directory => Some(node.ino),
            _ => None,
        })
    }

    /// Which of the replaying threads the caller is.
    pub(super) fn replayed_by(&self, caller: Caller) -> Option<usize> {
        let is_caller = |thread: &AtomicU32| match thread.load(Ordering::Acquire) {
            0 => false,
            thread => thread == caller.thread,
        };
        self.threads.iter().position(is_caller)
    }

    /// What the name led to. Counts one lookup of a node.
    pub(super) fn lookup(&self, workspace: &Workspace, parent: Ino, name: &[u8]) -> Former {
        let mut script = self.script.lock();
        if let Some((greeting, came)) = &mut script.greeting
            && parent == Ino::ROOT
            && greeting == name
        {
            *came = true;
            return Former::Nothing;
        }
        let former = script.names.get(&parent).and_then(|names| names.get(name));
        match former {
            None => Former::AsItIs,
            Some(None) => Former::Nothing,
            Some(Some(node)) => {
                workspace.remember_former(node.ino);
                Former::Node(*node)
            }
        }
    }

    /// The attributes of a node that was there.
    pub(super) fn former_node(&self, ino: Ino) -> Option<Attr> {
        self.script.lock().nodes.get(&ino).copied()
    }

    /// Acknowledges an act, if it is what the step says, and the view is as it says.
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
                    // The directory is something else by now.
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
