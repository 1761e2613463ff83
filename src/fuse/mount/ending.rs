//! Unmounting, aborting connections, and detecting dead mounts.
//!
//! The functions never unmount another program's mount at the same place.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use log::warn;

use super::{FuseMount, run_with_timeout};
use crate::control::Control;
use crate::device;
use crate::error::MountError;
use crate::place::{self, FS_TYPE, MountedAt};
use crate::users;
use tine_sys::mount::{self as sys, UnmountKind};

/// Time for which a clean unmount of a busy mount is retried.
///
/// Git's detached maintenance, which runs in the mount after a commit, ends in this time.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// Time for a session to end after it is unmounted.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Time for programs to finish before a forced unmount aborts their requests.
const FORCE_PATIENCE: Duration = Duration::from_secs(2);
/// Time for a connection to end after its daemon was killed.
const DEATH_PATIENCE: Duration = Duration::from_secs(1);
/// Time for a mount that may be dead to answer.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// Treatment of programs that use a mount when it is unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    /// Fail while programs use the mount.
    Clean,
    /// Detach the mount at once; programs that use it get errors.
    Force,
}

impl FuseMount {
    /// Unmounts and waits until the session has ended.
    ///
    /// No-op if it has ended already. Never unmounts another mount. Blocks for some seconds at
    /// most.
    ///
    /// # Errors
    /// [`MountError::Busy`] if another mount covers this one or, with [`UnmountMode::Clean`],
    /// programs use it. [`MountError::Detached`] if the session does not end in time.
    pub fn unmount(&self, mode: UnmountMode) -> Result<(), MountError> {
        if self.shared.wait_until_over(Duration::ZERO) {
            return Ok(());
        }
        match mode {
            UnmountMode::Clean => self.unmount_clean(),
            UnmountMode::Force => self.unmount_force(),
        }
    }

    /// Unmounts unless programs use the mount.
    fn unmount_clean(&self) -> Result<(), MountError> {
        let control = Control::of(&self.place);
        let found = self.take_down_when_unused()?;
        if found == Visibility::Gone {
            // Another program detached it (`umount -l`), and it may still have users.
            return if self.shared.wait_until_over(END_PATIENCE) {
                Ok(())
            } else {
                Err(self.busy())
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

    /// Detaches the mount and aborts its connection.
    fn unmount_force(&self) -> Result<(), MountError> {
        if visibility(&self.place)? == Visibility::OnTop {
            write_back(self.dir());
        }
        // If the connection can still be aborted after detaching, programs get a moment to finish.
        let control = Control::of(&self.place);
        let how = match control {
            Some(_) => UnmountKind::Detach,
            None => UnmountKind::Abort,
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

    /// Unmounts as soon as the mount is unused.
    ///
    /// Fails after [`BUSY_PATIENCE`]. Most uses are short: a program that is ending, a prompt that
    /// reads the directory, a child between fork and exec. Their end causes no event, so this
    /// polls.
    fn take_down_when_unused(&self) -> Result<Visibility, MountError> {
        let deadline = Instant::now() + BUSY_PATIENCE;
        loop {
            // The kernel counts users of this mount only, not those of its copies in other
            // namespaces.
            let taken_down = if users::is_used_elsewhere(&self.place) {
                Err(self.busy())
            } else {
                self.take_down(UnmountKind::IfUnused)
            };
            match taken_down {
                Err(MountError::Busy(_)) if Instant::now() < deadline => {
                    thread::sleep(BUSY_INTERVAL)
                }
                result => return result,
            }
        }
    }

    /// Unmounts the mount if it is on top.
    ///
    /// Returns how it was found.
    fn take_down(&self, how: UnmountKind) -> Result<Visibility, MountError> {
        let found = visibility(&self.place)?;
        match found {
            Visibility::OnTop => {}
            Visibility::Covered => return Err(self.busy()),
            Visibility::Gone => return Ok(found),
        }
        match device::unmount(self.dir(), how) {
            Ok(()) => Ok(found),
            // Another program unmounted it first.
            Err(_) if visibility(&self.place)? == Visibility::Gone => Ok(found),
            Err(error) => Err(error),
        }
    }

    /// Aborts the connection.
    fn cut_off(&self, control: &Control) -> Result<(), MountError> {
        control
            .abort()
            .map_err(MountError::io("cut off the mount at", self.dir()))
    }

    /// Waits until the session has ended, at most for [`END_PATIENCE`].
    fn wait_until_ended(&self) -> Result<(), MountError> {
        if self.shared.wait_until_over(END_PATIENCE) {
            Ok(())
        } else {
            Err(MountError::Detached(self.dir().to_owned()))
        }
    }

    fn busy(&self) -> MountError {
        MountError::Busy(self.dir().to_owned())
    }
}

/// Position of a mount at its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    /// Accesses to the directory reach the mount.
    OnTop,
    /// Another file system is mounted over it.
    Covered,
    /// It is not mounted at the directory any more.
    Gone,
}

/// Looks up the position of our mount at its directory.
fn visibility(ours: &MountedAt) -> Result<Visibility, MountError> {
    let mounts =
        place::mounts_at(&ours.dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
    Ok(visibility_among(ours, &mounts))
}

/// Finds our mount among `mounts`: those at the directory, lowest first.
fn visibility_among(ours: &MountedAt, mounts: &[MountedAt]) -> Visibility {
    let is_ours =
        |mount: &MountedAt| mount.mount_id == ours.mount_id && mount.device == ours.device;
    match mounts.iter().rposition(is_ours) {
        Some(position) if position + 1 == mounts.len() => Visibility::OnTop,
        Some(_) => Visibility::Covered,
        None => Visibility::Gone,
    }
}

/// Detaches a mount that could not be served.
pub(super) fn undo(mount: &MountedAt) {
    let undone = match visibility(mount) {
        Ok(Visibility::OnTop) => device::unmount(&mount.dir, UnmountKind::Detach),
        Ok(Visibility::Covered | Visibility::Gone) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = undone {
        warn!("{error}");
    }
}

/// Aborts a connection even if it has users, if possible.
pub(super) fn abort(mount: &MountedAt) -> Result<(), MountError> {
    abort_if(mount, || true)
}

/// Aborts a connection if `is_meant` returns true.
///
/// `is_meant` is called when only this very connection can be hit.
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
        Visibility::OnTop => device::unmount(&mount.dir, UnmountKind::Abort),
        // It dies with the last program that uses it.
        Visibility::Covered | Visibility::Gone => Ok(()),
    }
}

/// Writes back pages that programs changed through shared mappings.
///
/// Gives up after [`END_PATIENCE`].
fn write_back(dir: &Path) {
    let dir = dir.to_owned();
    let written = run_with_timeout(END_PATIENCE, "tine-write-back", move || {
        fs::File::open(&dir).and_then(|dir| tine_sys::file::sync_fs(&dir))
    });
    if let Ok(Err(error)) | Err(error) = written {
        warn!("not all mapped pages could be written before unmounting: {error}");
    }
}

/// Detaches a dead FUSE mount at `dir`, if there is one.
///
/// A mount is dead if its daemon is gone. Returns whether one was detached. Considers mounts of
/// tine only; a mount that does not answer in time counts as alive. Blocks meanwhile.
///
/// # Errors
/// [`MountError::Io`] if the mounts cannot be listed, and the errors of unmounting.
pub fn detach_stale(dir: &Path) -> Result<bool, MountError> {
    let dir = match place::resolve(dir) {
        Ok(dir) => dir,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(MountError::io("find", dir)(error)),
    };
    let mut detached = false;
    loop {
        let mounts =
            place::mounts_at(&dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
        let is_ours = mounts.last().is_some_and(|mount| mount.fs_type == FS_TYPE);
        if !is_ours || !is_dead(&dir) {
            return Ok(detached);
        }
        device::unmount(&dir, UnmountKind::Detach)?;
        detached = true;
    }
}

/// Aborts the connection of tine's mount at `dir`.
///
/// It may have users. The mount stays, dead. `is_meant` is asked last, whether the mount that is at
/// `dir` by then is the intended one. No-op if there is none.
///
/// # Errors
/// [`MountError::Io`] if the mounts cannot be listed or the connection cannot be aborted.
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

/// Returns whether the mount at `dir` has lost its daemon.
///
/// A mount that does not answer in time counts as alive.
fn is_dead(dir: &Path) -> bool {
    has_lost_daemon(|| {
        let dir = dir.to_owned();
        match run_with_timeout(PROBE_PATIENCE, "tine-probe", move || sys::probe(&dir)) {
            Ok(answer) => answer,
            Err(_) => Ok(()),
        }
    })
}

/// Determines by calls of `ask` whether a mount has lost its daemon.
///
/// `ask` sends the mount a request that the daemon must answer. A request that the daemon held when
/// it was killed fails with another error, before the connection ends. After such an error, `ask`
/// is called again, for up to a second.
pub fn has_lost_daemon(ask: impl Fn() -> io::Result<()>) -> bool {
    let deadline = Instant::now() + DEATH_PATIENCE;
    loop {
        match ask().map_err(|error| error.raw_os_error()) {
            Err(Some(libc::ENOTCONN | libc::ECONNABORTED)) => return true,
            // `ECANCELED` comes over io_uring.
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
            asked(&[
                Some(libc::EFAULT),
                Some(libc::ECANCELED),
                Some(libc::ENOTCONN)
            ]),
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
