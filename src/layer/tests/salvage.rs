//! Damaged layers that are made whole again.

use super::super::salvage::{copy_all, salvage};
use super::*;

/// The layer with `harmed` bytes of its log, at `at`.
fn harm(dir: &Path, at: u64) {
    let path = dir.join("log");
    let mut log = std::fs::read(&path).unwrap();
    log[at as usize + 14] ^= 0x10;
    std::fs::write(path, log).unwrap();
    assert!(matches!(Layer::open(dir), Err(LayerError::Corrupt { .. })));
}

#[test]
fn what_stands_before_the_damage_is_kept_and_the_rest_is_counted() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let (one, two) = (layer.allocate_ino().unwrap(), layer.allocate_ino().unwrap());
    put_file(&mut layer, one, b"one");
    layer.commit(vec![entry(Ino::ROOT, "one", one)]).unwrap();
    layer.sync().unwrap();
    let at = layer.stats().log_bytes;
    layer.commit(vec![entry(Ino::ROOT, "other", one)]).unwrap();
    put_file(&mut layer, two, b"two");
    layer.commit(vec![entry(Ino::ROOT, "two", two)]).unwrap();
    layer.sync().unwrap();
    drop(layer);
    harm(&dir, at);
    let copy = dir.with_extension("copy");
    copy_all(&dir, &copy).unwrap();

    let salvaged = salvage(&dir, ID).unwrap();
    assert_eq!(salvaged.kept_bytes, at);
    assert!(salvaged.cut_records >= 2, "{salvaged:?}");
    assert_eq!((salvaged.later_contents, salvaged.lost_contents), (0, 0));
    let mut layer = Layer::open(&dir).unwrap();
    assert_eq!(names(&layer, Ino::ROOT), ["one"]);
    assert_eq!(read_all(&layer, one), b"one");
    assert!(
        layer.allocate_ino().unwrap() > two,
        "no number is given twice"
    );
    drop(layer);
    // It is done again after a process died in the middle, or on what is whole.
    salvage(&dir, ID).unwrap();
    assert_eq!(names(&Layer::open(&dir).unwrap(), Ino::ROOT), ["one"]);
    salvage(&copy, ID).unwrap();
    assert_eq!(read_all(&Layer::open(&copy).unwrap(), one), b"one");
}

#[test]
fn the_record_with_which_a_log_begins_costs_nothing() {
    let (_temp, dir) = temp();
    let mut layer = Layer::create(&dir, ID).unwrap();
    let one = layer.allocate_ino().unwrap();
    put_file(&mut layer, one, b"one");
    layer.commit(vec![entry(Ino::ROOT, "one", one)]).unwrap();
    layer.sync().unwrap();
    drop(layer);
    harm(&dir, 24);
    salvage(&dir, ID).unwrap();
    let layer = Layer::open(&dir).unwrap();
    assert_eq!(names(&layer, Ino::ROOT), ["one"]);
    assert_eq!(read_all(&layer, one), b"one");
}

#[test]
fn no_file_shows_the_bytes_of_another_one_that_got_its_place() {
    for has_later in [false, true] {
        let (_temp, dir) = temp();
        let mut layer = Layer::create(&dir, ID).unwrap();
        let (one, two) = (layer.allocate_ino().unwrap(), layer.allocate_ino().unwrap());
        let place = put_file(&mut layer, one, b"one").place;
        layer.commit(vec![entry(Ino::ROOT, "one", one)]).unwrap();
        layer.sync().unwrap();
        let at = layer.stats().log_bytes;
        let blob = Content::Blob(tine_git::ObjectId::null(gix::hash::Kind::Sha1));
        if has_later {
            // What is damaged is another record.
            layer.commit(vec![entry(Ino::ROOT, "other", one)]).unwrap();
        }
        layer
            .commit(vec![Op::PutNode(one, node(blob.clone(), 9))])
            .unwrap();
        layer.sync().unwrap();
        assert_eq!(put_file(&mut layer, two, b"two").place, place);
        drop(layer);
        harm(&dir, at);

        let salvaged = salvage(&dir, ID).unwrap();
        let layer = Layer::open(&dir).unwrap();
        assert_eq!(names(&layer, Ino::ROOT), ["one"]);
        let kept = layer.index().node(one).unwrap();
        if has_later {
            assert_eq!((salvaged.later_contents, salvaged.lost_contents), (1, 0));
            assert_eq!((&kept.content, kept.size), (&blob, 9));
        } else {
            assert_eq!((salvaged.later_contents, salvaged.lost_contents), (0, 1));
            let content = kept.content.own().unwrap();
            assert!(
                layer
                    .read_content(content, kept.size, 0, &mut [0; 3])
                    .is_err()
            );
        }
    }
}

#[test]
fn a_layer_of_which_nothing_is_left_is_empty() {
    let (_temp, dir) = temp();
    salvage(&dir, ID).unwrap();
    let layer = Layer::open(&dir).unwrap();
    assert_eq!((layer.id(), layer.stats().nodes), (ID, 0));
    drop(layer);
    std::fs::remove_file(dir.join("data")).unwrap();
    std::fs::create_dir(dir.join("data")).unwrap();
    std::fs::write(dir.join("log"), "no log").unwrap();
    salvage(&dir, ID).unwrap();
    assert_eq!(Layer::open(&dir).unwrap().stats().nodes, 0);
}
