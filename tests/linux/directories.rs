//! Listings: complete and stable while entries come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::compare::{Code, c_path, compare, compare_with};
use crate::support::{soaking, test_name};

/// A directory stream of the C library, which can go to places in its listing.
struct Stream(*mut libc::DIR);

impl Stream {
    fn open(path: &Path) -> Stream {
        // SAFETY: the path is NUL-terminated.
        let stream = unsafe { libc::opendir(c_path(path).as_ptr()) };
        assert!(!stream.is_null(), "{}", io::Error::last_os_error());
        Stream(stream)
    }

    /// The next name with its inode number; `None` at the end.
    fn next(&mut self) -> Option<(OsString, u64)> {
        // SAFETY: the stream is open while `self` lives, and an entry is valid until the next call
        // with it.
        unsafe {
            *libc::__errno_location() = 0;
            let entry = libc::readdir(self.0);
            if entry.is_null() {
                assert_eq!(
                    *libc::__errno_location(),
                    0,
                    "{}",
                    io::Error::last_os_error()
                );
                return None;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes().to_vec();
            Some((OsString::from_vec(name), (*entry).d_ino))
        }
    }

    fn position(&mut self) -> libc::c_long {
        // SAFETY: the stream is open while `self` lives.
        unsafe { libc::telldir(self.0) }
    }

    fn go_to(&mut self, position: libc::c_long) {
        // SAFETY: the stream is open while `self` lives.
        unsafe { libc::seekdir(self.0, position) }
    }

    fn rewind(&mut self) {
        // SAFETY: the stream is open while `self` lives.
        unsafe { libc::rewinddir(self.0) }
    }

    fn rest(&mut self) -> Vec<OsString> {
        std::iter::from_fn(|| self.next())
            .map(|(name, _)| name)
            .collect()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it is closed once.
        unsafe { libc::closedir(self.0) };
    }
}

fn fill(dir: &Path, prefix: &str, count: usize) {
    for number in 0..count {
        File::create(dir.join(format!("{prefix}-{number:05}"))).unwrap();
    }
}

#[test]
fn telldir_and_seekdir_lead_to_the_same_place() {
    compare(test_name!(), &[], |place| {
        fs::create_dir(place.at("made")).unwrap();
        fill(&place.at("made"), "file", 500);
        fill(&place.at("src"), "file", 500);
        for name in ["made", "src"] {
            let mut stream = Stream::open(&place.at(name));
            let mut positions = BTreeMap::new();
            let mut order = Vec::new();
            loop {
                let position = stream.position();
                let Some((entry, _)) = stream.next() else {
                    break;
                };
                positions.insert(entry.clone(), position);
                order.push(entry);
            }
            place.note(format!("{name}: entries"), order.len());
            for (at, entry) in order.iter().enumerate().step_by(37) {
                stream.go_to(positions[entry]);
                assert_eq!(stream.rest(), order[at..], "from {entry:?}");
            }
            // A position outlives its own entry and those around it.
            let middle = order.len() / 2;
            for gone in &order[middle - 50..middle + 50] {
                let path = place.at(name).join(gone);
                if path.is_file() {
                    fs::remove_file(path).unwrap();
                }
            }
            // Those that went may still be listed.
            stream.go_to(positions[&order[middle]]);
            let mut rest = stream.rest();
            let stays = |entry: &OsString| place.at(name).join(entry).exists();
            rest.retain(stays);
            let expected: Vec<&OsString> = order[middle..]
                .iter()
                .filter(|entry| stays(entry))
                .collect();
            assert!(rest.iter().collect::<Vec<_>>() == expected);
            stream.rewind();
            place.note(format!("{name}: left"), stream.rest().len());
        }
    });
}

#[test]
fn a_stream_that_is_rewound_sees_what_is_new() {
    compare(test_name!(), &[], |place| {
        for name in ["src", "docs"] {
            let mut stream = Stream::open(&place.at(name));
            let mut all: Vec<(OsString, u64)> = std::iter::from_fn(|| stream.next()).collect();
            all.sort();
            for (entry, number) in &all {
                if entry != ".." {
                    assert_eq!(
                        fs::symlink_metadata(place.at(name).join(entry))
                            .unwrap()
                            .ino(),
                        *number
                    );
                }
            }
            place.note(
                format!("{name}: names"),
                all.iter().map(|(entry, _)| entry).collect::<Vec<_>>(),
            );
            fs::write(place.at(name).join("new"), "").unwrap();
            fs::rename(place.at("run.sh"), place.at(name).join("run.sh")).unwrap();
            stream.rewind();
            let mut again = stream.rest();
            again.sort();
            place.note(format!("{name}: again"), again);
            fs::remove_file(place.at(name).join("new")).unwrap();
            fs::rename(place.at(name).join("run.sh"), place.at("run.sh")).unwrap();
            stream.rewind();
            let mut again = stream.rest();
            again.sort();
            place.note(format!("{name}: at last"), again);
        }
    });
}

/// A name that is there all the time is listed once, also where what it leads to is replaced behind
/// and before the reader: as an editor saves.
#[test]
fn a_name_that_is_replaced_is_listed_once() {
    compare(test_name!(), &[], |place| {
        fs::create_dir(place.at("made")).unwrap();
        fill(&place.at("made"), "file", 400);
        fs::create_dir(place.at("made/dir")).unwrap();
        for name in ["made", "src", "docs", "."] {
            let dir = place.at(name);
            let mut stream = Stream::open(&dir);
            let (first, _) = stream.next().unwrap();
            let mut seen = vec![first];
            let names: Vec<OsString> = fs::read_dir(&dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            for (round, entry) in names.iter().enumerate() {
                let (path, new) = (dir.join(entry), place.at("incoming"));
                if entry == ".git" || entry == "incoming" {
                    continue;
                }
                if path.is_dir() {
                    // Onto an empty directory of the same name, and back.
                    let away = place.at("away");
                    fs::create_dir(&away).unwrap();
                    renameat2(
                        AT_FDCWD,
                        &path,
                        AT_FDCWD,
                        &away,
                        RenameFlags::RENAME_EXCHANGE,
                    )
                    .unwrap();
                    if round % 2 == 0 {
                        renameat2(
                            AT_FDCWD,
                            &path,
                            AT_FDCWD,
                            &away,
                            RenameFlags::RENAME_EXCHANGE,
                        )
                        .unwrap();
                        fs::remove_dir(&away).unwrap();
                    } else {
                        fs::rename(&away, place.at("data").join(entry)).unwrap();
                    }
                } else {
                    fs::write(&new, "new").unwrap();
                    fs::rename(&new, &path).unwrap();
                }
                seen.extend(stream.next().map(|(entry, _)| entry));
            }
            seen.extend(stream.rest());
            seen.retain(|entry| entry != "incoming" && entry != "away");
            seen.sort();
            place.note(format!("{name}: names"), seen);
        }
    });
}

#[test]
fn every_entry_that_stays_is_seen_once_while_others_come_and_go() {
    let count = if soaking() { 20_000 } else { 1_200 };
    compare(test_name!(), &[], |place| {
        let dir = place.at("many");
        fs::create_dir(&dir).unwrap();
        fill(&dir, "stays", count / 2);
        fill(&dir, "goes", count / 2);
        let over = AtomicBool::new(false);
        let stable = |names: Vec<OsString>| -> usize {
            let mut stays: Vec<&OsString> = names
                .iter()
                .filter(|name| name.to_str().unwrap().starts_with("stays"))
                .collect();
            stays.sort();
            stays.dedup();
            let all: BTreeSet<&OsString> = names.iter().collect();
            assert_eq!(all.len(), names.len(), "something is listed twice");
            stays.len()
        };
        std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut rounds = 0;
                    let mut stream = Stream::open(&dir);
                    while !over.load(Ordering::Relaxed) || rounds == 0 {
                        stream.rewind();
                        assert_eq!(stable(stream.rest()), count / 2);
                        rounds += 1;
                    }
                })
            });
            for number in 0..count / 2 {
                fs::remove_file(dir.join(format!("goes-{number:05}"))).unwrap();
                if number % 2 == 0 {
                    File::create(dir.join(format!("comes-{number:05}"))).unwrap();
                }
                if number % 100 == 0 {
                    let name = dir.join(format!("comes-{number:05}"));
                    fs::rename(name, dir.join(format!("went-{number:05}"))).unwrap();
                }
            }
            over.store(true, Ordering::Relaxed);
            readers
                .into_iter()
                .for_each(|reader| reader.join().unwrap());
        });
        place.note("at the end", fs::read_dir(&dir).unwrap().count());
        // As `rm -r` does: what is listed is removed at once.
        for entry in fs::read_dir(&dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        place.outcome("removed", fs::remove_dir(&dir));
    });
}

#[test]
fn a_listing_ends_although_its_reader_makes_a_name_for_each_entry() {
    const COUNT: usize = 3_000;
    compare_with(test_name!(), &[], |fork, place| {
        for (name, is_renamed) in [
            ("renamed", true),
            ("copied", false),
            ("src", true),
            ("docs", false),
        ] {
            let dir = place.at(name);
            fs::create_dir_all(&dir).unwrap();
            fill(&dir, "file", COUNT);
            let count = fs::read_dir(&dir).unwrap().count();
            let mut seen = 0;
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let new = path.with_extension(format!("{seen}"));
                match is_renamed {
                    true => fs::rename(&path, &new).unwrap(),
                    false => drop(File::create(new).unwrap()),
                }
                seen += 1;
                assert!(seen < 4 * COUNT, "{name}: the listing goes on and on");
            }
            match fork {
                Some(_) => assert_eq!(seen, count, "{name}: what is made is not listed"),
                None => assert!(seen >= count),
            }
            let left = fs::read_dir(&dir).unwrap().count();
            assert_eq!(left, if is_renamed { count } else { count + seen });
        }
    });
}

#[test]
fn what_is_no_directory_is_not_listed() {
    compare(test_name!(), &[], |place| {
        for name in ["README.md", "missing", "dangling", "docs/up", "run.sh/x"] {
            let listed = fs::read_dir(place.at(name)).map(Iterator::count);
            place.result(name, listed.map_err(|error| error.code()));
        }
    });
}
