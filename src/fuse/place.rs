//! Identification of mounts by `/proc/self/mountinfo`.
//!
//! Reading it touches no file system, so it cannot hang on a dead mount. It shows whether the mount
//! at a directory is still the one that we mounted.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// File system type of tine's mounts.
pub(super) const FS_TYPE: &str = "fuse.tine";

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountedAt {
    /// Mount ID, unique in the mount namespace while the mount exists.
    pub(super) mount_id: u64,
    /// Major and minor number of the file system's device.
    ///
    /// For FUSE, the major number is 0 and the minor number identifies the connection.
    pub(super) device: (u32, u32),
    /// Mount point.
    pub(super) dir: PathBuf,
    /// File system type.
    pub(super) fs_type: String,
    /// Mount source, for instance `tine:<fork>`.
    pub(super) source: OsString,
}

/// Returns all mounts at exactly `dir`, lowest first.
///
/// The last one is the visible one. `dir` is an absolute path without symlinks.
pub(super) fn mounts_at(dir: &Path) -> io::Result<Vec<MountedAt>> {
    let mut mounts = all_mounts()?;
    mounts.retain(|mount| mount.dir == dir);
    Ok(mounts)
}

/// Returns whether this process sees a fork at `dir`, live or dead.
///
/// `dir` is an absolute path without symlinks. Also true if this cannot be determined.
pub fn is_seen_at(dir: &Path) -> bool {
    mounts_at(dir).map_or(true, |mounts| {
        mounts.last().is_some_and(|mount| mount.fs_type == FS_TYPE)
    })
}

/// Returns all mounts in the namespace of this process.
pub(super) fn all_mounts() -> io::Result<Vec<MountedAt>> {
    mounts_seen_by(Path::new("/proc/self"))
}

/// Returns all mounts in the namespace of a process.
///
/// `proc_dir` is the process's directory in `/proc`.
pub(super) fn mounts_seen_by(proc_dir: &Path) -> io::Result<Vec<MountedAt>> {
    let mut table = Vec::new();
    fs::File::open(proc_dir.join("mountinfo"))?.read_to_end(&mut table)?;
    Ok(table
        .split(|&byte| byte == b'\n')
        .filter_map(parse_line)
        .collect())
}

/// Returns the mount that `dir` is in, without a request to it.
///
/// An `O_PATH` descriptor needs no request, and its fdinfo has the mount ID.
pub(super) fn mount_of(dir: &Path) -> io::Result<Option<MountedAt>> {
    let handle = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(dir)?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
    let Some(mount_id) = mount_id_of_fdinfo(&info) else {
        return Ok(None);
    };
    Ok(all_mounts()?
        .into_iter()
        .find(|mount| mount.mount_id == mount_id))
}

/// Returns the value of `mnt_id:` in a `/proc/<pid>/fdinfo/<fd>`.
pub(super) fn mount_id_of_fdinfo(info: &str) -> Option<u64> {
    info.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim()
        .parse()
        .ok()
}

/// Parses a line of mountinfo, see `proc_pid_mountinfo(5)`.
///
/// Its fields are: ID, parent, major:minor, root, mount point, options, optional fields, `-`, type,
/// source, …
fn parse_line(line: &[u8]) -> Option<MountedAt> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mount_id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields.nth(1)?).ok()?.split_once(':')?;
    let dir = PathBuf::from(unescape(fields.nth(1)?));
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    Some(MountedAt {
        mount_id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        dir,
        fs_type,
        source,
    })
}

/// Decodes a field of mountinfo.
///
/// In it, `\` and three octal digits encode a byte.
/// The kernel encodes space, tab, newline, backslash and `#` that way.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| byte == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

/// Makes `path` absolute and resolves symlinks, except in its last component.
///
/// The last component may be a dead mount and is not accessed, unless it is `..`.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) if name.as_bytes() != b".." => {
            Ok(parent.canonicalize()?.join(name))
        }
        _ => absolute.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_escapes_and_optional_fields() {
        let line = br"543 29 0:61 / /srv/a\040b\134c rw,nosuid,nodev shared:7 master:2 - fuse.tine tine:x rw,user_id=0";
        assert_eq!(
            parse_line(line),
            Some(MountedAt {
                mount_id: 543,
                device: (0, 61),
                dir: PathBuf::from(r"/srv/a b\c"),
                fs_type: FS_TYPE.into(),
                source: "tine:x".into(),
            })
        );
    }

    #[test]
    fn a_cut_line_is_no_mount() {
        for line in [
            &b""[..],
            b"543 29 0:61 / /srv",
            b"x 29 0:61 / /srv rw - fuse s",
        ] {
            assert_eq!(parse_line(line), None);
        }
    }

    #[test]
    fn a_directory_is_found_in_the_mount_that_holds_it() {
        let mount = mount_of(Path::new("/proc")).unwrap().unwrap();
        assert_eq!(
            (mount.dir.as_path(), mount.fs_type.as_str()),
            (Path::new("/proc"), "proc")
        );
        assert_eq!(mounts_at(Path::new("/proc")).unwrap().last(), Some(&mount));
    }
}
