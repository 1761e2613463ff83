//! Replay of changes in the mount, for programs that watch files.
//!
//! The kernel raises inotify events for calls that succeed, but not for invalidations. So each step
//! of a change is repeated as a system call in the mount:
//!
//! ```text
//! the view has changed ─► contents and attributes are invalidated
//!     ─► a thread makes the calls of each step in the mount
//!        (two threads in different directories, if there are many steps)
//!     ─► the server acknowledges them without carrying them out (`replay`)
//!     ─► names whose steps failed are invalidated ─► the command returns
//! ```
//!
//! A thread lives for one change, holds no lock, and does not share the daemon's descriptor table.
//! If a daemon is killed, a thread that waits for its mount must not keep the connection alive. A
//! thread only acts below the root of that very mount, even if other processes change names
//! meanwhile. The command stops waiting if no call has ended for a while. A failed replay never
//! fails the change.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use log::{debug, warn};
use parking_lot::Mutex;

use super::notifier::{self, Invalidate};
use super::place::MountedAt;
use super::replay::Replay;
use super::watchers::{Watched, watched_on};
use tine_attr::{FileKind, Ino};
use tine_path::{EntryName, RepoPath};
use tine_sys::beneath::{self, Access};
use tine_sys::calls_beneath::{self as calls, NewName};
use tine_sys::process::leave_descriptors;
use tine_workspace::{Announcement, AnnouncementListener, Invalidation, NamePlace, ViewStep};

/// Time without progress after which a replay is abandoned.
const STALL: Duration = Duration::from_secs(2);
/// Time for a whole replay.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of steps that are replayed without checking for watchers.
///
/// The check reads the descriptors of all processes.
const MAX_UNCHECKED: usize = 256;

/// Name in a directory.
type Name = (Ino, EntryName);

/// Replays the changes of one mount.
pub(super) struct Replayer {
    /// Server side of the replay.
    replay: Arc<Replay>,
    /// Mount to replay in.
    place: MountedAt,
    /// True if this process can examine all users of the mount.
    sees_all_watchers: bool,
    /// True if all names are invalidated, even those that were replayed.
    ///
    /// On a mount that shows unsaved text, names resolve differently for some programs.
    shows_texts: bool,
    /// Sends invalidations.
    invalidate: Invalidate,
    /// Lock for one replay at a time.
    running: Mutex<()>,
    /// True while an abandoned thread has not ended.
    stuck: Arc<AtomicBool>,
}

impl Replayer {
    pub(super) fn new(
        replay: Arc<Replay>,
        place: MountedAt,
        (sees_all_watchers, shows_texts): (bool, bool),
        invalidate: Invalidate,
    ) -> Replayer {
        Replayer {
            replay,
            place,
            sees_all_watchers,
            shows_texts,
            invalidate,
            running: Mutex::new(()),
            stuck: Arc::default(),
        }
    }

    /// Returns the listener for the workspace's announcements.
    pub(super) fn listener(self) -> AnnouncementListener {
        Arc::new(move |announcement| self.announce(announcement))
    }

    /// Invalidates and replays a change, and waits for both.
    fn announce(&self, announcement: Announcement) {
        let Announcement {
            invalidations,
            steps,
        } = announcement;
        if steps.is_empty() || notifier::is_in_handler() {
            return (self.invalidate)(invalidations);
        }
        let is_name =
            |invalidation: &Invalidation| matches!(invalidation, Invalidation::Entry { .. });
        let (mut names, others): (Vec<_>, Vec<_>) = invalidations.into_iter().partition(is_name);
        // Programs read contents as soon as they get an event.
        (self.invalidate)(others);
        let replayed = self.replay(steps);
        names.retain(|invalidation| match invalidation {
            Invalidation::Entry { parent, name } => {
                self.shows_texts || !replayed.contains(&(*parent, name.clone()))
            }
            Invalidation::Node(_) | Invalidation::Attributes(_) => true,
        });
        if !names.is_empty() {
            (self.invalidate)(names);
        }
    }

    /// Replays steps, and returns the names that the kernel now knows correctly.
    fn replay(&self, mut steps: Vec<ViewStep>) -> HashSet<Name> {
        let begun = Instant::now();
        let all = steps.clone();
        let all_count = all.len();
        if steps.len() > MAX_UNCHECKED
            && self.sees_all_watchers
            && let Watched::Inodes(inodes) = watched_on(self.place.device)
        {
            steps.retain(|step| is_watched(step, &inodes));
        }
        let (asked, count) = (begun.elapsed(), steps.len());
        if steps.is_empty() || self.stuck.load(Ordering::Acquire) {
            return HashSet::new();
        }
        let Some(_running) = self.running.try_lock_for(STALL) else {
            return HashSet::new();
        };
        let (done, wait) = sync_channel(1);
        let progress = Arc::new(AtomicU64::new(0));
        let given_up = Arc::new(AtomicBool::new(false));
        let work = Work {
            replay: self.replay.clone(),
            place: self.place.clone(),
            invalidate: self.invalidate.clone(),
            progress: progress.clone(),
            given_up: given_up.clone(),
        };
        let stuck = self.stuck.clone();
        let spawned = thread::Builder::new()
            .name("tine-replay".into())
            .spawn(move || {
                let outcome = work.run(&all, &steps);
                // This thread must not log: of the daemon's descriptors it has only the standard
                // streams.
                let _ = done.send(outcome);
                stuck.store(false, Ordering::Release);
            });
        if let Err(error) = spawned {
            warn!(
                "no thread replays changes at {}: {error}",
                self.place.dir.display()
            );
            return HashSet::new();
        }
        let mut seen = 0;
        loop {
            match wait.recv_timeout(STALL) {
                Ok(Ok(names)) => {
                    let (of, took) = (all_count, begun.elapsed());
                    debug!(
                        "{count} of {of} steps replayed in {took:?}, {asked:?} of that to ask who watches"
                    );
                    return names;
                }
                Ok(Err(error)) => {
                    debug!(
                        "a change at {} is not replayed: {error}",
                        self.place.dir.display()
                    );
                    return HashSet::new();
                }
                Err(RecvTimeoutError::Disconnected) => return HashSet::new(),
                Err(RecvTimeoutError::Timeout) => {
                    let now = progress.load(Ordering::Relaxed);
                    if now == seen || begun.elapsed() > PATIENCE {
                        self.stuck.store(true, Ordering::Release);
                        given_up.store(true, Ordering::Release);
                        if wait.try_recv().is_ok() {
                            // It ended just now.
                            self.stuck.store(false, Ordering::Release);
                        }
                        warn!(
                            "programs that watch {} are not told of a change: a call there takes too long",
                            self.place.dir.display()
                        );
                        return HashSet::new();
                    }
                    seen = now;
                }
            }
        }
    }
}

/// Returns whether a step concerns a watched inode.
fn is_watched(step: &ViewStep, inodes: &HashSet<u64>) -> bool {
    let has = |ino: Ino| inodes.contains(&ino.0);
    match step {
        ViewStep::Remove { at, node, .. } => has(at.dir) || has(node.ino),
        ViewStep::Make { at, .. } => has(at.dir),
        ViewStep::Move {
            from,
            to,
            node,
            replaced,
            ..
        } => {
            has(from.dir)
                || has(to.dir)
                || has(node.ino)
                || replaced.is_some_and(|node| has(node.ino))
        }
        ViewStep::Write { at, ino } | ViewStep::SetMode { at, ino, .. } => has(at.dir) || has(*ino),
    }
}

/// Data for the replaying threads.
struct Work {
    /// Server side of the replay.
    replay: Arc<Replay>,
    /// Mount to replay in.
    place: MountedAt,
    /// Sends invalidations.
    invalidate: Invalidate,
    /// Number of steps taken, also failed ones.
    progress: Arc<AtomicU64>,
    /// Set when the command stops waiting; no further step is taken then.
    given_up: Arc<AtomicBool>,
}

impl Work {
    /// Takes `steps`, a subset of `all`.
    ///
    /// # Errors
    /// An error if the mount is gone, or the kernel does not name threads in requests.
    fn run(&self, all: &[ViewStep], steps: &[ViewStep]) -> io::Result<HashSet<Name>> {
        leave_descriptors()?;
        let root = beneath::open_top(&self.place.dir)?;
        if calls::device(&root)? != self.place.device {
            return Err(io::ErrorKind::NotFound.into());
        }
        let test_name = format!(".tine-replay-{:016x}", RandomState::new().hash_one(0));
        let _begun = self
            .replay
            .begin(calls::thread_number(), all, test_name.as_bytes());
        // The name does not exist. The lookup shows whether the server sees this thread's ID.
        let _ = beneath::open(&root, Path::new(&test_name), Access::Attributes);
        if self.replay.has_test_lookup() {
            Ok(self.take_each(root, steps))
        } else {
            Err(io::Error::other("the kernel does not name the thread"))
        }
    }

    /// Takes all steps, and returns the names of those that succeeded.
    fn take_each(&self, root: File, steps: &[ViewStep]) -> HashSet<Name> {
        let mut first = Worker::new(self, 0, root);
        for together in steps.chunk_by(|a, b| is_in_one_directory(a) == is_in_one_directory(b)) {
            match together.first() {
                Some(step) if is_in_one_directory(step) && together.len() > MAX_UNCHECKED => {
                    self.take_on_two_threads(&mut first, together);
                }
                _ => first.take_all(together),
            }
        }
        let Worker {
            mut taken, failed, ..
        } = first;
        taken.retain(|name| !failed.contains(name));
        taken
    }

    /// Takes steps on two threads, if a second one can be started.
    ///
    /// Steps in different directories are independent of each other.
    fn take_on_two_threads(&self, first: &mut Worker<'_>, steps: &[ViewStep]) {
        let mut by_dir: HashMap<Ino, Vec<&ViewStep>> = HashMap::new();
        for step in steps {
            by_dir.entry(dir_of(step)).or_default().push(step);
        }
        if by_dir.len() < 2 {
            return first.take_all(steps);
        }
        let rest = Mutex::new(by_dir.into_values());
        let next = || rest.lock().next();
        let root = first.dirs.root.try_clone();
        thread::scope(|scope| {
            let take_rest = || {
                let mut second = Worker::new(self, 1, root.ok()?);
                let _participant = self.replay.join(calls::thread_number(), second.number)?;
                while let Some(steps) = next() {
                    second.take_all(steps);
                }
                Some((second.taken, second.failed))
            };
            let builder = thread::Builder::new().name("tine-replay".into());
            let helper = builder.spawn_scoped(scope, take_rest);
            while let Some(steps) = next() {
                first.take_all(steps);
            }
            if let Some((taken, failed)) =
                helper.ok().and_then(|helper| helper.join().ok().flatten())
            {
                first.taken.extend(taken);
                first.failed.extend(failed);
            }
        });
    }
}

/// State of a thread that takes steps in sequence.
struct Worker<'a> {
    /// Shared data.
    work: &'a Work,
    /// Number of this thread in the replay.
    number: usize,
    /// Open directories of the mount.
    dirs: OpenDirs,
    /// Names whose steps succeeded.
    taken: HashSet<Name>,
    /// Names of which a step failed.
    failed: HashSet<Name>,
}

impl Worker<'_> {
    fn new(work: &Work, number: usize, root: File) -> Worker<'_> {
        Worker {
            work,
            number,
            dirs: OpenDirs { root, last: None },
            taken: HashSet::new(),
            failed: HashSet::new(),
        }
    }

    /// Takes steps until the command stops waiting.
    fn take_all<'s>(&mut self, steps: impl IntoIterator<Item = &'s ViewStep>) {
        for step in steps {
            if self.work.given_up.load(Ordering::Acquire) {
                break;
            }
            self.take(step);
            self.work.progress.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes one step, and repeats it after an invalidation if necessary.
    fn take(&mut self, step: &ViewStep) {
        self.work.replay.take(self.number, step);
        let names = names_of(step);
        let mut done = take(&mut self.dirs, step);
        if done.as_ref().is_err_and(may_be_stale_name) {
            // The kernel has the name as it is now in its cache.
            self.dirs.last = None;
            let stale = names.iter().map(|(parent, name)| Invalidation::Entry {
                parent: *parent,
                name: name.clone(),
            });
            (self.work.invalidate)(stale.collect());
            done = take(&mut self.dirs, step);
        }
        match done {
            Ok(()) => self.taken.extend(names),
            Err(_) => self.failed.extend(names),
        }
    }
}

/// Returns the directory of a step; of a move, the source directory.
fn dir_of(step: &ViewStep) -> Ino {
    match step {
        ViewStep::Remove { at, .. }
        | ViewStep::Make { at, .. }
        | ViewStep::Write { at, .. }
        | ViewStep::SetMode { at, .. }
        | ViewStep::Move { from: at, .. } => at.dir,
    }
}

/// Returns whether a step only concerns one name of a non-directory.
fn is_in_one_directory(step: &ViewStep) -> bool {
    match step {
        ViewStep::Remove { node, .. } | ViewStep::Make { node, .. } => {
            node.kind != FileKind::Directory
        }
        ViewStep::Write { .. } | ViewStep::SetMode { .. } => true,
        ViewStep::Move { .. } => false,
    }
}

/// Returns whether an outdated name in the kernel's cache explains it.
fn may_be_stale_name(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOENT | libc::EEXIST | libc::ENOTDIR | libc::EISDIR | libc::ESTALE | libc::ELOOP
        )
    )
}

/// Returns the names that a step concerns.
fn names_of(step: &ViewStep) -> Vec<Name> {
    let name = |at: &NamePlace| (at.dir, at.name.clone());
    match step {
        ViewStep::Remove { at, .. }
        | ViewStep::Make { at, .. }
        | ViewStep::Write { at, .. }
        | ViewStep::SetMode { at, .. } => vec![name(at)],
        ViewStep::Move { from, to, .. } => vec![name(from), name(to)],
    }
}

/// Root of the mount, and the directory that was used last.
struct OpenDirs {
    /// Root directory.
    root: File,
    /// Path of the directory that was used last, and its descriptor.
    last: Option<(RepoPath, File)>,
}

impl OpenDirs {
    /// Returns a directory, opening it unless it was used last.
    fn open(&mut self, path: &RepoPath) -> io::Result<&File> {
        if path.is_root() {
            self.last = None;
            return Ok(&self.root);
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            // While a directory is open, watchers do not see its removal.
            self.last = None;
            self.last = Some((path.clone(), self.open_new(path)?));
        }
        match &self.last {
            Some((_, dir)) => Ok(dir),
            None => Ok(&self.root),
        }
    }

    /// Opens a directory below the root.
    fn open_new(&self, path: &RepoPath) -> io::Result<File> {
        beneath::open(&self.root, path.as_path(), Access::Attributes)
    }
}

/// Makes the system calls that a program would make for this step.
fn take(dirs: &mut OpenDirs, step: &ViewStep) -> io::Result<()> {
    match step {
        ViewStep::Remove { at, node, .. } => {
            let is_dir = node.kind == FileKind::Directory;
            calls::remove(dirs.open(&at.dir_path)?, at.name.as_bytes(), is_dir)
        }
        ViewStep::Make { at, node } => {
            let (dir, name) = (dirs.open(&at.dir_path)?, at.name.as_bytes());
            match node.kind {
                FileKind::Directory => calls::make(dir, name, NewName::Directory),
                FileKind::Symlink => calls::make(dir, name, NewName::Symlink),
                FileKind::Regular => {
                    let file = calls::create(dir, name)?;
                    match node.size {
                        0 => Ok(()),
                        size => file.set_len(size),
                    }
                }
                FileKind::Fifo => calls::make(dir, name, NewName::Node(libc::S_IFIFO)),
                FileKind::Socket => calls::make(dir, name, NewName::Node(libc::S_IFSOCK)),
                FileKind::CharDevice => calls::make(dir, name, NewName::Node(libc::S_IFCHR)),
                FileKind::BlockDevice => calls::make(dir, name, NewName::Node(libc::S_IFBLK)),
            }
        }
        ViewStep::Move { from, to, .. } => {
            let source = if from.dir_path.is_root() {
                dirs.root.try_clone()?
            } else {
                dirs.open_new(&from.dir_path)?
            };
            let target = dirs.open(&to.dir_path)?;
            calls::rename(
                (&source, from.name.as_bytes()),
                (target, to.name.as_bytes()),
            )
        }
        ViewStep::Write { at, .. } => {
            let (dir, name) = (dirs.open(&at.dir_path)?, at.name.as_bytes());
            match calls::open_to_write(dir, name) {
                Ok(file) => file.set_len(file.metadata()?.len()),
                // The file may not be written to, or is a running program.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EACCES | libc::EPERM | libc::ETXTBSY)
                    ) =>
                {
                    calls::touch(dir, name)
                }
                Err(error) => Err(error),
            }
        }
        ViewStep::SetMode { at, perm, .. } => {
            calls::set_mode(dirs.open(&at.dir_path)?, at.name.as_bytes(), *perm)
        }
    }
}
