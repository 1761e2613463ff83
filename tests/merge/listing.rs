//! What git prints, as values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use tine::git::{ObjectId, TreeEntryKind};
use tine::merge::Conflict;

use crate::support::{OutputExt, run_with_timeout};

/// Mode and object of each file, by path.
pub type Listing = BTreeMap<Vec<u8>, (u32, ObjectId)>;

/// A path, a stage from 1 to 3, a mode and an object.
pub type Staged = (Vec<u8>, u8, u32, ObjectId);

/// A git command in the repository with `git_dir`.
pub fn git(git_dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .arg("--git-dir")
        .arg(git_dir)
        .args(arguments)
        .env("LC_ALL", "C");
    command
}

/// The standard output of a git command that succeeds.
pub fn output(git_dir: &Path, arguments: &[&str]) -> Vec<u8> {
    run_with_timeout(&mut git(git_dir, arguments))
        .expect_success(&format!("git {arguments:?}"))
        .stdout
}

/// All files of a tree.
pub fn files(git_dir: &Path, tree_id: ObjectId) -> Listing {
    let printed = output(
        git_dir,
        &["ls-tree", "-r", "-z", "--full-tree", &tree_id.to_string()],
    );
    let lines = printed
        .split(|&byte| byte == 0)
        .filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (head, path) = split(line, b'\t');
            let head = String::from_utf8(head.to_vec()).unwrap();
            let words: Vec<&str> = head.split(' ').collect();
            (path.to_vec(), (mode(words[0]), words[2].parse_id()))
        })
        .collect()
}

/// git's own answer.
pub struct ByGit {
    pub is_clean: bool,
    pub tree_id: ObjectId,
    /// As git names the paths.
    pub stages: Vec<Staged>,
}

/// Merges two commits with the git program, whose labels are their ids. Where git loses a version
/// or dies, the other way round; `None` where it does so then, too.
pub fn merge_by_git(
    git_dir: &Path,
    ours: ObjectId,
    theirs: ObjectId,
    options: &[&str],
) -> Option<ByGit> {
    merge_one_way(git_dir, [ours, theirs], options).or_else(|| {
        let mut swapped = merge_one_way(git_dir, [theirs, ours], options)?;
        for (_, stage, ..) in &mut swapped.stages {
            *stage = [1, 3, 2][usize::from(*stage) - 1];
        }
        Some(swapped)
    })
}

/// As [`merge_by_git`], and not the other way round.
pub fn merge_one_way(git_dir: &Path, sides: [ObjectId; 2], options: &[&str]) -> Option<ByGit> {
    let ids = sides.map(|id| id.to_string());
    let mut arguments = vec!["merge-tree", "--write-tree", "-z", "--no-messages"];
    arguments.extend_from_slice(options);
    arguments.extend(ids.iter().map(String::as_str));
    let finished = run_with_timeout(&mut git(git_dir, &arguments));
    let code = finished.status.code()?;
    assert!(code < 2, "{finished:?}");
    let mut fields = finished.stdout.split(|&byte| byte == 0);
    let tree_id = String::from_utf8(fields.next().unwrap().to_vec())
        .unwrap()
        .parse_id();
    let stages: Vec<Staged> = fields
        .take_while(|field| !field.is_empty())
        .map(|field| {
            let (head, path) = split(field, b'\t');
            let head = String::from_utf8(head.to_vec()).unwrap();
            let words: Vec<&str> = head.split(' ').collect();
            let stage = words[2].parse().unwrap();
            (path.to_vec(), stage, mode(words[0]), words[1].parse_id())
        })
        .collect();
    let is_lost = stages.iter().any(|(_, _, mode, _)| *mode == 0);
    (!is_lost).then_some(ByGit {
        is_clean: code == 0,
        tree_id,
        stages,
    })
}

/// All versions of conflicts, sorted.
pub fn versions(conflicts: &[Conflict]) -> BTreeSet<Staged> {
    let sides = conflicts.iter().flat_map(|conflict| {
        [
            (1, &conflict.base),
            (2, &conflict.ours),
            (3, &conflict.theirs),
        ]
    });
    sides
        .flat_map(|(stage, versions)| versions.iter().map(move |version| (stage, version)))
        .map(|(stage, version)| {
            let path = version.path.as_bytes().to_vec();
            (path, stage, version.kind.mode(), version.id)
        })
        .collect()
}

/// Without what git put behind a path to move a file out of the way: `~<id>`, perhaps `_<number>`.
pub fn real_path(path: &[u8], ids: [ObjectId; 2]) -> Vec<u8> {
    let mut path = path.to_vec();
    for label in [ids, ids].concat().map_label() {
        let without_number = match path.iter().rposition(|&byte| byte == b'_') {
            Some(at) if path[at + 1..].iter().all(u8::is_ascii_digit) => path[..at].to_vec(),
            _ => path.clone(),
        };
        for candidate in [&path.clone(), &without_number] {
            if let Some(real) = candidate.strip_suffix(label.as_bytes()) {
                path = real.to_vec();
                break;
            }
        }
    }
    path
}

trait MapLabel {
    fn map_label(&self) -> Vec<String>;
}

impl MapLabel for Vec<ObjectId> {
    fn map_label(&self) -> Vec<String> {
        self.iter().map(|id| format!("~{id}")).collect()
    }
}

pub trait ParseId {
    fn parse_id(&self) -> ObjectId;
}

impl ParseId for str {
    fn parse_id(&self) -> ObjectId {
        ObjectId::from_hex(self.trim().as_bytes()).unwrap_or_else(|_| panic!("{self:?} is no id"))
    }
}

fn split(bytes: &[u8], separator: u8) -> (&[u8], &[u8]) {
    let at = bytes
        .iter()
        .position(|&byte| byte == separator)
        .expect("git prints one");
    (&bytes[..at], &bytes[at + 1..])
}

fn mode(octal: &str) -> u32 {
    u32::from_str_radix(octal, 8).expect("git prints octal modes")
}

/// Whether a mode is that of a regular file.
pub fn is_regular(mode: u32) -> bool {
    [TreeEntryKind::File, TreeEntryKind::Executable]
        .iter()
        .any(|kind| kind.mode() == mode)
}
