//! Allocating, punching and copying ranges of files.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{
    FallocateFlags, SpliceFFlags, copy_file_range, fallocate, posix_fallocate, splice, tee,
    vmsplice,
};
use nix::sys::sendfile::sendfile;
use nix::unistd::{Whence, ftruncate, lseek64};

use crate::compare::{Code, checked, compare, compare_with, open_with, pipe, runs};
use crate::support::{TestFork, TestRepo, require_fuse, test_name};

const KEEP: FallocateFlags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
const MIB: i64 = 1 << 20;

#[test]
fn fallocate_does_what_its_modes_say() {
    let differences = [
        // The kernel passes neither mode on to FUSE.
        ("collapse 65536", "EOPNOTSUPP", "()"),
        (
            "after collapse 65536",
            "([(1, 300000)], 300000)",
            "([(1, 234464)], 234464)",
        ),
        ("insert 65536", "EOPNOTSUPP", "()"),
        (
            "after insert 65536",
            "([(1, 300000)], 300000)",
            "([(1, 65536), (0, 65536), (1, 234464)], 365536)",
        ),
        ("collapse 10", "EOPNOTSUPP", "EINVAL"),
        ("insert past the end", "EOPNOTSUPP", "EINVAL"),
    ];
    compare(test_name!(), &differences, |place| {
        let flags = |bits: i32| FallocateFlags::from_bits_retain(bits);
        let (punch, zero) = (
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | KEEP,
            FallocateFlags::FALLOC_FL_ZERO_RANGE,
        );
        let (collapse, insert) = (
            FallocateFlags::FALLOC_FL_COLLAPSE_RANGE,
            FallocateFlags::FALLOC_FL_INSERT_RANGE,
        );
        for (what, mode, offset, len) in [
            ("allocate within", flags(0), 10, 100),
            ("allocate past the end", flags(0), 299_000, 5000),
            ("allocate far past the end", flags(0), MIB, 10),
            ("keep the size", KEEP, 299_000, 5000),
            ("punch", punch, 4096, 8192),
            ("punch a few bytes", punch, 4097, 3),
            ("punch over the end", punch, 299_000, 5000),
            ("punch past the end", punch, 310_000, 5000),
            ("punch all", punch, 0, MIB),
            (
                "punch without keeping the size",
                FallocateFlags::FALLOC_FL_PUNCH_HOLE,
                0,
                4096,
            ),
            ("zero", zero, 4096, 8192),
            ("zero a few bytes", zero, 4097, 3),
            ("zero over the end", zero, 299_000, 5000),
            (
                "zero over the end, keep the size",
                zero | KEEP,
                299_000,
                5000,
            ),
            ("collapse 65536", collapse, 65536, 65536),
            ("insert 65536", insert, 65536, 65536),
            ("collapse 10", collapse, 10, 10),
            ("insert past the end", insert, 400_000, 4096),
            ("unshare", flags(0x40), 0, 4096),
            ("two modes", zero | punch, 0, 4096),
            ("an unknown mode", flags(0x4000_0000), 0, 4096),
            ("no length", flags(0), 0, 0),
            ("a negative length", flags(0), 0, -1),
            ("a negative offset", flags(0), -1, 1),
            ("beyond what a file can hold", flags(0), i64::MAX - 10, 100),
        ] {
            let name = format!("file {what}");
            let path = place.file(&name, vec![1; 300_000]);
            let file = place.open(&name);
            place.result(what, fallocate(&file, mode, offset, len));
            place.note(
                format!("after {what}"),
                (runs(&path), file.metadata().unwrap().len()),
            );
        }
        let small = place.file("small", [2; 5000]);
        let file = place.open("small");
        fallocate(&file, punch, 1000, 100).unwrap();
        fallocate(&file, zero, 4500, 1000).unwrap();
        place.note("a small file", runs(&small));
        let base = place.open("README.md");
        fallocate(&base, zero, 3, 2).unwrap();
        posix_fallocate(&base, 30, 100).unwrap();
        place.note(
            "a file of the base",
            fs::read(place.at("README.md")).unwrap(),
        );
        place.result("posix_fallocate of nothing", posix_fallocate(&base, 0, 0));
        let reader = File::open(place.at("README.md")).unwrap();
        place.result(
            "of what is open for reading",
            fallocate(&reader, flags(0), 0, 10),
        );
        place.result(
            "of a directory",
            fallocate(File::open(place.dir()).unwrap(), flags(0), 0, 10),
        );
    });
}

/// Where data and holes are, from the beginning to the end.
fn map(file: &File) -> Vec<(Whence, Result<i64, Errno>)> {
    let mut found = Vec::new();
    let (mut at, mut whence) = (0, Whence::SeekData);
    loop {
        let next = lseek64(file, at, whence);
        found.push((whence, next));
        match next {
            Ok(offset) if found.len() < 20 => at = offset,
            _ => return found,
        }
        whence = if matches!(whence, Whence::SeekData) {
            Whence::SeekHole
        } else {
            Whence::SeekData
        };
    }
}

#[test]
fn holes_are_where_they_were_left() {
    let differences = [
        // Contents up to 64 KiB lie in slots, where holes save nothing.
        (
            "a small file with a hole",
            "[(SeekData, Ok(0)), (SeekHole, Ok(60000)), (SeekData, Err(ENXIO))]",
            "[(SeekData, Ok(57344)), (SeekHole, Ok(60000)), (SeekData, Err(ENXIO))]",
        ),
    ];
    compare(test_name!(), &differences, |place| {
        let file = place.open("sparse");
        ftruncate(&file, 8 * MIB).unwrap();
        place.note("only a hole", map(&file));
        for (offset, len) in [
            (0, 10),
            (MIB, 8192),
            (3 * MIB + 100, 4096),
            (8 * MIB - 10, 10),
        ] {
            file.write_all_at(&vec![1; len], offset as u64).unwrap();
        }
        file.sync_all().unwrap();
        place.note("data here and there", map(&file));
        fallocate(
            &file,
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | KEEP,
            MIB,
            4096,
        )
        .unwrap();
        fallocate(
            &file,
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | KEEP,
            3 * MIB,
            MIB,
        )
        .unwrap();
        file.sync_all().unwrap();
        place.note("after punching", map(&file));
        ftruncate(&file, 5 * MIB).unwrap();
        ftruncate(&file, 6 * MIB).unwrap();
        place.note("after cutting and growing", map(&file));
        place.note("blocks", file.metadata().unwrap().blocks());
        for (what, offset) in [
            ("at the end", 6 * MIB),
            ("past the end", 7 * MIB),
            ("before the beginning", -1),
        ] {
            place.result(
                format!("data {what}"),
                lseek64(&file, offset, Whence::SeekData),
            );
            place.result(
                format!("a hole {what}"),
                lseek64(&file, offset, Whence::SeekHole),
            );
        }
        let small = place.open("small");
        small.write_all_at(&[1; 10], 59_990).unwrap();
        small.sync_all().unwrap();
        place.note("a small file with a hole", map(&small));
        for name in ["README.md", "data/large.bin", "docs/empty"] {
            let base = File::open(place.at(name)).unwrap();
            place.note(name, map(&base));
        }
        // The end of a file is a hole's beginning, and seeking moves the offset.
        let mut base = File::open(place.at("docs/guide.md")).unwrap();
        lseek64(&base, 4, Whence::SeekData).unwrap();
        let mut rest = String::new();
        base.read_to_string(&mut rest).unwrap();
        place.note("read from there", rest);
    });
}

#[test]
fn ranges_are_copied_within_a_file_and_between_files() {
    compare_with(test_name!(), &[], |fork, place| {
        let content: Vec<u8> = (0..200_000u32).map(|n| (n / 1000) as u8).collect();
        let (from, to) = (place.file("from", &content), place.at("to"));
        let (source, target) = (place.open("from"), place.open("to"));
        let copy = |source: &File, from: i64, target: &File, to: i64, len| {
            copy_file_range(source, Some(&mut { from }), target, Some(&mut { to }), len)
        };
        place.result("all", copy(&source, 0, &target, 0, 200_000));
        place.note("all of it", fs::read(&to).unwrap() == content);
        place.result(
            "a part to a hole",
            copy(&source, 5000, &target, 500_000, 3000),
        );
        place.note("with a hole", runs(&to).len());
        place.result("over the end", copy(&source, 199_000, &target, 0, 5000));
        place.result("past the end", copy(&source, 300_000, &target, 0, 5000));
        place.result("nothing", copy(&source, 0, &target, 0, 0));
        place.result("within a file", copy(&source, 0, &source, 100_000, 50_000));
        place.note(
            "within it",
            fs::read(&from).unwrap()[100_000..150_000] == content[..50_000],
        );
        place.result("overlapping", copy(&source, 0, &source, 10, 100));
        place.result("onto its end", copy(&source, 0, &source, 200_000, 100));
        let reader = File::open(&from).unwrap();
        place.result(
            "to what is open for reading",
            copy(&source, 0, &reader, 0, 10),
        );
        let appender = OpenOptions::new().append(true).open(&to).unwrap();
        place.result(
            "to what is open for appending",
            copy(&source, 0, &appender, 0, 10),
        );
        let dir = File::open(place.dir()).unwrap();
        place.result("from a directory", copy(&dir, 0, &target, 0, 10));
        let base = File::open(place.at("data/large.bin")).unwrap();
        place.result("from the base", copy(&base, 100, &target, 7, 290_000));
        let expected = fs::read(place.at("data/large.bin")).unwrap();
        place.note(
            "from it",
            fs::read(&to).unwrap()[7..290_007] == expected[100..290_100],
        );
        let pid = nix::unistd::getpid();
        let elsewhere = format!("/dev/shm/tine-copy-{pid}-{}", place.dir().as_os_str().len());
        let other = open_with(Path::new(&elsewhere), 0).unwrap();
        fs::remove_file(&elsewhere).unwrap();
        place.result("to another file system", copy(&source, 0, &other, 0, 1000));
        place.result("reflink", clone_from(&source, &target));
        place.result("reflink of a range", clone_range(&source, &target));
        // As cp does it, which falls back.
        place.result(
            "by the library",
            fs::copy(&from, place.at("copied")).map_err(|error| error.code()),
        );
        if let Some(fork) = fork {
            let counters = fork.mounted_at().unwrap().counters();
            let copies = counters.iter().find(|(name, _)| *name == "copy_file_range");
            assert!(copies.unwrap().1 > 0, "the daemon copies");
        }
    });
}

fn clone_from(source: &File, target: &File) -> Result<i64, Errno> {
    // SAFETY: FICLONE takes a descriptor, which is open.
    checked(unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) })
}

fn clone_range(source: &File, target: &File) -> Result<i64, Errno> {
    // `struct file_clone_range`: descriptor, offset, length, offset.
    let range: [u64; 4] = [source.as_raw_fd() as u64, 0, 4096, 0];
    // SAFETY: FICLONERANGE reads the four numbers.
    checked(unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONERANGE, range.as_ptr()) })
}

#[test]
fn a_range_is_copied_from_one_fork_to_another() {
    require_fuse!();
    let (repo, other_repo) = (TestRepo::new(), TestRepo::new());
    let (one, two) = (
        TestFork::mounted(&repo, "one"),
        TestFork::mounted(&other_repo, "two"),
    );
    let source = File::open(one.path().join("data/large.bin")).unwrap();
    let target = open_with(&two.path().join("copy"), 0).unwrap();
    let mut done = 0;
    while done < 300_000 {
        done += copy_file_range(&source, None, &target, None, 300_000 - done).unwrap();
    }
    assert!(
        fs::read(two.path().join("copy")).unwrap()
            == fs::read(repo.dir().join("data/large.bin")).unwrap()
    );
    assert_eq!(clone_from(&source, &target), Err(Errno::EXDEV));
}

#[test]
fn pipes_take_and_give_pages() {
    compare(test_name!(), &[], |place| {
        let content = fs::read(place.at("data/large.bin")).unwrap();
        let source = File::open(place.at("data/large.bin")).unwrap();
        let target = place.open("spliced");
        let (read, write) = pipe();
        let (second_read, second_write) = pipe();
        let mut done = 0;
        while done < content.len() {
            let len = splice(&source, None, &write, None, 65536, SpliceFFlags::empty()).unwrap();
            assert_eq!(
                tee(&read, &second_write, len, SpliceFFlags::empty()),
                Ok(len)
            );
            let mut taught = vec![0; len];
            File::from(second_read.try_clone().unwrap())
                .read_exact(&mut taught)
                .unwrap();
            assert!(taught == content[done..done + len]);
            let mut left = len;
            while left > 0 {
                left -= splice(
                    &read,
                    None,
                    &target,
                    None,
                    left,
                    SpliceFFlags::SPLICE_F_MOVE,
                )
                .unwrap();
            }
            done += len;
        }
        place.note("spliced", fs::read(place.at("spliced")).unwrap() == content);
        let gift = vec![b'v'; 8192];
        vmsplice(
            &write,
            &[std::io::IoSlice::new(&gift)],
            SpliceFFlags::empty(),
        )
        .unwrap();
        let spliced = splice(
            &read,
            None,
            &target,
            Some(&mut 100),
            8192,
            SpliceFFlags::empty(),
        );
        place.result("from memory", spliced);
        place.note(
            "what was in memory",
            fs::read(place.at("spliced")).unwrap()[100..8292] == gift,
        );
        let sent = place.open("sent");
        let mut done = 0;
        while done < content.len() {
            done += sendfile(
                &sent,
                &source,
                Some(&mut (done as i64)),
                content.len() - done,
            )
            .unwrap();
        }
        place.note("sent", fs::read(place.at("sent")).unwrap() == content);
        let sent_over: Result<usize, Errno> = sendfile(&write, &source, Some(&mut 299_990), 100);
        place.result("sent over the end", sent_over);
        let appender = OpenOptions::new()
            .append(true)
            .open(place.at("sent"))
            .unwrap();
        place.result(
            "splice to append",
            splice(&read, None, &appender, None, 10, SpliceFFlags::empty()),
        );
    });
}
