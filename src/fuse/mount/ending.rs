//! Unmounting, cutting off, and finding out what is dead; never what somebody else mounted at the
//! same place.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use log::warn;

use super::{FuseMount, MountError, within};
use crate::control::Control;
use crate::device;
use crate::place::{self, FS_TYPE, MountedAt};
use crate::users;
use tine_sys::mount::{self as sys, UnmountHow};

/// How long, and how often, a mount in use is tried again before it counts as busy: git's detached
/// maintenance, which stands in the mount after a commit there, is over by then.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// How long a session may take to end once it is unmounted.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long programs that use a mount may finish what they are at before a forced unmount cuts them
/// off.
const FORCE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a connection may take to end when its daemon was killed.
const DEATH_PATIENCE: Duration = Duration::from_secs(1);
/// How long a mount that may be dead is given to answer.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// How hard to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountMode {
    /// Refused while programs use the mount.
    Clean,
    /// Detached at once; programs that use it get errors.
    Force,
}

impl FuseMount {
    /// Unmounts and waits until the session has ended. Does nothing if it has ended already. Never
    /// unmounts anything but this mount: [`MountError::Busy`] if something else is mounted over it.
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
        // Programs get a moment to finish what they are at, if they can be cut off once it is
        // detached.
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

    /// Most uses are short: a program that ends, a prompt that looks at the directory, a child
    /// between fork and exec. There is no event for their end.
    fn take_down_when_unused(&self) -> Result<Visibility, MountError> {
        let deadline = Instant::now() + BUSY_PATIENCE;
        loop {
            // The kernel counts who uses the mount here, and not its copies.
            let taken_down = match users::is_used_elsewhere(&self.place) {
                true => Err(self.busy()),
                false => self.take_down(UnmountHow::IfUnused),
            };
            match taken_down {
                Err(MountError::Busy(_)) if Instant::now() < deadline => {
                    thread::sleep(BUSY_INTERVAL)
                }
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
    let mounts =
        place::mounts_at(&ours.dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
    Ok(visibility_among(ours, &mounts))
}

/// `mounts` are those at the directory, lowest first.
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
        Ok(Visibility::OnTop) => device::unmount(&mount.dir, UnmountHow::Detach),
        Ok(Visibility::Covered | Visibility::Gone) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = undone {
        warn!("{error}");
    }
}

/// Ends a connection without regard for who uses it, as far as there is a way to.
pub(super) fn abort(mount: &MountedAt) -> Result<(), MountError> {
    abort_if(mount, || true)
}

/// As [`abort`], if `is_meant` says so, which is asked when nothing but this very connection can be
/// hit any more.
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
        let mounts =
            place::mounts_at(&dir).map_err(MountError::io("read", "/proc/self/mountinfo"))?;
        let is_ours = mounts.last().is_some_and(|mount| mount.fs_type == FS_TYPE);
        if !is_ours || !is_dead(&dir) {
            return Ok(detached);
        }
        device::unmount(&dir, UnmountHow::Detach)?;
        detached = true;
    }
}

/// Ends the connection of tine's mount at `dir`, if there is one, whoever uses it. The mount stays,
/// dead. `is_meant` has the last word: whether whatever is mounted there at that moment is what is
/// to be cut off.
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

/// Whether the mount at `dir` has lost its daemon. One that does not answer in time counts as
/// alive.
fn is_dead(dir: &Path) -> bool {
    has_lost_daemon(|| {
        let dir = dir.to_owned();
        match within(PROBE_PATIENCE, "tine-probe", move || sys::probe(&dir)) {
            Ok(answer) => answer,
            Err(_) => Ok(()),
        }
    })
}

/// Whether `ask`, which asks a mount something that its daemon has to answer, finds the daemon
/// gone.
///
/// A request that a daemon had while it was killed ends with an error of another kind, before the
/// connection does: then the next one tells.
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
