//! Times: which of them a change moves, and which values they can have.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, fallocate, renameat2};
use nix::sys::stat::{Mode, UtimensatFlags, futimens, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{chown, ftruncate, mkfifo, truncate};

use crate::compare::{PATIENCE, Place, c_path, checked, compare, compare_with, open_with};
use crate::support::{test_name, wait_until};

/// Access, modification and change time.
type Times = [(i64, i64); 3];

fn times(path: &Path) -> Times {
    let meta = fs::symlink_metadata(path).expect("it is there");
    [
        (meta.atime(), meta.atime_nsec()),
        (meta.mtime(), meta.mtime_nsec()),
        (meta.ctime(), meta.ctime_nsec()),
    ]
}

/// Waits until a change would get another time than `path` has: the clock of file systems ticks
/// every few milliseconds.
fn wait_for_tick(path: &Path) {
    let (secs, nanos) = times(path)[2];
    let last = SystemTime::UNIX_EPOCH + Duration::new(secs as u64, nanos as u32);
    wait_until("the clock ticks", PATIENCE, || {
        SystemTime::now() > last + Duration::from_millis(20)
    });
}

/// Notes which times of `subjects` (atime, mtime, ctime) `change` moves.
#[track_caller]
fn moves(place: &mut Place, what: &str, subjects: &[&Path], change: impl FnOnce()) {
    subjects.iter().for_each(|subject| wait_for_tick(subject));
    let before: Vec<Times> = subjects.iter().map(|subject| times(subject)).collect();
    change();
    let moved: Vec<String> = subjects
        .iter()
        .zip(before)
        .map(|(subject, before)| {
            let after = times(subject);
            let letters = ['a', 'm', 'c'].iter().zip(before.iter().zip(&after));
            let changed = letters.filter(|(_, (before, after))| before != after);
            changed.map(|(letter, _)| letter).collect()
        })
        .collect();
    place.note(what, moved.join(" "));
}

#[test]
fn a_change_of_a_file_moves_the_times_that_ext4_moves() {
    compare(test_name!(), &[], |place| {
        let made = place.file("made", "0123456789");
        let base = place.at("README.md");
        for (kind, path) in [("made", made.as_path()), ("base", base.as_path())] {
            let label = |what: &str| format!("{kind}: {what}");
            let file = place.open(path);
            let uid = nix::unistd::getuid();
            moves(place, &label("chmod"), &[path], || {
                fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
            });
            moves(place, &label("chmod to the same mode"), &[path], || {
                fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
            });
            moves(place, &label("chown to the same owner"), &[path], || {
                chown(path, Some(uid), None).unwrap();
            });
            moves(
                place,
                &label("chown to nobody in particular"),
                &[path],
                || {
                    chown(path, None, None).unwrap();
                },
            );
            moves(place, &label("write"), &[path], || {
                (&file).write_all(b"x").unwrap()
            });
            moves(place, &label("write of nothing"), &[path], || {
                assert_eq!((&file).write(b"").unwrap(), 0);
            });
            let len = file.metadata().unwrap().len() as i64;
            moves(place, &label("truncate to the same size"), &[path], || {
                truncate(path, len).unwrap()
            });
            moves(place, &label("ftruncate to the same size"), &[path], || {
                ftruncate(&file, len).unwrap()
            });
            moves(place, &label("truncate"), &[path], || {
                truncate(path, len - 1).unwrap()
            });
            moves(place, &label("ftruncate"), &[path], || {
                ftruncate(&file, len + 4).unwrap()
            });
            moves(place, &label("O_TRUNC"), &[path], || {
                drop(File::create(path).unwrap())
            });
            moves(place, &label("O_TRUNC of what is empty"), &[path], || {
                drop(File::create(path).unwrap())
            });
            moves(place, &label("fallocate"), &[path], || {
                fallocate(&file, FallocateFlags::empty(), 0, 100).unwrap();
            });
            moves(place, &label("fallocate keeping the size"), &[path], || {
                fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 10_000).unwrap();
            });
            moves(place, &label("punch hole"), &[path], || {
                let flags =
                    FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                fallocate(&file, flags, 0, 10).unwrap();
            });
            let (name, value) = (c"user.name", b"value");
            moves(place, &label("setxattr"), &[path], || {
                let file = file.as_raw_fd();
                // SAFETY: the name is NUL-terminated and the value as long as is said.
                let set = unsafe {
                    libc::fsetxattr(file, name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
                };
                checked(set).unwrap();
            });
            moves(place, &label("removexattr"), &[path], || {
                // SAFETY: both strings are NUL-terminated.
                checked(unsafe { libc::removexattr(c_path(path).as_ptr(), name.as_ptr()) })
                    .unwrap();
            });
            let (twin, moved) = (
                place.at(format!("{kind}-twin")),
                place.at(format!("{kind}-moved")),
            );
            moves(place, &label("link"), &[path], || {
                fs::hard_link(path, &twin).unwrap()
            });
            moves(place, &label("rename of the other link"), &[path], || {
                fs::rename(&twin, &moved).unwrap()
            });
            moves(place, &label("unlink of the other link"), &[path], || {
                fs::remove_file(&moved).unwrap()
            });
            moves(place, &label("fsync"), &[path], || file.sync_all().unwrap());
            moves(place, &label("setting atime"), &[path], || {
                utimensat(
                    AT_FDCWD,
                    path,
                    &TimeSpec::new(5, 6),
                    &TimeSpec::UTIME_OMIT,
                    UtimensatFlags::FollowSymlink,
                )
                .unwrap();
            });
            moves(place, &label("setting neither"), &[path], || {
                futimens(&file, &TimeSpec::UTIME_OMIT, &TimeSpec::UTIME_OMIT).unwrap();
            });
            moves(place, &label("setting mtime to now"), &[path], || {
                futimens(&file, &TimeSpec::UTIME_OMIT, &TimeSpec::UTIME_NOW).unwrap();
            });
            let away = place.at(format!("{kind}-away"));
            wait_for_tick(path);
            let before = times(path)[2];
            fs::rename(path, &away).unwrap();
            place.note(label("rename moves ctime"), times(&away)[2] != before);
            wait_for_tick(&away);
            let before = file.metadata().unwrap().ctime_nsec();
            fs::remove_file(&away).unwrap();
            place.note(
                label("unlink moves ctime of what is open"),
                file.metadata().unwrap().ctime_nsec() != before,
            );
        }
    });
}

#[test]
fn a_change_of_an_entry_moves_the_times_of_its_directories() {
    compare(test_name!(), &[], |place| {
        fs::create_dir(place.at("made")).unwrap();
        fs::create_dir(place.at("made/sub")).unwrap();
        fs::create_dir(place.at("other")).unwrap();
        let other = place.at("other");
        let root = place.dir().to_owned();
        for (kind, name) in [("made", "made"), ("base", "src")] {
            let dir = place.at(name);
            let at = |name: &str| dir.join(name);
            let label = |what: &str| format!("{kind}: {what}");
            let subjects = [dir.as_path(), other.as_path(), root.as_path()];
            moves(place, &label("create"), &subjects, || {
                fs::write(at("a"), "").unwrap()
            });
            moves(place, &label("write"), &subjects, || {
                fs::write(at("a"), "more").unwrap()
            });
            moves(place, &label("chmod"), &subjects, || {
                fs::set_permissions(at("a"), Permissions::from_mode(0o600)).unwrap();
            });
            moves(place, &label("mkdir"), &subjects, || {
                fs::create_dir(at("d")).unwrap()
            });
            moves(place, &label("symlink"), &subjects, || {
                symlink("a", at("s")).unwrap()
            });
            moves(place, &label("mkfifo"), &subjects, || {
                mkfifo(&at("p"), Mode::S_IRWXU).unwrap()
            });
            moves(place, &label("link"), &subjects, || {
                fs::hard_link(at("a"), at("l")).unwrap()
            });
            moves(place, &label("rename within"), &subjects, || {
                fs::rename(at("l"), at("m")).unwrap()
            });
            moves(place, &label("rename onto another link"), &subjects, || {
                fs::rename(at("a"), at("m")).unwrap();
            });
            moves(place, &label("rename away"), &subjects, || {
                fs::rename(at("m"), other.join(kind)).unwrap()
            });
            moves(
                place,
                &label("rename of a directory away"),
                &[&dir, &other, &at("d")],
                || {
                    // Looked at afterwards under its old name: it is made anew there.
                    fs::rename(at("d"), other.join(format!("{kind}-d"))).unwrap();
                    fs::create_dir(at("d")).unwrap();
                },
            );
            moves(place, &label("exchange"), &subjects, || {
                let (from, to) = (at("d"), other.join(kind));
                renameat2(AT_FDCWD, &from, AT_FDCWD, &to, RenameFlags::RENAME_EXCHANGE).unwrap();
            });
            moves(place, &label("unlink"), &subjects, || {
                fs::remove_file(at("s")).unwrap()
            });
            moves(place, &label("rmdir"), &subjects, || {
                fs::remove_dir(other.join(kind)).unwrap()
            });
            moves(place, &label("what fails"), &subjects, || {
                fs::remove_file(at("missing")).unwrap_err();
                fs::create_dir(at("p")).unwrap_err();
                fs::rename(at("missing"), at("p")).unwrap_err();
            });
        }
    });
}

#[test]
fn times_are_kept_over_all_of_their_range() {
    const EXT4_LAST: i64 = (1 << 34) - (1 << 31) - 1;
    let differences = [
        // ext4 has 34 bits for the seconds, from 1901 to 2446, and takes the nearest time that it
        // knows.
        (
            "one second after ext4's last",
            "((15032385536, 5), (15032385536, 5))",
            "((15032385535, 0), (15032385535, 0))",
        ),
        (
            "one second before ext4's first",
            "((-2147483649, 5), (-2147483649, 5))",
            "((-2147483648, 0), (-2147483648, 0))",
        ),
        (
            "far from now",
            "((1099511627776, 999999999), (1099511627776, 999999999))",
            "((15032385535, 0), (15032385535, 0))",
        ),
        (
            "the last there is",
            "((9223372036854775807, 0), (9223372036854775807, 0))",
            "((15032385535, 0), (15032385535, 0))",
        ),
        (
            "the first but one",
            "((-9223372036854775807, 5), (-9223372036854775807, 5))",
            "((-2147483648, 0), (-2147483648, 0))",
        ),
    ];
    compare(test_name!(), &differences, |place| {
        let path = place.file("file", "");
        for (what, secs, nanos) in [
            ("now, to the nanosecond", 1_700_000_000, 123_456_789),
            ("the beginning", 0, 0),
            ("just before 1970", -1, 999_999_999),
            ("well before 1970", -1_000_000_000, 1),
            ("ext4's second", -(1 << 31) + 1, 500_000_000),
            ("2038", (1 << 31) - 1, 999_999_999),
            ("after 2038", 1 << 31, 1),
            ("2106", 1 << 32, 999_999_999),
            ("ext4's last but one", EXT4_LAST - 1, 999_999_999),
            ("one second after ext4's last", EXT4_LAST + 1, 5),
            ("one second before ext4's first", -(1 << 31) - 1, 5),
            ("far from now", 1 << 40, 999_999_999),
            ("the last there is", i64::MAX, 5),
            ("the first but one", -i64::MAX, 5),
        ] {
            let time = TimeSpec::new(secs, nanos);
            utimensat(AT_FDCWD, &path, &time, &time, UtimensatFlags::FollowSymlink).unwrap();
            let [atime, mtime, _] = times(&path);
            place.note(what, (atime, mtime));
        }
        for nanos in [-1, 1_000_000_000] {
            let time = TimeSpec::new(0, nanos);
            let set = utimensat(AT_FDCWD, &path, &time, &time, UtimensatFlags::FollowSymlink);
            place.outcome(format!("{nanos} ns"), set);
        }
        // A symlink's own.
        let link = place.at("link");
        let time = TimeSpec::new(-77, 77);
        utimensat(
            AT_FDCWD,
            &link,
            &time,
            &time,
            UtimensatFlags::NoFollowSymlink,
        )
        .unwrap();
        place.note("of a symlink", times(&link)[1]);
    });
}

/// All but the clock's own granularity: two changes in a row may bear the same time anywhere.
#[test]
fn the_time_of_a_change_is_the_current_time() {
    compare(test_name!(), &[], |place| {
        let before = SystemTime::now() - Duration::from_millis(20);
        let path = place.file("file", "content");
        let meta = fs::metadata(path).unwrap();
        let after = SystemTime::now();
        let within = |time: SystemTime| before <= time && time <= after;
        place.note("mtime", within(meta.modified().unwrap()));
        place.note("atime", within(meta.accessed().unwrap()));
        place.note("the same for all", meta.mtime_nsec() == meta.ctime_nsec());
    });
}

/// What is read through a cache that the daemon does not see cannot move atime, and `noatime` says
/// so.
#[test]
fn access_times_move_only_when_set() {
    compare_with(test_name!(), &[], |fork, place| {
        if fork.is_none() {
            return;
        }
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let ours = table
            .lines()
            .find(|line| line.contains(&format!(" {} ", place.dir().display())));
        let options = ours.expect("it is mounted").split(' ').nth(3).unwrap();
        assert!(
            options.split(',').any(|option| option == "noatime"),
            "{options}"
        );
        for name in ["README.md", "data/large.bin"] {
            let path = place.at(name);
            let before = times(&path);
            fs::read(&path).unwrap();
            let direct = open_with(&path, libc::O_DIRECT).unwrap();
            direct.read_at(&mut [0; 4096], 0).unwrap();
            let mut noatime = open_with(&path, libc::O_NOATIME).unwrap();
            noatime.read_exact(&mut [0; 10]).unwrap();
            assert_eq!(times(&path), before);
        }
        let before = times(&place.at("src"));
        assert_eq!(fs::read_dir(place.at("src")).unwrap().count(), 2);
        assert_eq!(times(&place.at("src")), before);
    });
}

#[test]
fn what_is_written_through_a_mapping_has_a_time_of_its_own() {
    compare(test_name!(), &[], |place| {
        let path = place.file("mapped", vec![0; 8192]);
        let file = place.open("mapped");
        let mut mapping = crate::mapping::Mapping::shared(&file, 8192);
        moves(place, "writing and msync", &[&path], || {
            mapping.bytes()[5] = 1;
            mapping.sync();
        });
        moves(place, "reading and msync", &[&path], || {
            assert_eq!(mapping.bytes()[5], 1);
            mapping.sync();
        });
    });
}
