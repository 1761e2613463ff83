//! A disk that is recorded and that fails when told to, built from what every Linux has.
//!
//! ```text
//! program ─► the mount of a fork ─► tine ─► ext4 ─► loop device ─► <dir>/served/disk.img ─► <dir>/disk.img, <dir>/writes
//!                                                                  a tiny FUSE file system, served by a child process
//! ```
//!
//! The child is the test binary itself, run again ([`server`]): whoever waits for a mount must not
//! be the one who serves it. Everything is mounted in a mount namespace of the test's own
//! ([`in_private_mounts`]), which takes all of it along when its last process ends.

mod recording;
mod server;

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::fuse::remove_guards_beneath;
use super::{
    OutputExt, has_program, path_text, process, run_with_timeout, run_with_timeout_of, wait_until,
};
pub use recording::{Recording, Replayed};
pub use server::{Fault, What, serve_if_asked};

/// How long mounting and unmounting may take, with all that waits to be written.
const LIMIT: Duration = Duration::from_secs(30);

/// Why such disks cannot be made here; `None` where they can.
pub fn disks_missing() -> Option<String> {
    if let Some(reason) = super::fuse_missing() {
        return Some(reason);
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("there are no loop devices".into());
    }
    if !super::is_root() {
        return Some("only root can mount disks".into());
    }
    ["mkfs.ext4", "filefrag", "mount", "umount"]
        .into_iter()
        .find(|program| !has_program(program))
        .map(|program| format!("{program} is not installed"))
}

/// Runs `test` in a thread that has a mount namespace of its own, with whatever it starts. Nothing
/// that is mounted there is seen outside, and all of it goes with the last process there.
pub fn in_private_mounts(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let outcome = scope
            .spawn(|| {
                // SAFETY: unshare(2) touches no memory of this process; the namespace is this
                // thread's alone.
                let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
                assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
                run(Command::new("mount").args(["--make-rprivate", "/"]));
                test();
            })
            .join();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Makes this namespace's kernel look like another run of it, as after a power failure: the store
/// tells by the boot id what may be left of unsynced writes. `dir` holds the file that takes the
/// kernel's place.
pub fn pretend_reboot(dir: &Path) {
    const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("/proc is mounted");
    let file = dir.join("boot_id");
    let is_bound = file.exists();
    fs::write(&file, uuid).expect("the directory can be written");
    if !is_bound {
        run(Command::new("mount")
            .arg("--bind")
            .args([&file, Path::new(BOOT_ID)]));
    }
}

/// The kinds of file systems that disks are tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    /// What this file system relies on disks to write whole, in bytes. xfs takes a block whose
    /// beginning is new for new.
    fn sector(self) -> usize {
        match self {
            Kind::Ext4 | Kind::Btrfs => 512,
            Kind::Xfs => 4096,
        }
    }

    pub fn can_be_made(self) -> bool {
        has_program(&format!("mkfs.{}", self.name()))
    }

    /// Makes an empty file system in the new file `image`; with as many as `inodes` files where
    /// that is given (ext4).
    pub fn format(self, image: &Path, mebibytes: u64, inodes: Option<u32>) {
        let file = File::create_new(image).expect("the image is new");
        file.set_len(mebibytes << 20).expect("the image is sparse");
        let mut mkfs = Command::new(format!("mkfs.{}", self.name()));
        mkfs.arg("-q");
        match self {
            Kind::Ext4 => {
                // A small journal, which comes round often; nothing left to be written later by the
                // kernel.
                mkfs.args(["-b", "4096", "-J", "size=4"]);
                mkfs.args(["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]);
                if let Some(inodes) = inodes {
                    mkfs.args(["-N", &inodes.to_string()]);
                }
            }
            Kind::Xfs | Kind::Btrfs => {
                mkfs.arg("-K");
            }
        }
        run(mkfs.arg(image));
    }
}

/// Mounts the file system in `image` at `dir` through a loop device that goes with the mount.
pub fn mount_image(image: &Path, dir: &Path) {
    run(Command::new("mount").args(["-o", "loop", path_text(image), path_text(dir)]));
}

/// Unmounts `dir` and waits until it is gone, with all that waits to be written, and until nobody
/// uses it: git looks after a repository in the background when it has committed.
pub fn unmount(dir: &Path) {
    remove_guards_beneath(dir);
    wait_until("nobody uses the disk", LIMIT, || {
        let output = run_with_timeout_of(Command::new("umount").arg(dir), LIMIT, b"");
        let is_busy = !output.status.success() && output.error_text().contains("busy");
        if !is_busy {
            output.expect_success("umount");
        }
        !is_busy
    });
}

/// Mounts a file system in memory at the new directory `dir`: what is kept there is no disk's work.
pub fn mount_memory(dir: &Path) {
    fs::create_dir(dir).expect("the directory is new");
    run(Command::new("mount").args([
        "-t",
        "tmpfs",
        "-o",
        "mode=0755",
        "tine-test",
        path_text(dir),
    ]));
}

#[track_caller]
fn run(command: &mut Command) {
    let what = format!("{command:?}");
    run_with_timeout_of(command, LIMIT, b"").expect_success(&what);
}

/// A file system in use on a disk that is recorded. Dropping it ends the disk, whatever waits for
/// it.
pub struct Disk {
    kind: Kind,
    dir: PathBuf,
    mount_dir: PathBuf,
    server: Child,
}

impl Disk {
    /// Makes a disk with an empty file system, kept in the directory `dir`, and mounts it at
    /// `mount_dir`.
    pub fn start(kind: Kind, mebibytes: u64, dir: &Path, mount_dir: &Path) -> Disk {
        let image = dir.join(server::IMAGE);
        kind.format(&image, mebibytes, None);
        recording::copy_image(&image, &dir.join(recording::START_IMAGE));
        let served = dir.join(server::SERVED);
        fs::create_dir(&served).expect("the directory is new");
        let mut server = server::command(dir);
        let server = server
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the test binary can be run again");
        let disk = Disk {
            kind,
            dir: dir.to_owned(),
            mount_dir: mount_dir.to_owned(),
            server,
        };
        let served_image = served.join(server::IMAGE);
        wait_until("the disk is served", LIMIT, || served_image.exists());
        mount_image(&served_image, mount_dir);
        disk
    }

    /// How much has been recorded by now. What was durable before this call is in the recording up
    /// to there.
    pub fn position(&self) -> u64 {
        let log = fs::metadata(self.dir.join(server::WRITES)).expect("the recording is there");
        log.len()
    }

    /// Makes operations fail from now on; replaces what was said before for the same kind of
    /// operation.
    pub fn fail(&self, fault: Fault) {
        self.control(&fault.encode());
    }

    /// Makes the disk well again.
    pub fn heal(&self) {
        self.control("heal");
    }

    /// Whether a fault has struck since the last time it was asked for.
    pub fn has_failed(&self) -> bool {
        let failures = fs::read(self.dir.join("failures")).unwrap_or_default();
        fs::write(self.dir.join("failures"), b"").expect("the directory can be written");
        !failures.is_empty()
    }

    fn control(&self, text: &str) {
        let path = self.dir.join(server::SERVED).join(server::CONTROL);
        let mut tell = Command::new("tee");
        run_with_timeout_of(tell.arg(path), LIMIT, text.as_bytes())
            .expect_success("telling the disk");
    }

    /// Unmounts the file system and mounts it again, with nothing of it in memory.
    pub fn remount(&self) {
        unmount(&self.mount_dir);
        mount_image(
            &self.dir.join(server::SERVED).join(server::IMAGE),
            &self.mount_dir,
        );
    }

    /// Unmounts the file system and ends the disk; what was recorded.
    pub fn finish(self) -> Recording {
        unmount(&self.mount_dir);
        Recording::open(&self.dir, self.kind.sector())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // First the one who answers: whoever waits for the disk gets an error then.
        process::kill(self.server.id());
        let _ = self.server.wait();
        for dir in [self.mount_dir.clone(), self.dir.join(server::SERVED)] {
            let path = CString::new(dir.as_os_str().as_bytes()).expect("a path holds no NUL");
            // SAFETY: `path` is a NUL-terminated string that outlives the call.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

/// Where the contents of a file lie on its disk: ranges of bytes.
pub fn extents_of(file: &Path) -> Vec<(u64, u64)> {
    let output = run_with_timeout(Command::new("filefrag").args(["-e", "-b1"]).arg(file))
        .expect_success("filefrag");
    // ext: logical_offset: physical_offset: length: …
    output
        .text()
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(':').map(str::trim).collect();
            fields.first()?.parse::<u32>().ok()?;
            let start = fields.get(2)?.split("..").next()?.trim().parse().ok()?;
            let len: u64 = fields.get(3)?.parse().ok()?;
            Some((start, len))
        })
        .map(|(start, len): (u64, u64)| (start, start + len))
        .collect()
}

/// Lets go of what the kernel holds of a file in memory, so that reading it asks the disk.
pub fn forget_cached(file: &Path) {
    use std::os::fd::AsRawFd;
    let file = File::open(file).expect("the file is there");
    file.sync_all().expect("the file can be synced");
    // SAFETY: the descriptor is open while `file` lives; no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}
