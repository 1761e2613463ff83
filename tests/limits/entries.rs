//! Many names: in one directory, over a tree, in the base; hard links; open files.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::command::run_with_timeout_of;
use crate::support::{
    OutputExt, TestRepo, Tine, require_fuse, run_with_timeout, soaking, wait_until,
};
use crate::{figure, most_resident, resident, scaled, tell};

/// For what takes O(entries).
const PATIENCE: Duration = Duration::from_secs(300);

/// The most that the daemon may take for each new file, in bytes: node, name, what the kernel
/// remembers of it, and the room that tables keep for growing.
const MAX_BYTES_PER_FILE: u64 = 450;

/// What the daemon keeps of memory that it no longer needs.
const KEPT_BYTES: u64 = 16 << 20;

/// Makes the empty files with these numbers, `per_dir` in a directory; how long each took on
/// average.
fn make_files(root: &Path, numbers: Range<u64>, per_dir: u64) -> Duration {
    let start = Instant::now();
    let count = numbers.end - numbers.start;
    for number in numbers {
        let dir = root.join(format!("dir-{}", number / per_dir));
        if number % per_dir == 0 {
            fs::create_dir_all(&dir).unwrap();
        }
        File::create_new(dir.join(format!("file-{number:07}"))).unwrap();
    }
    start.elapsed() / count as u32
}

fn files_in(root: &Path) -> u64 {
    let dirs = fs::read_dir(root).unwrap().map(|dir| dir.unwrap().path());
    dirs.map(|dir| fs::read_dir(dir).unwrap().count() as u64)
        .sum()
}

#[track_caller]
fn timed(what: &str, tine: &Tine<'_>, args: &[&str]) -> String {
    let start = Instant::now();
    let output = run_with_timeout_of(&mut tine.command(args), PATIENCE, b"").expect_success(what);
    tell(&format!(
        "{what}: {:.2?}, at most {} bytes resident until then",
        start.elapsed(),
        most_resident(tine)
    ));
    output.text()
}

/// Files in directories of `per_dir`: made, listed, compared, committed, opened again, removed.
fn many_files(count: u64, per_dir: u64) {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("many");
    let root = fork.join("many");
    fs::create_dir(&root).unwrap();
    let before = resident(&tine);
    let first = make_files(&root, 0..count / 10, per_dir);
    // What the daemon needs once, for however many files, it has by now.
    let begun = resident(&tine);
    make_files(&root, count / 10..count / 10 * 9, per_dir);
    let last = make_files(&root, count / 10 * 9..count, per_dir);
    let made = count - count / 10;
    let taken = resident(&tine).saturating_sub(begun);
    let per_file = taken / made;
    tell(&format!(
        "{count} files, {per_dir} in a directory: first tenth {first:.1?} each, last tenth {last:.1?}; {per_file} bytes resident each",
    ));
    assert!(
        taken < MAX_BYTES_PER_FILE * made + KEPT_BYTES,
        "{taken} bytes for {made} files"
    );
    assert!(figure(&tine, "/layer_nodes") >= count);
    assert!(figure(&tine, "/layer_names") >= count);
    let start = Instant::now();
    assert_eq!(files_in(&root), count);
    tell(&format!("listed in {:.2?}", start.elapsed()));

    let status = timed("status", &tine, &["status", "many"]);
    assert!(
        status.contains(&format!("{count} changes")),
        "{}",
        &status[status.len() - 80..]
    );
    timed("commit", &tine, &["commit", "many", "-m", "many"]);
    let listed = repo.git(&["ls-tree", "-r", "--name-only", "tine/many:many"]);
    assert_eq!(listed.lines().count() as u64, count);

    timed("unmount", &tine, &["unmount", "many"]);
    timed("mount", &tine, &["mount", "many"]);
    assert_eq!(files_in(&root), count);
    let remembered = figure(&tine, "/remembered_nodes");
    assert!(remembered >= count, "{remembered}");

    let start = Instant::now();
    fs::remove_dir_all(&root).unwrap();
    tell(&format!("removed in {:.2?}", start.elapsed()));
    wait_until("the kernel forgets what was removed", PATIENCE, || {
        figure(&tine, "/remembered_nodes") < 100
    });
    let most = resident(&tine);
    // What was needed for the nodes goes back with the daemon's next round.
    wait_until("the memory goes back", PATIENCE, || {
        resident(&tine) < before + (32 << 20) + count * 40
    });
    tell(&format!(
        "resident: {before} bytes before, {most} with all removed, {} later",
        resident(&tine)
    ));
}

#[test]
fn many_files_over_a_tree() {
    require_fuse!();
    many_files(scaled(20_000, 1_000_000), 500);
}

#[test]
fn many_files_in_one_directory() {
    require_fuse!();
    let count = scaled(10_000, 100_000);
    many_files(count, count);
}

#[test]
fn what_the_kernel_forgets_the_daemon_forgets() {
    require_fuse!();
    let repo = TestRepo::unborn();
    let count = scaled(2_000, 100_000);
    large_base(&repo, count);
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("many");
    assert_eq!(
        fs::read_dir(fork.join("large")).unwrap().count() as u64,
        count
    );
    assert!(figure(&tine, "/remembered_nodes") >= count);
    // A mount that ends takes its nodes along; what the kernel drops for want of memory goes the
    // same way.
    tine.ok(&["unmount", "many"]);
    assert_eq!(figure(&tine, "/remembered_nodes"), 0);
    if soaking() {
        tine.ok(&["mount", "many"]);
        assert_eq!(
            fs::read_dir(fork.join("large")).unwrap().count() as u64,
            count
        );
        let before = resident(&tine);
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        wait_until("the kernel forgets", PATIENCE, || {
            figure(&tine, "/remembered_nodes") < count / 100
        });
        tell(&format!(
            "drop_caches: {before} bytes resident before, {} after",
            resident(&tine)
        ));
    }
}

/// Commits a directory `large` of `count` files that share one blob, without a checkout.
fn large_base(repo: &TestRepo, count: u64) {
    let mut hash = repo.command("git", repo.dir());
    hash.args(["hash-object", "-w", "--stdin"]);
    let blob = run_with_timeout_of(&mut hash, PATIENCE, b"content\n")
        .expect_success("git hash-object")
        .text();
    let mut input = String::new();
    for i in 0..count {
        input.push_str(&format!("100644 blob {blob}\tfile-{i:07}\n"));
    }
    let mktree = |input: &str| {
        let mut command = repo.command("git", repo.dir());
        command.arg("mktree").stdin(Stdio::piped());
        run_with_timeout_of(&mut command, PATIENCE, input.as_bytes())
            .expect_success("git mktree")
            .text()
    };
    let large = mktree(&input);
    let top = mktree(&format!("040000 tree {large}\tlarge\n"));
    let commit = repo.git(&["commit-tree", "-m", "large", &top]);
    repo.git(&["update-ref", "HEAD", &commit]);
}

#[test]
fn a_large_directory_of_the_base() {
    require_fuse!();
    let repo = TestRepo::unborn();
    let count = scaled(10_000, 1_000_000);
    large_base(&repo, count);
    let tine = Tine::new(&repo);
    timed("new", &tine, &["new", "large"]);
    let dir = repo.root().join("repo.forks/large/large");
    let start = Instant::now();
    assert_eq!(fs::read_dir(&dir).unwrap().count() as u64, count);
    let listed = start.elapsed();
    let start = Instant::now();
    for i in (0..count).step_by(count as usize / 1000) {
        assert_eq!(
            fs::metadata(dir.join(format!("file-{i:07}")))
                .unwrap()
                .len(),
            8
        );
    }
    tell(&format!(
        "{count} names in a base directory: listed in {listed:.2?}, 1000 looked at in {:.2?}, {} bytes resident",
        start.elapsed(),
        resident(&tine)
    ));
    fs::write(dir.join("file-0000000"), "changed\n\n").unwrap();
    fs::remove_file(dir.join("file-0000001")).unwrap();
    let status = timed("status", &tine, &["status", "large"]);
    assert!(status.contains("2 changes"), "{status}");
    timed("commit", &tine, &["commit", "large", "-m", "two"]);
    assert_eq!(fs::read_dir(&dir).unwrap().count() as u64, count - 1);
    let (used, limit) = (
        figure(&tine, "/caches/directories/used"),
        figure(&tine, "/caches/directories/limit"),
    );
    assert!(used <= limit, "{used} of {limit}");
}

#[test]
fn thousands_of_open_files_some_of_them_unlinked() {
    require_fuse!();
    let count: u64 = scaled(1_000, 4_000);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("open");
    let script = format!(
        "import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
files = []
for i in range({count}):
    fd = os.open(f'open-{{i}}', os.O_CREAT | os.O_RDWR)
    os.write(fd, b'first %d' % i)
    files.append(fd)
for i in range(0, {count}, 2):
    os.unlink(f'open-{{i}}')
for i, fd in enumerate(files):
    os.write(fd, b' second')
    assert os.pread(fd, 100, 0) == b'first %d second' % i, i
    assert os.fstat(fd).st_nlink == i % 2, i
"
    );
    let mut python = repo.command("python3", &fork);
    python.args(["-c", &script]);
    let start = Instant::now();
    run_with_timeout(&mut python).expect_success("python3");
    tell(&format!(
        "{count} files open at once, half of them unlinked: {:.2?}; the daemon has {} open",
        start.elapsed(),
        figure(&tine, "/open_files")
    ));
    wait_until("unlinked files go", PATIENCE, || {
        figure(&tine, "/layer_nodes") <= count / 2 + 8
    });
    assert!(
        figure(&tine, "/open_files") < 256,
        "the daemon opens what it needs, not what programs have open"
    );
}

#[test]
fn many_hard_links_of_one_file() {
    require_fuse!();
    let count = scaled(2_000, 100_000);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("links").join("links");
    fs::create_dir(&dir).unwrap();
    let first = dir.join("first");
    fs::write(&first, "one").unwrap();
    let start = Instant::now();
    for i in 1..count {
        fs::hard_link(&first, dir.join(format!("link-{i}"))).unwrap();
    }
    let linked = start.elapsed();
    assert_eq!(fs::metadata(&first).unwrap().nlink(), count);
    let mut last = File::options()
        .append(true)
        .open(dir.join(format!("link-{}", count - 1)))
        .unwrap();
    last.write_all(b" and two").unwrap();
    let mut text = String::new();
    File::open(&first)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "one and two");
    drop(last);
    timed("status with hard links", &tine, &["status", "links"]);
    tine.ok(&["daemon", "stop"]);
    tine.ok(&["list"]);
    assert_eq!(fs::metadata(&first).unwrap().nlink(), count);
    fs::remove_dir_all(&dir).unwrap();
    tell(&format!("{count} hard links: made in {linked:.2?}"));
}
