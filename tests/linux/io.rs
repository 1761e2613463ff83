//! Opening, reading and writing.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, OFlag, OpenHow, PosixFadviseAdvice, ResolveFlag, openat2, posix_fadvise,
};
use nix::unistd::{Whence, ftruncate, linkat, lseek64};

use crate::compare::{Child, c_path, checked, compare, compare_with, open_with, runs};
use crate::support::test_name;

fn read_with(file: &File, flags: libc::c_int) -> Result<i64, Errno> {
    let mut buffer = [0u8; 10];
    let part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: one buffer, as long as is said.
    checked(unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, 0, flags) } as i64)
}

fn write_with(file: &File, offset: i64, flags: libc::c_int) -> Result<i64, Errno> {
    let part = libc::iovec {
        iov_base: b"written\n".as_ptr().cast_mut().cast(),
        iov_len: 8,
    };
    // SAFETY: one buffer, as long as is said, which is only read.
    checked(unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, offset, flags) } as i64)
}

#[test]
fn the_flags_of_one_read_or_write_are_heeded() {
    let differences = [
        // FUSE cannot promise not to block; those who ask for it then go the ordinary way.
        ("read without waiting", "EOPNOTSUPP", "10"),
    ];
    compare(test_name!(), &differences, |place| {
        place.file("file", vec![b'.'; 5000]);
        let file = place.open("file");
        read_with(&file, 0).unwrap();
        place.result("read without waiting", read_with(&file, libc::RWF_NOWAIT));
        place.result("read at once", read_with(&file, libc::RWF_HIPRI));
        place.result("append", write_with(&file, 0, libc::RWF_APPEND));
        place.result("at the file's offset", write_with(&file, -1, 0));
        place.result("synchronous", write_with(&file, 100, libc::RWF_SYNC));
        place.result("data synchronous", write_with(&file, 200, libc::RWF_DSYNC));
        place.result(
            "write without waiting",
            write_with(&file, 0, libc::RWF_NOWAIT),
        );
        place.result("atomic", write_with(&file, 0, 0x40));
        place.result("unknown", write_with(&file, 0, 0x4000_0000));
        place.note("size", file.metadata().unwrap().len());
        let appender = OpenOptions::new()
            .append(true)
            .open(place.at("file"))
            .unwrap();
        place.result("not appending", write_with(&appender, 0, 0x20));
        place.note("size at last", file.metadata().unwrap().len());
    });
}

#[test]
fn every_synchronous_write_is_on_the_disk() {
    compare_with(test_name!(), &[], |fork, place| {
        for (what, flags) in [
            ("O_SYNC", libc::O_SYNC),
            ("O_DSYNC", libc::O_DSYNC),
            ("direct", libc::O_DIRECT | libc::O_SYNC),
        ] {
            place.file(what, vec![b'.'; 8192]);
            let file = open_with(&place.at(what), flags).unwrap();
            let buffer = Aligned([b'x'; 4096]);
            for round in 0..3u64 {
                file.write_all_at(&buffer.0, round * 4096).unwrap();
                if let Some(fork) = fork {
                    assert!(
                        !fork.workspace().is_dirty(),
                        "{what}: nothing is left to be synced"
                    );
                }
            }
            file.write_all_at(&Aligned([b'y'; 4096]).0, 0).unwrap();
            place.note(what, runs(&place.at(what)));
        }
        if let Some(fork) = fork {
            let counters = fork.mounted_at().unwrap().counters();
            let count = |name| counters.iter().find(|(known, _)| *known == name).unwrap().1;
            assert_eq!(count("fsync"), 12);
            let file = place.open("plain");
            file.write_all_at(b"x", 0).unwrap();
            assert!(fork.workspace().is_dirty());
            File::open(place.dir()).unwrap().sync_all().unwrap();
            assert!(!fork.workspace().is_dirty(), "fsync of a directory");
            file.write_all_at(b"y", 0).unwrap();
            nix::unistd::fdatasync(&file).unwrap();
            assert!(!fork.workspace().is_dirty());
        }
    });
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

#[test]
fn direct_access_and_the_page_cache_agree() {
    let differences = [
        // There is no device whose blocks would have to be met.
        ("unaligned", "5", "EINVAL"),
        ("an unaligned offset", "4096", "EINVAL"),
    ];
    compare(test_name!(), &differences, |place| {
        place.file("file", vec![b'.'; 20_000]);
        let (cached, direct) = (
            place.open("file"),
            open_with(&place.at("file"), libc::O_DIRECT).unwrap(),
        );
        let mut buffer = Aligned([0; 4096]);
        let mut seen = [0; 4];
        cached.write_all_at(b"here", 4096).unwrap();
        direct.read_exact_at(&mut buffer.0, 4096).unwrap();
        place.note("written, read directly", &buffer.0[..5]);
        cached.read_exact_at(&mut seen, 8192).unwrap();
        direct.write_all_at(&Aligned([b'd'; 4096]).0, 8192).unwrap();
        cached.read_exact_at(&mut seen, 8192).unwrap();
        place.note("written directly, read", seen);
        direct.write_all_at(&buffer.0, 20_480).unwrap();
        place.note("grown", cached.metadata().unwrap().len());
        place.result("at the end", direct.read_at(&mut buffer.0, 24_576));
        place.result("over the end", direct.read_at(&mut buffer.0, 20_480));
        place.result("unaligned", direct.read_at(&mut buffer.0[..5], 0));
        place.result("an unaligned offset", direct.read_at(&mut buffer.0, 7));
    });
}

#[test]
fn nothing_is_lost_or_torn_when_many_processes_append() {
    const PROCESSES: usize = 6;
    const LINES: usize = 100;
    compare(test_name!(), &[], |place| {
        for (name, len) in [("log", 50), ("docs/guide.md", 9000)] {
            let path = place.file(name, "");
            let children: Vec<Child> = (0..PROCESSES)
                .map(|process| {
                    Child::start(|| {
                        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                        for line in 0..LINES {
                            let text = format!("{process} {line:03} ").repeat(len / 6) + "\n";
                            file.write_all(text.as_bytes()).unwrap();
                        }
                        0
                    })
                })
                .collect();
            children
                .into_iter()
                .for_each(|child| assert_eq!(child.end(), Ok(0)));
            let content = fs::read_to_string(&path).unwrap();
            let mut lines: Vec<&str> = content.lines().collect();
            for line in &lines {
                let (process, number) = (&line[..1], &line[2..5]);
                assert_eq!(
                    *line,
                    format!("{process} {number} ").repeat(len / 6),
                    "a line is torn"
                );
            }
            // Each process's own lines are in order.
            for process in 0..PROCESSES {
                let own = lines
                    .iter()
                    .filter(|line| line.starts_with(&process.to_string()));
                assert!(
                    own.map(|line| line[2..5].parse::<usize>().unwrap())
                        .eq(0..LINES)
                );
            }
            lines.sort();
            lines.dedup();
            place.note(name, lines.len());
        }
    });
}

fn open_beneath(dir: &File, name: &str, resolve: ResolveFlag) -> Result<OwnedFd, Errno> {
    openat2(
        dir,
        name,
        OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC)
            .resolve(resolve),
    )
}

#[test]
fn files_are_opened_in_every_way() {
    let differences = [
        // fuser 0.18 does not know FUSE_TMPFILE.
        ("without a name", "EOPNOTSUPP", "()"),
        ("without a name, for good", "EOPNOTSUPP", "()"),
    ];
    compare(test_name!(), &differences, |place| {
        let root = place.dir().to_owned();
        let open = |name: &str, flags: libc::c_int| {
            let path = c_path(root.join(name));
            // SAFETY: the path is NUL-terminated.
            checked(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) }).map(
                |fd| {
                    // SAFETY: it was just opened and nobody else has it.
                    unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd as i32) }
                },
            )
        };
        for (what, name, flags) in [
            ("nofollow", "link", libc::O_NOFOLLOW),
            ("a symlink itself", "link", libc::O_PATH | libc::O_NOFOLLOW),
            ("a directory for writing", "src", libc::O_WRONLY),
            (
                "a directory by creating",
                "src",
                libc::O_CREAT | libc::O_RDWR,
            ),
            ("a file as a directory", "run.sh", libc::O_DIRECTORY),
            (
                "exclusively what is there",
                "run.sh",
                libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY,
            ),
            (
                "exclusively a dangling symlink",
                "dangling",
                libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY,
            ),
            (
                "through a dangling symlink",
                "dangling",
                libc::O_CREAT | libc::O_WRONLY,
            ),
            ("a new directory", "new", libc::O_CREAT | libc::O_DIRECTORY),
            ("truncating for reading", "docs/guide.md", libc::O_TRUNC),
            ("truncating a directory", "docs", libc::O_TRUNC),
            ("beneath a file", "run.sh/x", libc::O_RDONLY),
            ("with a slash at its end", "run.sh/", libc::O_RDONLY),
            (
                "new with a slash at its end",
                "fresh/",
                libc::O_CREAT | libc::O_WRONLY,
            ),
            ("without a name", ".", libc::O_TMPFILE | libc::O_RDWR),
            (
                "without a name, for good",
                ".",
                libc::O_TMPFILE | libc::O_EXCL | libc::O_WRONLY,
            ),
            (
                "without a name in a file",
                "run.sh",
                libc::O_TMPFILE | libc::O_RDWR,
            ),
            ("without access time", "run.sh", libc::O_NOATIME),
            ("not blocking", "run.sh", libc::O_NONBLOCK),
            ("a large file", "run.sh", libc::O_LARGEFILE),
            ("asynchronous", "run.sh", libc::O_ASYNC),
        ] {
            place.outcome(what, open(name, flags));
        }
        place.note(
            "what was truncated",
            fs::metadata(place.at("docs/guide.md")).unwrap().len(),
        );

        let path_only = File::from(open("README.md", libc::O_PATH).unwrap());
        place.outcome("read through O_PATH", (&path_only).read(&mut [0; 4]));
        place.note("stat through O_PATH", path_only.metadata().unwrap().len());
        let again = fs::read(format!("/proc/self/fd/{}", path_only.as_raw_fd())).unwrap();
        place.note("opened through O_PATH", again.len());

        let named = File::from(open("README.md", libc::O_RDWR).unwrap());
        let by_descriptor = format!("/proc/self/fd/{}", named.as_raw_fd());
        let linked = linkat(
            AT_FDCWD,
            by_descriptor.as_str(),
            AT_FDCWD,
            &place.at("twin"),
            AtFlags::AT_SYMLINK_FOLLOW,
        );
        place.result("link by descriptor", linked);
        place.result(
            "link an empty path",
            linkat(
                &named,
                "",
                AT_FDCWD,
                &place.at("third"),
                AtFlags::AT_EMPTY_PATH,
            ),
        );
        place.note("links", named.metadata().unwrap().nlink());

        let dir = File::open(place.at("docs")).unwrap();
        let beneath = ResolveFlag::RESOLVE_BENEATH;
        place.outcome("beneath", open_beneath(&dir, "guide.md", beneath));
        place.outcome(
            "beneath, up and down",
            open_beneath(&dir, "../docs/guide.md", beneath),
        );
        place.outcome(
            "beneath, by a symlink that leaves",
            open_beneath(&dir, "up/main.rs", beneath),
        );
        place.outcome(
            "no symlinks",
            open_beneath(&dir, "up/main.rs", ResolveFlag::RESOLVE_NO_SYMLINKS),
        );
        place.outcome(
            "symlinks",
            open_beneath(&dir, "up/main.rs", ResolveFlag::empty()),
        );
        place.outcome(
            "as a root",
            open_beneath(&dir, "/guide.md", ResolveFlag::RESOLVE_IN_ROOT),
        );
        place.outcome(
            "no other mount",
            open_beneath(&dir, "guide.md", ResolveFlag::RESOLVE_NO_XDEV),
        );
    });
}

#[test]
fn advice_is_taken_and_offsets_are_checked() {
    compare(test_name!(), &[], |place| {
        let file = place.open("data/large.bin");
        for advice in [
            PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL,
            PosixFadviseAdvice::POSIX_FADV_RANDOM,
            PosixFadviseAdvice::POSIX_FADV_WILLNEED,
            PosixFadviseAdvice::POSIX_FADV_DONTNEED,
            PosixFadviseAdvice::POSIX_FADV_NOREUSE,
        ] {
            place.result(format!("{advice:?}"), posix_fadvise(&file, 0, 0, advice));
        }
        // SAFETY: the descriptor is open.
        let ahead = unsafe { libc::readahead(file.as_raw_fd(), 0, 100_000) };
        place.result("readahead", checked(ahead as i64));
        // SAFETY: the descriptor is open.
        let range =
            unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        place.result("sync_file_range", checked(range));
        // SAFETY: the descriptor is open.
        place.result("syncfs", checked(unsafe { libc::syncfs(file.as_raw_fd()) }));
        let mut bytes = [0; 10];
        place.result("read past the end", file.read_at(&mut bytes, 400_000));
        place.result(
            "seek before the beginning",
            lseek64(&file, -1, Whence::SeekSet),
        );
        place.result(
            "seek past the end",
            lseek64(&file, 400_000, Whence::SeekSet),
        );
        place.result("truncate to less than nothing", ftruncate(&file, -1));
        let large = place.open("too-large");
        for (what, size) in [
            ("4 TiB", 1i64 << 42),
            ("17 TiB", 17 << 40),
            ("all there is", i64::MAX),
        ] {
            place.result(format!("grow to {what}"), ftruncate(&large, size));
            place.result(
                format!("write at {what}"),
                large.write_at(b"x", size as u64 - 1),
            );
            place.note(
                format!("size after {what}"),
                large.metadata().unwrap().len(),
            );
        }
        place.result(
            "write at the last offset",
            file.write_at(b"xx", i64::MAX as u64),
        );
        let dir = File::open(place.dir()).unwrap();
        place.outcome("read a directory", (&dir).read(&mut bytes));
        place.outcome("write a directory", (&dir).write(&bytes));
        let limited = crate::compare::in_child(|| {
            let kind = nix::sys::resource::Resource::RLIMIT_FSIZE;
            nix::sys::resource::setrlimit(kind, 1000, 1000).unwrap();
            i32::from(file.write_all_at(b"x", 2000).is_ok())
        });
        place.note("more than a process may write", limited);
        let custom = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(place.at("src"));
        place.outcome("a directory to be written", custom);
    });
}

/// The kernel's own asynchronous requests (`io_submit`), several at once; fio does the same by the
/// million.
#[test]
fn asynchronous_requests_are_carried_out() {
    /// `struct iocb`.
    #[repr(C)]
    #[derive(Default)]
    struct Request {
        data: u64,
        key: u32,
        rw_flags: u32,
        opcode: u16,
        priority: u16,
        file: u32,
        buffer: u64,
        len: u64,
        offset: i64,
        reserved: u64,
        flags: u32,
        event_file: u32,
    }
    const READ: u16 = 0;
    const WRITE: u16 = 1;
    const FSYNC: u16 = 2;
    /// Carries out all of `requests`; their results, in the order of the requests.
    fn submit(requests: &mut [Request]) -> Result<Vec<i64>, Errno> {
        let mut context = 0usize;
        // `struct io_event`: data, request, result, second result.
        let mut events = vec![[0i64; 4]; requests.len()];
        let mut pointers: Vec<*mut Request> = requests
            .iter_mut()
            .map(|request| request as *mut _)
            .collect();
        let count = pointers.len();
        // SAFETY: the requests, their buffers and the room for events live until all of them are
        // over.
        unsafe {
            checked(libc::syscall(libc::SYS_io_setup, count, &raw mut context))?;
            checked(libc::syscall(
                libc::SYS_io_submit,
                context,
                count,
                pointers.as_mut_ptr(),
            ))?;
            let nothing = std::ptr::null::<libc::timespec>();
            checked(libc::syscall(
                libc::SYS_io_getevents,
                context,
                count,
                count,
                events.as_mut_ptr(),
                nothing,
            ))?;
            checked(libc::syscall(libc::SYS_io_destroy, context))?;
        }
        events.sort_by_key(|event| event[0]);
        Ok(events.into_iter().map(|event| event[2]).collect())
    }
    compare(test_name!(), &[], |place| {
        for (what, flags) in [("cached", 0), ("direct", libc::O_DIRECT)] {
            place.file(what, "");
            let file = open_with(&place.at(what), flags).unwrap();
            let mut buffers: Vec<Aligned> = (0..8).map(|n| Aligned([b'a' + n; 4096])).collect();
            let mut request = |opcode: u16, at: usize| Request {
                data: at as u64,
                opcode,
                file: file.as_raw_fd() as u32,
                buffer: buffers[at].0.as_mut_ptr() as u64,
                len: 4096,
                offset: at as i64 * 4096,
                ..Request::default()
            };
            let mut writes: Vec<Request> = (0..8).map(|at| request(WRITE, at)).collect();
            place.result(format!("{what}: written"), submit(&mut writes));
            let mut syncs = [Request {
                len: 0,
                offset: 0,
                buffer: 0,
                ..request(FSYNC, 0)
            }];
            place.result(format!("{what}: synced"), submit(&mut syncs));
            place.note(format!("{what}: content"), runs(&place.at(what)));
            let mut reads: Vec<Request> = (0..8).map(|at| request(READ, 7 - at)).collect();
            reads[0].offset = 40_000 / 4096 * 4096;
            place.result(format!("{what}: read"), submit(&mut reads));
            place.note(
                format!("{what}: seen"),
                buffers
                    .iter()
                    .map(|buffer| buffer.0[4095])
                    .collect::<Vec<_>>(),
            );
        }
    });
}
