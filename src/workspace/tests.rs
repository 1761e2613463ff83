//! The file system of one fork, without a store and without a mount.

mod beside;
mod carried;
mod changed;
mod operations;
mod paths;
mod permissions;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::base_nodes::BaseAttrs;
use super::fs::Workspace;
use super::ops::{Caller, FallocateMode, RenameMode, SetAttr, XattrMode};
use super::{DeltaDir, DeltaEntry, FsError};
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_git::testing::TestRepository;
use tine_git::{Base, BaseCache, InoHasher};
use tine_layer::{Layer, LayerId, LayerStack};
use tine_path::RepoPath;

const ME: Caller = Caller::new(1000, 1000);
const BASE_TIME: Timestamp = Timestamp {
    secs: 1_600_000_000,
    nanos: 0,
};

/// A fork of a small tree: `a.txt`, `empty`, `run.sh` (executable), `link`, `dir/b.txt`,
/// `dir/sub/c.txt`.
struct Fixture {
    place: tempfile::TempDir,
    base: Arc<Base>,
    _repository: TestRepository,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with_files(&[])
    }

    /// With further files in the base.
    fn with_files(further: &[(&str, &str)]) -> Fixture {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let repository = TestRepository::new();
        repository.write("a.txt", "alpha\n");
        repository.write("empty", "");
        repository.write("run.sh", "#!/bin/sh\n");
        repository.write("dir/b.txt", "beta\n");
        repository.write("dir/sub/c.txt", "gamma\n");
        for (path, content) in further {
            repository.write(path, content);
        }
        std::fs::set_permissions(
            repository.dir().join("run.sh"),
            PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        symlink("a.txt", repository.dir().join("link")).unwrap();
        let commit_id = repository.commit("base");
        let opened = repository.open();
        let tree_id = opened.commit_info(commit_id).unwrap().tree_id;
        let place = tempfile::tempdir().unwrap();
        let cache = BaseCache::new(&place.path().join("spool"), 1 << 20).unwrap();
        let base = Arc::new(Base::open(&opened, tree_id, &cache, InoHasher::new([7; 16])).unwrap());
        let layer = Layer::create(&place.path().join("layer"), LayerId(1)).unwrap();
        drop(layer);
        Fixture {
            place,
            base,
            _repository: repository,
        }
    }

    /// Opens the fork, anew each time.
    fn open(&self) -> Workspace {
        self.over(LayerStack::new(self.layer(), Vec::new()))
    }

    fn layer(&self) -> Layer {
        Layer::open(&self.place.path().join("layer")).unwrap()
    }

    fn over(&self, stack: LayerStack) -> Workspace {
        let attrs = BaseAttrs {
            uid: 1000,
            gid: 1000,
            umask: 0o022,
            time: BASE_TIME,
            changed: None,
            times: None,
        };
        Workspace::new(self.base.clone(), attrs, stack).unwrap()
    }
}

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).unwrap()
}

impl Workspace {
    /// Looks the path up as the kernel would: each directory on the way is remembered.
    fn reach(&self, text: &str) -> Attr {
        let mut attr = self.getattr(Ino::ROOT).unwrap();
        for name in path(text).components() {
            attr = self.lookup(attr.ino, name.as_bytes()).unwrap();
        }
        attr
    }

    fn text(&self, text: &str) -> String {
        String::from_utf8(self.read_path(&path(text)).unwrap()).unwrap()
    }

    fn names(&self, text: &str) -> BTreeSet<String> {
        let listed: Vec<String> = self
            .list_path(&path(text))
            .unwrap()
            .into_iter()
            .map(|(name, _, _)| name.to_string())
            .collect();
        let names: BTreeSet<String> = listed.iter().cloned().collect();
        assert_eq!(
            listed.len(),
            names.len(),
            "a name was listed twice: {listed:?}"
        );
        names
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn listing(dir: &DeltaDir, prefix: &str, into: &mut Vec<String>) {
    for (name, entry) in &dir.entries {
        let at = format!("{prefix}{name}");
        match entry {
            DeltaEntry::Absent => into.push(format!("- {at}")),
            DeltaEntry::Node(_) => into.push(format!("+ {at}")),
            DeltaEntry::Directory(dir) => {
                into.push(format!("d {at}"));
                listing(dir, &format!("{at}/"), into);
            }
        }
    }
}

fn delta_of(workspace: &Workspace) -> Vec<String> {
    let mut lines = Vec::new();
    listing(&workspace.delta().unwrap().root, "", &mut lines);
    lines
}

#[test]
fn an_untouched_fork_shows_the_base() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    assert_eq!(
        workspace.names(""),
        set(&["a.txt", "empty", "run.sh", "link", "dir"])
    );
    let file = workspace.reach("a.txt");
    assert_eq!(
        (file.kind, file.perm, file.size, file.nlink),
        (FileKind::Regular, 0o644, 6, 1)
    );
    assert_eq!((file.mtime, file.uid), (BASE_TIME, 1000));
    assert_eq!(workspace.reach("run.sh").perm, 0o755);
    assert_eq!(workspace.reach("dir").nlink, 3);
    assert_eq!(workspace.getattr(Ino::ROOT).unwrap().nlink, 3);
    assert_eq!(
        workspace.readlink(workspace.reach("link").ino).unwrap(),
        b"a.txt"
    );
    assert_eq!(workspace.text("dir/sub/c.txt"), "gamma\n");
    assert!(matches!(
        workspace.lookup(Ino::ROOT, b"nothing"),
        Err(FsError::NotFound)
    ));
    assert!(matches!(
        workspace.lookup(Ino::ROOT, &[b'n'; 256]),
        Err(FsError::NameTooLong)
    ));
    assert!(delta_of(&workspace).is_empty());
}

#[test]
fn of_what_is_no_regular_file_or_too_large_nothing_is_read() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace.write_path(ME, &path("new"), b"12345").unwrap();
    let read = |text: &str, max_bytes| workspace.read_regular(&path(text), max_bytes).unwrap();
    assert_eq!(read("a.txt", 6), Some(b"alpha\n".to_vec()));
    assert_eq!(read("new", 5), Some(b"12345".to_vec()));
    assert_eq!(read("empty", 0), Some(Vec::new()));
    for (text, max_bytes) in [
        ("a.txt", 5),
        ("new", 4),
        ("link", 100),
        ("dir", 100),
        ("nothing", 100),
        ("a.txt/x", 100),
    ] {
        assert_eq!(read(text, max_bytes), None, "{text}");
    }
}

#[test]
fn invariant_07_numbers_survive_copy_up_rename_and_reopening() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let number = workspace.reach("dir/b.txt").ino;
    let dir = workspace.reach("dir").ino;
    workspace.write(number, 0, b"BETA", Some(ME)).unwrap();
    assert_eq!(workspace.reach("dir/b.txt").ino, number);
    workspace
        .rename(
            ME,
            dir,
            b"b.txt",
            Ino::ROOT,
            b"moved.txt",
            RenameMode::Replace,
        )
        .unwrap();
    assert_eq!(workspace.reach("moved.txt").ino, number);
    let made = workspace
        .mknod(ME, Ino::ROOT, b"new", 0o100644, 0)
        .unwrap()
        .ino;
    assert!(made.is_new() && !number.is_new());
    workspace.unlink(ME, Ino::ROOT, b"new").unwrap();
    workspace.forget(made, 1);
    drop(workspace);
    let workspace = fixture.open();
    assert_eq!(workspace.reach("moved.txt").ino, number);
    assert_eq!(workspace.text("moved.txt"), "BETA\n");
    let again = workspace
        .mknod(ME, Ino::ROOT, b"new", 0o100644, 0)
        .unwrap()
        .ino;
    assert_ne!(again, made, "a number is never given twice");
}

#[test]
fn a_renamed_base_directory_brings_everything_along() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let nodes_before = workspace.stats().nodes;
    workspace
        .rename(
            ME,
            Ino::ROOT,
            b"dir",
            Ino::ROOT,
            b"folder",
            RenameMode::Replace,
        )
        .unwrap();
    assert!(
        workspace.stats().nodes - nodes_before <= 2,
        "only the directory and its parent are copied up"
    );
    assert_eq!(workspace.text("folder/sub/c.txt"), "gamma\n");
    assert_eq!(workspace.names("folder"), set(&["b.txt", "sub"]));
    assert!(matches!(
        workspace.resolve(&path("dir")),
        Err(FsError::NotFound)
    ));
    workspace
        .write_path(ME, &path("folder/sub/c.txt"), b"changed")
        .unwrap();
    assert_eq!(
        delta_of(&workspace),
        ["- dir", "d folder", "d folder/sub", "+ folder/sub/c.txt"]
    );
    drop(workspace);
    let workspace = fixture.open();
    assert_eq!(workspace.text("folder/sub/c.txt"), "changed");
    assert_eq!(workspace.text("folder/b.txt"), "beta\n");
    workspace
        .rename(
            ME,
            Ino::ROOT,
            b"folder",
            Ino::ROOT,
            b"dir",
            RenameMode::Replace,
        )
        .unwrap();
    assert_eq!(
        delta_of(&workspace),
        ["d dir", "d dir/sub", "+ dir/sub/c.txt"]
    );
}

#[test]
fn a_directory_never_moves_beneath_itself() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let sub = workspace.reach("dir/sub").ino;
    let moved = workspace.rename(ME, Ino::ROOT, b"dir", sub, b"dir", RenameMode::Replace);
    assert!(matches!(moved, Err(FsError::Invalid)));
    let dir = workspace.reach("dir").ino;
    workspace
        .rename(ME, dir, b"sub", Ino::ROOT, b"top", RenameMode::Replace)
        .unwrap();
    workspace
        .rename(ME, Ino::ROOT, b"dir", sub, b"dir", RenameMode::Replace)
        .unwrap();
    assert_eq!(workspace.text("top/dir/b.txt"), "beta\n");
    let moved = workspace.rename(ME, Ino::ROOT, b"top", dir, b"top", RenameMode::Replace);
    assert!(matches!(moved, Err(FsError::Invalid)));
}

#[test]
fn exchange_swaps_and_keeps_links_right() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let dir = workspace.reach("dir").ino;
    workspace
        .rename(ME, Ino::ROOT, b"a.txt", dir, b"sub", RenameMode::Exchange)
        .unwrap();
    assert_eq!(workspace.text("dir/sub"), "alpha\n");
    assert_eq!(workspace.text("a.txt/c.txt"), "gamma\n");
    assert_eq!(workspace.reach("dir").nlink, 2);
    assert_eq!(workspace.getattr(Ino::ROOT).unwrap().nlink, 4);
    let taken = workspace.rename(
        ME,
        Ino::ROOT,
        b"link",
        Ino::ROOT,
        b"empty",
        RenameMode::NoReplace,
    );
    assert!(matches!(taken, Err(FsError::Exists)));
}

#[test]
fn unlinked_nodes_live_until_forgotten() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let base_file = workspace.reach("a.txt").ino;
    workspace.unlink(ME, Ino::ROOT, b"a.txt").unwrap();
    assert_eq!(workspace.getattr(base_file).unwrap().nlink, 0);
    assert_eq!(workspace.read(base_file, 0, 100).unwrap(), b"alpha\n");
    workspace.write(base_file, 6, b"more", Some(ME)).unwrap();
    assert_eq!(workspace.read(base_file, 0, 100).unwrap(), b"alpha\nmore");
    workspace.forget(base_file, 1);
    assert!(matches!(workspace.getattr(base_file), Err(FsError::Stale)));
    assert_eq!(delta_of(&workspace), ["- a.txt"]);
    assert_eq!(
        workspace.stats().content_bytes,
        0,
        "nothing is left of its content"
    );
}

#[test]
fn hard_links_share_one_node() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    assert_eq!(
        workspace.link(ME, file, Ino::ROOT, b"twin").unwrap().nlink,
        2
    );
    workspace.write(file, 0, b"ALPHA", Some(ME)).unwrap();
    assert_eq!(workspace.text("twin"), "ALPHA\n");
    assert_eq!(workspace.reach("twin").ino, file);
    workspace.unlink(ME, Ino::ROOT, b"a.txt").unwrap();
    assert_eq!(workspace.reach("twin").nlink, 1);
    assert!(matches!(
        workspace.link(ME, Ino::ROOT, Ino::ROOT, b"x"),
        Err(FsError::NotPermitted)
    ));
}

#[test]
fn removed_and_made_again_is_opaque() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let (dir, sub) = (workspace.reach("dir").ino, workspace.reach("dir/sub").ino);
    assert!(matches!(
        workspace.rmdir(ME, Ino::ROOT, b"dir"),
        Err(FsError::NotEmpty)
    ));
    workspace.unlink(ME, sub, b"c.txt").unwrap();
    workspace.rmdir(ME, dir, b"sub").unwrap();
    workspace.unlink(ME, dir, b"b.txt").unwrap();
    workspace.rmdir(ME, Ino::ROOT, b"dir").unwrap();
    assert!(matches!(
        workspace.mknod(ME, dir, b"x", 0o100644, 0),
        Err(FsError::NotFound)
    ));
    let made = workspace.mkdir(ME, Ino::ROOT, b"dir", 0o755).unwrap();
    assert_ne!(made.ino, dir);
    assert!(workspace.names("dir").is_empty());
    drop(workspace);
    assert!(fixture.open().names("dir").is_empty());
}

#[test]
fn contents_grow_shrink_and_have_holes() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    let resize = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    workspace.setattr(ME, file, &resize(3)).unwrap();
    assert_eq!(workspace.text("a.txt"), "alp");
    workspace.setattr(ME, file, &resize(5)).unwrap();
    assert_eq!(workspace.read(file, 0, 10).unwrap(), b"alp\0\0");
    workspace.write(file, 200_000, b"end", Some(ME)).unwrap();
    let attr = workspace.getattr(file).unwrap();
    assert_eq!(attr.size, 200_003);
    assert!(
        attr.blocks * 512 < 100_000,
        "the gap is a hole, not {} blocks",
        attr.blocks
    );
    assert_eq!(workspace.read(file, 199_999, 10).unwrap(), b"\0end");
    workspace
        .fallocate(file, 0, 2, FallocateMode::PunchHole, Some(ME))
        .unwrap();
    assert_eq!(workspace.read(file, 0, 4).unwrap(), b"\0\0p\0");
    workspace.setattr(ME, file, &resize(0)).unwrap();
    assert!(workspace.read(file, 0, 10).unwrap().is_empty());
    let huge = workspace
        .mknod(ME, Ino::ROOT, b"huge", 0o100644, 0)
        .unwrap()
        .ino;
    workspace.setattr(ME, huge, &resize(10 << 30)).unwrap();
    assert_eq!(workspace.read(huge, (10 << 30) - 4, 100).unwrap(), [0; 4]);
}

#[test]
fn a_file_copied_onto_its_own_end_is_copied_as_it_was() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace
        .mknod(ME, Ino::ROOT, b"file", 0o100644, 0)
        .unwrap()
        .ino;
    workspace.write(file, 0, b"abc", Some(ME)).unwrap();
    assert_eq!(
        workspace
            .copy_range(file, 0, file, 10, 8, Some(ME))
            .unwrap(),
        3
    );
    assert_eq!(workspace.getattr(file).unwrap().size, 13);
}

#[test]
fn listing_is_stable_while_entries_come_and_go() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    for number in 0..600 {
        workspace
            .mknod(ME, Ino::ROOT, format!("f{number}").as_bytes(), 0o100644, 0)
            .unwrap();
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    let mut step = 0;
    loop {
        let mut page = Vec::new();
        workspace
            .readdir(Ino::ROOT, cookie, &mut |entry| {
                if page.len() == 7 {
                    return false;
                }
                page.push((entry.name.to_string(), entry.cookie));
                true
            })
            .unwrap();
        let Some((_, last)) = page.last() else { break };
        cookie = *last;
        for (name, _) in &page {
            // As `rm -rf` does: what was listed goes at once.
            if name.starts_with('f') {
                workspace.unlink(ME, Ino::ROOT, name.as_bytes()).unwrap();
            }
        }
        workspace
            .mknod(ME, Ino::ROOT, format!("late{step}").as_bytes(), 0o100644, 0)
            .unwrap();
        step += 1;
        seen.extend(
            page.into_iter()
                .map(|(name, _)| name)
                .filter(|name| !name.starts_with("late")),
        );
        assert!(step < 1000, "the listing ends");
        if step > 120 {
            break;
        }
    }
    let mut unique = seen.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), seen.len());
    assert_eq!(unique.len(), 605);
}

#[test]
fn attributes_that_linger() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    workspace
        .setxattr(ME, file, b"user.note", b"hello", XattrMode::Create)
        .unwrap();
    let twice = workspace.setxattr(ME, file, b"user.note", b"x", XattrMode::Create);
    assert!(matches!(twice, Err(FsError::Exists)));
    let set_id = SetAttr {
        perm: Some(0o6755),
        ..SetAttr::default()
    };
    workspace.setattr(ME, file, &set_id).unwrap();
    drop(workspace);
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    assert_eq!(
        workspace.getxattr(ME, file, b"user.note").unwrap(),
        b"hello"
    );
    assert_eq!(
        workspace.text("a.txt"),
        "alpha\n",
        "only attributes were copied up"
    );
    workspace.write(file, 0, b"A", Some(ME)).unwrap();
    assert_eq!(
        workspace.getattr(file).unwrap().perm,
        0o755,
        "a write takes the set-id bits"
    );
    workspace.removexattr(ME, file, b"user.note").unwrap();
    assert!(matches!(
        workspace.getxattr(ME, file, b"user.note"),
        Err(FsError::NoAttribute)
    ));
    assert!(workspace.listxattr(ME, file).unwrap().is_empty());
}

#[test]
fn adopted_blobs_leave_the_layer_and_nothing_else_changes() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    workspace
        .setattr(
            ME,
            file,
            &SetAttr {
                size: Some(0),
                ..SetAttr::default()
            },
        )
        .unwrap();
    workspace.write(file, 0, b"beta\n", Some(ME)).unwrap();
    let before = workspace.getattr(file).unwrap();
    let blob_id = workspace
        .base()
        .find(&path("dir/b.txt"))
        .unwrap()
        .map(|(dir, index)| dir.entries[index].id)
        .unwrap();
    let stale = Timestamp { secs: 1, nanos: 1 };
    assert_eq!(
        workspace.adopt_blobs(&[(file, stale, blob_id)]).unwrap(),
        0,
        "it changed since"
    );
    assert_eq!(
        workspace
            .adopt_blobs(&[(file, before.ctime, blob_id)])
            .unwrap(),
        1
    );
    let after = workspace.getattr(file).unwrap();
    assert_eq!(
        (after.ino, after.size, after.mtime, after.ctime),
        (file, 5, before.mtime, before.ctime)
    );
    assert_eq!(workspace.text("a.txt"), "beta\n");
    assert_eq!(workspace.stats().content_bytes, 0);
    workspace.write(file, 5, b"x", Some(ME)).unwrap();
    assert_eq!(workspace.text("a.txt"), "beta\nx");
}

#[test]
fn invariant_02_what_is_frozen_stays_as_it_was() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace.write_path(ME, &path("a.txt"), b"first").unwrap();
    workspace
        .write_path(ME, &path("dir/new"), &[b'n'; 100_000])
        .unwrap();
    workspace.remove_path(ME, &path("empty")).unwrap();
    drop(workspace);
    let frozen = Layer::open(&fixture.place.path().join("layer"))
        .unwrap()
        .freeze();
    let upper = |name: &str| Layer::create(&fixture.place.path().join(name), LayerId(2)).unwrap();
    let workspace = fixture.over(LayerStack::new(upper("upper"), vec![frozen.clone()]));
    assert_eq!(workspace.text("a.txt"), "first");
    let attr = workspace.reach("dir/new");
    workspace.write(attr.ino, 0, b"N", Some(ME)).unwrap();
    workspace.write_path(ME, &path("a.txt"), b"second").unwrap();
    workspace.write_path(ME, &path("empty"), b"back").unwrap();
    workspace
        .rename(
            ME,
            Ino::ROOT,
            b"run.sh",
            Ino::ROOT,
            b"walk.sh",
            RenameMode::Replace,
        )
        .unwrap();
    assert_eq!(workspace.text("a.txt"), "second");
    assert_eq!(&workspace.text("dir/new")[..3], "Nnn");
    assert_eq!(
        workspace.names(""),
        set(&["a.txt", "empty", "walk.sh", "link", "dir"])
    );
    drop(workspace);
    let aside = Layer::create(&fixture.place.path().join("aside"), LayerId(3)).unwrap();
    let workspace = fixture.over(LayerStack::new(aside, vec![frozen]));
    assert_eq!(workspace.text("a.txt"), "first");
    assert_eq!(&workspace.text("dir/new")[..3], "nnn");
    assert_eq!(
        workspace.names(""),
        set(&["a.txt", "run.sh", "link", "dir"])
    );
}

#[test]
fn directories_may_be_deeper_than_a_stack() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let mut dir = Ino::ROOT;
    for _ in 0..3000 {
        dir = workspace.mkdir(ME, dir, b"d", 0o755).unwrap().ino;
    }
    let mut delta = workspace.delta().unwrap();
    let mut depth = 0;
    let mut below = std::mem::take(&mut delta.root.entries);
    while let Some((_, DeltaEntry::Directory(mut dir))) = below.pop_first() {
        below = std::mem::take(&mut dir.entries);
        depth += 1;
    }
    assert_eq!(depth, 3000);
    drop(workspace.delta().unwrap());
}

#[test]
fn a_pinned_content_stays_in_its_file_which_is_as_long_as_it() {
    use std::os::unix::fs::FileExt;
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let resize = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let small = workspace.reach("a.txt").ino;
    assert!(
        workspace.pin_content(small).unwrap().is_none(),
        "the base has it"
    );
    workspace.write(small, 0, b"x", Some(ME)).unwrap();
    assert!(
        workspace.pin_content(small).unwrap().is_none(),
        "it shares a file"
    );

    let large = workspace
        .mknod(ME, Ino::ROOT, b"large", 0o100644, 0)
        .unwrap()
        .ino;
    workspace.write(large, 0, &[7; 200_000], Some(ME)).unwrap();
    workspace.setattr(ME, large, &resize(150_000)).unwrap();
    let file = workspace
        .pin_content(large)
        .unwrap()
        .expect("it has a file");
    let shown = || {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(shown(), vec![7; 150_000]);
    workspace.setattr(ME, large, &resize(0)).unwrap();
    assert!(shown().is_empty());
    workspace.setattr(ME, large, &resize(3)).unwrap();
    assert_eq!(shown(), [0; 3]);
    workspace.write(large, 5, b"end", Some(ME)).unwrap();
    assert_eq!(shown(), b"\0\0\0\0\0end");
    assert_eq!(workspace.read(large, 0, 100).unwrap(), shown());

    let bytes = shown();
    let repository = fixture._repository.open();
    let blob_id = repository
        .write_blob(&mut bytes.as_slice(), bytes.len() as u64)
        .unwrap();
    let adopt = || {
        let ctime = workspace.getattr(large).unwrap().ctime;
        workspace.adopt_blobs(&[(large, ctime, blob_id)]).unwrap()
    };
    assert_eq!(adopt(), 0, "a pinned content does not leave the layer");
    workspace.unpin_content(large);
    assert_eq!(adopt(), 1);
}
