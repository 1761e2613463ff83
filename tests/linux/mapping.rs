//! Files in memory, and programs that run from them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::mman::{
    MapFlags, MmapAdvise, MsFlags, ProtFlags, madvise, mlock, mmap, msync, munmap,
};
use nix::unistd::ftruncate;

use crate::compare::{Code, PATIENCE, Place, compare, in_child, open_with, runs};
use crate::support::{TestRepo, Tine, require_fuse, test_name, wait_until};

/// Bytes in a page.
const PAGE: usize = 4096;

/// A mapping of a file's beginning, readable and writable.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    pub fn shared(file: &File, len: usize) -> Mapping {
        Mapping::with(file, len, MapFlags::MAP_SHARED)
    }

    pub fn private(file: &File, len: usize) -> Mapping {
        Mapping::with(file, len, MapFlags::MAP_PRIVATE)
    }

    fn with(file: &File, len: usize, flags: MapFlags) -> Mapping {
        let size = NonZeroUsize::new(len).expect("a mapping has bytes");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the place; only Drop unmaps it.
        let start =
            unsafe { mmap(None, size, access, flags, file, 0) }.expect("a file can be mapped");
        Mapping {
            start: start.cast(),
            len,
        }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and `len` bytes long while `self` lives, and
        // borrowed by it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    pub fn sync(&self) {
        // SAFETY: the range is this mapping's own.
        unsafe { msync(self.start.cast(), self.len, MsFlags::MS_SYNC) }
            .expect("the mapping can be written back");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and nothing borrows it any more.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn private_and_shared_mappings_keep_to_their_kind() {
    compare(test_name!(), &[], |place| {
        for name in ["made", "data/large.bin"] {
            let path = place.file(name, vec![b'.'; 3 * PAGE]);
            let file = place.open(name);
            let (mut shared, mut private) = (
                Mapping::shared(&file, 3 * PAGE),
                Mapping::private(&file, 3 * PAGE),
            );
            let mut seen = [0; 6];
            shared.bytes()[100..106].copy_from_slice(b"shared");
            file.read_exact_at(&mut seen, 100).unwrap();
            place.note(format!("{name}: stored, read"), text(&seen));
            place.note(
                format!("{name}: stored, mapped"),
                text(&private.bytes()[100..106]),
            );
            private.bytes()[200..207].copy_from_slice(b"private");
            file.read_exact_at(&mut seen, 200).unwrap();
            place.note(format!("{name}: stored privately, read"), text(&seen));
            file.write_all_at(b"written", PAGE as u64 - 3).unwrap();
            place.note(
                format!("{name}: written, mapped"),
                text(&shared.bytes()[PAGE - 3..PAGE + 4]),
            );
            place.note(
                format!("{name}: written, mapped privately"),
                text(&private.bytes()[PAGE - 3..PAGE + 4]),
            );
            shared.sync();
            drop((shared, private));
            place.note(format!("{name}: at last"), runs(&path).len());
        }
    });
}

#[test]
fn processes_share_a_mapping() {
    compare(test_name!(), &[], |place| {
        let path = place.file("shared", vec![0; 2 * PAGE]);
        let file = place.open("shared");
        let mut mapping = Mapping::shared(&file, 2 * PAGE);
        mapping.bytes()[0] = 1;
        let child = in_child(|| {
            // Opened by itself, as by any other program.
            let own = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let mut theirs = Mapping::shared(&own, 2 * PAGE);
            let mut seen = [0; 1];
            own.read_exact_at(&mut seen, 0).unwrap();
            assert_eq!((seen[0], theirs.bytes()[0]), (1, 1));
            theirs.bytes()[PAGE] = 2;
            own.write_all_at(&[3], PAGE as u64 + 1).unwrap();
            0
        });
        place.note("the other's end", child);
        place.note("what it stored", mapping.bytes()[PAGE]);
        place.note("what it wrote", mapping.bytes()[PAGE + 1]);
        place.note("read", runs(&path));
    });
}

#[test]
fn a_mapping_ends_where_the_file_does() {
    compare(test_name!(), &[], |place| {
        let file = place.open("short");
        file.write_all_at(&[b'x'; PAGE + 10], 0).unwrap();
        let touch = |at: usize, store: bool| {
            let mut mapping = Mapping::shared(&file, 4 * PAGE);
            in_child(|| {
                if store {
                    mapping.bytes()[at] = 1;
                }
                i32::from(mapping.bytes()[at])
            })
        };
        place.note("within the last page", touch(PAGE + 500, false));
        place.note("past the last page", touch(2 * PAGE, false));
        place.note("stored past the last page", touch(3 * PAGE, true));
        place.note("within", touch(PAGE, true));
        let mut mapping = Mapping::shared(&file, 4 * PAGE);
        assert_eq!(mapping.bytes()[PAGE], 1);
        ftruncate(&file, 100).unwrap();
        place.note(
            "cut off beneath it",
            in_child(|| i32::from(mapping.bytes()[PAGE])),
        );
        place.note("what is cut off in the last page", mapping.bytes()[101]);
        ftruncate(&file, 3 * PAGE as i64).unwrap();
        place.note(
            "grown beneath it",
            (
                mapping.bytes()[101],
                mapping.bytes()[PAGE],
                mapping.bytes()[2 * PAGE],
            ),
        );
        fallocate(
            &file,
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
            0,
            50,
        )
        .unwrap();
        place.note(
            "punched beneath it",
            (mapping.bytes()[49], mapping.bytes()[50]),
        );
        place.note("at last", runs(&place.at("short")));
    });
}

/// What a program stores behind the end, in the last page, is no part of the file, also when that
/// grows.
#[test]
fn what_is_stored_behind_the_end_is_no_part_of_the_file() {
    let differences = [
        // The kernel clears the rest of the last page when it writes it back, but not when a FUSE
        // file grows.
        (
            "ftruncate false",
            "[(120, 1000), (33, 1000), (0, 1000)]",
            "[(120, 1000), (0, 2000)]",
        ),
        (
            "write false",
            "[(120, 1000), (33, 1000), (0, 999), (119, 1)]",
            "[(120, 1000), (0, 1999), (119, 1)]",
        ),
        (
            "fallocate false",
            "[(120, 1000), (33, 1000), (0, 1000)]",
            "[(120, 1000), (0, 2000)]",
        ),
    ];
    compare(test_name!(), &differences, |place| {
        type Grow = fn(&File);
        let ways: [(&str, Grow); 4] = [
            ("ftruncate", |file| ftruncate(file, 3000).unwrap()),
            ("write", |file| file.write_all_at(b"w", 2999).unwrap()),
            ("append", |file| file.write_all_at(b"w", 1000).unwrap()),
            ("fallocate", |file| {
                fallocate(file, FallocateFlags::empty(), 0, 3000).unwrap()
            }),
        ];
        for (what, grow) in ways {
            for synced in [false, true] {
                // The kernel may write the page back by itself at any moment, which is as if the
                // program had asked for it.
                let attempts = if synced { 1 } else { 5 };
                let shown = (0..attempts).map(|attempt| {
                    let name = format!("{what} {synced} {attempt}");
                    let file = place.open(&name);
                    file.write_all_at(&[b'x'; 1000], 0).unwrap();
                    let mut mapping = Mapping::shared(&file, PAGE);
                    mapping.bytes()[1000..2000].fill(b'!');
                    if synced {
                        mapping.sync();
                    }
                    grow(&file);
                    drop(mapping);
                    file.sync_all().unwrap();
                    runs(&place.at(&name))
                });
                let shown: Vec<Vec<(u8, usize)>> = shown.collect();
                let kept = shown.iter().find(|runs| runs.contains(&(b'!', 1000)));
                place.note(format!("{what} {synced}"), kept.unwrap_or(&shown[0]));
            }
        }
    });
}

#[test]
fn access_to_a_mapping_is_as_the_file_was_opened() {
    compare(test_name!(), &[], |place| {
        let map = |file: &File, access, flags| {
            let size = NonZeroUsize::new(PAGE).unwrap();
            // SAFETY: the kernel chooses the place; nothing else knows of the mapping.
            unsafe {
                mmap(None, size, access, flags, file, 0).and_then(|start| munmap(start, PAGE))
            }
        };
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let (reader, writer) = (
            File::open(place.at("README.md")).unwrap(),
            OpenOptions::new()
                .write(true)
                .open(place.at("README.md"))
                .unwrap(),
        );
        place.result(
            "a reader's, shared",
            map(&reader, both, MapFlags::MAP_SHARED),
        );
        place.result(
            "a reader's, private",
            map(&reader, both, MapFlags::MAP_PRIVATE),
        );
        place.result(
            "a writer's",
            map(&writer, ProtFlags::PROT_READ, MapFlags::MAP_SHARED),
        );
        place.result(
            "a directory's",
            map(
                &File::open(place.dir()).unwrap(),
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
            ),
        );
        place.result(
            "to be run",
            map(
                &reader,
                ProtFlags::PROT_READ | ProtFlags::PROT_EXEC,
                MapFlags::MAP_PRIVATE,
            ),
        );
        place.result(
            "synchronous",
            map(
                &place.open("README.md"),
                both,
                MapFlags::MAP_SHARED_VALIDATE | MapFlags::MAP_SYNC,
            ),
        );

        let path = place.file("advised", vec![b'x'; 300_000]);
        let file = place.open("advised");
        let mut mapping = Mapping::shared(&file, 300_000);
        mapping.bytes()[5] = b'y';
        for advice in [
            MmapAdvise::MADV_WILLNEED,
            MmapAdvise::MADV_DONTNEED,
            MmapAdvise::MADV_REMOVE,
        ] {
            // SAFETY: the range is the mapping's own, and nothing borrows it.
            let advised = unsafe { madvise(mapping.start.cast(), 2 * PAGE, advice) };
            place.result(format!("{advice:?}"), advised);
        }
        // SAFETY: the range is the mapping's own.
        place.result("locked", unsafe { mlock(mapping.start.cast(), 10 * PAGE) });
        place.note(
            "what was removed",
            (mapping.bytes()[5], mapping.bytes()[2 * PAGE]),
        );
        place.note("advised", runs(&path));
    });
}

fn copy_program(place: &Place, program: &str, name: &str) -> std::path::PathBuf {
    let path = place.at(name);
    fs::copy(program, &path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// Starts a program that ends with its input. Another test's child may hold it open for writing for
/// a moment, between fork and exec.
fn start(path: &Path) -> std::process::Child {
    let mut started = None;
    wait_until(
        "the program is not busy",
        PATIENCE,
        || match Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
        {
            Err(error) if error.code() == Errno::ETXTBSY => false,
            result => {
                started = Some(result.expect("a program can be started"));
                true
            }
        },
    );
    started.expect("it was waited for")
}

#[test]
fn a_program_is_not_written_while_it_runs() {
    compare(test_name!(), &[], |place| {
        let path = copy_program(place, "/bin/cat", "cat");
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        place.outcome("run while it is being written", Command::new(&path).spawn());
        drop(writer);
        let mut running = start(&path);
        place.outcome(
            "write while it runs",
            OpenOptions::new().write(true).open(&path),
        );
        place.outcome("truncate while it runs", nix::unistd::truncate(&path, 0));
        place.outcome(
            "append while it runs",
            OpenOptions::new().append(true).open(&path),
        );
        place.outcome("read while it runs", File::open(&path));
        place.outcome(
            "chmod while it runs",
            fs::set_permissions(&path, Permissions::from_mode(0o700)),
        );
        let other = copy_program(place, "/bin/true", "other");
        place.outcome("replace while it runs", fs::rename(&other, &path));
        place.outcome("unlink while it runs", fs::remove_file(&path));
        running.stdin.take().unwrap().write_all(b"input").unwrap();
        place.note("its end", running.wait().unwrap().code());

        let path = copy_program(place, "/bin/cat", "later");
        let mut running = start(&path);
        drop(running.stdin.take());
        running.wait().unwrap();
        place.outcome(
            "write after it ran",
            OpenOptions::new().write(true).open(&path),
        );
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        place.outcome("run what nobody may run", Command::new(&path).spawn());
        place.outcome("run a directory", Command::new(place.at("src")).spawn());
        place.outcome(
            "run what is no program",
            Command::new(place.file("empty", "")).spawn(),
        );
    });
}

/// Invariant 13, for what is stored through a mapping.
#[test]
fn what_was_stored_in_a_mapping_outlives_the_daemon() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let open = |name: &str| open_with(&dir.join(name), 0).unwrap();
    let store = |file: &File, text: &[u8]| {
        ftruncate(file, 100_000).unwrap();
        let mut mapping = Mapping::shared(file, 100_000);
        mapping.bytes()[70_000..70_000 + text.len()].copy_from_slice(text);
        mapping
    };
    let (synced, unmapped) = (open("synced"), open("unmapped"));
    let held = store(&synced, b"by msync");
    held.sync();
    drop(store(&unmapped, b"by munmap"));
    drop(store(&open("data/large.bin"), b"by close"));
    let by_exit = in_child(|| {
        std::mem::forget(store(&open("exited"), b"by exit"));
        0
    });
    assert_eq!(by_exit, Ok(0));
    let killed = in_child(|| {
        std::mem::forget(store(&open("killed"), b"by a kill"));
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
        0
    });
    assert!(killed.is_err());
    tine.kill_daemon();
    drop((held, synced, unmapped));
    tine.ok(&["mount", "demo"]);
    for (name, text) in [
        ("synced", "by msync"),
        ("unmapped", "by munmap"),
        ("data/large.bin", "by close"),
        ("exited", "by exit"),
        ("killed", "by a kill"),
    ] {
        let content = fs::read(dir.join(name)).unwrap();
        assert_eq!(content.len(), 100_000);
        assert_eq!(
            String::from_utf8_lossy(&content[70_000..70_000 + text.len()]),
            text
        );
    }
    assert_eq!(fs::metadata(dir.join("synced")).unwrap().nlink(), 1);
}
