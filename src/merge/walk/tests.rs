use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

fn path(path: &str) -> RepoPath {
    RepoPath::parse(path).unwrap()
}

/// Blobs are numbers; those past 100 are no text.
fn blob(number: u32) -> ObjectId {
    ObjectId::from_hex(format!("b{number:039}").as_bytes()).unwrap()
}

/// All files of a tree.
type Files = BTreeMap<RepoPath, Entry>;

/// `path=number`, with `x` (executable), `l` (symlink) or `s` (submodule) behind the number.
fn files(text: &str) -> Files {
    let file = |word: &str| {
        let (name, content) = word.split_once('=').unwrap();
        let number = content.trim_end_matches(['x', 'l', 's']);
        let kind = match &content[number.len()..] {
            "x" => TreeEntryKind::Executable,
            "l" => TreeEntryKind::Symlink,
            "s" => TreeEntryKind::Submodule,
            _ => TreeEntryKind::File,
        };
        (path(name), (kind, blob(number.parse().unwrap())))
    };
    text.split_whitespace().map(file).collect()
}

#[derive(Default)]
struct Memory {
    trees: HashMap<ObjectId, Vec<TreeEntry>>,
    read: Cell<usize>,
}

impl Memory {
    fn write(&mut self, files: &Files) -> ObjectId {
        let mut here: BTreeMap<EntryName, Entry> = BTreeMap::new();
        let mut beneath: BTreeMap<EntryName, Files> = BTreeMap::new();
        for (at, entry) in files {
            let mut names = at.components();
            let first = names.next().unwrap();
            let rest = names.fold(RepoPath::root(), |path, name| path.join(&name));
            if rest.is_root() {
                here.insert(first, *entry);
            } else {
                beneath.entry(first).or_default().insert(rest, *entry);
            }
        }
        for (name, files) in beneath {
            let id = self.write(&files);
            here.insert(name, (TreeEntryKind::Directory, id));
        }
        let entries: Vec<TreeEntry> = here
            .into_iter()
            .map(|(name, (kind, id))| TreeEntry { name, kind, id })
            .collect();
        let known = self.trees.iter().find(|(_, known)| **known == entries);
        if let Some((id, _)) = known {
            return *id;
        }
        let id = ObjectId::from_hex(format!("a{:039}", self.trees.len()).as_bytes()).unwrap();
        self.trees.insert(id, entries);
        id
    }

    fn files(&self, tree_id: ObjectId) -> Files {
        let mut all = Files::new();
        for entry in &self.trees[&tree_id] {
            let name = RepoPath::root().join(&entry.name);
            if entry.kind != TreeEntryKind::Directory {
                all.insert(name, (entry.kind, entry.id));
                continue;
            }
            for (below, file) in self.files(entry.id) {
                let whole = below
                    .components()
                    .fold(name.clone(), |path, name| path.join(&name));
                all.insert(whole, file);
            }
        }
        all
    }

    /// As `Repository::edit_tree`: removals first.
    fn edited(&self, files: &Files, changes: &[TreeChange]) -> Files {
        let mut edited = files.clone();
        for change in changes.iter().filter(|change| change.new.is_none()) {
            edited.retain(|path, _| !path.starts_with(&change.path));
        }
        for change in changes {
            match change.new {
                Some((TreeEntryKind::Directory, id)) => {
                    for (below, file) in self.files(id) {
                        let whole = below
                            .components()
                            .fold(change.path.clone(), |path, name| path.join(&name));
                        edited.insert(whole, file);
                    }
                }
                Some(file) => {
                    edited.insert(change.path.clone(), file);
                }
                None => {}
            }
        }
        edited
    }
}

impl Trees for Memory {
    fn entries(&self, tree_id: ObjectId) -> Result<Vec<TreeEntry>, GitError> {
        self.read.set(self.read.get() + 1);
        Ok(self.trees[&tree_id].clone())
    }

    fn is_binary(&self, blob_id: ObjectId) -> Result<bool, GitError> {
        Ok(blob_id > blob(100))
    }
}

/// The merged files and the conflicts.
fn merged(base: &Files, ours: &Files, theirs: &Files) -> (Files, Vec<Conflict>) {
    let mut memory = Memory::default();
    let [base, ours_id, theirs] = [base, ours, theirs].map(|files| memory.write(files));
    let walked = walk(&memory, Some(base), ours_id, theirs).unwrap();
    (memory.edited(ours, &walked.changes), walked.conflicts)
}

/// Base, ours, theirs; the merged tree, and the conflicts.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [(ConflictKind, &'static str)],
);

#[test]
fn each_kind_of_change_is_merged() {
    use ConflictKind::*;
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("a=1", "a=1 b=2", "a=1 d/c=3", "a=1 b=2 d/c=3", &[]),
        ("a=1 b=1", "a=2 b=1", "a=1 b=3x", "a=2 b=3x", &[]),
        ("a=1 d/b=1", "a=1", "d/b=1", "", &[]),
        ("a=1", "a=2", "a=2", "a=2", &[]),
        ("a=1", "", "", "", &[]),
        ("", "a=2", "a=2", "a=2", &[]),
        // The executable bit by itself.
        ("a=1", "a=1x", "a=2", "a=2x", &[]),
        ("a=1x", "a=2x", "a=1", "a=2", &[]),
        ("", "a=1", "a=1x", "", &[(ModeChanged, "a")]),
        ("a=1l", "a=2", "a=2x", "", &[(ModeChanged, "a")]),
        ("a=1", "a=2x", "a=3", "", &[(BothModified, "a")]),
        // What excludes each other.
        ("a=1 z=1", "a=2 z=1", "a=3 z=1", "z=1", &[(BothModified, "a")]),
        ("", "a=2", "a=3", "", &[(BothAdded, "a")]),
        ("a=1l", "a=2l", "a=3l", "", &[(BothModified, "a")]),
        ("a=1", "a=2", "", "", &[(ModifyDelete, "a")]),
        ("a=1", "", "a=1x", "", &[(ModifyDelete, "a")]),
        ("a=1", "a=101", "a=2", "", &[(Binary, "a")]),
        ("", "a=2", "a=101", "", &[(Binary, "a")]),
        ("a=101", "a=101x", "a=102", "a=102x", &[]),
        ("a=1", "a=1l", "a=2", "", &[(TypeChanged, "a")]),
        ("", "a=1l", "a=1", "", &[(TypeChanged, "a")]),
        ("a=1s", "a=2s", "a=3s", "", &[(Submodule, "a")]),
        ("a=1", "a=2s", "a=3", "", &[(Submodule, "a")]),
        ("a=1s", "a=2s", "a=1s", "a=2s", &[]),
        // Files and directories.
        ("a=1", "a=1", "a/b=2", "a/b=2", &[]),
        ("a/b=1", "a/b=1", "a=2", "a=2", &[]),
        ("a/b=1", "a=2", "a/b=1", "a=2", &[]),
        ("a=1", "a=2", "a/b=3", "a/b=3", &[(DirectoryFile, "a")]),
        ("", "a/b=3", "a=2", "a/b=3", &[(DirectoryFile, "a")]),
        ("a/b=1", "a/b=2", "a=3", "", &[(DirectoryFile, "a"), (ModifyDelete, "a/b")]),
        ("a/b=1 a/c=1", "a/b=1", "a=3", "a=3", &[]),
        ("a/b=1 a/c=1", "a=3", "a/b=1", "a=3", &[]),
        ("a/b=1", "a=1", "a=2", "", &[(BothAdded, "a")]),
        ("a/b=1", "a=1", "", "a=1", &[]),
        ("a=1", "a/b=1", "", "a/b=1", &[]),
        ("a=1", "a/b=1", "a/c=2", "a/b=1 a/c=2", &[]),
        ("a/b/c=1", "a/b/c=1 a/b/d=1", "a=2", "a/b/d=1", &[(DirectoryFile, "a")]),
        ("a/b/c=1 a/x=1", "a/b/c=1", "a=2", "a=2", &[]),
        ("a/b/c=1", "a/b=2", "a=3", "a/b=2", &[(DirectoryFile, "a")]),
        ("a/b/c=1 a/b/d=1", "a/b/c=1", "a/b=2", "a/b=2", &[]),
        // git's order of names is not that of bytes.
        ("a/b=1 a.c=1 a0=1", "a/b=2 a.c=1 a0=1", "a/b=1 a.c=2 a0=2", "a/b=2 a.c=2 a0=2", &[]),
    ];
    for (base, ours, theirs, expected, conflicts) in cases {
        let (tree, found) = merged(&files(base), &files(ours), &files(theirs));
        assert_eq!(tree, files(expected), "{base} | {ours} | {theirs}");
        let found: Vec<(ConflictKind, String)> =
            found.iter().map(|c| (c.kind, c.path.to_string())).collect();
        let conflicts: Vec<(ConflictKind, String)> =
            conflicts.iter().map(|(k, p)| (*k, p.to_string())).collect();
        assert_eq!(found, conflicts, "{base} | {ours} | {theirs}");
    }
}

#[test]
fn a_conflict_has_what_each_side_has() {
    let (_, conflicts) = merged(&files("d/a=1"), &files("d/a=2x"), &files("d/a=3"));
    let version = |kind, number| {
        vec![Version {
            path: path("d/a"),
            kind,
            id: blob(number),
        }]
    };
    assert_eq!(
        conflicts,
        [Conflict {
            kind: ConflictKind::BothModified,
            path: path("d/a"),
            paths: vec![path("d/a")],
            base: version(TreeEntryKind::File, 1),
            ours: version(TreeEntryKind::Executable, 2),
            theirs: version(TreeEntryKind::File, 3),
        }]
    );
}

#[test]
fn costs_grow_with_the_changes() {
    let mut base = Files::new();
    for directory in 0..100 {
        for file in 0..10 {
            base.extend(files(&format!("d{directory}/sub/f{file}=1")));
        }
    }
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    ours.extend(files("d1/sub/f0=2 d2/new=2"));
    theirs.extend(files("d1/sub/f1=3 d3/new=3"));
    let mut memory = Memory::default();
    let [base, ours, theirs] = [base, ours, theirs].map(|files| memory.write(&files));
    let walked = walk(&memory, Some(base), ours, theirs).unwrap();
    // The root, d1 and d1/sub, on three sides.
    assert_eq!(memory.read.get(), 9);
    assert!(walked.conflicts.is_empty());
}

/// What merging each path by itself gives, and then looking which are in each other's way.
fn reference(
    base: &Files,
    ours: &Files,
    theirs: &Files,
) -> (Files, BTreeMap<RepoPath, ConflictKind>) {
    let mut names: Vec<&RepoPath> = base
        .keys()
        .chain(ours.keys())
        .chain(theirs.keys())
        .collect();
    names.sort();
    names.dedup();
    let mut tree = Files::new();
    let mut conflicts = BTreeMap::new();
    for name in names {
        let [base, ours, theirs] = [base, ours, theirs].map(|files| files.get(name).copied());
        let regular = |entry: Option<Entry>| entry.is_some_and(|(kind, _)| is_regular(kind));
        let settled = if ours == theirs || base == theirs {
            Ok(ours)
        } else if base == ours {
            Ok(theirs)
        } else if regular(base) && regular(ours) && regular(theirs) {
            let ([b, o], t) = ([base, ours].map(Option::unwrap), theirs.unwrap());
            let pick = |b, o, t| {
                if o == t || b == t {
                    Some(o)
                } else {
                    (b == o).then_some(t)
                }
            };
            let kind = if b.0 == o.0 { t.0 } else { o.0 };
            match pick(b.1, o.1, t.1) {
                Some(id) => Ok(Some((kind, id))),
                None => Err(()),
            }
        } else {
            Err(())
        };
        match settled {
            Ok(Some(entry)) => {
                tree.insert(name.clone(), entry);
            }
            Ok(None) => {}
            Err(()) => {
                conflicts.insert(name.clone(), ConflictKind::BothModified);
            }
        }
    }
    let there: Vec<RepoPath> = tree.keys().chain(conflicts.keys()).cloned().collect();
    for name in &there {
        if there
            .iter()
            .any(|below| below != name && below.starts_with(name))
        {
            tree.remove(name);
            conflicts.insert(name.clone(), ConflictKind::DirectoryFile);
        }
    }
    (tree, conflicts)
}

fn any_files() -> impl Strategy<Value = Files> {
    let name = prop::sample::select(vec![
        "a", "b", "a/b", "a/c", "a/b/c", "a/b/d", "a.b", "c/d/e", "c/d", "c",
    ]);
    let content = (
        1_u32..4,
        prop::sample::select(vec!["", "", "", "x", "l", "s"]),
    );
    prop::collection::vec((name, content), 0..6).prop_map(|all| {
        let mut tree = Files::new();
        for (name, (number, kind)) in all {
            let name = path(name);
            // A later one takes the place of what is in its way.
            tree.retain(|known, _| !known.starts_with(&name) && !name.starts_with(known));
            tree.extend(files(&format!("{name}={number}{kind}")));
        }
        tree
    })
}

/// Two trees that have most in common with the first.
fn any_three() -> impl Strategy<Value = (Files, Files, Files)> {
    (any_files(), any_files(), any_files(), any::<u64>()).prop_map(|(base, ours, theirs, mask)| {
        let mixed = |own: Files, shift: u32| {
            let mut tree = own;
            for (index, (name, entry)) in base.iter().enumerate() {
                let is_free = !tree
                    .keys()
                    .any(|known| known.starts_with(name) || name.starts_with(known));
                if is_free && (mask >> (shift as usize + index) & 1) == 1 {
                    tree.insert(name.clone(), *entry);
                }
            }
            tree
        };
        (base.clone(), mixed(ours, 0), mixed(theirs, 16))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_trees_merge_as_path_by_path((base, ours, theirs) in any_three()) {
        let (tree, conflicts) = merged(&base, &ours, &theirs);
        let (expected, expected_conflicts) = reference(&base, &ours, &theirs);
        prop_assert_eq!(&tree, &expected);
        let found: Vec<&RepoPath> = conflicts.iter().map(|conflict| &conflict.path).collect();
        let expected_paths: Vec<&RepoPath> = expected_conflicts.keys().collect();
        prop_assert_eq!(found, expected_paths);
        for conflict in &conflicts {
            let is_contested = conflict.kind == ConflictKind::DirectoryFile;
            let expected = expected_conflicts[&conflict.path] == ConflictKind::DirectoryFile;
            prop_assert_eq!(is_contested, expected, "{:?}", conflict);
        }
    }

    #[test]
    fn invariant_10_whole_files_of_one_side_come_unchanged((base, side, _) in any_three()) {
        for (ours, theirs, expected) in [(&base, &side, &side), (&side, &base, &side), (&side, &side, &side)] {
            prop_assert_eq!(merged(&base, ours, theirs), (expected.clone(), Vec::new()));
        }
    }

    #[test]
    fn invariant_10_swapped_sides_mirror_the_conflicts_of_whole_files((base, ours, theirs) in any_three()) {
        let (tree, conflicts) = merged(&base, &ours, &theirs);
        let (swapped_tree, mut swapped) = merged(&base, &theirs, &ours);
        for conflict in &mut swapped {
            std::mem::swap(&mut conflict.ours, &mut conflict.theirs);
        }
        prop_assert_eq!(tree, swapped_tree);
        prop_assert_eq!(conflicts, swapped);
    }
}
