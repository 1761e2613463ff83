//! Crashes and full disks at every single step of what is done to the disk.

use proptest::prelude::*;

use super::super::log::Log;
use super::model::{State, Step, expect, run, state_of, step};
use super::*;

/// Whether a file may hold `found` while a write that turns `before` into `after` is under way:
/// within the old length bytes are overwritten in place.
fn is_between(found: &State, before: &State, after: &State) -> bool {
    if found.names != before.names && found.names != after.names {
        return false;
    }
    let keys = |state: &State| state.files.keys().copied().collect::<Vec<_>>();
    if keys(found) != keys(before) {
        return found == after;
    }
    found.files.iter().all(|(ino, bytes)| {
        let (Some(old), Some(new)) = (
            before.files.get(ino),
            after.files.get(ino).or(before.files.get(ino)),
        ) else {
            return false;
        };
        bytes == new
            || (bytes.len() == old.len()
                && bytes
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == old[at] || new.get(at) == Some(byte)))
    })
}

/// Runs `steps` until the process dies at disk step `die_at`, and looks at what the next one finds.
/// False if it lived.
fn run_and_die(steps: &[Step], die_at: u64, then_freeze: bool) -> bool {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let mut before = State::default();
    let mut after = State::default();
    let mut died = false;
    fault::arm(die_at, Fault::Crash);
    for step in steps {
        before.clone_from(&after);
        expect(&mut after, step);
        if run(&mut layer, step).is_err() {
            died = true;
            break;
        }
    }
    let mut frozen = false;
    if then_freeze && !died {
        before.clone_from(&after);
        frozen = layer.freeze().seal().is_ok();
        died = !frozen;
    } else {
        drop(layer);
    }
    let lived = fault::steps_taken() <= die_at;
    fault::disarm();
    match Layer::open(&dir) {
        Ok(layer) => {
            assert!(!frozen);
            let found = state_of(&layer);
            if died {
                assert!(
                    is_between(&found, &before, &after),
                    "step {die_at} of {steps:?}"
                );
            } else {
                assert!(found == after, "step {die_at} of {steps:?}");
            }
        }
        Err(LayerError::Frozen { .. }) if then_freeze => {
            let frozen = FrozenLayer::open(&dir).unwrap();
            assert_eq!(frozen.index().node_count(), after.files.len() as u64);
        }
        Err(error) => panic!("step {die_at} of {steps:?}: {error}"),
    }
    !lived
}

/// A life with everything in it: moves, freed contents, a compaction, a freeze.
fn full_life() -> Vec<Step> {
    let put = |file, len| Step::Put { file, len, fill: 7 };
    let write = |file, offset, len| Step::Write {
        file,
        offset,
        len,
        fill: 9,
    };
    vec![
        put(0, 100),
        put(1, 100_000),
        Step::Name {
            name: 1,
            whiteout: false,
        },
        write(0, 4000, 3000),
        Step::Sync,
        write(0, 50_000, 50_000),
        Step::Resize {
            file: 1,
            len: 70_000,
        },
        Step::Drop { file: 0 },
        Step::Sync,
        put(2, 5000),
        Step::Compact,
        Step::Resize {
            file: 1,
            len: 90_000,
        },
        put(1, 4096),
        Step::Name {
            name: 1,
            whiteout: true,
        },
        Step::Compact,
    ]
}

#[test]
fn a_crash_at_any_step_leaves_one_good_layer() {
    let steps = full_life();
    let mut die_at = 0;
    while run_and_die(&steps, die_at, true) {
        die_at += 1;
    }
    assert!(die_at > 60, "only {die_at} steps");
}

#[test]
fn a_layer_is_made_whole_or_not_at_all() {
    let (_temp, dir) = temp();
    for die_at in 0.. {
        fault::arm(die_at, Fault::Crash);
        let result = Layer::create(&dir, ID);
        fault::disarm();
        if result.is_ok() {
            assert!(die_at >= 4);
            break;
        }
        assert!(!dir.exists());
    }
}

#[test]
fn a_compaction_that_fails_leaves_the_old_log() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"bytes");
    for step in 0..20 {
        fault::arm(step, Fault::DiskFull);
        let result = layer.compact();
        let was_taken = fault::steps_taken() > step;
        fault::disarm();
        put_file(&mut layer, Ino(6 + step), b"more");
        assert!(!dir.join("log.new").exists());
        drop(layer);
        layer = Layer::open(&dir).unwrap();
        assert_eq!(read_all(&layer, Ino(5)), b"bytes");
        assert_eq!(read_all(&layer, Ino(6 + step)), b"more");
        if !was_taken {
            result.unwrap();
            return;
        }
    }
    panic!("a compaction has fewer steps");
}

proptest! {
    #![proptest_config(few_cases())]

    /// Invariant 13: whatever moment the process ends at, no acknowledged change is lost.
    #[test]
    fn a_crash_loses_nothing_that_was_acknowledged(
        steps in prop::collection::vec(step(), 1..25),
        die_at in 0u64..150,
    ) {
        run_and_die(&steps, die_at, false);
    }

    /// After any failed step the layer goes on as if that change had not been asked for.
    #[test]
    fn a_full_disk_costs_one_change(steps in prop::collection::vec(step(), 1..25), full_at in 0u64..100) {
        let (_temp, dir) = temp();
        let mut layer = Layer::create(&dir, ID).unwrap();
        let mut expected = State::default();
        fault::arm(full_at, Fault::DiskFull);
        for step in &steps {
            match run(&mut layer, step) {
                Ok(()) => expect(&mut expected, step),
                // A log whose sync failed is not trusted any more, rightly.
                Err(LayerError::Poisoned { .. }) => break,
                Err(_) => {
                    let mut after = expected.clone();
                    expect(&mut after, step);
                    let found = state_of(&layer);
                    prop_assert!(is_between(&found, &expected, &after), "{step:?}");
                    expected = found;
                }
            }
        }
        fault::disarm();
        prop_assert!(state_of(&layer) == expected);
        drop(layer);
        prop_assert!(state_of(&Layer::open(&dir).unwrap()) == expected);
    }
}

/// Making room for a record must not cut off what that record is about to say.
#[test]
fn regression_a_sync_for_room_keeps_what_is_being_written() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 100_000]);
    put_file(&mut layer, Ino(6), b"dropped");
    resize(&mut layer, Ino(5), 10).unwrap();
    layer.commit(vec![Op::DropNode(Ino(6))]).unwrap();
    // The second step of a write in place is appending its record.
    assert!(
        layer.stats().log_bytes < 8192,
        "the reserve is not topped up here"
    );
    fault::arm(1, Fault::DiskFull);
    write(&mut layer, Ino(5), 10, b"appended").unwrap();
    assert!(fault::steps_taken() > 4, "no room was made");
    fault::disarm();
    assert_eq!(
        read_all(&layer, Ino(5)),
        [&[1; 10][..], b"appended"].concat()
    );
    assert!(layer.is_dirty(), "the file is still to be cut off");
    layer.sync().unwrap();
    let (content, size) = own(&layer, Ino(5));
    assert!(layer.content_blocks(content, size).unwrap() <= 8);
}

/// A sync that began before cuts off the end that the file had then.
#[test]
fn a_sync_keeps_what_is_written_beside_it() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 100_000]);
    resize(&mut layer, Ino(5), 10).unwrap();
    let mut job = layer.begin_sync().unwrap();
    layer.run_sync(&mut job).unwrap();
    let (content, size) = own(&layer, Ino(5));
    let file = layer.begin_writing(content, size).unwrap().unwrap();
    file.write(size, 10, b"appended").unwrap();
    layer.end_sync(job);
    layer.end_writing(&file);
    put_content(&mut layer, Ino(5), content, content, 18).unwrap();
    assert_eq!(
        read_all(&layer, Ino(5)),
        [&[1; 10][..], b"appended"].concat()
    );
    assert!(layer.is_dirty(), "the file is still to be cut off");
    layer.sync().unwrap();
    assert_eq!(
        read_all(&layer, Ino(5)),
        [&[1; 10][..], b"appended"].concat()
    );
    assert!(layer.content_blocks(content, 18).unwrap() <= 8);
}

/// What is written again must not be older than what is written beside it.
#[test]
fn contents_are_not_written_again_while_one_is_written() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 100_000]);
    fault::arm(0, Fault::DiskFull);
    layer.sync().unwrap_err();
    fault::disarm();
    assert!(layer.must_write_again());
    let (content, size) = own(&layer, Ino(5));
    let file = layer.begin_writing(content, size).unwrap().unwrap();
    layer.sync().unwrap_err();
    assert!(layer.must_write_again());
    file.write(size, 0, &[2; 100_000]).unwrap();
    layer.end_writing(&file);
    put_content(&mut layer, Ino(5), content, content, size).unwrap();
    layer.sync().unwrap();
    assert!(!layer.must_write_again());
    assert_eq!(read_all(&layer, Ino(5)), [2; 100_000]);
}

#[test]
fn a_full_disk_can_be_emptied() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 5000]);
    layer.sync().unwrap();
    let mut refused = 0;
    for number in 0..1000u64 {
        // Whatever asks for more of the disk fails from now on.
        fault::arm(0, Fault::DiskFull);
        let made = layer.commit(vec![entry(Ino::ROOT, format!("new {number}"), Ino(5))]);
        let was_asked = fault::steps_taken() == 1 && made.is_err();
        fault::disarm();
        if was_asked {
            refused += 1;
        }
        layer
            .commit(vec![Op::PutDentry {
                parent: Ino::ROOT,
                name: name(format!("gone {number}")),
                dentry: Dentry::Whiteout,
            }])
            .unwrap();
    }
    assert!(refused > 0);
    let log = std::fs::metadata(dir.join("log")).unwrap();
    let reserved = std::os::unix::fs::MetadataExt::blocks(&log) * 512;
    assert!(reserved >= log.len() && reserved <= log.len() + (40 << 10));
}

#[test]
fn a_layer_opens_on_a_full_disk() {
    use super::super::record::testing::Bytes;

    let (_temp, dir) = temp();
    drop(Layer::create(&dir, ID).unwrap());
    // Of another kernel run, and with an unlinked node: opening has two records to write.
    let mut log = Bytes::new(ID);
    let mut unlinked = node(Content::Empty, 0);
    unlinked.nlink = 0;
    log.push_ops(0, &[Op::PutNode(Ino(5), unlinked)]);
    for full_at in 0..4 {
        std::fs::write(dir.join("log"), &log.bytes).unwrap();
        fault::arm(full_at, Fault::DiskFull);
        let mut layer = Layer::open(&dir).unwrap();
        fault::disarm();
        put_file(&mut layer, Ino(6), b"new");
        drop(layer);
        let layer = Layer::open(&dir).unwrap();
        assert_eq!(layer.stats().nodes, 1);
        assert_eq!(read_all(&layer, Ino(6)), b"new");
    }
}

/// Invariant 4: a record that is written while others are synced reaches the disk with them, and
/// its content does not.
#[test]
fn regression_a_sync_does_not_vouch_for_what_was_written_meanwhile() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let synced = put_file(&mut layer, Ino(5), b"synced");
    let mut job = layer.begin_sync().unwrap();
    job.sync_contents().unwrap();
    // It outgrows its slot, so it moves.
    write(&mut layer, Ino(5), 6, &[1; 5000]).unwrap();
    put_file(&mut layer, Ino(6), b"another");
    layer.complete_sync(&mut job).unwrap();
    job.sync_log().unwrap();
    layer.end_sync(job);
    assert!(layer.is_dirty());
    drop(layer);

    for boot in [[1; 16], [1; 16], [2; 16]] {
        let (log, index) = Log::open_under(&dir, boot).unwrap();
        let node = index.node(Ino(5)).unwrap();
        assert_eq!((node.size, node.content.clone()), (6, Content::Own(synced)));
        assert!(index.node(Ino(6)).is_none());
        assert!(log.is_synced());
    }
}

/// A process that is killed leaves what it did not sync to the page cache, and to the next process.
#[test]
fn what_a_killed_process_left_is_on_the_disk_when_the_layer_is_open_again() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"not synced");
    drop(layer);
    drop(Layer::open(&dir).unwrap());
    let (_, index) = Log::open_under(&dir, [1; 16]).unwrap();
    assert_eq!(index.node(Ino(5)).unwrap().size, 10);
}

/// … also where it says of its log that what that names is on the disk, and died before the log
/// was.
#[test]
fn a_log_is_not_taken_for_synced_because_it_says_that_contents_are() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"contents on the disk");
    let mut job = layer.begin_sync().unwrap();
    job.sync_contents().unwrap();
    layer.complete_sync(&mut job).unwrap();
    drop(layer);
    let is_synced = || {
        let (log, _) = Log::open(&dir).unwrap();
        assert!(log.is_complete());
        log.is_synced()
    };
    assert!(!is_synced());
    drop(Layer::open(&dir).unwrap());
    assert!(is_synced());
}

/// What is unused is not given out again where nothing could say that the log which dropped it is
/// on the disk.
#[test]
fn a_full_disk_keeps_what_is_unused_until_the_next_sync() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let dropped = put_file(&mut layer, Ino(5), b"dropped");
    put_file(&mut layer, Ino(6), &[1; 100_000]);
    layer.sync().unwrap();
    layer
        .commit(vec![Op::DropNode(Ino(5)), Op::DropNode(Ino(6))])
        .unwrap();
    drop(layer);
    // The first step is to sync the contents, the second to say so.
    for full_at in 0..2 {
        fault::arm(full_at, Fault::DiskFull);
        let mut layer = Layer::open(&dir).unwrap();
        fault::disarm();
        assert!(dir.join("files/1").exists());
        assert_ne!(layer.new_content(1).unwrap().place, dropped.place);
        assert!(layer.is_dirty());
    }
    let mut layer = Layer::open(&dir).unwrap();
    assert!(!dir.join("files/1").exists());
    assert_eq!(layer.new_content(1).unwrap().place, dropped.place);
}

#[test]
fn a_disk_full_of_records_that_make_room_can_still_be_synced() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"to be dropped");
    let mut number = 0;
    // Until not even removing finds room: asking for more of the disk is what comes before
    // appending.
    loop {
        fault::arm(0, Fault::DiskFull);
        let op = Op::PutDentry {
            parent: Ino::ROOT,
            name: name(format!("gone {number}")),
            dentry: Dentry::Whiteout,
        };
        number += 1;
        let result = layer.commit(vec![op]);
        let was_asked = fault::steps_taken() == 1 && result.is_err();
        fault::disarm();
        if was_asked {
            break;
        }
        let op = Op::PutDentry {
            parent: Ino::ROOT,
            name: name(format!("gone {number}")),
            dentry: Dentry::Whiteout,
        };
        layer.commit(vec![op]).unwrap();
        assert!(number < 10_000);
    }
    let log = std::fs::metadata(dir.join("log")).unwrap();
    let reserved = std::os::unix::fs::MetadataExt::blocks(&log) * 512;
    layer.sync().unwrap();
    let log = std::fs::metadata(dir.join("log")).unwrap();
    assert!(log.len() <= reserved, "{} of {reserved}", log.len());
}

/// The kernel takes what it failed to write for written, so no later sync would bring it to the
/// disk.
#[test]
fn what_a_failed_sync_left_in_memory_is_written_again() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"in a slot");
    put_file(&mut layer, Ino(6), &[6; 100_000]);
    resize(&mut layer, Ino(6), 3 << 20).unwrap();
    // The contents are the first step. Where they found no room, the next sync writes them again.
    fault::arm(0, Fault::DiskFull);
    layer.sync().unwrap_err();
    fault::disarm();
    layer.sync().unwrap();
    resize(&mut layer, Ino(6), 3 << 20).unwrap();
    fault::arm(0, Fault::Crash);
    layer.sync().unwrap_err();
    fault::disarm();
    let is_poisoned = |result| matches!(result, Err(LayerError::Poisoned { .. }));
    assert!(is_poisoned(layer.sync()));
    assert!(is_poisoned(layer.commit(vec![Op::DropNode(Ino(5))])));
    drop(layer);

    let check = |layer: &Layer| {
        assert_eq!(read_all(layer, Ino(5)), b"in a slot");
        let large = read_all(layer, Ino(6));
        assert!(large[..100_000] == [6; 100_000] && large[100_000..].iter().all(|byte| *byte == 0));
    };
    // As long as the disk fails it is read, and nothing else.
    for fail_at in 0..4 {
        fault::arm(fail_at, Fault::Crash);
        let mut layer = Layer::open(&dir).unwrap();
        fault::disarm();
        check(&layer);
        assert!(is_poisoned(layer.commit(vec![Op::DropNode(Ino(5))])));
    }
    let log = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(dir.join("log")).unwrap());
    let log_before = log();
    let layer = Layer::open(&dir).unwrap();
    check(&layer);
    assert!(!layer.is_dirty());
    assert_ne!(log(), log_before);
    assert!(!dir.join("failed").exists());
    let (content, size) = own(&layer, Ino(6));
    assert!(
        layer.content_blocks(content, size).unwrap() < 400,
        "holes stay"
    );
}

#[test]
fn layers_are_merged_whole_or_not_at_all() {
    for die_at in 0.. {
        let (temp, dir) = temp();
        let mut layers = Vec::new();
        for number in 1..=3u64 {
            let mut layer =
                Layer::create(&temp.path().join(number.to_string()), LayerId(number)).unwrap();
            put_file(&mut layer, Ino(5), &[number as u8; 100_000]);
            put_file(&mut layer, Ino(10 + number), &[number as u8; 100]);
            let frozen = layer.freeze();
            frozen.seal().unwrap();
            layers.insert(0, frozen);
        }
        fault::arm(die_at, Fault::Crash);
        let merged = FrozenLayer::merge(&dir, ID, &layers);
        let lived = fault::steps_taken() <= die_at;
        fault::disarm();
        assert_eq!(merged.is_ok(), lived);
        assert_eq!(dir.exists(), lived);
        let bytes_of = |stack: &LayerStack, ino: u64| {
            let node = stack.node(Ino(ino)).unwrap();
            let content = node.content.own().unwrap();
            let mut bytes = vec![0; node.size as usize];
            stack
                .read_content(content, node.size, 0, &mut bytes)
                .unwrap();
            bytes
        };
        let stack = |frozen| {
            LayerStack::new(
                Layer::create(&temp.path().join("open"), LayerId(9)).unwrap(),
                frozen,
            )
        };
        let check = |stack: &LayerStack| {
            assert!(bytes_of(stack, 5) == [3; 100_000]);
            for number in 1..=3u8 {
                assert!(bytes_of(stack, 10 + u64::from(number)) == [number; 100]);
            }
        };
        if !lived {
            check(&stack(layers));
            continue;
        }
        drop(layers);
        for number in 1..=3u64 {
            std::fs::remove_dir_all(temp.path().join(number.to_string())).unwrap();
        }
        let blocks = |part: u64| {
            let data = dir.join(format!("parts/{part}/data"));
            std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(data).unwrap())
        };
        drop(merged);
        let merged = FrozenLayer::open(&dir).unwrap();
        merged.free_replaced();
        assert_eq!([1, 2, 3].map(blocks), [8, 8, 8]);
        assert_eq!(file_count(&dir.join("parts/3")), 1);
        assert_eq!(file_count(&dir.join("parts/1")), 0);
        check(&stack(vec![merged]));
        break;
    }
}
