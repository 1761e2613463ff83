//! Layers merged on the disk: what stands on them is as before, and the disk holds less.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::*;
use crate::SnapshotOptions;
use crate::snapshot::SnapshotRecord;
use tine_workspace::{Changed, Delta, DeltaDir, DeltaEntry, RenameMode};

/// Paths, with what is there: kind, mode, links, and bytes.
type View = BTreeMap<String, (FileKind, u16, u32, Vec<u8>)>;

fn view(workspace: &Workspace) -> View {
    let mut view = View::new();
    let mut dirs = vec![RepoPath::root()];
    while let Some(dir) = dirs.pop() {
        for (name, kind, _) in workspace.list_path(&dir).unwrap() {
            let path = dir.join(&name);
            // A snapshot need not have it.
            if path.as_bytes() == b".git" {
                continue;
            }
            let attr = workspace.resolve(&path).unwrap();
            let bytes = match kind {
                FileKind::Regular => workspace.read_path(&path).unwrap(),
                _ => Vec::new(),
            };
            view.insert(path.to_string(), (kind, attr.perm, attr.nlink, bytes));
            if kind == FileKind::Directory {
                dirs.push(path);
            }
        }
    }
    view
}

fn assert_alike(found: &View, expected: &View) {
    let short = |view: &View| {
        let with_lengths = view.iter().map(|(path, (kind, perm, links, bytes))| {
            let first = bytes.first().copied();
            (path.clone(), (*kind, *perm, *links, bytes.len(), first))
        });
        with_lengths.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(short(found), short(expected));
    assert!(found == expected);
}

/// Room is the host's figure: ext4 counts a block of its own for the extents of a file with several
/// holes, once it has written them.
fn text_of(delta: &Delta) -> String {
    fn forget_extents(dir: &mut DeltaDir) {
        for entry in dir.entries.values_mut() {
            match entry {
                DeltaEntry::Directory(dir) => forget_extents(dir),
                DeltaEntry::Node(node) if node.attr.blocks * 512 < node.attr.size => {
                    node.attr.blocks = 0
                }
                _ => {}
            }
        }
    }
    let mut delta = delta.clone();
    forget_extents(&mut delta.root);
    format!("{delta:?}")
}

fn all_that_changed(workspace: &Workspace) -> Changed {
    match workspace.changed_since(&workspace.beginning()).unwrap().1 {
        Changed::Everything => Changed::Everything,
        // What is beneath a directory may be told of with another one.
        Changed::Paths(mut paths) => {
            paths.retain(|path| !path.ends_with(b"/"));
            Changed::Paths(paths)
        }
    }
}

fn snapshot(store: &Store, fork: &Fork, reason: SnapshotReason) -> SnapshotRecord {
    let options = SnapshotOptions::because(reason);
    store.take_snapshot(&name("demo"), fork, &options).unwrap()
}

fn frozen_layers(store: &Store) -> Vec<u64> {
    store.record(&name("demo")).unwrap().frozen_layers
}

/// Not of the counter, which is written anew.
fn usage_of_layers(store: &Store) -> u64 {
    let dirs = files::list(&store.places.layers()).unwrap();
    dirs.iter().map(|dir| disk_usage(dir)).sum()
}

fn view_of_snapshot(store: &Store, snapshot: &SnapshotRecord) -> View {
    let snapshot = store.snapshot(&name("demo"), &snapshot.name).unwrap();
    view(
        &store
            .open_snapshot(&name("demo"), &snapshot)
            .unwrap()
            .workspace,
    )
}

/// A fork with so many snapshots, each after a large and a small file, and one that is everywhere,
/// were written.
fn with_snapshots(
    store: &Store,
    repository: &TestRepository,
    count: u8,
) -> (Arc<Fork>, Vec<SnapshotRecord>) {
    store.create_fork(&options(repository, "demo")).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    let taken = (0..count).map(|round| {
        let write =
            |at: &str, bytes: &[u8]| fork.workspace.write_path(ME, &path(at), bytes).unwrap();
        write("large", &vec![round; 300_000]);
        write("small", &[round; 3000]);
        write(&format!("own-{round}"), &vec![round; 100_000]);
        snapshot(store, &fork, SnapshotReason::Asked)
    });
    let taken = taken.collect();
    (fork, taken)
}

#[test]
fn what_no_snapshot_needs_by_itself_is_merged_and_its_room_given_back() {
    let (repository, store) = sample();
    let (fork, taken) = with_snapshots(&store, &repository, 8);
    let expected = view(&fork.workspace);
    assert_eq!(store.collect().unwrap().layers, 0, "each has its snapshot");
    fork.workspace.sync().unwrap();
    let before = usage_of_layers(&store);
    for snapshot in &taken[..6] {
        store
            .remove_snapshot(&name("demo"), &snapshot.name)
            .unwrap();
    }
    let views = [&taken[6], &taken[7]].map(|snapshot| view_of_snapshot(&store, snapshot));
    let delta = text_of(&fork.workspace.delta().unwrap());
    let changed = all_that_changed(&fork.workspace);

    let done = store.collect().unwrap();
    assert_eq!(done.layers, 6);
    let after = usage_of_layers(&store);
    assert_eq!(done.kept_bytes, after);
    assert_eq!(done.freed_bytes, before - after);
    assert!(done.freed_bytes >= 6 * (300_000 + 4096), "{done:?}");
    assert_eq!(frozen_layers(&store).len(), 2);
    assert_eq!(
        entries(&store.places.layers()).len(),
        2 + 2,
        "two frozen, one open, the counter"
    );
    let look = |store: &Store, fork: &Fork| {
        assert!(view(&fork.workspace) == expected);
        let now = [&taken[6], &taken[7]].map(|snapshot| view_of_snapshot(store, snapshot));
        assert!(now == views);
        assert_eq!(all_that_changed(&fork.workspace), changed);
        assert_eq!(text_of(&fork.workspace.delta().unwrap()), delta);
    };
    look(&store, &fork);
    drop((fork, store));

    let store = Store::open(&repository.open()).unwrap();
    let fork = store.open_fork(&name("demo")).unwrap();
    look(&store, &fork);
    // What was merged is merged again, and written over.
    for snapshot in &taken[6..] {
        store
            .remove_snapshot(&name("demo"), &snapshot.name)
            .unwrap();
    }
    assert_eq!(store.collect().unwrap().layers, 1);
    assert!(view(&fork.workspace) == expected);
    let ino = fork.workspace.resolve(&path("own-3")).unwrap().ino;
    fork.workspace.write(ino, 50_000, b"over", None).unwrap();
    let mut own = vec![3; 100_000];
    own[50_000..50_004].copy_from_slice(b"over");
    assert!(fork.workspace.read_path(&path("own-3")).unwrap() == own);
    drop((fork, store));
    let store = Store::open(&repository.open()).unwrap();
    assert_eq!(frozen_layers(&store).len(), 1);
    let fork = store.open_fork(&name("demo")).unwrap();
    assert!(fork.workspace.read_path(&path("own-3")).unwrap() == own);
    assert!(fork.workspace.read_path(&path("large")).unwrap() == [7; 300_000]);
    assert_eq!(fork.workspace.read_path(&path("small")).unwrap(), [7; 3000]);
}

#[test]
fn a_process_that_dies_while_layers_are_merged_leaves_views_as_they_were() {
    let (repository, store) = sample();
    let (fork, taken) = with_snapshots(&store, &repository, 5);
    let expected = view(&fork.workspace);
    for snapshot in &taken[..4] {
        store
            .remove_snapshot(&name("demo"), &snapshot.name)
            .unwrap();
    }
    fork.workspace.sync().unwrap();
    drop((fork, store));
    let dir = repository.open().common_dir().join("tine");
    let saved = dir.with_extension("saved");
    let copy = |from: &Path, to: &Path| {
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .arg(from)
            .arg(to)
            .status();
        assert!(copied.unwrap().success());
    };
    copy(&dir, &saved);
    let store = Store::open(&repository.open()).unwrap();
    assert_eq!(store.collect().unwrap().layers, 4);
    let merged = frozen_layers(&store)[0];
    drop(store);

    let record = "forks/demo/fork.json";
    let list = "forks/demo/snapshots.json";
    // The layers that were merged are still there each time.
    for old in [&[record, list][..], &[list], &[record], &[]] {
        for layer in files::list(&saved.join("layers")).unwrap() {
            let to = dir.join("layers").join(layer.file_name().unwrap());
            if !to.exists() {
                copy(&layer, &to);
            }
        }
        let after: Vec<_> = [record, list]
            .iter()
            .map(|file| fs::read(dir.join(file)).unwrap())
            .collect();
        for file in old {
            fs::copy(saved.join(file), dir.join(file)).unwrap();
        }
        let merged_dir = dir.join("layers").join(merged.to_string());
        let kept = dir.with_extension("kept");
        copy(&merged_dir, &kept);
        let store = Store::open(&repository.open()).unwrap();
        assert_eq!(
            store.places.layer(merged).exists(),
            old.len() < 2,
            "{old:?}"
        );
        let layers = entries(&store.places.layers()).len();
        assert_eq!(layers == 3, old.is_empty(), "{old:?}");
        let fork = store.open_fork(&name("demo")).unwrap();
        assert!(view(&fork.workspace) == expected, "{old:?}");
        assert!(view_of_snapshot(&store, &taken[4]) == expected, "{old:?}");
        drop((fork, store));
        if !merged_dir.exists() {
            copy(&kept, &merged_dir);
        }
        fs::remove_dir_all(kept).unwrap();
        for (file, bytes) in [record, list].iter().zip(after) {
            fs::write(dir.join(file), bytes).unwrap();
        }
    }
}

#[test]
fn a_listing_goes_on_while_layers_are_merged() {
    let (repository, store) = sample();
    let (fork, taken) = with_snapshots(&store, &repository, 9);
    let root = |cookie: u64, count: usize| {
        let mut listed = Vec::new();
        let mut add = |entry: tine_workspace::DirEntry| {
            listed.push((entry.name.to_string(), entry.cookie));
            listed.len() < count
        };
        fork.workspace.readdir(Ino::ROOT, cookie, &mut add).unwrap();
        listed
    };
    let whole = root(0, usize::MAX);
    assert_eq!(whole.len(), 2 + 1 + 2 + 9);
    let beginning = root(0, 6);
    for snapshot in &taken {
        store
            .remove_snapshot(&name("demo"), &snapshot.name)
            .unwrap();
    }
    assert_eq!(store.collect().unwrap().layers, 8);
    let rest = root(beginning[5].1, usize::MAX);
    assert_eq!([beginning, rest].concat(), whole);
    // And when more is above.
    fork.workspace.write_path(ME, &path("later"), b"").unwrap();
    snapshot(&store, &fork, SnapshotReason::Asked);
    // A new name comes before all others, and these stay where they are.
    assert_eq!(root(0, usize::MAX)[1..], whole);
}

#[test]
fn an_open_file_keeps_bytes_that_were_replaced_in_what_is_merged() {
    let (repository, store) = sample();
    let (fork, taken) = with_snapshots(&store, &repository, 3);
    let restore = |to: &SnapshotRecord| {
        let restored = store.restore(&name("demo"), &fork, to, SnapshotReason::BeforeRestore);
        store
            .remove_snapshot(&name("demo"), &restored.unwrap().name)
            .unwrap();
    };
    restore(&taken[0]);
    let opened = fork.workspace.lookup(Ino::ROOT, b"large").unwrap();
    restore(&taken[2]);
    assert!(fork.workspace.read(opened.ino, 0, 10).unwrap() == [0; 10]);
    for snapshot in &taken {
        store
            .remove_snapshot(&name("demo"), &snapshot.name)
            .unwrap();
    }
    store.collect().unwrap();
    assert_eq!(frozen_layers(&store).len(), 1);
    assert!(fork.workspace.read(opened.ino, 299_000, 10).unwrap() == [0; 10]);
    assert!(fork.workspace.read_path(&path("large")).unwrap() == [2; 300_000]);
    drop(fork);
    store.collect().unwrap();
    assert_eq!(entries(&store.places.layers()).len(), 3);
    let fork = store.open_fork(&name("demo")).unwrap();
    assert!(fork.workspace.read_path(&path("large")).unwrap() == [2; 300_000]);
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Changes something; what cannot be done is not.
fn change(workspace: &Workspace, random: &mut Random) {
    const NAMES: [&str; 8] = [
        "a.txt",
        "dir/b.txt",
        "dir",
        "x",
        "y",
        "sub",
        "sub/x",
        "sub/z",
    ];
    let pick = |random: &mut Random| path(NAMES[random.below(8) as usize]);
    let (at, to) = (pick(random), pick(random));
    let ino = |path: &RepoPath| workspace.resolve(path).map(|attr| attr.ino);
    let (Some((dir, name)), Some((to_dir, to_name))) = (at.split_last(), to.split_last()) else {
        return;
    };
    let (Ok(dir), Ok(to_dir)) = (ino(&dir), ino(&to_dir)) else {
        return;
    };
    let (name, to_name) = (name.as_bytes(), to_name.as_bytes());
    let _ = match random.below(9) {
        0..3 => {
            let len = [0, 100, 5000, 70_000][random.below(4) as usize];
            let bytes = vec![random.below(256) as u8; len];
            workspace.write_path(ME, &at, &bytes)
        }
        3 => ino(&at).and_then(|ino| {
            workspace
                .write(ino, random.below(80_000), b"more", None)
                .map(drop)
        }),
        4 => workspace.mkdir(ME, dir, name, 0o755).map(drop),
        5 => workspace.unlink(ME, dir, name),
        6 => workspace.rmdir(ME, dir, name),
        7 => ino(&at).and_then(|ino| workspace.link(ME, ino, to_dir, to_name).map(drop)),
        _ => workspace
            .rename(ME, dir, name, to_dir, to_name, RenameMode::Replace)
            .map(drop),
    };
}

#[test]
fn snapshots_and_forks_are_as_before_whatever_is_merged() {
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let seed = std::env::var("TINE_MERGE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(since_1970.as_nanos() as u64);
    println!("TINE_MERGE_SEED={seed}");
    let mut random = Random(seed);
    let (repository, mut store) = sample();
    store.create_fork(&options(&repository, "demo")).unwrap();
    let mut fork = store.open_fork(&name("demo")).unwrap();
    let mut taken: Vec<(SnapshotRecord, View, String)> = Vec::new();
    let mut merged = 0;
    for _ in 0..150 {
        for _ in 0..random.below(6) {
            change(&fork.workspace, &mut random);
        }
        match random.below(8) {
            0..3 => {
                let (view, delta) = (
                    view(&fork.workspace),
                    text_of(&fork.workspace.delta().unwrap()),
                );
                taken.push((snapshot(&store, &fork, SnapshotReason::Asked), view, delta));
            }
            3 | 4 if !taken.is_empty() => {
                let gone = taken.swap_remove(random.below(taken.len() as u64) as usize);
                store.remove_snapshot(&name("demo"), &gone.0.name).unwrap();
            }
            5 if !taken.is_empty() => {
                // As it was read before layers were merged.
                let (to, view_then, _) = &taken[random.below(taken.len() as u64) as usize];
                let before = store.restore(&name("demo"), &fork, to, SnapshotReason::BeforeRestore);
                store
                    .remove_snapshot(&name("demo"), &before.unwrap().name)
                    .unwrap();
                assert!(view(&fork.workspace) == *view_then);
            }
            6 => {
                let before = (
                    view(&fork.workspace),
                    text_of(&fork.workspace.delta().unwrap()),
                );
                let changed = all_that_changed(&fork.workspace);
                merged += store.collect().unwrap().layers;
                assert!(view(&fork.workspace) == before.0);
                assert_eq!(text_of(&fork.workspace.delta().unwrap()), before.1);
                assert_eq!(all_that_changed(&fork.workspace), changed);
                for (snapshot, view_then, delta) in &taken {
                    let opened = store.open_snapshot(&name("demo"), snapshot).unwrap();
                    assert_alike(&view(&opened.workspace), view_then);
                    assert_eq!(text_of(&opened.workspace.delta().unwrap()), *delta);
                }
            }
            7 if random.below(3) == 0 => {
                let before = view(&fork.workspace);
                drop((fork, store));
                store = Store::open(&repository.open()).unwrap();
                fork = store.open_fork(&name("demo")).unwrap();
                assert!(view(&fork.workspace) == before);
                for (snapshot, ..) in &mut taken {
                    *snapshot = store.snapshot(&name("demo"), &snapshot.name).unwrap();
                }
            }
            _ => {}
        }
    }
    assert!(merged > 0);
}
