//! What stat, statfs, statx and the various ioctls answer.

use std::fs;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;
use nix::unistd::{PathconfVar, ftruncate, mkfifo, pathconf};

use crate::compare::{Place, c_path, checked, compare, compare_with};
use crate::support::{is_root, test_name};

#[test]
fn files_have_the_figures_that_they_have_on_ext4() {
    let differences = [
        // A directory here is a set of names in the layer's index.
        ("a directory", "(0, 0, 2)", "(4096, 8, 2)"),
        ("a directory of the base", "(0, 0, 3)", "(4096, 8, 3)"),
        // Targets too long for an inode of ext4 take a block.
        ("a long symlink", "(300, 0, 1)", "(300, 8, 1)"),
        // A round trip to the daemon is what costs: programs that take this for their buffer's size
        // make fewer.
        ("block size", "65536", "4096"),
    ];
    compare(test_name!(), &differences, |place| {
        let figures = |place: &Place, name: &str| {
            let meta = fs::symlink_metadata(place.at(name)).unwrap();
            (meta.len(), meta.blocks(), meta.nlink())
        };
        fs::create_dir(place.at("made")).unwrap();
        symlink("short", place.at("short-link")).unwrap();
        symlink("l".repeat(300), place.at("long-link")).unwrap();
        for (name, len) in [
            ("empty", 0),
            ("one", 1),
            ("page", 4096),
            ("more", 10_000),
            ("large", 300_000),
        ] {
            let mut file = place.open(name);
            file.write_all(&vec![1; len]).unwrap();
            file.sync_all().unwrap();
        }
        let sparse = place.open("sparse");
        ftruncate(&sparse, 1 << 30).unwrap();
        sparse.write_all_at(&[1; 4096], 1 << 29).unwrap();
        sparse.sync_all().unwrap();
        for (what, name) in [
            ("a directory", "made"),
            ("a directory of the base", "src"),
            ("a symlink", "short-link"),
            ("a long symlink", "long-link"),
            ("a symlink of the base", "link"),
            ("nothing", "empty"),
            ("one byte", "one"),
            ("4,096 bytes", "page"),
            ("10,000 bytes", "more"),
            ("300,000 bytes", "large"),
            ("a sparse file", "sparse"),
            ("a file of the base", "README.md"),
            ("a large file of the base", "data/large.bin"),
        ] {
            let seen = figures(place, name);
            place.note(what, seen);
        }
        place.note(
            "block size",
            fs::metadata(place.at("one")).unwrap().blksize(),
        );
        let links = |place: &Place| {
            ["made", "src", "."].map(|name| fs::metadata(place.at(name)).unwrap().nlink())
        };
        let before = links(place);
        fs::create_dir(place.at("made/sub")).unwrap();
        fs::create_dir(place.at("src/sub")).unwrap();
        let after = links(place);
        place.note(
            "links of directories",
            [
                after[0] - before[0],
                after[1] - before[1],
                after[2] - before[2],
            ],
        );
        fs::rename(place.at("src/sub"), place.at("made/sub2")).unwrap();
        fs::remove_dir(place.at("made/sub")).unwrap();
        place.note("links at last", links(place).map(|links| links - before[0]));
    });
}

#[test]
fn special_files_are_what_they_were_made_as() {
    compare(test_name!(), &[], |place| {
        mkfifo(&place.at("fifo"), Mode::S_IRWXU).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(place.at("s"));
        place.outcome("a socket", socket);
        let mode = Mode::S_IRUSR;
        for (what, kind, device) in [
            ("a character device", SFlag::S_IFCHR, makedev(1, 3)),
            ("a block device", SFlag::S_IFBLK, makedev(7, 200)),
            ("a large device", SFlag::S_IFCHR, makedev(4000, 1_000_000)),
            ("a regular file", SFlag::S_IFREG, 0),
            ("a directory", SFlag::S_IFDIR, 0),
        ] {
            place.result(
                format!("make {what}"),
                mknod(&place.at(what), kind, mode, device),
            );
            let seen = fs::symlink_metadata(place.at(what))
                .map(|meta| (meta.mode(), meta.rdev(), meta.len()));
            place.result(what, seen);
        }
        let kind = fs::symlink_metadata(place.at("fifo")).unwrap().file_type();
        place.note("a fifo", kind.is_fifo());
    });
}

#[test]
fn the_file_system_has_the_hosts_figures() {
    let differences = [
        ("type", "FsType(1702057286)", "FsType(61267)"),
        // The kernel fills this in from nothing.
        ("has an id", "false", "true"),
    ];
    compare_with(test_name!(), &differences, |_, place| {
        let parent = place.dir().parent().unwrap().parent().unwrap().to_owned();
        let (ours, host) = (statfs(place.dir()).unwrap(), statfs(&parent).unwrap());
        place.note("type", ours.filesystem_type());
        // SAFETY: two plain numbers of the C library's.
        let id: [i32; 2] = unsafe { std::mem::transmute(ours.filesystem_id()) };
        place.note("has an id", id != [0, 0]);
        place.note("longest name", ours.maximum_name_length());
        place.note("block size", ours.block_size());
        place.note("blocks as the host", ours.blocks() == host.blocks());
        place.note("files as the host", ours.files() == host.files());
        // Others write to the host meanwhile.
        let close = |one: u64, other: u64| one.abs_diff(other) < (1 << 30) / 4096;
        place.note(
            "free as on the host",
            close(ours.blocks_free(), host.blocks_free()),
        );
        place.note(
            "available as on the host",
            close(ours.blocks_available(), host.blocks_available()),
        );
        let figures = statvfs(place.dir()).unwrap();
        place.note("fragments", figures.fragment_size() == figures.block_size());
        for (what, name) in [
            ("longest name", PathconfVar::NAME_MAX),
            ("longest path", PathconfVar::PATH_MAX),
            ("synchronous", PathconfVar::_POSIX_SYNC_IO),
        ] {
            place.result(format!("pathconf: {what}"), pathconf(place.dir(), name));
        }
    });
}

fn statx(path: &Path, flags: libc::c_int) -> Result<libc::statx, Errno> {
    let mut seen = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is NUL-terminated, and the buffer has the size of what is written to it.
    checked(unsafe {
        libc::statx(
            libc::AT_FDCWD,
            c_path(path).as_ptr(),
            flags | libc::AT_SYMLINK_NOFOLLOW,
            libc::STATX_ALL | libc::STATX_MNT_ID,
            seen.as_mut_ptr(),
        )
    })?;
    // SAFETY: all zeroes are valid, and the kernel filled in the rest.
    Ok(unsafe { seen.assume_init() })
}

#[test]
fn statx_knows_all_but_the_birth() {
    // fuser 0.18 does not know FUSE_STATX.
    let differences = [
        ("birth", "false", "true"),
        ("birth, asked of the server", "false", "true"),
    ];
    compare(test_name!(), &differences, |place| {
        let path = place.file("file", "content");
        for (what, flags) in [
            ("", 0),
            (", asked of the server", libc::AT_STATX_FORCE_SYNC),
            (", from the cache", libc::AT_STATX_DONT_SYNC),
        ] {
            let seen = statx(&path, flags).unwrap();
            place.note(
                format!("basics{what}"),
                seen.stx_mask & libc::STATX_BASIC_STATS == libc::STATX_BASIC_STATS,
            );
            if flags != libc::AT_STATX_DONT_SYNC {
                place.note(
                    format!("birth{what}"),
                    seen.stx_mask & libc::STATX_BTIME != 0,
                );
            }
            place.note(
                format!("size{what}"),
                (seen.stx_size, seen.stx_nlink, seen.stx_mode),
            );
            place.note(
                format!("a mount{what}"),
                seen.stx_mask & libc::STATX_MNT_ID != 0,
            );
        }
        let attributes = statx(&path, 0).unwrap().stx_attributes;
        place.note(
            "attributes",
            attributes & (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64,
        );
        place.note(
            "is no root of a mount",
            attributes & libc::STATX_ATTR_MOUNT_ROOT as u64,
        );
        place.outcome("missing", statx(&place.at("missing"), 0).map(drop));
    });
}

#[test]
fn what_is_no_affair_of_a_mount_is_refused_cleanly() {
    // The kernel passes none of these on to FUSE, or has nothing to answer with: a fork has no
    // device, blocks or journal of its own. An ordinary user is told of the missing privilege
    // first.
    let mut differences = vec![
        ("FIEMAP", "EOPNOTSUPP", "0"),
        (
            "FITRIM",
            "ENOTTY",
            if is_root() { "EINVAL" } else { "EPERM" },
        ),
        ("FS_IOC_GETVERSION", "ENOTTY", "0"),
    ];
    if is_root() {
        differences.insert(0, ("FIBMAP", "Ok(0)", "Ok(_)"));
    }
    compare_with(test_name!(), &differences, |fork, place| {
        let file = place.open("README.md");
        let fd = file.as_raw_fd();
        let ioctl = |request: u64, argument: *mut libc::c_void| {
            // SAFETY: each argument below is as large as its request reads and writes.
            checked(unsafe { libc::ioctl(fd, request as _, argument) })
        };
        let mut number = 0i32;
        let at = (&raw mut number).cast();
        place.result("FIGETBSZ", ioctl(2, at).map(|_| number));
        number = 0;
        place.note(
            "FIBMAP",
            ioctl(1, (&raw mut number).cast())
                .map(|_| number)
                .map(|block| if block == 0 { "0" } else { "_" })
                .map(Plain),
        );
        place.result(
            "FIONREAD",
            ioctl(libc::FIONREAD, (&raw mut number).cast()).map(|_| number),
        );
        let mut extents = [0u64; 4 + 7 * 4];
        // `struct fiemap`: start, length, flags and mapped extents, extents that there is room for.
        (extents[1], extents[3]) = (u64::MAX, 4);
        place.result("FIEMAP", ioctl(0xC020_660B, extents.as_mut_ptr().cast()));
        // Of no length, lest the host be trimmed.
        let mut range = [0u64, 0, 0];
        place.result("FITRIM", ioctl(0xC018_5879, range.as_mut_ptr().cast()));
        let mut version = 0i64;
        place.result(
            "FS_IOC_GETVERSION",
            ioctl(0x8008_7601, (&raw mut version).cast()),
        );
        place.result("TCGETS", ioctl(libc::TCGETS, extents.as_mut_ptr().cast()));
        place.result("an unknown one", ioctl(0x7777, at));
        place.result(
            "BLKGETSIZE64",
            ioctl(0x8008_1272, extents.as_mut_ptr().cast()),
        );
        // SAFETY: the descriptor is open, the buffer large enough for any answer.
        let quota = checked(unsafe {
            libc::syscall(
                libc::SYS_quotactl_fd,
                fd,
                0x8000_0700u32,
                0,
                extents.as_mut_ptr(),
            )
        });
        place.note("quotas are refused", quota.is_err());
        if fork.is_some() {
            // FIFREEZE and FITHAW, which would stop the host. Who is not root is told so first.
            let refused = |errno| Err(if is_root() { errno } else { Errno::EPERM });
            assert_eq!(ioctl(0xC004_5877, at), refused(Errno::EOPNOTSUPP));
            assert_eq!(ioctl(0xC004_5878, at), refused(Errno::EINVAL));
        }
        // SAFETY: the path is NUL-terminated.
        let swap = checked(unsafe { libc::swapoff(c_path(place.at("README.md")).as_ptr()) });
        place.result("swapoff", swap);
    });
}

struct Plain(&'static str);

impl std::fmt::Debug for Plain {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        to.write_str(self.0)
    }
}
