//! Snapshots and ways back of one fork through its mount: the kernel's caches show what was
//! restored at once, and what programs have open stays theirs.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use proptest::prelude::*;
use tine::attr::Timestamp;
use tine::store::{SnapshotOptions, SnapshotReason};

use super::posix::Directory;
use super::reference::Reference;
use super::steps::{self, Op, Sight, Step, Subject, joined};
use super::{Nodes, base_time, check_times, commit, compare, fresh_name};
use crate::support::{TestFork, TestRepo};

/// One random step. Snapshots and open files are counted round.
#[derive(Debug, Clone)]
pub enum MountOp {
    On(Op),
    Snapshot,
    Restore(u8),
    Open(u8),
    WriteOpen(u8, u32, u8),
    Close(u8),
}

pub fn op() -> impl Strategy<Value = MountOp> {
    let n = any::<u8>;
    prop_oneof![
        20 => steps::op().prop_map(MountOp::On),
        4 => Just(MountOp::Snapshot),
        4 => n().prop_map(MountOp::Restore),
        4 => n().prop_map(MountOp::Open),
        4 => (n(), 0..100_000_u32, n()).prop_map(|(h, o, s)| MountOp::WriteOpen(h, o, s)),
        1 => n().prop_map(MountOp::Close),
    ]
}

/// A file that is open, and what it holds: a node of the reference, or bytes that the fork does not
/// show.
struct Opened {
    file: File,
    held: Result<u64, Vec<u8>>,
}

impl Opened {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.file.metadata().expect("it is open").len() as usize + 10];
        let len = self.file.read_at(&mut bytes, 0).expect("it is open");
        bytes.truncate(len);
        bytes
    }

    fn links(&self) -> u64 {
        self.file.metadata().expect("it is open").nlink()
    }
}

struct Kept {
    name: tine::store::ForkName,
    reference: Reference,
    sight: Sight,
}

/// One sequence.
pub fn case(repo: &TestRepo, ops: &[MountOp]) {
    let mut fork = TestFork::mounted(repo, &fresh_name());
    let mut reference = Reference::read(repo.dir(), base_time(&fork));
    let mut subject = Directory::new(fork.path());
    let mut nodes = Nodes::default();
    let mut kept: Vec<Kept> = Vec::new();
    let mut opened: Vec<Opened> = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        let what = format!("step {number}, {op:?}");
        match op {
            MountOp::On(op) => match op.step(&reference) {
                None => continue,
                Some(Step::Commit) => commit(&fork),
                Some(Step::Reopen) => {
                    opened.clear();
                    fork.reopen();
                }
                Some(step) => {
                    let expected = reference.apply(&step);
                    assert_eq!(subject.apply(&step), expected, "{what}: {step:?}");
                    continue;
                }
            },
            MountOp::Snapshot => {
                let sight = subject.sight();
                let options = SnapshotOptions::because(SnapshotReason::Asked);
                let taken = fork
                    .store()
                    .take_snapshot(fork.name(), fork.fork(), &options);
                let name = taken.expect("a snapshot is taken").name;
                assert!(sight == subject.sight(), "{what}: nothing is seen of it");
                kept.push(Kept {
                    name,
                    reference: reference.clone(),
                    sight,
                });
            }
            MountOp::Restore(index) => {
                let Some(index) = usize::from(*index).checked_rem(kept.len()) else {
                    continue;
                };
                let sight = subject.sight();
                let since = Timestamp::now();
                let to = fork.store().snapshot(fork.name(), &kept[index].name);
                let to = to.expect("it was taken");
                let reason = SnapshotReason::BeforeRestore;
                let before = fork.store().restore(fork.name(), fork.fork(), &to, reason);
                let name = before.expect("the fork is restored").name;
                let past = std::mem::replace(&mut reference, kept[index].reference.clone());
                reference.forget_numbers_below(past.made());
                nodes.renumber();
                for opened in &mut opened {
                    if let Ok(node) = opened.held
                        && !(past.has_name(node) && opened.links() > 0)
                    {
                        opened.held = Err(past.content(node).to_vec());
                    }
                }
                let mut found = subject.sight();
                for (path, was) in &kept[index].sight {
                    let path_text = String::from_utf8_lossy(path);
                    let now = found.get_mut(path);
                    now.unwrap_or_else(|| panic!("{what}: {path_text:?} is missing"))
                        .node = was.node;
                }
                let times = (Some(&kept[index].sight), &sight);
                check_times(&what, &mut reference, &mut found, times, since);
                assert!(found == kept[index].sight, "{what}: it is not as it was");
                kept.push(Kept {
                    name,
                    reference: past,
                    sight,
                });
            }
            MountOp::Open(index) => {
                let paths = reference.paths();
                let Some(path) = usize::from(*index)
                    .checked_rem(paths.len())
                    .map(|at| &paths[at])
                else {
                    continue;
                };
                let node = reference.node_at(path).expect("it is listed");
                if reference.is_file(node) {
                    let mut options = OpenOptions::new();
                    options
                        .read(true)
                        .write(true)
                        .custom_flags(libc::O_NOFOLLOW);
                    let full = fork.path().join(OsStr::from_bytes(&joined(path)));
                    let file = options.open(full).expect("a file can be opened");
                    let held = Ok(node);
                    opened.push(Opened { file, held });
                }
                continue;
            }
            MountOp::WriteOpen(index, offset, seed) => {
                let Some(index) = usize::from(*index).checked_rem(opened.len()) else {
                    continue;
                };
                write(
                    &mut opened,
                    index,
                    u64::from(*offset),
                    *seed,
                    &mut reference,
                );
            }
            MountOp::Close(index) => {
                if let Some(index) = usize::from(*index).checked_rem(opened.len()) {
                    opened.remove(index);
                }
                continue;
            }
        }
        compare(&what, &reference.sight(), subject.sight(), &mut nodes);
        for opened in &opened {
            let found = opened.bytes();
            match &opened.held {
                Ok(node) => assert!(found == reference.content(*node), "{what}: an open file"),
                Err(bytes) => {
                    assert_eq!(
                        opened.links(),
                        0,
                        "{what}: a file that the fork does not show"
                    );
                    assert!(
                        found == *bytes,
                        "{what}: a file that the fork does not show"
                    );
                }
            }
        }
    }
    compare(
        "at the end",
        &reference.sight(),
        subject.sight(),
        &mut nodes,
    );
    drop(opened);
    fork.reopen();
    compare(
        "after opening again",
        &reference.sight(),
        subject.sight(),
        &mut nodes,
    );
    fork.remove();
}

fn write(opened: &mut [Opened], index: usize, offset: u64, seed: u8, reference: &mut Reference) {
    let data = vec![seed; usize::from(seed) * 40 + 1];
    let file = &opened[index].file;
    file.write_all_at(&data, offset)
        .expect("an open file can be written");
    if let Ok(node) = opened[index].held {
        return reference.write_node(node, offset, &data);
    }
    let ino = file.metadata().expect("it is open").ino();
    for other in opened.iter_mut() {
        if other.file.metadata().expect("it is open").ino() == ino
            && let Err(bytes) = &mut other.held
        {
            let end = offset as usize + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
        }
    }
}
