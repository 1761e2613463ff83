//! Logs that were cut short, damaged, or written by an enemy.

use proptest::prelude::*;

use super::super::log::Log;
use super::super::record::testing::{BOOT, Bytes, OTHER_BOOT, read};
use super::*;

/// A log of several records, with the ends of all of them.
fn sample(synced: impl Fn(usize) -> usize) -> (Bytes, Vec<usize>) {
    let mut log = Bytes::new(ID);
    let mut ends = vec![log.bytes.len()];
    for number in 0..8u64 {
        let ino = Ino(Ino::NEW_BIT | (number + 1));
        let content = ContentRef {
            layer: ID,
            place: ContentLocation::Slot {
                offset: number * 4096,
                capacity: 4096,
            },
        };
        let ops = [
            Op::PutNode(ino, node(Content::Own(content), number)),
            entry(Ino::ROOT, format!("file {number}"), ino),
        ];
        log.push_ops(synced(ends.len()), &ops);
        ends.push(log.bytes.len());
    }
    (log, ends)
}

/// How many of the sample's records an index holds; panics where it is none of its states.
fn records_in(index: &LayerIndex) -> usize {
    let count = index.node_count();
    assert_eq!(index.dentry_count(), count);
    for number in 0..count {
        let ino = Ino(Ino::NEW_BIT | (number + 1));
        assert_eq!(index.node(ino).unwrap().size, number);
        let dir = index.dir(Ino::ROOT).unwrap();
        assert_eq!(
            dir.get(format!("file {number}").as_bytes()),
            Some(Dentry::Entry(ino))
        );
    }
    count as usize
}

fn corrupt_at(result: Result<(LayerIndex, usize), LayerError>) -> u64 {
    match result {
        Err(LayerError::Corrupt { offset, reason, .. }) => {
            assert!(!reason.is_empty());
            offset
        }
        Err(other) => panic!("{other}"),
        Ok((index, good)) => panic!("took {} records, {good} bytes", records_in(&index)),
    }
}

#[test]
fn a_log_cut_at_any_byte_holds_the_whole_records_before() {
    let (log, ends) = sample(|_| 0);
    for cut in 0..=log.bytes.len() {
        for boot in [BOOT, OTHER_BOOT] {
            let result = read(&log.bytes[..cut], boot);
            if cut < 24 {
                assert_eq!(corrupt_at(result), 0);
                continue;
            }
            let (index, good) = result.unwrap();
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(records_in(&index), whole.saturating_sub(1));
            if let Some(end) = ends.iter().rfind(|end| **end <= cut) {
                assert_eq!(good, *end);
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_refused_or_costs_the_tail() {
    let start = Bytes::new(ID).bytes.len();
    let (log, ends) = sample(|_| start);
    for at in 0..log.bytes.len() {
        for bit in 0..8 {
            let mut bytes = log.bytes.clone();
            bytes[at] ^= 1 << bit;
            let record = ends
                .iter()
                .rev()
                .copied()
                .find(|end| *end <= at)
                .unwrap_or(0);
            match read(&bytes, BOOT) {
                Err(LayerError::NewerFormat { .. }) => assert!((8..12).contains(&at)),
                result => {
                    let found = corrupt_at(result) as usize;
                    assert!(found >= record && found <= at, "byte {at} bit {bit}");
                }
            }
            // After a power failure what was not synced may be lost: here all but what the log was
            // made with.
            match read(&bytes, OTHER_BOOT) {
                Err(_) => assert!(at < start),
                Ok((index, good)) => {
                    records_in(&index);
                    assert!(at >= start);
                    assert_eq!(good, record);
                }
            }
        }
    }
}

/// What a power failure may do: blocks that were not synced are lost in any order.
#[test]
fn unsynced_records_may_be_lost_in_any_order_and_synced_ones_not() {
    // Record 5 and later know that the first three records were synced.
    let (plain, ends) = sample(|_| 0);
    let synced_len = ends[3];
    assert_eq!(plain.bytes.len(), *ends.last().unwrap());
    let (log, ends) = sample(|number| if number >= 5 { synced_len } else { 0 });
    for (number, window) in ends.windows(2).enumerate() {
        let (start, end) = (window[0], window[1]);
        let mut bytes = log.bytes.clone();
        bytes[start..end].fill(0);
        assert_eq!(corrupt_at(read(&bytes, BOOT)), start as u64);
        if start < synced_len {
            assert_eq!(corrupt_at(read(&bytes, OTHER_BOOT)), start as u64);
        } else {
            let (index, good) = read(&bytes, OTHER_BOOT).unwrap();
            assert_eq!((records_in(&index), good), (number, start));
        }
    }
    let mut zeroes = log.bytes.clone();
    zeroes.resize(log.bytes.len() + 10_000, 0);
    let (index, good) = read(&zeroes, OTHER_BOOT).unwrap();
    assert_eq!((records_in(&index), good), (8, log.bytes.len()));
}

/// What a log names may be missing from the disk, as long as nothing says that it is there.
#[test]
fn after_a_power_failure_a_log_is_read_as_far_as_it_is_complete() {
    let (mut log, ends) = sample(|_| 0);
    assert_eq!(
        records_in(&read(&log.bytes, OTHER_BOOT).unwrap().0),
        8,
        "it never says"
    );
    let complete_len = ends[5];
    log.push_complete(complete_len);
    // The greatest counts: a sync may end after one that began later.
    log.push_complete(ends[4]);
    let (index, good) = read(&log.bytes, BOOT).unwrap();
    assert_eq!((records_in(&index), good), (8, log.bytes.len()));
    let (index, good) = read(&log.bytes, OTHER_BOOT).unwrap();
    assert_eq!((records_in(&index), good), (5, complete_len));

    // What it was then is said in the place of what is cut, and holds whether the rest is cut yet
    // or not.
    let mut said = Bytes::new(ID);
    said.bytes.clone_from(&log.bytes);
    said.bytes.truncate(complete_len);
    said.push_complete(complete_len);
    let said_len = said.bytes.len();
    for tail_len in [0, 1, 20, log.bytes.len() - said_len] {
        let mut bytes = said.bytes.clone();
        bytes.extend_from_slice(&log.bytes[said_len..said_len + tail_len]);
        let (index, good) = read(&bytes, OTHER_BOOT).unwrap();
        assert_eq!((records_in(&index), good), (5, said_len), "{tail_len}");
    }

    let (mut sealed, ends) = sample(|_| 0);
    sealed.push_complete(ends[8]);
    sealed.push_seal();
    assert_eq!(records_in(&read(&sealed.bytes, OTHER_BOOT).unwrap().0), 8);
    let (mut hostile, _) = sample(|_| 0);
    let end = hostile.bytes.len();
    hostile.push_complete(end + 1);
    assert_eq!(corrupt_at(read(&hostile.bytes, BOOT)), end as u64);
}

/// A file system that failed and was mounted again has lost what a power failure takes, under the
/// same run of the kernel.
#[test]
fn what_is_torn_behind_what_is_complete_costs_only_what_was_not_synced() {
    let drop_node = |number| [Op::DropNode(Ino(number))];
    let mut log = Bytes::new(ID);
    let begin = log.bytes.len();
    log.push_ops(0, &drop_node(5));
    let complete_len = log.bytes.len();
    log.push_complete(complete_len);
    let mut ends = vec![log.bytes.len()];
    for number in 6..9 {
        log.push_ops(0, &drop_node(number));
        ends.push(log.bytes.len());
    }
    for boot in [BOOT, OTHER_BOOT] {
        let torn = |start: usize, end: usize| {
            let mut bytes = log.bytes.clone();
            bytes[start..end].fill(0);
            read(&bytes, boot).map(|(_, good)| good)
        };
        // Nothing follows what is complete, or something does that is not whole itself.
        assert_eq!(torn(ends[0], ends[1]).unwrap(), ends[0]);
        assert_eq!(torn(ends[1], ends[2]).unwrap(), complete_len);
        assert_eq!(torn(ends[2], ends[3]).unwrap(), complete_len);
    }
    let mut damaged = log.bytes.clone();
    damaged[begin + 12] ^= 1;
    assert_eq!(corrupt_at(read(&damaged, BOOT)), begin as u64);
    // What a later record knows to have been on the disk is damage.
    log.push_ops(ends[2], &drop_node(9));
    log.bytes[ends[1] + 12] ^= 1;
    assert_eq!(corrupt_at(read(&log.bytes, BOOT)), ends[1] as u64);
}

/// A log that ends with saying that all of it is on the disk.
#[test]
fn a_flipped_bit_in_a_log_that_was_left_alone_is_refused_wherever_it_is() {
    let start = Bytes::new(ID).bytes.len();
    let (mut log, ends) = sample(|_| start);
    log.push_complete(log.bytes.len());
    let synced_len = log.bytes.len();
    log.push_synced();
    for at in 24..synced_len {
        let mut bytes = log.bytes.clone();
        bytes[at] ^= 1;
        let record = ends
            .iter()
            .rev()
            .copied()
            .find(|end| *end <= at)
            .unwrap_or(24);
        for boot in [BOOT, OTHER_BOOT] {
            let found = corrupt_at(read(&bytes, boot)) as usize;
            assert!(
                found >= record.min(start) && found <= at,
                "byte {at}: {found}"
            );
        }
    }
    // What says so may itself be torn.
    for cut in synced_len..log.bytes.len() {
        for boot in [BOOT, OTHER_BOOT] {
            assert_eq!(records_in(&read(&log.bytes[..cut], boot).unwrap().0), 8);
        }
    }
}

#[test]
fn a_layer_whose_synced_log_is_damaged_is_refused_and_stays_as_it_is() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let begin = layer.stats().log_bytes as usize;
    for number in 5..25 {
        put_file(&mut layer, Ino(number), b"work");
    }
    layer.sync().unwrap();
    let end = layer.stats().log_bytes as usize;
    drop(layer);
    // Opening says nothing more of a log that is on the disk.
    drop(Layer::open(&dir).unwrap());
    let whole = std::fs::read(dir.join("log")).unwrap();
    assert_eq!(whole.len().max(end), whole.len());
    let data = std::fs::read(dir.join("data")).unwrap();
    for at in [begin + 5, begin + 20, end / 2] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(dir.join("log"), &bytes).unwrap();
        for _ in 0..2 {
            assert!(matches!(Layer::open(&dir), Err(LayerError::Corrupt { .. })));
            assert!(check::check(&dir, check::Depth::Places).is_err());
        }
        assert_eq!(std::fs::read(dir.join("log")).unwrap(), bytes);
        assert_eq!(std::fs::read(dir.join("data")).unwrap(), data);
    }
    std::fs::write(dir.join("log"), &whole).unwrap();
    assert_eq!(read_all(&Layer::open(&dir).unwrap(), Ino(24)), b"work");
}

#[test]
fn a_record_of_another_place_or_layer_is_none() {
    let (log, ends) = sample(|_| 0);
    let last = ends[ends.len() - 2]..;
    let mut doubled = log.bytes.clone();
    doubled.extend_from_slice(&log.bytes[last]);
    assert_eq!(corrupt_at(read(&doubled, BOOT)), log.bytes.len() as u64);
    let (index, _) = read(&doubled, OTHER_BOOT).unwrap();
    assert_eq!(records_in(&index), 8);
}

#[test]
fn nothing_may_follow_the_seal() {
    let (mut log, _) = sample(|_| 0);
    log.push_seal();
    let sealed_len = log.bytes.len();
    read(&log.bytes, BOOT).unwrap();
    log.push_ops(0, &[Op::DropNode(Ino::ROOT)]);
    assert_eq!(corrupt_at(read(&log.bytes, BOOT)), sealed_len as u64);
}

#[test]
fn a_log_that_names_impossible_places_is_refused() {
    for (content, size) in [
        (
            ContentLocation::Slot {
                offset: 1,
                capacity: 4096,
            },
            0,
        ),
        (
            ContentLocation::Slot {
                offset: u64::MAX - 4095,
                capacity: 4096,
            },
            1,
        ),
        (
            ContentLocation::Slot {
                offset: 0,
                capacity: 0,
            },
            0,
        ),
        (
            ContentLocation::Slot {
                offset: 0,
                capacity: 4096,
            },
            4097,
        ),
    ] {
        let (_temp, dir) = temp();
        drop(Layer::create(&dir, ID).unwrap());
        let mut log = Bytes::new(ID);
        let content = Content::Own(ContentRef {
            layer: ID,
            place: content,
        });
        log.push_ops(0, &[Op::PutNode(Ino(5), node(content, size))]);
        std::fs::write(dir.join("log"), &log.bytes).unwrap();
        assert!(matches!(Layer::open(&dir), Err(LayerError::Corrupt { .. })));
        log.push_seal();
        std::fs::write(dir.join("log"), &log.bytes).unwrap();
        assert!(matches!(
            FrozenLayer::open(&dir),
            Err(LayerError::Corrupt { .. })
        ));
    }
}

#[test]
fn a_content_that_is_gone_spoils_its_node_only() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 100_000]);
    put_file(&mut layer, Ino(6), b"fine");
    drop(layer);
    std::fs::remove_file(dir.join("files/1")).unwrap();
    let layer = Layer::open(&dir).unwrap();
    let (content, size) = own(&layer, Ino(5));
    assert!(matches!(
        layer.read_content(content, size, 0, &mut [0]),
        Err(LayerError::Corrupt { .. })
    ));
    assert_eq!(layer.content_blocks(content, size).unwrap(), 0);
    assert_eq!(read_all(&layer, Ino(6)), b"fine");
}

/// `data` grows over the place again, which must not make zeroes of them.
#[test]
fn contents_that_data_has_lost_stay_lost() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    for number in 5..9 {
        put_file(&mut layer, Ino(number), &[number as u8; 3000]);
    }
    layer.sync().unwrap();
    drop(layer);
    let data = std::fs::File::options()
        .write(true)
        .open(dir.join("data"))
        .unwrap();
    data.set_len(4096 + 1000).unwrap();
    let faults = || {
        let broken = check::check(&dir, check::Depth::Bytes).unwrap().broken;
        let of_node = |ino| {
            broken
                .iter()
                .find(|one| one.ino == ino)
                .map(|one| one.fault.clone())
        };
        assert!(of_node(Ino(5)).is_none());
        [Ino(6), Ino(7), Ino(8)].map(|ino| of_node(ino).expect("a fault"))
    };
    let short = |there| check::ContentFault::Short { size: 3000, there };
    assert_eq!(faults(), [short(1000), short(0), short(0)]);
    for _ in 0..2 {
        let mut layer = Layer::open(&dir).unwrap();
        assert_eq!(read_all(&layer, Ino(5)), [5; 3000]);
        for ino in [6, 7, 8] {
            let (content, size) = own(&layer, Ino(ino));
            layer
                .read_content(content, size, 0, &mut [0; 3000])
                .unwrap_err();
        }
        // What is left of a content can be had.
        let (content, size) = own(&layer, Ino(6));
        let mut rest = [0; 1000];
        layer.read_content(content, size, 0, &mut rest).unwrap();
        assert_eq!(rest, [6; 1000]);
        layer
            .write_content(content, size, size, b"more")
            .unwrap_err();
        put_file(&mut layer, Ino(10), &[10; 60_000]);
        layer.sync().unwrap();
        drop(layer);
        let missing = check::ContentFault::Missing;
        assert_eq!(faults(), [short(1000), missing.clone(), missing]);
    }
    let mut layer = Layer::open(&dir).unwrap();
    layer
        .commit(vec![
            Op::DropNode(Ino(6)),
            Op::DropNode(Ino(7)),
            Op::DropNode(Ino(8)),
        ])
        .unwrap();
    layer.sync().unwrap();
    assert_eq!(check::check(&dir, check::Depth::Bytes).unwrap().broken, []);
}

/// A copy that looks for holes must not take for one what is lost.
#[test]
fn what_a_content_file_has_lost_is_not_zeroes() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let content = put_file(&mut layer, Ino(5), &[5; 200_000]);
    let ContentLocation::File(number) = content.place else {
        panic!("{content:?}")
    };
    let path = dir.join("files").join(number.to_string());
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(100_000).unwrap();
    let mut bytes = [0; 1000];
    layer
        .read_content(content, 200_000, 99_000, &mut bytes)
        .unwrap();
    assert_eq!(bytes, [5; 1000]);
    let seek = |offset, whence| {
        layer
            .seek_content(content, 200_000, offset, whence)
            .unwrap()
    };
    assert_eq!(seek(0, SeekWhence::Hole), Some(200_000));
    assert_eq!(seek(150_000, SeekWhence::Hole), Some(200_000));
    assert_eq!(seek(0, SeekWhence::Data), Some(0));
    assert_eq!(seek(150_000, SeekWhence::Data), Some(150_000));
    let lost =
        |result: Result<(), LayerError>| assert!(matches!(result, Err(LayerError::Corrupt { .. })));
    lost(
        layer
            .read_content(content, 200_000, 99_001, &mut bytes)
            .map(drop),
    );
    lost(write(&mut layer, Ino(5), 0, b"more"));
    lost(write_beside(&mut layer, Ino(5), 200_000, b"more"));
    lost(resize(&mut layer, Ino(5), 300_000));
    lost(layer.zero_content(content, 200_000, 150_000, 1000));
    lost(layer.duplicate_content(content, 200_000).map(drop));
    lost(layer.backing_file(content, 200_000).map(drop));
    let below = layer.freeze();
    let mut above = Layer::create(&dir.with_extension("above"), LayerId(8)).unwrap();
    lost(above.copy_up(&below, content, 200_000).map(drop));
}

#[test]
fn what_is_left_of_a_content_file_can_be_kept() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let content = put_file(&mut layer, Ino(5), &[5; 200_000]);
    let ContentLocation::File(number) = content.place else {
        panic!("{content:?}")
    };
    let path = dir.join("files").join(number.to_string());
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(100_000).unwrap();
    resize(&mut layer, Ino(5), 100_000).unwrap();
    write(&mut layer, Ino(5), 100_000, b"more").unwrap();
    assert_eq!(
        read_all(&layer, Ino(5)),
        [&[5; 100_000][..], b"more"].concat()
    );
}

/// Invariant 4: the file has its former length again then, as far as the log knows.
#[test]
fn a_power_failure_takes_nothing_of_a_file_that_was_cut_and_grew_again() {
    let shrink = |layer: &mut Layer| resize(layer, Ino(5), 100).unwrap();
    let ways: [&dyn Fn(&mut Layer); 4] = [
        &|layer| resize(layer, Ino(5), 150_000).unwrap(),
        &|layer| write(layer, Ino(5), 120_000, b"more").unwrap(),
        &|layer| write_beside(layer, Ino(5), 120_000, b"more").unwrap(),
        &|layer| write(layer, Ino(5), 0, b"more").unwrap(),
    ];
    for grow in ways {
        let (_temp, dir) = temp();
        let mut layer = Layer::create(&dir, ID).unwrap();
        put_file(&mut layer, Ino(5), &[5; 200_000]);
        layer.sync().unwrap();
        shrink(&mut layer);
        grow(&mut layer);
        drop(layer);
        drop(Log::open_under(&dir, [1; 16]).unwrap());
        assert_eq!(check::check(&dir, check::Depth::Bytes).unwrap().broken, []);
        let mut layer = Layer::open(&dir).unwrap();
        assert_eq!(read_all(&layer, Ino(5))[10..100], [5; 90]);
        write(&mut layer, Ino(5), 200_000, b"more").unwrap();
        assert_eq!(own(&layer, Ino(5)).1, 200_004);
    }
}

#[test]
fn what_a_frozen_layer_has_lost_is_not_zeroes() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let content = put_file(&mut layer, Ino(5), b"work");
    layer.freeze().seal().unwrap();
    std::fs::write(dir.join("data"), b"").unwrap();
    let layer = FrozenLayer::open(&dir).unwrap();
    let read = layer.read_content(content, 4, 0, &mut [0; 4]);
    assert!(matches!(read, Err(LayerError::Corrupt { .. })));
}

#[test]
fn a_torn_tail_is_cut_and_the_log_goes_on() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"first");
    let whole = layer.stats().log_bytes;
    put_file(&mut layer, Ino(6), b"second");
    let path = dir.join("log");
    drop(layer);
    let bytes = std::fs::read(&path).unwrap();
    for cut in whole..bytes.len() as u64 {
        std::fs::write(&path, &bytes[..cut as usize]).unwrap();
        let mut layer = Layer::open(&dir).unwrap();
        // The tail has gone; that the rest is on the disk has been said in its place.
        let log = std::fs::read(&path).unwrap();
        assert_eq!(log[..whole as usize], bytes[..whole as usize]);
        assert!(
            log.len() < whole as usize + 64,
            "{} after {whole}",
            log.len()
        );
        assert!(layer.index().node(Ino(6)).is_none());
        put_file(&mut layer, Ino(7), b"third");
        drop(layer);
        let layer = Layer::open(&dir).unwrap();
        assert_eq!(read_all(&layer, Ino(5)), b"first");
        assert_eq!(read_all(&layer, Ino(7)), b"third");
    }
}

/// The body of another layer's record does not fit a header, wherever the two are torn apart.
#[test]
fn a_record_is_not_put_together_from_two() {
    let (log, ends) = sample(|_| 0);
    let mut other = Bytes::new(LayerId(8));
    while other.bytes.len() < ends[0] {
        other.push_ops(0, &[]);
    }
    assert_eq!(other.bytes.len(), ends[0]);
    let content = ContentRef {
        layer: LayerId(8),
        place: ContentLocation::Slot {
            offset: 0,
            capacity: 4096,
        },
    };
    let ino = Ino(Ino::NEW_BIT | 1);
    other.push_ops(
        0,
        &[
            Op::PutNode(ino, node(Content::Own(content), 0)),
            entry(Ino::ROOT, "file 0", ino),
        ],
    );
    assert_eq!(other.bytes.len(), ends[1]);
    for torn_at in ends[0] + 1..ends[1] {
        let mut bytes = log.bytes[..ends[1]].to_vec();
        bytes[torn_at..].copy_from_slice(&other.bytes[torn_at..]);
        let is_same = bytes == log.bytes[..ends[1]];
        let whole = if is_same { 1 } else { 0 };
        let (index, _) = read(&bytes, OTHER_BOOT).unwrap();
        assert_eq!(records_in(&index), whole, "torn at {torn_at}");
    }
}

#[test]
fn a_log_of_the_first_format_is_read_and_goes_on_in_it() {
    let (_temp, dir) = temp();
    drop(Layer::create(&dir, ID).unwrap());
    let mut log = Bytes::of_version(1, ID);
    log.push_ops(0, &[Op::PutNode(Ino(5), node(Content::Empty, 0))]);
    std::fs::write(dir.join("log"), &log.bytes).unwrap();
    for ino in [6, 7] {
        let mut layer = Layer::open(&dir).unwrap();
        assert!(layer.index().node(Ino(ino - 1)).is_some());
        put_file(&mut layer, Ino(ino), b"new");
    }
    let version = || std::fs::read(dir.join("log")).unwrap()[8];
    assert_eq!(version(), 1);
    let mut layer = Layer::open(&dir).unwrap();
    layer.compact().unwrap();
    drop(layer);
    assert_eq!(version(), 2, "a new log has the newest format");
    assert_eq!(read_all(&Layer::open(&dir).unwrap(), Ino(7)), b"new");
}

#[test]
fn a_newer_format_is_refused() {
    let (_temp, dir) = temp();
    drop(Layer::create(&dir, ID).unwrap());
    let path = dir.join("log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] += 2;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(
        Layer::open(&dir),
        Err(LayerError::NewerFormat {
            found: 4,
            known: 3,
            ..
        })
    ));
}

proptest! {
    #[test]
    fn hostile_records_never_panic(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4),
        kind in 0u8..5,
    ) {
        let mut log = Bytes::new(ID);
        for mut body in bodies {
            // Most begin as records do, so that decoding gets further.
            if let Some(first) = body.first_mut() {
                *first = kind;
            }
            log.push_body(&body);
        }
        let _ = read(&log.bytes, BOOT);
    }

    #[test]
    fn changed_records_never_panic(at in 0usize..200, byte in any::<u8>()) {
        let content = Content::Link(b"target"[..].into());
        let body = postcard::to_stdvec(&(1u8, 0u64, vec![
            Op::PutNode(Ino(5), node(content, 6)),
            entry(Ino::ROOT, "name", Ino(5)),
            Op::Written { ino: Ino(5), size: 1, time: Timestamp::from_secs(-5) },
            Op::ReserveInos { below: Ino(u64::MAX) },
        ])).unwrap();
        let mut changed = body.clone();
        let at = at % changed.len();
        changed[at] = byte;
        for body in [body, changed] {
            let mut log = Bytes::new(ID);
            log.push_body(&body);
            let _ = read(&log.bytes, BOOT);
        }
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes, BOOT);
        let mut log = Bytes::new(ID).bytes;
        log.extend(bytes);
        let _ = read(&log, OTHER_BOOT);
    }
}
