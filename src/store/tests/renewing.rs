//! Times of what a restore brings back, where the process dies in the midst of it.

use super::*;
use crate::SnapshotOptions;
use tine_layer::{Layer, LayerId};

#[test]
fn what_a_restore_brought_back_is_new_though_the_process_died_before_it_said_so() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let demo = name("demo");
    let fork = store.open_fork(&demo).unwrap();
    let write =
        |file: &str, bytes: &[u8]| fork.workspace.write_path(ME, &path(file), bytes).unwrap();
    write("a.txt", b"one");
    write("same.txt", b"same");
    let because = SnapshotOptions::because(SnapshotReason::Asked);
    let snapshot = store.take_snapshot(&demo, &fork, &because).unwrap();
    write("a.txt", b"two");
    let time = |fork: &Fork, file: &str| fork.workspace.resolve(&path(file)).unwrap().mtime;
    let (built, same) = (time(&fork, "a.txt"), time(&fork, "same.txt"));
    store
        .restore(&demo, &fork, &snapshot, SnapshotReason::BeforeRestore)
        .unwrap();
    drop((fork, store));

    // Only the last record of the open layer, which gives the times, is missing then.
    let store = Store::open(&repository.open()).unwrap();
    let id = store.record(&demo).unwrap().open_layer;
    let dir = store.places.layer(id);
    files::remove_dir(&dir).unwrap();
    drop(Layer::create(&dir, LayerId(id)).unwrap());

    let fork = store.open_fork(&demo).unwrap();
    assert_eq!(fork.workspace.read_path(&path("a.txt")).unwrap(), b"one");
    let back = time(&fork, "a.txt");
    assert!(
        back > built,
        "{back:?} is older than what was built: {built:?}"
    );
    assert_eq!(time(&fork, "same.txt"), same);
    drop((fork, store));
    let store = Store::open(&repository.open()).unwrap();
    let fork = store.open_fork(&demo).unwrap();
    assert_eq!(time(&fork, "a.txt"), back, "it comes back once");
}

#[test]
fn a_directory_in_which_a_name_comes_or_goes_by_a_restore_is_new_and_others_are_not() {
    let (repository, store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let demo = name("demo");
    let fork = store.open_fork(&demo).unwrap();
    let make = |dir: &str| {
        let (parent, name) = path(dir).split_last().unwrap();
        let parent = fork.workspace.resolve(&parent).unwrap().ino;
        fork.workspace
            .mkdir(ME, parent, name.as_bytes(), 0o777)
            .unwrap();
    };
    let write =
        |file: &str, bytes: &[u8]| fork.workspace.write_path(ME, &path(file), bytes).unwrap();
    ["same", "fewer", "gone"].iter().for_each(|dir| make(dir));
    write("same/a", b"one");
    write("fewer/a", b"one");
    let because = SnapshotOptions::because(SnapshotReason::Asked);
    let before = store.take_snapshot(&demo, &fork, &because).unwrap();
    write("same/a", b"two");
    write("fewer/b", b"b");
    fork.workspace.remove_path(ME, &path("dir/b.txt")).unwrap();
    write("gone/deep", b"x");
    let time = |dir: &str| fork.workspace.resolve(&path(dir)).unwrap().mtime;
    let dirs = ["same", "fewer", "gone", "dir", ""];
    let times = || dirs.map(time);
    let then = times();
    let restore = |to| {
        store
            .restore(&demo, &fork, to, SnapshotReason::BeforeRestore)
            .unwrap()
    };
    let after = restore(&before);
    let is_new = |then: [Timestamp; 5], now: [Timestamp; 5]| {
        [0, 1, 2, 3, 4].map(|index| now[index] > then[index])
    };
    let now = times();
    assert_eq!(is_new(then, now), [false, true, true, true, false]);
    restore(&after);
    assert_eq!(is_new(now, times()), [false, true, true, true, false]);
}
