//! Which inodes of a mount programs watch.
//!
//! Everything is read from `/proc`: no file inside any mount is touched.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// What programs watch on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Watched {
    /// All of it, as fanotify can.
    Everything,
    Inodes(HashSet<u64>),
}

/// What is watched by those programs that the caller may look into.
pub(super) fn watched_on((major, minor): (u32, u32)) -> Watched {
    // As the kernel numbers devices by itself.
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

/// What `/proc` says of each descriptor of a process through which it watches.
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

/// Adds what a line of `fdinfo` says to be watched; `false` where that is more than an inode.
fn add_mark(line: &str, device: &str, inodes: &mut HashSet<u64>) -> bool {
    let mark = line
        .strip_prefix("inotify ")
        .or_else(|| line.strip_prefix("fanotify "));
    // What is said of the whole group is no mark.
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
