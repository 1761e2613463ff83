//! What a fork sees of the main checkout's ignored files, and what it makes of them.

mod model;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::{Fixture, ME, path, set};
use crate::carry::{Carry, DependencyTree, moment_by};
use crate::{CarryRecord, FsError, RenameMode, SetAttr, Workspace};
use tine_attr::{FileKind, Ino};
use tine_path::text::PathText;

/// A fork, and beside it the main checkout with `target/` (`a`, `deps/b`, `deps/link`), `dir/cache`
/// and `.local`.
struct Carried {
    fixture: Fixture,
    main: PathBuf,
    _place: tempfile::TempDir,
}

impl Carried {
    fn new() -> Carried {
        let place = tempfile::tempdir().unwrap();
        let main = place.path().join("main");
        fs::create_dir_all(main.join("target/deps")).unwrap();
        fs::create_dir_all(main.join("dir")).unwrap();
        fs::write(main.join("target/a"), "one\n").unwrap();
        fs::write(main.join("target/deps/b"), "two\n").unwrap();
        symlink("b", main.join("target/deps/link")).unwrap();
        fs::write(main.join("dir/cache"), "three\n").unwrap();
        fs::write(main.join(".local"), "four\n").unwrap();
        Carried {
            fixture: Fixture::new(),
            main,
            _place: place,
        }
    }

    fn record(&self) -> CarryRecord {
        let text = |path: &str| PathText::Text(path.to_owned());
        CarryRecord {
            from: self.main.clone(),
            roots: ["target/", "dir/cache", ".local", "gone/"]
                .map(text)
                .to_vec(),
            only: Vec::new(),
            named: Vec::new(),
            held_back: Vec::new(),
            since: None,
            trees: Vec::new(),
        }
    }

    fn open(&self) -> Workspace {
        self.open_with(&self.record())
    }

    fn open_with(&self, record: &CarryRecord) -> Workspace {
        let hasher = self.fixture.base.hasher().clone();
        self.fixture
            .open()
            .carrying(Carry::open(record, hasher).unwrap())
    }

    fn main_text(&self, path: &str) -> String {
        fs::read_to_string(self.main.join(path)).unwrap()
    }
}

fn rename(workspace: &Workspace, from: &str, to: &str) {
    let (from_dir, from_name) = path(from).split_last().unwrap();
    let (to_dir, to_name) = path(to).split_last().unwrap();
    let (from_dir, to_dir) = (
        workspace.reach(&from_dir.to_string()).ino,
        workspace.reach(&to_dir.to_string()).ino,
    );
    let (from, to) = (from_name.as_bytes(), to_name.as_bytes());
    workspace
        .rename(ME, from_dir, from, to_dir, to, RenameMode::Replace)
        .unwrap();
}

#[test]
fn carried_files_are_seen_as_they_are() {
    let carried = Carried::new();
    fs::set_permissions(
        carried.main.join("target/a"),
        fs::Permissions::from_mode(0o750),
    )
    .unwrap();
    let workspace = carried.open();
    let names = set(&[
        "a.txt", "empty", "run.sh", "link", "dir", "target", ".local",
    ]);
    assert_eq!(workspace.names(""), names);
    assert_eq!(workspace.names("dir"), set(&["b.txt", "sub", "cache"]));
    assert_eq!(workspace.names("target/deps"), set(&["b", "link"]));
    assert_eq!(workspace.text("target/deps/b"), "two\n");
    assert_eq!(workspace.text("dir/cache"), "three\n");
    let link = workspace.reach("target/deps/link");
    assert_eq!(
        (link.kind, workspace.readlink(link.ino).unwrap()),
        (FileKind::Symlink, b"b".to_vec())
    );
    let attr = workspace.reach("target/a");
    let host = fs::metadata(carried.main.join("target/a")).unwrap();
    assert_eq!(
        (attr.perm, attr.nlink, attr.size, attr.uid),
        (0o750, 1, 4, host.uid())
    );
    assert_eq!(
        (attr.mtime.secs, i64::from(attr.mtime.nanos)),
        (host.mtime(), host.mtime_nsec())
    );
    assert!(matches!(
        workspace.lookup(Ino::ROOT, b"gone"),
        Err(FsError::NotFound)
    ));
    // 2, `dir`, and `target`.
    assert_eq!(workspace.getattr(Ino::ROOT).unwrap().nlink, 2 + 1 + 2);
    assert!(workspace.delta().unwrap().root.entries.is_empty());
}

#[test]
fn what_a_fork_changes_is_its_own_and_the_main_checkout_stays() {
    let carried = Carried::new();
    {
        let workspace = carried.open();
        let written = workspace.reach("target/a").ino;
        workspace.write(written, 4, b"more\n", None).unwrap();
        assert_eq!(workspace.reach("target/a").ino, written, "the number stays");
        workspace
            .write_path(ME, &path("target/deps/new"), b"new\n")
            .unwrap();
        workspace.remove_path(ME, &path("dir/cache")).unwrap();
        let mode = SetAttr {
            perm: Some(0o600),
            ..SetAttr::default()
        };
        let changed = workspace.reach("target/deps/b").ino;
        workspace.setattr(ME, changed, &mode).unwrap();
    }
    for _ in 0..2 {
        let workspace = carried.open();
        assert_eq!(workspace.text("target/a"), "one\nmore\n");
        assert_eq!(workspace.names("target/deps"), set(&["b", "link", "new"]));
        assert_eq!(workspace.names("dir"), set(&["b.txt", "sub"]));
        assert_eq!(workspace.reach("target/deps/b").perm, 0o600);
        assert_eq!(workspace.text("target/deps/b"), "two\n");
    }
    assert_eq!(carried.main_text("target/a"), "one\n");
    assert_eq!(carried.main_text("dir/cache"), "three\n");
    assert!(!carried.main.join("target/deps/new").exists());
}

#[test]
fn directories_move_with_all_that_is_in_them() {
    let carried = Carried::new();
    let workspace = carried.open();
    let deps = workspace.reach("target/deps").ino;
    rename(&workspace, "target/deps", "dir/moved");
    assert_eq!(workspace.reach("dir/moved").ino, deps);
    assert_eq!(workspace.text("dir/moved/b"), "two\n");
    assert_eq!(workspace.names("target"), set(&["a"]));
    workspace
        .write_path(ME, &path("dir/moved/b"), b"own\n")
        .unwrap();
    rename(&workspace, "target", "dir/built");
    rename(&workspace, "dir/moved", "dir/built/deps");
    let into_itself = workspace.rename(
        ME,
        Ino::ROOT,
        b"dir",
        workspace.reach("dir/built/deps").ino,
        b"x",
        RenameMode::Replace,
    );
    assert!(matches!(into_itself, Err(FsError::Invalid)));
    drop(workspace);
    let workspace = carried.open();
    assert_eq!(workspace.text("dir/built/deps/b"), "own\n");
    assert_eq!(workspace.text("dir/built/a"), "one\n");
    assert!(matches!(
        workspace.lookup(Ino::ROOT, b"target"),
        Err(FsError::NotFound)
    ));
    assert_eq!(carried.main_text("target/deps/b"), "two\n");
}

#[test]
fn a_tree_is_removed_and_made_anew() {
    let carried = Carried::new();
    let workspace = carried.open();
    for name in [
        "target/a",
        "target/deps/b",
        "target/deps/link",
        "target/deps",
        "target",
    ] {
        workspace.remove_path(ME, &path(name)).unwrap();
    }
    assert!(matches!(
        workspace.lookup(Ino::ROOT, b"target"),
        Err(FsError::NotFound)
    ));
    let made = workspace.mkdir(ME, Ino::ROOT, b"target", 0o755).unwrap();
    assert!(made.ino.is_new());
    assert_eq!(workspace.names("target"), set(&[]));
    drop(workspace);
    assert_eq!(carried.open().names("target"), set(&[]));
    assert_eq!(carried.main_text("target/a"), "one\n");
}

#[test]
fn another_version_is_another_node_and_the_old_one_is_refused() {
    let carried = Carried::new();
    let workspace = carried.open();
    let old = workspace.reach("target/a");
    assert_eq!(workspace.read(old.ino, 0, 10).unwrap(), b"one\n");
    let deps = workspace.reach("target/deps").ino;
    fs::write(carried.main.join("target/a"), "second\n").unwrap();
    fs::write(carried.main.join("target/deps/later"), "").unwrap();
    assert!(matches!(
        workspace.read(old.ino, 0, 10),
        Err(FsError::Stale)
    ));
    assert!(matches!(
        workspace.write(old.ino, 0, b"x", None),
        Err(FsError::Stale)
    ));
    let new = workspace.reach("target/a");
    assert_ne!(new.ino, old.ino);
    assert_eq!(workspace.read(new.ino, 0, 10).unwrap(), b"second\n");
    assert_eq!(
        workspace.reach("target/deps").ino,
        deps,
        "a directory keeps its number"
    );
    assert_eq!(workspace.names("target/deps"), set(&["b", "link", "later"]));
    fs::remove_dir_all(carried.main.join("target")).unwrap();
    assert!(matches!(
        workspace.lookup(Ino::ROOT, b"target"),
        Err(FsError::NotFound)
    ));
    assert!(matches!(workspace.getattr(deps), Err(FsError::Stale)));
}

#[test]
fn files_in_carried_directories_are_those_of_the_moment_when_the_fork_was_made() {
    let carried = Carried::new();
    let main = &carried.main;
    fs::create_dir(main.join("cfg")).unwrap();
    for name in ["cfg/chosen", "cfg/other", "target/kept", "target/open"] {
        fs::write(main.join(name), "before\n").unwrap();
    }
    let mut record = carried.record();
    record.roots.push(PathText::Text("cfg/".to_owned()));
    record.only.push(PathText::Text("cfg/chosen".to_owned()));
    record.since = Some(moment_by(&main.join("moment")).unwrap());
    // At once: what changes in the same tick has changed later.
    for name in [
        "target/deps/b",
        "target/later",
        "dir/cache",
        ".local",
        "cfg/chosen",
        "target/open",
    ] {
        fs::write(main.join(name), "after\n").unwrap();
    }
    let workspace = carried.open_with(&record);
    assert_eq!(workspace.names("target"), set(&["a", "deps", "kept"]));
    assert_eq!(workspace.names("target/deps"), set(&["link"]));
    let target = workspace.reach("target").ino;
    assert!(matches!(
        workspace.lookup(target, b"later"),
        Err(FsError::NotFound)
    ));
    for chosen in ["dir/cache", ".local", "cfg/chosen"] {
        assert_eq!(workspace.text(chosen), "after\n", "{chosen}");
    }

    let open = workspace.reach("target/kept").ino;
    assert_eq!(workspace.read(open, 0, 20).unwrap(), b"before\n");
    fs::write(main.join("target/kept"), "after\n").unwrap();
    assert!(matches!(workspace.read(open, 0, 20), Err(FsError::Stale)));
    assert!(matches!(
        workspace.lookup(target, b"kept"),
        Err(FsError::NotFound)
    ));
    fs::rename(main.join("target/a"), main.join("target/renamed")).unwrap();
    fs::create_dir(main.join("target/new")).unwrap();
    fs::write(main.join("target/new/file"), "after\n").unwrap();
    assert_eq!(workspace.names("target"), set(&["deps", "new"]));
    assert_eq!(workspace.names("target/new"), set(&[]));

    // The names are free.
    workspace
        .write_path(ME, &path("target/kept"), b"own\n")
        .unwrap();
    workspace
        .write_path(ME, &path("target/deps/b"), b"own\n")
        .unwrap();
    assert_eq!(workspace.text("target/kept"), "own\n");
    workspace.remove_path(ME, &path("target/kept")).unwrap();
    workspace.remove_path(ME, &path("target/new")).unwrap();
    drop(workspace);
    let workspace = carried.open_with(&record);
    assert_eq!(workspace.names("target"), set(&["deps"]));
    assert_eq!(workspace.text("target/deps/b"), "own\n");
    drop(workspace);
    record.since = None;
    assert_eq!(carried.open_with(&record).text("target/later"), "after\n");
}

#[test]
fn a_file_that_a_package_store_shares_stays_in_a_dependency_tree_when_others_link_it() {
    let carried = Carried::new();
    let main = &carried.main;
    for name in ["target/shared", "target/rebuilt"] {
        fs::write(main.join(name), "before\n").unwrap();
        fs::hard_link(main.join(name), main.join(name).with_extension("store")).unwrap();
    }
    let mut record = carried.record();
    record.since = Some(moment_by(&main.join("moment")).unwrap());
    fs::hard_link(main.join("target/shared"), main.join("elsewhere")).unwrap();
    fs::write(main.join("target/rebuilt"), "after\n").unwrap();
    // Elsewhere it may be an output, as old as it was, that came here by a link.
    let workspace = carried.open_with(&record);
    assert!(workspace.resolve(&path("target/shared")).is_err());
    drop(workspace);
    let tree = DependencyTree::wanted(PathText::Text("target/".to_owned()), None);
    record.trees.push(tree);
    let workspace = carried.open_with(&record);
    assert_eq!(workspace.text("target/shared"), "before\n");
    assert!(workspace.resolve(&path("target/rebuilt")).is_err());
}

#[test]
fn what_a_fork_has_changed_stays_whatever_the_main_checkout_does() {
    let carried = Carried::new();
    let workspace = carried.open();
    workspace
        .write_path(ME, &path("target/deps/b"), b"own\n")
        .unwrap();
    fs::remove_dir_all(carried.main.join("target")).unwrap();
    fs::write(carried.main.join("target"), "a file now").unwrap();
    assert_eq!(workspace.text("target/deps/b"), "own\n");
    assert_eq!(workspace.names("target"), set(&["deps"]));
    assert_eq!(workspace.names("target/deps"), set(&["b"]));
}

#[test]
fn a_file_that_was_renamed_linked_or_changed_keeps_its_bytes() {
    let carried = Carried::new();
    let workspace = carried.open();
    rename(&workspace, "target/a", "target/moved");
    let linked = workspace.reach("target/deps/b").ino;
    workspace.link(ME, linked, Ino::ROOT, b"hard").unwrap();
    let local = workspace.reach(".local");
    let mode = SetAttr {
        perm: Some(0o600),
        ..SetAttr::default()
    };
    let set = workspace.setattr(ME, local.ino, &mode).unwrap();
    assert_eq!((set.ino, set.mtime), (local.ino, local.mtime));
    for path in ["target/a", "target/deps/b", ".local"] {
        fs::write(carried.main.join(path), "something else").unwrap();
    }
    for name in ["target/moved", "target/deps/b", "hard", ".local"] {
        assert!(!workspace.text(name).contains("else"), "{name}");
    }
    assert_eq!(workspace.reach("hard").nlink, 2);
    assert!(matches!(
        workspace.lookup(workspace.reach("target").ino, b"a"),
        Err(FsError::NotFound)
    ));
}

#[test]
fn a_listing_goes_on_where_it_was_while_names_come_and_go() {
    let carried = Carried::new();
    for n in 0..600 {
        fs::write(carried.main.join(format!("target/f{n}")), "").unwrap();
    }
    let workspace = carried.open();
    let dir = workspace.reach("target").ino;
    let mut listed = Vec::new();
    let mut cookie = 0;
    loop {
        let before = listed.len();
        workspace
            .readdir(dir, cookie, &mut |entry| {
                cookie = entry.cookie;
                listed.push(entry.name.to_string());
                listed.len() - before < 50
            })
            .unwrap();
        if listed.len() == before {
            break;
        }
        // Names that were listed and some that were not change, come and go on both sides.
        let n = listed.len();
        workspace
            .remove_path(ME, &path(&format!("target/{}", listed[n - 1])))
            .unwrap();
        fs::write(carried.main.join(format!("target/later{n}")), "").unwrap();
        workspace
            .write_path(ME, &path(&format!("target/own{n}")), b"x")
            .unwrap();
        let touched = workspace.reach("target/f599").ino;
        let mode = SetAttr {
            perm: Some(0o600),
            ..SetAttr::default()
        };
        workspace.setattr(ME, touched, &mode).ok();
    }
    let mut unique = listed.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), listed.len(), "a name was listed twice");
    for n in 0..600 {
        assert!(listed.contains(&format!("f{n}")), "f{n} is missing");
    }
}

#[test]
fn secrets_repositories_and_what_is_no_file_are_not_seen() {
    let carried = Carried::new();
    let main = &carried.main;
    for dir in ["cfg/.git", "cfg/deep/.git", "cfg/sub"] {
        fs::create_dir_all(main.join(dir)).unwrap();
    }
    fs::write(main.join("cfg/deep/.git/HEAD"), "x").unwrap();
    fs::write(main.join("cfg/sub/.git"), "gitdir: elsewhere").unwrap();
    fs::write(main.join("cfg/.env"), "secret").unwrap();
    fs::write(main.join("cfg/server.key"), "secret").unwrap();
    fs::write(main.join("cfg/plain"), "plain").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(main.join("cfg/socket")).unwrap();
    let mut record = carried.record();
    record.roots.push(PathText::Text("cfg/".to_owned()));
    {
        let workspace = carried.open_with(&record);
        assert_eq!(workspace.names("cfg"), set(&["deep", "sub", "plain"]));
        assert_eq!(workspace.names("cfg/sub"), set(&[]));
        assert_eq!(workspace.text("cfg/deep/.git/HEAD"), "x");
        let cfg = workspace.reach("cfg").ino;
        for name in [&b".env"[..], b"server.key", b".git", b"socket"] {
            assert!(matches!(
                workspace.lookup(cfg, name),
                Err(FsError::NotFound)
            ));
        }
    }
    record.named.push(PathText::Text("*.key".to_owned()));
    record
        .only
        .push(PathText::Text("cfg/server.key".to_owned()));
    record.only.push(PathText::Text("cfg/sub/".to_owned()));
    let workspace = carried.open_with(&record);
    assert_eq!(workspace.names("cfg"), set(&["server.key", "sub"]));
    assert_eq!(workspace.text("cfg/server.key"), "secret");
}

#[test]
fn what_is_moved_out_of_the_ignored_is_a_change() {
    let carried = Carried::new();
    let workspace = carried.open();
    workspace
        .write_path(ME, &path("target/deps/new"), b"new\n")
        .unwrap();
    rename(&workspace, "target/deps", "dir/kept");
    let mut told = Vec::new();
    super::listing(&workspace.delta().unwrap().root, "", &mut told);
    told.sort();
    assert_eq!(
        told,
        [
            "+ dir/kept/b",
            "+ dir/kept/link",
            "+ dir/kept/new",
            "- target/deps",
            "d dir",
            "d dir/kept",
            "d target"
        ]
    );
}
