//! Replays changes in the mount, so that programs that watch files are told of them as of a
//! program's: the kernel raises inotify events for calls that succeed, and none for invalidations.
//!
//! ```text
//! the view has changed ─► contents and attributes invalidated ─► a thread makes each step's calls in the mount
//!                                        (two, each in other directories, where there are many steps in several)
//!     ─► the server acknowledges them as done (`replay`) ─► names whose steps could not be taken invalidated ─► the command returns
//! ```
//!
//! A thread lives for one change, holds no lock, and shares no table of descriptors with the
//! daemon: one that waits for the mount of a daemon that is killed must not keep the connection
//! alive. It acts below the root of that very mount only, whatever others do to names meanwhile.
//! Who waits for it gives up when no call has ended for a while; no change fails because of it.

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

/// How long one call may take.
const STALL: Duration = Duration::from_secs(2);
/// How long all of them may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many steps are taken without asking whether anybody watches, which costs a look at each
/// process.
const UNASKED: usize = 256;

/// A name in a directory.
type Name = (Ino, EntryName);

/// What replays the changes of one mount.
pub(super) struct Replayer {
    replay: Arc<Replay>,
    place: MountedAt,
    /// Whether no program that may use the mount is hidden from this process.
    sees_all_watchers: bool,
    /// Whether names are invalidated even so: they lead elsewhere for some.
    shows_texts: bool,
    invalidate: Invalidate,
    /// One change at a time.
    turn: Mutex<()>,
    /// Whether a thread has not come back.
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
            turn: Mutex::new(()),
            stuck: Arc::default(),
        }
    }

    /// What the workspace calls.
    pub(super) fn listener(self) -> AnnouncementListener {
        Arc::new(move |announcement| self.announce(announcement))
    }

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
        // Who is told reads at once.
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

    /// The names that the kernel knows to lead where they lead now.
    fn replay(&self, mut steps: Vec<ViewStep>) -> HashSet<Name> {
        let begun = Instant::now();
        let all = steps.clone();
        let all_count = all.len();
        if steps.len() > UNASKED
            && self.sees_all_watchers
            && let Watched::Inodes(inodes) = watched_on(self.place.device)
        {
            steps.retain(|step| is_watched(step, &inodes));
        }
        let (asked, count) = (begun.elapsed(), steps.len());
        if steps.is_empty() || self.stuck.load(Ordering::Acquire) {
            return HashSet::new();
        }
        let Some(_turn) = self.turn.try_lock_for(STALL) else {
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
                // Nothing may be logged here: the standard streams are all that this thread shares.
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
                            // It came back just now.
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

/// What the thread needs.
struct Work {
    replay: Arc<Replay>,
    place: MountedAt,
    invalidate: Invalidate,
    progress: Arc<AtomicU64>,
    given_up: Arc<AtomicBool>,
}

impl Work {
    /// Takes `steps`, which are some of `all`.
    fn run(&self, all: &[ViewStep], steps: &[ViewStep]) -> io::Result<HashSet<Name>> {
        leave_descriptors()?;
        let root = beneath::open_top(&self.place.dir)?;
        if calls::device(&root)? != self.place.device {
            return Err(io::ErrorKind::NotFound.into());
        }
        let greeting = format!(".tine-replay-{:016x}", RandomState::new().hash_one(0));
        let _begun = self
            .replay
            .begin(calls::thread_number(), all, greeting.as_bytes());
        // It is not there: what counts is who is seen to ask.
        let _ = beneath::open(&root, Path::new(&greeting), Access::Look);
        match self.replay.was_greeted() {
            true => Ok(self.take_each(root, steps)),
            false => Err(io::Error::other("the kernel does not name the thread")),
        }
    }

    fn take_each(&self, root: File, steps: &[ViewStep]) -> HashSet<Name> {
        let mut first = Worker::new(self, 0, root);
        for together in steps.chunk_by(|a, b| is_in_one_directory(a) == is_in_one_directory(b)) {
            match together.first() {
                Some(step) if is_in_one_directory(step) && together.len() > UNASKED => {
                    self.take_with_help(&mut first, together);
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

    /// Takes steps of which those in one directory have nothing to do with those in others, with
    /// another thread where there is one to be had.
    fn take_with_help(&self, first: &mut Worker<'_>, steps: &[ViewStep]) {
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
            let help = || {
                let mut second = Worker::new(self, 1, root.ok()?);
                let _helping = self.replay.help(calls::thread_number(), second.number)?;
                while let Some(steps) = next() {
                    second.take_all(steps);
                }
                Some((second.taken, second.failed))
            };
            let builder = thread::Builder::new().name("tine-replay".into());
            let helper = builder.spawn_scoped(scope, help);
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

/// A thread that takes steps, one after the other.
struct Worker<'a> {
    work: &'a Work,
    /// Among those that replay the change.
    number: usize,
    dirs: OpenDirs,
    /// Names of which a step was taken, and of which one failed.
    taken: HashSet<Name>,
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

    fn take_all<'s>(&mut self, steps: impl IntoIterator<Item = &'s ViewStep>) {
        for step in steps {
            if self.work.given_up.load(Ordering::Acquire) {
                break;
            }
            self.take(step);
            self.work.progress.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&mut self, step: &ViewStep) {
        self.work.replay.take(self.number, step);
        let names = names_of(step);
        let mut done = take(&mut self.dirs, step);
        if done.as_ref().is_err_and(is_of_a_stale_name) {
            // The kernel knows the name as it is now.
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

/// The directory in which the step is taken; of a move, from which it goes.
fn dir_of(step: &ViewStep) -> Ino {
    match step {
        ViewStep::Remove { at, .. }
        | ViewStep::Make { at, .. }
        | ViewStep::Write { at, .. }
        | ViewStep::SetMode { at, .. }
        | ViewStep::Move { from: at, .. } => at.dir,
    }
}

/// Whether the step is about one name in one directory, and no directory comes or goes by it.
fn is_in_one_directory(step: &ViewStep) -> bool {
    match step {
        ViewStep::Remove { node, .. } | ViewStep::Make { node, .. } => {
            node.kind != FileKind::Directory
        }
        ViewStep::Write { .. } | ViewStep::SetMode { .. } => true,
        ViewStep::Move { .. } => false,
    }
}

fn is_of_a_stale_name(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOENT | libc::EEXIST | libc::ENOTDIR | libc::EISDIR | libc::ESTALE | libc::ELOOP
        )
    )
}

/// The names that the step is about.
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

/// The root of the mount, and the directory that was used last.
struct OpenDirs {
    root: File,
    last: Option<(RepoPath, File)>,
}

impl OpenDirs {
    fn open(&mut self, path: &RepoPath) -> io::Result<&File> {
        if path.is_root() {
            self.last = None;
            return Ok(&self.root);
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            // A directory that is open is not seen to go.
            self.last = None;
            self.last = Some((path.clone(), self.open_new(path)?));
        }
        match &self.last {
            Some((_, dir)) => Ok(dir),
            None => Ok(&self.root),
        }
    }

    fn open_new(&self, path: &RepoPath) -> io::Result<File> {
        beneath::open(&self.root, path.as_path(), Access::Look)
    }
}

/// Makes the calls that a program would.
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
            let source = match from.dir_path.is_root() {
                true => dirs.root.try_clone()?,
                false => dirs.open_new(&from.dir_path)?,
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
                // A file that may not be written to, or a program that runs.
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
