//! Names in an own git directory: HEAD, refs, pseudo refs and reflogs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::hash::Kind as HashKind;

use gix::actor::{Signature, SignatureRef};

use super::dir::{Found, OwnDir};
use crate::refs::reflog_message;
use crate::{GitError, Repository};
use tine_attr::{FileKind, Timestamp};
use tine_path::NAME_MAX;
use tine_sys::beneath::HostStat;

/// Maximum bytes of a file with one ref or a few ids.
pub(super) const MAX_REF_BYTES: u64 = 1 << 20;
/// Maximum bytes of packed refs, and of a reflog.
const MAX_LIST_BYTES: u64 = 256 << 20;
/// Maximum number of symbolic refs in a chain, as in git.
const MAX_SYMBOLIC_DEPTH: usize = 5;

/// Files that name commits of an operation in progress.
///
/// Each line with an id at its start counts.
const PSEUDO_FILES: [&str; 17] = [
    "ORIG_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "BISECT_HEAD",
    "BISECT_EXPECTED_REV",
    "AUTO_MERGE",
    "MERGE_AUTOSTASH",
    "rebase-merge/onto",
    "rebase-merge/orig-head",
    "rebase-merge/autostash",
    "rebase-apply/onto",
    "rebase-apply/orig-head",
    "rebase-apply/autostash",
    "sequencer/head",
    "sequencer/abort-safety",
];

/// Directory of the git directories of the fork's linked worktrees.
pub(super) const WORKTREES: &str = "worktrees";

/// First parts of kept names that are not refs below `refs/`.
const RESERVED: [&str; 5] = ["HEAD", "logged", "logs", "pseudo", "refs"];

/// Everything that an own git directory names.
#[derive(Debug, Default)]
pub(super) struct Tips {
    /// Targets by kept name: the name without `refs/`, `HEAD`, or `pseudo/<file>`.
    pub(super) named: BTreeMap<String, ObjectId>,
    /// Logged ids, each with the first log that names it.
    pub(super) logged: HashMap<ObjectId, String>,
    /// Files that hold no valid ref.
    ///
    /// Each has its cause, as the end of a sentence.
    pub(super) invalid: Vec<(String, String)>,
    /// Files that were read, relative to the git directory.
    pub(super) files: BTreeSet<PathBuf>,
    /// Identity of the logs, which tells whether one has changed.
    pub(super) log_stamps: BTreeMap<PathBuf, LogStamp>,
}

/// Attributes that change with the content of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogStamp {
    ino: u64,
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

/// Value of a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Id(ObjectId),
    Symbolic(String),
}

/// Reads what `dir` names, except for the content of its logs.
///
/// Symbolic refs may lead to refs of `main`.
pub(super) fn read_tips(main: &Repository, dir: &OwnDir) -> Tips {
    let mut tips = Tips::default();
    let values = read_values(main.hash_kind(), dir, &mut tips);
    for name in values.keys() {
        if let Some(id) = resolve(main, &values, name) {
            tips.named.insert(kept_label(name), id);
        }
    }
    tips.refuse_conflicts();
    read_pseudo(main.hash_kind(), dir, Path::new(""), &mut tips);
    read_worktrees(main.hash_kind(), dir, &mut tips);
    for logs in ["logs", WORKTREES] {
        dir.visit_files(Path::new(logs), &mut |path, _| {
            let is_log = logs == "logs" || path.iter().nth(2) == Some(OsStr::new("logs"));
            if is_log && let Some(stat) = dir.stat_file(path) {
                tips.log_stamps.insert(path.to_owned(), LogStamp::of(&stat));
            }
        });
    }
    tips
}

impl Tips {
    /// Takes out names below other names, which cannot both be kept.
    fn refuse_conflicts(&mut self) {
        let is_taken = |name: &str| {
            let mut above = name
                .match_indices('/')
                .filter_map(|(slash, _)| name.get(..slash));
            above.any(|above| self.named.contains_key(above))
        };
        let refused: Vec<String> = self
            .named
            .keys()
            .filter(|name| is_taken(name))
            .cloned()
            .collect();
        for name in refused {
            self.named.remove(&name);
            self.invalid
                .push((name, "another ref has the name of its directory".to_owned()));
        }
    }

    /// Reads the ids in the logs.
    pub(super) fn read_logged(&mut self, hash_kind: HashKind, dir: &OwnDir) {
        for path in self.log_stamps.keys() {
            let content = match dir.read(path, MAX_LIST_BYTES) {
                Found::Good(content) => content,
                Found::Missing => continue,
                Found::Invalid(reason) => {
                    self.invalid.push((path.display().to_string(), reason));
                    continue;
                }
            };
            self.files.insert(path.clone());
            let name = path.to_string_lossy();
            for id in log_lines(hash_kind, &content).flat_map(|line| line.ids()) {
                self.logged
                    .entry(id)
                    .or_insert_with(|| name.clone().into_owned());
            }
        }
    }
}

/// State of the directories of an own git directory's HEAD and refs.
///
/// Each change of a ref there changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefsStamp(Vec<(PathBuf, LogStamp)>);

impl RefsStamp {
    /// Maximum time in which a file system's clock shows the same time.
    const TICK: Duration = Duration::from_millis(20);

    /// Returns the present state; `None` if a change may follow unseen.
    pub fn of(own: &Path) -> Option<RefsStamp> {
        let dir = OwnDir::open(own).ok()?;
        let mut stamps = vec![(PathBuf::new(), LogStamp::of(&dir.stat(Path::new(""))?))];
        let mut open = vec![PathBuf::from("refs")];
        for (name, _) in dir.list(Path::new(WORKTREES)) {
            let worktree = Path::new(WORKTREES).join(OsStr::from_bytes(&name));
            let below = [worktree.clone(), worktree.join("refs")];
            let there = below.into_iter().filter(|path| dir.stat(path).is_some());
            open.extend(there);
        }
        while let Some(path) = open.pop() {
            stamps.push((path.clone(), LogStamp::of(&dir.stat(&path)?)));
            let below = dir.list(&path).into_iter();
            let below = below.filter(|(_, kind)| *kind == FileKind::Directory);
            open.extend(below.map(|(name, _)| path.join(OsStr::from_bytes(&name))));
        }
        let settled: Timestamp = SystemTime::now().checked_sub(Self::TICK)?.into();
        let is_settled = stamps.iter().all(|(_, stamp)| stamp.ctime < settled);
        is_settled.then_some(RefsStamp(stamps))
    }
}

impl LogStamp {
    pub(super) fn of(stat: &HostStat) -> LogStamp {
        LogStamp {
            ino: stat.ino,
            size: stat.size,
            mtime: stat.mtime,
            ctime: stat.ctime,
        }
    }
}

/// Maximum bytes of a ref's name.
///
/// Its path in the main repository, which is longer, must not exceed `PATH_MAX`.
const MAX_NAME_BYTES: usize = 2048;

/// Reads HEAD, loose and packed refs, unresolved.
pub(super) fn read_values(
    hash_kind: HashKind,
    dir: &OwnDir,
    tips: &mut Tips,
) -> BTreeMap<String, Value> {
    // git packs a ref before it removes the loose file, so loose files are read first.
    let mut loose = BTreeMap::new();
    let mut paths = vec![PathBuf::from("HEAD")];
    dir.visit_files(Path::new("refs"), &mut |path, kind| {
        let is_lock = path
            .extension()
            .is_some_and(|extension| extension == "lock");
        if !is_lock || kind != FileKind::Regular {
            paths.push(path.to_owned());
        }
    });
    for path in paths {
        let Some(name) = path.to_str() else {
            tips.invalid.push((
                path.display().to_string(),
                "its name is not UTF-8".to_owned(),
            ));
            continue;
        };
        let value = match dir.read(&path, MAX_REF_BYTES) {
            Found::Missing => continue,
            Found::Good(content) => parse_value(hash_kind, &content),
            Found::Invalid(reason) => Err(reason),
        };
        match value.and_then(|value| check_name(name).map(|()| value)) {
            Ok(value) => {
                tips.files.insert(path.clone());
                loose.insert(name.to_owned(), value);
            }
            Err(reason) => tips.invalid.push((name.to_owned(), reason)),
        }
    }
    let packed_path = Path::new("packed-refs");
    let mut values = match dir.read(packed_path, MAX_LIST_BYTES) {
        Found::Missing => BTreeMap::new(),
        Found::Good(content) => {
            tips.files.insert(packed_path.to_owned());
            parse_packed(hash_kind, &content, tips)
        }
        Found::Invalid(reason) => {
            tips.invalid.push(("packed-refs".to_owned(), reason));
            BTreeMap::new()
        }
    };
    values.extend(loose);
    values
}

fn parse_value(hash_kind: HashKind, content: &[u8]) -> Result<Value, String> {
    let content = content.trim_ascii();
    if let Some(target) = content.strip_prefix(b"ref:") {
        let target = std::str::from_utf8(target.trim_ascii())
            .map_err(|_| "it leads to a name that is not UTF-8".to_owned())?;
        return Ok(Value::Symbolic(target.to_owned()));
    }
    parse_id(hash_kind, content)
        .map(Value::Id)
        .ok_or_else(|| "its file holds no ref".to_owned())
}

/// Parses an id of this repository that is not null.
fn parse_id(hash_kind: HashKind, text: &[u8]) -> Option<ObjectId> {
    let id = ObjectId::from_hex(text).ok()?;
    (id.kind() == hash_kind && !id.is_null()).then_some(id)
}

fn parse_packed(hash_kind: HashKind, content: &[u8], tips: &mut Tips) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    for line in content.split(|&byte| byte == b'\n') {
        if line.is_empty() || line.starts_with(b"#") || line.starts_with(b"^") {
            continue;
        }
        let parsed = line.split_once_str(" ").and_then(|(id, name)| {
            let name = std::str::from_utf8(name.trim_ascii_end()).ok()?;
            Some((parse_id(hash_kind, id)?, name))
        });
        let checked = match parsed {
            Some((id, name)) if name.starts_with("refs/") => {
                check_name(name).map(|()| (name.to_owned(), Value::Id(id)))
            }
            _ => Err("a line in it holds no ref".to_owned()),
        };
        match checked {
            Ok((name, value)) => {
                values.insert(name, value);
            }
            Err(reason) => tips.invalid.push(("packed-refs".to_owned(), reason)),
        }
    }
    values
}

/// Refuses names that git would refuse, and those that are too long.
fn check_name(name: &str) -> Result<(), String> {
    let is_too_long = |part: &str| part.len().saturating_add(".lock".len()) > NAME_MAX;
    if name.len() > MAX_NAME_BYTES {
        return Err("its name is too long".to_owned());
    }
    if gix::validate::reference::name(name.into()).is_err() || name.split('/').any(is_too_long) {
        return Err("it is not a valid ref name".to_owned());
    }
    Ok(())
}

/// Returns the label below `git/` that keeps the ref `name`.
pub(super) fn kept_label(name: &str) -> String {
    let Some(rest) = name.strip_prefix("refs/") else {
        return name.to_owned();
    };
    let first = rest.split('/').next().unwrap_or(rest);
    if RESERVED.contains(&first) {
        name.to_owned()
    } else {
        rest.to_owned()
    }
}

/// Returns the ref that a label below `git/` keeps.
///
/// `None` for labels of other things. It is the reverse of [`kept_label`].
pub(super) fn ref_of_label(label: &str) -> Option<String> {
    if label.starts_with("refs/") {
        return Some(label.to_owned());
    }
    let first = label.split('/').next().unwrap_or(label);
    (!RESERVED.contains(&first)).then(|| format!("refs/{label}"))
}

/// Follows symbolic refs, also to refs of the main repository.
fn resolve(main: &Repository, values: &BTreeMap<String, Value>, name: &str) -> Option<ObjectId> {
    let mut name = name;
    for _ in 0..=MAX_SYMBOLIC_DEPTH {
        match values.get(name) {
            Some(Value::Id(id)) => return Some(*id),
            Some(Value::Symbolic(target)) => name = target,
            None => {
                check_name(name).ok()?;
                let is_shared = name.starts_with("refs/") && !name.starts_with("refs/tine/");
                return is_shared.then(|| target_in_main(main, name)).flatten();
            }
        }
    }
    None
}

pub(super) fn target_in_main(main: &Repository, name: &str) -> Option<ObjectId> {
    main.refuse_pipe_at(name.into()).ok()?;
    let local = main.local();
    let mut found = local.try_find_reference(name).ok()??;
    Some(found.follow_to_object().ok()?.detach())
}

/// Reads the files that name commits of an operation in progress.
///
/// `within` is the git directory of a worktree, relative to `dir`, or empty.
fn read_pseudo(hash_kind: HashKind, dir: &OwnDir, within: &Path, tips: &mut Tips) {
    for file in PSEUDO_FILES {
        let path = within.join(file);
        let file = path.display().to_string();
        let content = match dir.read(&path, MAX_REF_BYTES) {
            Found::Missing => continue,
            Found::Good(content) => content,
            Found::Invalid(reason) => {
                tips.invalid.push((file, reason));
                continue;
            }
        };
        if check_name(&format!("refs/pseudo/{file}")).is_err() {
            continue;
        }
        tips.files.insert(path);
        let lines = content.split(|&byte| byte == b'\n');
        let ids = lines.filter_map(|line| parse_id(hash_kind, line.trim_ascii()));
        for (number, id) in ids.enumerate() {
            // The second head of an octopus merge is `MERGE_HEAD-1`.
            let name = match number {
                0 => format!("pseudo/{file}"),
                number => format!("pseudo/{file}-{number}"),
            };
            tips.named.insert(name, id);
        }
    }
}

/// Reads what the fork's worktrees name: detached HEADs, and operations in progress.
fn read_worktrees(hash_kind: HashKind, dir: &OwnDir, tips: &mut Tips) {
    for (name, _) in dir.list(Path::new(WORKTREES)) {
        let worktree = Path::new(WORKTREES).join(OsStr::from_bytes(&name));
        read_pseudo(hash_kind, dir, &worktree, tips);
        let path = worktree.join("HEAD");
        let Found::Good(content) = dir.read(&path, MAX_REF_BYTES) else {
            continue;
        };
        let label = format!("pseudo/{}", path.display());
        if let Some(id) = parse_id(hash_kind, content.trim_ascii())
            && check_name(&format!("refs/{label}")).is_ok()
        {
            tips.files.insert(path);
            tips.named.insert(label, id);
        }
    }
}

/// A line of a reflog.
pub(super) struct OwnLogLine<'c> {
    old: Option<ObjectId>,
    pub(super) new: Option<ObjectId>,
    /// Name, address and time.
    pub(super) committer: &'c [u8],
    pub(super) message: &'c [u8],
}

impl OwnLogLine<'_> {
    fn ids(&self) -> impl Iterator<Item = ObjectId> + use<> {
        self.old.into_iter().chain(self.new)
    }
}

/// Parses the lines of a reflog, oldest first, and skips invalid ones.
pub(super) fn log_lines(
    hash_kind: HashKind,
    content: &[u8],
) -> impl DoubleEndedIterator<Item = OwnLogLine<'_>> {
    let hex_len = hash_kind.len_in_hex();
    content
        .split(|&byte| byte == b'\n')
        .filter_map(move |line| {
            let (old, rest) = line.split_at_checked(hex_len)?;
            let (new, rest) = rest.strip_prefix(b" ")?.split_at_checked(hex_len)?;
            // Null ids stand for a ref that did not exist.
            ObjectId::from_hex(old).ok()?;
            ObjectId::from_hex(new).ok()?;
            let rest = rest.strip_prefix(b" ")?;
            let (committer, message) = rest.split_once_str("\t").unwrap_or((rest, b""));
            Some(OwnLogLine {
                old: parse_id(hash_kind, old),
                new: parse_id(hash_kind, new),
                committer,
                message,
            })
        })
}

/// Reads the reflog of a ref (full name).
pub(super) fn read_log(dir: &OwnDir, name: &str) -> Vec<u8> {
    match dir.read(&Path::new("logs").join(name), MAX_LIST_BYTES) {
        Found::Good(content) => content,
        Found::Missing | Found::Invalid(_) => Vec::new(),
    }
}

/// Returns the log line that moved the branch to `to`.
///
/// These are committer and message. `branch` is the short name.
pub(super) fn log_line_of(dir: &OwnDir, branch: &str, to: ObjectId) -> (Option<Signature>, String) {
    let log = read_log(dir, &format!("refs/heads/{branch}"));
    let line = log_lines(to.kind(), &log).rfind(|line| line.new == Some(to));
    let by = line.as_ref().and_then(|line| {
        let by = SignatureRef::from_bytes(line.committer).ok()?;
        by.to_owned().ok()
    });
    let message = line.map(|line| line.message.to_str_lossy().into_owned());
    (by, reflog_message(&message.unwrap_or_default()))
}

/// Kind of a name in an own git directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnTipKind {
    /// HEAD, resolved.
    Head,
    /// A ref, with its full name.
    Ref,
    /// A file of an operation in progress (`MERGE_HEAD`).
    Pseudo,
    /// An entry of the stash, with its message.
    Stash {
        /// Message of the entry, lossily decoded.
        message: String,
    },
    /// An id that only a reflog names.
    Logged {
        /// Message of the last line that made the ref this value.
        message: String,
    },
}

/// An object that an own git directory names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTip {
    /// Full ref name, `HEAD`, a pseudo ref, `stash@{<n>}`, or the log's path.
    pub name: String,
    /// Object that it names. It need not exist.
    pub id: ObjectId,
    /// Kind of the name.
    pub kind: OwnTipKind,
}

/// Lists everything that the own git directory `own` names.
///
/// Reads files only. Invalid names and contents are left out. An id that has another name is not
/// listed as logged.
///
/// # Errors
/// [`GitError::Io`] if the directory cannot be opened.
pub fn own_tips(main: &Repository, own: &Path) -> Result<Vec<OwnTip>, GitError> {
    let dir = OwnDir::open(own)?;
    let tips = read_tips(main, &dir);
    let mut found: Vec<OwnTip> = Vec::new();
    for (name, id) in &tips.named {
        let (name, kind) = match name.strip_prefix("pseudo/") {
            Some(file) => (file.to_owned(), OwnTipKind::Pseudo),
            None if name == "HEAD" => (name.clone(), OwnTipKind::Head),
            None if name.starts_with("refs/") => (name.clone(), OwnTipKind::Ref),
            None => (format!("refs/{name}"), OwnTipKind::Ref),
        };
        let id = *id;
        found.push(OwnTip { name, id, kind });
    }
    let stash = read_log(&dir, "refs/stash");
    let entries = log_lines(main.hash_kind(), &stash).rev();
    for (number, line) in entries.enumerate() {
        let message = line.message.to_str_lossy().into_owned();
        found.extend(line.new.map(|id| OwnTip {
            name: format!("stash@{{{number}}}"),
            id,
            kind: OwnTipKind::Stash { message },
        }));
    }
    let mut known: BTreeSet<ObjectId> = found.iter().map(|tip| tip.id).collect();
    for path in tips.log_stamps.keys() {
        let Found::Good(content) = dir.read(path, MAX_LIST_BYTES) else {
            continue;
        };
        let lines = log_lines(main.hash_kind(), &content).rev();
        for line in lines {
            let message = line.message.to_str_lossy().into_owned();
            let new = line.new.filter(|id| known.insert(*id));
            found.extend(new.map(|id| OwnTip {
                name: path.to_string_lossy().into_owned(),
                id,
                kind: OwnTipKind::Logged { message },
            }));
        }
    }
    Ok(found)
}

/// Lists what the main repository keeps of an own git directory.
///
/// The refs below `refs/tine/<fork>/git/` tell it. Of the stash, they tell the newest entry only;
/// the others are listed as logged.
///
/// # Errors
/// [`GitError::Library`] if the refs cannot be listed.
pub(super) fn kept_tips(main: &Repository, fork: &str) -> Result<Vec<OwnTip>, GitError> {
    let mut found = Vec::new();
    for (label, id) in main.kept(fork)? {
        let Some(name) = label.strip_prefix("git/") else {
            continue;
        };
        let logged = |id| OwnTip {
            name: "logs".to_owned(),
            id,
            kind: OwnTipKind::Logged {
                message: String::new(),
            },
        };
        if let Some(name) = ref_of_label(name) {
            let kind = if name == "refs/stash" {
                let info = main.commit_info(id);
                let message = info.map(|info| info.summary).unwrap_or_default();
                OwnTipKind::Stash { message }
            } else {
                OwnTipKind::Ref
            };
            found.push(OwnTip { name, id, kind });
        } else if name == "logs" {
            found.extend(main.kept_by_keeper(Some(id)).into_iter().map(logged));
        } else if name.starts_with("logged/") {
            found.push(logged(id));
        } else {
            let kind = match name {
                "HEAD" => OwnTipKind::Head,
                _ => OwnTipKind::Pseudo,
            };
            let name = name.strip_prefix("pseudo/").unwrap_or(name).to_owned();
            found.push(OwnTip { name, id, kind });
        }
    }
    Ok(found)
}

/// Returns a loose object's path, relative to the git directory.
pub(super) fn loose_file(id: &ObjectId) -> PathBuf {
    let hex = id.to_string();
    let (fan_out, rest) = hex.split_at(2);
    Path::new("objects")
        .join(OsStr::from_bytes(fan_out.as_bytes()))
        .join(rest)
}
