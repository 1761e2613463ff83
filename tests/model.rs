//! Random sequences of file operations, commits and restarts, against a plain file system in
//! memory: through the [`Workspace`](tine::workspace::Workspace) itself, and through a real mount,
//! beside the host's own file system.
//!
//! A failure prints the shortest sequence found, ready to be pasted into a `regression_*` test
//! below; its seed goes to `tests/model/regressions.txt` and runs first from then on. `TINE_SOAK=1`
//! runs many more cases, `PROPTEST_CASES=n` as many as it says.

mod support;

#[path = "model/agreement.rs"]
mod agreement;
#[path = "model/by_inode.rs"]
mod by_inode;
#[path = "model/family.rs"]
mod family;
#[path = "model/mounted.rs"]
mod mounted;
#[path = "model/posix.rs"]
mod posix;
#[path = "model/reference.rs"]
mod reference;
#[path = "model/steps.rs"]
mod steps;

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestError, TestRunner};
use tine::attr::{FileKind, Timestamp};
use tine::change::ChangeError;
use tine::change::changeset::write_tree;

use by_inode::ByInode;
use mounted::MountOp;
use posix::Directory;
use reference::Reference;
use steps::{Op, Outcome, Pick, Sight, Step, Subject};
use support::{OutputExt, TestFork, TestRepo, Tine, require_fuse};

/// How many cases a soak runs for each everyday one.
const SOAK_FACTOR: u32 = 100;

/// Runs `case` on random sequences of at most `longest` operations.
fn check(cases: u32, longest: usize, case: impl Fn(&[Op])) {
    check_with(steps::op(), cases, longest, case);
}

/// As [`check`], with operations of any kind.
fn check_with<O: std::fmt::Debug>(
    op: impl Strategy<Value = O>,
    cases: u32,
    longest: usize,
    case: impl Fn(&[O]),
) {
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default().cases,
        None if support::soaking() => cases * SOAK_FACTOR,
        None => cases,
    };
    let config = Config {
        cases,
        max_shrink_iters: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/model/regressions.txt",
        ))),
        ..Config::default()
    };
    let sequences = prop::collection::vec(op, 1..longest);
    let result = TestRunner::new(config).run(&sequences, |ops| {
        case(&ops);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, ops)) => panic!("{reason}\nregression(&{ops:?});"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Umask of the process: modes are compared as they are asked for.
fn set_umask() {
    // SAFETY: umask(2) touches no memory.
    unsafe { libc::umask(0o022) };
}

/// A name that no fork had before.
fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("f{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn base_time(fork: &TestFork) -> Timestamp {
    fork.store()
        .record(fork.name())
        .expect("the fork was just made")
        .base_attrs
        .time
}

/// Which node of a subject is which node of the reference, for the whole of a run.
#[derive(Default, Clone)]
struct Nodes {
    theirs: HashMap<u64, u64>,
    ours: HashMap<u64, u64>,
    /// Nodes had other numbers at some time.
    is_renumbered: bool,
}

impl Nodes {
    /// Nodes may have other numbers from now on. What a number means does not change.
    fn renumber(&mut self) {
        self.theirs.clear();
        self.is_renumbered = true;
    }

    /// Invariant 7: a number stays with its node through copy-up, rename and remount, and is never
    /// used again.
    fn check(&mut self, path: &str, ours: u64, theirs: u64) {
        let known = *self.theirs.entry(ours).or_insert(theirs);
        assert_eq!(known, theirs, "the inode number of {path} changed");
        let known = *self.ours.entry(theirs).or_insert(ours);
        assert_eq!(
            known, ours,
            "the inode number {theirs} was another node's before, now it is that of {path}"
        );
    }
}

/// Checks that `subject` shows what the reference shows.
fn compare(what: &str, expected: &Sight, mut found: Sight, nodes: &mut Nodes) {
    for (path, expected) in expected {
        let text = String::from_utf8_lossy(path).into_owned();
        let Some(mut found) = found.remove(path) else {
            panic!("{what}: {text:?} is missing");
        };
        nodes.check(&text, expected.node, found.node);
        found.node = expected.node;
        if expected.mtime.is_none() {
            found.mtime = None;
        }
        if found.content != expected.content {
            let at = found
                .content
                .iter()
                .zip(&expected.content)
                .take_while(|(a, b)| a == b)
                .count();
            panic!(
                "{what}: the content of {text:?} differs from byte {at} on; {} bytes, not {}",
                found.content.len(),
                expected.content.len()
            );
        }
        let fields = |seen: &steps::Seen| {
            let time = seen.mtime.map(|time| (time.secs, time.nanos));
            format!(
                "{:?} mode {:o} links {} size {} mtime {time:?} xattrs {:?}",
                seen.kind, seen.perm, seen.nlink, seen.size, seen.xattrs
            )
        };
        assert_eq!(fields(&found), fields(expected), "{what}: {text:?}");
    }
    let extra: Vec<_> = found
        .keys()
        .map(|path| String::from_utf8_lossy(path))
        .collect();
    assert!(extra.is_empty(), "{what}: nobody made {extra:?}");
}

/// Checks the modification times of files in `found`, the state to which a fork that was `before`
/// has gone at `since`: what it brought is new, what stays keeps its time. The reference learns
/// them; `found` then has the times that it had in that state, `was`.
fn check_times(
    what: &str,
    reference: &mut Reference,
    found: &mut Sight,
    (was, before): (Option<&Sight>, &Sight),
    since: Timestamp,
) {
    let names_in = |sight: &Sight, dir: &[u8]| -> BTreeSet<Vec<u8>> {
        let is_in = |path: &&Vec<u8>| match path.iter().rposition(|byte| *byte == b'/') {
            Some(end) => path[..end] == *dir,
            None => dir.is_empty() && !path.is_empty(),
        };
        sight.keys().filter(is_in).cloned().collect()
    };
    let has_other_names: Vec<bool> = found
        .keys()
        .map(|path| names_in(found, path) != names_in(before, path))
        .collect();
    for ((path, seen), has_other_names) in found.iter_mut().zip(has_other_names) {
        if seen.kind == FileKind::Directory {
            let there = before.get(path).filter(|there| there.kind == seen.kind);
            let is_right = match there {
                Some(there) if !has_other_names => seen.mtime == there.mtime,
                _ => seen.mtime.is_none_or(|mtime| mtime >= since),
            };
            let (text, of) = (
                String::from_utf8_lossy(path),
                there.map(|there| there.mtime),
            );
            assert!(
                is_right,
                "{what}: the directory {text:?} is of {:?}, and was of {of:?}",
                seen.mtime
            );
        }
        if !matches!(
            seen.kind,
            FileKind::Regular | FileKind::Symlink | FileKind::Directory
        ) {
            continue;
        }
        let text = String::from_utf8_lossy(path).into_owned();
        let there = before.get(path);
        let is_same =
            there.is_some_and(|there| (there.kind, &there.content) == (seen.kind, &seen.content));
        let stays = is_same && there.is_some_and(|there| there.mtime == seen.mtime);
        // The base ignores it: an output, which is as old as it was there.
        let is_output = path
            .split(|byte| *byte == b'/')
            .any(|name| name.ends_with(b".log"))
            && was.is_some_and(|was| was.get(path).is_some_and(|was| was.mtime == seen.mtime));
        // Another name of the file may be new.
        assert!(
            seen.kind == FileKind::Directory
                || stays
                || is_output
                || seen.mtime.is_some_and(|mtime| mtime >= since),
            "{what}: {text:?} seems to be of {:?}, {is_same}",
            seen.mtime
        );
        let names = path.split(|byte| *byte == b'/').map(<[u8]>::to_vec);
        // The root has no name.
        let names: Vec<Vec<u8>> = names.filter(|name| !name.is_empty()).collect();
        if let Some(node) = reference.node_at(&names) {
            reference.note_mtime(node, seen.mtime);
        }
        if let Some(was) = was.and_then(|was| was.get(path)) {
            seen.mtime = was.mtime;
        }
    }
}

/// Commits as `tine commit` does; nothing to commit is fine. Invariant 11: what is shown before is
/// what is committed.
fn commit(fork: &TestFork) {
    let shown = fork.changes();
    match fork.commit("a step") {
        Ok(outcome) => {
            let tree_id = write_tree(fork.repository(), &shown).expect("the tree is written");
            assert_eq!(
                outcome.tree_id, tree_id,
                "what was shown is what is committed"
            );
            assert!(
                fork.changes().changes.is_empty(),
                "nothing differs after a commit"
            );
        }
        Err(ChangeError::NothingToCommit) => {
            assert!(shown.changes.is_empty(), "there was something to commit")
        }
        Err(error) => panic!("the commit failed: {error}"),
    }
}

/// One sequence through the workspace. Git is asked about every sequence for which `ask_git` is
/// set.
fn workspace_case(repo: &TestRepo, ops: &[Op], ask_git: bool) {
    let mut fork = TestFork::new(repo, &fresh_name());
    let mut reference = Reference::read(repo.dir(), base_time(&fork));
    let mut subject = ByInode::new(fork.workspace().clone());
    let mut nodes = Nodes::default();
    compare(
        "at the beginning",
        &reference.sight(),
        subject.sight(),
        &mut nodes,
    );
    for (number, op) in ops.iter().enumerate() {
        let Some(step) = op.step(&reference) else {
            continue;
        };
        let expected = reference.apply(&step);
        let found = match step {
            Step::Commit => {
                commit(&fork);
                expected.clone()
            }
            Step::Reopen => {
                drop(subject);
                fork.reopen();
                subject = ByInode::new(fork.workspace().clone());
                expected.clone()
            }
            _ => subject.apply(&step),
        };
        assert_eq!(found, expected, "step {number}: {step:?}");
        if number % 3 == 0 || matches!(step, Step::Commit | Step::Reopen) {
            let what = format!("after step {number}, {step:?}");
            compare(&what, &reference.sight(), subject.sight(), &mut nodes);
        }
    }
    compare(
        "at the end",
        &reference.sight(),
        subject.sight(),
        &mut nodes,
    );
    drop(subject);
    fork.reopen();
    let mut subject = ByInode::new(fork.workspace().clone());
    compare(
        "after opening again",
        &reference.sight(),
        subject.sight(),
        &mut nodes,
    );
    drop(subject);
    if ask_git && support::fuse_missing().is_none() {
        fork.mount();
        agreement::check(repo, &fork, &reference);
    }
    fork.remove();
}

/// A directory of the host with what the reference holds.
fn host_copy(dir: &Path, reference: &Reference) -> Directory {
    std::fs::create_dir(dir).expect("the name is fresh");
    let mut host = Directory::new(dir);
    for step in reference.building_steps() {
        assert_eq!(host.apply(&step), Outcome::Done, "{step:?}");
    }
    host
}

/// The host uses numbers again, and the root's mode and time are not of our making.
fn compare_with_host(reference: &mut Reference, host: &mut Directory) {
    let mut expected = reference.sight();
    let mut found = host.sight();
    let root: &[u8] = b"";
    expected.get_mut(root).expect("there is a root").mtime = None;
    found.get_mut(root).expect("there is a root").perm = expected[root].perm;
    compare(
        "the reference against the host",
        &expected,
        found,
        &mut Nodes::default(),
    );
}

/// One sequence through a mount, and the same in a directory of the host.
fn mount_case(repo: &TestRepo, ops: &[Op]) {
    let name = fresh_name();
    let mut fork = TestFork::mounted(repo, &name);
    let mut reference = Reference::read(repo.dir(), base_time(&fork));
    let mut subject = Directory::new(fork.path());
    let mut nodes = Nodes::default();

    let host_dir = repo.root().join(format!("host-{name}"));
    let mut host = host_copy(&host_dir, &reference);

    for (number, op) in ops.iter().enumerate() {
        let Some(step) = op.step(&reference) else {
            continue;
        };
        let expected = reference.apply(&step);
        assert_eq!(
            host.apply(&step),
            expected,
            "the reference is wrong at step {number}: {step:?}"
        );
        let found = match step {
            Step::Commit => {
                commit(&fork);
                expected.clone()
            }
            Step::Reopen => {
                fork.reopen();
                expected.clone()
            }
            _ => subject.apply(&step),
        };
        assert_eq!(found, expected, "step {number}: {step:?}");
        if matches!(step, Step::Commit | Step::Reopen) {
            let what = format!("after step {number}, {step:?}");
            compare(&what, &reference.sight(), subject.sight(), &mut nodes);
        }
    }
    compare(
        "at the end",
        &reference.sight(),
        subject.sight(),
        &mut nodes,
    );
    compare_with_host(&mut reference, &mut host);
    agreement::check(repo, &fork, &reference);
    fork.remove();
    std::fs::remove_dir_all(&host_dir).expect("the host's directory can be removed");
}

/// One sequence through the mount of a daemon, which is killed where others open the store again.
fn daemon_case(repo: &TestRepo, tine: &Tine, ops: &[Op]) {
    let name = fresh_name();
    let mount = tine.new_fork(&name);
    let meta = std::fs::metadata(mount.join("README.md")).expect("it is in the base");
    let time = Timestamp {
        secs: meta.mtime(),
        nanos: meta.mtime_nsec() as u32,
    };
    let mut reference = Reference::read(repo.dir(), time);
    let mut subject = Directory::new(&mount);
    let mut nodes = Nodes::default();
    for (number, op) in ops.iter().enumerate() {
        let Some(step) = op.step(&reference) else {
            continue;
        };
        let expected = reference.apply(&step);
        match step {
            Step::Commit => {
                let output = tine.run(&["commit", &name, "-m", "a step"]);
                let fine =
                    output.status.success() || output.error_text().contains("nothing to commit");
                assert!(fine, "step {number}: {}", output.error_text());
            }
            Step::Reopen => {
                tine.kill_daemon();
                assert_eq!(Path::new(&tine.ok(&["path", &name])), mount);
            }
            _ => assert_eq!(subject.apply(&step), expected, "step {number}: {step:?}"),
        }
        if matches!(step, Step::Commit | Step::Reopen) {
            let what = format!("after step {number}, {step:?}");
            compare(&what, &reference.sight(), subject.sight(), &mut nodes);
        }
    }
    tine.ok(&["unmount", &name]);
    tine.ok(&["mount", &name]);
    compare(
        "after mounting again",
        &reference.sight(),
        subject.sight(),
        &mut nodes,
    );
    tine.ok(&["delete", &name, "--force"]);
}

/// The reference alone against the host, so that a wrong reference is found where no mount is at
/// hand.
#[test]
fn the_reference_behaves_as_the_host() {
    set_umask();
    let repo = TestRepo::new();
    let time = Timestamp::from_secs(1_600_000_000);
    check(150, 60, |ops| {
        let mut reference = Reference::read(repo.dir(), time);
        let host_dir = repo.root().join(fresh_name());
        let mut host = host_copy(&host_dir, &reference);
        for (number, op) in ops.iter().enumerate() {
            let Some(step) = op.step(&reference) else {
                continue;
            };
            assert_eq!(
                reference.apply(&step),
                host.apply(&step),
                "step {number}: {step:?}"
            );
        }
        compare_with_host(&mut reference, &mut host);
        std::fs::remove_dir_all(&host_dir).expect("the host's directory can be removed");
    });
}

/// Invariant 5 as well: names are made, removed, whited out and made again over a base all the
/// time. And invariant 11.
#[test]
fn invariant_07_and_13_a_workspace_behaves_as_the_reference() {
    set_umask();
    let repo = TestRepo::new();
    let count = AtomicU32::new(0);
    check(150, 40, |ops| {
        let ask_git = count.fetch_add(1, Ordering::Relaxed).is_multiple_of(4);
        workspace_case(&repo, ops, ask_git);
    });
}

/// Invariants 2 and 3 as well: what a snapshot or another fork stands on stays as it was, and
/// there.
#[test]
fn invariant_07_and_12_forks_of_forks_and_snapshots_behave_as_their_references() {
    set_umask();
    check_with(family::op(), 60, 60, family::case);
}

#[test]
fn invariant_08_a_mount_shows_what_is_restored_at_once() {
    require_fuse!();
    set_umask();
    let repo = TestRepo::new();
    check_with(mounted::op(), 60, 50, |ops| mounted::case(&repo, ops));
}

#[test]
fn invariant_07_and_08_a_mount_behaves_as_the_reference_and_the_host() {
    require_fuse!();
    set_umask();
    let repo = TestRepo::new();
    check(100, 40, |ops| mount_case(&repo, ops));
}

#[test]
fn invariant_07_and_13_a_daemon_that_is_killed_behaves_as_the_reference() {
    require_fuse!();
    set_umask();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    check(20, 40, |ops| daemon_case(&repo, &tine, ops));
}

#[test]
fn regression_a_copy_within_a_file_ends_at_its_old_end() {
    set_umask();
    let repo = TestRepo::new();
    let ops = [
        Op::Link(Pick::Existing(23), Pick::In(0, 3)),
        Op::Symlink(Pick::In(8, 0), 0),
        Op::CopyRange(Pick::Existing(191), 0, Pick::Existing(134), 283, 32),
    ];
    workspace_case(&repo, &ops, false);
}

#[test]
fn regression_an_open_base_file_that_was_deleted_before_is_deleted_again() {
    require_fuse!();
    set_umask();
    let repo = TestRepo::new();
    let ops = [
        MountOp::Snapshot,
        MountOp::On(Op::Unlink(Pick::Existing(95))),
        MountOp::Restore(0),
        MountOp::Open(101),
        MountOp::Restore(1),
        MountOp::Restore(0),
    ];
    mounted::case(&repo, &ops);
}

#[test]
fn regression_a_file_of_the_base_that_is_open_stays_what_it_is_when_its_fork_is_reset() {
    set_umask();
    let ops = [
        family::FamilyOp::On(0, Op::UnlinkWhileOpen(Pick::Existing(83), 1, 0)),
        family::FamilyOp::Child(0),
        family::FamilyOp::On(1, Op::Commit),
        family::FamilyOp::Open(89, 176),
        family::FamilyOp::Reset(19),
    ];
    family::case(&ops);
}

#[test]
fn regression_a_file_that_is_open_is_known_when_its_fork_goes_back_to_before_a_reset() {
    use family::FamilyOp;
    set_umask();
    let ops = [
        FamilyOp::On(0, Op::Link(Pick::Existing(6), Pick::In(136, 0))),
        FamilyOp::On(0, Op::Commit),
        FamilyOp::On(0, Op::WriteText(Pick::Existing(7), 128)),
        FamilyOp::Reset(56),
        FamilyOp::Child(219),
        FamilyOp::ChildOf(248, 140),
        FamilyOp::Open(21, 18),
        FamilyOp::ChildOf(42, 164),
        FamilyOp::Restore(196, 13),
    ];
    family::case(&ops);
}

#[test]
fn regression_a_file_that_is_open_and_goes_back_to_its_old_name_stays_what_it_is() {
    set_umask();
    let renamed = Op::Rename(Pick::Existing(118), Pick::In(3, 6), 56);
    let ops = [
        family::FamilyOp::On(0, renamed),
        family::FamilyOp::Open(0, 16),
        family::FamilyOp::Reset(0),
    ];
    family::case(&ops);
}

#[test]
fn regression_a_file_that_is_written_while_it_is_open_is_not_the_one_that_comes_back() {
    use mounted::MountOp;
    require_fuse!();
    set_umask();
    let repo = TestRepo::new();
    let ops = [
        MountOp::Open(32),
        MountOp::Snapshot,
        MountOp::On(Op::Create(Pick::In(0, 3), 0)),
        MountOp::Snapshot,
        MountOp::Snapshot,
        MountOp::On(Op::Write(Pick::Existing(0), 0, 1, 0)),
        MountOp::On(Op::Create(Pick::In(0, 4), 0)),
        MountOp::On(Op::Rename(Pick::Existing(89), Pick::In(141, 0), 104)),
        MountOp::WriteOpen(0, 0, 0),
        MountOp::Restore(0),
    ];
    mounted::case(&repo, &ops);
}

#[test]
fn regression_what_comes_of_another_fork_is_new_though_its_number_is_an_open_files() {
    use family::FamilyOp;
    set_umask();
    let ops = [
        FamilyOp::Child(0),
        FamilyOp::Snapshot(158),
        FamilyOp::Child(0),
        FamilyOp::Child(0),
        FamilyOp::On(11, Op::Create(Pick::In(53, 2), 0)),
        FamilyOp::On(222, Op::Symlink(Pick::In(0, 3), 0)),
        FamilyOp::Open(59, 103),
        FamilyOp::Child(0),
        FamilyOp::Snapshot(97),
        FamilyOp::RestoreForeign(213, 12, 0),
    ];
    family::case(&ops);
}

#[test]
fn regression_what_is_restored_is_as_new_when_it_is_opened_again() {
    use mounted::MountOp;
    require_fuse!();
    set_umask();
    let repo = TestRepo::new();
    let ops = [
        MountOp::On(Op::Write(Pick::Existing(0), 0, 1, 0)),
        MountOp::On(Op::Create(Pick::In(155, 0), 0)),
        MountOp::Snapshot,
        MountOp::On(Op::Rename(Pick::Existing(42), Pick::In(3, 0), 4)),
        MountOp::Restore(0),
        MountOp::On(Op::Truncate(Pick::Existing(114), 4092)),
        MountOp::Snapshot,
        MountOp::Restore(118),
    ];
    mounted::case(&repo, &ops);
}

#[test]
fn regression_an_open_base_file_that_was_deleted_while_it_was_open_is_deleted_again() {
    require_fuse!();
    set_umask();
    let ops = [
        MountOp::Snapshot,
        MountOp::Snapshot,
        MountOp::On(Op::Mkdir(Pick::In(1, 0), 0)),
        MountOp::Snapshot,
        MountOp::On(Op::Mkdir(Pick::In(52, 0), 0)),
        MountOp::On(Op::UnlinkWhileOpen(Pick::Existing(159), 1, 0)),
        MountOp::Restore(17),
        MountOp::Snapshot,
        MountOp::Open(7),
        MountOp::Restore(88),
    ];
    mounted::case(&TestRepo::new(), &ops);
}
