//! Detection of the inodes of a mount that programs watch.
//!
//! The functions read `/proc` only, and touch no file inside any mount.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Set of watched files on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Watched {
    /// All files, as with fanotify.
    Everything,
    /// The inodes with these numbers.
    Inodes(HashSet<u64>),
}

/// Returns the watched files of a device.
///
/// The device is given by major and minor number. Programs that the caller may not examine are left
/// out.
pub(super) fn watched_on((major, minor): (u32, u32)) -> Watched {
    // The kernel's internal encoding of device numbers.
    let device = format!("{:x}", u64::from(major) << 20 | u64::from(minor));
    let mut inodes = HashSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        if !name
            .as_encoded_bytes()
            .first()
            .is_some_and(u8::is_ascii_digit)
        {
            continue;
        }
        for marks in marks_of(&process.path()) {
            if marks
                .lines()
                .any(|line| !add_mark(line, &device, &mut inodes))
            {
                return Watched::Everything;
            }
        }
    }
    Watched::Inodes(inodes)
}

/// Returns the `fdinfo` of each inotify and fanotify descriptor of a process.
fn marks_of(process: &Path) -> Vec<String> {
    let descriptors = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors
        .filter(|descriptor| {
            let target = fs::read_link(descriptor.path());
            let is = |name: &str| {
                target
                    .as_deref()
                    .is_ok_and(|target| target == Path::new(name))
            };
            is("anon_inode:inotify") || is("anon_inode:[fanotify]")
        })
        .filter_map(|descriptor| {
            fs::read_to_string(process.join("fdinfo").join(descriptor.file_name())).ok()
        })
        .collect()
}

/// Adds the inode in a line of `fdinfo`, if on the device.
///
/// Returns false if the line is about more than one inode.
fn add_mark(line: &str, device: &str, inodes: &mut HashSet<u64>) -> bool {
    let mark = line
        .strip_prefix("inotify ")
        .or_else(|| line.strip_prefix("fanotify "));
    // Flags of the whole group are not a mark.
    let Some(mark) = mark.filter(|mark| !mark.starts_with("flags:")) else {
        return true;
    };
    let field = |name: &str| {
        mark.split(' ')
            .find_map(|field| field.strip_prefix(name)?.strip_prefix(':'))
    };
    if field("sdev").is_some_and(|sdev| sdev != device) {
        return true;
    }
    let ino = field("ino").and_then(|ino| u64::from_str_radix(ino, 16).ok());
    inodes.extend(ino);
    ino.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_the_kernel_writes_them() {
        let mut inodes = HashSet::new();
        for (line, is_of_inodes) in [
            ("pos:\t0", true),
            ("mnt_id:\t16", true),
            (
                "inotify wd:3 ino:9e7e sdev:2d mask:800afce ignored_mask:0 fhandle-bytes:8",
                true,
            ),
            (
                "inotify wd:1 ino:1 sdev:800013 mask:800afce ignored_mask:0",
                true,
            ),
            ("fanotify flags:10 event-flags:0", true),
            (
                "fanotify ino:4f sdev:2d mflags:0 mask:3b ignored_mask:40000000",
                true,
            ),
            (
                "fanotify ino:50 sdev:800013 mflags:0 mask:3b ignored_mask:40000000",
                true,
            ),
            (
                "fanotify sdev:800013 mflags:0 mask:3b ignored_mask:40000000",
                true,
            ),
            (
                "fanotify sdev:2d mflags:0 mask:3b ignored_mask:40000000",
                false,
            ),
            (
                "fanotify mnt_id:12 mflags:0 mask:3b ignored_mask:40000000",
                false,
            ),
        ] {
            assert_eq!(add_mark(line, "2d", &mut inodes), is_of_inodes, "{line}");
        }
        assert_eq!(inodes, HashSet::from([0x9e7e, 0x4f]));
    }
}
