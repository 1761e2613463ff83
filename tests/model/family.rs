//! Forks that begin as other forks, their snapshots, and ways back, each beside a model of its own.

use std::collections::BTreeSet;
use std::path::Path as HostPath;
use std::sync::Arc;

use proptest::prelude::*;
use tine::attr::Ino;
use tine::attr::Timestamp;
use tine::change::commit::commit;
use tine::change::{ChangeError, CommitOptions};
use tine::git::Repository;
use tine::store::{
    Fork, ForkName, ForkOptions, MountSettings, ParentOptions, SnapshotOptions, SnapshotReason,
    Store, UnmountPolicy,
};

use super::by_inode::ByInode;
use super::reference::Reference;
use super::steps::{self, Op, Sight, Step, Subject};
use super::{Nodes, check_times, compare, fresh_name};
use crate::support::{TestRepo, open_store};

/// How many forks there are at most at a time.
const FORKS_MAX: usize = 5;

/// One random step in the life of a family. Forks, snapshots and open files are counted round.
#[derive(Debug, Clone)]
pub enum FamilyOp {
    On(u8, Op),
    Snapshot(u8),
    Restore(u8, u8),
    /// To a snapshot of another fork.
    RestoreForeign(u8, u8, u8),
    RemoveSnapshot(u8, u8),
    Reset(u8),
    Child(u8),
    ChildOf(u8, u8),
    Delete(u8),
    Open(u8, u8),
    WriteOpen(u8, u8, u32, u8),
    Close(u8, u8),
    Sync(u8),
    Collect,
    GitGc,
    Reopen,
}

pub fn op() -> impl Strategy<Value = FamilyOp> {
    let n = any::<u8>;
    prop_oneof![
        40 => (n(), steps::op()).prop_map(|(f, op)| FamilyOp::On(f, op)),
        7 => n().prop_map(FamilyOp::Snapshot),
        7 => (n(), n()).prop_map(|(f, s)| FamilyOp::Restore(f, s)),
        1 => (n(), n(), n()).prop_map(|(f, g, s)| FamilyOp::RestoreForeign(f, g, s)),
        2 => (n(), n()).prop_map(|(f, s)| FamilyOp::RemoveSnapshot(f, s)),
        1 => n().prop_map(FamilyOp::Reset),
        4 => n().prop_map(FamilyOp::Child),
        3 => (n(), n()).prop_map(|(f, s)| FamilyOp::ChildOf(f, s)),
        2 => n().prop_map(FamilyOp::Delete),
        5 => (n(), n()).prop_map(|(f, p)| FamilyOp::Open(f, p)),
        5 => (n(), n(), 0..100_000_u32, n()).prop_map(|(f, h, o, s)| FamilyOp::WriteOpen(f, h, o, s)),
        2 => (n(), n()).prop_map(|(f, h)| FamilyOp::Close(f, h)),
        2 => n().prop_map(FamilyOp::Sync),
        1 => Just(FamilyOp::Collect),
        1 => Just(FamilyOp::GitGc),
        2 => Just(FamilyOp::Reopen),
    ]
}

/// What a program has open.
struct Opened {
    ino: Ino,
    held: Holds,
}

enum Holds {
    /// A node of the model.
    Node(u64),
    /// What the fork does not show any more.
    Bytes(Vec<u8>),
}

/// What is known of a snapshot.
#[derive(Clone)]
struct Kept {
    name: ForkName,
    reference: Reference,
    /// What the subject itself showed, times and all.
    sight: Sight,
    nodes: Nodes,
    era: u32,
}

struct Member {
    name: ForkName,
    fork: Arc<Fork>,
    subject: ByInode,
    reference: Reference,
    nodes: Nodes,
    /// Nodes of the model bear the same numbers as long as this does not change.
    era: u32,
    snapshots: Vec<Kept>,
    opened: Vec<Opened>,
}

struct Family<'r> {
    repo: &'r TestRepo,
    repository: Repository,
    store: Option<Store>,
    members: Vec<Member>,
    eras: u32,
}

fn round(index: u8, count: usize) -> Option<usize> {
    (count > 0).then(|| usize::from(index) % count)
}

impl Member {
    fn sight(&mut self) -> Sight {
        self.subject.sight()
    }

    /// Everything that can be seen of it, and what programs have open.
    fn check(&mut self, what: &str) {
        let what = format!("{what}: {}", self.name);
        let sight = self.subject.sight();
        compare(&what, &self.reference.sight(), sight, &mut self.nodes);
        for opened in &self.opened {
            let (found, links) = self.subject.read_open(opened.ino);
            let expected = match &opened.held {
                Holds::Node(node) => self.reference.content(*node),
                Holds::Bytes(bytes) => {
                    assert_eq!(links, 0, "{what}: {:?} has names", opened.ino);
                    bytes
                }
            };
            assert!(found == expected, "{what}: what {:?} holds", opened.ino);
        }
    }

    /// Takes over what the fork was led to, which must be shown at once.
    fn stands_on(&mut self, what: &str, kept: &Kept, went: Option<(&Sight, Timestamp)>) {
        let past = std::mem::replace(&mut self.reference, kept.reference.clone());
        self.reference.forget_numbers_below(past.made());
        let is_another_era = self.era != kept.era;
        if is_another_era {
            self.nodes = kept.nodes.clone();
            self.era = kept.era;
        }
        for opened in &mut self.opened {
            let Holds::Node(node) = opened.held else {
                continue;
            };
            let before = past.content(node);
            let (_, links) = self.subject.read_open(opened.ino);
            let had_names = past.has_name(node);
            // The number means the same file still, or one without a name.
            let is_same = had_names && links > 0;
            if !is_same {
                opened.held = Holds::Bytes(before.to_vec());
            }
        }
        // Open files and their names part.
        if !self.opened.is_empty() || self.nodes.is_renumbered || kept.nodes.is_renumbered {
            self.nodes.renumber();
        }
        // As it was, but for the numbers of open files.
        let mut sight = self.sight();
        for (path, was) in &kept.sight {
            let now = sight.get_mut(path);
            let now = now.unwrap_or_else(|| {
                panic!("{what}: {:?} is missing", String::from_utf8_lossy(path))
            });
            now.node = was.node;
        }
        if let Some((before, since)) = went {
            let times = (Some(&kept.sight), before);
            check_times(what, &mut self.reference, &mut sight, times, since);
        }
        assert!(
            sight == kept.sight,
            "{what}: {} is not as it was: {:?}",
            self.name,
            differences(&kept.sight, &sight)
        );
        if is_another_era {
            self.find_open_nodes(what);
        }
    }

    /// The reference of another era numbers its nodes in another way: those that are the same still
    /// are known by where they stand now.
    fn find_open_nodes(&mut self, what: &str) {
        let sight = self.subject.sight();
        for opened in &mut self.opened {
            if let Holds::Node(node) = &mut opened.held {
                let (path, _) = sight
                    .iter()
                    .find(|(_, seen)| seen.node == opened.ino.0)
                    .unwrap_or_else(|| panic!("{what}: {:?} has no name", opened.ino));
                let mut paths = self.reference.paths().into_iter();
                let place = paths.find(|known| known.join(&b'/') == *path);
                let place =
                    place.unwrap_or_else(|| panic!("{what}: the reference has no such path"));
                *node = self.reference.node_at(&place).expect("it was listed");
            }
        }
    }
}

fn differences(was: &Sight, is: &Sight) -> Vec<String> {
    let paths: BTreeSet<_> = was.keys().chain(is.keys()).collect();
    let differ = paths
        .into_iter()
        .filter(|path| was.get(*path) != is.get(*path));
    let show = |sight: &Sight, path: &Vec<u8>| {
        sight.get(path).map(|seen| {
            format!(
                "{:?} {:o} {} {} {:?} {:?}",
                seen.kind, seen.perm, seen.nlink, seen.size, seen.mtime, seen.xattrs
            )
        })
    };
    differ
        .map(|path| {
            let name = String::from_utf8_lossy(path).into_owned();
            format!("{name:?}: {:?} now {:?}", show(was, path), show(is, path))
        })
        .collect()
}

impl<'r> Family<'r> {
    fn new(repo: &'r TestRepo) -> Family<'r> {
        let repository = Repository::discover(repo.dir()).expect("it was just made");
        let mut family = Family {
            repo,
            store: None,
            repository,
            members: Vec::new(),
            eras: 0,
        };
        family.open_store();
        let name = family.make(None);
        let store = family.store();
        let fork = store.open_fork(&name).expect("it was just made");
        let record = store.record(&name).expect("it was just made");
        let reference = Reference::read(repo.dir(), record.base_attrs.time);
        family.members.push(Member {
            name,
            subject: ByInode::new(fork.workspace.clone()),
            fork,
            reference,
            nodes: Nodes::default(),
            era: 0,
            snapshots: Vec::new(),
            opened: Vec::new(),
        });
        family
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open except within reopen")
    }

    fn open_store(&mut self) {
        self.store = Some(open_store(&self.repository).expect("the store opens"));
    }

    fn make(&self, parent: Option<ParentOptions>) -> ForkName {
        let name = ForkName::parse(&fresh_name()).expect("it is a name");
        // SAFETY: these calls touch no memory.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        let options = ForkOptions {
            name: name.clone(),
            git_dir: self.repo.git_dir(),
            from: None,
            state: None,
            parent,
            branch: None,
            detached: false,
            git_kind: Default::default(),
            untrusted: false,
            follow: false,
            mount_dir: self.repo.root().join("repo.forks").join(name.as_str()),
            mounted: false,
            settings: MountSettings::default(),
            on_unmount: UnmountPolicy::Keep,
            carry: Default::default(),
            snapshot_every: None,
            uid,
            gid,
            umask: 0o022,
        };
        self.store().create_fork(&options).expect("a fork is made");
        name
    }

    fn adopt(&mut self, what: &str, parent: usize, snapshot: Option<usize>) {
        if self.members.len() >= FORKS_MAX {
            return;
        }
        let store = self.store();
        let of = &self.members[parent];
        let kept = snapshot.map(|index| of.snapshots[index].clone());
        let record = kept.as_ref().map(|kept| {
            store
                .snapshot(&of.name, &kept.name)
                .expect("a snapshot that was taken is there")
        });
        let name = self.make(Some(ParentOptions {
            name: of.name.clone(),
            fork: of.fork.clone(),
            snapshot: record,
        }));
        let fork = self.store().open_fork(&name).expect("it was just made");
        let parent = &mut self.members[parent];
        let kept = kept.unwrap_or_else(|| Kept {
            name: name.clone(),
            reference: parent.reference.clone(),
            sight: parent.sight(),
            nodes: parent.nodes.clone(),
            era: parent.era,
        });
        // Numbers are those of the parent, and what was given out elsewhere is no affair of the
        // child's.
        let kept = Kept {
            nodes: Nodes::default(),
            ..kept
        };
        let mut child = Member {
            name,
            subject: ByInode::new(fork.workspace.clone()),
            fork,
            reference: kept.reference.clone(),
            nodes: kept.nodes.clone(),
            era: kept.era,
            snapshots: Vec::new(),
            opened: Vec::new(),
        };
        child.stands_on(what, &kept, None);
        assert!(
            child.sight() == kept.sight,
            "{what}: numbers are those of the parent"
        );
        self.members.push(child);
    }

    fn reopen(&mut self) {
        let mut closed = Vec::new();
        for member in self.members.drain(..) {
            let Member {
                name,
                fork,
                subject,
                reference,
                nodes,
                era,
                snapshots,
                ..
            } = member;
            drop((subject, fork));
            closed.push((name, reference, nodes, era, snapshots));
        }
        self.store = None;
        self.open_store();
        for (name, reference, nodes, era, snapshots) in closed {
            let fork = self.store().open_fork(&name).expect("the fork opens again");
            self.members.push(Member {
                name,
                subject: ByInode::new(fork.workspace.clone()),
                fork,
                reference,
                nodes,
                era,
                snapshots,
                opened: Vec::new(),
            });
        }
    }

    /// The model of a fork that was taken back to HEAD.
    fn at_head(&self, member: &Member) -> Reference {
        let place = tempfile::tempdir().expect("there is room");
        let dir = place.path().join("head");
        std::fs::create_dir(&dir).expect("there is room");
        let script = format!(
            "git archive {} | tar -x -C {}",
            self.repo
                .git(&["rev-parse", &format!("tine/{}", member.name)]),
            dir.display()
        );
        self.repo.sh_in(self.repo.dir(), &script);
        let record = self
            .store()
            .record(&member.name)
            .expect("the fork is there");
        Reference::read(&dir, record.base_attrs.time)
    }

    fn apply(&mut self, what: &str, op: &FamilyOp) {
        let count = self.members.len();
        let on = |index: &u8| usize::from(*index) % count;
        match op {
            FamilyOp::On(fork, op) => self.on(what, on(fork), op),
            FamilyOp::Snapshot(fork) => {
                let options = SnapshotOptions::because(SnapshotReason::Asked);
                let index = on(fork);
                let sight = self.members[index].sight();
                let member = &self.members[index];
                let taken = self
                    .store()
                    .take_snapshot(&member.name, &member.fork, &options);
                let name = taken.expect("a snapshot is taken").name;
                let member = &mut self.members[index];
                assert!(
                    sight == member.sight(),
                    "{what}: numbers survive freezing, and all else"
                );
                member.snapshots.push(Kept {
                    name,
                    reference: member.reference.clone(),
                    sight,
                    nodes: member.nodes.clone(),
                    era: member.era,
                });
            }
            FamilyOp::Restore(fork, snapshot) => {
                let member = &self.members[on(fork)];
                if let Some(index) = round(*snapshot, member.snapshots.len()) {
                    self.restore(what, on(fork), on(fork), index);
                }
            }
            FamilyOp::RestoreForeign(fork, other, snapshot) => {
                let of = &self.members[on(other)];
                if let Some(index) = round(*snapshot, of.snapshots.len()) {
                    self.restore(what, on(fork), on(other), index);
                }
            }
            FamilyOp::RemoveSnapshot(fork, snapshot) => {
                let member = &mut self.members[on(fork)];
                if let Some(index) = round(*snapshot, member.snapshots.len()) {
                    let kept = member.snapshots.remove(index);
                    let name = member.name.clone();
                    let removed = self.store().remove_snapshot(&name, &kept.name);
                    removed.expect("a snapshot is removed");
                }
            }
            FamilyOp::Reset(fork) => self.reset(what, on(fork)),
            FamilyOp::Child(fork) => self.adopt(what, on(fork), None),
            FamilyOp::ChildOf(fork, snapshot) => {
                if let Some(index) = round(*snapshot, self.members[on(fork)].snapshots.len()) {
                    self.adopt(what, on(fork), Some(index));
                }
            }
            FamilyOp::Delete(fork) => {
                if count > 1 {
                    let Member {
                        name,
                        fork,
                        subject,
                        ..
                    } = self.members.remove(on(fork));
                    drop((subject, fork));
                    self.store()
                        .remove_fork(&name)
                        .expect("nobody holds it open");
                }
            }
            FamilyOp::Open(fork, path) => {
                let member = &mut self.members[on(fork)];
                let paths = member.reference.paths();
                if let Some(index) = round(*path, paths.len())
                    && let Some(node) = member.reference.node_at(&paths[index])
                    && let Some(ino) = member.subject.hold_open(&paths[index])
                {
                    let held = Holds::Node(node);
                    member.opened.push(Opened { ino, held });
                }
            }
            FamilyOp::WriteOpen(fork, opened, offset, seed) => {
                let member = &mut self.members[on(fork)];
                if let Some(index) = round(*opened, member.opened.len()) {
                    let data = vec![*seed; usize::from(*seed) * 40];
                    member.write_open(index, u64::from(*offset), &data);
                }
            }
            FamilyOp::Close(fork, opened) => {
                let member = &mut self.members[on(fork)];
                if let Some(index) = round(*opened, member.opened.len()) {
                    let opened = member.opened.remove(index);
                    member.subject.close(opened.ino);
                }
            }
            FamilyOp::Sync(fork) => {
                let workspace = &self.members[on(fork)].fork.workspace;
                workspace
                    .sync()
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            FamilyOp::Collect => drop(self.store().collect().expect("what is unreached is freed")),
            FamilyOp::GitGc => drop(self.repo.git(&["gc", "-q", "--prune=now"])),
            FamilyOp::Reopen => self.reopen(),
        }
    }

    fn on(&mut self, what: &str, index: usize, op: &Op) {
        let member = &mut self.members[index];
        let Some(step) = op.step(&member.reference) else {
            return;
        };
        match step {
            Step::Reopen => self.reopen(),
            Step::Commit => {
                let options = CommitOptions {
                    message: "a step".to_owned(),
                    ..CommitOptions::default()
                };
                match commit(&self.repository, &member.name, &member.fork, &options) {
                    Ok(_) | Err(ChangeError::NothingToCommit) => {}
                    Err(error) => panic!("{what}: the commit failed: {error}"),
                }
            }
            step => {
                let expected = member.reference.apply(&step);
                assert_eq!(member.subject.apply(&step), expected, "{what}: {step:?}");
            }
        }
    }

    fn restore(&mut self, what: &str, index: usize, of: usize, snapshot: usize) {
        let mut kept = self.members[of].snapshots[snapshot].clone();
        let store = self.store();
        let record = store.snapshot(&self.members[of].name, &kept.name);
        let record = record.expect("a snapshot that was taken is there");
        if of != index {
            // Another fork gave the numbers.
            kept.nodes.renumber();
        }
        let (before, since) = (self.before(index), Timestamp::now());
        let member = &self.members[index];
        let restored = store.restore(
            &member.name,
            &member.fork,
            &record,
            SnapshotReason::BeforeRestore,
        );
        let name = restored
            .unwrap_or_else(|error| panic!("{what}: {error}"))
            .name;
        let member = &mut self.members[index];
        if of != index {
            self.eras += 1;
            (kept.era, kept.nodes) = (self.eras, Nodes::default());
        }
        member.stands_on(what, &kept, Some((&before.sight, since)));
        member.snapshots.push(Kept { name, ..before });
    }

    /// What the fork is, to be found in the snapshot that is taken of it.
    fn before(&self, index: usize) -> Kept {
        let member = &self.members[index];
        let mut look = ByInode::new(member.fork.workspace.clone());
        Kept {
            name: member.name.clone(),
            reference: member.reference.clone(),
            sight: look.sight(),
            nodes: member.nodes.clone(),
            era: member.era,
        }
    }

    fn reset(&mut self, what: &str, index: usize) {
        let (before, since) = (self.before(index), Timestamp::now());
        let member = &self.members[index];
        let reset =
            self.store()
                .reset_fork(&member.name, &member.fork, SnapshotReason::BeforeReset);
        let name = reset
            .unwrap_or_else(|error| panic!("{what}: {error}"))
            .map(|taken| taken.name);
        let reference = self.at_head(&self.members[index]);
        self.eras += 1;
        let era = self.eras;
        let member = &mut self.members[index];
        let sight = member.sight();
        let kept = Kept {
            name: member.name.clone(),
            reference,
            sight,
            nodes: Nodes::default(),
            era,
        };
        member.stands_on(what, &kept, Some((&before.sight, since)));
        if let Some(name) = name {
            member.snapshots.push(Kept { name, ..before });
        }
    }

    /// Nothing is kept but what a record names, and refs of forks that are there.
    fn check_store(&self, what: &str, nobody_uses_more: bool) {
        let store = self.store();
        let (records, errors) = store.records();
        assert!(errors.is_empty(), "{what}: {errors:?}");
        let mut named = BTreeSet::new();
        for record in &records {
            named.insert(record.open_layer);
            named.extend(&record.frozen_layers);
            for snapshot in store.snapshots(&record.name).expect("they can be read") {
                named.extend(snapshot.frozen_layers);
            }
        }
        let numbers = |dir: &HostPath| -> BTreeSet<u64> {
            std::fs::read_dir(dir)
                .expect("the store has layers")
                .filter_map(|entry| {
                    entry
                        .expect("it can be read")
                        .file_name()
                        .to_str()?
                        .parse()
                        .ok()
                })
                .collect()
        };
        let found = numbers(&store.dir().join("layers"));
        assert!(
            found.is_superset(&named),
            "{what}: {found:?} of the layers {named:?}"
        );
        if nobody_uses_more {
            assert_eq!(found, named, "{what}: layers");
        }
        for (member, kept) in self
            .members
            .iter()
            .flat_map(|m| m.snapshots.iter().map(move |kept| (m, kept)))
        {
            let found = store.snapshot(&member.name, &kept.name);
            assert!(
                found.is_ok(),
                "{what}: {} of {} is gone",
                kept.name,
                member.name
            );
        }
    }

    /// Each snapshot, looked into, is as it was.
    fn check_snapshots(&self, what: &str) {
        for member in &self.members {
            for kept in &member.snapshots {
                let store = self.store();
                let record = store
                    .snapshot(&member.name, &kept.name)
                    .expect("it is there");
                let fork = store
                    .open_snapshot(&member.name, &record)
                    .expect("it can be looked into");
                let mut sight = ByInode::new(fork.workspace.clone()).sight();
                for (path, seen) in &mut sight {
                    seen.node = kept.sight.get(path).map_or(0, |was| was.node);
                }
                assert!(
                    sight == kept.sight,
                    "{what}: the snapshot {} of {} is another: {:?}",
                    kept.name,
                    member.name,
                    differences(&kept.sight, &sight)
                );
            }
        }
    }
}

impl Member {
    fn write_open(&mut self, index: usize, offset: u64, data: &[u8]) {
        let opened = &mut self.opened[index];
        self.subject.write_open(opened.ino, offset, data);
        if data.is_empty() {
            return;
        }
        match &mut opened.held {
            Holds::Node(node) => self.reference.write_node(*node, offset, data),
            Holds::Bytes(_) => {
                let ino = opened.ino;
                // Several may have the same file open.
                for opened in self.opened.iter_mut().filter(|opened| opened.ino == ino) {
                    if let Holds::Bytes(bytes) = &mut opened.held {
                        let end = offset as usize + data.len();
                        bytes.resize(bytes.len().max(end), 0);
                        bytes[offset as usize..end].copy_from_slice(data);
                    }
                }
            }
        }
    }
}

/// One sequence of a family's life, in a repository of its own, because forks outlive a failure.
pub fn case(ops: &[FamilyOp]) {
    let repo = &TestRepo::new();
    let mut family = Family::new(repo);
    for (number, op) in ops.iter().enumerate() {
        let what = format!("step {number}, {op:?}");
        family.apply(&what, op);
        for member in &mut family.members {
            member.check(&what);
        }
        if !matches!(op, FamilyOp::On(..)) {
            family.check_store(&what, matches!(op, FamilyOp::Reopen));
        }
    }
    family.check_snapshots("at the end");
    family.reopen();
    for member in &mut family.members {
        member.check("after opening again");
    }
    family.check_store("after opening again", true);
    family.check_snapshots("after opening again");
    let members = std::mem::take(&mut family.members);
    for Member {
        name,
        fork,
        subject,
        ..
    } in members
    {
        drop((subject, fork));
        family
            .store()
            .remove_fork(&name)
            .expect("nobody holds it open");
    }
    family.check_store("when all is gone", true);
    let refs = repo.git(&["for-each-ref", "--format=%(refname)", "refs/tine"]);
    assert_eq!(refs, "", "refs of forks that are gone");
}
