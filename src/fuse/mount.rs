//! Mounting and unmounting, done here and not by `fuser`, whose own teardown can unmount a
//! different file system.
//!
//! ```text
//! start:  directory ─► device mounted ─► INIT ─► session thread ─► first opendir and open ─► ready
//! end:    connection dead ─► fuser's threads end ─► notifier stopped ─► listener taken back ─► `ended`
//! ```
//!
//! The session thread owns everything that must go when the session ends, for whatever reason it
//! does; [`FuseMount`] only watches it.

mod ending;
mod ground;

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
use thiserror::Error;

use super::adapter::Adapter;
use super::counters::{Counters, Traffic};
use super::device;
use super::negotiate::READ_AHEAD;
use super::notifier::NotifierThread;
use super::operations::Operations;
use super::place::{self, FS_TYPE, MountedAt};
use super::priming::PrimingFile;
use super::replay::Replay;
use super::replayer::Replayer;
use super::ring::{Failed, Rings};
use super::transport::{self, RingOptions, Transport, TransportChoice};
use tine_sys::mount as sys;
use tine_sys::process::{self, effective_gid, effective_uid};
use tine_workspace::{MountSettings, Workspace};

pub use ending::{UnmountMode, cut_off, detach_stale, has_lost_daemon};
use ending::{abort, undo};
pub use ground::{MountPoint, guards_below, lying_at, remove_guard};

/// Threads that serve one mount.
const THREADS: usize = 2;
/// How long the first requests may take until the mount counts as failed.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// How a fork is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    pub dir: PathBuf,
    /// Shown as the mount's source in `/proc/self/mounts` after `tine:`.
    pub name: String,
    /// Where several users may enter, the kernel checks permissions (`default_permissions`).
    pub settings: MountSettings,
    pub transport: TransportChoice,
    /// Whether programs are kept from writing into the directory when the mount is gone for a
    /// while, as it is after the daemon was killed. The directory may then hold files, which the
    /// mount covers: [`FuseMount::take_ground`] leads to them.
    pub guarded: bool,
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
    /// No longer at its directory, and served until the last program lets go of it: nothing here
    /// may cut that off.
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
    pub(super) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> MountError {
        let path = path.into();
        move |source| MountError::Io {
            action,
            path,
            source,
        }
    }
}

/// Called once when a session has ended.
type Ended = Box<dyn FnOnce() + Send>;

/// What the session thread and [`FuseMount`] share.
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
pub struct FuseMount {
    /// As `/proc/self/mountinfo` had it when it was made. Valid while the session lives: a
    /// connection that lives keeps its device number from being given to another.
    place: MountedAt,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    transport: Transport,
    /// Until somebody has looked beneath the mount.
    ground: Mutex<Option<MountPoint>>,
}

impl FuseMount {
    /// Mounts `workspace`, with the directory made if it is missing, and serves it from threads of
    /// this process. `ended` is called, from a thread of its own, when the session ends for
    /// whatever reason (an `umount` from outside, too). Returns when the mount is ready to use: the
    /// first `open` has been answered.
    ///
    /// When `ended` is called the directory is unmounted, or about to be replaced by an error for
    /// whoever looks, and the workspace's listener is taken back.
    pub fn start(
        workspace: Arc<Workspace>,
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
        );
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
            Some(NotifiedWorkspace { workspace, replay }),
            counters,
            options,
            ended,
        )
    }

    /// Where it is mounted: absolute, without symlinks.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// The directory under the mount, which may hold files that were put there while nothing was
    /// mounted. Given out once, and only for a mount that is guarded.
    pub fn take_ground(&self) -> Option<MountPoint> {
        self.ground.lock().take()
    }

    /// How requests come.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// How many requests of each kind the kernel sent so far, by FUSE's names for them.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.read()
    }

    /// What the kernel asked so far, and how long the answers took. With `watch` it is counted for
    /// a while which files are read and written.
    pub fn traffic(&self, watch: bool) -> Traffic {
        self.counters.traffic(watch)
    }
}

/// A workspace that tells its mount what changes.
pub(super) struct NotifiedWorkspace {
    workspace: Arc<Workspace>,
    replay: Arc<Replay>,
}

/// Mounts and serves `filesystem`. `told` gets its listener set; `priming` is the file that
/// `filesystem` has for the first open.
pub(super) fn serve<F: Filesystem>(
    filesystem: F,
    wish: Option<RingOptions>,
    priming: Option<PrimingFile>,
    told: Option<NotifiedWorkspace>,
    counters: Arc<Counters>,
    options: &MountOptions,
    ended: Ended,
) -> Result<FuseMount, MountError> {
    sys::keep_large_buffers_untouched();
    let ground = MountPoint::open(&options.dir)?;
    let dir = ground.dir().to_owned();
    if !options.guarded && !ground.is_empty().map_err(MountError::io("read", &dir))? {
        return Err(MountError::NotEmpty(dir));
    }
    let device = mount_over(&ground, options)?;
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
    let mount = FuseMount {
        place,
        shared,
        counters,
        transport: match rings {
            Some(_) => Transport::Ring,
            None => Transport::Device,
        },
        ground: Mutex::new(options.guarded.then_some(ground)),
    };
    if let Err(error) =
        mount.spawn_session(session, notifier.clone(), told, options.settings, rings)
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
    mount.tell_when_over(ended)?;
    debug!("mounted {} at {}", options.name, dir.display());
    Ok(mount)
}

/// Mounts over `ground`, which nobody may write to before and after that.
fn mount_over(ground: &MountPoint, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if !options.guarded {
        return device::mount(options, ground.dir());
    }
    ground.guard();
    if effective_uid() != 0 {
        ground.unshut();
    }
    let device = device::mount(options, ground.dir());
    ground.shut();
    device
}

fn fuser_session<F: Filesystem>(filesystem: F, device: OwnedFd) -> io::Result<Session<F>> {
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    // A descriptor for each thread: requests in the hands of a thread that dies fail then, instead
    // of hanging.
    config.clone_fd = true;
    // The kernel lets in only whom the mount's options allow; fuser's own check would refuse
    // requests that the kernel sends in nobody's name.
    Session::from_fd(filesystem, device, SessionACL::All, config)
}

fn identify(dir: &Path, options: &MountOptions) -> Result<MountedAt, MountError> {
    place::mount_of(dir)
        .map_err(MountError::io("find the mount at", dir))?
        .filter(|mount| mount.fs_type == FS_TYPE && mount.dir == dir)
        .filter(|mount| mount.source == device::source(options).as_str())
        .ok_or_else(|| MountError::io("find the mount at", dir)(io::ErrorKind::NotFound.into()))
}

impl FuseMount {
    /// Has `ended` called when the session ends. Fails, without ever calling it, where that was
    /// before.
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
        told: Option<NotifiedWorkspace>,
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
                // Set before the first request is served, hence before the mount is ready.
                if let Some(NotifiedWorkspace { workspace, replay }) = &told {
                    let replayer = Replayer::new(
                        replay.clone(),
                        place.clone(),
                        (sees_all_watchers, settings.overlay_buffers),
                        notifier_thread.invalidate(),
                    );
                    workspace.set_listener(Some(replayer.listener()));
                }
                let mut lives_on = false;
                if let Err(error) = session.run() {
                    // A thread of the session died; the others, and with them the connection, may
                    // live.
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
                if let Some(NotifiedWorkspace { workspace, .. }) = told {
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

/// Opens a directory and a file on the new mount, so that the kernel learns that neither needs a
/// request.
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

/// What INIT can ask for is bounded by the kernel's default of 128 KiB; root may set more
/// afterwards.
fn raise_read_ahead(mount: &MountedAt) {
    let (major, minor) = mount.device;
    let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = fs::write(&file, (READ_AHEAD / 1024).to_string()) {
        debug!("{file}: {error}");
    }
}

/// Runs what may hang in a thread that is left behind if it does.
///
/// The thread waits for a mount that this very process may serve. Killed meanwhile, it would not
/// end before it has its answer, nor would the connection end before the last thread that holds its
/// descriptor: it must hold none.
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
