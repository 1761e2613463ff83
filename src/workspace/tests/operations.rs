//! Operations, taking them back, and doing them again: beside a plain model, and after programs
//! changed the same paths.

use std::collections::BTreeMap;

use super::super::{
    Actor, Direction, FileChange, MoveOptions, NewContent, NoteKind, OperationError, OperationKind,
    OperationState, PutOptions, Workspace,
};
use super::*;
use tine_layer::FrozenLayer;
use tine_layer::contents::SLOT_MAX;

const BY: Actor<'static> = Actor {
    caller: ME,
    command: "tine test",
};

/// One path as anybody sees it. Change times are the undo's, and directories have those of their
/// names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    kind: FileKind,
    perm: u16,
    content: Vec<u8>,
    times: Option<(Timestamp, Timestamp)>,
    ino: Ino,
    xattrs: Vec<Vec<u8>>,
}

type Tree = BTreeMap<String, Seen>;

/// That all is as in `expected`, but for the modification times of what came back: those are of
/// `since` or later. What was there before keeps its own.
#[track_caller]
fn assert_back(now: &Tree, expected: &Tree, before: &Tree, since: Timestamp, what: &str) {
    let without_mtime = |tree: &Tree| -> Tree {
        let all = tree.iter().map(|(path, seen)| {
            let seen = Seen {
                times: seen.times.map(|(atime, _)| (atime, since)),
                ..seen.clone()
            };
            (path.clone(), seen)
        });
        all.collect()
    };
    assert_eq!(without_mtime(now), without_mtime(expected), "{what}");
    for (path, seen) in now {
        let (Some((_, mtime)), there) = (seen.times, before.get(path)) else {
            continue;
        };
        let is_same =
            there.is_some_and(|there| (there.ino, &there.content) == (seen.ino, &seen.content));
        let is_kept =
            is_same && there.is_some_and(|there| there.times.is_some_and(|(_, was)| was == mtime));
        assert!(
            mtime >= since || is_kept,
            "{what}: {path} came back with {mtime:?}"
        );
    }
}

impl Workspace {
    fn seen(&self) -> Tree {
        let nodes = self.walk_at(&RepoPath::root()).unwrap();
        let seen = nodes.into_iter().map(|node| {
            let content = match node.attr.kind {
                FileKind::Directory => Vec::new(),
                _ => self.read_path(&node.path).unwrap(),
            };
            let held = self.reach(&node.path.to_string());
            let xattrs = self.listxattr(Caller::ROOT, held.ino).unwrap();
            let seen = Seen {
                kind: node.attr.kind,
                perm: node.attr.perm,
                content,
                times: (node.attr.kind != FileKind::Directory)
                    .then_some((node.attr.atime, node.attr.mtime)),
                ino: node.attr.ino,
                xattrs,
            };
            (node.path.to_string(), seen)
        });
        let seen = seen.collect();
        self.forget_all();
        seen
    }

    fn back(&self) -> Vec<(String, NoteKind)> {
        self.taken(Direction::Undo, None).unwrap()
    }

    fn again(&self) -> Vec<(String, NoteKind)> {
        self.taken(Direction::Redo, None).unwrap()
    }

    fn taken(
        &self,
        direction: Direction,
        at: Option<&str>,
    ) -> Result<Vec<(String, NoteKind)>, OperationError> {
        let at = at.map(path);
        let taken = self.take_back(BY, direction, at.as_ref())?;
        let notes = taken.notes.iter();
        Ok(notes
            .map(|note| (note.path.to_string(), note.kind))
            .collect())
    }

    fn do_write(&self, at: &str, content: &[u8]) -> Result<(), OperationError> {
        let options = PutOptions {
            parents: true,
            executable: false,
        };
        let content = NewContent::Bytes(content);
        self.put_file(BY, &path(at), content, options).map(drop)
    }

    fn do_move(&self, from: &str, to: &str) -> Result<(), OperationError> {
        let options = MoveOptions {
            force: true,
            into: false,
            parents: false,
        };
        self.move_path(BY, &path(from), &path(to), options)
            .map(drop)
    }

    fn do_remove(&self, paths: &[&str]) -> Result<(), OperationError> {
        let paths: Vec<RepoPath> = paths.iter().map(|at| path(at)).collect();
        self.remove_paths(BY, &paths, true).map(drop)
    }

    /// What a program in the mount does: no operation.
    fn overwrite(&self, at: &str, content: &[u8]) {
        let ino = self.resolve(&path(at)).unwrap().ino;
        self.reach(at);
        self.write(ino, 0, content, None).unwrap();
        self.forget_all();
    }

    fn states(&self) -> Vec<(u64, OperationState)> {
        let operations = self.reachable().unwrap();
        let ids: Vec<u64> = operations
            .operations()
            .map(|operation| operation.id)
            .collect();
        ids.into_iter()
            .map(|id| (id, operations.state_of(id)))
            .collect()
    }
}

#[test]
fn each_kind_is_taken_back_exactly_and_done_again() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    let file = workspace.reach("a.txt").ino;
    workspace
        .setxattr(ME, file, b"user.note", b"kept", XattrMode::Set)
        .unwrap();
    let large = vec![b'l'; SLOT_MAX as usize + 1];
    let steps: [&dyn Fn() -> Result<(), OperationError>; 9] = [
        &|| workspace.do_write("a.txt", b"new"),
        &|| workspace.do_write("a.txt", &large),
        &|| workspace.do_write("made/deep/file", b"x"),
        &|| workspace.do_move("dir", "made/dir"),
        &|| workspace.do_move("a.txt", "empty"),
        &|| workspace.do_remove(&["made", "link", "run.sh"]),
        &|| workspace.do_write("made", b"now a file"),
        &|| workspace.do_write("dir/b.txt", b"a new dir"),
        &|| workspace.do_move("dir", "again"),
    ];
    let mut trees = vec![workspace.seen()];
    for step in steps {
        step().unwrap();
        trees.push(workspace.seen());
    }
    for _ in 0..2 {
        for tree in trees.iter().rev().skip(1) {
            let (before, since) = (workspace.seen(), Timestamp::now());
            assert_eq!(workspace.back(), []);
            assert_back(&workspace.seen(), tree, &before, since, "back");
        }
        assert!(matches!(
            workspace.taken(Direction::Undo, None).unwrap_err(),
            OperationError::NothingToTakeBack { .. }
        ));
        for tree in trees.iter().skip(1) {
            let (before, since) = (workspace.seen(), Timestamp::now());
            assert_eq!(workspace.again(), []);
            assert_back(&workspace.seen(), tree, &before, since, "again");
        }
        assert!(workspace.taken(Direction::Redo, None).is_err());
    }
    // As after a restart.
    drop(workspace);
    let workspace = fixture.open();
    for tree in trees.iter().rev().skip(1) {
        let (before, since) = (workspace.seen(), Timestamp::now());
        workspace.back();
        assert_back(&workspace.seen(), tree, &before, since, "after a restart");
    }
    assert!(
        workspace
            .getxattr(ME, workspace.reach("a.txt").ino, b"user.note")
            .is_ok()
    );
    // Of what came back it has the times alone.
    assert_eq!(
        delta_of(&workspace),
        [
            "+ a.txt",
            "d dir",
            "+ dir/b.txt",
            "d dir/sub",
            "+ dir/sub/c.txt",
            "+ empty",
            "+ link",
            "+ run.sh"
        ]
    );
}

#[test]
fn what_nobody_sees_is_no_change() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace.do_write("dir/sub/c.txt", b"changed").unwrap();
    workspace.do_write("new/file", b"made").unwrap();
    let (token, _) = workspace.changed_since(&workspace.beginning()).unwrap();
    workspace.do_remove(&["dir", "new"]).unwrap();
    assert_eq!(delta_of(&workspace), ["- dir"]);
    // What the attic has is told by the name that it lost, and makes git look at nothing else.
    for token in [token.as_str(), &workspace.beginning()] {
        let (_, changed) = workspace.changed_since(token).unwrap();
        let crate::Changed::Paths(paths) = changed else {
            panic!("everything");
        };
        let paths: Vec<String> = paths
            .iter()
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect();
        assert!(paths.iter().any(|path| path == "dir/"), "{paths:?}");
        assert!(
            paths
                .iter()
                .all(|path| path.starts_with("dir") || path.starts_with("new")),
            "{paths:?}"
        );
    }
    let (token, _) = workspace.changed_since(&workspace.beginning()).unwrap();
    workspace.back();
    let (_, changed) = workspace.changed_since(&token).unwrap();
    let crate::Changed::Paths(paths) = changed else {
        panic!("everything");
    };
    assert!(paths.contains(&b"dir/sub/"[..]) || paths.contains(&b"dir/"[..]));
    assert_eq!(
        workspace.names(""),
        set(&["a.txt", "empty", "run.sh", "link", "dir", "new"])
    );
}

#[test]
fn one_path_is_taken_back_by_itself() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace.do_write("a.txt", b"one").unwrap();
    workspace.do_remove(&["dir", "run.sh", "empty"]).unwrap();
    workspace.do_write("a.txt", b"two").unwrap();
    let undo = |at: &str| workspace.taken(Direction::Undo, Some(at));
    undo("run.sh").unwrap();
    assert_eq!(workspace.names(""), set(&["a.txt", "link", "run.sh"]));
    assert_eq!(
        workspace.states(),
        [
            (1, OperationState::Done),
            (2, OperationState::PartlyUndone),
            (3, OperationState::Done),
            (4, OperationState::Done)
        ]
    );
    assert!(matches!(
        undo("dir/sub/c.txt").unwrap_err(),
        OperationError::NothingToTakeBack { above: Some(above), .. } if above == path("dir")
    ));
    assert!(matches!(
        undo("run.sh").unwrap_err(),
        OperationError::NothingToTakeBack { above: None, .. }
    ));
    undo("a.txt").unwrap();
    undo("a.txt").unwrap();
    assert_eq!(workspace.text("a.txt"), "alpha\n");
    // The rest of what is left, then forth again.
    workspace.back();
    assert_eq!(
        workspace.names(""),
        set(&["a.txt", "empty", "run.sh", "link", "dir"])
    );
    workspace.taken(Direction::Redo, Some("a.txt")).unwrap();
    assert_eq!(workspace.text("a.txt"), "one");
    workspace.taken(Direction::Redo, Some("dir")).unwrap();
    assert_eq!(
        workspace.names(""),
        set(&["a.txt", "empty", "run.sh", "link"])
    );
    // Who does something else goes on from there.
    workspace.do_write("other", b"x").unwrap();
    assert!(workspace.taken(Direction::Redo, None).is_err());
    workspace.taken(Direction::Redo, Some("a.txt")).unwrap();
    assert_eq!(workspace.text("a.txt"), "two");
}

#[test]
fn what_programs_did_since_is_kept() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace.do_write("a.txt", b"by tine").unwrap();
    workspace.overwrite("a.txt", b"by a program");
    let before = workspace.seen();
    assert_eq!(workspace.back(), [("a.txt".into(), NoteKind::Changed)]);
    assert_eq!(workspace.text("a.txt"), "alpha\n");
    let (there, since) = (workspace.seen(), Timestamp::now());
    workspace.again();
    assert_back(
        &workspace.seen(),
        &before,
        &there,
        since,
        "what a program wrote",
    );

    // Another file in its place, as editors save.
    workspace
        .write_path(ME, &path("saved"), b"an editor's")
        .unwrap();
    workspace
        .rename(
            ME,
            Ino::ROOT,
            b"saved",
            Ino::ROOT,
            b"a.txt",
            RenameMode::Replace,
        )
        .unwrap();
    let before = workspace.seen();
    assert_eq!(workspace.back(), [("a.txt".into(), NoteKind::InTheWay)]);
    assert_eq!(workspace.text("a.txt"), "alpha\n");
    let (there, since) = (workspace.seen(), Timestamp::now());
    workspace.again();
    assert_back(
        &workspace.seen(),
        &before,
        &there,
        since,
        "what an editor saved",
    );

    workspace.do_remove(&["dir"]).unwrap();
    workspace.do_write("other", b"").unwrap();
    workspace.taken(Direction::Undo, Some("other")).unwrap();
    workspace.mkdir(ME, Ino::ROOT, b"dir", 0o755).unwrap();
    workspace
        .write_path(ME, &path("dir/mine"), b"mine")
        .unwrap();
    let before = workspace.seen();
    assert_eq!(
        workspace.taken(Direction::Undo, Some("dir")).unwrap(),
        [("dir".into(), NoteKind::InTheWay)]
    );
    assert_eq!(workspace.text("dir/sub/c.txt"), "gamma\n");
    let (there, since) = (workspace.seen(), Timestamp::now());
    workspace.taken(Direction::Redo, Some("dir")).unwrap();
    assert_back(&workspace.seen(), &before, &there, since, "a directory");

    // Where it is gone there is nothing to move, and nothing happens.
    workspace.do_move("run.sh", "moved.sh").unwrap();
    workspace.remove_path(ME, &path("moved.sh")).unwrap();
    let before = workspace.seen();
    assert!(matches!(
        workspace.taken(Direction::Undo, None).unwrap_err(),
        OperationError::Gone(gone) if gone == path("moved.sh")
    ));
    assert_eq!(workspace.seen(), before);
    // Directories that are missing are made.
    workspace.do_write("deep/er/file", b"x").unwrap();
    workspace.do_remove(&["deep/er/file"]).unwrap();
    workspace.remove_path(ME, &path("deep/er")).unwrap();
    assert_eq!(
        workspace.back(),
        [("deep/er/file".into(), NoteKind::ParentMade)]
    );
    assert_eq!(workspace.text("deep/er/file"), "x");
    workspace
        .write_path(ME, &path("deep/another"), b"")
        .unwrap();
    let notes = workspace.back();
    assert!(
        notes.contains(&("deep".into(), NoteKind::NotEmpty)),
        "{notes:?}"
    );
    assert_eq!(workspace.names("deep"), set(&["another"]));
}

#[test]
fn the_attic_keeps_so_much_and_no_more() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    for index in 0..520_u32 {
        workspace.do_write("a.txt", &index.to_le_bytes()).unwrap();
    }
    let states = workspace.states();
    assert_eq!(states.len(), 500);
    assert_eq!(states[0].0, 21);
    // Each keeps a content: what was let go of is gone.
    let stats = workspace.stats();
    assert!(stats.content_bytes <= 501 * 4096, "{stats:?}");
    for _ in 0..500 {
        if workspace.taken(Direction::Undo, None).is_err() {
            break;
        }
    }
    let first_left = u32::from_le_bytes(
        workspace
            .read_path(&path("a.txt"))
            .unwrap()
            .try_into()
            .unwrap(),
    );
    assert!(first_left >= 19, "{first_left}");
    // However large, the last one is kept, and goes with the next.
    let large = vec![1; 150 << 20];
    for _ in 0..3 {
        workspace.do_write("large", &large).unwrap();
    }
    workspace.do_write("large", b"small").unwrap();
    let kept: u64 = workspace
        .reachable()
        .unwrap()
        .operations()
        .map(|operation| operation.kept_bytes)
        .sum();
    assert!(kept <= 256 << 20, "{kept}");
    workspace.back();
    assert_eq!(workspace.resolve(&path("large")).unwrap().size, 150 << 20);
}

#[test]
fn going_to_another_state_is_an_operation_that_others_take_back() {
    let fixture = Fixture::new();
    let workspace = fixture.open();
    workspace.do_write("a.txt", b"x").unwrap();
    let id = workspace
        .record_switch(BY, "before-restore", OperationKind::Switch, None, None)
        .unwrap();
    let next = workspace.next_to_take_back(Direction::Undo, None).unwrap();
    assert_eq!(
        next.changes,
        [FileChange::Switched {
            before: "before-restore".into(),
            git: None,
        }]
    );
    assert!(matches!(
        workspace.taken(Direction::Undo, None).unwrap_err(),
        OperationError::IsSwitch { id: is, before, git: None } if is == id && before == "before-restore"
    ));
    workspace
        .record_switch(BY, "after-restore", OperationKind::Undo, Some(id), None)
        .unwrap();
    let next = workspace.next_to_take_back(Direction::Undo, None).unwrap();
    assert_eq!(next.kind, OperationKind::Write);
    let next = workspace.next_to_take_back(Direction::Redo, None).unwrap();
    assert_eq!(
        next.changes,
        [FileChange::Switched {
            before: "after-restore".into(),
            git: None,
        }]
    );
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn path(&mut self) -> String {
        let names = ["a.txt", "dir", "sub", "x", "y", "run.sh"];
        let depth = 1 + self.below(3);
        let names: Vec<&str> = (0..depth).map(|_| names[self.below(names.len())]).collect();
        names.join("/")
    }
}

/// A fork whose layers are frozen now and then.
struct Layered {
    fixture: Fixture,
    workspace: Option<Workspace>,
    /// How many are frozen.
    frozen: u64,
}

impl Layered {
    fn new() -> Layered {
        let fixture = Fixture::new();
        let workspace = Some(fixture.open());
        Layered {
            fixture,
            workspace,
            frozen: 0,
        }
    }

    fn dir(&self, number: u64) -> std::path::PathBuf {
        match number {
            0 => self.fixture.place.path().join("layer"),
            _ => self.fixture.place.path().join(format!("layer-{number}")),
        }
    }

    fn get(&self) -> &Workspace {
        self.workspace
            .as_ref()
            .expect("open but while it is reopened")
    }

    fn freeze(&mut self) {
        self.frozen += 1;
        let mut next = Layer::create(&self.dir(self.frozen), LayerId(1 + self.frozen)).unwrap();
        self.get().exclusively(|exclusive| {
            exclusive.prepare(&mut next).unwrap();
            exclusive.freeze(next);
        });
    }

    fn reopen(&mut self) {
        self.workspace = None;
        let frozen = (0..self.frozen)
            .map(|number| FrozenLayer::open_or_seal(&self.dir(number)).unwrap())
            .rev()
            .collect();
        let open = Layer::open(&self.dir(self.frozen)).unwrap();
        self.workspace = Some(self.fixture.over(LayerStack::new(open, frozen)));
    }
}

/// What a path holds, and nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Plain {
    Dir,
    File(Vec<u8>),
    Link,
}

type Model = BTreeMap<String, Plain>;

fn plain(tree: &Tree) -> Model {
    let of = |seen: &Seen| match seen.kind {
        FileKind::Directory => Plain::Dir,
        FileKind::Symlink => Plain::Link,
        _ => Plain::File(seen.content.clone()),
    };
    tree.iter()
        .map(|(path, seen)| (path.clone(), of(seen)))
        .collect()
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

fn beneath(path: &str, dir: &str) -> bool {
    path == dir
        || path
            .strip_prefix(dir)
            .is_some_and(|rest| rest.starts_with('/'))
}

fn model_write(model: &mut Model, at: &str, content: &[u8]) -> bool {
    let mut above = parent(at);
    let mut missing = Vec::new();
    while let Some(dir) = above {
        match model.get(dir) {
            None => missing.push(dir.to_owned()),
            Some(Plain::Dir) => {}
            Some(_) => return false,
        }
        above = parent(dir);
    }
    if matches!(model.get(at), Some(Plain::Dir | Plain::Link)) {
        return false;
    }
    model.extend(missing.into_iter().map(|dir| (dir, Plain::Dir)));
    model.insert(at.to_owned(), Plain::File(content.to_vec()));
    true
}

fn model_move(model: &mut Model, from: &str, to: &str) -> bool {
    let Some(source) = model.get(from).cloned() else {
        return false;
    };
    let to = match model.get(to) {
        Some(Plain::Dir) => format!("{to}/{}", from.rsplit('/').next().unwrap_or(from)),
        _ => to.to_owned(),
    };
    let has_parent = parent(&to).is_none_or(|dir| model.get(dir) == Some(&Plain::Dir));
    let is_into_itself = source == Plain::Dir && beneath(&to, from);
    let is_taken = match model.get(&to) {
        None => false,
        Some(Plain::Dir) => true,
        Some(_) => source == Plain::Dir || to == from,
    };
    if !has_parent || is_into_itself || is_taken || to == from {
        return false;
    }
    let moved: Vec<String> = model
        .keys()
        .filter(|path| beneath(path, from))
        .cloned()
        .collect();
    for path in moved {
        if let Some(plain) = model.remove(&path) {
            model.insert(format!("{to}{}", &path[from.len()..]), plain);
        }
    }
    true
}

fn model_remove(model: &mut Model, at: &str) -> bool {
    let is_there = model.contains_key(at);
    model.retain(|path, _| !beneath(path, at));
    is_there
}

fn seed() -> u64 {
    let given = std::env::var("TINE_OPERATIONS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| Timestamp::now().nanos.into());
    println!("TINE_OPERATIONS_SEED={seed}");
    seed
}

fn rounds() -> usize {
    match std::env::var_os("TINE_SOAK") {
        Some(_) => 200,
        None => 8,
    }
}

#[test]
fn random_operations_are_taken_back_as_a_plain_model_says() {
    let mut random = Random(seed());
    for _ in 0..rounds() {
        let mut layered = Layered::new();
        let mut seen = layered.get().seen();
        let mut model = plain(&seen);
        let mut done: Vec<(Tree, Model)> = Vec::new();
        let mut undone: Vec<(Tree, Model)> = Vec::new();
        for step in 0..60 {
            match random.below(12) {
                0 => layered.freeze(),
                1 => layered.reopen(),
                _ => {}
            }
            let workspace = layered.get();
            let before = (seen.clone(), model.clone());
            let (there, since) = (seen.clone(), Timestamp::now());
            let (first, second) = (random.path(), random.path());
            let content = vec![step as u8; [0, 3, SLOT_MAX as usize + 9][random.below(3)]];
            let (did, expected) = match random.below(9) {
                0..3 => (
                    workspace.do_write(&first, &content).is_ok(),
                    model_write(&mut model, &first, &content),
                ),
                3..5 => (
                    workspace.do_move(&first, &second).is_ok(),
                    model_move(&mut model, &first, &second),
                ),
                5 => (
                    workspace.do_remove(&[&first]).is_ok(),
                    model_remove(&mut model, &first),
                ),
                6 | 7 => {
                    let taken = workspace.taken(Direction::Undo, None);
                    match done.pop() {
                        Some(back) => {
                            assert_eq!(taken.unwrap(), []);
                            undone.push(before);
                            (seen, model) = back;
                        }
                        None => assert!(taken.is_err()),
                    }
                    let now = workspace.seen();
                    assert_back(&now, &seen, &there, since, &format!("step {step}"));
                    seen = now;
                    continue;
                }
                _ => {
                    let taken = workspace.taken(Direction::Redo, None);
                    match undone.pop() {
                        Some(again) => {
                            assert_eq!(taken.unwrap(), []);
                            done.push(before);
                            (seen, model) = again;
                        }
                        None => assert!(taken.is_err()),
                    }
                    let now = workspace.seen();
                    assert_back(&now, &seen, &there, since, &format!("step {step}"));
                    seen = now;
                    continue;
                }
            };
            assert_eq!(did, expected, "step {step}: {first} {second}");
            seen = workspace.seen();
            assert_eq!(plain(&seen), model, "step {step}: {first} {second}");
            if did {
                done.push(before);
                undone.clear();
            }
        }
    }
}

#[test]
fn whatever_programs_did_doing_it_again_is_as_if_nothing_was_taken_back() {
    let mut random = Random(seed());
    for _ in 0..rounds() {
        let mut layered = Layered::new();
        let mut taken = 0;
        for step in 0..80 {
            match random.below(16) {
                0 => layered.freeze(),
                1 => layered.reopen(),
                _ => {}
            }
            let workspace = layered.get();
            let (first, second) = (random.path(), random.path());
            match random.below(10) {
                0..3 => drop(workspace.do_write(&first, &[step as u8; 5])),
                3 => drop(workspace.do_move(&first, &second)),
                4 => drop(workspace.do_remove(&[&first])),
                5 => drop(workspace.write_path(ME, &path(&first), b"a program's")),
                6 => drop(workspace.remove_path(ME, &path(&first))),
                _ => {
                    let scope = (random.below(2) == 0).then(|| first.clone());
                    let before = plain(&workspace.seen());
                    let at = scope.as_deref().map(path);
                    let back = workspace.take_back(BY, Direction::Undo, at.as_ref());
                    // Where all was gone there is nothing to be done again.
                    if back.is_ok_and(|back| !back.operation.changes.is_empty()) {
                        taken += 1;
                        workspace
                            .taken(Direction::Redo, scope.as_deref())
                            .unwrap_or_else(|error| panic!("step {step}, {scope:?}: {error}"));
                        let after = plain(&workspace.seen());
                        let differs = before
                            .iter()
                            .filter(|(path, plain)| after.get(*path) != Some(*plain));
                        let differs: Vec<_> = differs
                            .chain(
                                after
                                    .iter()
                                    .filter(|(path, plain)| before.get(*path) != Some(*plain)),
                            )
                            .collect();
                        assert!(
                            differs.is_empty(),
                            "step {step}, {scope:?}: {differs:?}\n{:#?}",
                            workspace.operations(3)
                        );
                    }
                }
            }
        }
        assert!(taken > 0);
        let workspace = layered.get();
        workspace.delta().unwrap();
        let (_, _) = workspace.changed_since(&workspace.beginning()).unwrap();
    }
}

#[test]
fn regression_what_was_taken_back_where_the_file_was_gone_is_done_again() {
    let layered = Layered::new();
    let workspace = layered.get();
    workspace.do_write("made/a.txt", b"new").unwrap();
    workspace.remove_path(ME, &path("made/a.txt")).unwrap();
    // Only the directory is left of what was made.
    workspace
        .taken(Direction::Undo, Some("made/a.txt"))
        .unwrap();
    assert!(workspace.resolve(&path("made")).is_err());
    workspace
        .taken(Direction::Redo, Some("made/a.txt"))
        .unwrap();
    assert!(workspace.resolve(&path("made")).is_ok());
}
