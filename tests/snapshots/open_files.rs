//! What programs have open when their fork goes elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use tine::store::{MountProfile, SnapshotOptions, SnapshotReason, SnapshotRecord};

use crate::support::{TestFork, TestRepo, is_root, require_fuse, require_root, run_with_timeout};

fn snapshot(fork: &TestFork) -> SnapshotRecord {
    let options = SnapshotOptions::because(SnapshotReason::Asked);
    let taken = fork
        .store()
        .take_snapshot(fork.name(), fork.fork(), &options);
    taken.expect("a snapshot is taken")
}

/// What it was before.
fn restore(fork: &TestFork, to: &SnapshotRecord) -> SnapshotRecord {
    let reason = SnapshotReason::BeforeRestore;
    let before = fork.store().restore(fork.name(), fork.fork(), to, reason);
    before.expect("the fork is restored")
}

fn open(path: &Path) -> File {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().expect("it is open").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("it can be read");
    bytes
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("it can be listed");
    let names = entries.map(|entry| entry.expect("it can be listed").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Large enough to be a file of its own in the layer.
fn large(byte: u8) -> Vec<u8> {
    vec![byte; 200_000]
}

/// Everything that is looked at stands in the kernel's caches when the fork goes back.
#[test]
fn names_lead_to_what_was_at_once() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "demo");
    let at = |name: &str| fork.path().join(name);
    fs::create_dir_all(at("dir/sub")).unwrap();
    fs::write(at("dir/kept"), "kept").unwrap();
    fs::write(at("dir/changed"), "before").unwrap();
    fs::write(at("dir/deleted"), "deleted").unwrap();
    fs::write(at("dir/large"), large(1)).unwrap();
    symlink("before", at("pointer")).unwrap();
    fs::hard_link(at("dir/kept"), at("second")).unwrap();
    fs::write(at("README.md"), "mine\n").unwrap();
    let stat = |name: &str| {
        let meta = fs::symlink_metadata(at(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        (
            (meta.mode(), meta.nlink(), meta.len(), meta.ino()),
            (meta.mtime(), meta.mtime_nsec()),
        )
    };
    let ctime = |name: &str| {
        let meta = fs::symlink_metadata(at(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        (meta.ctime(), meta.ctime_nsec())
    };
    let looked_at = [
        "dir",
        "dir/sub",
        "dir/kept",
        "dir/changed",
        "dir/deleted",
        "dir/large",
        "pointer",
        "second",
        "README.md",
        "src",
    ];
    let before = looked_at.map(stat);
    let ctimes = looked_at.map(ctime);
    let listed = names_in(&at("dir"));
    let point = snapshot(&fork);
    assert_eq!(
        (looked_at.map(stat), looked_at.map(ctime)),
        (before, ctimes),
        "a snapshot changes nothing that is seen"
    );

    fs::write(at("dir/changed"), "after, and longer").unwrap();
    fs::remove_file(at("dir/deleted")).unwrap();
    fs::write(at("dir/large"), large(2)).unwrap();
    fs::write(at("dir/created"), "created").unwrap();
    fs::remove_file(at("pointer")).unwrap();
    symlink("after", at("pointer")).unwrap();
    fs::remove_file(at("second")).unwrap();
    fs::remove_file(at("README.md")).unwrap();
    fs::remove_dir(at("dir/sub")).unwrap();
    fs::write(at("dir/sub"), "a file now").unwrap();
    fs::rename(at("src"), at("source")).unwrap();
    fs::read(at("source/lib.rs"))
        .or_else(|_| fs::read(at("dir/kept")))
        .unwrap();
    // Names that are not there are remembered, too.
    for gone in ["dir/deleted", "second", "README.md", "src"] {
        assert_eq!(
            fs::symlink_metadata(at(gone)).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
    let changed = names_in(&at("dir"));

    let undone = restore(&fork, &point);
    for (name, (was, mtime)) in looked_at.into_iter().zip(before) {
        let (is, now) = stat(name);
        assert_eq!(is, was, "{name}");
        // Whoever builds must see that it came back, and that names came or went in a directory.
        assert!(now > mtime, "{name}");
    }
    // Only by it git can tell a file that came back from one of the same size that it saw
    // meanwhile.
    for (name, before) in looked_at.into_iter().zip(ctimes) {
        assert!(ctime(name) > before, "{name} came back by a change");
    }
    assert_eq!(names_in(&at("dir")), listed);
    assert_eq!(fs::read(at("dir/changed")).unwrap(), b"before");
    assert_eq!(fs::read(at("dir/large")).unwrap(), large(1));
    assert_eq!(fs::read(at("dir/deleted")).unwrap(), b"deleted");
    assert_eq!(fs::read(at("README.md")).unwrap(), b"mine\n");
    assert_eq!(fs::read_link(at("pointer")).unwrap(), Path::new("before"));
    for gone in ["dir/created", "source"] {
        assert_eq!(
            fs::symlink_metadata(at(gone)).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    restore(&fork, &undone);
    assert_eq!(names_in(&at("dir")), changed);
    assert_eq!(fs::read(at("dir/changed")).unwrap(), b"after, and longer");
    assert_eq!(fs::read(at("dir/sub")).unwrap(), b"a file now");
    assert_eq!(fs::read_link(at("pointer")).unwrap(), Path::new("after"));
    assert!(fs::symlink_metadata(at("src")).is_err());
}

/// Invariant 3 as well: what is open stays whole when nothing else reaches it.
#[test]
fn open_files_keep_what_they_had() {
    require_fuse!();
    let repo = TestRepo::new();
    let mut fork = TestFork::mounted(&repo, "demo");
    let root = fork.path().to_owned();
    let at = |name: &str| root.join(name);
    let names = [
        "small",
        "large",
        "linked",
        "base",
        "truncated",
        "deleted",
        "early",
    ];
    for name in names {
        fs::write(
            at(name),
            if name == "large" {
                large(1)
            } else {
                b"before".to_vec()
            },
        )
        .unwrap();
    }
    fs::remove_file(at("base")).unwrap();
    fs::rename(at("README.md"), at("base")).unwrap();
    let base = fs::read(at("base")).unwrap();
    fs::hard_link(at("linked"), at("other")).unwrap();
    // Open since before the snapshot, and written through it.
    let early = open(&at("early"));
    let point = snapshot(&fork);
    early.write_all_at(b"EARLY!", 0).unwrap();

    fs::write(at("small"), "after it").unwrap();
    fs::write(at("large"), large(2)).unwrap();
    fs::write(at("linked"), "after it").unwrap();
    fs::write(at("base"), "after it").unwrap();
    open(&at("truncated")).set_len(0).unwrap();
    fs::write(at("created"), "after it").unwrap();
    fs::write(at("created-large"), large(3)).unwrap();
    let held: Vec<(&str, File, Vec<u8>)> = [
        "small",
        "large",
        "linked",
        "base",
        "truncated",
        "deleted",
        "created",
        "created-large",
    ]
    .into_iter()
    .map(|name| {
        let file = open(&at(name));
        let bytes = bytes_of(&file);
        (name, file, bytes)
    })
    .collect();
    fs::remove_file(at("deleted")).unwrap();

    let undone = restore(&fork, &point);
    // Nothing names the layer any more.
    fork.store()
        .remove_snapshot(fork.name(), &undone.name)
        .unwrap();
    let check_view = |what: &str| {
        for name in names {
            let expected = match name {
                "large" => large(1),
                "base" => base.clone(),
                _ => b"before".to_vec(),
            };
            assert!(fs::read(at(name)).unwrap() == expected, "{what}: {name}");
        }
        assert_eq!(fs::read(at("other")).unwrap(), b"before", "{what}");
        assert_eq!(fs::metadata(at("other")).unwrap().nlink(), 2, "{what}");
        assert!(
            !at("created").exists() && !at("created-large").exists(),
            "{what}"
        );
    };
    check_view("restored");
    assert_eq!(bytes_of(&early), b"EARLY!");
    for (name, file, bytes) in &held {
        assert!(bytes_of(file) == *bytes, "{name} is as it was opened");
        assert_eq!(file.metadata().unwrap().nlink(), 0, "{name}");
    }
    // The disk takes it all, whoever has lost what.
    early.sync_all().unwrap();
    fork.workspace().sync().unwrap();

    for (name, file, bytes) in &held {
        file.write_all_at(b"XYZ", 0)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        file.set_len(100).unwrap();
        let mut expected = bytes.clone();
        expected.resize(100.max(expected.len()), 0);
        expected[..3].copy_from_slice(b"XYZ");
        expected.truncate(100);
        assert!(bytes_of(file) == expected, "{name} is written");
    }
    early.write_all_at(b"again", 0).unwrap();
    check_view("written through open files");
    // What is written by name is seen by name.
    fs::write(at("small"), "by name").unwrap();
    fs::write(at("other"), "by name").unwrap();
    assert_eq!(fs::read(at("linked")).unwrap(), b"by name");
    assert!(bytes_of(&held[0].1).starts_with(b"XYZ"));
    let later = snapshot(&fork);
    restore(&fork, &point);
    check_view("restored again");
    assert!(bytes_of(&held[0].1).starts_with(b"XYZ"));
    restore(&fork, &later);
    assert_eq!(fs::read(at("linked")).unwrap(), b"by name");
    assert!(
        bytes_of(&held[7].1).starts_with(b"XYZ"),
        "large, created and never kept"
    );

    drop((held, early));
    fork.reopen();
    assert_eq!(fs::read(at("small")).unwrap(), b"by name");
    restore(&fork, &point);
    check_view("opened again");
}

/// A file that is the same at both points goes on being the same file.
#[test]
fn open_files_that_did_not_change_go_on() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "demo");
    let at = |name: &str| fork.path().join(name);
    fs::write(at("same"), "same").unwrap();
    let point = snapshot(&fork);
    let files = ["same", "README.md"].map(|name| (name, open(&at(name))));
    fs::write(at("another"), "another").unwrap();
    restore(&fork, &point);
    for (name, file) in &files {
        assert_eq!(file.metadata().unwrap().nlink(), 1, "{name}");
        file.write_all_at(b"written", 0).unwrap();
        assert!(
            fs::read(at(name)).unwrap().starts_with(b"written"),
            "{name}"
        );
    }
}

/// A program that stands in a directory which is no more, or lists one, gets an answer.
#[test]
fn directories_that_are_no_more_can_be_stood_in() {
    require_fuse!();
    let repo = TestRepo::new();
    let fork = TestFork::mounted(&repo, "demo");
    let point = snapshot(&fork);
    let dir = fork.path().join("made/later");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("file"), "file").unwrap();
    let script = "exec 3<.; echo ready; read line; ls . ; touch here; cd ..; cd ../..; true";
    let mut shell = repo.command("sh", &dir);
    let mut child = shell
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    restore(&fork, &point);
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    child.wait().unwrap();
    assert!(!fork.path().join("made").exists());
    run_with_timeout(repo.command("ls", fork.path()).arg("-laR"));
}

/// Invariant 2: what the kernel reads by itself, and what is mapped, stays out of what was frozen.
#[test]
fn mapped_and_pinned_files_do_not_change_what_is_frozen() {
    require_fuse!();
    require_root!("have the kernel read files by itself");
    assert!(is_root());
    for profile in [MountProfile::Everyday, MountProfile::LargeFiles] {
        let repo = TestRepo::new();
        let mut fork = TestFork::with(&repo, "demo", |options| options.settings.profile = profile);
        fork.mount();
        let path = fork.path().join("large");
        let small = fork.path().join("small");
        fs::write(&path, large(1)).unwrap();
        fs::write(&small, [1; 4096]).unwrap();
        let script = "
import mmap, sys
files = [open(path, 'r+b') for path in ('large', 'small')]
maps = [mmap.mmap(file.fileno(), 0) for file in files]
reader = open('large', 'rb', buffering=0)
assert reader.read(3) == b'\\x01' * 3
for byte in (2, 3, 4):
    print('ready', flush=True)
    sys.stdin.readline()
    for map in maps:
        map[0:100] = bytes([byte]) * 100
        map.flush()
    files[0].seek(1000)
    files[0].write(bytes([byte]) * 100)
    files[0].flush()
    reader.seek(0)
    assert reader.read(100) == bytes([byte]) * 100, 'the reader sees what is written'
print('done', flush=True)
";
        let mut python = repo
            .command("python3", fork.path())
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = std::io::BufReader::new(python.stdout.take().unwrap());
        let mut said = |expected: &str| {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut output, &mut line).unwrap();
            assert_eq!(line.trim(), expected, "{profile:?}");
        };
        let mut points = Vec::new();
        for _ in 0..3 {
            said("ready");
            points.push(snapshot(&fork));
            std::io::Write::write_all(python.stdin.as_mut().unwrap(), b"go\n").unwrap();
        }
        said("done");
        assert!(python.wait().unwrap().success());
        let check = |fork: &TestFork, points: &[SnapshotRecord]| {
            for (point, byte) in points.iter().zip(1_u8..) {
                restore(fork, point);
                let found = fs::read(&path).unwrap();
                assert_eq!(found.len(), 200_000);
                for at in [0, 99, 1000, 1099] {
                    assert_eq!(found[at], byte, "{profile:?}: byte {at} of {}", point.name);
                }
                assert_eq!(fs::read(&small).unwrap()[..100], [byte; 100], "{profile:?}");
            }
        };
        check(&fork, &points);
        fork.reopen();
        check(&fork, &points);
    }
}
