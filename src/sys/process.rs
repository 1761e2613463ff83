//! Processes, credentials and users.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};

/// Credentials of the peer of a Unix socket at connection time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process ID; 0 for a process of an unrelated PID namespace.
    pub pid: u32,
    /// Effective user ID.
    pub uid: u32,
    /// Effective group ID.
    pub gid: u32,
}

/// Returns the credentials of the peer of `stream` (`SO_PEERCRED`).
///
/// # Errors
/// The error of `getsockopt(2)`.
pub fn peer_credentials(stream: &UnixStream) -> io::Result<PeerCredentials> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // rustix has this call, but its process ID cannot be 0. // SAFETY: the descriptor is open for
    // the life of `stream`, and the kernel writes at most `len` bytes, which is the size of the
    // structure.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerCredentials {
        pid: u32::try_from(credentials.pid).unwrap_or(0),
        uid: credentials.uid,
        gid: credentials.gid,
    })
}

/// Waits until `stream` has data to read or its end.
///
/// Reads nothing. Returns false after `patience`; `None` waits without a limit.
///
/// # Errors
/// The error of `ppoll(2)`.
pub fn wait_until_readable(stream: &UnixStream, patience: Option<Duration>) -> io::Result<bool> {
    let deadline = patience.map(|patience| Instant::now() + patience);
    let ready = retry_on_intr(|| {
        // A timeout with more seconds than the kernel can count is unlimited.
        let timeout = deadline.and_then(|deadline| {
            Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok()
        });
        let mut polled = [PollFd::new(stream, PollFlags::IN)];
        rustix::event::poll(&mut polled, timeout.as_ref())
    })?;
    Ok(ready > 0)
}

/// Kills another process (`SIGKILL`).
///
/// # Errors
/// `EPERM` without the right to do so; `InvalidInput` for an invalid ID. A process that has ended
/// is not an error.
pub fn kill(pid: u32) -> io::Result<()> {
    ok_if_gone(rustix::process::kill_process(positive(pid)?, Signal::KILL))
}

/// Kills a process group (`SIGKILL`), named by its leader.
///
/// # Errors
/// As in [`kill`].
pub fn kill_group(leader: u32) -> io::Result<()> {
    ok_if_gone(rustix::process::kill_process_group(
        positive(leader)?,
        Signal::KILL,
    ))
}

/// Asks a process group to end (`SIGTERM`), named by its leader.
///
/// # Errors
/// As in [`kill`].
pub fn end_group(leader: u32) -> io::Result<()> {
    ok_if_gone(rustix::process::kill_process_group(
        positive(leader)?,
        Signal::TERM,
    ))
}

/// Waits until a child has ended, without reaping it.
///
/// Until it is reaped, its ID cannot mean another process.
///
/// # Errors
/// `ECHILD` if it is not an unreaped child of this process; `InvalidInput` for an invalid ID.
pub fn await_end(child: u32) -> io::Result<()> {
    let child = positive(child)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    retry_on_intr(|| rustix::process::waitid(WaitId::Pid(child), options))?;
    Ok(())
}

/// Converts a process ID, which must be a positive `i32`.
fn positive(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    Ok(pid.ok_or(io::ErrorKind::InvalidInput)?)
}

/// Treats a process that does not exist as signalled.
fn ok_if_gone(signalled: Result<(), Errno>) -> io::Result<()> {
    match signalled {
        Err(Errno::SRCH) => Ok(()),
        signalled => Ok(signalled?),
    }
}

/// Returns whether the main thread of a process has ended.
///
/// Other threads may go on. A killed process looks like this while one of its threads waits in the
/// kernel. False if the process does not exist or is hidden.
pub fn main_thread_has_ended(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.has_ended())
}

/// Returns whether a signal such as SIGSTOP has stopped a process.
///
/// False if a debugger holds the process, if it does not exist, or if it is hidden.
pub fn is_stopped(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.state == b'T')
}

/// Returns whether the process exists and has not ended.
pub fn is_running(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| !stat.has_ended())
}

/// Returns whether a process only waits for a child to end.
///
/// False if the kernel does not report it.
pub fn is_waiting_for_child(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/wchan")).is_ok_and(|place| place == b"do_wait")
}

/// Identity of a process, also if its process ID is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pid: u32,
    /// Start of the process, in clock ticks since boot.
    start: u64,
}

impl ProcessId {
    /// Returns the process with the ID `pid`.
    ///
    /// `None` if it does not exist or is hidden.
    pub fn of(pid: u32) -> Option<ProcessId> {
        let stat = Stat::of(pid)?;
        Some(ProcessId {
            pid,
            start: stat.start,
        })
    }

    /// Returns all processes whose directory in `/proc` satisfies `is_wanted`.
    pub fn all_where(is_wanted: impl Fn(&Path) -> bool) -> Vec<ProcessId> {
        let dirs = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        dirs.filter_map(|dir| {
            let pid = dir.file_name().to_str()?.parse().ok()?;
            let dir = dir.path();
            // Checked again after the identity is known: another process may have the ID by then.
            is_wanted(&dir)
                .then(|| ProcessId::of(pid))
                .flatten()
                .filter(|_| is_wanted(&dir))
        })
        .collect()
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns whether the process exists and has not ended.
    pub fn is_running(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start == self.start && !stat.has_ended())
    }
}

/// Fields of `/proc/<pid>/stat`, see proc_pid_stat(5).
struct Stat {
    /// State letter, for instance `R`, `T` or `Z`.
    state: u8,
    /// Start of the process, in clock ticks since boot.
    start: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The fields follow the command name in parentheses, which may hold any byte.
        let command_end = stat.iter().rposition(|&byte| byte == b')')?;
        let fields = std::str::from_utf8(stat.get(command_end + 1..)?).ok()?;
        // The state is field 3, the start is field 22.
        let mut fields = fields.split_ascii_whitespace();
        Some(Stat {
            state: *fields.next()?.as_bytes().first()?,
            start: fields.nth(18)?.parse().ok()?,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Returns the effective user ID of this process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the effective group ID of this process.
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns the supplementary group IDs of a thread of any process.
///
/// # Errors
/// `NotFound` if the thread does not exist or is hidden.
pub fn supplementary_groups(thread: u32) -> io::Result<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    Ok(line
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|group| group.parse().ok())
        .collect())
}

/// Moves this process into the background.
///
/// The call returns in a child process, which has a new session, no controlling terminal and the
/// working directory `/`. The calling process exits with code 0. The descriptors stay as they are.
///
/// # Errors
/// An error of the kind `Other` if the process has more than one thread, as the child would lack
/// the others. The error of `fork(2)` or `setsid(2)`.
pub fn daemonise() -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "{threads} threads run, and only one would go on"
        )));
    }
    // SAFETY: this process has one thread, so no thread that the child lacks holds a lock.
    let result = unsafe { libc::daemon(0, 1) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a program inherit only the three standard descriptors.
///
/// Other descriptors would keep a pipe from closing, or a directory or mount in use. Has no effect
/// on kernels before 5.11.
pub fn inherit_standard_streams_only(command: &mut Command) {
    let mark = || {
        let _ = close_from_3(CloseRange::OnExec);
        Ok(())
    };
    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(mark) };
}

/// Gives the calling thread a descriptor table with only the standard descriptors.
///
/// The descriptors of the process stay open. This thread must not use or close descriptors that
/// were opened before.
///
/// # Errors
/// `ENOSYS` on kernels before 5.9.
pub fn leave_descriptors() -> io::Result<()> {
    close_from_3(CloseRange::OwnCopies)
}

/// Descriptor table that [`close_from_3`] changes.
#[derive(Clone, Copy)]
enum CloseRange {
    /// The table after `exec`.
    OnExec,
    /// A new table for the calling thread.
    OwnCopies,
}

/// Closes all descriptors except the three standard ones (`close_range(2)`).
///
/// rustix lacks the call. Async-signal-safe, so it may run between fork and exec.
fn close_from_3(which: CloseRange) -> io::Result<()> {
    let flag = match which {
        CloseRange::OnExec => libc::CLOSE_RANGE_CLOEXEC,
        CloseRange::OwnCopies => libc::CLOSE_RANGE_UNSHARE,
    };
    let (first, last): (libc::c_uint, _) = (3, libc::c_uint::MAX);
    // SAFETY: close_range(2) takes three numbers and touches no memory. With either flag it closes
    // no descriptor of another thread.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flag) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Returns the number of files that this process may have open.
///
/// # Errors
/// None at present.
pub fn open_files_limit() -> io::Result<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Ok(limit.current.unwrap_or(u64::MAX))
}

/// Raises the limit of open files to the hard limit.
///
/// Returns the new limit.
///
/// # Errors
/// The error of `setrlimit(2)`.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, limit)?;
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Redirects standard output to standard error.
///
/// A reader of the old standard output sees its end.
///
/// # Errors
/// The error of `dup2(2)`.
pub fn redirect_stdout_to_stderr() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdout(io::stderr())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_leaves_the_descriptors_closes_none_of_the_others() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let fd = file.as_raw_fd();
        let is_open_in_the_thread = std::thread::spawn(move || {
            leave_descriptors().unwrap();
            // SAFETY: fcntl(2) with this command takes a number and touches no memory.
            unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
        });
        assert!(!is_open_in_the_thread.join().unwrap());
        file.metadata().unwrap();
    }

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = peer_credentials(&one).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, effective_uid());
        assert_eq!(peer.gid, effective_gid());
    }

    #[test]
    fn a_process_that_ended_is_told_from_one_that_runs() {
        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        assert!(!main_thread_has_ended(child.id()));
        kill(child.id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !main_thread_has_ended(child.id()) {
            assert!(Instant::now() < deadline, "nobody waited for it: it stays");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(
            !main_thread_has_ended(0),
            "what SO_PEERCRED says of a process that cannot be seen"
        );
    }

    #[test]
    fn waiting_for_something_to_read_reads_nothing() {
        use std::io::{Read, Write};
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(b"x").unwrap();
        assert!(wait_until_readable(&other, None).unwrap());
        drop(one);
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert!(wait_until_readable(&other, None).unwrap());
        let (silent, _other) = UnixStream::pair().unwrap();
        assert!(!wait_until_readable(&silent, Some(Duration::from_millis(1))).unwrap());
    }

    #[test]
    fn descriptors_that_lack_close_on_exec_are_not_inherited() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the descriptor is open while `file` lives; F_DUPFD makes a new one that nobody
        // else knows.
        let leaky = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 100) };
        assert!(leaky >= 100);
        let is_inherited = |prepare: fn(&mut Command)| {
            let mut command = Command::new("test");
            command.arg("-e").arg(format!("/proc/self/fd/{leaky}"));
            prepare(&mut command);
            command.status().unwrap().success()
        };
        assert!(is_inherited(|_| {}));
        assert!(!is_inherited(inherit_standard_streams_only));
        // SAFETY: it was made above and is used no more.
        unsafe { libc::close(leaky) };
    }

    #[test]
    fn the_limit_of_open_files_is_the_highest() {
        let limit = raise_open_files_limit().unwrap();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"))
            .unwrap();
        let mut figures = line.split_whitespace().skip(3);
        assert_eq!(open_files_limit().unwrap(), limit);
        assert_eq!(figures.next(), Some(limit.to_string().as_str()), "{line}");
        assert_eq!(figures.next(), Some(limit.to_string().as_str()), "{line}");
    }

    #[test]
    fn a_process_with_threads_is_not_daemonised() {
        let (keep, kept) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || kept.recv().is_err());
        let error = daemonise().unwrap_err();
        assert!(error.to_string().contains("threads run"), "{error}");
        drop(keep);
        assert!(thread.join().unwrap());
    }
}
