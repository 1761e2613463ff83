//! Large contents are read and written beside what others do to the fork.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Fixture, ME, path};
use crate::{FallocateMode, SetAttr, Workspace};
use tine_attr::Ino;

const LARGE: usize = 300_000;

fn resize(workspace: &Workspace, ino: Ino, size: u64) {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    workspace.setattr(ME, ino, &set).unwrap();
}

#[test]
fn a_fork_is_used_while_a_content_is_read_through() {
    let fixture = Fixture::with_files(&[("large", &"b".repeat(LARGE))]);
    let workspace = fixture.open();
    workspace
        .write_path(ME, &path("written"), &[1; LARGE])
        .unwrap();
    workspace
        .write_path(ME, &path("short"), b"one page")
        .unwrap();
    for name in ["large", "written", "short", "link"] {
        let ino = workspace.reach(name).ino;
        workspace
            .with_content(ino, |len, reader| {
                let others = || {
                    let made = path(&format!("made beside {name}"));
                    workspace.write_path(ME, &made, b"new").unwrap();
                    workspace.write_path(ME, &path(name), b"replaced").map(drop)
                };
                // Another thread, as a lock that is held might let its own thread pass.
                let replaced = thread::scope(|scope| scope.spawn(others).join().unwrap());
                assert_eq!(replaced.is_ok(), name != "link");
                let mut content = Vec::new();
                reader.read_to_end(&mut content).unwrap();
                assert_eq!(content.len() as u64, len);
                assert!(!content.starts_with(b"replaced"), "{name}");
            })
            .unwrap();
        if name != "link" {
            assert_eq!(workspace.text(name), "replaced");
        }
    }
}

#[test]
fn a_large_write_is_seen_whole_or_not_at_all() {
    const LARGE: usize = 4 << 20;
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace
        .write_path(ME, &path("file"), &vec![0; LARGE])
        .unwrap();
    let ino = workspace.reach("file").ino;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for step in [1, 2] {
            let (workspace, is_over) = (&workspace, &is_over);
            scope.spawn(move || {
                for round in 0..50u8 {
                    let fill = round.wrapping_mul(2).wrapping_add(step);
                    workspace.write(ino, 0, &vec![fill; LARGE], None).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
        while !is_over.load(Ordering::Relaxed) {
            let seen = workspace.read(ino, 0, LARGE).unwrap();
            assert!(seen == vec![seen[0]; LARGE]);
            let seen = workspace.with_content(ino, |_, reader| {
                let mut content = Vec::new();
                reader.read_to_end(&mut content).map(|_| content)
            });
            let seen = seen.unwrap().unwrap();
            assert!(seen == vec![seen[0]; LARGE]);
        }
    });
}

/// A sync frees what was cut off; what is written there at the same time must stay.
#[test]
fn what_is_written_during_a_sync_stays() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace
        .write_path(ME, &path("file"), &[0; LARGE])
        .unwrap();
    let ino = workspace.reach("file").ino;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                workspace.sync().unwrap();
            }
        });
        for round in 1..=200u8 {
            resize(&workspace, ino, 70_000);
            workspace
                .write(ino, 70_000, &[round; LARGE - 70_000], None)
                .unwrap();
            let seen = workspace.read(ino, 70_000, LARGE).unwrap();
            assert!(seen == vec![round; LARGE - 70_000], "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Replaced, and committed since, it has another blob than the one that was copied.
#[test]
fn a_file_that_is_replaced_while_it_is_copied_up_keeps_what_replaced_it() {
    let fixture =
        Fixture::with_files(&[("large", &"b".repeat(LARGE)), ("other", &"r".repeat(LARGE))]);
    let workspace = fixture.open();
    let ino = workspace.reach("large").ino;
    let (dir, index) = fixture.base.find(&path("other")).unwrap().unwrap();
    let other = dir.entries[index].id;
    let change = |fetched: &mut _| {
        workspace.write_path(ME, &path("large"), &[b'r'; LARGE])?;
        let ctime = workspace.getattr(ino)?.ctime;
        assert_eq!(workspace.adopt_blobs(&[(ino, ctime, other)])?, 1);
        workspace.write_fetched(ino, 1, b"w", None, fetched)
    };
    workspace
        .copying_up(ino, |len| len, LARGE as u64, change)
        .unwrap();
    assert!(workspace.text("large") == "rw".to_owned() + &"r".repeat(LARGE - 2));
    workspace.sync().unwrap();
    let files = std::fs::read_dir(fixture.place.path().join("layer/files")).unwrap();
    assert_eq!(files.count(), 1, "the copy that was not needed is gone");
}

#[test]
fn a_hole_in_a_large_file_is_as_long_as_asked_for() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace
        .write_path(ME, &path("file"), &[b'f'; LARGE])
        .unwrap();
    let before = workspace.reach("file");
    let punch = |offset, len| {
        workspace
            .fallocate(before.ino, offset, len, FallocateMode::PunchHole, None)
            .unwrap();
    };
    punch(8192, 100_000);
    punch(LARGE as u64 - 100, 1 << 30);
    let after = workspace.getattr(before.ino).unwrap();
    assert!(
        after.size == before.size && after.blocks < before.blocks && after.mtime > before.mtime
    );
    let mut expected = vec![b'f'; LARGE];
    expected[8192..108_192].fill(0);
    expected[LARGE - 100..].fill(0);
    drop(workspace);
    assert!(fixture.open().read_path(&path("file")).unwrap() == expected);
}

#[test]
fn a_large_file_is_copied_up_with_what_is_kept_of_it() {
    let fixture =
        Fixture::with_files(&[("large", &"b".repeat(LARGE)), ("other", &"o".repeat(LARGE))]);
    let workspace = fixture.open();
    let (large, other) = (workspace.reach("large").ino, workspace.reach("other").ino);
    workspace
        .write(large, LARGE as u64 + 10, b"end", None)
        .unwrap();
    resize(&workspace, other, 100_000);
    workspace.write(other, 0, &[b'w'; 80_000], None).unwrap();
    drop(workspace);

    let workspace = fixture.open();
    let kept = "b".repeat(LARGE) + &"\0".repeat(10) + "end";
    assert!(workspace.text("large") == kept);
    assert!(workspace.text("other") == "w".repeat(80_000) + &"o".repeat(20_000));
}
