//! Other processes: finding those of one test, and ending them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Kills every process of the group that `leader` leads.
pub fn kill_group(leader: u32) {
    // SAFETY: kill(2) touches no memory of this process.
    unsafe { libc::kill(-(leader as libc::pid_t), libc::SIGKILL) };
}

/// Sends SIGKILL to one process.
pub fn kill(pid: u32) {
    // SAFETY: kill(2) touches no memory of this process.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

/// Whether the process runs; one that ended and was not waited for does not count.
pub fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        // The state follows the command in parentheses, which may hold anything.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

/// Kills `pid` and waits until it is gone.
pub fn kill_and_wait(pid: u32) {
    kill(pid);
    super::wait_until("a killed process ends", Duration::from_secs(20), || {
        !is_running(pid)
    });
}

/// Processes that run `program` (also one that was built anew since, ` (deleted)`) with the
/// environment variable `name` set to `value`.
pub fn find(program: &Path, name: &str, value: &OsStr) -> Vec<u32> {
    let mut wanted = name.as_bytes().to_vec();
    wanted.push(b'=');
    wanted.extend_from_slice(value.as_bytes());
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| {
                exe.as_os_str()
                    .as_bytes()
                    .starts_with(program.as_os_str().as_bytes())
            }) && std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|&b| b == 0).any(|v| v == wanted))
                && is_running(*pid)
        })
        .collect()
}

/// A process that does nothing until this is dropped.
pub struct Stopped(rustix::process::Pid);

impl Stopped {
    pub fn new(pid: u32) -> Stopped {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("it is a process");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is ours");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

/// Threads of another process that are kept from running, as a debugger would. They are let go when
/// this is dropped, in the thread that made it.
pub struct Halted(Vec<libc::pid_t>);

impl Halted {
    /// Halts the threads of `pid` whose names `is_meant`; an error where this process may not.
    pub fn threads(pid: u32, is_meant: impl Fn(&str) -> bool) -> std::io::Result<Halted> {
        let mut halted = Halted(Vec::new());
        for (thread, name) in threads(pid) {
            if is_meant(&name) {
                halted.request(libc::PTRACE_SEIZE, thread)?;
                halted.0.push(thread);
                halted.request(libc::PTRACE_INTERRUPT, thread)?;
                // SAFETY: no status is asked for.
                unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) };
            }
        }
        Ok(halted)
    }

    fn request(&self, what: libc::c_uint, thread: libc::pid_t) -> std::io::Result<()> {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the requests that are made take no addresses of this process.
        match unsafe { libc::ptrace(what, thread, nothing, nothing) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        for thread in &self.0 {
            // A thread that was killed is waited for; of one that lives it can only be let go.
            if self.request(libc::PTRACE_DETACH, *thread).is_err() {
                // SAFETY: no status is asked for.
                unsafe { libc::waitpid(*thread, std::ptr::null_mut(), libc::__WALL) };
            }
        }
    }
}

/// The threads of a process with their names.
fn threads(pid: u32) -> Vec<(libc::pid_t, String)> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                name.trim_end().to_owned(),
            ))
        })
        .collect()
}

/// Whether a thread of this name is in this state (`S`: it waits, `D`: it waits and takes no
/// signal).
pub fn has_thread_in(pid: u32, name: &str, state: char) -> bool {
    threads(pid).iter().any(|(thread, known)| {
        known == name
            && std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).is_ok_and(
                |stat| {
                    stat.rsplit_once(") ")
                        .is_some_and(|(_, rest)| rest.starts_with(state))
                },
            )
    })
}
