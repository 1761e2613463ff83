//! Entry points for fuzzers: they read damaged and invented logs.
//!
//! `fuzz/` calls them with a fuzzer's bytes, the tests of this crate with random ones. Each entry
//! point takes any bytes. It panics if reading panics, or if a damaged log shows a state that was
//! never written.

use std::path::Path;
use std::sync::LazyLock;

use super::record::testing::{BOOT, Bytes, HEADER_LEN, OTHER_BOOT, read};
use super::{
    CarriedContent, Content, ContentLocation, ContentRef, Dentry, FileVersion, LayerError, LayerId,
    LayerIndex, Node, Op, Origin, Xattrs,
};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::{ObjectId, TreeEntryKind};
use tine_path::{EntryName, RepoPath};

const ID: LayerId = LayerId(7);

/// Reads `bytes` as a log, and as what follows a valid header.
pub fn read_noise(bytes: &[u8]) {
    let mut behind_header = Bytes::new(ID).bytes;
    behind_header.extend_from_slice(bytes);
    for log in [bytes, &behind_header] {
        for boot in [BOOT, OTHER_BOOT] {
            if let Ok((index, good_len)) = read(log, boot) {
                assert!(good_len <= log.len());
                read_again(&index);
            }
        }
    }
}

/// Reads a log of records with valid checksums and bodies from `bytes`.
///
/// Each body is a byte of length, then as many bytes.
pub fn read_records(bytes: &[u8]) {
    let mut log = Bytes::new(ID);
    let mut rest = bytes;
    while let Some((&len, after)) = rest.split_first() {
        let (body, after) = after.split_at(usize::from(len).min(after.len()));
        log.push_body(body);
        rest = after;
    }
    for boot in [BOOT, OTHER_BOOT] {
        match read(&log.bytes, boot) {
            Ok((index, good_len)) => {
                assert_eq!(good_len, log.bytes.len(), "every checksum is right");
                read_again(&index);
            }
            Err(LayerError::Corrupt { path, .. }) => assert_eq!(path, Path::new("log")),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Asserts that a checkpoint of the index reads as the same index.
fn read_again(index: &LayerIndex) {
    let mut log = Bytes::new(ID);
    let ops: Vec<Op> = index.checkpoint().collect();
    log.push_ops(0, &ops);
    match read(&log.bytes, BOOT) {
        Ok((again, _)) => assert!(
            state_of(&again) == state_of(index),
            "a checkpoint says something else"
        ),
        Err(error) => panic!("a checkpoint cannot be read: {error}"),
    }
}

/// Damages a log according to `bytes` and reads it.
///
/// The result must be the state after one of the log's records, or an error.
pub fn read_damaged(bytes: &[u8]) {
    let Some((choice, changes)) = bytes.split_first() else {
        return;
    };
    let sample = &SAMPLES[usize::from(*choice) % SAMPLES.len()];
    let damaged = damage(&sample.log, changes);
    // A header of the other layer's log makes this a log of that layer. The reader knows which
    // layer a log must belong to.
    let sample = if damaged.starts_with(&FOREIGN.log[..HEADER_LEN]) {
        &FOREIGN
    } else {
        sample
    };
    for boot in [BOOT, OTHER_BOOT] {
        match read(&damaged, boot) {
            Ok((index, good_len)) => {
                let found = state_of(&index);
                let known = sample.ends.iter().position(|end| *end == good_len);
                let is_known = match known {
                    Some(number) => sample.states[number] == found,
                    // Truncated within the part that every log begins with.
                    None => good_len < sample.ends[0] && found == State::default(),
                };
                assert!(
                    is_known,
                    "{good_len} bytes of {} are taken for good",
                    damaged.len()
                );
            }
            Err(LayerError::Corrupt { offset, reason, .. }) => {
                assert!(offset <= damaged.len() as u64 && !reason.is_empty());
            }
            Err(LayerError::NewerFormat { found, .. }) => assert!(found > 1),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Changes `log` in steps, each of which takes seven bytes of `changes`.
fn damage(log: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut damaged = log.to_vec();
    for step in changes.chunks_exact(7) {
        let number = |at: usize| usize::from(u16::from_le_bytes([step[at], step[at + 1]]));
        let len = damaged.len();
        if len == 0 {
            break;
        }
        let (from, to) = (number(1) % len, number(3) % len);
        let span = (1 + number(5) % 600).min(len - from);
        match step[0] % 9 {
            0 => damaged.truncate(from),
            1 => damaged[from] ^= 1 << (step[3] % 8),
            2 => damaged[from..from + span].fill(0),
            // From elsewhere in the same log.
            3 => damaged.copy_within(from..from + span.min(len - to), to),
            // From a log of another layer, at the same place or another one.
            4 | 5 => {
                let other = &FOREIGN.log;
                let source = if step[0] % 9 == 4 { from } else { to } % other.len();
                let span = span.min(other.len() - source);
                damaged[from..from + span].copy_from_slice(&other[source..source + span]);
            }
            6 => {
                let copy = damaged[from..from + span].to_vec();
                damaged.splice(to..to, copy);
            }
            7 => drop(damaged.drain(from..from + span)),
            // A length, huge or small.
            _ => {
                let bytes = (u32::MAX >> (step[3] % 32)).to_le_bytes();
                let span = span.min(4);
                damaged[from..from + span].copy_from_slice(&bytes[..span]);
            }
        }
    }
    damaged
}

/// Log and its state after each of its records.
struct Sample {
    log: Vec<u8>,
    ends: Vec<usize>,
    states: Vec<State>,
}

/// State of an index, sorted.
#[derive(Debug, Default, PartialEq)]
struct State {
    nodes: Vec<(Ino, Node)>,
    dentries: Vec<(Ino, EntryName, Dentry)>,
}

fn state_of(index: &LayerIndex) -> State {
    let mut nodes: Vec<_> = index
        .nodes()
        .map(|(ino, node)| (ino, node.clone()))
        .collect();
    nodes.sort_by_key(|(ino, _)| *ino);
    let mut dentries: Vec<_> = index
        .dirs()
        .flat_map(|(parent, dir)| {
            dir.iter()
                .map(move |(name, dentry)| (parent, name.clone(), dentry))
        })
        .collect();
    dentries.sort_by(|one, other| (one.0, one.1.as_bytes()).cmp(&(other.0, other.1.as_bytes())));
    State { nodes, dentries }
}

/// Two open logs and a sealed one.
///
/// Nothing or the beginning of an open one is synced.
static SAMPLES: LazyLock<[Sample; 3]> = LazyLock::new(|| {
    [
        sample(ID, 0, false),
        sample(ID, 3, false),
        sample(ID, 3, true),
    ]
});
static FOREIGN: LazyLock<Sample> = LazyLock::new(|| sample(LayerId(8), 0, false));

/// Creates a log with changes of every kind.
///
/// The records from the sixth on know that `synced` records were on disk.
fn sample(id: LayerId, synced: usize, sealed: bool) -> Sample {
    let mut log = Bytes::new(id);
    let mut ends = vec![log.bytes.len()];
    let mut index = LayerIndex::default();
    let mut states = vec![State::default()];
    for (number, ops) in history(id).into_iter().enumerate() {
        let synced_len = if number >= 6 { ends[synced] } else { 0 };
        log.push_ops(synced_len, &ops);
        for op in ops {
            index.apply(op, &mut Default::default());
        }
        ends.push(log.bytes.len());
        states.push(state_of(&index));
    }
    if sealed {
        log.push_seal();
        ends.push(log.bytes.len());
        states.push(state_of(&index));
    }
    Sample {
        log: log.bytes,
        ends,
        states,
    }
}

fn history(id: LayerId) -> Vec<Vec<Op>> {
    let ino = |number: u64| Ino(Ino::NEW_BIT | number);
    let node = |content: Content, size: u64| Node {
        kind: FileKind::Regular,
        perm: 0o644,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size,
        atime: Timestamp::from_secs(-1),
        mtime: Timestamp::from_secs(2),
        ctime: Timestamp::from_secs(3),
        content,
        origin: None,
        xattrs: Xattrs::new(),
    };
    let own = |place| Content::Own(ContentRef { layer: id, place });
    let slot = |number: u64| {
        own(ContentLocation::Slot {
            offset: number * 4096,
            capacity: 4096,
        })
    };
    let name = |text: &str| EntryName::new(text).expect("a good name");
    let put = |parent: Ino, text: &str, to: Ino| Op::PutDentry {
        parent,
        name: name(text),
        dentry: Dentry::Entry(to),
    };
    let with_attributes = Node {
        xattrs: Xattrs::from([(b"user.note"[..].into(), vec![7; 300].into())]),
        ..node(slot(1), 20)
    };
    let of_the_base = Node {
        origin: Some(Box::new(Origin {
            path: RepoPath::parse("src/main.rs").expect("a good path"),
            kind: TreeEntryKind::File,
            id: ObjectId::null(gix::hash::Kind::Sha1),
        })),
        ..node(Content::Base, 5)
    };
    let carried = |version| {
        Content::Carried(Box::new(CarriedContent {
            path: RepoPath::parse("target/debug").expect("a good path"),
            version,
        }))
    };
    let version = FileVersion {
        host_ino: 7,
        size: 5,
        mtime: Timestamp::from_secs(1),
        ctime: Timestamp::from_secs(2),
    };
    vec![
        vec![Op::ReserveInos { below: ino(1024) }],
        vec![
            Op::PutNode(Ino(77), node(carried(Some(version)), 5)),
            Op::PutNode(
                Ino(78),
                Node {
                    kind: FileKind::Directory,
                    ..node(carried(None), 0)
                },
            ),
            put(Ino(78), "carried", Ino(77)),
        ],
        vec![
            Op::PutNode(ino(1), node(slot(0), 4)),
            put(Ino::ROOT, "one", ino(1)),
        ],
        vec![Op::Written {
            ino: ino(1),
            size: 9,
            time: Timestamp::from_secs(4),
        }],
        vec![
            Op::PutNode(ino(2), with_attributes),
            put(Ino::ROOT, "two", ino(2)),
        ],
        vec![
            Op::PutNode(
                ino(3),
                Node {
                    kind: FileKind::Symlink,
                    ..node(Content::Link(b"target"[..].into()), 6)
                },
            ),
            put(Ino::ROOT, "link", ino(3)),
        ],
        vec![
            Op::PutNode(Ino(5), of_the_base),
            Op::PutDentry {
                parent: Ino(4),
                name: name("main.rs"),
                dentry: Dentry::Whiteout,
            },
        ],
        vec![
            put(Ino::ROOT, "three", ino(1)),
            Op::DropDentry {
                parent: Ino::ROOT,
                name: name("one"),
            },
        ],
        vec![
            Op::PutNode(ino(4), node(own(ContentLocation::File(1)), 100_000)),
            put(Ino::ROOT, "large", ino(4)),
        ],
        vec![
            Op::DropNode(ino(2)),
            Op::DropDentry {
                parent: Ino::ROOT,
                name: name("two"),
            },
        ],
        vec![Op::Written {
            ino: ino(4),
            size: 10,
            time: Timestamp::from_secs(9),
        }],
    ]
}
