//! Kills while programs write.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::calls::Change;
use super::writers::{Crowd, Writer};
use super::{let_pass, rounds, seeded};
use crate::support::{TestRepo, Tine, require_fuse};

const WRITERS: usize = 3;
/// A log with so many bytes is compacted by the next sync, if most of it is out of date.
const COMPACTED_PAST: u64 = 4 << 20;

/// What a program sees when the daemon has gone: anything else would be a failure of its own.
fn assert_is_the_end(error: &io::Error, of: &dyn std::fmt::Debug) {
    let known = [
        libc::ENOTCONN,
        libc::ECONNABORTED,
        libc::ECANCELED,
        libc::EIO,
        libc::EFAULT,
    ];
    assert!(
        error
            .raw_os_error()
            .is_some_and(|code| known.contains(&code)),
        "{error} from {}",
        format!("{of:?}").chars().take(300).collect::<String>()
    );
}

/// Waits for whatever command comes next, which recovers.
fn recover(tine: &Tine<'_>, mount: &Path, round: usize) {
    match round % 2 {
        0 => assert_eq!(Path::new(&tine.ok(&["path", "demo"])), mount),
        _ => drop(tine.ok(&["list"])),
    }
}

#[test]
fn invariant_13_no_acknowledged_write_is_lost_when_the_daemon_is_killed() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(mount.join(format!("writer-{number}")), random.next()))
        .collect();
    let mut crowd = Crowd::new(mount.join("crowd"), random.next());
    for dir in writers.iter().map(|writer| &writer.dir).chain([&crowd.dir]) {
        fs::create_dir(dir).expect("the mount can be written");
    }
    for round in 0..rounds() {
        let (unsure, unsure_name) = thread::scope(|scope| {
            let working: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.work()))
                .collect();
            let crowding = scope.spawn(|| crowd.work());
            let_pass(&mut random, Duration::from_millis(150));
            assert!(
                tine.daemon_pid().is_some(),
                "the daemon runs in round {round}"
            );
            tine.kill_daemon();
            let unsure: Vec<(Change, io::Error)> = working
                .into_iter()
                .map(|writer| writer.join().expect("a writer only stops for an error"))
                .collect();
            (
                unsure,
                crowding.join().expect("a writer only stops for an error"),
            )
        });
        recover(&tine, &mount, round);
        for (writer, (change, error)) in writers.iter_mut().zip(&unsure) {
            assert_is_the_end(error, change);
            writer.check(change);
        }
        let (number, error) = unsure_name;
        assert_is_the_end(&error, &number);
        crowd.check(number);
    }
    let files: usize = writers.iter().map(Writer::files).sum::<usize>() + crowd.len();
    let status = repo.git_in(&mount, &["status", "--porcelain", "--untracked-files=all"]);
    assert_eq!(status.lines().count(), files, "{status}");
    tine.ok(&["commit", "demo", "-m", "what is left"]);
    assert_eq!(repo.git_in(&mount, &["status", "--porcelain"]), "");
    repo.git(&["fsck", "--strict"]);
}

/// Large attributes written again and again make the log long and most of it out of date: each sync
/// of a log past 4 MiB then compacts it.
#[test]
fn invariant_13_a_log_that_is_killed_while_it_is_compacted_is_the_old_or_the_new_one() {
    require_fuse!();
    let (mut random, _say) = seeded();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let file = mount.join("file");
    fs::write(&file, "content").expect("the mount can be written");
    let layer = fs::read_dir(repo.common_dir().join("tine/layers"))
        .expect("the store has layers")
        .map(|entry| entry.expect("each entry can be read").path())
        .find(|path| path.is_dir())
        .expect("the fork has a layer");
    let log_len = || {
        fs::metadata(layer.join("log"))
            .expect("the layer has a log")
            .len()
    };
    let mut acknowledged: Vec<u8> = Vec::new();
    for round in 0..rounds() {
        let (due, compaction) = mpsc::channel();
        let value = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let due = due;
                let mut number = 0_u64;
                loop {
                    number += 1;
                    let mut value = vec![round as u8; 60_000];
                    value[..8].copy_from_slice(&number.to_le_bytes());
                    let written =
                        Change::SetXattr("file".to_owned(), "user.large".to_owned(), value.clone())
                            .carry_out(&mount)
                            .and_then(|()| match log_len() >= COMPACTED_PAST {
                                true => {
                                    // Listened to once.
                                    let _ = due.send(());
                                    Change::Sync("file".to_owned()).carry_out(&mount)
                                }
                                false => Ok(()),
                            });
                    match written {
                        Ok(()) => acknowledged = value,
                        Err(error) => {
                            assert_is_the_end(&error, &number);
                            return value;
                        }
                    }
                }
            });
            let is_due = compaction.recv_timeout(Duration::from_secs(60));
            is_due.expect("the log becomes long");
            let_pass(&mut random, Duration::from_millis(40));
            tine.kill_daemon();
            writing.join().expect("the writer only stops for an error")
        });
        recover(&tine, &mount, round);
        let mut found = super::calls::xattrs(&file).expect("the file has attributes");
        let found = found.remove("user.large").unwrap_or_default();
        assert!(
            found == acknowledged || found == value,
            "round {round}: {:?}",
            found.get(..8)
        );
        assert_eq!(fs::read(&file).expect("the file can be read"), b"content");
        assert!(!layer.join("log.new").exists());
        acknowledged = found;
    }
    // What is killed here is compaction indeed.
    loop {
        Change::SetXattr("file".to_owned(), "user.large".to_owned(), vec![1; 60_000])
            .carry_out(&mount)
            .expect("the mount can be written");
        if log_len() >= COMPACTED_PAST {
            break;
        }
    }
    Change::Sync("file".to_owned())
        .carry_out(&mount)
        .expect("the mount can be synced");
    assert!(log_len() < COMPACTED_PAST);
    repo.git_in(&mount, &["status"]);
}
