//! Mounting and unmounting, done here and not by `fuser`, whose own teardown can unmount a different file system.
//!
//! ```text
//! start:  directory ─► device mounted ─► INIT ─► session thread ─► first opendir and open ─► ready
//! end:    connection dead ─► fuser's threads end ─► notifier stopped ─► listener taken back ─► `ended`
//! ```
//!
//! The session thread owns everything that must go when the session ends, for whatever reason it does; [`Mount`] only
//! watches it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Config, Filesystem, Session, SessionACL};
use log::{debug, error, warn};
use parking_lot::{Condvar, Mutex};
use thiserror::Error;

use super::adapter::Adapter;
use super::control::Control;
use super::counters::Counters;
use super::device;
use super::negotiate::READ_AHEAD;
use super::notifier::NotifierThread;
use super::operations::Operations;
use super::place::{self, FS_TYPE, MountedAt};
use super::priming::PrimingFile;
use super::ring::{Failed, Rings};
use super::transport::{self, RingWish, Transport, TransportChoice};
use super::users;
use crate::sys::mount::{self as sys, UnmountHow};
use crate::sys::process::{self, effective_gid, effective_uid};
use crate::workspace::{MountSettings, Workspace};

/// Threads that serve one mount.
const THREADS: usize = 2;
/// How long the first requests may take until the mount counts as failed.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How long, and how often, a mount in use is tried again before it counts as busy: git's detached maintenance, which
/// stands in the mount after a commit there, is over by then.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// How long a session may take to end once it is unmounted.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long programs that use a mount may finish what they are at before a forced unmount cuts them off.
const FORCE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a connection may take to end when its daemon was killed.
const DEATH_PATIENCE: Duration = Duration::from_secs(1);
/// How long a mount that may be dead is given to answer.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// How a fork is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    pub dir: PathBuf,
    /// Shown as the mount's source in `/proc/self/mounts` after `tine:`.
    pub name: String,
    /// Where several users may enter, the kernel checks permissions (`default_permissions`).
    pub settings: MountSettings,
    pub transport: TransportChoice,
}

/// Why a mount failed.
#[derive(Debug, Error)]
pub enum MountError {
    #[error("/dev/fuse is missing")]
    NoFuseDevice,
    #[error("/dev/fuse may not be used: {0}")]
    NotPermitted(#[source] io::Error),
    #[error("fusermount3 is missing, which a user other than root needs to mount")]
    NoFusermount,
    #[error(
        "only root can have set-user-id programs or devices work on a mount, or have the kernel read files by itself"
    )]
    OnlyRoot,
    #[error("requests cannot come through io_uring")]
    NoRings(#[source] io::Error),
    #[error("fusermount3 failed: {0}")]
    Fusermount(String),
    #[error("{0} exists and is not an empty directory")]
    NotEmpty(PathBuf),
    #[error("{0} is mounted already")]
    AlreadyMounted(PathBuf),
    #[error("{0} is in use")]
    Busy(PathBuf),
    /// No longer at its directory, and served until the last program lets go of it: nothing here may cut that off.
    #[error("the mount is gone from {0}, but a program still uses it")]
    Detached(PathBuf),
    #[error("{action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl MountError {
    /// Wraps an I/O error: `MountError::io("open", path)` for `map_err`.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> MountError {
        let path = path.into();
        move |source| MountError::Io { action, path, source }
    }
}

/// How hard to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    /// Refused while programs use the mount.
    Clean,
    /// Detached at once; programs that use it get errors.
    Force,
}

/// Called once when a session has ended.
type Ended = Box<dyn FnOnce() + Send>;

/// What the session thread and [`Mount`] share.
struct Shared {
    state: Mutex<State>,
    /// Told when `state.over` becomes true.
    over: Condvar,
}

struct State {
    over: bool,
    /// Set once the mount has started, taken when it is called.
    ended: Option<Ended>,
}

impl Shared {
    /// Whether the session has ended by `patience` from now.
    fn wait_until_over(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        while !state.over {
            if self.over.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.over
    }
}

/// A mounted fork. Dropping it does not unmount.
pub struct Mount {
    /// As `/proc/self/mountinfo` had it when it was made. Valid while the session lives: a connection that lives keeps
    /// its device number from being given to another.
    place: MountedAt,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    transport: Transport,
}

impl Mount {
    /// Mounts `workspace`, with the directory made if it is missing, and serves it from threads of this process. `ended`
    /// is called, from a thread of its own, when the session ends for whatever reason (an `umount` from outside, too).
    /// Returns when the mount is ready to use: the first `open` has been answered.
    ///
    /// When `ended` is called the directory is unmounted, or about to be replaced by an error for whoever looks, and
    /// the workspace's listener is taken back.
    pub fn start(
        workspace: Arc<Workspace>,
        options: &MountOptions,
        ended: Ended,
    ) -> Result<Mount, MountError> {
        let (uid, gid) = (effective_uid(), effective_gid());
        let counters = Arc::new(Counters::new());
        let priming = PrimingFile::new(uid, gid);
        let operations = Operations::new(workspace.clone(), counters.clone(), priming.clone());
        let operations = Arc::new(operations);
        let wish = transport::wish(options, &operations)?;
        let adapter = Adapter::new(
            operations,
            options.settings.profile,
            wish.clone(),
            device::checks_permissions(options, uid),
        );
        serve(
            adapter,
            wish,
            Some(priming),
            Some(workspace),
            counters,
            options,
            ended,
        )
    }

    /// Where it is mounted: absolute, without symlinks.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// How requests come.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// How many requests of each kind the kernel sent so far, by FUSE's names for them.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.read()
    }

    /// Unmounts and waits until the session has ended. Does nothing if it has ended already. Never unmounts anything but
    /// this mount: [`MountError::Busy`] if something else is mounted over it.
    pub fn unmount(&self, mode: UnmountMode) -> Result<(), MountError> {
        if self.shared.wait_until_over(Duration::ZERO) {
            return Ok(());
        }
        match mode {
            UnmountMode::Clean => self.unmount_clean(),
            UnmountMode::Force => self.unmount_force(),
        }
    }

    fn unmount_clean(&self) -> Result<(), MountError> {
        let control = Control::of(&self.place);
        let found = self.take_down_when_unused()?;
        if found == Visibility::Gone {
            // Somebody detached it (`umount -l`), and programs may still use it.
            return match self.shared.wait_until_over(END_PATIENCE) {
                true => Ok(()),
                false => Err(self.busy()),
            };
        }
        // Unmounting ends the connection, unless another mount namespace has a copy of the mount.
        if let Some(control) = control
            && control
                .is_mounted()
                .map_err(MountError::io("look after the mount at", self.dir()))?
            && !self.shared.wait_until_over(FORCE_PATIENCE)
        {
            warn!(
                "{} is still mounted in another mount namespace and is cut off there",
                self.dir().display()
            );
            self.cut_off(&control)?;
        }
        self.wait_until_ended()
    }

    fn unmount_force(&self) -> Result<(), MountError> {
        if visibility(&self.place)? == Visibility::OnTop {
            write_back(self.dir());
        }
        // Programs get a moment to finish what they are at, if they can be cut off once it is detached.
        let control = Control::of(&self.place);
        let how = match control {
            Some(_) => UnmountHow::Detach,
            None => UnmountHow::Abort,
        };
        self.take_down(how)?;
        if self.shared.wait_until_over(FORCE_PATIENCE) {
            return Ok(());
        }
        if let Some(control) = control {
            self.cut_off(&control)?;
        }
        self.wait_until_ended()
    }

    /// Most uses are short: a program that ends, a prompt that looks at the directory, a child between fork and exec.
    /// There is no event for their end.
    fn take_down_when_unused(&self) -> Result<Visibility, MountError> {
        let deadline = Instant::now() + BUSY_PATIENCE;
        loop {
            // The kernel counts who uses the mount here, and not its copies.
            let taken_down = match users::is_used_elsewhere(&self.place) {
                true => Err(self.busy()),
                false => self.take_down(UnmountHow::IfUnused),
            };
            match taken_down {
                Err(MountError::Busy(_)) if Instant::now() < deadline => thread::sleep(BUSY_INTERVAL),
                result => return result,
            }
        }
    }

    /// Unmounts what is at the directory if that is ours; how it was found.
    fn take_down(&self, how: UnmountHow) -> Result<Visibility, MountError> {
        let found = visibility(&self.place)?;
        match found {
            Visibility::OnTop => {}
            Visibility::Covered => return Err(self.busy()),
            Visibility::Gone => return Ok(found),
        }
        match device::unmount(self.dir(), how) {
            Ok(()) => Ok(found),
            // Somebody else was faster.
            Err(_) if visibility(&self.place)? == Visibility::Gone => Ok(found),
            Err(error) => Err(error),
        }
    }

    fn cut_off(&self, control: &Control) -> Result<(), MountError> {
        control
            .abort()
            .map_err(MountError::io("cut off the mount at", self.dir()))
    }

    fn wait_until_ended(&self) -> Result<(), MountError> {
        match self.shared.wait_until_over(END_PATIENCE) {
            true => Ok(()),
            false => Err(MountError::Detached(self.dir().to_owned())),
        }
    }

    fn busy(&self) -> MountError {
        MountError::Busy(self.dir().to_owned())
    }
}

/// Whether a mount is what one meets at its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    OnTop,
    /// Something else is mounted over it.
    Covered,
    /// It is no longer there.
    Gone,
}

fn visibility(ours: &MountedAt) -> Result<Visibility, MountError> {
    let mounts = place::mounts_at(&ours.dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
    Ok(visibility_among(ours, &mounts))
}

/// `mounts` are those at the directory, lowest first.
fn visibility_among(ours: &MountedAt, mounts: &[MountedAt]) -> Visibility {
    let is_ours = |mount: &MountedAt| mount.mount_id == ours.mount_id && mount.device == ours.device;
    match mounts.iter().rposition(is_ours) {
        Some(position) if position + 1 == mounts.len() => Visibility::OnTop,
        Some(_) => Visibility::Covered,
        None => Visibility::Gone,
    }
}

/// Ends a connection without regard for who uses it, as far as there is a way to.
fn abort(mount: &MountedAt) -> Result<(), MountError> {
    abort_if(mount, || true)
}

/// As [`abort`], if `is_meant` says so, which is asked when nothing but this very connection can be hit any more.
fn abort_if(mount: &MountedAt, is_meant: impl FnOnce() -> bool) -> Result<(), MountError> {
    let control = Control::of(mount);
    if !is_meant() {
        return Ok(());
    }
    if let Some(control) = control {
        return control
            .abort()
            .map_err(MountError::io("cut off the mount at", &mount.dir));
    }
    match visibility(mount)? {
        Visibility::OnTop => device::unmount(&mount.dir, UnmountHow::Abort),
        // It dies with the last program that uses it.
        Visibility::Covered | Visibility::Gone => Ok(()),
    }
}

/// Has what programs changed through shared mappings written, as far as that ends in time.
fn write_back(dir: &Path) {
    let dir = dir.to_owned();
    let written = within(END_PATIENCE, "tine-write-back", move || {
        fs::File::open(&dir).and_then(|dir| sys::sync_file_system(&dir))
    });
    if let Ok(Err(error)) | Err(error) = written {
        warn!("not all mapped pages could be written before unmounting: {error}");
    }
}

/// Runs what may hang in a thread that is left behind if it does.
///
/// The thread waits for a mount that this very process may serve. Killed meanwhile, it would not end before it has its
/// answer, nor would the connection end before the last thread that holds its descriptor: it must hold none.
fn within<T: Send + 'static>(
    patience: Duration,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, wait) = sync_channel(1);
    thread::Builder::new().name(name.into()).spawn(move || {
        if let Err(error) = process::leave_descriptors() {
            warn!("a thread that waits for a mount holds descriptors: {error}");
        }
        // Whoever waited may have lost patience.
        let _ = done.send(run());
    })?;
    wait.recv_timeout(patience).map_err(|error| match error {
        RecvTimeoutError::Timeout => io::ErrorKind::TimedOut.into(),
        RecvTimeoutError::Disconnected => io::Error::other("the thread panicked"),
    })
}

/// Mounts and serves `filesystem`. `workspace` gets its listener set; `priming` is the file that `filesystem` has for
/// the first open.
pub(super) fn serve<F: Filesystem>(
    filesystem: F,
    wish: Option<RingWish>,
    priming: Option<PrimingFile>,
    workspace: Option<Arc<Workspace>>,
    counters: Arc<Counters>,
    options: &MountOptions,
    ended: Ended,
) -> Result<Mount, MountError> {
    sys::keep_large_buffers_untouched();
    let dir = prepare_directory(&options.dir)?;
    let device = device::mount(options, &dir)?;
    let place = match identify(&dir, options) {
        Ok(place) => place,
        Err(error) => {
            // Dead without its only descriptor, and so told from whatever else may be there by now.
            drop(device);
            if let Err(second) = detach_stale(&dir) {
                warn!("{second}");
            }
            return Err(error);
        }
    };
    if let Some(wish) = &wish {
        wish.set_device(device.try_clone().map_err(MountError::io("serve", &dir))?);
    }
    // Blocks until the kernel's first request, which is under way since mounting.
    let session = match fuser_session(filesystem, device) {
        Ok(session) => session,
        Err(error) => {
            undo(&place);
            return Err(MountError::io("begin to serve", &dir)(error));
        }
    };
    let notifier = session.notifier();
    let cut_off: Failed = Arc::new({
        let place = place.clone();
        move || {
            if let Err(error) = abort(&place) {
                error!("{error}");
            }
        }
    });
    let rings = match transport::set_up(options.transport, wish, &cut_off) {
        Ok(rings) => rings,
        Err(error) => {
            undo(&place);
            return Err(error);
        }
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            over: false,
            ended: None,
        }),
        over: Condvar::new(),
    });
    let mount = Mount {
        place,
        shared,
        counters,
        transport: match rings {
            Some(_) => Transport::Ring,
            None => Transport::Device,
        },
    };
    if let Err(error) = mount.spawn_session(session, notifier.clone(), workspace, rings) {
        undo(&mount.place);
        return Err(MountError::io("start threads for", &dir)(error));
    }
    if let Err(error) = prime(&dir, priming.as_ref(), &notifier) {
        if let Err(second) = mount.unmount(UnmountMode::Force) {
            warn!("{second}");
        }
        return Err(MountError::io("use the new mount", &dir)(error));
    }
    raise_read_ahead(&mount.place);
    mount.tell_when_over(ended)?;
    debug!("mounted {} at {}", options.name, dir.display());
    Ok(mount)
}

/// Detaches a mount that could not be served.
fn undo(mount: &MountedAt) {
    let undone = match visibility(mount) {
        Ok(Visibility::OnTop) => device::unmount(&mount.dir, UnmountHow::Detach),
        Ok(Visibility::Covered | Visibility::Gone) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = undone {
        warn!("{error}");
    }
}

/// An empty directory at `dir`, made if it is missing; its path without symlinks.
fn prepare_directory(dir: &Path) -> Result<PathBuf, MountError> {
    let refuse_mounted = |dir: &Path| {
        let mounts = place::mounts_at(dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
        match mounts.is_empty() {
            true => Ok(()),
            false => Err(MountError::AlreadyMounted(dir.to_owned())),
        }
    };
    // Asked before anything else: what is mounted there may be dead, and must not be looked into.
    if let Ok(unfollowed) = place::resolve(dir) {
        refuse_mounted(&unfollowed)?;
    }
    fs::create_dir_all(dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => MountError::NotEmpty(dir.to_owned()),
        _ => MountError::io("make", dir)(error),
    })?;
    let dir = dir.canonicalize().map_err(MountError::io("find", dir))?;
    refuse_mounted(&dir)?;
    let mut entries = fs::read_dir(&dir).map_err(MountError::io("read", &dir))?;
    match entries.next() {
        None => Ok(dir),
        Some(_) => Err(MountError::NotEmpty(dir)),
    }
}

fn fuser_session<F: Filesystem>(filesystem: F, device: std::os::fd::OwnedFd) -> io::Result<Session<F>> {
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    // A descriptor for each thread: requests in the hands of a thread that dies fail then, instead of hanging.
    config.clone_fd = true;
    // The kernel lets in only whom the mount's options allow; fuser's own check would refuse requests that the kernel
    // sends in nobody's name.
    Session::from_fd(filesystem, device, SessionACL::All, config)
}

fn identify(dir: &Path, options: &MountOptions) -> Result<MountedAt, MountError> {
    place::mount_of(dir)
        .map_err(MountError::io("find the mount at", dir))?
        .filter(|mount| mount.fs_type == FS_TYPE && mount.dir == dir)
        .filter(|mount| mount.source == device::source(options).as_str())
        .ok_or_else(|| MountError::io("find the mount at", dir)(io::ErrorKind::NotFound.into()))
}

impl Mount {
    /// Has `ended` called when the session ends. Fails, without ever calling it, where that was before.
    fn tell_when_over(&self, ended: Ended) -> Result<(), MountError> {
        let mut state = self.shared.state.lock();
        if state.over {
            return Err(MountError::io("use the new mount", self.dir())(
                io::ErrorKind::NotConnected.into(),
            ));
        }
        state.ended = Some(ended);
        Ok(())
    }

    /// Starts the notifier's thread and the one that runs the session and cleans up after it.
    fn spawn_session<F: Filesystem>(
        &self,
        session: Session<F>,
        notifier: fuser::Notifier,
        workspace: Option<Arc<Workspace>>,
        rings: Option<Rings>,
    ) -> io::Result<()> {
        let notifier_thread = NotifierThread::start(notifier)?;
        let shared = self.shared.clone();
        let place = self.place.clone();
        thread::Builder::new()
            .name("tine-session".into())
            .spawn(move || {
                // Set before the first request is served, hence before the mount is ready.
                if let Some(workspace) = &workspace {
                    workspace.set_listener(Some(notifier_thread.listener()));
                }
                let mut lives_on = false;
                if let Err(error) = session.run() {
                    // A thread of the session died; the others, and with them the connection, may live.
                    error!("serving {} failed: {error}", place.dir.display());
                    if let Err(error) = abort(&place) {
                        error!("{error}");
                        lives_on = true;
                    }
                }
                if let Some(rings) = rings {
                    rings.end(lives_on);
                }
                notifier_thread.stop();
                if let Some(workspace) = workspace {
                    workspace.set_listener(None);
                    workspace.forget_all();
                }
                let mut state = shared.state.lock();
                state.over = true;
                let ended = state.ended.take();
                drop(state);
                shared.over.notify_all();
                if let Some(ended) = ended {
                    ended();
                }
            })?;
        Ok(())
    }
}

/// Opens a directory and a file on the new mount, so that the kernel learns that neither needs a request.
fn prime(dir: &Path, file: Option<&PrimingFile>, notifier: &fuser::Notifier) -> io::Result<()> {
    let file_path = file.map(|file| dir.join(&file.name));
    let dir = dir.to_owned();
    within(START_PATIENCE, "tine-prime", move || {
        fs::File::open(&dir)?;
        if let Some(path) = file_path {
            fs::File::open(path)?;
        }
        io::Result::Ok(())
    })??;
    if let Some(file) = file {
        // Have the kernel drop it again. Harmless if it does not.
        let _ = notifier.inval_entry(fuser::INodeNo::ROOT, file.name.as_ref());
    }
    Ok(())
}

/// What INIT can ask for is bounded by the kernel's default of 128 KiB; root may set more afterwards.
fn raise_read_ahead(mount: &MountedAt) {
    let (major, minor) = mount.device;
    let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = fs::write(&file, (READ_AHEAD / 1024).to_string()) {
        debug!("{file}: {error}");
    }
}

/// Whether a dead FUSE mount (its daemon gone) is at `dir`; detaches it if so.
///
/// Only mounts of tine are looked at, and one that does not answer in time counts as alive.
pub fn detach_stale(dir: &Path) -> Result<bool, MountError> {
    let dir = match place::resolve(dir) {
        Ok(dir) => dir,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(MountError::io("find", dir)(error)),
    };
    let mut detached = false;
    loop {
        let mounts = place::mounts_at(&dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
        let is_ours = mounts.last().is_some_and(|mount| mount.fs_type == FS_TYPE);
        if !is_ours || !is_dead(&dir) {
            return Ok(detached);
        }
        device::unmount(&dir, UnmountHow::Detach)?;
        detached = true;
    }
}

/// Ends the connection of tine's mount at `dir`, if there is one, whoever uses it. The mount stays, dead. `is_meant` has
/// the last word: whether whatever is mounted there at that moment is what is to be cut off.
pub fn cut_off(dir: &Path, is_meant: impl FnOnce() -> bool) -> Result<(), MountError> {
    let Ok(dir) = place::resolve(dir) else {
        return Ok(());
    };
    let mounts = place::mounts_at(&dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
    match mounts.last().filter(|mount| mount.fs_type == FS_TYPE) {
        Some(mount) => abort_if(mount, is_meant),
        None => Ok(()),
    }
}

/// Whether the mount at `dir` has lost its daemon. One that does not answer in time counts as alive.
fn is_dead(dir: &Path) -> bool {
    has_lost_daemon(|| {
        let dir = dir.to_owned();
        match within(PROBE_PATIENCE, "tine-probe", move || sys::probe(&dir)) {
            Ok(answer) => answer,
            Err(_) => Ok(()),
        }
    })
}

/// Whether `ask`, which asks a mount something that its daemon has to answer, finds the daemon gone.
///
/// A request that a daemon had while it was killed ends with an error of another kind, before the connection does: then
/// the next one tells.
pub fn has_lost_daemon(ask: impl Fn() -> io::Result<()>) -> bool {
    let deadline = Instant::now() + DEATH_PATIENCE;
    loop {
        match ask().map_err(|error| error.raw_os_error()) {
            Err(Some(libc::ENOTCONN | libc::ECONNABORTED)) => return true,
            // The last one over io_uring.
            Err(Some(libc::EIO | libc::EFAULT | libc::ECANCELED)) if Instant::now() < deadline => {
                thread::sleep(BUSY_INTERVAL);
            }
            Ok(()) | Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(mount_id: u64, minor: u32) -> MountedAt {
        MountedAt {
            mount_id,
            device: (0, minor),
            dir: "/srv/x".into(),
            fs_type: FS_TYPE.into(),
            source: "tine:x".into(),
        }
    }

    #[test]
    fn a_daemon_that_dies_over_a_question_is_told_from_one_that_answers() {
        let asked = |answers: &[Option<i32>]| {
            let left = std::cell::RefCell::new(answers.to_vec());
            let lost = has_lost_daemon(|| match left.borrow_mut().remove(0) {
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => Ok(()),
            });
            (lost, left.into_inner().len())
        };
        assert_eq!(asked(&[None]), (false, 0));
        assert_eq!(asked(&[Some(libc::ENOENT), None]), (false, 1));
        assert_eq!(asked(&[Some(libc::ECONNABORTED), None]), (true, 1));
        assert_eq!(
            asked(&[Some(libc::EFAULT), Some(libc::ECANCELED), Some(libc::ENOTCONN)]),
            (true, 0)
        );
        assert_eq!(asked(&[Some(libc::EIO), None]), (false, 0));
    }

    #[test]
    fn another_mount_at_the_same_place_is_not_taken_for_ours() {
        let ours = mounted(7, 40);
        let same_number = mounted(7, 41);
        let same_device = mounted(8, 40);
        let cases: [(&[&MountedAt], Visibility); 5] = [
            (&[], Visibility::Gone),
            (&[&same_number], Visibility::Gone),
            (&[&same_device], Visibility::Gone),
            (&[&ours, &same_device], Visibility::Covered),
            (&[&same_device, &ours], Visibility::OnTop),
        ];
        for (mounts, expected) in cases {
            let mounts: Vec<MountedAt> = mounts.iter().map(|&mount| mount.clone()).collect();
            assert_eq!(visibility_among(&ours, &mounts), expected, "{mounts:?}");
        }
    }
}
