//! Names, paths, links, and how deep directories go.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use crate::compare::{Code, Place, compare};
use crate::support::{
    OutputExt, TestFork, TestRepo, require_fuse, run_with_timeout, soaking, test_name,
};

fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Every byte alone, and what encodings make trouble of.
fn odd_names() -> Vec<Vec<u8>> {
    let single = (1..=255u8)
        .filter(|byte| *byte != b'/' && *byte != b'.')
        .map(|byte| vec![byte]);
    let mut names: Vec<Vec<u8>> = single.collect();
    for odd in [
        &b"..."[..],
        b" .",
        b"\xff\xfe",
        b"a\xcc\x88",
        "\u{e4}".as_bytes(),
        "\u{c4}".as_bytes(),
        b"ae",
        b"AE",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"a\nb\r",
        b"-rf",
        b"con",
        b".git ",
        b".GIT",
        "\u{200c}.git".as_bytes(),
    ] {
        names.push(odd.to_vec());
    }
    for byte in [b'n', 0xc3, 0xff, b' '] {
        names.push(vec![byte; 255]);
    }
    names
}

#[test]
fn names_are_any_bytes_and_no_two_are_taken_for_one() {
    compare(test_name!(), &[], |place| {
        for dir in ["made", "src"] {
            let dir = place.at(dir);
            fs::create_dir_all(&dir).unwrap();
            let before = fs::read_dir(&dir).unwrap().count();
            for (number, bytes) in odd_names().iter().enumerate() {
                fs::write(dir.join(name(bytes)), number.to_string()).unwrap();
            }
            for (number, bytes) in odd_names().iter().enumerate() {
                assert_eq!(
                    fs::read(dir.join(name(bytes))).unwrap(),
                    number.to_string().as_bytes()
                );
            }
            let listed: BTreeSet<Vec<u8>> = fs::read_dir(&dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_vec())
                .collect();
            assert!(odd_names().iter().all(|bytes| listed.contains(bytes)));
            place.note(format!("listed beside {before}"), listed.len() - before);
            for bytes in odd_names() {
                let (from, to) = (dir.join(name(&bytes)), place.at("moved"));
                fs::rename(&from, &to).unwrap();
                fs::rename(&to, &from).unwrap();
                fs::remove_file(&from).unwrap();
            }
            assert_eq!(fs::read_dir(&dir).unwrap().count(), before);
            fs::rename(&dir, place.at(format!("done-{before}"))).unwrap();
        }
    });
}

#[test]
fn names_and_paths_that_are_too_long_are_refused_everywhere() {
    compare(test_name!(), &[], |place| {
        let root = place.dir().to_owned();
        let long = |len: usize| root.join(name(&vec![b'n'; len]));
        for len in [255, 256, 1024, 1025, 4000] {
            let path = long(len);
            let existing = root.join("README.md");
            let (also, dir) = (
                root.join(format!("also-{len}")),
                root.join(format!("dir-{len}")),
            );
            place.outcome(format!("{len}: stat"), fs::metadata(&path));
            place.outcome(format!("{len}: open"), File::open(&path));
            place.outcome(format!("{len}: create"), File::create(&path));
            place.outcome(format!("{len}: link"), fs::hard_link(&existing, &path));
            place.outcome(format!("{len}: unlink"), fs::remove_file(&path));
            place.outcome(format!("{len}: mkdir"), fs::create_dir(&path));
            place.outcome(format!("{len}: rmdir"), fs::remove_dir(&path));
            place.outcome(format!("{len}: symlink"), symlink("target", &path));
            place.outcome(format!("{len}: readlink"), fs::read_link(&path));
            place.outcome(format!("{len}: rename from"), fs::rename(&path, &also));
            fs::write(&dir, "").unwrap();
            place.outcome(format!("{len}: rename to"), fs::rename(&dir, &path));
            place.outcome(format!("{len}: beneath"), fs::metadata(path.join("x")));
        }
        // Not by characters: 128 of them with two bytes each are one byte too many.
        place.outcome(
            "two bytes each",
            fs::write(root.join("\u{e4}".repeat(128)), ""),
        );
        // PATH_MAX counts the NUL at the end.
        for len in [4094, 4095, 4096, 5000] {
            let mut path = root.as_os_str().as_bytes().to_vec();
            while path.len() < len {
                path.extend_from_slice(b"/.");
            }
            path.truncate(len);
            if path.ends_with(b"/") {
                path[len - 1] = b'.';
            }
            place.outcome(format!("a path of {len}"), fs::metadata(name(&path)));
        }
    });
}

#[test]
fn symlinks_hold_any_target_and_lead_on_forty_times() {
    compare(test_name!(), &[], |place| {
        for len in [1, 255, 4094, 4095, 4096] {
            let target = vec![b't'; len];
            let path = place.at(format!("to-{len}"));
            place.outcome(format!("a target of {len}"), symlink(name(&target), &path));
            if len < 4096 {
                assert_eq!(fs::read_link(&path).unwrap().as_os_str().as_bytes(), target);
                place.note(
                    format!("size of {len}"),
                    fs::symlink_metadata(&path).unwrap().len(),
                );
            }
            place.outcome(format!("followed, {len}"), fs::metadata(&path));
        }
        for target in [&b"\xff\n\x01 "[..], b"/", b".", b"a//b/../c", b".git"] {
            let path = place.at(format!("odd-{}", target.len()));
            symlink(name(target), &path).unwrap();
            assert_eq!(fs::read_link(&path).unwrap().as_os_str().as_bytes(), target);
            fs::remove_file(&path).unwrap();
        }
        place.outcome("nowhere", symlink("", place.at("empty-target")));
        place.outcome(
            "at a name that is taken",
            symlink("x", place.at("README.md")),
        );
        symlink("README.md", place.at("chain-0")).unwrap();
        for number in 1..=45 {
            symlink(
                format!("chain-{}", number - 1),
                place.at(format!("chain-{number}")),
            )
            .unwrap();
        }
        for number in [38, 39, 40, 45] {
            place.outcome(
                format!("{number} more"),
                fs::read(place.at(format!("chain-{number}"))),
            );
        }
        symlink("self", place.at("self")).unwrap();
        place.outcome("itself", fs::metadata(place.at("self")));
        place.outcome("create through itself", File::create(place.at("self")));
        place.outcome(
            "mode of a symlink",
            fs::symlink_metadata(place.at("self")).map(|meta| meta.mode()),
        );
        place.outcome(
            "chmod of a symlink's target",
            fs::set_permissions(
                place.at("link"),
                fs::metadata(place.at("run.sh")).unwrap().permissions(),
            ),
        );
        place.outcome("read what is no symlink", fs::read_link(place.at("run.sh")));
        // Its number and its links are its own.
        fs::hard_link(place.at("self"), place.at("self-too")).unwrap();
        place.note(
            "links of a symlink",
            fs::symlink_metadata(place.at("self")).unwrap().nlink(),
        );
    });
}

/// Makes directories in each other and goes down, past what a path can name.
fn go_down(place: &Place, levels: usize) -> std::os::fd::OwnedFd {
    let mut at = open(place.dir(), OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
        at = openat(&at, "d", OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    }
    at
}

#[test]
fn directories_are_made_and_removed_past_the_longest_path() {
    let levels = if soaking() { 10_000 } else { 2_500 };
    compare(test_name!(), &[], |place| {
        let bottom = go_down(place, levels);
        let file = openat(
            &bottom,
            "file",
            OFlag::O_CREAT | OFlag::O_RDWR,
            Mode::S_IRWXU,
        )
        .unwrap();
        nix::unistd::write(&file, b"deep").unwrap();
        let mut way = "d/".repeat(1000);
        place.note(
            "1,000 levels by path",
            fs::metadata(place.at(&way)).unwrap().nlink(),
        );
        way.push_str(&"d/".repeat(1500));
        place.outcome("2,500 levels by path", fs::metadata(place.at(&way)));
        let found = run_with_timeout(
            Command::new("find")
                .arg("d")
                .args(["-name", "file", "-printf", "%d %s"])
                .current_dir(place.dir()),
        );
        place.note("found", found.text());
        // The top goes into its own depths: refused. The bottom moves up: everything stays whole.
        let into = nix::fcntl::renameat(AT_FDCWD, &place.at("d"), &bottom, "in");
        place.result("into itself", into);
        fs::rename(place.at("d/".repeat(990)).join("d"), place.at("lower")).unwrap();
        let found = run_with_timeout(
            Command::new("find")
                .arg("lower")
                .args(["-name", "file", "-printf", "%d"])
                .current_dir(place.dir()),
        );
        place.note("found after moving", found.text());
        let removed = run_with_timeout(
            Command::new("rm")
                .args(["-rf", "d", "lower"])
                .current_dir(place.dir()),
        );
        place.note("removed", removed.status.code());
        place.note("gone", (place.at("d").exists(), place.at("lower").exists()));
        place.outcome(
            "at the removed bottom",
            openat(
                &bottom,
                "new",
                OFlag::O_CREAT | OFlag::O_RDWR,
                Mode::S_IRWXU,
            ),
        );
        place.outcome(
            "the removed file",
            unlinkat(&bottom, "file", UnlinkatFlags::NoRemoveDir),
        );
    });
}

/// A base whose directories go 1,000 levels down.
#[test]
fn a_deep_base_is_read_changed_and_removed() {
    require_fuse!();
    let repo = TestRepo::unborn();
    let way: PathBuf = std::iter::repeat_n("d", 1000).collect();
    repo.write(way.join("leaf").to_str().unwrap(), "deep\n");
    repo.commit_all("deep");
    let fork = TestFork::mounted(&repo, "one");
    let at = |path: &Path| fork.path().join(path);
    assert_eq!(fs::read(at(&way.join("leaf"))).unwrap(), b"deep\n");
    fs::write(at(&way.join("leaf")), "changed\n").unwrap();
    fs::create_dir(at(&way.join("more"))).unwrap();
    fs::rename(at(&way.join("leaf")), at(&way.join("more/leaf"))).unwrap();
    fs::rename(at(Path::new("d/d")), at(Path::new("moved"))).unwrap();
    let moved: PathBuf = Path::new("moved")
        .components()
        .chain(way.components().skip(2))
        .collect();
    assert_eq!(
        fs::read(at(&moved.join("more/leaf"))).unwrap(),
        b"changed\n"
    );
    let into = fs::rename(at(Path::new("moved")), at(&moved.join("in")));
    assert_eq!(into.unwrap_err().code(), Errno::EINVAL);
    assert!(!fork.changes().changes.is_empty());
    let removed = run_with_timeout(
        Command::new("rm")
            .args(["-rf", "d", "moved"])
            .current_dir(fork.path()),
    );
    removed.expect_success("rm -rf");
    assert_eq!(
        fs::read_dir(fork.path()).unwrap().count(),
        1,
        "only .git is left"
    );
}

#[test]
fn a_file_has_thousands_of_links() {
    let count = if soaking() { 70_000 } else { 3_000 };
    // ext4 counts them in 16 bits.
    let soaked = [
        ("made", "70001", "65000"),
        ("refused", "None", "Some(EMLINK)"),
        ("left", "1", "1"),
    ];
    let differences = if soaking() { &soaked[..2] } else { &[] };
    compare(test_name!(), differences, |place| {
        let first = place.file("first", "shared");
        let dir = place.at("links");
        fs::create_dir(&dir).unwrap();
        let mut refused = None;
        for number in 0..count {
            if let Err(error) = fs::hard_link(&first, dir.join(number.to_string())) {
                refused = Some(error.code());
                break;
            }
        }
        place.note("made", fs::metadata(&first).unwrap().nlink());
        place.note("refused", refused);
        fs::write(dir.join("77"), "written").unwrap();
        assert_eq!(fs::read(&first).unwrap(), b"written");
        assert_eq!(
            fs::metadata(dir.join("99")).unwrap().ino(),
            fs::metadata(&first).unwrap().ino()
        );
        fs::remove_dir_all(&dir).unwrap();
        place.note("left", fs::metadata(&first).unwrap().nlink());
        place.result(
            "a directory's",
            linkat(
                AT_FDCWD,
                &place.at("src"),
                AT_FDCWD,
                &place.at("twin"),
                AtFlags::empty(),
            ),
        );
        place.result(
            "onto itself",
            linkat(AT_FDCWD, &first, AT_FDCWD, &first, AtFlags::empty()),
        );
        place.result(
            "a symlink's",
            linkat(
                AT_FDCWD,
                &place.at("link"),
                AT_FDCWD,
                &place.at("twin"),
                AtFlags::empty(),
            ),
        );
        place.result(
            "what a symlink leads to",
            linkat(
                AT_FDCWD,
                &place.at("link"),
                AT_FDCWD,
                &place.at("other"),
                AtFlags::AT_SYMLINK_FOLLOW,
            ),
        );
        place.note(
            "both",
            (
                fs::symlink_metadata(place.at("twin")).unwrap().nlink(),
                fs::metadata(place.at("other")).unwrap().nlink(),
            ),
        );
    });
}
