//! The comparison against a naive model: flatten both sides into maps of paths and compare those.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use tine_attr::{Attr, FileKind, Ino, Timestamp};

/// Trees in memory, and how many were read.
#[derive(Default)]
struct MemoryTrees {
    trees: HashMap<ObjectId, Vec<TreeEntry>>,
    reads: Cell<usize>,
}

impl TreeReader for MemoryTrees {
    fn read_tree(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.trees[&tree_id].clone())
    }

    fn check_file_count(&self, _: ObjectId) -> Result<(), GitError> {
        Ok(())
    }
}

type Flat = BTreeMap<RepoPath, Side>;

impl MemoryTrees {
    /// Adds the tree of these files; equal trees have equal ids.
    fn add(&mut self, files: &Flat) -> ObjectId {
        let mut children: BTreeMap<EntryName, Flat> = BTreeMap::new();
        let mut entries = Vec::new();
        for (path, side) in files {
            let mut names = path.components();
            let first = names.next().expect("no file is the root");
            let mut rest = RepoPath::root();
            names.for_each(|name| rest.push(&name));
            if rest.is_root() {
                let (kind, id) = (side.kind, side.id);
                entries.push(TreeEntry {
                    name: first,
                    kind,
                    id,
                });
            } else {
                children
                    .entry(first)
                    .or_default()
                    .insert(rest, side.clone());
            }
        }
        for (name, files) in children {
            let (kind, id) = (TreeEntryKind::Directory, self.add(&files));
            entries.push(TreeEntry { name, kind, id });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let text = format!("{entries:?}");
        let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
        hasher.update(text.as_bytes());
        let id = hasher.try_finalize().expect("no collision attack here");
        self.trees.insert(id, entries);
        id
    }
}

/// A view, with every node of it.
#[derive(Debug, Clone)]
enum View {
    Dir(ViewTree),
    /// A base file that nothing touched.
    Untouched(Side),
    /// A layer's node: what git would hold of it, if it can.
    Node(Option<Side>),
}

#[derive(Debug, Clone, Default)]
struct ViewTree {
    base: Option<ObjectId>,
    is_submodule: bool,
    children: BTreeMap<EntryName, View>,
}

impl ViewTree {
    fn of_base(trees: &MemoryTrees, base: ObjectId) -> ViewTree {
        let child = |entry: &TreeEntry| match entry.kind {
            TreeEntryKind::Directory => View::Dir(ViewTree::of_base(trees, entry.id)),
            TreeEntryKind::Submodule => View::Dir(ViewTree {
                is_submodule: true,
                ..ViewTree::default()
            }),
            kind => View::Untouched(Side { kind, id: entry.id }),
        };
        ViewTree {
            base: Some(base),
            is_submodule: false,
            children: trees.trees[&base]
                .iter()
                .map(|entry| (entry.name.clone(), child(entry)))
                .collect(),
        }
    }

    fn dir(&mut self, path: &RepoPath) -> Option<&mut ViewTree> {
        path.components()
            .try_fold(self, |dir, name| match dir.children.get_mut(&name)? {
                View::Dir(child) => Some(child),
                _ => None,
            })
    }

    fn put(&mut self, path: &RepoPath, view: View) {
        let (parent, name) = path.split_last().expect("not the root");
        if let Some(dir) = self.dir(&parent) {
            dir.children.insert(name, view);
        }
    }

    fn take(&mut self, path: &RepoPath) -> Option<View> {
        let (parent, name) = path.split_last().expect("not the root");
        self.dir(&parent)?.children.remove(&name)
    }

    /// What a workspace would say of it: only what differs from the base.
    fn delta(&self, trees: &MemoryTrees) -> DeltaDir {
        let base: BTreeMap<&EntryName, &TreeEntry> = match self.base {
            Some(base) => trees.trees[&base].iter().map(|e| (&e.name, e)).collect(),
            None => BTreeMap::new(),
        };
        let mut entries = BTreeMap::new();
        for name in base
            .keys()
            .filter(|name| !self.children.contains_key(**name))
        {
            entries.insert((*name).clone(), DeltaEntry::Absent);
        }
        for (name, child) in &self.children {
            let beneath = base.get(name);
            let entry = match child {
                View::Untouched(side)
                    if beneath.is_some_and(|e| e.id == side.id && e.kind == side.kind) =>
                {
                    continue;
                }
                View::Untouched(side) => DeltaEntry::Node(node(Some(side))),
                View::Node(side) => DeltaEntry::Node(node(side.as_ref())),
                View::Dir(dir) => {
                    let delta = dir.delta(trees);
                    let is_in_place = match (dir.base, beneath) {
                        (Some(id), Some(beneath)) => id == beneath.id,
                        (None, Some(beneath)) => {
                            dir.is_submodule && beneath.kind == TreeEntryKind::Submodule
                        }
                        (_, None) => false,
                    };
                    if is_in_place && delta.entries.is_empty() {
                        continue;
                    }
                    DeltaEntry::Directory(delta)
                }
            };
            entries.insert(name.clone(), entry);
        }
        DeltaDir {
            ino: Ino(2),
            base_tree_id: self.base,
            is_submodule: self.is_submodule,
            entries,
        }
    }
}

fn node(side: Option<&Side>) -> DeltaNode {
    let (kind, perm) = match side.map(|side| side.kind) {
        Some(TreeEntryKind::Executable) => (FileKind::Regular, 0o755),
        Some(TreeEntryKind::Symlink) => (FileKind::Symlink, 0o777),
        Some(_) => (FileKind::Regular, 0o644),
        None => (FileKind::Fifo, 0o644),
    };
    let time = Timestamp::from_secs(1);
    DeltaNode {
        attr: Attr {
            ino: Ino(2),
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
        },
        blob_id: side.map(|side| side.id),
        link_target: None,
        origin: None,
    }
}

/// What a comparison says, or should say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reported {
    changes: BTreeMap<RepoPath, (Option<Side>, Option<Side>)>,
    ignored: BTreeSet<RepoPath>,
    /// With the gitlink that the tree has, and whether the rule matches.
    nested: BTreeMap<RepoPath, (Option<Side>, bool)>,
    left_out: BTreeSet<RepoPath>,
}

/// Whatever is called `ig`, or lies beneath such a thing.
fn rule(path: &RepoPath) -> bool {
    path.components().any(|name| name.as_bytes() == b"ig")
}

fn naive(head: &Flat, view: &ViewTree) -> Reported {
    let mut reported = Reported::default();
    let mut flat = Flat::new();
    flatten(head, view, &RepoPath::root(), &mut flat, &mut reported);
    let paths: BTreeSet<&RepoPath> = head.keys().chain(flat.keys()).collect();
    for path in paths {
        let (old, new) = (head.get(path), flat.get(path));
        if old == new {
            continue;
        }
        if old.is_none() && rule(path) {
            reported.ignored.insert(path.clone());
        } else {
            reported
                .changes
                .insert(path.clone(), (old.cloned(), new.cloned()));
        }
    }
    reported
}

fn flatten(head: &Flat, dir: &ViewTree, at: &RepoPath, flat: &mut Flat, reported: &mut Reported) {
    for (name, child) in &dir.children {
        if name.as_bytes() == b".git" {
            continue;
        }
        let path = at.join(name);
        match child {
            View::Untouched(side) | View::Node(Some(side)) => {
                flat.insert(path, side.clone());
            }
            View::Node(None) => {
                if !rule(&path) {
                    reported.left_out.insert(path);
                }
            }
            View::Dir(child) => {
                let is_repository = child.children.contains_key(b".git".as_slice());
                let gitlink = head
                    .get(&path)
                    .filter(|side| side.kind == TreeEntryKind::Submodule);
                let is_tracked = head
                    .keys()
                    .any(|other| other != &path && other.starts_with(&path));
                if let Some(side) = gitlink {
                    if is_repository {
                        reported
                            .nested
                            .insert(path.clone(), (Some(side.clone()), false));
                    }
                    flat.insert(path, side.clone());
                } else if is_tracked || !is_repository {
                    flatten(head, child, &path, flat, reported);
                } else {
                    let is_ignored = rule(&path);
                    reported.nested.insert(path, (None, is_ignored));
                }
            }
        }
    }
}

fn reported(comparison: Comparison<'_>) -> Reported {
    let mut reported = Reported::default();
    for Candidate { path, old, new } in comparison.candidates {
        let new = match new {
            Found::Nothing => None,
            Found::Stored(side) => Some(side),
            Found::Node(node) => Some(Side {
                kind: node.tree_kind().expect("only what git can hold"),
                id: node.blob_id.expect("given above"),
            }),
        };
        if old != new {
            assert!(
                reported.changes.insert(path, (old, new)).is_none(),
                "named twice"
            );
        }
    }
    for candidate in comparison.ignored {
        assert!(candidate.old.is_none(), "what HEAD has is never ignored");
        assert!(reported.ignored.insert(candidate.path), "named twice");
    }
    for NestedRepository {
        path,
        old,
        is_ignored,
    } in comparison.nested
    {
        let before = reported.nested.insert(path, (old, is_ignored));
        assert!(before.is_none(), "named twice");
    }
    for path in comparison.left_out {
        assert!(reported.left_out.insert(path), "named twice");
    }
    reported
}

fn blob(number: u8) -> ObjectId {
    ObjectId::from_bytes_or_panic(&[number; 20])
}

fn path(text: &str) -> RepoPath {
    RepoPath::parse(text).expect("a good path")
}

fn file(number: u8) -> Side {
    Side {
        kind: TreeEntryKind::File,
        id: blob(number),
    }
}

/// Puts a file where no file is above it and no directory in its place.
fn insert_if_possible(files: &mut Flat, path: RepoPath, side: Side) {
    let clashes =
        |other: &RepoPath| other != &path && (other.starts_with(&path) || path.starts_with(other));
    if !files.keys().any(clashes) {
        files.insert(path, side);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(RepoPath, Side),
    Fifo(RepoPath),
    MakeDir(RepoPath),
    Remove(RepoPath),
    Rename(RepoPath, RepoPath),
}

fn any_path() -> impl Strategy<Value = RepoPath> {
    let name = prop::sample::select(vec!["a", "b", "c.d", "ig"]);
    prop::collection::vec(name, 1..4).prop_map(|names| path(&names.join("/")))
}

fn any_side(submodules: bool) -> impl Strategy<Value = Side> {
    use TreeEntryKind::{Executable, File, Submodule, Symlink};
    let kinds = if submodules {
        vec![File, File, Executable, Symlink, Submodule]
    } else {
        vec![File, File, Executable, Symlink]
    };
    (prop::sample::select(kinds), 1u8..4).prop_map(|(kind, number)| Side {
        kind,
        id: blob(number),
    })
}

fn any_files() -> impl Strategy<Value = Flat> {
    prop::collection::vec((any_path(), any_side(true)), 0..12).prop_map(|files| {
        let mut flat = Flat::new();
        for (path, side) in files {
            insert_if_possible(&mut flat, path, side);
        }
        flat
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any_path(), any_side(false)).prop_map(|(path, side)| Step::Write(path, side)),
        1 => any_path().prop_map(Step::Fifo),
        2 => any_path().prop_map(Step::MakeDir),
        2 => any_path().prop_map(Step::Remove),
        3 => (any_path(), any_path()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => any_path().prop_map(|dir| Step::Write(dir.join(&EntryName::new(".git").unwrap()), file(9))),
    ]
}

fn apply(view: &mut ViewTree, step: Step) {
    match step {
        Step::Write(path, side) => view.put(&path, View::Node(Some(side))),
        Step::Fifo(path) => view.put(&path, View::Node(None)),
        Step::MakeDir(path) => view.put(&path, View::Dir(ViewTree::default())),
        Step::Remove(path) => {
            view.take(&path);
        }
        Step::Rename(from, to) => {
            let parent = to.split_last().expect("not the root").0;
            if to.starts_with(&from) || view.dir(&parent).is_none() {
                return;
            }
            if let Some(moved) = view.take(&from) {
                view.put(&to, moved);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A comparison finds exactly what flattening the whole view and the whole of HEAD finds.
    #[test]
    fn compare_finds_what_a_naive_comparison_finds(
        base in any_files(),
        edits in prop::collection::vec((any_path(), prop::option::of(any_side(true))), 0..6),
        steps in prop::collection::vec(any_step(), 0..12),
    ) {
        let mut head = base.clone();
        for (path, side) in edits {
            match side {
                Some(side) => insert_if_possible(&mut head, path, side),
                None => head.retain(|other, _| !other.starts_with(&path)),
            }
        }
        let mut trees = MemoryTrees::default();
        let (base, head_tree) = (trees.add(&base), trees.add(&head));
        let mut view = ViewTree::of_base(&trees, base);
        for step in steps {
            apply(&mut view, step);
        }
        let delta = Delta { root: view.delta(&trees) };
        let options = CompareOptions { file_mode: true };
        let mut is_ignored = |path: &RepoPath, _| Ok(rule(path));
        let comparison = compare(&trees, &delta, head_tree, options, &mut is_ignored).unwrap();
        let sorted = comparison.candidates.is_sorted_by_key(|candidate| &candidate.path);
        prop_assert!(sorted, "candidates are sorted");
        prop_assert_eq!(reported(comparison), naive(&head, &view));
    }

    /// Two trees differ where their flat lists differ, gitlinks included.
    #[test]
    fn trees_differ_where_their_lists_differ(old in any_files(), new in any_files()) {
        let mut trees = MemoryTrees::default();
        let (old_id, new_id) = (trees.add(&old), trees.add(&new));
        let found: Vec<_> = compare_trees(&trees, old_id, new_id)
            .unwrap()
            .into_iter()
            .map(|change| (change.path, change.old, change.new))
            .collect();
        let expected: Vec<_> = old
            .keys()
            .chain(new.keys())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .filter(|path| old.get(*path) != new.get(*path))
            .map(|path| (path.clone(), old.get(path).cloned(), new.get(path).cloned()))
            .collect();
        prop_assert_eq!(found, expected);
    }
}

fn files(list: &[(&str, u8)]) -> Flat {
    list.iter()
        .map(|(at, number)| (path(at), file(*number)))
        .collect()
}

fn silent(base: ObjectId) -> Delta {
    Delta {
        root: DeltaDir {
            ino: Ino::ROOT,
            base_tree_id: Some(base),
            is_submodule: false,
            entries: BTreeMap::new(),
        },
    }
}

/// Invariant 6: status costs O(changes), never O(tree).
#[test]
fn an_untouched_fork_is_compared_without_reading_a_tree() {
    let mut trees = MemoryTrees::default();
    let base = trees.add(&files(&[("a/b", 1), ("c", 2)]));
    let delta = silent(base);
    let options = CompareOptions { file_mode: true };
    let found = compare(&trees, &delta, base, options, &mut |_, _| Ok(false)).unwrap();
    assert!(found.candidates.is_empty());
    assert_eq!(trees.reads.get(), 0);
}

#[test]
fn only_the_way_to_a_difference_between_base_and_head_is_read() {
    let mut trees = MemoryTrees::default();
    let wide: Vec<(String, u8)> = (0..50).map(|n| (format!("d{n}/x/f"), 1)).collect();
    let mut list: Vec<(&str, u8)> = wide.iter().map(|(path, n)| (path.as_str(), *n)).collect();
    let base = trees.add(&files(&list));
    list.push(("d7/x/g", 2));
    let head = trees.add(&files(&list));
    let delta = silent(base);
    let options = CompareOptions { file_mode: true };
    let found = compare(&trees, &delta, head, options, &mut |_, _| Ok(false)).unwrap();
    assert_eq!(found.candidates.len(), 1);
    assert_eq!(found.candidates[0].path, path("d7/x/g"));
    assert_eq!(trees.reads.get(), 6, "root, d7 and d7/x, on both sides");
}

#[test]
fn an_ignored_directory_is_asked_about_once() {
    let mut trees = MemoryTrees::default();
    let base = trees.add(&files(&[("a", 1)]));
    let mut view = ViewTree::of_base(&trees, base);
    apply(&mut view, Step::MakeDir(path("ig")));
    for n in 0..20 {
        apply(&mut view, Step::Write(path(&format!("ig/f{n}")), file(1)));
    }
    let delta = Delta {
        root: view.delta(&trees),
    };
    let mut asked = Vec::new();
    let mut is_ignored = |path: &RepoPath, is_dir| {
        asked.push((path.clone(), is_dir));
        Ok(true)
    };
    let options = CompareOptions { file_mode: true };
    let found = compare(&trees, &delta, base, options, &mut is_ignored).unwrap();
    assert_eq!(found.ignored.len(), 20);
    assert_eq!(asked, [(path("ig"), true)]);
}

#[test]
fn without_file_mode_an_executable_bit_is_no_change() {
    let mut trees = MemoryTrees::default();
    let base = trees.add(&files(&[("a", 1)]));
    let new = Side {
        kind: TreeEntryKind::Executable,
        id: blob(1),
    };
    let head = trees.add(&Flat::from([(path("a"), new.clone())]));
    let delta = silent(base);
    for (file_mode, expected) in [(true, 1), (false, 0)] {
        let options = CompareOptions { file_mode };
        let found = compare(&trees, &delta, head, options, &mut |_, _| Ok(false)).unwrap();
        assert_eq!(
            found.candidates.len(),
            expected,
            "core.fileMode={file_mode}"
        );
    }
    let options = CompareOptions { file_mode: false };
    assert_eq!(
        effective_kind(options, Some(&new), TreeEntryKind::File),
        TreeEntryKind::Executable,
        "a tracked file keeps the mode it had"
    );
    assert_eq!(
        effective_kind(options, None, TreeEntryKind::Executable),
        TreeEntryKind::File
    );
}

#[test]
fn names_that_differ_from_dot_git_only_in_case_are_left_out() {
    let mut trees = MemoryTrees::default();
    let base = trees.add(&files(&[("a", 1)]));
    let mut view = ViewTree::of_base(&trees, base);
    apply(&mut view, Step::Write(path(".GIT"), file(2)));
    let delta = Delta {
        root: view.delta(&trees),
    };
    let options = CompareOptions { file_mode: true };
    let found = compare(&trees, &delta, base, options, &mut |_, _| Ok(false)).unwrap();
    assert!(found.candidates.is_empty());
    assert_eq!(found.left_out, [path(".GIT")]);
}

/// A thread of the daemon has a small stack, and nobody limits how deep directories go.
#[test]
fn a_very_deep_directory_is_compared() {
    let mut trees = MemoryTrees::default();
    let base = trees.add(&files(&[("a", 1)]));
    let empty = || DeltaDir {
        ino: Ino(2),
        base_tree_id: None,
        is_submodule: false,
        entries: BTreeMap::new(),
    };
    let name = EntryName::new("d").unwrap();
    let mut dir = empty();
    dir.entries
        .insert(name.clone(), DeltaEntry::Node(node(Some(&file(1)))));
    for _ in 0..400 {
        let mut above = empty();
        above
            .entries
            .insert(name.clone(), DeltaEntry::Directory(dir));
        dir = above;
    }
    dir.base_tree_id = Some(base);
    let delta = Delta { root: dir };
    let options = CompareOptions { file_mode: true };
    let found = compare(&trees, &delta, base, options, &mut |_, _| Ok(false)).unwrap();
    assert_eq!(found.candidates.len(), 1);
}
