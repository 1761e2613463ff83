//! Mounts for large files, whose contents the kernel reads by itself: the same bytes as everywhere,
//! whoever changes them.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{TestFork, TestRepo, require_fuse, require_program, require_root, run_with_timeout};
use tine::attr::Ino;
use tine::path::RepoPath;
use tine::store::MountProfile;
use tine::workspace::{Caller, SetAttr};

const LARGE: usize = 1 << 20;
const SMALL: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(20);

/// A fork for large files with one such file in it, closed.
fn with_large_file(repo: &TestRepo) -> TestFork {
    let mut fork = TestFork::with(repo, "one", |options| {
        options.settings.profile = MountProfile::LargeFiles;
    });
    fork.mount();
    fs::write(fork.path().join("large"), pattern(LARGE)).unwrap();
    // The kernel waits for no answer when it closes a file, and as long as one is open through its
    // cache, all are.
    support::wait_until("the written file is closed", PATIENCE, || {
        requests(&fork, "release") == requests(&fork, "open")
    });
    fork
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8).collect()
}

fn ino(fork: &TestFork, name: &str) -> Ino {
    let path = RepoPath::parse(name).unwrap();
    fork.workspace().resolve(&path).unwrap().ino
}

/// How many requests of a kind came so far.
fn requests(fork: &TestFork, kind: &str) -> u64 {
    let counters = fork.mounted_at().unwrap().counters();
    counters.iter().find(|(name, _)| *name == kind).unwrap().1
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 4 * LARGE];
    let len = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(len);
    bytes
}

/// Tells where two contents differ, instead of showing them.
#[track_caller]
fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    let at = found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{what}: {} bytes, not {}; the first other one at {at:?}",
        found.len(),
        expected.len()
    );
}

/// Runs a program that maps files. This process must not: it would wait for itself with its memory
/// locked.
fn python(code: &str, path: &Path) -> Vec<u8> {
    let output = run_with_timeout(Command::new("python3").args(["-c", code]).arg(path));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// What a mapping of a whole file shows.
fn mapped(path: &Path) -> Vec<u8> {
    let code = "import mmap, sys\n\
        with open(sys.argv[1], 'rb') as file:\n\
        \x20   sys.stdout.buffer.write(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:])";
    python(code, path)
}

/// Writes a byte through a mapping while the file is open for reading as well, from before.
fn write_mapped(path: &Path) {
    let code = "import mmap, sys\n\
        reader = open(sys.argv[1], 'rb')\n\
        with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as mapping:\n\
        \x20   mapping[100] = ord('!')\n\
        \x20   mapping.flush()\n\
        reader.seek(100)\n\
        assert reader.read(1) == b'!'";
    python(code, path);
}

#[test]
fn large_files_are_read_and_mapped_without_a_request() {
    require_fuse!();
    require_program!("python3");
    require_root!("have the kernel read files by itself");
    let repo = TestRepo::new();
    let fork = with_large_file(&repo);
    let before = requests(&fork, "read");
    let file = File::open(fork.path().join("large")).unwrap();
    assert_same(&read_all(&file), &pattern(LARGE), "the content");
    assert_same(
        &mapped(&fork.path().join("large")),
        &pattern(LARGE),
        "the content",
    );
    assert_eq!(requests(&fork, "read"), before);
    assert!(requests(&fork, "open") > 0);
    drop(file);

    // A program is mapped, too. Written by this process, a child of another test might have it open
    // for writing still.
    let program = fork.path().join("program");
    let copied = run_with_timeout(Command::new("cp").arg("/bin/sh").arg(&program));
    assert!(copied.status.success());
    let output = run_with_timeout(Command::new(&program).args(["-c", "echo ran"]));
    assert_eq!(output.stdout, b"ran\n");
}

#[test]
fn small_files_are_kept_in_the_cache_from_one_opening_to_the_next() {
    require_fuse!();
    require_root!("have the kernel read files by itself");
    let repo = TestRepo::new();
    repo.write("base.txt", "of the base\n");
    repo.commit_all("base");
    let fork = with_large_file(&repo);
    fs::write(fork.path().join("small"), pattern(SMALL)).unwrap();
    let read = || {
        assert_eq!(fs::read(fork.path().join("small")).unwrap(), pattern(SMALL));
        assert_eq!(
            fs::read(fork.path().join("base.txt")).unwrap(),
            b"of the base\n"
        );
    };
    read();
    let before = requests(&fork, "read");
    read();
    assert_eq!(requests(&fork, "read"), before);
}

#[test]
fn who_reads_sees_what_others_write_meanwhile() {
    require_fuse!();
    require_root!("have the kernel read files by itself");
    let repo = TestRepo::new();
    let fork = with_large_file(&repo);
    let path = fork.path().join("large");
    let reader = File::open(&path).unwrap();
    let mut expected = pattern(LARGE);
    assert_same(&read_all(&reader), &expected, "the content");

    let mut writer = OpenOptions::new()
        .read(true)
        .append(true)
        .open(&path)
        .unwrap();
    writer.write_all(b"appended").unwrap();
    expected.extend_from_slice(b"appended");
    assert_same(&read_all(&reader), &expected, "the content");
    assert_same(&read_all(&writer), &expected, "the content");

    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(b"over", 10).unwrap();
    expected[10..14].copy_from_slice(b"over");
    assert_same(&read_all(&reader), &expected, "the content");
    for len in [70_000, 100, 0, 50, 2 * LARGE] {
        writer.set_len(len as u64).unwrap();
        expected.resize(len, 0);
        assert_same(
            &read_all(&reader),
            &expected,
            &format!("cut or grown to {len}"),
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), len as u64);
        assert_same(&fs::read(&path).unwrap(), &expected, "the content");
    }
    // By what does not come through the mount.
    let large = ino(&fork, "large");
    let me = Caller::new(0, 0);
    fork.workspace().write(large, 3, b"tool", Some(me)).unwrap();
    expected[3..7].copy_from_slice(b"tool");
    assert_same(&read_all(&reader), &expected, "the content");
    let cut = SetAttr {
        size: Some(100),
        ..SetAttr::default()
    };
    fork.workspace().setattr(me, large, &cut).unwrap();
    expected.truncate(100);
    assert_same(&read_all(&reader), &expected, "the content");
    drop((reader, writer));

    // What was written past the kernel's cache is in it no more than what was cut.
    let mut writer = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut bytes = Vec::new();
    writer.read_to_end(&mut bytes).unwrap();
    assert_same(&bytes, &expected, "the content");
}

#[test]
fn who_writes_first_is_seen_by_readers_and_through_mappings() {
    require_fuse!();
    require_program!("python3");
    require_root!("have the kernel read files by itself");
    let repo = TestRepo::new();
    let fork = with_large_file(&repo);
    let path = fork.path().join("large");
    let writer = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let reader = File::open(&path).unwrap();
    writer.write_all_at(b"first", 5000).unwrap();
    let mut expected = pattern(LARGE);
    expected[5000..5005].copy_from_slice(b"first");
    assert_same(&read_all(&reader), &expected, "the content");
    assert_same(&mapped(&path), &expected, "the content");
    drop(writer);
    // The reader still goes through the cache; whoever comes now, too.
    assert_same(&fs::read(&path).unwrap(), &expected, "the content");
    drop(reader);
    let before = requests(&fork, "read");
    assert_same(&fs::read(&path).unwrap(), &expected, "the content");
    assert_eq!(requests(&fork, "read"), before);
}

#[test]
fn what_is_written_through_a_mapping_counts_as_a_change() {
    require_fuse!();
    require_program!("python3");
    require_root!("have the kernel read files by itself");
    let repo = TestRepo::new();
    let fork = with_large_file(&repo);
    fork.commit("large").unwrap();
    let path = fork.path().join("large");
    // Another content than the one that was committed: the kernel reads none that has left the
    // layer.
    fs::write(&path, pattern(LARGE + 1)).unwrap();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    write_mapped(&path);
    let changed = || fs::metadata(&path).unwrap().modified().unwrap() != before;
    support::wait_until("the file has its new time", PATIENCE, changed);
    assert_eq!(fs::read(&path).unwrap()[100], b'!');
    assert_eq!(fork.changes().changes.len(), 1);
}

#[test]
fn a_file_that_is_replaced_or_removed_stays_whole_to_whoever_has_it_open() {
    require_fuse!();
    require_root!("have the kernel read files by itself");
    let repo = TestRepo::new();
    let mut fork = with_large_file(&repo);
    let path = fork.path().join("large");
    let reader = File::open(&path).unwrap();
    fs::write(fork.path().join("other"), pattern(2 * LARGE)).unwrap();
    fs::rename(fork.path().join("other"), &path).unwrap();
    fork.workspace().sync().unwrap();
    assert_same(&read_all(&reader), &pattern(LARGE), "the content");
    let second = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fork.workspace().sync().unwrap();
    assert_same(&read_all(&reader), &pattern(LARGE), "the content");
    assert_same(&read_all(&second), &pattern(2 * LARGE), "the content");
    assert!(!Path::new(&path).exists());
    drop((reader, second));
    fork.unmount();
    fork.mount();
    assert!(!Path::new(&path).exists());
}

#[test]
fn a_commit_leaves_alone_what_the_kernel_reads() {
    require_fuse!();
    require_root!("have the kernel read files by itself");
    let repo = TestRepo::new();
    let fork = with_large_file(&repo);
    let path = fork.path().join("large");
    let reader = File::open(&path).unwrap();
    fork.commit("large").unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(b"after the commit", 0).unwrap();
    assert_eq!(&read_all(&reader)[..16], b"after the commit");
}
