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

/// Processes that run `program` (also one that was built anew since, ` (deleted)`) with the environment variable `name` set to `value`.
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
