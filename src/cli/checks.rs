//! The checks of `tine doctor`. They leave no change behind.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

use super::check;
use super::context::Context;
use crate::client::Client;
use crate::client::origin::not_permitted;
use crate::fuse::RINGS_PARAMETER;
use crate::git::{Repository, program};
use crate::ops;
use crate::ops::protocol::PROTOCOL_VERSION;
use crate::ops::{ErrorCode, Failure};
use crate::render::text::{counted, human_size};
use crate::store::Store;
use crate::sys::{file, namespace, process};

/// Oldest kernel whose FUSE has what the mounts need.
///
/// That is to open directories without a round trip.
const OLDEST_KERNEL: (u32, u32) = (5, 1);

/// Free disk space, in bytes, below which work may soon stop.
const LITTLE_SPACE_BYTES: u64 = 1 << 30;

/// Time limit for a mount's answer.
const MOUNT_PATIENCE: Duration = Duration::from_secs(2);

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Ok,
    /// Something will be missing.
    Warn,
    /// tine cannot work.
    Fail,
}

/// One check with its finding.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub detail: String,
    pub hint: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, detail: impl Into<String>) -> Check {
        Check {
            name,
            verdict,
            detail: detail.into(),
            hint: None,
        }
    }

    fn ok(name: &'static str, detail: impl Into<String>) -> Check {
        Check::new(name, Verdict::Ok, detail)
    }

    fn warn(name: &'static str, detail: impl Into<String>) -> Check {
        Check::new(name, Verdict::Warn, detail)
    }

    fn fail(name: &'static str, detail: impl Into<String>) -> Check {
        Check::new(name, Verdict::Fail, detail)
    }

    fn hint(mut self, hint: impl Into<String>) -> Check {
        self.hint = Some(hint.into());
        self
    }

    fn failed(name: &'static str, failure: Failure) -> Check {
        Check {
            hint: failure.hint.clone(),
            ..Check::fail(name, failure.to_string())
        }
    }
}

/// Runs every check that applies to the current directory.
pub(super) fn all(context: &Context) -> Vec<Check> {
    let mut checks = vec![
        git(),
        kernel(),
        fuse_device(),
        rings(),
        fusermount(),
        allow_other(),
        namespaces(),
    ];
    match context.repository() {
        Ok(repository) => {
            let place = repository.checkout_dir().display();
            checks.push(Check::ok("repository", format!("{place} can be read")));
            checks.push(store(repository));
            checks.push(free_space(repository));
            // Connects once, because the connection to a daemon that hangs takes until its timeout.
            let connected = Client::connect(repository.common_dir());
            checks.push(daemon(connected.as_ref()));
            checks.push(forks(repository, connected));
            checks.push(health(repository));
        }
        Err(failure) => checks.push(no_repository(failure)),
    }
    checks.push(mounts());
    checks
}

fn git() -> Check {
    match program::check_version() {
        Ok(version) => Check::ok("git", format!("version {version}")),
        Err(error) => Check::failed("git", error.into()),
    }
}

fn kernel() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let (major, minor) = OLDEST_KERNEL;
    match kernel_version(release) {
        Some(version) if version >= OLDEST_KERNEL => {
            Check::ok("kernel", format!("Linux {release}"))
        }
        Some(_) => Check::fail("kernel", format!("Linux {release} is too old"))
            .hint(format!("Linux {major}.{minor} or newer is needed")),
        None => Check::warn("kernel", format!("{release:?} is no version that is known"))
            .hint(format!("Linux {major}.{minor} or newer is needed")),
    }
}

/// Parses the major and minor number, as in `6.1.0-18-amd64`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn fuse_device() -> Check {
    const NAME: &str = "fuse";
    let device = Path::new("/dev/fuse");
    match OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Check::ok(NAME, "/dev/fuse can be used"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Check::fail(NAME, "/dev/fuse is missing")
            .hint("`modprobe fuse` as root; in a container: `--device /dev/fuse --cap-add SYS_ADMIN`"),
        Err(error) => Check::fail(NAME, format!("/dev/fuse cannot be used: {error}"))
            .hint("let this user open it (`ls -l /dev/fuse`); in a container: `--device /dev/fuse --cap-add SYS_ADMIN`"),
    }
}

/// Checks for FUSE over io_uring. It is optional, and makes new mounts faster.
fn rings() -> Check {
    rings_by(fs::read_to_string(RINGS_PARAMETER).ok().as_deref())
}

/// Judges the content of the kernel's parameter file; `None`: no file.
fn rings_by(parameter: Option<&str>) -> Check {
    const NAME: &str = "io-uring";
    match parameter.map(str::trim) {
        Some("Y") => Check::ok(NAME, "the kernel lets requests come over io_uring"),
        Some(_) => {
            Check::ok(NAME, "off: each request wakes a thread on another CPU").hint(format!(
                "`echo Y > {RINGS_PARAMETER}` as root makes mounts faster that are made afterwards"
            ))
        }
        None => Check::ok(
            NAME,
            "the kernel has no FUSE over io_uring (Linux 6.14 has)",
        ),
    }
}

fn fusermount() -> Check {
    const NAME: &str = "fusermount3";
    let is_root = process::effective_uid() == 0;
    match (in_path(NAME), is_root) {
        (Some(place), false) if !is_set_user_id(&place) => Check::fail(
            NAME,
            format!("{} does not run as root, and cannot mount", place.display()),
        )
        .hint("install fuse3 anew, or `chmod u+s` it as root; in a container that allows no set-user-id programs: run as root"),
        (Some(place), _) => Check::ok(NAME, place.display().to_string()),
        (None, true) => Check::ok(NAME, "not installed; root needs none"),
        (None, false) => Check::fail(
            NAME,
            "not installed, and a user other than root cannot mount without it",
        )
        .hint("install fuse3 (on Debian: `apt install fuse3`)"),
    }
}

/// Returns whether a program runs as root by the set-user-ID bit.
fn is_set_user_id(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o4000 != 0)
}

/// Finds the file that the command `name` runs.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

fn allow_other() -> Check {
    const NAME: &str = "allow-other";
    if process::effective_uid() == 0 {
        return Check::ok(NAME, "root may let other users enter a mount");
    }
    let allowed = fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|conf| conf.lines().any(|line| line.trim() == "user_allow_other"));
    if allowed {
        Check::ok(NAME, "/etc/fuse.conf lets mounts be entered by other users")
    } else {
        Check::ok(
            NAME,
            "only you may enter your mounts (--allow-other is not permitted)",
        )
        .hint("a line `user_allow_other` in /etc/fuse.conf permits it")
    }
}

/// Checks for private mount namespaces, which only `tine exec --at-origin` needs.
fn namespaces() -> Check {
    const NAME: &str = "namespaces";
    match namespace::try_private_mounts() {
        Ok(()) => Check::ok(NAME, "`tine exec --at-origin` can have mounts of its own"),
        Err(error) => {
            let failure = not_permitted(&error);
            let check = Check::warn(NAME, failure.to_string());
            match failure.hint {
                Some(hint) => check.hint(hint),
                None => check,
            }
        }
    }
}

fn no_repository(failure: Failure) -> Check {
    const NAME: &str = "repository";
    if failure.code == crate::ops::ErrorCode::NotARepository {
        return Check::warn(
            NAME,
            "this is not inside a git repository: its checks are left out",
        )
        .hint("run it in a repository, or name one with `-C DIR`");
    }
    Check::failed(NAME, failure)
}

fn store(repository: &Repository) -> Check {
    const NAME: &str = "store";
    let store_dir = Store::dir_of(repository);
    let (dir, detail) = if store_dir.is_dir() {
        (store_dir.as_path(), "can be written")
    } else {
        (
            repository.common_dir(),
            "can be written; there is no store yet",
        )
    };
    // Permission bits do not show a read-only file system, so try to write.
    let probe = dir.join(format!(".tine-doctor-{}", std::process::id()));
    let tried = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&probe)
        .and_then(|_| fs::remove_file(&probe));
    match tried {
        Ok(()) => Check::ok(NAME, format!("{} {detail}", dir.display())),
        Err(error) => {
            let failure = Failure::io("write to", dir, &error);
            let check = Check::fail(
                NAME,
                format!("{} cannot be written: {error}", dir.display()),
            );
            match failure.hint {
                Some(hint) => check.hint(hint),
                None => check,
            }
        }
    }
}

fn free_space(repository: &Repository) -> Check {
    const NAME: &str = "disk";
    match file::fs_figures(repository.common_dir()) {
        Ok(figures) => {
            let free_bytes = figures.blocks_available.saturating_mul(figures.block_size);
            let detail = format!("{} free", human_size(free_bytes));
            match free_bytes {
                ..LITTLE_SPACE_BYTES => Check::warn(NAME, detail)
                    .hint("`tine list` shows what each fork takes, `tine delete NAME` removes one"),
                _ => Check::ok(NAME, detail),
            }
        }
        Err(error) => Check::warn(NAME, format!("its free space is unknown: {error}"))
            .hint("`df` shows what the system knows of it"),
    }
}

fn daemon(connected: Result<&Option<Client>, &Failure>) -> Check {
    const NAME: &str = "daemon";
    let client = match connected {
        Ok(Some(client)) => client,
        Ok(None) => return Check::ok(NAME, "none runs; the first command that needs it starts it"),
        Err(failure) => return Check::failed(NAME, failure.clone()),
    };
    let info = client.info();
    let detail = format!(
        "process {}, version {}, {}",
        info.pid,
        info.version,
        counted(info.mounts, "mount")
    );
    match (info.version.as_str(), info.protocol) {
        (env!("CARGO_PKG_VERSION"), PROTOCOL_VERSION) => Check::ok(NAME, detail),
        (_, protocol) => {
            let detail = format!("{detail}; this is version {}", env!("CARGO_PKG_VERSION"));
            let check = match protocol {
                PROTOCOL_VERSION => Check::warn(NAME, detail),
                _ => Check::fail(NAME, detail),
            };
            check.hint("`tine daemon stop` ends it; the next command starts this version and mounts everything again")
        }
    }
}

/// Checks in the daemon, or without one, that fork records are readable.
fn forks(repository: &Repository, connected: Result<Option<Client>, Failure>) -> Check {
    const NAME: &str = "forks";
    if !Store::dir_of(repository).is_dir() {
        return Check::ok(NAME, "there are none yet");
    }
    let counted_and_damaged = match connected {
        Ok(Some(mut client)) => client
            .forks()
            .map(|(forks, damaged)| (forks.len(), damaged)),
        Ok(None) => Store::open_as_found(repository)
            .map(|store| {
                let (records, damaged) = store.records();
                (
                    records.len(),
                    damaged.into_iter().map(Failure::from).collect(),
                )
            })
            .map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    match counted_and_damaged {
        Ok((0, damaged)) if damaged.is_empty() => Check::ok(NAME, "there are none yet"),
        Ok((whole, damaged)) if damaged.is_empty() => {
            Check::ok(NAME, format!("{} whole", counted(whole, "fork")))
        }
        Ok((whole, damaged)) => {
            let damaged: Vec<String> = damaged.iter().map(Failure::to_string).collect();
            let detail = format!("{} whole; {}", counted(whole, "fork"), damaged.join("; "));
            let check = Check::warn(NAME, detail);
            match ErrorCode::StoreDamaged.hint() {
                Some(hint) => check.hint(hint),
                None => check,
            }
        }
        Err(failure) => Check::failed(NAME, failure),
    }
}

/// Checks briefly that the store has all that its records name.
fn health(repository: &Repository) -> Check {
    const NAME: &str = "health";
    let asked = ops::Check {
        repair: false,
        dry_run: false,
        brief: true,
    };
    match check::checked(repository, &asked) {
        Ok(checked) => match checked.report.findings.as_slice() {
            [] => Check::ok(
                NAME,
                "all that the forks need is there (`tine check` reads every byte of it)",
            ),
            [first, ..] => {
                let found = counted(checked.report.findings.len(), "thing");
                let detail = format!(
                    "{found} to look after, among them {} {}: {}",
                    first.kind.word(),
                    first.what,
                    first.detail
                );
                Check::warn(NAME, detail).hint(
                    "`tine check` tells them all, `tine check --repair` puts right what can be",
                )
            }
        },
        Err(failure) => Check::failed(NAME, failure),
    }
}

/// Checks every tine mount that this process sees, of all repositories.
fn mounts() -> Check {
    const NAME: &str = "mounts";
    let dirs = match fs::read("/proc/self/mountinfo") {
        Ok(mountinfo) => mount_dirs(&mountinfo),
        Err(error) => {
            return Check::warn(NAME, format!("they cannot be listed: {error}"))
                .hint("`mount -t proc proc /proc` as root gives the system's own list");
        }
    };
    let count = dirs.len();
    let silent: Vec<String> = dirs
        .into_iter()
        .filter(|dir| !answers(dir.clone()))
        .map(|dir| dir.display().to_string())
        .collect();
    if count == 0 {
        return Check::ok(NAME, "there are none");
    }
    if silent.is_empty() {
        return Check::ok(NAME, counted(count, "mount"));
    }
    Check::warn(NAME, format!("no daemon answers for {}", silent.join(", "))).hint(
        "any tine command in their repository mounts them again; `umount -l DIR` (or `fusermount3 -uz DIR`) removes one",
    )
}

/// Returns whether the file system at `dir` answers in time.
fn answers(dir: PathBuf) -> bool {
    let (send, receive) = mpsc::channel();
    // A mount that hangs blocks the thread until the process ends.
    std::thread::spawn(move || {
        // The receiver may have given up.
        let _ = send.send(file::fs_figures(&dir).is_ok());
    });
    receive.recv_timeout(MOUNT_PATIENCE).unwrap_or(false)
}

/// Returns the mount points of tine's file systems from `/proc/self/mountinfo` (proc(5)).
fn mount_dirs(mountinfo: &[u8]) -> Vec<PathBuf> {
    mountinfo
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
            let separator = fields.iter().position(|field| *field == b"-")?;
            let fs_type = fields.get(separator + 1)?;
            let dir = fields.get(4)?;
            (*fs_type == b"fuse.tine").then(|| PathBuf::from(OsString::from_vec(unescaped(dir))))
        })
        .collect()
}

/// Decodes the kernel's octal escapes, such as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_that_are_off_are_told_with_the_way_to_have_them() {
        assert_eq!(rings_by(Some("Y\n")).hint, None);
        assert_eq!(rings_by(None).hint, None);
        let off = rings_by(Some("N\n"));
        assert_eq!(off.verdict, Verdict::Ok);
        assert!(off.hint.unwrap().contains("echo Y > /sys/module/fuse/"));
    }

    #[test]
    fn only_our_mounts_are_found_and_their_names_are_unescaped() {
        let text = b"\
22 1 0:20 / / rw shared:1 - ext4 /dev/sda1 rw
90 22 0:50 / /home/a/my\\040repo.forks/x rw,nosuid - fuse.tine tine:x rw,user_id=0
91 22 0:51 / /mnt/sshfs rw - fuse.sshfs host:/ rw
";
        assert_eq!(mount_dirs(text), [PathBuf::from("/home/a/my repo.forks/x")]);
        assert_eq!(unescaped(b"a\\134b\\04"), b"a\\b\\04");
    }

    #[test]
    fn kernel_versions_are_read() {
        assert_eq!(kernel_version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(kernel_version("5.15-rc2"), Some((5, 15)));
        assert_eq!(kernel_version(""), None);
    }
}
