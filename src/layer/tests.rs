//! A layer as its users see it: commits, contents, reopening, freezing, damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::fault::{self, Fault};
use super::*;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_path::{EntryName, RepoPath};

mod contents;
mod crashes;
mod damage;
mod fuzz;
mod model;
mod salvage;

const ID: LayerId = LayerId(7);

/// Fewer cases than usual, because each waits for the disk; `PROPTEST_CASES` asks for more.
fn few_cases() -> proptest::test_runner::Config {
    use proptest::test_runner::Config;
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default(),
        None => Config::with_cases(48),
    }
}

fn temp() -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("layer");
    (temp, dir)
}

fn name(name: impl AsRef<[u8]>) -> EntryName {
    EntryName::new(name).unwrap()
}

fn node(content: Content, size: u64) -> Node {
    Node {
        kind: FileKind::Regular,
        perm: 0o644,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size,
        atime: Timestamp::from_secs(1),
        mtime: Timestamp::from_secs(2),
        ctime: Timestamp::from_secs(3),
        content,
        origin: None,
        xattrs: Xattrs::new(),
    }
}

fn entry(parent: Ino, at: impl AsRef<[u8]>, ino: Ino) -> Op {
    Op::PutDentry {
        parent,
        name: name(at),
        dentry: Dentry::Entry(ino),
    }
}

/// Makes a file with `bytes`, with a content of its own.
fn put_file(layer: &mut Layer, ino: Ino, bytes: &[u8]) -> ContentRef {
    let content = layer.new_content(bytes.len() as u64).unwrap();
    let content = layer.write_content(content, 0, 0, bytes).unwrap();
    layer
        .commit(vec![Op::PutNode(
            ino,
            node(Content::Own(content), bytes.len() as u64),
        )])
        .unwrap();
    content
}

fn own(layer: &Layer, ino: Ino) -> (ContentRef, u64) {
    let node = layer.index().node(ino).unwrap();
    match node.content {
        Content::Own(content) => (content, node.size),
        _ => panic!("{ino:?} has no content of its own"),
    }
}

fn read_all(layer: &Layer, ino: Ino) -> Vec<u8> {
    let (content, size) = own(layer, ino);
    let mut bytes = vec![0xee; size as usize + 10];
    let count = layer.read_content(content, size, 0, &mut bytes).unwrap();
    assert_eq!(count as u64, size);
    bytes.truncate(count);
    bytes
}

/// Writes and commits, as a file system does.
fn write(layer: &mut Layer, ino: Ino, offset: u64, data: &[u8]) -> Result<(), LayerError> {
    let (content, size) = own(layer, ino);
    let moved = layer.write_content(content, size, offset, data)?;
    put_content(
        layer,
        ino,
        content,
        moved,
        size.max(offset + data.len() as u64),
    )
}

/// As [`write`], as if others used the layer meanwhile.
fn write_beside(layer: &mut Layer, ino: Ino, offset: u64, data: &[u8]) -> Result<(), LayerError> {
    let (content, size) = own(layer, ino);
    let Some(file) = layer.begin_writing(content, size)? else {
        return write(layer, ino, offset, data);
    };
    let written = file.write(size, offset, data);
    layer.end_writing(&file);
    written?;
    put_content(
        layer,
        ino,
        content,
        content,
        size.max(offset + data.len() as u64),
    )
}

fn resize(layer: &mut Layer, ino: Ino, new_size: u64) -> Result<(), LayerError> {
    let (content, size) = own(layer, ino);
    let moved = layer.resize_content(content, size, new_size)?;
    put_content(layer, ino, content, moved, new_size)
}

fn put_content(
    layer: &mut Layer,
    ino: Ino,
    old: ContentRef,
    new: ContentRef,
    size: u64,
) -> Result<(), LayerError> {
    let op = if old == new {
        Op::Written {
            ino,
            size,
            time: Timestamp::from_secs(9),
        }
    } else {
        let mut node = layer.index().node(ino).unwrap().clone();
        node.content = Content::Own(new);
        node.size = size;
        Op::PutNode(ino, node)
    };
    layer.commit(vec![op]).inspect_err(|_| {
        if old != new {
            layer.abandon_content(new);
        }
    })
}

fn names(layer: &Layer, dir: Ino) -> Vec<String> {
    let dir = layer.index().dir(dir).unwrap();
    dir.arrived_after(0)
        .map(|(_, name, _)| name.to_string())
        .collect()
}

fn file_count(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("files")).unwrap().count()
}

#[test]
fn what_was_committed_is_there_after_reopening_without_a_sync() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let ino = layer.allocate_ino().unwrap();
    put_file(&mut layer, ino, b"hello");
    layer
        .commit(vec![
            entry(Ino::ROOT, "a", ino),
            Op::PutDentry {
                parent: Ino::ROOT,
                name: name("gone"),
                dentry: Dentry::Whiteout,
            },
            Op::Written {
                ino,
                size: 4,
                time: Timestamp { secs: 77, nanos: 8 },
            },
        ])
        .unwrap();
    assert!(layer.is_dirty());
    drop(layer);

    let layer = Layer::open(&dir).unwrap();
    assert_eq!(layer.id(), ID);
    assert_eq!(read_all(&layer, ino), b"hell");
    let root = layer.index().dir(Ino::ROOT).unwrap();
    assert_eq!(root.get(b"a"), Some(Dentry::Entry(ino)));
    assert_eq!(root.get(b"gone"), Some(Dentry::Whiteout));
    assert_eq!(root.get(b"other"), None);
    let node = layer.index().node(ino).unwrap();
    assert_eq!(node.mtime, Timestamp { secs: 77, nanos: 8 });
    assert_eq!(node.ctime, node.mtime);
    assert_eq!(node.atime, Timestamp::from_secs(1));
    assert_eq!(layer.stats().nodes, 1);
    assert_eq!(layer.stats().dentries, 2);
    assert_eq!(layer.stats().content_bytes, 4096);
}

#[test]
fn a_layer_is_open_once() {
    let (_temp, dir) = temp();
    let layer = Layer::create(&dir, ID).unwrap();
    assert!(matches!(Layer::open(&dir), Err(LayerError::Locked { .. })));
    assert!(matches!(
        Layer::create(&dir, ID),
        Err(LayerError::Io { .. })
    ));
    drop(layer);
    Layer::open(&dir).unwrap();
}

/// Invariant 7: inode numbers are never reused.
#[test]
fn a_number_is_never_given_twice() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let mut last = Ino(0);
    for round in 0..6 {
        for _ in 0..700 {
            let ino = layer.allocate_ino().unwrap();
            assert!(ino > last && ino.is_new());
            last = ino;
        }
        if round == 3 {
            layer.compact().unwrap();
        }
        drop(layer);
        layer = Layer::open(&dir).unwrap();
    }
    let below = Ino(last.0 + 100_000);
    layer.reserve_below(below).unwrap();
    drop(layer);
    layer = Layer::open(&dir).unwrap();
    assert!(layer.allocate_ino().unwrap() >= below);
}

#[test]
fn a_sync_may_run_while_the_layer_is_used() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let dropped = put_file(&mut layer, Ino(5), &[1; 100]);
    put_file(&mut layer, Ino(6), &[1; 100_000]);
    resize(&mut layer, Ino(6), 70_000).unwrap();
    layer.commit(vec![Op::DropNode(Ino(5))]).unwrap();
    let mut job = layer.begin_sync().unwrap();
    put_file(&mut layer, Ino(7), &[2; 100]);
    resize(&mut layer, Ino(6), 90_000).unwrap();
    layer.run_sync(&mut job).unwrap();
    let mut second = layer.begin_sync().unwrap();
    put_file(&mut layer, Ino(8), &[2; 100]);
    layer.run_sync(&mut second).unwrap();
    layer.end_sync(second);
    assert!(layer.is_dirty(), "the first one has not ended");
    layer.end_sync(job);
    assert!(layer.is_dirty(), "something was written in between");
    assert_eq!(read_all(&layer, Ino(7)), [2; 100]);
    let mut expected = vec![1; 70_000];
    expected.resize(90_000, 0);
    assert!(read_all(&layer, Ino(6)) == expected);
    assert_eq!(layer.new_content(1).unwrap().place, dropped.place);
    layer.sync().unwrap();
    assert!(!layer.is_dirty());
}

#[test]
fn opening_drops_unlinked_nodes_and_unnamed_contents() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 5000]);
    put_file(&mut layer, Ino(6), &[1; 100_000]);
    put_file(&mut layer, Ino(7), b"stays");
    for ino in [Ino(5), Ino(6)] {
        let mut unlinked = layer.index().node(ino).unwrap().clone();
        unlinked.nlink = 0;
        layer.commit(vec![Op::PutNode(ino, unlinked)]).unwrap();
    }
    layer.new_content(1 << 20).unwrap();
    assert_eq!(file_count(&dir), 2);
    drop(layer);
    let layer = Layer::open(&dir).unwrap();
    assert_eq!(file_count(&dir), 0);
    assert_eq!(layer.stats().nodes, 1);
    assert_eq!(layer.stats().content_bytes, 4096);
    assert_eq!(read_all(&layer, Ino(7)), b"stays");
    drop(layer);
    Layer::open(&dir).unwrap();
}

#[test]
fn dropping_a_directory_drops_what_is_said_of_its_names() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    layer
        .commit(vec![
            Op::PutNode(Ino(5), node(Content::Empty, 0)),
            entry(Ino(5), "a", Ino(6)),
            entry(Ino(5), "b", Ino(6)),
            entry(Ino(8), "c", Ino(6)),
            Op::DropNode(Ino(5)),
        ])
        .unwrap();
    assert!(layer.index().dir(Ino(5)).is_none());
    assert_eq!(layer.stats().dentries, 1);
    layer
        .commit(vec![Op::DropDentry {
            parent: Ino(8),
            name: name("c"),
        }])
        .unwrap();
    assert_eq!(layer.stats().dentries, 0);
    assert_eq!(layer.index().dirs().count(), 0);
}

#[test]
fn compaction_keeps_everything_and_the_order_of_names() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let mut odd = node(Content::Base, 12);
    odd.origin = Some(Box::new(Origin {
        path: RepoPath::parse("a/b").unwrap(),
        kind: tine_git::TreeEntryKind::Executable,
        id: tine_git::ObjectId::null(gix::hash::Kind::Sha1),
    }));
    odd.xattrs = BTreeMap::from([(b"user.x"[..].into(), b"\xff\0"[..].into())]);
    layer
        .commit(vec![
            Op::PutNode(Ino(50), odd.clone()),
            Op::PutNode(Ino(51), node(Content::Link(b"../x"[..].into()), 4)),
        ])
        .unwrap();
    put_file(&mut layer, Ino(52), b"bytes");
    for number in [3, 1, 2, 9, 8] {
        layer
            .commit(vec![entry(Ino::ROOT, format!("n{number}"), Ino(52))])
            .unwrap();
    }
    layer
        .commit(vec![
            Op::DropDentry {
                parent: Ino::ROOT,
                name: name("n1"),
            },
            entry(Ino::ROOT, "n1", Ino(52)),
            entry(Ino::ROOT, "n3", Ino(51)),
        ])
        .unwrap();
    let order = names(&layer, Ino::ROOT);
    assert_eq!(order, ["n3", "n2", "n9", "n8", "n1"]);
    let written = |layer: &mut Layer, secs| {
        layer
            .commit(vec![Op::Written {
                ino: Ino(52),
                size: 5,
                time: Timestamp::from_secs(secs),
            }])
            .unwrap();
    };
    let mut largest = 0;
    for secs in 0..400_000 {
        written(&mut layer, secs);
        largest = largest.max(layer.stats().log_bytes);
        if secs % 20_000 == 0 {
            layer.sync().unwrap();
        }
    }
    assert!(largest > 4_000_000 && largest < 5 << 20, "{largest}");
    assert!(layer.stats().log_bytes < largest);
    layer.sync().unwrap();
    let log_bytes = layer.stats().log_bytes;
    assert!(
        matches!(Layer::open(&dir), Err(LayerError::Locked { .. })),
        "the lock is kept"
    );
    drop(layer);

    let mut layer = Layer::open(&dir).unwrap();
    assert_eq!(layer.stats().log_bytes, log_bytes);
    assert_eq!(names(&layer, Ino::ROOT), order);
    assert_eq!(layer.index().node(Ino(50)), Some(&odd));
    assert_eq!(layer.index().node(Ino(52)).unwrap().mtime.secs, 399_999);
    assert_eq!(read_all(&layer, Ino(52)), b"bytes");
    written(&mut layer, 5);
    drop(layer);
    assert_eq!(
        Layer::open(&dir)
            .unwrap()
            .index()
            .node(Ino(52))
            .unwrap()
            .mtime
            .secs,
        5
    );
}

/// After a power failure a layer must not be there without what it stands on.
#[test]
fn no_sync_goes_before_what_a_layer_stands_on() {
    let temp = tempfile::tempdir().unwrap();
    let layer = |id: u64| Layer::create(&temp.path().join(id.to_string()), LayerId(id)).unwrap();
    let mut stack = LayerStack::new(layer(1), Vec::new());
    for id in 2..4 {
        put_file(stack.open_layer_mut(), Ino(5), b"written");
        stack.freeze(layer(id));
    }
    let mut child = LayerStack::new(layer(4), stack.frozen().to_vec());
    put_file(child.open_layer_mut(), Ino(6), b"of the child");
    assert!(stack.frozen().iter().all(|layer| !layer.is_sealed()));
    // As for want of room, or because the log is long.
    child.open_layer_mut().compact().unwrap();
    assert!(stack.frozen().iter().all(|layer| layer.is_sealed()));
    stack.open_layer_mut().sync().unwrap();
}

/// Invariant 2: frozen layers are immutable.
#[test]
fn a_frozen_layer_is_read_only_and_shared() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"small");
    put_file(&mut layer, Ino(6), &[6; 100_000]);
    resize(&mut layer, Ino(6), 200_000).unwrap();
    layer.commit(vec![entry(Ino::ROOT, "x", Ino(5))]).unwrap();
    let frozen = layer.freeze();
    assert!(matches!(
        FrozenLayer::open(&dir),
        Err(LayerError::Unsealed { .. })
    ));
    assert!(!frozen.is_sealed());
    frozen.seal().unwrap();
    assert!(frozen.is_sealed());
    assert!(matches!(Layer::open(&dir), Err(LayerError::Frozen { .. })));
    let again = FrozenLayer::open(&dir).unwrap();
    for frozen in [frozen, again] {
        assert_eq!(frozen.id(), ID);
        let node = frozen.index().node(Ino(5)).unwrap();
        let content = node.content.own().unwrap();
        let mut bytes = [0; 9];
        assert_eq!(
            frozen
                .read_content(content, node.size, 1, &mut bytes)
                .unwrap(),
            4
        );
        assert_eq!(&bytes[..4], b"mall");

        let above_temp = tempfile::tempdir().unwrap();
        let above_dir = above_temp.path().join("above");
        let mut above = Layer::create(&above_dir, LayerId(8)).unwrap();
        for ino in [Ino(5), Ino(6)] {
            let node = frozen.index().node(ino).unwrap().clone();
            let content = node.content.own().unwrap();
            assert!(
                matches!(
                    above.write_content(content, node.size, 0, b"x"),
                    Err(LayerError::Corrupt { .. })
                ),
                "a content of another layer is not written"
            );
            let copy = above.copy_up(&frozen, content, node.size).unwrap();
            above
                .commit(vec![Op::PutNode(
                    ino,
                    Node {
                        content: Content::Own(copy),
                        ..node
                    },
                )])
                .unwrap();
        }
        assert_eq!(read_all(&above, Ino(5)), b"small");
        let mut expected = vec![6; 100_000];
        expected.resize(200_000, 0);
        assert!(read_all(&above, Ino(6)) == expected);
        let (content, size) = own(&above, Ino(6));
        assert!(
            above.content_blocks(content, size).unwrap() < 300,
            "the hole is copied as one"
        );
    }
}

#[test]
fn the_topmost_layer_that_speaks_is_heard() {
    let temp = tempfile::tempdir().unwrap();
    let mut frozen = Vec::new();
    for number in 1..=2u64 {
        let mut layer =
            Layer::create(&temp.path().join(number.to_string()), LayerId(number)).unwrap();
        put_file(&mut layer, Ino(10), format!("layer {number}").as_bytes());
        put_file(&mut layer, Ino(10 + number), b"only here");
        layer
            .commit(vec![
                entry(Ino::ROOT, "both", Ino(number)),
                entry(Ino::ROOT, format!("only{number}"), Ino(number)),
            ])
            .unwrap();
        frozen.insert(0, layer.freeze());
    }
    let mut open = Layer::create(&temp.path().join("3"), LayerId(3)).unwrap();
    open.commit(vec![Op::PutDentry {
        parent: Ino::ROOT,
        name: name("only1"),
        dentry: Dentry::Whiteout,
    }])
    .unwrap();
    let stack = LayerStack::new(open, frozen);
    assert_eq!(
        stack.dentry(Ino::ROOT, b"both"),
        Some(Dentry::Entry(Ino(2)))
    );
    assert_eq!(
        stack.dentry(Ino::ROOT, b"only2"),
        Some(Dentry::Entry(Ino(2)))
    );
    assert_eq!(stack.dentry(Ino::ROOT, b"only1"), Some(Dentry::Whiteout));
    assert_eq!(
        stack.frozen_dentry(Ino::ROOT, b"only1"),
        Some(Dentry::Entry(Ino(1)))
    );
    assert_eq!(stack.dentry(Ino::ROOT, b"none"), None);
    assert!(stack.node(Ino(11)).is_some() && stack.node(Ino(13)).is_none());
    let node = stack.node(Ino(10)).unwrap();
    let content = node.content.own().unwrap();
    assert_eq!(stack.frozen_owner(content).unwrap().id(), LayerId(2));
    let mut bytes = [0; 7];
    stack
        .read_content(content, node.size, 0, &mut bytes)
        .unwrap();
    assert_eq!(&bytes, b"layer 2");
}

#[test]
fn a_full_disk_changes_nothing() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 1000]);
    layer.sync().unwrap();
    // Whatever step of a write that moves the content fails: the old state stands, and the next try
    // works.
    for step in 0..50 {
        fault::arm(step, Fault::DiskFull);
        let result = write(&mut layer, Ino(5), 1000, &[2; 100_000]);
        let taken = fault::steps_taken();
        fault::disarm();
        if result.is_ok() {
            assert!(step >= taken);
            break;
        }
        match result {
            Err(LayerError::Io { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull)
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(read_all(&layer, Ino(5)), [1; 1000]);
        assert_eq!(layer.stats().content_bytes, 4096);
        assert_eq!(file_count(&dir), 0);
    }
    assert_eq!(own(&layer, Ino(5)).1, 101_000);
    drop(layer);
    assert_eq!(read_all(&Layer::open(&dir).unwrap(), Ino(5)).len(), 101_000);
}

#[test]
fn a_layer_that_cannot_roll_back_is_poisoned_and_still_read() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), b"old");
    fault::arm(1, Fault::Crash);
    assert!(layer.commit(vec![Op::DropNode(Ino(5))]).is_err());
    fault::disarm();
    for result in [
        layer.commit(vec![Op::DropNode(Ino(5))]).err(),
        layer.new_content(1).err(),
        layer.sync().err(),
        layer.begin_sync().err(),
    ] {
        assert!(
            matches!(result, Some(LayerError::Poisoned { .. })),
            "{result:?}"
        );
    }
    assert_eq!(read_all(&layer, Ino(5)), b"old");
    drop(layer);
    let mut layer = Layer::open(&dir).unwrap();
    assert_eq!(read_all(&layer, Ino(5)), b"old");
    layer.commit(vec![Op::DropNode(Ino(5))]).unwrap();
}

#[test]
fn a_log_that_nobody_syncs_is_compacted_all_the_same() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let mut large = node(Content::Empty, 0);
    large.xattrs = BTreeMap::from([(b"user.x"[..].into(), vec![7; 60_000].into())]);
    for round in 0..1300 {
        large.uid = round;
        layer
            .commit(vec![Op::PutNode(Ino(5), large.clone())])
            .unwrap();
        assert!(layer.stats().log_bytes < 65 << 20);
    }
    assert!(layer.stats().log_bytes < 20 << 20);
    drop(layer);
    assert_eq!(
        Layer::open(&dir).unwrap().index().node(Ino(5)).unwrap().uid,
        1299
    );
}
