//! Operations by path, as tine's commands do them.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::{
    Actor, Direction, FinalComponent, Invalidation, MoveOptions, NewContent, OperationError,
    PutOptions, ViewStep, Workspace,
};
use super::*;
use tine_layer::contents::SLOT_MAX;

const FORCE: MoveOptions = MoveOptions {
    force: true,
    into: false,
    parents: false,
};
const PARENTS: PutOptions = PutOptions {
    parents: true,
    executable: false,
};

const BY: Actor<'static> = Actor {
    caller: ME,
    command: "a test",
};

impl Workspace {
    fn moved(&self, from: &str, to: &str, options: MoveOptions) -> Result<String, OperationError> {
        let moved = self.move_path(BY, &path(from), &path(to), options)?;
        Ok(moved.to.to_string())
    }

    fn removed(&self, paths: &[&str], recursive: bool) -> Result<Vec<String>, OperationError> {
        let paths: Vec<RepoPath> = paths.iter().map(|text| path(text)).collect();
        let removed = self.remove_paths(BY, &paths, recursive)?;
        Ok(removed.iter().map(ToString::to_string).collect())
    }

    fn put(&self, at: &str, content: &[u8], options: PutOptions) -> Result<bool, OperationError> {
        let written = self.put_file(BY, &path(at), NewContent::Bytes(content), options)?;
        assert_eq!(written.size, content.len() as u64);
        Ok(written.created)
    }

    fn walked(&self, at: &str) -> Vec<String> {
        let nodes = self.walk_at(&path(at)).unwrap();
        nodes.iter().map(|node| node.path.to_string()).collect()
    }
}

/// How many records the log has grown by while `change` ran.
fn records_of(workspace: &Workspace, change: impl FnOnce()) -> usize {
    let position = workspace.read_state().stack.open_layer().position();
    change();
    let state = workspace.read_state();
    let changes = state.stack.open_layer().changes_since(position).unwrap();
    changes.steps()
}

#[test]
fn a_move_keeps_all_but_the_change_time() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let before = workspace.reach("dir/b.txt");
    assert_eq!(
        workspace
            .moved("dir/b.txt", "dir/sub/new.txt", MoveOptions::default())
            .unwrap(),
        "dir/sub/new.txt"
    );
    let after = workspace.resolve(&path("dir/sub/new.txt")).unwrap();
    assert!(after.ctime > before.ctime);
    assert_eq!(
        Attr {
            ctime: before.ctime,
            ..after
        },
        before
    );
    assert_eq!(workspace.text("dir/sub/new.txt"), "beta\n");
    // Into a directory that is there, with all beneath, and back.
    assert_eq!(
        workspace
            .put("target/x", b"", PARENTS)
            .and_then(|_| workspace.moved("dir", "target", MoveOptions::default()))
            .unwrap(),
        "target/dir"
    );
    assert_eq!(workspace.text("target/dir/sub/c.txt"), "gamma\n");
    workspace
        .moved("target/dir", "dir", MoveOptions::default())
        .unwrap();
    workspace
        .moved("dir/sub/new.txt", "dir/b.txt", MoveOptions::default())
        .unwrap();
    workspace.removed(&["target"], true).unwrap();
    let again = fixture_after(workspace, &fixture);
    assert_eq!(
        again.walked(""),
        [
            "a.txt",
            "dir",
            "dir/b.txt",
            "dir/sub",
            "dir/sub/c.txt",
            "empty",
            "link",
            "run.sh"
        ]
    );
}

fn fixture_after(workspace: Workspace, fixture: &Fixture) -> Workspace {
    drop(workspace);
    fixture.open()
}

#[test]
fn what_a_move_may_not_do_changes_nothing() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace.put("other/b.txt", b"mine", PARENTS).unwrap();
    let before = workspace.walked("");
    let plain = MoveOptions::default();
    let into = MoveOptions {
        force: false,
        into: true,
        parents: false,
    };
    let refused = |from: &str, to: &str, options| workspace.moved(from, to, options).unwrap_err();
    use OperationError as E;
    assert!(matches!(refused("missing", "x", plain), E::NotFound(_)));
    assert!(matches!(
        refused("a.txt", "missing/x", plain),
        E::NotFound(_)
    ));
    assert!(matches!(refused("a.txt", "missing", into), E::NotFound(_)));
    assert!(matches!(
        refused("a.txt", "empty", into),
        E::NotADirectory(_)
    ));
    assert!(matches!(refused("a.txt", "empty", plain), E::Exists(_)));
    assert!(matches!(
        refused("a.txt", "empty/x", plain),
        E::NotADirectory(_)
    ));
    assert!(matches!(refused("a.txt", "a.txt", plain), E::SameFile(..)));
    assert!(matches!(
        refused("dir", "dir/sub/x", plain),
        E::IntoItself(_)
    ));
    assert!(matches!(
        refused("dir", "empty", FORCE),
        E::NotADirectory(_)
    ));
    assert!(matches!(refused("dir/b.txt", "other", plain), E::Exists(_)));
    workspace.put("other/dir/x", b"", PARENTS).unwrap();
    assert!(matches!(refused("dir", "other", FORCE), E::IsADirectory(_)));
    workspace.removed(&["other/dir"], true).unwrap();
    assert!(matches!(refused("", "x", plain), E::Root));
    assert!(matches!(refused("a.txt", ".git", plain), E::DotGit(_)));
    assert!(matches!(refused("a.txt", ".git/x", plain), E::DotGit(_)));
    assert_eq!(workspace.walked(""), before);
    assert_eq!(workspace.text("other/b.txt"), "mine");
    // By force a file goes, and a symlink itself.
    assert_eq!(workspace.moved("a.txt", "link", FORCE).unwrap(), "link");
    assert_eq!(workspace.text("link"), "alpha\n");
    assert_eq!(
        workspace.resolve(&path("link")).unwrap().kind,
        FileKind::Regular
    );
}

#[test]
fn removing_is_one_step_however_much_is_beneath() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    for index in 0..200 {
        workspace
            .put(
                &format!("dir/made/{}/{index}", index % 7),
                b"content",
                PARENTS,
            )
            .unwrap();
    }
    assert!(matches!(
        workspace.removed(&["a.txt", "dir"], false).unwrap_err(),
        OperationError::IsADirectory(_)
    ));
    assert!(matches!(
        workspace.removed(&["a.txt", "missing"], true).unwrap_err(),
        OperationError::NotFound(_)
    ));
    assert_eq!(workspace.text("a.txt"), "alpha\n");
    let records = records_of(&workspace, || {
        let removed = workspace
            .removed(&["dir/sub", "dir", "a.txt", "dir"], true)
            .unwrap();
        assert_eq!(removed, ["a.txt", "dir"]);
    });
    assert_eq!(records, 1);
    assert_eq!(workspace.walked(""), ["empty", "link", "run.sh"]);
    assert_eq!(workspace.getattr(Ino::ROOT).unwrap().nlink, 2);
    let again = fixture_after(workspace, &fixture);
    assert_eq!(again.walked(""), ["empty", "link", "run.sh"]);
    assert_eq!(delta_of(&again), ["- a.txt", "- dir"]);
}

#[test]
fn what_the_kernel_has_open_lives_on_without_a_name() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    assert!(workspace.put("dir/made", b"made", PARENTS).unwrap());
    let (base, made) = (
        workspace.reach("dir/b.txt").ino,
        workspace.reach("dir/made").ino,
    );
    workspace.link(ME, made, Ino::ROOT, b"second").unwrap();
    workspace.removed(&["dir"], true).unwrap();
    assert_eq!(workspace.read(base, 0, 100).unwrap(), b"beta\n");
    assert_eq!(workspace.read(made, 0, 100).unwrap(), b"made");
    assert_eq!(workspace.text("second"), "made");
    assert!(matches!(
        workspace.lookup(Ino::ROOT, b"dir"),
        Err(FsError::NotFound)
    ));
    // What is written to it comes back with it.
    workspace.write(base, 0, b"B", None).unwrap();
    workspace.take_back(BY, Direction::Undo, None).unwrap();
    assert_eq!(workspace.text("dir/b.txt"), "Beta\n");
}

#[test]
fn a_file_is_replaced_in_one_step_and_keeps_its_mode() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let large = vec![7; SLOT_MAX as usize * 3 + 5];
    // The first numbers of all are reserved by a record of its own.
    workspace.put("first", b"", PutOptions::default()).unwrap();
    for content in [&b"short"[..], b"", &large, b"again"] {
        let records = records_of(&workspace, || {
            assert!(
                !workspace
                    .put("run.sh", content, PutOptions::default())
                    .unwrap()
            );
        });
        assert_eq!(records, 1);
        assert!(workspace.read_path(&path("run.sh")).unwrap() == content);
        assert_eq!(workspace.resolve(&path("run.sh")).unwrap().perm, 0o755);
    }
    assert!(matches!(
        workspace.put("x/y/z", b"", PutOptions::default()).unwrap_err(),
        OperationError::NotFound(missing) if missing == path("x")
    ));
    let options = PutOptions {
        parents: true,
        executable: true,
    };
    let records = records_of(&workspace, || {
        assert!(workspace.put("x/y/z", &large, options).unwrap());
    });
    assert_eq!(records, 1);
    assert_eq!(workspace.resolve(&path("x/y/z")).unwrap().perm, 0o755);
    assert_eq!(workspace.resolve(&path("x")).unwrap().nlink, 3);
    for (at, is_refused) in [
        ("dir", OperationError::IsADirectory(path("dir"))),
        ("link", OperationError::NotAFile(path("link"))),
        (".git", OperationError::DotGit(path(".git"))),
        ("a.txt/x", OperationError::NotADirectory(path("a.txt"))),
    ] {
        let said = workspace.put(at, b"x", options).unwrap_err().to_string();
        assert_eq!(said, is_refused.to_string());
    }
    workspace.put("a.txt", b"", options).unwrap();
    assert_eq!(workspace.resolve(&path("a.txt")).unwrap().perm, 0o755);
    let again = fixture_after(workspace, &fixture);
    assert!(again.read_path(&path("x/y/z")).unwrap() == large);
    assert_eq!(again.text("run.sh"), "again");
}

#[test]
fn symlinks_are_followed_inside_and_refused_outside() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let link = |name: &str, target: &str| {
        workspace
            .symlink(
                ME,
                workspace.reach("dir").ino,
                name.as_bytes(),
                target.as_bytes(),
            )
            .unwrap();
    };
    link("up", "../dir/sub");
    link("out", "../../elsewhere");
    link("absolute", "/etc");
    link("loop", "loop/x");
    let follow = |text: &str| {
        workspace
            .follow(&path(text), FinalComponent::Keep)
            .map(|path| path.to_string())
    };
    assert_eq!(follow("dir/up/c.txt").unwrap(), "dir/sub/c.txt");
    assert_eq!(follow("dir/up").unwrap(), "dir/up");
    assert_eq!(follow("dir/up/none/deeper").unwrap(), "dir/sub/none/deeper");
    for (at, is_refused) in [
        ("dir/out/x", OperationError::LeadsOut(path("dir/out/x"))),
        (
            "dir/absolute/passwd",
            OperationError::LeadsOut(path("dir/absolute/passwd")),
        ),
        (
            "dir/loop/x",
            OperationError::SymlinkLoop(path("dir/loop/x")),
        ),
    ] {
        assert_eq!(follow(at).unwrap_err().to_string(), is_refused.to_string());
        assert!(workspace.put(at, b"x", PARENTS).is_err());
        assert!(workspace.removed(&[at], true).is_err());
    }
    let mut content = Vec::new();
    let mut take = |piece: &[u8]| -> Result<(), OperationError> {
        content.extend_from_slice(piece);
        Ok(())
    };
    workspace.read_at(&path("link"), &mut take).unwrap();
    workspace.read_at(&path("dir/up/c.txt"), &mut take).unwrap();
    assert_eq!(content, b"alpha\ngamma\n");
    workspace.put("dir/up/new", b"x", PARENTS).unwrap();
    assert_eq!(workspace.text("dir/sub/new"), "x");
    assert_eq!(workspace.removed(&["dir/up"], false).unwrap(), ["dir/up"]);
    assert_eq!(workspace.text("dir/sub/new"), "x");
}

#[test]
fn a_mount_is_told_of_every_change() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let told: Arc<Mutex<Vec<Invalidation>>> = Arc::default();
    let listener = told.clone();
    workspace.set_listener(Some(Arc::new(move |change| {
        listener.lock().extend(change.invalidations)
    })));
    let taken = || std::mem::take(&mut *told.lock());
    let entry = |parent: Ino, name: &str| Invalidation::Entry {
        parent,
        name: tine_path::EntryName::new(name).unwrap(),
    };
    let (file, empty) = (
        workspace.resolve(&path("a.txt")).unwrap().ino,
        workspace.resolve(&path("empty")).unwrap().ino,
    );
    let dir = workspace.resolve(&path("dir")).unwrap().ino;
    workspace.put("a.txt", b"x", PARENTS).unwrap();
    assert_eq!(taken(), [Invalidation::Node(file)]);
    workspace.put("dir/p/q", b"x", PARENTS).unwrap();
    assert_eq!(taken()[0], entry(dir, "p"));
    workspace.moved("a.txt", "empty", FORCE).unwrap();
    let moved = taken();
    for change in [
        entry(Ino::ROOT, "a.txt"),
        entry(Ino::ROOT, "empty"),
        Invalidation::Attributes(file),
        Invalidation::Node(empty),
    ] {
        assert!(moved.contains(&change), "{change:?} in {moved:?}");
    }
    workspace.removed(&["dir"], true).unwrap();
    let removed = taken();
    assert!(
        removed.contains(&entry(Ino::ROOT, "dir")) && removed.contains(&Invalidation::Node(dir))
    );
    workspace.take_back(BY, Direction::Undo, None).unwrap();
    assert!(taken().contains(&entry(Ino::ROOT, "dir")));
}

#[test]
fn a_mount_is_told_the_steps_of_what_may_be_watched() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let told: Arc<Mutex<Vec<ViewStep>>> = Arc::default();
    let listener = told.clone();
    workspace.set_listener(Some(Arc::new(move |change| {
        listener.lock().extend(change.steps)
    })));
    let taken = || {
        let steps = std::mem::take(&mut *told.lock());
        let lines = steps.iter().map(|step| {
            let (what, at) = match step {
                ViewStep::Remove { at, .. } => ("remove", at),
                ViewStep::Make { at, .. } => ("make", at),
                ViewStep::Move { to, .. } => ("move to", to),
                ViewStep::Write { at, .. } => ("write", at),
                ViewStep::SetMode { at, .. } => ("mode", at),
            };
            format!("{what} {}", at.dir_path.join(&at.name))
        });
        lines.collect::<Vec<_>>()
    };
    workspace.put("dir/new", b"x", PARENTS).unwrap();
    workspace.put("dir/sub/c.txt", b"x", PARENTS).unwrap();
    workspace.removed(&["dir/new"], false).unwrap();
    assert!(taken().is_empty(), "the kernel does not know the directory");

    let dir = workspace.lookup(Ino::ROOT, b"dir").unwrap().ino;
    workspace.put("dir/new", b"x", PARENTS).unwrap();
    workspace.put("dir/new", b"y", PARENTS).unwrap();
    workspace.put("dir/made/new", b"x", PARENTS).unwrap();
    workspace.put("dir/sub/c.txt", b"y", PARENTS).unwrap();
    assert_eq!(taken(), ["make dir/new", "write dir/new", "make dir/made"]);
    workspace.moved("dir/new", "a.txt", FORCE).unwrap();
    assert_eq!(taken(), ["move to a.txt"]);
    workspace.removed(&["dir"], true).unwrap();
    let removed = taken();
    assert_eq!(removed.last().unwrap(), "remove dir");
    assert!(
        removed.contains(&"remove dir/sub".to_owned()),
        "{removed:?}"
    );
    assert!(
        !removed.contains(&"remove dir/sub/c.txt".to_owned()),
        "{removed:?}"
    );

    workspace.forget(dir, 1);
    workspace.set_listener(None);
    workspace.take_back(BY, Direction::Undo, None).unwrap();
    assert!(taken().is_empty(), "nobody is told");
}
