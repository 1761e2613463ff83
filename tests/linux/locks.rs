//! Locks between processes: flock, those of fcntl, those of open file descriptions, and leases.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::compare::{Child, Code, PATIENCE, checked, compare, errno_in_child, in_child};
use crate::support::{test_name, wait_until};

/// The three kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Flock,
    Posix,
    Description,
}

const KINDS: [Kind; 3] = [Kind::Flock, Kind::Posix, Kind::Description];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Shared,
    Exclusive,
    None,
}

fn range(mode: Mode, start: i64, len: i64) -> libc::flock {
    let kind = match mode {
        Mode::Shared => libc::F_RDLCK,
        Mode::Exclusive => libc::F_WRLCK,
        Mode::None => libc::F_UNLCK,
    };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

/// Locks a whole file, or unlocks it.
fn lock(file: &File, kind: Kind, mode: Mode, wait: bool) -> Result<(), Errno> {
    let whole = range(mode, 0, 0);
    match kind {
        Kind::Flock => {
            let how = match mode {
                Mode::Shared => libc::LOCK_SH,
                Mode::Exclusive => libc::LOCK_EX,
                Mode::None => libc::LOCK_UN,
            };
            let how = if wait { how } else { how | libc::LOCK_NB };
            // SAFETY: the descriptor is open while `file` is borrowed.
            checked(unsafe { libc::flock(file.as_raw_fd(), how) }).map(drop)
        }
        Kind::Posix if wait => fcntl(file, FcntlArg::F_SETLKW(&whole)).map(drop),
        Kind::Posix => fcntl(file, FcntlArg::F_SETLK(&whole)).map(drop),
        Kind::Description if wait => fcntl(file, FcntlArg::F_OFD_SETLKW(&whole)).map(drop),
        Kind::Description => fcntl(file, FcntlArg::F_OFD_SETLK(&whole)).map(drop),
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// What another process that opens the file gets.
fn from_elsewhere(path: &Path, kind: Kind, mode: Mode) -> Result<(), Errno> {
    errno_in_child(|| lock(&open(path), kind, mode, false))
}

#[test]
fn locks_of_every_kind_exclude_those_they_should() {
    compare(test_name!(), &[], |place| {
        let path = place.at("README.md");
        for (ours, theirs) in KINDS
            .iter()
            .flat_map(|ours| KINDS.iter().map(move |theirs| (*ours, *theirs)))
        {
            for mode in [Mode::Shared, Mode::Exclusive] {
                let file = open(&path);
                lock(&file, ours, mode, false).unwrap();
                for wanted in [Mode::Shared, Mode::Exclusive] {
                    let what = format!("{theirs:?} {wanted:?} against {ours:?} {mode:?}");
                    place.result(what, from_elsewhere(&path, theirs, wanted));
                }
                // From shared to exclusive and back, and away.
                let again = [Mode::Exclusive, Mode::Shared, Mode::None]
                    .map(|mode| lock(&file, ours, mode, false));
                place.note(
                    format!("converted {ours:?} {mode:?}, beside {theirs:?}"),
                    again,
                );
                place.result(
                    format!("freed {ours:?} {mode:?}: {theirs:?}"),
                    from_elsewhere(&path, theirs, Mode::Exclusive),
                );
            }
        }
    });
}

#[test]
fn ranges_are_locked_apart_and_who_holds_them_is_told() {
    compare(test_name!(), &[], |place| {
        let path = place.at("data/large.bin");
        let file = open(&path);
        let set = |mode, start, len| fcntl(&file, FcntlArg::F_SETLK(&range(mode, start, len)));
        place.result("a range", set(Mode::Exclusive, 100, 100));
        place.result("another", set(Mode::Shared, 500, 0));
        place.result("its middle freed", set(Mode::None, 120, 10));
        for (start, len) in [
            (0, 100),
            (100, 1),
            (120, 10),
            (115, 10),
            (130, 1),
            (200, 300),
            (499, 2),
            (i64::MAX, 0),
        ] {
            for mode in [Mode::Shared, Mode::Exclusive] {
                let wanted = range(mode, start, len);
                let set =
                    errno_in_child(|| fcntl(open(&path), FcntlArg::F_SETLK(&wanted)).map(drop));
                place.result(format!("{start} {len} {mode:?}"), set);
            }
        }
        let us = nix::unistd::getpid().as_raw();
        let told = errno_in_child(|| {
            let mut wanted = range(Mode::Exclusive, 0, 0);
            fcntl(open(&path), FcntlArg::F_GETLK(&mut wanted))?;
            let holder = (
                wanted.l_pid,
                wanted.l_start,
                wanted.l_len,
                i32::from(wanted.l_type),
            );
            if holder == (us, 100, 20, libc::F_WRLCK) {
                Ok(())
            } else {
                Err(Errno::EBADMSG)
            }
        });
        place.result("who holds it", told);
        let reader = File::open(&path).unwrap();
        place.result(
            "exclusive by a reader",
            fcntl(&reader, FcntlArg::F_SETLK(&range(Mode::Exclusive, 0, 1))),
        );
        place.result("before the beginning", set(Mode::Shared, -5, 2));
        // Those of a process go with any of its descriptors.
        drop(reader);
        let free = errno_in_child(|| lock(&open(&path), Kind::Posix, Mode::Exclusive, false));
        place.result("after closing another descriptor", free);
    });
}

#[test]
fn locks_go_with_who_held_them() {
    compare(test_name!(), &[], |place| {
        let path = place.at("README.md");
        for kind in KINDS {
            let file = open(&path);
            lock(&file, kind, Mode::Exclusive, false).unwrap();
            let twin = file.try_clone().unwrap();
            drop(file);
            place.result(
                format!("{kind:?} after closing one of two"),
                from_elsewhere(&path, kind, Mode::Exclusive),
            );
            drop(twin);
            // Children of other tests have the descriptor, too, for as long as they live.
            wait_until("the lock is free", PATIENCE, || {
                from_elsewhere(&path, kind, Mode::Exclusive).is_ok()
            });

            let holder = Child::start(|| {
                let file = open(&path);
                lock(&file, kind, Mode::Exclusive, false).unwrap();
                nix::unistd::pause();
                0
            });
            holder.wait_until_asleep();
            place.result(
                format!("{kind:?} held by another"),
                from_elsewhere(&path, kind, Mode::Shared),
            );
            holder.signal(Signal::SIGKILL);
            place.note(format!("{kind:?} its end"), holder.end());
            place.result(
                format!("{kind:?} after its end"),
                from_elsewhere(&path, kind, Mode::Exclusive),
            );

            // A lock is on the file, whatever becomes of its name.
            let nameless = open(&path);
            lock(&nameless, kind, Mode::Exclusive, false).unwrap();
            fs::rename(&path, place.at("renamed")).unwrap();
            place.result(
                format!("{kind:?} renamed"),
                from_elsewhere(&place.at("renamed"), kind, Mode::Shared),
            );
            fs::remove_file(place.at("renamed")).unwrap();
            fs::write(&path, "new").unwrap();
            place.result(
                format!("{kind:?} of a new file"),
                from_elsewhere(&path, kind, Mode::Exclusive),
            );
        }
    });
}

extern "C" fn nothing(_signal: libc::c_int) {}

#[test]
fn who_waits_for_a_lock_gets_it_or_is_interrupted() {
    compare(test_name!(), &[], |place| {
        let path = place.at("README.md");
        for kind in KINDS {
            let holder = open(&path);
            lock(&holder, kind, Mode::Exclusive, false).unwrap();
            let wait = || {
                Child::start(|| {
                    let action = SigAction::new(
                        SigHandler::Handler(nothing),
                        SaFlags::empty(),
                        SigSet::empty(),
                    );
                    // SAFETY: the handler does nothing.
                    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
                    lock(&open(&path), kind, Mode::Exclusive, true)
                        .err()
                        .map_or(0, |errno| errno as i32)
                })
            };
            let waiting = wait();
            waiting.wait_until_asleep();
            waiting.signal(Signal::SIGUSR1);
            place.note(
                format!("{kind:?} interrupted"),
                waiting.end().map(Errno::from_raw),
            );
            let waiting = wait();
            waiting.wait_until_asleep();
            waiting.signal(Signal::SIGTERM);
            place.note(format!("{kind:?} killed"), waiting.end());
            let waiting = wait();
            waiting.wait_until_asleep();
            lock(&holder, kind, Mode::None, false).unwrap();
            place.note(format!("{kind:?} got it"), waiting.end());
        }
    });
}

#[test]
fn two_who_wait_for_each_other_are_told() {
    compare(test_name!(), &[], |place| {
        let path = place.at("README.md");
        let file = open(&path);
        let lock = |file: &File, start: i64| {
            fcntl(file, FcntlArg::F_SETLKW(&range(Mode::Exclusive, start, 1)))
        };
        lock(&file, 0).unwrap();
        let other = Child::start(|| {
            let file = open(&path);
            lock(&file, 1).unwrap();
            lock(&file, 0).err().map_or(0, |errno| errno as i32)
        });
        other.wait_until_asleep();
        place.result("the second", lock(&file, 1));
        drop(file);
        place.note("the first", other.end());
    });
}

fn lease(file: &File, kind: libc::c_int) -> Result<i64, Errno> {
    // SAFETY: the descriptor is open while `file` is borrowed.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) })
}

#[test]
fn a_lease_is_broken_by_who_opens_the_file() {
    compare(test_name!(), &[], |place| {
        // In a process of its own: a descriptor that another test's child inherited would be in the
        // way.
        let seen = place.at("seen");
        let end = in_child(|| {
            // The signal that tells the holder is for nobody here.
            // SAFETY: no handler is installed.
            unsafe { nix::sys::signal::signal(Signal::SIGIO, SigHandler::SigIgn) }.unwrap();
            let path = place.at("README.md");
            let reader = File::open(&path).unwrap();
            let open_to_write = || {
                let mut options = OpenOptions::new();
                options.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
                options.open(&path).map_err(|error| error.code())
            };
            let for_reading = lease(&reader, libc::F_RDLCK);
            // SAFETY: the descriptor is open.
            let told = checked(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_GETLEASE) });
            let another = File::open(&path).map(drop).map_err(|error| error.code());
            let writer = open_to_write().map(drop);
            let given_back = lease(&reader, libc::F_UNLCK);
            let writer_after_that = open_to_write().map(drop);
            let by_a_reader = lease(&reader, libc::F_WRLCK);
            lease(&reader, libc::F_UNLCK).unwrap();
            let held = open_to_write().unwrap();
            let beside_a_writer = lease(&reader, libc::F_RDLCK);
            drop((held, reader));
            let alone = lease(&open(&path), libc::F_WRLCK);
            let directory = lease(&File::open(place.dir()).unwrap(), libc::F_RDLCK);
            let openers = (another, writer, writer_after_that);
            let leases = [
                for_reading,
                told,
                given_back,
                by_a_reader,
                beside_a_writer,
                alone,
                directory,
            ];
            fs::write(&seen, format!("{openers:?} {leases:?}")).unwrap();
            0
        });
        place.note("its end", end);
        place.note("seen", fs::read_to_string(&seen).unwrap());
    });
}
