//! Taking paths back to what they are in a tree.

use std::collections::{BTreeSet, HashMap};

use super::*;
use crate::revert::{RevertOptions, RevertOutcome, RevertTo, revert};
use crate::snapshots::snapshot_tree;
use tine_store::{SnapshotOptions, SnapshotReason, SnapshotRecord};
use tine_workspace::{Actor, Changed, Direction, OperationError, OperationKind};

const FORCE: RevertOptions = RevertOptions {
    force: true,
    dry_run: false,
};

const BY: Actor<'static> = Actor {
    caller: ME,
    command: "a test",
};

impl Fixture {
    fn view_tree(&self) -> ObjectId {
        let changes = changeset(self.git(), &self.fork, Blobs::Write).unwrap();
        write_tree(self.git(), &changes).unwrap()
    }

    fn base_tree(&self) -> ObjectId {
        self.fork.workspace.base().tree_id()
    }

    fn revert_with(
        &self,
        tree_id: ObjectId,
        paths: &[&str],
        options: RevertOptions,
    ) -> Result<RevertOutcome, ChangeError> {
        let to = RevertTo {
            tree_id,
            commit_id: None,
        };
        let paths: Vec<RepoPath> = paths.iter().map(|at| path(at)).collect();
        revert(self.git(), &demo(), &self.fork, BY, to, &paths, options)
    }

    /// Reverts to the base; the paths with the letters of what happened to them.
    fn revert(&self, paths: &[&str]) -> Vec<String> {
        let outcome = self.revert_with(self.base_tree(), paths, RevertOptions::default());
        lines(&outcome.unwrap().changes)
    }

    fn read(&self, at: &str) -> String {
        String::from_utf8(self.fork.workspace.read_path(&path(at)).unwrap()).unwrap()
    }

    fn ino(&self, at: &str) -> Ino {
        self.fork.workspace.resolve(&path(at)).unwrap().ino
    }

    fn is_there(&self, at: &str) -> bool {
        self.fork.workspace.resolve(&path(at)).is_ok()
    }

    /// As the kernel does when it needs the memory.
    fn forget_all(&self) {
        self.fork.workspace.forget_all();
    }

    /// Link counts are those of the names that there are, and each directory has one name.
    fn check_links(&self) {
        let workspace = &self.fork.workspace;
        let mut names: HashMap<Ino, u32> = HashMap::new();
        let mut expected: HashMap<Ino, (RepoPath, u32)> = HashMap::new();
        let mut rest = vec![RepoPath::root()];
        while let Some(dir) = rest.pop() {
            let mut subdirectories = 0;
            for (name, kind, ino) in workspace.list_path(&dir).unwrap() {
                let at = dir.join(&name);
                let attr = workspace.resolve(&at).unwrap();
                assert_eq!((attr.ino, attr.kind), (ino, kind), "{at}");
                if kind == FileKind::Directory {
                    subdirectories += 1;
                    rest.push(at);
                } else {
                    *names.entry(ino).or_default() += 1;
                    expected.insert(ino, (at, attr.nlink));
                }
            }
            let attr = workspace.resolve(&dir).unwrap();
            assert_eq!(attr.nlink, 2 + subdirectories, "links of {dir:?}");
        }
        for (ino, (at, links)) in expected {
            // One may be in the attic.
            assert!(links >= names[&ino], "links of {at}");
        }
    }

    fn snapshot(&self) -> SnapshotRecord {
        let options = SnapshotOptions::because(SnapshotReason::Asked);
        self.store
            .take_snapshot(&demo(), &self.fork, &options)
            .unwrap()
    }

    fn tree_of(&self, snapshot: &SnapshotRecord) -> ObjectId {
        snapshot_tree(&self.store, self.git(), &demo(), snapshot).unwrap()
    }

    fn take_back(&self, direction: Direction) {
        let taken = self.fork.workspace.take_back(BY, direction, None).unwrap();
        assert_eq!(taken.of.kind, OperationKind::Revert);
        assert_eq!(taken.notes, []);
    }

    /// As another process has it.
    fn reopened(self) -> Fixture {
        let Fixture {
            repository,
            store,
            fork,
        } = self;
        drop(fork);
        let fork = store.open_fork(&demo()).unwrap();
        Fixture {
            repository,
            store,
            fork,
        }
    }
}

fn lines(changes: &[Change]) -> Vec<String> {
    let letter = |change: &Change| match change.kind() {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
        ChangeKind::TypeChanged => 'T',
    };
    changes
        .iter()
        .map(|change| format!("{} {}", letter(change), change.path))
        .collect()
}

#[test]
fn what_changed_goes_back_and_the_rest_stays() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "other\n");
    fixture.write("dir/b.txt", "other\n");
    fixture.remove("dir/sub/c.txt");
    fixture.write("dir/new", "new\n");
    fixture.write("new", "new\n");
    fixture.forget_all();
    assert_eq!(
        fixture.revert(&["dir"]),
        ["M dir/b.txt", "D dir/new", "A dir/sub/c.txt"]
    );
    assert_eq!(fixture.status(), ["M a.txt", "A new"]);
    assert_eq!(fixture.read("dir/b.txt"), "beta\n");
    assert_eq!(fixture.read("dir/sub/c.txt"), "gamma\n");
    assert_eq!(
        fixture.revert(&["dir"]),
        [""; 0],
        "a second time there is nothing to do"
    );
    assert_eq!(fixture.revert(&["."]), ["M a.txt", "D new"]);
    assert!(fixture.status().is_empty());
    fixture.check_links();
}

#[test]
fn base_files_come_back_under_their_numbers_with_the_time_of_now() {
    let fixture = Fixture::sample();
    let numbers = [
        "a.txt",
        "dir",
        "dir/b.txt",
        "dir/sub",
        "dir/sub/c.txt",
        "link",
    ];
    let before: Vec<Ino> = numbers.iter().map(|at| fixture.ino(at)).collect();
    let base_time = fixture.fork.workspace.base_attrs().time;
    fixture.write("a.txt", "other\n");
    fixture.remove("link");
    fixture.remove("dir/b.txt");
    fixture.remove("dir/sub/c.txt");
    fixture.remove("dir/sub");
    fixture.remove("dir");
    fixture.revert(&["."]);
    let after: Vec<Ino> = numbers.iter().map(|at| fixture.ino(at)).collect();
    assert_eq!(after[1..], before[1..]);
    assert_ne!(
        after[0], before[0],
        "the one that was changed is in the trash"
    );
    for at in numbers {
        let attr = fixture.fork.workspace.resolve(&path(at)).unwrap();
        assert!(
            attr.mtime > base_time,
            "{at}: whoever builds must see that it changed"
        );
    }
    assert_eq!(
        fixture.refs().keys().collect::<Vec<_>>(),
        ["base", "head"],
        "the base keeps the blobs"
    );
    fixture.check_links();
}

#[test]
fn who_has_a_file_open_keeps_what_he_has() {
    let fixture = Fixture::sample();
    let (parent, name) = fixture.parent("a.txt").unwrap();
    let open = fixture
        .fork
        .workspace
        .lookup(parent, name.as_bytes())
        .unwrap()
        .ino;
    fixture.write("a.txt", "other\n");
    fixture.revert(&["a.txt"]);
    assert_ne!(fixture.ino("a.txt"), open);
    assert_eq!(
        fixture.fork.workspace.read(open, 0, 100).unwrap(),
        b"other\n"
    );
    assert_eq!(fixture.read("a.txt"), "alpha\n");
    fixture.check_links();
}

#[test]
fn of_a_moved_file_the_old_place_is_filled_again_and_the_new_one_stays() {
    let fixture = Fixture::sample();
    fixture.rename("a.txt", "moved").unwrap();
    fixture.write("moved", "changed\n");
    assert_eq!(fixture.revert(&["a.txt"]), ["A a.txt"]);
    assert_eq!(
        (fixture.read("a.txt"), fixture.read("moved")),
        ("alpha\n".into(), "changed\n".into())
    );
    assert_ne!(fixture.ino("a.txt"), fixture.ino("moved"));
    // The same of a directory, and of one file in it.
    fixture.rename("dir", "elsewhere").unwrap();
    assert_eq!(fixture.revert(&["dir/sub/c.txt"]), ["A dir/sub/c.txt"]);
    assert!(!fixture.is_there("dir/b.txt"));
    assert_eq!(fixture.read("elsewhere/b.txt"), "beta\n");
    assert_eq!(
        fixture.revert(&["."]),
        [
            "A dir/b.txt",
            "D elsewhere/b.txt",
            "D elsewhere/sub/c.txt",
            "D moved"
        ]
    );
    assert!(!fixture.is_there("elsewhere"));
    assert!(fixture.status().is_empty());
    fixture.check_links();
}

#[test]
fn files_and_directories_change_places_again() {
    let fixture = Fixture::sample();
    fixture.remove("a.txt");
    fixture.mkdir("a.txt").unwrap();
    fixture.write("a.txt/inner", "x\n");
    fixture.rename("dir", "a.txt/dir").unwrap();
    fixture.write("dir", "a file\n");
    let changed = fixture.view_tree();
    fixture.revert(&["."]);
    assert!(fixture.status().is_empty());
    assert_eq!(fixture.read("a.txt"), "alpha\n");
    assert_eq!(fixture.read("dir/sub/c.txt"), "gamma\n");
    fixture.check_links();
    fixture
        .revert_with(changed, &["."], RevertOptions::default())
        .unwrap();
    assert_eq!(fixture.view_tree(), changed);
    assert_eq!(fixture.read("a.txt/dir/b.txt"), "beta\n");
    fixture.check_links();
}

#[test]
fn one_file_of_a_removed_directory_comes_back_alone() {
    let fixture = Fixture::sample();
    for at in ["dir/b.txt", "dir/sub/c.txt", "dir/sub", "dir"] {
        fixture.remove(at);
    }
    assert_eq!(fixture.revert(&["dir/sub"]), ["A dir/sub/c.txt"]);
    assert_eq!(fixture.status(), ["D dir/b.txt"]);
    assert_eq!(fixture.revert(&["dir/b.txt"]), ["A dir/b.txt"]);
    assert!(fixture.status().is_empty());
    fixture.check_links();
}

#[test]
fn an_executable_bit_alone_changes_nothing_else() {
    let fixture = Fixture::sample();
    fixture.chmod("run.sh", 0o640).unwrap();
    fixture.chmod("dir/b.txt", 0o755).unwrap();
    let before = fixture.fork.workspace.resolve(&path("run.sh")).unwrap();
    assert_eq!(fixture.revert(&["."]), ["M dir/b.txt", "M run.sh"]);
    let after = fixture.fork.workspace.resolve(&path("run.sh")).unwrap();
    assert_eq!((after.ino, after.mtime), (before.ino, before.mtime));
    assert_eq!(after.perm, 0o751, "as the owner's umask has it");
    assert!(fixture.status().is_empty());
}

#[test]
fn a_name_of_a_file_with_two_goes_its_own_way() {
    let fixture = Fixture::sample();
    let (parent, name) = fixture.parent("a.txt").unwrap();
    let workspace = &fixture.fork.workspace;
    let ino = workspace.lookup(parent, name.as_bytes()).unwrap().ino;
    workspace.link(ME, ino, Ino::ROOT, b"twin").unwrap();
    fixture.write("twin", "both\n");
    assert_eq!(fixture.revert(&["a.txt"]), ["M a.txt"]);
    assert_eq!(
        (fixture.read("a.txt"), fixture.read("twin")),
        ("alpha\n".into(), "both\n".into())
    );
    fixture.check_links();
}

#[test]
fn what_is_in_no_changeset_is_not_lost() {
    let fixture = Fixture::sample();
    let refused = |paths: &[&str], at: &str| {
        let before = fixture.view_tree();
        match fixture.revert_with(fixture.base_tree(), paths, RevertOptions::default()) {
            Err(ChangeError::Operation(OperationError::InTheWay(in_the_way))) => {
                assert_eq!(in_the_way, path(at));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fixture.view_tree(), before, "all or nothing");
    };
    // An ignored file in a directory that takes a file's place.
    fixture.write("dir/b.txt", "other\n");
    fixture.remove("a.txt");
    fixture.mkdir("a.txt").unwrap();
    fixture.write("a.txt/seen", "x\n");
    fixture.write("a.txt/hidden.log", "y\n");
    refused(&["."], "a.txt");
    assert!(fixture.is_there("a.txt/seen"));
    fixture
        .revert_with(fixture.base_tree(), &["."], FORCE)
        .unwrap();
    assert_eq!(fixture.read("a.txt"), "alpha\n");
    fixture.check_links();

    // A file where a directory is to come, of which nothing was asked.
    for at in ["dir/b.txt", "dir/sub/c.txt", "dir/sub", "dir"] {
        fixture.remove(at);
    }
    fixture.write("dir", "a file\n");
    refused(&["dir/sub"], "dir");
    assert_eq!(
        fixture.revert(&["dir"]),
        ["D dir", "A dir/b.txt", "A dir/sub/c.txt"]
    );

    // A repository stays in any case.
    fixture.remove("a.txt");
    fixture.mkdir("a.txt").unwrap();
    fixture.mkdir("a.txt/.git").unwrap();
    fixture.write("a.txt/.git/HEAD", "ref: refs/heads/main\n");
    refused(&["a.txt"], "a.txt");
    let forced = fixture.revert_with(fixture.base_tree(), &["a.txt"], FORCE);
    assert!(matches!(
        forced,
        Err(ChangeError::Operation(OperationError::InTheWay(_)))
    ));
    fixture.check_links();
}

#[test]
fn ignored_files_stay_and_directories_go_when_nothing_is_left() {
    let fixture = Fixture::sample();
    for dir in ["made", "made/empty", "made/deep", "kept"] {
        fixture.mkdir(dir).unwrap();
    }
    fixture.write("made/deep/x", "x\n");
    fixture.write("kept/y", "y\n");
    fixture.write("kept/z.log", "z\n");
    assert_eq!(fixture.revert(&["."]), ["D kept/y", "D made/deep/x"]);
    assert!(!fixture.is_there("made"), "with the empty directory in it");
    assert_eq!(fixture.read("kept/z.log"), "z\n");
    fixture.check_links();
}

#[test]
fn paths_that_are_nowhere_are_refused() {
    let fixture = Fixture::sample();
    for at in ["nothing", "dir/nothing", "a.txt/beneath"] {
        let refused = fixture.revert_with(fixture.base_tree(), &["a.txt", at], FORCE);
        match refused {
            Err(ChangeError::Operation(OperationError::NotFound(missing))) => {
                assert_eq!(missing, path(at))
            }
            other => panic!("{other:?}"),
        }
    }
    fixture.write("hidden.log", "ignored\n");
    assert_eq!(fixture.revert(&["hidden.log"]), [""; 0]);
    assert!(fixture.is_there("hidden.log"));
}

#[test]
fn a_dry_run_changes_nothing_and_says_the_same() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "other\n");
    fixture.write("new", "x\n");
    let before = fixture.view_tree();
    let options = RevertOptions {
        dry_run: true,
        ..RevertOptions::default()
    };
    let planned = fixture
        .revert_with(fixture.base_tree(), &["."], options)
        .unwrap();
    assert_eq!(fixture.view_tree(), before);
    assert_eq!(lines(&planned.changes), fixture.revert(&["."]));
}

#[test]
fn what_only_the_layer_names_survives_git_gc() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "only here\n");
    fixture.write("new", "only here, too\n");
    let changed = fixture.view_tree();
    fixture.revert(&["."]);
    assert_eq!(fixture.refs().len(), 2);
    let content_bytes = fixture.content_bytes();
    fixture
        .revert_with(changed, &["."], RevertOptions::default())
        .unwrap();
    fixture
        .revert_with(changed, &["."], RevertOptions::default())
        .unwrap();
    let kept: Vec<String> = fixture.refs().into_keys().collect();
    assert_eq!(kept, ["base", "head", "held-1"]);
    assert_eq!(
        fixture.content_bytes(),
        content_bytes,
        "the repository has the bytes"
    );
    fixture.repository.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(fixture.read("a.txt"), "only here\n");
    assert_eq!(fixture.read("new"), "only here, too\n");
    // Commits go on: a ref may keep a tree.
    fixture.commit("all of it").unwrap();
    assert_eq!(
        fixture
            .head()
            .map(|head| fixture.git().commit_info(head).unwrap().tree_id),
        Some(changed)
    );
}

#[test]
fn files_are_converted_as_the_attributes_then_say() {
    let repository = sample();
    repository.write(".gitattributes", "*.txt text eol=crlf\n");
    repository.commit("attributes");
    let fixture = Fixture::new(repository);
    assert_eq!(fixture.read("a.txt"), "alpha\r\n");
    fixture.write("a.txt", "other\r\n");
    fixture.write("dir/new.txt", "new\r\n");
    let changed = fixture.view_tree();
    fixture.revert(&["."]);
    assert_eq!(fixture.read("a.txt"), "alpha\r\n");
    fixture
        .revert_with(changed, &["."], RevertOptions::default())
        .unwrap();
    assert_eq!(fixture.read("a.txt"), "other\r\n");
    assert_eq!(fixture.read("dir/new.txt"), "new\r\n");
    assert_eq!(fixture.view_tree(), changed);
    // Without the attributes the same blob is another file.
    fixture.remove(".gitattributes");
    fixture
        .revert_with(changed, &["dir/new.txt"], RevertOptions::default())
        .unwrap();
    fixture.remove("a.txt");
    fixture.revert(&["a.txt"]);
    assert_eq!(fixture.read("a.txt"), "alpha\n");
    fixture.revert(&["."]);
    assert!(fixture.status().is_empty(), "{:?}", fixture.status());
}

#[test]
fn a_snapshots_tree_is_that_of_its_time_and_is_kept_with_it() {
    let fixture = Fixture::sample();
    fixture.write("a.txt", "then\n");
    fixture.write("new", "then\n");
    fixture.write("hidden.log", "ignored\n");
    let then = fixture.view_tree();
    let snapshot = fixture.snapshot();
    fixture.write("a.txt", "later\n");
    fixture.remove("ignored.log");
    fixture.commit("HEAD goes on").unwrap();
    assert_eq!(fixture.tree_of(&snapshot), then);
    let snapshot = fixture.store.snapshot(&demo(), &snapshot.name).unwrap();
    assert_eq!(snapshot.tree, Some(then.to_string()));
    assert_eq!(fixture.refs()[&format!("snapshot-{}", snapshot.name)], then);
    // A tree that is gone is written again.
    fixture
        .git()
        .release("demo", &format!("snapshot-{}", snapshot.name))
        .unwrap();
    fixture.repository.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(fixture.tree_of(&snapshot), then);
    fixture.repository.git(&["gc", "-q", "--prune=now"]);
    fixture
        .revert_with(then, &["a.txt"], RevertOptions::default())
        .unwrap();
    assert_eq!(fixture.read("a.txt"), "then\n");
    fixture
        .store
        .remove_snapshot(&demo(), &snapshot.name)
        .unwrap();
    fixture.repository.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(fixture.read("a.txt"), "then\n", "the layer's own");
    assert_eq!(fixture.store.snapshots(&demo()).unwrap(), []);
    assert!(
        !fixture
            .refs()
            .keys()
            .any(|label| label.starts_with("snapshot-"))
    );
}

#[test]
fn a_mode_set_on_a_file_that_was_made_is_no_change_of_others() {
    let fixture = Fixture::sample();
    fixture.chmod("a.txt", 0o755).unwrap();
    let changed = fixture.view_tree();
    fixture.rename("run.sh", "a.txt").unwrap();
    let renamed = fixture.view_tree();
    fixture.revert_with(changed, &["."], FORCE).unwrap();
    fixture.take_back(Direction::Undo);
    assert_eq!(fixture.view_tree(), renamed);
    fixture.take_back(Direction::Redo);
    assert_eq!(fixture.view_tree(), changed);
}

#[derive(Debug, Clone)]
enum Step {
    Write(&'static str, u8),
    Remove(&'static str),
    MakeDir(&'static str),
    Link(&'static str, u8),
    HardLink(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Chmod(&'static str, bool),
    Forget,
    Commit,
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || {
        prop::sample::select(vec![
            "a.txt",
            "run.sh",
            "link",
            "dir",
            "dir/b.txt",
            "dir/sub",
            "dir/sub/c.txt",
            "dir/new",
            "new",
            "new/x",
            "new/y",
            "build",
            "build/z",
        ])
    };
    let step = prop_oneof![
        4 => (at(), 0u8..3).prop_map(|(at, number)| Step::Write(at, number)),
        3 => at().prop_map(Step::Remove),
        2 => at().prop_map(Step::MakeDir),
        1 => (at(), 0u8..3).prop_map(|(at, number)| Step::Link(at, number)),
        1 => (at(), at()).prop_map(|(from, to)| Step::HardLink(from, to)),
        4 => (at(), at()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (at(), any::<bool>()).prop_map(|(at, executable)| Step::Chmod(at, executable)),
        2 => Just(Step::Forget),
        1 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 1..16)
}

/// Steps that make no sense where they fall are refused, as for any program.
fn take(fixture: &Fixture, steps: &[Step]) {
    for step in steps {
        let _ = match *step {
            Step::Write(at, number) => {
                if let Some((parent, _)) = at.rsplit_once('/') {
                    let _ = fixture.mkdir(parent);
                }
                fixture.try_write(at, ["", "content 1\n", "content 2\n"][usize::from(number)])
            }
            Step::Remove(at) => match fixture.fork.workspace.remove_paths(BY, &[path(at)], true) {
                Ok(_) | Err(_) => Ok(()),
            },
            Step::MakeDir(at) => fixture.mkdir(at),
            Step::Link(at, number) => fixture.symlink(at, &format!("target{number}")),
            Step::HardLink(from, to) => fixture.parent(to).and_then(|(parent, name)| {
                let ino = fixture.fork.workspace.resolve(&path(from))?.ino;
                fixture
                    .fork
                    .workspace
                    .link(ME, ino, parent, name.as_bytes())
                    .map(drop)
            }),
            Step::Rename(from, to) => fixture.rename(from, to),
            Step::Chmod(at, executable) => {
                fixture.chmod(at, if executable { 0o755 } else { 0o644 })
            }
            Step::Forget => {
                fixture.forget_all();
                Ok(())
            }
            Step::Commit => match fixture.commit("step") {
                Ok(_) | Err(ChangeError::NothingToCommit) => Ok(()),
                Err(error) => panic!("{error}"),
            },
        };
    }
}

/// Whether git, which asked for what changed, looks at `path`.
fn is_told(changed: &Changed, path: &RepoPath) -> bool {
    let told: &BTreeSet<Vec<u8>> = match changed {
        Changed::Everything => return true,
        Changed::Paths(told) => told,
    };
    // A name that is no file to git means all that it knows beneath.
    told.iter().any(|told| {
        let told = told.strip_suffix(b"/").unwrap_or(told);
        RepoPath::parse(told).is_ok_and(|told| path.starts_with(&told))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever was done, what a comparison with any point shows is what a revert to it changes,
    /// and then the view is as it was at that point; and back again. git is told of all of it.
    #[test]
    fn a_revert_of_everything_makes_the_view_what_the_point_is(
        first in any_steps(),
        second in any_steps(),
        freezes in any::<[bool; 3]>(),
    ) {
        let mut fixture = Fixture::sample();
        take(&fixture, &first);
        let one = fixture.view_tree();
        let snapshot = freezes[0].then(|| fixture.snapshot());
        take(&fixture, &second);
        let other = fixture.view_tree();
        let second_snapshot = freezes[1].then(|| fixture.snapshot());
        for (snapshot, tree_id) in [(&snapshot, one), (&second_snapshot, other)] {
            if let Some(snapshot) = snapshot {
                prop_assert_eq!(fixture.tree_of(snapshot), tree_id);
            }
        }
        let base = fixture.base_tree();
        for tree_id in [one, other, base, one, base] {
            let before = fixture.view_tree();
            let shown = super::super::compare::compare_trees(fixture.git(), fixture.view_tree(), tree_id).unwrap();
            let (token, _) = fixture.fork.workspace.changed_since("").unwrap();
            let outcome = fixture.revert_with(tree_id, &["."], FORCE).unwrap();
            prop_assert_eq!(lines(&outcome.changes), lines(&shown));
            prop_assert_eq!(fixture.view_tree(), tree_id);
            if !shown.is_empty() {
                fixture.take_back(Direction::Undo);
                prop_assert_eq!(fixture.view_tree(), before);
                fixture.check_links();
                fixture.take_back(Direction::Redo);
                prop_assert_eq!(fixture.view_tree(), tree_id);
            }
            fixture.check_links();
            let (_, changed) = fixture.fork.workspace.changed_since(&token).unwrap();
            for change in &shown {
                prop_assert!(is_told(&changed, &change.path), "{} in {:?}", change.path, changed);
            }
            let head_tree = fixture.changes().head_tree;
            let checkout = fixture.checkout();
            checkout.staged(&head_tree);
            let written = checkout.git(&["write-tree"]);
            prop_assert_eq!(written.trim(), tree_id.to_string());
            if freezes[2] {
                let snapshot = fixture.snapshot();
                prop_assert_eq!(fixture.tree_of(&snapshot), tree_id);
            }
            fixture = fixture.reopened();
            prop_assert_eq!(fixture.view_tree(), tree_id);
        }
    }
}
