//! A fork and its main checkout are changed at random, and the fork shows what a simple model of
//! both says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::{ME, path};
use super::Carried;
use crate::{FsError, RenameMode, SetAttr, Workspace};
use tine_attr::{FileKind, Ino};

/// Where everything happens: in the carried directory, and one place outside.
const PATHS: [&str; 14] = [
    "target",
    "target/a",
    "target/b",
    "target/d",
    "target/d/a",
    "target/d/b",
    "target/d/e",
    "target/d/e/a",
    "target/e",
    "target/e/a",
    "target/deps",
    "target/deps/b",
    "own",
    "own/a",
];

#[derive(Debug, Clone, Copy)]
enum Step {
    Write(&'static str, u8),
    Append(&'static str, u8),
    ChangeMode(&'static str),
    Remove(&'static str),
    MakeDir(&'static str),
    Rename(&'static str, &'static str),
    /// In the main checkout.
    MainWrite(&'static str, u8),
    MainRemove(&'static str),
    MainMakeDir(&'static str),
    MainRename(&'static str, &'static str),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let path = || prop::sample::select(&PATHS[..]);
    prop_oneof![
        3 => (path(), any::<u8>()).prop_map(|(path, byte)| Step::Write(path, byte)),
        2 => (path(), any::<u8>()).prop_map(|(path, byte)| Step::Append(path, byte)),
        1 => path().prop_map(Step::ChangeMode),
        3 => path().prop_map(Step::Remove),
        2 => path().prop_map(Step::MakeDir),
        4 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => (path(), any::<u8>()).prop_map(|(path, byte)| Step::MainWrite(path, byte)),
        3 => path().prop_map(Step::MainRemove),
        2 => path().prop_map(Step::MainMakeDir),
        2 => (path(), path()).prop_map(|(from, to)| Step::MainRename(from, to)),
        1 => Just(Step::Reopen),
    ]
}

/// What the fork has of its own.
enum Node {
    File(Vec<u8>),
    Dir(Dir),
}

#[derive(Default)]
struct Dir {
    /// `None` is a whiteout.
    own: BTreeMap<String, Option<Node>>,
    /// The directory of the main checkout that shows where this one is silent.
    carried: Option<String>,
}

/// What is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    File(Vec<u8>),
    Dir,
}

struct Model {
    main: PathBuf,
    root: Dir,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Model {
    /// Where the main checkout would have what is at `name` in this directory.
    fn beneath(&self, dir: &Dir, is_root: bool, name: &str) -> Option<String> {
        match &dir.carried {
            Some(carried) => Some(format!("{carried}/{name}")),
            None => (is_root && name == "target").then(|| name.to_owned()),
        }
    }

    fn main_seen(&self, path: &str) -> Option<Seen> {
        let host = self.main.join(path);
        let meta = host.symlink_metadata().ok()?;
        match meta.is_dir() {
            true if self.has_elsewhere(&self.root, path) => None,
            true => Some(Seen::Dir),
            // It was chosen as a directory.
            false if path == "target" => None,
            false => Some(Seen::File(fs::read(host).unwrap())),
        }
    }

    /// Whether the fork has the carried directory somewhere as its own.
    fn has_elsewhere(&self, dir: &Dir, path: &str) -> bool {
        dir.own.values().flatten().any(|node| match node {
            Node::Dir(dir) => dir.carried.as_deref() == Some(path) || self.has_elsewhere(dir, path),
            Node::File(_) => false,
        })
    }

    fn seen(&self, path: &str) -> Option<Seen> {
        let mut dir = &self.root;
        let mut names = path.split('/').enumerate().peekable();
        while let Some((depth, name)) = names.next() {
            match dir.own.get(name) {
                Some(None) => return None,
                Some(Some(Node::File(content))) => {
                    return names.peek().is_none().then(|| Seen::File(content.clone()));
                }
                Some(Some(Node::Dir(next))) => dir = next,
                None => {
                    let mut at = self.beneath(dir, depth == 0, name)?;
                    let mut seen = self.main_seen(&at)?;
                    for (_, name) in names {
                        if seen != Seen::Dir {
                            return None;
                        }
                        at = format!("{at}/{name}");
                        seen = self.main_seen(&at)?;
                    }
                    return Some(seen);
                }
            }
        }
        Some(Seen::Dir)
    }

    /// The directory as the fork's own, with those above it.
    fn own_dir(&mut self, path: &str) -> &mut Dir {
        let main = self.main.clone();
        let mut dir = &mut self.root;
        for (depth, name) in path.split('/').filter(|name| !name.is_empty()).enumerate() {
            let carried = match &dir.carried {
                Some(carried) => Some(format!("{carried}/{name}")),
                None => (depth == 0 && name == "target").then(|| name.to_owned()),
            };
            let node = dir.own.entry(name.to_owned()).or_insert_with(|| {
                assert!(main.join(carried.as_ref().unwrap()).is_dir());
                Some(Node::Dir(Dir {
                    own: BTreeMap::new(),
                    carried,
                }))
            });
            match node {
                Some(Node::Dir(next)) => dir = next,
                _ => panic!("{path} is not a directory"),
            }
        }
        dir
    }

    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.seen(path) == Some(Seen::Dir)
    }

    fn is_empty(&self, path: &str) -> bool {
        self.names(path).is_empty()
    }

    /// All names in PATHS' alphabet.
    fn names(&self, path: &str) -> Vec<String> {
        let names = ["a", "b", "d", "e", "deps", "own", "target", "link"];
        names
            .iter()
            .filter(|name| self.seen(&join(path, name)).is_some())
            .map(|name| (*name).to_owned())
            .collect()
    }

    fn put(&mut self, path: &str, node: Node) {
        let (parent, name) = split(path);
        self.own_dir(parent).own.insert(name.to_owned(), Some(node));
    }

    /// Takes the name away, so that nothing beneath shows.
    fn drop_name(&mut self, path: &str) {
        let (parent, name) = split(path);
        let dir = self.own_dir(parent);
        dir.own.remove(name);
        let beneath = match &dir.carried {
            Some(carried) => Some(format!("{carried}/{name}")),
            None => (path == "target").then(|| path.to_owned()),
        };
        let is_beneath = |beneath: &String| {
            let host = self.main.join(beneath);
            host.exists() && (beneath != "target" || host.is_dir())
        };
        if beneath.as_ref().is_some_and(is_beneath) {
            self.own_dir(parent).own.insert(name.to_owned(), None);
        }
    }

    /// Takes the node from its name.
    fn take(&mut self, path: &str) -> Node {
        let (parent, name) = split(path);
        let node = match self.seen(path).unwrap() {
            Seen::File(content) => Node::File(content),
            Seen::Dir => {
                self.own_dir(path);
                self.own_dir(parent).own.remove(name).unwrap().unwrap()
            }
        };
        self.drop_name(path);
        node
    }

    /// Does what the step says to the fork; whether that can be done.
    fn fork_step(&mut self, step: Step) -> bool {
        match step {
            Step::Write(path, byte) => {
                let may = self.is_dir(split(path).0) && !self.is_dir(path);
                if may {
                    self.put(path, Node::File(vec![byte; 3]));
                }
                may
            }
            Step::Append(path, byte) => match self.seen(path) {
                Some(Seen::File(mut content)) => {
                    content.push(byte);
                    self.put(path, Node::File(content));
                    true
                }
                _ => false,
            },
            Step::ChangeMode(path) => match self.seen(path) {
                Some(Seen::File(content)) => {
                    self.put(path, Node::File(content));
                    true
                }
                Some(Seen::Dir) => {
                    self.own_dir(path);
                    true
                }
                None => false,
            },
            Step::Remove(path) => match self.seen(path) {
                Some(Seen::Dir) if !self.is_empty(path) => false,
                Some(_) => {
                    self.drop_name(path);
                    true
                }
                None => false,
            },
            Step::MakeDir(path) => {
                let may = self.is_dir(split(path).0) && self.seen(path).is_none();
                if may {
                    self.put(path, Node::Dir(Dir::default()));
                }
                may
            }
            Step::Rename(from, to) => {
                let (Some(source), true) = (self.seen(from), self.is_dir(split(to).0)) else {
                    return false;
                };
                let is_dir = source == Seen::Dir;
                if from == to {
                    return true;
                }
                if is_dir && Path::new(to).starts_with(from) {
                    return false;
                }
                match self.seen(to) {
                    Some(Seen::Dir) if !is_dir || !self.is_empty(to) => return false,
                    Some(Seen::File(_)) if is_dir => return false,
                    _ => {}
                }
                let node = self.take(from);
                self.put(to, node);
                true
            }
            _ => true,
        }
    }

    fn main_step(&self, step: Step) {
        let at = |path: &str| self.main.join(path);
        // What cannot be done is left.
        let _ = match step {
            Step::MainWrite(path, byte) => fs::write(at(path), [byte; 5]),
            Step::MainRemove(path) if at(path).is_dir() => fs::remove_dir_all(at(path)),
            Step::MainRemove(path) => fs::remove_file(at(path)),
            Step::MainMakeDir(path) => fs::create_dir(at(path)),
            Step::MainRename(from, to) => fs::rename(at(from), at(to)),
            _ => Ok(()),
        };
    }
}

fn join(dir: &str, name: &str) -> String {
    match dir {
        "" => name.to_owned(),
        dir => format!("{dir}/{name}"),
    }
}

/// The number of what is at `path`, with everything on the way remembered.
fn reach(workspace: &Workspace, text: &str) -> Result<Ino, FsError> {
    let mut ino = Ino::ROOT;
    for name in path(text).components() {
        ino = workspace.lookup(ino, name.as_bytes())?.ino;
    }
    Ok(ino)
}

fn carry_out(workspace: &Workspace, step: Step) -> Result<(), FsError> {
    match step {
        Step::Write(at, byte) => workspace.write_path(ME, &path(at), &[byte; 3]),
        Step::Append(at, byte) => {
            let ino = reach(workspace, at)?;
            let attr = workspace.getattr(ino)?;
            match attr.kind {
                FileKind::Regular => workspace.write(ino, attr.size, &[byte], None),
                _ => Err(FsError::IsADirectory),
            }
        }
        Step::ChangeMode(at) => {
            let set = SetAttr {
                perm: Some(0o700),
                ..SetAttr::default()
            };
            workspace.setattr(ME, reach(workspace, at)?, &set).map(drop)
        }
        Step::Remove(at) => workspace.remove_path(ME, &path(at)),
        Step::MakeDir(at) => {
            let (parent, name) = split(at);
            let parent = reach(workspace, parent)?;
            workspace
                .mkdir(ME, parent, name.as_bytes(), 0o755)
                .map(drop)
        }
        Step::Rename(from, to) => {
            let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
            let (from_dir, to_dir) = (reach(workspace, from_dir)?, reach(workspace, to_dir)?);
            let mode = RenameMode::Replace;
            workspace.rename(ME, from_dir, from.as_bytes(), to_dir, to.as_bytes(), mode)
        }
        _ => Ok(()),
    }
}

fn compare(workspace: &Workspace, model: &Model, at: &str) {
    let mut expected: Vec<String> = model.names(at);
    expected.sort();
    if at.is_empty() {
        expected.retain(|name| name == "own" || name == "target");
    }
    let listed = workspace.list_path(&path(at)).unwrap();
    let mut names: Vec<String> = listed.iter().map(|(name, _, _)| name.to_string()).collect();
    names.sort();
    if at.is_empty() {
        names.retain(|name| name == "own" || name == "target");
    }
    assert_eq!(names, expected, "in {at:?}");
    for name in names {
        let below = join(at, &name);
        match model.seen(&below).unwrap() {
            Seen::Dir => compare(workspace, model, &below),
            Seen::File(content) => {
                assert_eq!(
                    workspace.read_path(&path(&below)).unwrap(),
                    content,
                    "{below}"
                );
            }
        }
    }
}

fn case(steps: &[Step]) {
    let carried = Carried::new();
    fs::remove_file(carried.main.join("target/deps/link")).unwrap();
    let mut model = Model {
        main: carried.main.clone(),
        root: Dir::default(),
    };
    let mut workspace = Some(carried.open());
    for step in steps {
        if let Step::Reopen = step {
            workspace = None;
        }
        let open = workspace.get_or_insert_with(|| carried.open());
        model.main_step(*step);
        let expected = model.fork_step(*step);
        let done = carry_out(open, *step);
        assert_eq!(done.is_ok(), expected, "{step:?}: {done:?}");
        open.forget_all();
        compare(open, &model, "");
        open.delta().unwrap();
    }
}

/// Reading what changed a moment ago waits for the clock, so a case takes half a second.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_fork_shows_its_own_over_what_the_main_checkout_has(steps in prop::collection::vec(step(), 1..40)) {
        case(&steps);
    }
}
