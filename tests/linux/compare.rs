//! Trying the same thing in a mount and in a directory of the host.

use std::ffi::{CString, OsStr};
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::statfs::{EXT4_SUPER_MAGIC, statfs};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use crate::support::{TestFork, TestRepo, fuse_missing, skip, wait_until};

/// How long a check may wait for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A directory with the files of [`TestRepo::new`], and what a check observed in it.
pub struct Place {
    dir: PathBuf,
    seen: Vec<(String, String)>,
}

/// What failed with an errno.
pub trait Code {
    fn code(&self) -> Errno;
}

impl Code for Errno {
    fn code(&self) -> Errno {
        *self
    }
}

impl Code for io::Error {
    fn code(&self) -> Errno {
        Errno::from_raw(
            self.raw_os_error()
                .unwrap_or_else(|| panic!("no errno: {self}")),
        )
    }
}

impl Place {
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// A new file with this content.
    #[track_caller]
    pub fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, content).expect("a file can be made");
        path
    }

    /// Opens for reading and writing, making the file where it is missing.
    #[track_caller]
    pub fn open(&self, name: impl AsRef<Path>) -> File {
        open_with(&self.at(name), 0).expect("a file can be opened")
    }

    /// Something that was observed. `what` is unique in its check.
    #[track_caller]
    pub fn note(&mut self, what: impl Into<String>, seen: impl Debug) {
        let what = what.into();
        assert!(
            self.seen.iter().all(|(known, _)| *known != what),
            "{what:?} twice"
        );
        self.seen.push((what, format!("{seen:?}")));
    }

    /// As [`Place::note`]: the value, or the name of the errno.
    #[track_caller]
    pub fn result<T: Debug, E: Code>(&mut self, what: impl Into<String>, result: Result<T, E>) {
        match result {
            Ok(value) => self.note(what, value),
            Err(error) => self.note(what, error.code()),
        }
    }

    /// As [`Place::result`], where the value does not matter.
    #[track_caller]
    pub fn outcome<T, E: Code>(&mut self, what: impl Into<String>, result: Result<T, E>) {
        self.result(what, result.map(|_| ()));
    }
}

/// What is observed on a mount otherwise than on ext4: what it is, how it is on the mount, how on
/// ext4.
pub type Difference = (&'static str, &'static str, &'static str);

/// Runs `check` in a fork's mount and in a checkout on the host's ext4. It must observe the same,
/// except for `differences`, all of which must show.
#[track_caller]
pub fn compare(test: &str, differences: &[Difference], check: impl Fn(&mut Place)) {
    compare_with(test, differences, |_, place| check(place));
}

/// As [`compare`]; the check is given the fork where it runs in one.
#[track_caller]
pub fn compare_with(
    test: &str,
    differences: &[Difference],
    check: impl Fn(Option<&TestFork>, &mut Place),
) {
    if let Some(reason) = fuse_missing() {
        return skip(test, &reason);
    }
    let repo = TestRepo::new();
    if !statfs(repo.root()).is_ok_and(|figures| figures.filesystem_type() == EXT4_SUPER_MAGIC) {
        return skip(test, "the host's file system is not ext4");
    }
    let fork = TestFork::mounted(&repo, "one");
    let run = |fork: Option<&TestFork>, dir: &Path| {
        let mut place = Place {
            dir: dir.to_owned(),
            seen: Vec::new(),
        };
        check(fork, &mut place);
        place.seen
    };
    let host = run(None, &repo.git_checkout_of("HEAD", "host"));
    let mount = run(Some(&fork), fork.path());
    let names = |seen: &[(String, String)]| {
        seen.iter()
            .map(|(what, _)| what.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&mount),
        names(&host),
        "the check does not do the same twice"
    );
    let found: Vec<(&str, &str, &str)> = mount
        .iter()
        .zip(&host)
        .filter(|((_, ours), (_, theirs))| ours != theirs)
        .map(|((what, ours), (_, theirs))| (what.as_str(), ours.as_str(), theirs.as_str()))
        .collect();
    assert_eq!(found, differences, "(what, on the mount, on ext4)");
}

/// Opens for reading and writing with more flags, making the file where it is missing.
pub fn open_with(path: &Path, flags: libc::c_int) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
}

pub fn c_path(path: impl AsRef<OsStr>) -> CString {
    CString::new(path.as_ref().as_bytes()).expect("a test's path holds no NUL")
}

/// A system call's result: what is negative is an errno.
pub fn checked<T: Into<i64>>(result: T) -> Result<i64, Errno> {
    match result.into() {
        result if result < 0 => Err(Errno::last()),
        result => Ok(result),
    }
}

/// A process of its own, killed when it is dropped.
pub struct Child {
    pid: Pid,
    over: bool,
}

impl Child {
    /// Runs `work` in a child process; what it answers is the exit code. A panic is exit code 101.
    pub fn start(work: impl FnOnce() -> i32) -> Child {
        // SAFETY: glibc keeps its own locks usable in the child, and `work` takes none that a
        // test's other threads hold.
        match unsafe { nix::unistd::fork() }.expect("a process can be made") {
            ForkResult::Parent { child } => Child {
                pid: child,
                over: false,
            },
            ForkResult::Child => {
                let code =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(101);
                // SAFETY: ends the process without running anything of the parent's.
                unsafe { libc::_exit(code) }
            }
        }
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid, signal).expect("the child was not waited for");
    }

    /// Waits for its end: the exit code, or the signal that ended it.
    pub fn end(mut self) -> Result<i32, Signal> {
        self.over = true;
        match waitpid(self.pid, None).expect("it is a child of this process") {
            WaitStatus::Exited(_, code) => Ok(code),
            WaitStatus::Signaled(_, signal, _) => Err(signal),
            status => panic!("{status:?}"),
        }
    }

    /// Waits until it sleeps.
    pub fn wait_until_asleep(&self) {
        let stat = format!("/proc/{}/stat", self.pid);
        wait_until("the child waits", PATIENCE, || {
            let stat = fs::read_to_string(&stat).expect("the child was not waited for");
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('S'))
        });
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.over {
            // Both fail only for a child that is no more.
            let _ = nix::sys::signal::kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// Runs `work` in a process of its own to its end.
pub fn in_child(work: impl FnOnce() -> i32) -> Result<i32, Signal> {
    Child::start(work).end()
}

/// As [`in_child`], for a system call: its errno, or 0.
pub fn errno_in_child(work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    match in_child(|| work().err().map_or(0, |errno| errno as i32)) {
        Ok(0) => Ok(()),
        Ok(errno) => Err(Errno::from_raw(errno)),
        Err(signal) => panic!("the child was ended by {signal}"),
    }
}

/// A pipe's two ends.
pub fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe().expect("a pipe can be made")
}

/// The bytes of a file, told briefly: each run with its length.
pub fn runs(path: &Path) -> Vec<(u8, usize)> {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for byte in fs::read(path).unwrap() {
        match runs.last_mut() {
            Some((last, len)) if *last == byte => *len += 1,
            _ => runs.push((byte, 1)),
        }
    }
    runs
}
