//! Large files: sparse ones, and real ones.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use crate::support::command::run_with_timeout_of;
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, soaking};
use crate::{most_resident, scaled, tell};

const GIB: u64 = 1 << 30;

/// For what reads all of a large file.
const PATIENCE: Duration = Duration::from_secs(600);

/// How many bytes the daemon has read from files so far.
fn read_so_far(tine: &Tine<'_>) -> u64 {
    let pid = tine.daemon_pid().expect("the daemon runs");
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("the daemon is ours");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|figure| figure.parse().ok())
        .expect("the kernel tells it")
}

fn seek(file: &File, offset: i64, whence: libc::c_int) -> i64 {
    use std::os::fd::AsRawFd;
    // SAFETY: lseek(2) takes numbers; the descriptor is open while `file` lives.
    unsafe { libc::lseek(file.as_raw_fd(), offset, whence) }
}

fn punch(file: &File, offset: i64, len: i64) {
    use std::os::fd::AsRawFd;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate(2) takes numbers; the descriptor is open while `file` lives.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_sparse_file_of_ten_gibibytes() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("sparse");
    let path = fork.join("sparse.img");
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.set_len(10 * GIB).unwrap();
    let (middle, block) = (5 * GIB, 64 << 10);
    file.write_all_at(&[1; 64 << 10], middle).unwrap();
    file.write_all_at(b"end", 10 * GIB - 3).unwrap();
    assert_eq!(seek(&file, 0, libc::SEEK_DATA) as u64, middle);
    assert_eq!(
        seek(&file, middle as i64, libc::SEEK_HOLE) as u64,
        middle + block
    );
    assert_eq!(
        seek(&file, (middle + block) as i64, libc::SEEK_DATA) as u64,
        10 * GIB - 4096
    );
    let blocks = || fs::metadata(&path).unwrap().blocks() * 512;
    assert_eq!(blocks(), block + 4096);
    punch(&file, middle as i64, block as i64);
    assert_eq!(blocks(), 4096);
    let mut bytes = [7; 16];
    file.read_exact_at(&mut bytes, middle).unwrap();
    assert_eq!(bytes, [0; 16]);
    assert_eq!(seek(&file, 0, libc::SEEK_DATA) as u64, 10 * GIB - 4096);

    let before = read_so_far(&tine);
    let start = Instant::now();
    let changes = tine.json(&["status", "sparse"]);
    let status = start.elapsed();
    assert_eq!(changes["changes"][0]["path"], "sparse.img");
    assert_eq!(changes["changes"][0]["kind"], "added");
    assert!(changes["changes"][0]["new_id"].is_null(), "{changes}");
    let read = read_so_far(&tine) - before;
    assert!(read < GIB / 16, "{read} bytes were read for a status");
    tell(&format!(
        "10 GiB sparse: status in {status:.2?}, {read} bytes read"
    ));
    if soaking() {
        let start = Instant::now();
        let mut commit = tine.command(&["commit", "sparse", "-m", "sparse"]);
        run_with_timeout_of(&mut commit, PATIENCE, b"").expect_success("tine commit");
        tell(&format!(
            "10 GiB sparse: committed in {:.2?}, at most {} bytes resident",
            start.elapsed(),
            most_resident(&tine)
        ));
        assert_eq!(
            repo.git(&["cat-file", "-s", "tine/sparse:sparse.img"]),
            (10 * GIB).to_string()
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), 10 * GIB);
    }
    assert!(most_resident(&tine) < 256 << 20);
}

#[test]
fn a_large_file_is_never_in_memory_as_a_whole() {
    require_fuse!();
    let len = scaled(128 << 20, 2 * GIB);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let fork = tine.new_fork("large");
    let path = fork.join("large.bin");
    let chunk: Vec<u8> = (0..1u32 << 20)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let start = Instant::now();
    let mut file = File::create_new(&path).unwrap();
    for _ in 0..len >> 20 {
        file.write_all(&chunk).unwrap();
    }
    file.sync_all().unwrap();
    let written = start.elapsed();
    drop(file);
    let start = Instant::now();
    let mut commit = tine.command(&["commit", "large", "-m", "large"]);
    run_with_timeout_of(&mut commit, PATIENCE, b"").expect_success("tine commit");
    let committed = start.elapsed();
    // By now the layer has let go of it.
    let start = Instant::now();
    let mut file = File::open(&path).unwrap();
    let mut read = vec![0; chunk.len()];
    for _ in 0..len >> 20 {
        file.read_exact(&mut read).unwrap();
        assert!(read == chunk, "other bytes than were written");
    }
    tell(&format!(
        "a file of {len} bytes: written and synced in {written:.2?}, committed in {committed:.2?}, read in {:.2?}, at most {} bytes resident",
        start.elapsed(),
        most_resident(&tine)
    ));
    assert!(most_resident(&tine) < 128 << 20);
}
