//! What a random test does, and what can be seen of it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tine::attr::{FileKind, Timestamp};
use tine::workspace::RenameMode;

use super::reference::Reference;

/// Names that operations use: few, so that they meet; some of the base, some not, some that are
/// awkward.
pub fn name_of(index: u8) -> Vec<u8> {
    match index % NAMES {
        0 => b"README.md".to_vec(),
        1 => b"src".to_vec(),
        2 => b"docs".to_vec(),
        3 => b"a".to_vec(),
        4 => b"b".to_vec(),
        5 => b"b.c".to_vec(),
        6 => b"x.log".to_vec(),
        7 => b".gitignore".to_vec(),
        8 => b"\xff\xfe not utf-8".to_vec(),
        9 => vec![b'n'; 255],
        10 => vec![b'n'; 256],
        _ => b"build".to_vec(),
    }
}

const NAMES: u8 = 12;

/// What the umask that tests run with leaves of a new node's mode.
const UNMASKED: u16 = 0o755;

/// How an operation finds its path: by what exists when it runs, so that most operations hit
/// something.
#[derive(Debug, Clone)]
pub enum Pick {
    /// One of the existing paths, counted round.
    Existing(u8),
    /// A name in one of the existing directories, counted round.
    In(u8, u8),
    /// Names, whatever they lead to.
    Names(Vec<u8>),
}

impl Pick {
    fn path(&self, reference: &Reference) -> Path {
        match self {
            Pick::Existing(index) => {
                let paths = reference.paths();
                match paths.len() {
                    0 => vec![name_of(*index)],
                    count => paths[usize::from(*index) % count].clone(),
                }
            }
            Pick::In(dir, name) => {
                let dirs = reference.dirs();
                let mut path = dirs[usize::from(*dir) % dirs.len()].clone();
                path.push(name_of(*name));
                path
            }
            Pick::Names(names) => names.iter().copied().map(name_of).collect(),
        }
    }
}

/// Names from the root downwards.
pub type Path = Vec<Vec<u8>>;

/// A path as a person writes it.
pub fn joined(path: &Path) -> Vec<u8> {
    path.join(&b'/')
}

/// One random operation, before it is known what it meets.
#[derive(Debug, Clone)]
pub enum Op {
    Create(Pick, u8),
    Write(Pick, u32, u32, u8),
    WriteText(Pick, u8),
    Append(Pick, u32, u8),
    Truncate(Pick, u32),
    Mkdir(Pick, u8),
    Rmdir(Pick),
    Unlink(Pick),
    UnlinkWhileOpen(Pick, u32, u8),
    Rename(Pick, Pick, u8),
    Link(Pick, Pick),
    Symlink(Pick, u8),
    Fifo(Pick),
    Chmod(Pick, u8),
    Utimens(Pick, i32, u32),
    SetXattr(Pick, u8, u8),
    RemoveXattr(Pick, u8),
    Fallocate(Pick, u8, u32, u32),
    CopyRange(Pick, u32, Pick, u32, u32),
    Read(Pick, u32, u32),
    List(Pick),
    Commit,
    Reopen,
}

/// An operation as it is carried out by everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// `open(O_CREAT | O_EXCL)`
    Create {
        path: Path,
        perm: u16,
    },
    Write {
        path: Path,
        offset: u64,
        data: Vec<u8>,
    },
    Append {
        path: Path,
        data: Vec<u8>,
    },
    Truncate {
        path: Path,
        size: u64,
    },
    Mkdir {
        path: Path,
        perm: u16,
    },
    Rmdir {
        path: Path,
    },
    Unlink {
        path: Path,
    },
    /// Opens, unlinks, appends through the descriptor and reads all of it back.
    UnlinkWhileOpen {
        path: Path,
        data: Vec<u8>,
    },
    Rename {
        from: Path,
        to: Path,
        mode: RenameMode,
    },
    Link {
        from: Path,
        to: Path,
    },
    Symlink {
        path: Path,
        target: Vec<u8>,
    },
    Fifo {
        path: Path,
    },
    Chmod {
        path: Path,
        perm: u16,
    },
    Utimens {
        path: Path,
        mtime: Timestamp,
    },
    SetXattr {
        path: Path,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: Path,
        name: Vec<u8>,
    },
    Fallocate {
        path: Path,
        kind: Fallocate,
        offset: u64,
        len: u64,
    },
    CopyRange {
        from: Path,
        from_offset: u64,
        to: Path,
        to_offset: u64,
        len: u64,
    },
    Read {
        path: Path,
        offset: u64,
        len: u64,
    },
    List {
        path: Path,
    },
    Commit,
    Reopen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    Allocate,
    AllocateKeepingSize,
    PunchHole,
    ZeroRange,
    ZeroRangeKeepingSize,
}

/// What an operation gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Data(Vec<u8>),
    Names(BTreeMap<Vec<u8>, FileKind>),
    /// An errno.
    Failed(i32),
}

/// What can be seen of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: FileKind,
    pub perm: u16,
    pub nlink: u32,
    /// Of files and symlinks; 0 for anything else.
    pub size: u64,
    /// A file's content, a symlink's target.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Where it is known what it must be.
    pub mtime: Option<Timestamp>,
    /// Whatever tells nodes apart.
    pub node: u64,
}

/// Everything that can be seen, by joined path; the root under the empty path.
pub type Sight = BTreeMap<Vec<u8>, Seen>;

/// Whoever carries out steps.
pub trait Subject {
    fn apply(&mut self, step: &Step) -> Outcome;
    fn sight(&mut self) -> Sight;
}

impl Op {
    /// What the operation is at this point; `None` where it would mean nothing: reading a fifo,
    /// mode and xattrs of a symlink, and the like.
    pub fn step(&self, reference: &Reference) -> Option<Step> {
        let path = |pick: &Pick| pick.path(reference);
        let step = match self {
            Op::Create(pick, perm) => Step::Create {
                path: path(pick),
                perm: perm_of(*perm) & UNMASKED & !0o111 | 0o600,
            },
            Op::Write(pick, offset, len, seed) => Step::Write {
                path: path(pick),
                offset: (*offset).into(),
                data: data(*len, *seed),
            },
            Op::WriteText(pick, text) => Step::Write {
                path: path(pick),
                offset: 0,
                data: text_of(*text),
            },
            Op::Append(pick, len, seed) => Step::Append {
                path: path(pick),
                data: data(*len, *seed),
            },
            Op::Truncate(pick, size) => Step::Truncate {
                path: path(pick),
                size: (*size).into(),
            },
            Op::Mkdir(pick, perm) => Step::Mkdir {
                path: path(pick),
                perm: perm_of(*perm) & UNMASKED | 0o700,
            },
            Op::Rmdir(pick) => Step::Rmdir { path: path(pick) },
            Op::Unlink(pick) => Step::Unlink { path: path(pick) },
            Op::UnlinkWhileOpen(pick, len, seed) => Step::UnlinkWhileOpen {
                path: path(pick),
                data: data(*len, *seed),
            },
            Op::Rename(from, to, mode) => Step::Rename {
                from: path(from),
                to: path(to),
                mode: match mode % 4 {
                    0 | 1 => RenameMode::Replace,
                    2 => RenameMode::NoReplace,
                    _ => RenameMode::Exchange,
                },
            },
            Op::Link(from, to) => Step::Link {
                from: path(from),
                to: path(to),
            },
            Op::Symlink(pick, target) => Step::Symlink {
                path: path(pick),
                target: [b"../".as_slice(), &name_of(target % 10)].concat(),
            },
            Op::Fifo(pick) => Step::Fifo { path: path(pick) },
            Op::Chmod(pick, perm) => {
                let path = path(pick);
                let all = if reference.is_dir(&path) {
                    0o700
                } else {
                    0o600
                };
                Step::Chmod {
                    path,
                    perm: perm_of(*perm) | all,
                }
            }
            Op::Utimens(pick, secs, nanos) => Step::Utimens {
                path: path(pick),
                mtime: Timestamp {
                    secs: (*secs).into(),
                    nanos: nanos % 1_000_000_000,
                },
            },
            Op::SetXattr(pick, name, value) => Step::SetXattr {
                path: path(pick),
                name: format!("user.{}", name % 3).into_bytes(),
                value: vec![*value; usize::from(*value % 50)],
            },
            Op::RemoveXattr(pick, name) => Step::RemoveXattr {
                path: path(pick),
                name: format!("user.{}", name % 3).into_bytes(),
            },
            Op::Fallocate(pick, kind, offset, len) => Step::Fallocate {
                path: path(pick),
                kind: match kind % 5 {
                    0 => Fallocate::Allocate,
                    1 => Fallocate::AllocateKeepingSize,
                    2 => Fallocate::PunchHole,
                    3 => Fallocate::ZeroRange,
                    _ => Fallocate::ZeroRangeKeepingSize,
                },
                offset: (*offset).into(),
                len: u64::from(*len).max(1),
            },
            Op::CopyRange(from, from_offset, to, to_offset, len) => Step::CopyRange {
                from: path(from),
                from_offset: (*from_offset).into(),
                to: path(to),
                to_offset: (*to_offset).into(),
                len: (*len).into(),
            },
            Op::Read(pick, offset, len) => Step::Read {
                path: path(pick),
                offset: (*offset).into(),
                len: (*len).into(),
            },
            Op::List(pick) => Step::List { path: path(pick) },
            Op::Commit => Step::Commit,
            Op::Reopen => Step::Reopen,
        };
        reference.is_meaningful(&step).then_some(step)
    }
}

/// Modes that programs use; the owner's bits are added by the caller, so that tests run as any
/// user.
fn perm_of(index: u8) -> u16 {
    [0o644, 0o755, 0o600, 0o700, 0o444, 0o640, 0o751, 0o666][usize::from(index % 8)]
}

/// Bytes that tell where they belong.
fn data(len: u32, seed: u8) -> Vec<u8> {
    (0..len.max(1))
        .map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ seed)
        .collect()
}

/// Short texts that also make sense as ignore rules.
fn text_of(index: u8) -> Vec<u8> {
    [
        "*.log\n",
        "b\n",
        "!x.log\n",
        "build/\n",
        "/a/\n*.md\n",
        "\n",
        "docs/**\n!docs/a\n",
    ][usize::from(index % 7)]
    .as_bytes()
    .to_vec()
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        6 => any::<u8>().prop_map(Pick::Existing),
        4 => (any::<u8>(), 0..NAMES).prop_map(|(dir, name)| Pick::In(dir, name)),
        1 => prop::collection::vec(0..NAMES, 1..4).prop_map(Pick::Names),
    ]
}

fn free() -> impl Strategy<Value = Pick> {
    prop_oneof![
        1 => any::<u8>().prop_map(Pick::Existing),
        6 => (any::<u8>(), 0..NAMES).prop_map(|(dir, name)| Pick::In(dir, name)),
    ]
}

/// Offsets: mostly small, some past the size from which a content is a file of its own.
fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0_u32), 4 => 0..5_000_u32, 2 => 0..150_000_u32, 1 => 4090..4100_u32]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 1..300_u32, 2 => 1..9_000_u32, 1 => 1..100_000_u32]
}

/// One random operation, writes and renames more often than the rest.
pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (free(), any::<u8>()).prop_map(|(p, m)| Op::Create(p, m)),
        8 => (pick(), offset(), length(), any::<u8>()).prop_map(|(p, o, l, s)| Op::Write(p, o, l, s)),
        2 => (pick(), any::<u8>()).prop_map(|(p, t)| Op::WriteText(p, t)),
        3 => (pick(), length(), any::<u8>()).prop_map(|(p, l, s)| Op::Append(p, l, s)),
        4 => (pick(), offset()).prop_map(|(p, s)| Op::Truncate(p, s)),
        5 => (free(), any::<u8>()).prop_map(|(p, m)| Op::Mkdir(p, m)),
        3 => pick().prop_map(Op::Rmdir),
        4 => pick().prop_map(Op::Unlink),
        2 => (pick(), length(), any::<u8>()).prop_map(|(p, l, s)| Op::UnlinkWhileOpen(p, l, s)),
        6 => (pick(), free(), any::<u8>()).prop_map(|(f, t, m)| Op::Rename(f, t, m)),
        4 => (pick(), pick(), any::<u8>()).prop_map(|(f, t, m)| Op::Rename(f, t, m)),
        3 => (pick(), free()).prop_map(|(f, t)| Op::Link(f, t)),
        3 => (free(), any::<u8>()).prop_map(|(p, t)| Op::Symlink(p, t)),
        1 => free().prop_map(Op::Fifo),
        3 => (pick(), any::<u8>()).prop_map(|(p, m)| Op::Chmod(p, m)),
        2 => (pick(), any::<i32>(), any::<u32>()).prop_map(|(p, s, n)| Op::Utimens(p, s, n)),
        2 => (pick(), any::<u8>(), any::<u8>()).prop_map(|(p, n, v)| Op::SetXattr(p, n, v)),
        1 => (pick(), any::<u8>()).prop_map(|(p, n)| Op::RemoveXattr(p, n)),
        3 => (pick(), any::<u8>(), offset(), length()).prop_map(|(p, k, o, l)| Op::Fallocate(p, k, o, l)),
        2 => (pick(), offset(), pick(), offset(), length())
            .prop_map(|(f, fo, t, to, l)| Op::CopyRange(f, fo, t, to, l)),
        3 => (pick(), offset(), length()).prop_map(|(p, o, l)| Op::Read(p, o, l)),
        2 => pick().prop_map(Op::List),
        3 => Just(Op::Commit),
        3 => Just(Op::Reopen),
    ]
}
