//! Contents: places, holes, space.

use super::*;

#[test]
fn contents_grow_through_slots_into_a_file() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let ino = layer.allocate_ino().unwrap();
    let content = put_file(&mut layer, ino, b"x");
    let mut expected = b"x".to_vec();
    let mut places = vec![content.place];
    for step in 0..60u8 {
        let chunk = vec![step; 3000];
        write(&mut layer, ino, expected.len() as u64, &chunk).unwrap();
        expected.extend(chunk);
        let (content, _) = own(&layer, ino);
        if places.last() != Some(&content.place) {
            places.push(content.place);
        }
        assert_eq!(read_all(&layer, ino), expected);
    }
    let capacities: Vec<u32> = places
        .iter()
        .map(|place| match place {
            ContentLocation::Slot { capacity, .. } => *capacity,
            ContentLocation::File(_) => 0,
        })
        .collect();
    assert_eq!(capacities, [4096, 8192, 16384, 32768, 65536, 0]);
    drop(layer);
    let layer = Layer::open(&dir).unwrap();
    assert_eq!(read_all(&layer, ino), expected);
    assert!(layer.stats().content_bytes >= 180_000);
}

#[test]
fn stale_bytes_never_come_back() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    for len in [100usize, 4096, 60_000, 200_000] {
        let ino = layer.allocate_ino().unwrap();
        put_file(&mut layer, ino, &vec![0xaa; len]);
        let short = len as u64 / 3;
        resize(&mut layer, ino, short).unwrap();
        // By a write behind the end, by a resize, with and without a sync in between.
        if len == 60_000 {
            layer.sync().unwrap();
        }
        write(&mut layer, ino, len as u64 / 2, b"z").unwrap();
        resize(&mut layer, ino, len as u64).unwrap();
        let mut expected = vec![0xaa; short as usize];
        expected.resize(len, 0);
        expected[len / 2] = b'z';
        assert!(read_all(&layer, ino) == expected, "{len}");
    }
    // A slot that another content left behind.
    let ino = layer.allocate_ino().unwrap();
    put_file(&mut layer, ino, &[0xbb; 4096]);
    layer.commit(vec![Op::DropNode(ino)]).unwrap();
    layer.sync().unwrap();
    let ino = layer.allocate_ino().unwrap();
    put_file(&mut layer, ino, b"1");
    resize(&mut layer, ino, 4096).unwrap();
    let bytes = read_all(&layer, ino);
    assert_eq!(bytes[0], b'1');
    assert!(bytes[1..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_sparse_file_of_a_terabyte_takes_no_space() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let ino = layer.allocate_ino().unwrap();
    put_file(&mut layer, ino, b"begin");
    resize(&mut layer, ino, 1 << 40).unwrap();
    write(&mut layer, ino, 1 << 39, b"middle").unwrap();
    let (content, size) = own(&layer, ino);
    assert_eq!(size, 1 << 40);
    assert!(layer.content_blocks(content, size).unwrap() <= 64);
    let seek = |offset, whence| layer.seek_content(content, size, offset, whence).unwrap();
    assert_eq!(seek(0, SeekWhence::Data), Some(0));
    let hole = seek(0, SeekWhence::Hole).unwrap();
    assert!((5..1 << 20).contains(&hole));
    let data = seek(hole, SeekWhence::Data).unwrap();
    assert!((hole..=1 << 39).contains(&data));
    assert_eq!(seek((1 << 39) + (1 << 20), SeekWhence::Data), None);
    assert_eq!(seek(size - 1, SeekWhence::Hole), Some(size - 1));
    assert_eq!(seek(size, SeekWhence::Hole), None);
    let mut buffer = [1; 8];
    assert_eq!(
        layer
            .read_content(content, size, (1 << 39) - 1, &mut buffer)
            .unwrap(),
        8
    );
    assert_eq!(&buffer, b"\0middle\0");
}

#[test]
fn offsets_past_what_a_file_can_hold_are_refused() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let ino = layer.allocate_ino().unwrap();
    for bytes in [&b"small"[..], &[5; 100_000]] {
        let content = put_file(&mut layer, ino, bytes);
        let len = bytes.len() as u64;
        for offset in [i64::MAX as u64, u64::MAX - 1, u64::MAX] {
            for result in [
                layer.write_content(content, len, offset, b"ab").err(),
                layer.resize_content(content, len, offset).err(),
                layer.reserve_content(content, len, offset, 2).err(),
            ] {
                match result {
                    Some(LayerError::Io { source, .. }) => {
                        assert_eq!(source.kind(), std::io::ErrorKind::FileTooLarge)
                    }
                    other => panic!("{other:?}"),
                }
            }
            layer.zero_content(content, len, offset, u64::MAX).unwrap();
            let mut buffer = [0; 4];
            assert_eq!(
                layer
                    .read_content(content, len, offset, &mut buffer)
                    .unwrap(),
                0
            );
            assert_eq!(
                layer
                    .seek_content(content, len, offset, SeekWhence::Data)
                    .unwrap(),
                None
            );
        }
        assert_eq!(read_all(&layer, ino), bytes);
    }
}

#[test]
fn zeroing_and_reserving() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    for len in [3000usize, 300_000] {
        let ino = layer.allocate_ino().unwrap();
        let content = put_file(&mut layer, ino, &vec![1; len]);
        layer.zero_content(content, len as u64, 1000, 1500).unwrap();
        let mut expected = vec![1; len];
        expected[1000..2500].fill(0);
        assert!(read_all(&layer, ino) == expected);
        layer
            .zero_content(content, len as u64, len as u64 - 10, 1 << 30)
            .unwrap();
        expected[len - 10..].fill(0);
        assert!(read_all(&layer, ino) == expected);
        let moved = layer
            .reserve_content(content, len as u64, 0, 1 << 20)
            .unwrap();
        put_content(&mut layer, ino, content, moved, len as u64).unwrap();
        assert!(read_all(&layer, ino) == expected);
        let (content, size) = own(&layer, ino);
        assert!(layer.content_blocks(content, size).unwrap() >= 2048);
    }
}

/// Invariant 4: name before content on removal; freed space is used again only after the log was
/// synced.
#[test]
fn freed_contents_wait_for_the_log() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let (small, large, other) = (Ino(101), Ino(102), Ino(103));
    let small_content = put_file(&mut layer, small, &[1; 4000]);
    let large_content = put_file(&mut layer, large, &[2; 100_000]);
    layer.sync().unwrap();
    assert!(!layer.is_dirty());
    layer
        .commit(vec![Op::DropNode(small), Op::DropNode(large)])
        .unwrap();
    assert_eq!(layer.stats().content_bytes, 0);
    let content = put_file(&mut layer, other, &[3; 4000]);
    assert_ne!(content.place, small_content.place);
    assert_eq!(file_count(&dir), 1);
    let mut byte = [0];
    layer
        .read_content(small_content, 4000, 0, &mut byte)
        .unwrap();
    assert_eq!(
        byte,
        [1],
        "the bytes are whole while the log may still name them"
    );
    layer.sync().unwrap();
    assert_eq!(file_count(&dir), 0);
    let again = layer.new_content(4000).unwrap();
    assert_eq!(again.place, small_content.place);
    assert_ne!(
        layer.new_content(100_000).unwrap().place,
        large_content.place
    );
}

#[test]
fn shortening_a_file_gives_its_space_back() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    put_file(&mut layer, Ino(5), &[1; 1 << 20]);
    resize(&mut layer, Ino(5), 70_000).unwrap();
    let (content, size) = own(&layer, Ino(5));
    assert!(layer.content_blocks(content, size).unwrap() <= 144);
    layer.sync().unwrap();
    assert!(layer.content_blocks(content, size).unwrap() <= 144);
    assert!(layer.stats().content_bytes < 80_000);
    assert_eq!(read_all(&layer, Ino(5)), [1; 70_000]);
}

#[test]
fn a_content_may_pass_from_one_node_to_another() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let content = put_file(&mut layer, Ino(5), b"mine");
    layer
        .commit(vec![
            Op::DropNode(Ino(5)),
            Op::PutNode(Ino(6), node(Content::Own(content), 4)),
        ])
        .unwrap();
    layer.sync().unwrap();
    assert_eq!(read_all(&layer, Ino(6)), b"mine");
    assert_ne!(layer.new_content(1).unwrap().place, content.place);
}

#[test]
fn many_content_files_need_few_descriptors() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    for number in 0..600u64 {
        put_file(&mut layer, Ino(100 + number), &[number as u8; 70_000]);
    }
    for number in 0..600u64 {
        assert_eq!(read_all(&layer, Ino(100 + number)), [number as u8; 70_000]);
    }
    layer.sync().unwrap();
}

#[test]
fn layers_are_read_from_many_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Layer>();
    shared::<FrozenLayer>();
    shared::<LayerStack>();
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    for number in 0..40u8 {
        let len = if number % 2 == 0 { 5000 } else { 70_000 };
        put_file(&mut layer, Ino(100 + u64::from(number)), &vec![number; len]);
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..40u8 {
                    let bytes = read_all(&layer, Ino(100 + u64::from(number)));
                    assert!(bytes.iter().all(|byte| *byte == number));
                }
            });
        }
    });
}
