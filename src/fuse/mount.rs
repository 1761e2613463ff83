//! Mounting and unmounting.
//!
//! `fuser` does neither, as its own teardown can unmount a different file system.
//!
//! ```text
//! start:  directory ─► device mounted ─► INIT ─► session thread ─► first opendir, open ─► ready
//! end:    connection dead ─► fuser ends ─► notifier stopped ─► listener removed ─► `ended`
//! ```
//!
//! The session thread owns everything that must be cleaned up when the session ends, whatever the
//! reason. [`FuseMount`] only watches it.

mod ending;
mod mount_point;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Config, Filesystem, Session, SessionACL};
use log::{debug, error, warn};
use parking_lot::{Condvar, Mutex};

use super::adapter::Adapter;
use super::counters::{Counters, Traffic};
use super::device;
use super::error::MountError;
use super::negotiate::READ_AHEAD;
use super::notifier::{Invalidate, NotifierThread};
use super::operations::Operations;
use super::place::{self, FS_TYPE, MountedAt};
use super::priming::PrimingFile;
use super::replay::Replay;
use super::replayer::Replayer;
use super::ring::{Failed, Rings};
use super::transport::{self, RingOptions, Transport, TransportChoice};
use tine_dotgit::GitDirectory;
use tine_store::MountSettings;
use tine_sys::mount as sys;
use tine_sys::process::{self, effective_gid, effective_uid};
use tine_workspace::{Announcement, AnnouncementListener, Invalidation, ViewStep, Workspace};

pub use ending::{UnmountMode, cut_off, detach_stale, has_lost_daemon};
use ending::{abort, undo};
pub use mount_point::{MountPoint, files_under_mount_point, guards_below, remove_guard};

/// Number of `fuser` threads that serve one mount.
const THREADS: usize = 2;
/// Time for the first requests, after which the mount counts as failed.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// Options for mounting a fork.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Directory to mount at. It is created if it is missing.
    pub dir: PathBuf,
    /// Name of the fork.
    ///
    /// The mount's source in `/proc/self/mounts` is `tine:<name>`.
    pub name: String,
    /// Settings of the mount.
    ///
    /// If they allow other users, the kernel checks permissions (`default_permissions`).
    pub settings: MountSettings,
    /// Transport to use.
    pub transport: TransportChoice,
    /// True to keep programs from writing into the unmounted directory.
    ///
    /// It is unmounted for a while after the daemon was killed, for instance. A guarded directory
    /// may hold files, which the mount covers: [`FuseMount::take_mount_point`] gives access to
    /// them.
    pub guarded: bool,
}

/// Callback for the end of a session, called once.
type Ended = Box<dyn FnOnce() + Send>;

/// State shared between the session thread and [`FuseMount`].
struct Shared {
    state: Mutex<State>,
    /// Signalled when `state.over` becomes true.
    over: Condvar,
}

struct State {
    /// Sends invalidations to the kernel, while the session lives.
    invalidate: Option<Invalidate>,
    /// Announces changes to the kernel and to watchers, while the session lives.
    announce: Option<AnnouncementListener>,
    /// True once the session has ended.
    over: bool,
    /// Callback; set once the mount has started, taken when it is called.
    ended: Option<Ended>,
}

impl Shared {
    /// Waits until the session has ended, at most for `patience`.
    ///
    /// Returns whether it has ended.
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

/// Mounted fork. Dropping it does not unmount.
pub struct FuseMount {
    /// The mount's entry in `/proc/self/mountinfo` when it was made.
    ///
    /// Valid while the session lives: the device number of a live connection is not reused.
    place: MountedAt,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    transport: Transport,
    /// Directory under the mount, until [`FuseMount::take_mount_point`] takes it.
    mount_point: Mutex<Option<MountPoint>>,
}

impl FuseMount {
    /// Mounts `workspace` and serves it from threads of this process.
    ///
    /// If the fork has a git directory of its own, `git_dir` is shown as `.git`.
    ///
    /// Creates the directory if it is missing. Blocks until the mount is ready: the kernel has got
    /// an answer to its first `open`.
    ///
    /// A separate thread calls `ended` when the session ends for any reason, also after an `umount`
    /// by another program. The workspace's listener is then removed. The directory is unmounted, or
    /// accesses to it are about to fail.
    ///
    /// # Errors
    /// [`MountError::AlreadyMounted`] or [`MountError::NotEmpty`] for an unsuitable directory. The
    /// other variants if mounting or the first requests fail; the mount is then undone.
    pub fn start(
        workspace: Arc<Workspace>,
        git_dir: Option<Arc<GitDirectory>>,
        options: &MountOptions,
        ended: Ended,
    ) -> Result<FuseMount, MountError> {
        let (uid, gid) = (effective_uid(), effective_gid());
        let counters = Arc::new(Counters::new());
        let priming = PrimingFile::new(uid, gid);
        let replay = Arc::new(Replay::default());
        let operations = Operations::new(
            workspace.clone(),
            counters.clone(),
            priming.clone(),
            replay.clone(),
            options.settings.overlay_buffers,
            git_dir,
        );
        let operations = Arc::new(operations);
        let ring_options = transport::ring_options(options, &operations)?;
        let adapter = Adapter::new(
            operations,
            options.settings.profile,
            ring_options.clone(),
            device::checks_permissions(options, uid),
        );
        serve(
            adapter,
            ring_options,
            Some(priming),
            Some(NotifiedWorkspace { workspace, replay }),
            counters,
            options,
            ended,
        )
    }

    /// Returns the mount's directory: absolute, without symlinks.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// Returns the directory under the mount, once.
    ///
    /// It may hold files that were written while nothing was mounted. `None` on later calls, and if
    /// the mount is not guarded.
    pub fn take_mount_point(&self) -> Option<MountPoint> {
        self.mount_point.lock().take()
    }

    /// Tells programs that watch files of changes that the kernel knows.
    ///
    /// Waits for the replay of the steps. Does nothing once the session has ended.
    pub fn tell_watchers(&self, steps: Vec<ViewStep>) {
        let announce = self.shared.state.lock().announce.clone();
        if let Some(announce) = announce.filter(|_| !steps.is_empty()) {
            announce(Announcement {
                invalidations: Vec::new(),
                steps,
            });
        }
    }

    /// Makes the kernel forget what it has cached, and waits for it.
    ///
    /// For changes that did not come through the mount.
    pub fn invalidate(&self, invalidations: Vec<Invalidation>) {
        if invalidations.is_empty() {
            return;
        }
        let invalidate = self.shared.state.lock().invalidate.clone();
        if let Some(invalidate) = invalidate {
            invalidate(invalidations);
        }
    }

    /// Returns the transport in use.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the number of requests so far, by their FUSE names.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.read()
    }

    /// Returns statistics of the requests so far and their latencies.
    ///
    /// With `watch`, the mount then counts for a while which files are read and written.
    pub fn traffic(&self, watch: bool) -> Traffic {
        self.counters.traffic(watch)
    }
}

/// Workspace whose changes are reported to its mount.
pub(super) struct NotifiedWorkspace {
    workspace: Arc<Workspace>,
    replay: Arc<Replay>,
}

/// Mounts and serves `filesystem`.
///
/// `notified` is the workspace that gets a listener, `priming` the file of `filesystem` for the
/// first open.
pub(super) fn serve<F: Filesystem>(
    filesystem: F,
    ring_options: Option<RingOptions>,
    priming: Option<PrimingFile>,
    notified: Option<NotifiedWorkspace>,
    counters: Arc<Counters>,
    options: &MountOptions,
    ended: Ended,
) -> Result<FuseMount, MountError> {
    sys::keep_large_buffers_untouched();
    let mount_point = MountPoint::open(&options.dir)?;
    let dir = mount_point.dir().to_owned();
    if !options.guarded
        && !mount_point
            .is_empty()
            .map_err(MountError::io("read", &dir))?
    {
        return Err(MountError::NotEmpty(dir));
    }
    let device = mount_over(&mount_point, options)?;
    let place = match identify(&dir, options) {
        Ok(place) => place,
        Err(error) => {
            // Closing the only descriptor makes the mount dead, so `detach_stale` can recognise it.
            drop(device);
            if let Err(second) = detach_stale(&dir) {
                warn!("{second}");
            }
            return Err(error);
        }
    };
    if let Some(ring_options) = &ring_options {
        ring_options.set_device(device.try_clone().map_err(MountError::io("serve", &dir))?);
    }
    // Blocks until the kernel's first request, which mounting has sent already.
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
    let rings = match transport::set_up(options.transport, ring_options, &cut_off) {
        Ok(rings) => rings,
        Err(error) => {
            undo(&place);
            return Err(error);
        }
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            invalidate: None,
            announce: None,
            over: false,
            ended: None,
        }),
        over: Condvar::new(),
    });
    let mount = FuseMount {
        place,
        shared,
        counters,
        transport: match rings {
            Some(_) => Transport::Ring,
            None => Transport::Device,
        },
        mount_point: Mutex::new(options.guarded.then_some(mount_point)),
    };
    if let Err(error) =
        mount.spawn_session(session, notifier.clone(), notified, options.settings, rings)
    {
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
    mount.set_ended(ended)?;
    debug!("mounted {} at {}", options.name, dir.display());
    Ok(mount)
}

/// Mounts over `mount_point`, to which programs cannot write before or after.
fn mount_over(mount_point: &MountPoint, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if !options.guarded {
        return device::mount(options, mount_point.dir());
    }
    mount_point.guard();
    if effective_uid() != 0 {
        mount_point.make_writable();
    }
    let device = device::mount(options, mount_point.dir());
    mount_point.make_unwritable();
    device
}

/// Starts a `fuser` session on a mounted device.
fn fuser_session<F: Filesystem>(filesystem: F, device: OwnedFd) -> io::Result<Session<F>> {
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    // With a descriptor for each thread, the requests of a thread that dies fail instead of
    // hanging.
    config.clone_fd = true;
    // The kernel enforces the mount's options. fuser's own check would refuse requests that the
    // kernel sends on nobody's behalf.
    Session::from_fd(filesystem, device, SessionACL::All, config)
}

/// Finds our new mount at `dir` in `/proc/self/mountinfo`.
fn identify(dir: &Path, options: &MountOptions) -> Result<MountedAt, MountError> {
    place::mount_of(dir)
        .map_err(MountError::io("find the mount at", dir))?
        .filter(|mount| mount.fs_type == FS_TYPE && mount.dir == dir)
        .filter(|mount| mount.source == device::source(options).as_str())
        .ok_or_else(|| MountError::io("find the mount at", dir)(io::ErrorKind::NotFound.into()))
}

impl FuseMount {
    /// Registers the callback for the end of the session.
    ///
    /// # Errors
    /// [`MountError::Io`] if the session has ended already. `ended` is not called then.
    fn set_ended(&self, ended: Ended) -> Result<(), MountError> {
        let mut state = self.shared.state.lock();
        if state.over {
            return Err(MountError::io("use the new mount", self.dir())(
                io::ErrorKind::NotConnected.into(),
            ));
        }
        state.ended = Some(ended);
        Ok(())
    }

    /// Starts the notifier thread and the session thread.
    ///
    /// The session thread cleans up at the end.
    fn spawn_session<F: Filesystem>(
        &self,
        session: Session<F>,
        notifier: fuser::Notifier,
        notified: Option<NotifiedWorkspace>,
        settings: MountSettings,
        rings: Option<Rings>,
    ) -> io::Result<()> {
        let notifier_thread = NotifierThread::start(notifier)?;
        let sees_all_watchers = effective_uid() == 0 || !settings.allow_other;
        let shared = self.shared.clone();
        let place = self.place.clone();
        thread::Builder::new()
            .name("tine-session".into())
            .spawn(move || {
                // Set before the first request is served, and so before the mount is ready.
                if let Some(NotifiedWorkspace { workspace, replay }) = &notified {
                    let replayer = Replayer::new(
                        replay.clone(),
                        place.clone(),
                        (sees_all_watchers, settings.overlay_buffers),
                        notifier_thread.invalidate(),
                    );
                    let listener = replayer.listener();
                    shared.state.lock().announce = Some(listener.clone());
                    workspace.set_listener(Some(listener));
                }
                shared.state.lock().invalidate = Some(notifier_thread.invalidate());
                let mut lives_on = false;
                if let Err(error) = session.run() {
                    // A thread of the session died. The others may live, and with them the
                    // connection.
                    error!("serving {} failed: {error}", place.dir.display());
                    if let Err(error) = abort(&place) {
                        error!("{error}");
                        lives_on = true;
                    }
                }
                if let Some(rings) = rings {
                    rings.end(lives_on);
                }
                shared.state.lock().invalidate = None;
                shared.state.lock().announce = None;
                notifier_thread.stop();
                if let Some(NotifiedWorkspace { workspace, .. }) = notified {
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

/// Opens a directory and a file on the new mount.
///
/// The kernel thereby learns that neither needs a request.
fn prime(dir: &Path, file: Option<&PrimingFile>, notifier: &fuser::Notifier) -> io::Result<()> {
    let file_path = file.map(|file| dir.join(&file.name));
    let dir = dir.to_owned();
    run_with_timeout(START_PATIENCE, "tine-prime", move || {
        fs::File::open(&dir)?;
        if let Some(path) = file_path {
            fs::File::open(path)?;
        }
        io::Result::Ok(())
    })??;
    if let Some(file) = file {
        // Makes the kernel forget the name. Failure is harmless.
        let _ = notifier.inval_entry(fuser::INodeNo::ROOT, file.name.as_ref());
    }
    Ok(())
}

/// Raises the read-ahead limit of the mount, which takes root.
///
/// INIT cannot request more than the kernel's default of 128 KiB.
fn raise_read_ahead(mount: &MountedAt) {
    let (major, minor) = mount.device;
    let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = fs::write(&file, (READ_AHEAD / 1024).to_string()) {
        debug!("{file}: {error}");
    }
}

/// Runs `run`, which may hang, in a thread.
///
/// Abandons the thread after `patience`.
/// The thread may wait for a mount that this process serves. It must not hold descriptors: if the
/// process is killed, the thread ends only with its answer, and the connection ends only with the
/// last thread that holds its descriptor.
///
/// # Errors
/// `TimedOut` after `patience`; the kind `Other` if `run` panics.
fn run_with_timeout<T: Send + 'static>(
    patience: Duration,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, wait) = sync_channel(1);
    thread::Builder::new().name(name.into()).spawn(move || {
        if let Err(error) = process::leave_descriptors() {
            warn!("a thread that waits for a mount holds descriptors: {error}");
        }
        // Fails if the caller has stopped waiting.
        let _ = done.send(run());
    })?;
    wait.recv_timeout(patience).map_err(|error| match error {
        RecvTimeoutError::Timeout => io::ErrorKind::TimedOut.into(),
        RecvTimeoutError::Disconnected => io::Error::other("the thread panicked"),
    })
}
