//! Mounting, unmounting and what a session does when it ends, with a file system that is as good as
//! empty.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, OpenFlags, ReplyAttr,
    ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use super::counters::Counters;
use super::error::MountError;
use super::mount::{self, FuseMount, MountOptions, UnmountMode, detach_stale};
use super::{TransportChoice, device, place, users_of};
use tine_store::MountSettings;
use tine_sys::mount::UnmountKind;
use tine_sys::process::{effective_gid, effective_uid};

const TTL: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(20);

/// A root directory, and in it the files `file`, `panic` and `late`: the last one answers getattr
/// only when told to.
struct Tiny {
    release_late: parking_lot::Mutex<Option<Receiver<()>>>,
    late_asked: std::sync::mpsc::Sender<()>,
}

fn attr(ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if ino == 1 {
            FileType::Directory
        } else {
            FileType::RegularFile
        },
        perm: 0o755,
        nlink: 1,
        uid: effective_uid(),
        gid: effective_gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Tiny {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match name.to_str() {
            Some("file") => 2,
            Some("panic") => 3,
            Some("late") => 4,
            _ => return reply.error(Errno::ENOENT),
        };
        let attr_ttl = if ino == 2 { TTL } else { Duration::ZERO };
        reply.entry_with_ttls(&attr_ttl, &TTL, &attr(ino), Generation(0));
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match ino.0 {
            3 => panic!("on purpose"),
            4 => {
                self.late_asked.send(()).unwrap();
                if let Some(release) = self.release_late.lock().take() {
                    let _ = release.recv_timeout(PATIENCE);
                }
            }
            _ => {}
        }
        reply.attr(&TTL, &attr(ino.0));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn access(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _mask: fuser::AccessFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }
}

/// A mount of [`Tiny`] that is gone when the test is.
struct Fixture {
    mount: FuseMount,
    ended: Receiver<()>,
    calls: Arc<AtomicUsize>,
    late_asked: Receiver<()>,
    /// Dropped or used, it lets `late` answer.
    release_late: Option<std::sync::mpsc::Sender<()>>,
    _dir: tempfile::TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.release_late = None;
        let _ = self.mount.unmount(UnmountMode::Force);
    }
}

/// Says so past libtest's capture, so that it can be counted.
fn skip(reason: &str) {
    let line = format!("SKIP fuse::tests: {reason}\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Whether this machine can mount; where it must, not being able to is a failure.
fn can_mount() -> bool {
    match fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
    {
        Ok(_) => true,
        Err(error) if std::env::var_os("REQUIRE_FUSE").is_some_and(|value| value == "1") => {
            panic!("/dev/fuse cannot be used: {error}")
        }
        Err(error) => {
            skip(&format!("/dev/fuse cannot be used: {error}"));
            false
        }
    }
}

fn options(dir: &Path) -> MountOptions {
    MountOptions {
        dir: dir.to_owned(),
        name: "tiny".into(),
        settings: MountSettings::default(),
        transport: TransportChoice::default(),
        guarded: false,
    }
}

fn try_mount(dir: &Path) -> Result<FuseMount, MountError> {
    let (late_asked, _) = channel();
    let tiny = Tiny {
        release_late: parking_lot::Mutex::new(None),
        late_asked,
    };
    mount::serve(
        tiny,
        None,
        None,
        None,
        Arc::new(Counters::new()),
        &options(dir),
        Box::new(|| {}),
    )
}

fn mounted() -> Option<Fixture> {
    if !can_mount() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (tell, ended) = channel();
    let (release_late, wait) = channel();
    let (asked, late_asked) = channel();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let tiny = Tiny {
        release_late: parking_lot::Mutex::new(Some(wait)),
        late_asked: asked,
    };
    let mount = mount::serve(
        tiny,
        None,
        None,
        None,
        Arc::new(Counters::new()),
        &options(&dir.path().join("made/for it")),
        Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = tell.send(());
        }),
    )
    .unwrap();
    Some(Fixture {
        mount,
        ended,
        calls,
        late_asked,
        release_late: Some(release_late),
        _dir: dir,
    })
}

fn is_mounted(dir: &Path) -> bool {
    !place::mounts_at(dir).unwrap().is_empty()
}

#[test]
fn unmounting_ends_the_session_and_tells_once() {
    let Some(fixture) = mounted() else { return };
    let dir = fixture.mount.dir().to_owned();
    assert!(is_mounted(&dir));
    assert!(fs::metadata(dir.join("file")).unwrap().is_file());
    fixture.mount.unmount(UnmountMode::Clean).unwrap();
    assert!(!is_mounted(&dir));
    fixture.ended.recv_timeout(PATIENCE).unwrap();
    fixture.mount.unmount(UnmountMode::Clean).unwrap();
    fixture.mount.unmount(UnmountMode::Force).unwrap();
    assert_eq!(fixture.calls.load(Ordering::SeqCst), 1);
}

#[test]
fn unmounting_from_outside_tells() {
    let Some(fixture) = mounted() else { return };
    let status = Command::new("umount")
        .arg(fixture.mount.dir())
        .status()
        .unwrap();
    assert!(status.success());
    fixture.ended.recv_timeout(PATIENCE).unwrap();
}

/// A program that another test starts at this moment has this process's files until it has replaced
/// its image.
fn wait_for_users(dir: &Path, wanted: &[(u32, String)]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let users = users_of(dir);
        if users == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{users:?} and not {wanted:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_mount_in_use_is_busy_and_its_user_is_named() {
    let Some(fixture) = mounted() else { return };
    let dir = fixture.mount.dir();
    let file = File::open(dir.join("file")).unwrap();
    assert!(matches!(
        fixture.mount.unmount(UnmountMode::Clean),
        Err(MountError::Busy(_))
    ));
    assert!(is_mounted(dir));
    let users = users_of(dir);
    assert!(
        users.iter().any(|(pid, _)| *pid == std::process::id()),
        "{users:?}"
    );
    drop(file);

    let mut child = Command::new("sleep")
        .arg("60")
        .current_dir(dir)
        .spawn()
        .unwrap();
    wait_for_users(dir, &[(child.id(), "sleep".to_owned())]);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for_users(dir, &[]);
    fixture.mount.unmount(UnmountMode::Clean).unwrap();
}

/// Whether a connection cannot be aborted here, which is said: only root can without the kernel's
/// control file system.
fn cannot_cut_off() -> bool {
    let can = effective_uid() == 0
        || fs::read_dir("/sys/fs/fuse/connections")
            .is_ok_and(|mut entries| entries.next().is_some());
    if !can {
        skip("only root can abort a connection where fusectl is not mounted");
    }
    !can
}

#[test]
fn force_unmounts_what_is_in_use() {
    let Some(fixture) = mounted() else { return };
    if cannot_cut_off() {
        return;
    }
    let file = File::open(fixture.mount.dir().join("file")).unwrap();
    fixture.mount.unmount(UnmountMode::Force).unwrap();
    assert!(!is_mounted(fixture.mount.dir()));
    fixture.ended.recv_timeout(PATIENCE).unwrap();
    assert!(file.sync_all().is_err());
}

#[test]
fn force_cuts_off_who_waits_for_an_answer() {
    let Some(mut fixture) = mounted() else { return };
    if cannot_cut_off() {
        return;
    }
    let path = fixture.mount.dir().join("late");
    let waiting = std::thread::spawn(move || fs::metadata(path));
    fixture.late_asked.recv_timeout(PATIENCE).unwrap();
    let release = fixture.release_late.take();
    std::thread::scope(|scope| {
        let unmounting = scope.spawn(|| fixture.mount.unmount(UnmountMode::Force));
        assert!(waiting.join().unwrap().is_err());
        drop(release);
        unmounting.join().unwrap().unwrap();
    });
    assert!(!is_mounted(fixture.mount.dir()));
}

#[test]
fn a_panicking_thread_does_not_hang_its_caller() {
    let Some(fixture) = mounted() else { return };
    assert!(fs::metadata(fixture.mount.dir().join("panic")).is_err());
    // However the session took it, the mount still answers or is gone, and can be unmounted.
    let _ = fs::metadata(fixture.mount.dir().join("file"));
    fixture.mount.unmount(UnmountMode::Force).unwrap();
    fixture.ended.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let Some(fixture) = mounted() else { return };
    assert!(matches!(
        try_mount(fixture.mount.dir()),
        Err(MountError::AlreadyMounted(_))
    ));
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    assert!(matches!(
        try_mount(dir.path()),
        Err(MountError::NotEmpty(_))
    ));
    assert!(matches!(
        try_mount(&dir.path().join("file")),
        Err(MountError::NotEmpty(_))
    ));
    assert!(matches!(
        try_mount(&dir.path().join("file/below")),
        Err(MountError::NotEmpty(_))
    ));
}

#[test]
fn what_is_mounted_over_ours_is_left_alone() {
    if effective_uid() != 0 {
        // What is decided then is tested in `mount` without a mount.
        skip("only root can mount over a mount of ours");
        return;
    }
    let Some(fixture) = mounted() else { return };
    let dir = fixture.mount.dir();
    let other = device::mount(&options(dir), dir).unwrap();
    for mode in [UnmountMode::Clean, UnmountMode::Force] {
        assert!(matches!(
            fixture.mount.unmount(mode),
            Err(MountError::Busy(_))
        ));
    }
    assert_eq!(place::mounts_at(dir).unwrap().len(), 2);
    drop(other);
    device::unmount(dir, UnmountKind::Detach).unwrap();
    fixture.mount.unmount(UnmountMode::Clean).unwrap();
}

#[test]
fn a_dead_mount_is_detached_and_a_live_one_is_not() {
    let Some(fixture) = mounted() else { return };
    assert!(!detach_stale(fixture.mount.dir()).unwrap());
    assert!(is_mounted(fixture.mount.dir()));

    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    assert!(!detach_stale(&dir).unwrap());
    assert!(!detach_stale(&dir.join("missing")).unwrap());
    // A connection whose only descriptor is closed is what a killed daemon leaves.
    drop(device::mount(&options(&dir), &dir).unwrap());
    assert!(is_mounted(&dir));
    assert!(detach_stale(&dir).unwrap());
    assert!(!is_mounted(&dir));
}
