//! Patches applied to trees by the git program, without a checkout.
//!
//! Only the patched paths are read, into a separate index, so the cost depends on the patch, not on
//! the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gix::ObjectId;

use super::{GitError, Repository, TreeChange, TreeEntry, TreeEntryKind, program};
use tine_path::RepoPath;

/// A patch file with the options for reading it.
#[derive(Debug, Clone, Copy)]
pub struct PatchFile<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Number of leading path components to strip, as `git apply -p`.
    pub strip: u8,
    /// True if the patch is applied in reverse.
    pub reverse: bool,
    /// Files to apply.
    pub files: PatchedFiles<'a>,
}

/// Selection of a patch's files.
///
/// A renamed file is known by its new path.
#[derive(Debug, Clone, Copy)]
pub enum PatchedFiles<'a> {
    /// All files.
    All,
    /// The files at these paths.
    Only(&'a BTreeSet<RepoPath>),
    /// All but the files at these paths.
    Except(&'a BTreeSet<RepoPath>),
}

/// The result of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patched {
    /// Tree with the whole patch applied.
    Applied(ObjectId),
    /// Tree with a part of the patch applied.
    Rejected {
        /// Id of the tree, without the files that were rejected.
        tree_id: ObjectId,
        /// Rejected files, sorted by path.
        files: Vec<RejectedFile>,
    },
}

/// A file that a patch does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedFile {
    /// Path in the tree.
    pub path: RepoPath,
    /// Entry before the patch; `None` if the path did not exist.
    pub before: Option<(TreeEntryKind, ObjectId)>,
    /// Entry with the hunks that fit; `None` if there is no file.
    pub after: Option<(TreeEntryKind, ObjectId)>,
    /// Rejected hunks in the format of a `.rej` file, if any.
    pub hunks: Option<Vec<u8>>,
    /// Error message of git.
    pub reason: String,
}

/// Start of git's message for a path that a checkout must refuse.
const INVALID_PATH: &[u8] = b"error: invalid path ";

type Entry = Option<(TreeEntryKind, ObjectId)>;

impl Repository {
    /// Applies a patch to a tree.
    ///
    /// Writes blobs and trees to the object database. `scratch` is an empty directory.
    ///
    /// # Errors
    /// [`GitError::BadPatch`] if git cannot parse the patch or it names a forbidden path; fails if
    /// an object or file cannot be read or written.
    pub fn patch_tree(
        &self,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
        scratch: &Path,
    ) -> Result<Patched, GitError> {
        let paths = self.patched_paths(patch, scratch)?;
        let before = self.entries_around(tree_id, &paths)?;
        let index = scratch.join("index");
        self.write_index(&index, &before)?;
        let mut apply = self.on_index(scratch, &index);
        apply.args(["apply", "--cached"]);
        let applied = program::finish(patch.arguments(&mut apply), b"")?;
        if !applied.status.success() {
            return self.patch_partially(
                tree_id,
                patch,
                (&paths, &before),
                &applied.stderr,
                scratch,
            );
        }
        let after = self.read_index(scratch, &index)?;
        Ok(Patched::Applied(
            self.edit_tree(tree_id, &differences(&before, &after))?,
        ))
    }

    /// Builds a patch's old and new tree for a three-way merge.
    ///
    /// They contain only the files that the patch changes. Files that it only renames, or whose
    /// mode it changes, come from `tree_id`. The result is `None` if the repository lacks the blobs
    /// that the patch names. `scratch` is an empty directory.
    ///
    /// # Errors
    /// [`GitError::BadPatch`] if git cannot parse the patch; fails if an object cannot be read or
    /// written.
    pub fn patch_sides(
        &self,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
        scratch: &Path,
    ) -> Result<Option<(ObjectId, ObjectId)>, GitError> {
        let paths = self.patched_paths(patch, scratch)?;
        let now = scratch.join("now");
        self.write_index(&now, &self.entries_around(tree_id, &paths)?)?;
        let forward = PatchFile {
            reverse: false,
            ..patch
        };
        if let Some((old, new)) = self.sides_on(&now, forward, scratch)? {
            return Ok(Some(if patch.reverse {
                (new, old)
            } else {
                (old, new)
            }));
        }
        // The blobs of the patch's result may exist.
        if patch.reverse {
            self.sides_on(&now, patch, scratch)
        } else {
            Ok(None)
        }
    }

    /// Returns the files of a patch whose blobs the repository lacks.
    ///
    /// No three-way merge of them is possible. `scratch` is an empty directory.
    ///
    /// # Errors
    /// Fails as [`Repository::patch_sides`].
    pub fn patched_without_sides(
        &self,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
        scratch: &Path,
    ) -> Result<BTreeSet<RepoPath>, GitError> {
        let mut without = BTreeSet::new();
        for path in self.patched_paths(patch, scratch)? {
            let only = BTreeSet::from([path]);
            let file = PatchFile {
                files: PatchedFiles::Only(&only),
                ..patch
            };
            if self.patch_sides(tree_id, file, scratch)?.is_none() {
                without.extend(only);
            }
        }
        Ok(without)
    }

    /// Builds the patch's old tree, and applies the patch to it.
    fn sides_on(
        &self,
        now: &Path,
        patch: PatchFile<'_>,
        scratch: &Path,
    ) -> Result<Option<(ObjectId, ObjectId)>, GitError> {
        let index = scratch.join("ancestor");
        let mut option = OsString::from("--build-fake-ancestor=");
        option.push(&index);
        let mut build = self.on_index(scratch, now);
        build.arg("apply").arg(option);
        if !program::finish(patch.arguments(&mut build), b"")?
            .status
            .success()
        {
            return Ok(None);
        }
        // git accepts a full id without a lookup of the blob.
        if !self.has_all_of(scratch, &index)? {
            return Ok(None);
        }
        let old = self.write_index_as_tree(scratch, &index)?;
        let mut apply = self.on_index(scratch, &index);
        apply.args(["apply", "--cached"]);
        if !program::finish(patch.arguments(&mut apply), b"")?
            .status
            .success()
        {
            return Ok(None);
        }
        Ok(Some((old, self.write_index_as_tree(scratch, &index)?)))
    }

    /// Returns whether all blobs in an index exist.
    fn has_all_of(&self, scratch: &Path, index: &Path) -> Result<bool, GitError> {
        let mut list = self.on_index(scratch, index);
        let listed = program::run(list.args(["ls-files", "--stage", "-z"]), b"")?;
        for line in listed
            .split(|&byte| byte == 0)
            .filter(|line| !line.is_empty())
        {
            let mut fields = line.split(|&byte| byte == b' ');
            let (mode, id) = (fields.next(), fields.next().unwrap_or_default());
            let id = ObjectId::from_hex(id).map_err(GitError::library("read an index"))?;
            if mode != Some(b"160000") && !self.has_object(id) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns all paths that the patch may change, and possibly more.
    ///
    /// `scratch` is an empty directory.
    ///
    /// # Errors
    /// [`GitError::BadPatch`] if git cannot parse the patch or it names a forbidden path.
    pub fn patched_paths(
        &self,
        patch: PatchFile<'_>,
        scratch: &Path,
    ) -> Result<BTreeSet<RepoPath>, GitError> {
        let mut numstat = self.on_index(scratch, &scratch.join("none"));
        numstat.args(["apply", "--numstat", "-z"]);
        let listed = program::finish(patch.arguments(&mut numstat), b"")?;
        if !listed.status.success() {
            return Err(GitError::BadPatch {
                reason: first_error(&String::from_utf8_lossy(&listed.stderr)),
            });
        }
        let hostile = |source| GitError::BadPatch {
            reason: format!("it names a path that no checkout may have: {source}"),
        };
        let mut paths = BTreeSet::new();
        for line in listed
            .stdout
            .split(|&byte| byte == 0)
            .filter(|line| !line.is_empty())
        {
            let path = line
                .splitn(3, |&byte| byte == b'\t')
                .nth(2)
                .unwrap_or_default();
            paths.insert(RepoPath::parse(path).map_err(hostile)?);
        }
        // The sources of renames and copies are not listed. A hunk's line never begins so, and
        // other matches only add a path.
        let text = fs::read(patch.path).map_err(GitError::io("read", patch.path))?;
        for line in text.split(|&byte| byte == b'\n') {
            let from = [
                &b"rename from "[..],
                b"copy from ",
                b"rename to ",
                b"copy to ",
            ]
            .iter()
            .find_map(|prefix| line.strip_prefix(*prefix));
            if let Some(path) = from.and_then(|name| unquoted(name).ok())
                && let Ok(path) = RepoPath::parse(&path)
            {
                paths.insert(path);
            }
        }
        match paths
            .iter()
            .find(|path| path.components().any(|name| name.is_dot_git()))
        {
            Some(path) => Err(GitError::BadPatch {
                reason: format!("it names {path}, which is git's own"),
            }),
            None => Ok(paths),
        }
    }

    /// Returns the tree's entries at and around these paths.
    ///
    /// Includes parents that are not directories, and one other file in each path that is a
    /// directory.
    fn entries_around(
        &self,
        tree_id: ObjectId,
        paths: &BTreeSet<RepoPath>,
    ) -> Result<BTreeMap<RepoPath, (TreeEntryKind, ObjectId)>, GitError> {
        let mut entries = BTreeMap::new();
        for path in paths {
            for place in path.directories_above().chain([path.clone()]) {
                let Some(entry) = self.tree_entry(tree_id, &place)? else {
                    continue;
                };
                if entry.kind != TreeEntryKind::Directory {
                    entries.insert(place, (entry.kind, entry.id));
                } else if place == *path
                    && let Some((other, entry)) = self.first_other_in(&place, entry.id, paths)?
                {
                    entries.insert(other, (entry.kind, entry.id));
                }
            }
        }
        Ok(entries)
    }

    /// Returns a file in the directory that the patch does not change.
    ///
    /// With it, the directory stays in the way after the patched files are gone.
    fn first_other_in(
        &self,
        dir: &RepoPath,
        tree_id: ObjectId,
        paths: &BTreeSet<RepoPath>,
    ) -> Result<Option<(RepoPath, TreeEntry)>, GitError> {
        let mut rest = vec![(dir.clone(), tree_id)];
        while let Some((dir, tree_id)) = rest.pop() {
            for entry in self.read_tree(tree_id)? {
                let place = dir.join(&entry.name);
                if entry.kind == TreeEntryKind::Directory {
                    rest.push((place, entry.id));
                } else if !paths.contains(&place) {
                    return Ok(Some((place, entry)));
                }
            }
        }
        Ok(None)
    }

    /// Applies what fits, file by file, in a directory outside any repository.
    fn patch_partially(
        &self,
        tree_id: ObjectId,
        patch: PatchFile<'_>,
        (paths, before): (
            &BTreeSet<RepoPath>,
            &BTreeMap<RepoPath, (TreeEntryKind, ObjectId)>,
        ),
        errors: &[u8],
        scratch: &Path,
    ) -> Result<Patched, GitError> {
        if let Some(line) = lines(errors).find(|line| line.starts_with(INVALID_PATH)) {
            return Err(GitError::BadPatch {
                reason: first_error(&String::from_utf8_lossy(line)),
            });
        }
        let dir = scratch.join("files");
        let io = |action: &'static str, path: &Path| GitError::io(action, path.to_owned());
        fs::create_dir(&dir).map_err(io("create", &dir))?;
        for (path, (kind, id)) in before {
            self.write_raw(&dir.join(path.as_path()), *kind, *id)?;
        }
        let mut apply = program::command(&dir);
        apply
            .env("GIT_CEILING_DIRECTORIES", scratch)
            .args(["apply", "--reject"]);
        let applied = program::finish(patch.arguments(&mut apply), b"")?;
        let errors = [errors, &applied.stderr].concat();
        let mut edits = Vec::new();
        let mut files = Vec::new();
        for path in paths {
            let was: Entry = before.get(path).copied();
            // A path behind a symlink is not in the tree.
            let is_within = path.directories_above().all(|above| {
                fs::symlink_metadata(dir.join(above.as_path()))
                    .is_ok_and(|metadata| metadata.is_dir())
            });
            let is: Entry = if is_within {
                self.read_raw(&dir.join(path.as_path()))?
            } else {
                None
            };
            let rejected = dir.join(rej_path(path));
            let hunks = match is_within.then(|| fs::read(&rejected)).transpose() {
                Ok(hunks) => hunks,
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(io("read", &rejected)(error)),
            };
            // A file that becomes a symlink has two patch parts, and only one of them may fit.
            if hunks.is_none() && was != is && !is_refused(&applied.stderr, path) {
                edits.push(TreeChange {
                    path: path.clone(),
                    new: is,
                });
                continue;
            }
            let reason = reason_for(&errors, path);
            if hunks.is_none() && reason.is_none() {
                // The path was collected as a candidate only.
                continue;
            }
            edits.push(TreeChange {
                path: path.clone(),
                new: None,
            });
            files.push(RejectedFile {
                path: path.clone(),
                before: was,
                after: is,
                hunks,
                reason: reason.unwrap_or_else(|| "the patch does not fit".to_owned()),
            });
        }
        if files.is_empty() {
            return Err(GitError::BadPatch {
                reason: first_error(&String::from_utf8_lossy(&errors)),
            });
        }
        // A directory in the way of a file stays.
        edits.retain(|edit| edit.new.is_some() || before.contains_key(&edit.path));
        Ok(Patched::Rejected {
            tree_id: self.edit_tree(tree_id, &edits)?,
            files,
        })
    }

    /// Writes a blob without conversion.
    fn write_raw(&self, path: &Path, kind: TreeEntryKind, id: ObjectId) -> Result<(), GitError> {
        let io = |action: &'static str| GitError::io(action, path.to_owned());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io("create the directory of"))?;
        }
        match kind {
            TreeEntryKind::Directory | TreeEntryKind::Submodule => {
                fs::create_dir_all(path).map_err(io("create"))
            }
            TreeEntryKind::Symlink => {
                let target = self.read_blob(id)?;
                symlink(std::ffi::OsStr::from_bytes(&target), path).map_err(io("create"))
            }
            TreeEntryKind::File | TreeEntryKind::Executable => {
                fs::write(path, self.read_blob(id)?).map_err(io("write"))?;
                let mode = match kind {
                    TreeEntryKind::Executable => 0o755,
                    _ => 0o644,
                };
                fs::set_permissions(path, fs::Permissions::from_mode(mode))
                    .map_err(io("set the mode of"))
            }
        }
    }

    /// Reads a file as a blob, without conversion.
    ///
    /// A missing file or a directory gives `None`.
    fn read_raw(&self, path: &Path) -> Result<Entry, GitError> {
        let io = |action: &'static str| GitError::io(action, path.to_owned());
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(io("look at")(error)),
        };
        let (kind, bytes) = if metadata.is_symlink() {
            let target = fs::read_link(path).map_err(io("read"))?;
            (
                TreeEntryKind::Symlink,
                target.as_os_str().as_bytes().to_vec(),
            )
        } else if metadata.is_file() {
            let kind = match metadata.permissions().mode() & 0o100 {
                0 => TreeEntryKind::File,
                _ => TreeEntryKind::Executable,
            };
            (kind, fs::read(path).map_err(io("read"))?)
        } else {
            return Ok(None);
        };
        let id = self.write_blob(&mut bytes.as_slice(), bytes.len() as u64)?;
        Ok(Some((kind, id)))
    }

    /// Creates a git command with a separate index and empty work tree.
    fn on_index(&self, scratch: &Path, index: &Path) -> Command {
        let mut command = program::command(scratch);
        command
            .arg("--git-dir")
            .arg(self.common_dir())
            .arg("--work-tree")
            .arg(scratch)
            .env("GIT_INDEX_FILE", index);
        command
    }

    fn write_index(
        &self,
        index: &Path,
        entries: &BTreeMap<RepoPath, (TreeEntryKind, ObjectId)>,
    ) -> Result<(), GitError> {
        let mut input = Vec::new();
        for (path, (kind, id)) in entries {
            input.extend_from_slice(format!("{} {id} 0\t", kind.mode_text()).as_bytes());
            input.extend_from_slice(path.as_bytes());
            input.push(0);
        }
        let scratch = index.parent().unwrap_or(index);
        let mut update = self.on_index(scratch, index);
        update.args(["update-index", "-z", "--index-info"]);
        program::run(&mut update, &input).map(drop)
    }

    fn read_index(
        &self,
        scratch: &Path,
        index: &Path,
    ) -> Result<BTreeMap<RepoPath, (TreeEntryKind, ObjectId)>, GitError> {
        let mut list = self.on_index(scratch, index);
        let listed = program::run(list.args(["ls-files", "-s", "-z"]), b"")?;
        let mut entries = BTreeMap::new();
        for line in listed
            .split(|&byte| byte == 0)
            .filter(|line| !line.is_empty())
        {
            let failed = || GitError::Library {
                action: "read what git made of a patch",
                reason: String::from_utf8_lossy(line).into_owned(),
            };
            let tab = line
                .iter()
                .position(|&byte| byte == b'\t')
                .ok_or_else(failed)?;
            let (head, path) = line.split_at(tab);
            let mut words = head.split(|&byte| byte == b' ');
            let kind = words
                .next()
                .and_then(TreeEntryKind::of_mode_text)
                .ok_or_else(failed)?;
            let id = words
                .next()
                .and_then(|hex| ObjectId::from_hex(hex).ok())
                .ok_or_else(failed)?;
            let path = RepoPath::parse(path.get(1..).unwrap_or_default()).map_err(|source| {
                GitError::BadPatch {
                    reason: format!("it makes a path that no checkout may have: {source}"),
                }
            })?;
            entries.insert(path, (kind, id));
        }
        Ok(entries)
    }

    fn write_index_as_tree(&self, scratch: &Path, index: &Path) -> Result<ObjectId, GitError> {
        let written = program::run(self.on_index(scratch, index).arg("write-tree"), b"")?;
        ObjectId::from_hex(written.trim_ascii()).map_err(GitError::library("read a tree's id"))
    }
}

impl PatchFile<'_> {
    fn arguments<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.arg(format!("-p{}", self.strip));
        if self.reverse {
            command.arg("--reverse");
        }
        let (option, paths) = match self.files {
            PatchedFiles::All => return command.arg("--").arg(self.path),
            PatchedFiles::Only(paths) => ("--include=", paths),
            PatchedFiles::Except(paths) => ("--exclude=", paths),
        };
        for path in paths {
            let mut pattern = option.as_bytes().to_vec();
            for &byte in path.as_bytes() {
                if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
                    pattern.push(b'\\');
                }
                pattern.push(byte);
            }
            command.arg(OsString::from_vec(pattern));
        }
        command.arg("--").arg(self.path)
    }
}

/// Returns the changes between two states of an index.
fn differences(
    before: &BTreeMap<RepoPath, (TreeEntryKind, ObjectId)>,
    after: &BTreeMap<RepoPath, (TreeEntryKind, ObjectId)>,
) -> Vec<TreeChange> {
    let gone = before
        .keys()
        .filter(|path| !after.contains_key(path))
        .map(|path| TreeChange {
            path: path.clone(),
            new: None,
        });
    let come = after
        .iter()
        .filter(|(path, entry)| before.get(path) != Some(entry))
        .map(|(path, entry)| TreeChange {
            path: path.clone(),
            new: Some(*entry),
        });
    gone.chain(come).collect()
}

/// Returns the file where git writes rejected hunks.
fn rej_path(path: &RepoPath) -> PathBuf {
    let mut name = path.as_path().as_os_str().to_owned();
    name.push(".rej");
    PathBuf::from(name)
}

/// Returns the error lines, without their prefix.
fn error_lines(errors: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines(errors).filter_map(|line| line.strip_prefix(b"error: "))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Returns whether git rejected a part of the patch for the path.
fn is_refused(errors: &[u8], path: &RepoPath) -> bool {
    let name = [path.as_bytes(), b": "].concat();
    error_lines(errors).any(|line| line.starts_with(&name))
}

/// Returns git's message about the path.
fn reason_for(errors: &[u8], path: &RepoPath) -> Option<String> {
    let path = path.as_bytes();
    let beginnings = [
        [path, b": "].concat(),
        [b"patch failed: ", path, b":"].concat(),
    ];
    let parts = [[b"'", path, b"'"].concat(), [b" of ", path, b" "].concat()];
    error_lines(errors)
        .find(|line| {
            let holds = |part: &Vec<u8>| line.windows(part.len()).any(|window| window == part);
            beginnings
                .iter()
                .any(|beginning| line.starts_with(beginning))
                || parts.iter().any(holds)
        })
        .map(|line| String::from_utf8_lossy(line).into_owned())
}

/// Returns git's first error message.
fn first_error(errors: &str) -> String {
    let line = errors.lines().find_map(|line| {
        line.strip_prefix("error: ")
            .or_else(|| line.strip_prefix("fatal: "))
    });
    line.unwrap_or("git gives no reason").trim().to_owned()
}

/// Unquotes a name that git wrote in a patch.
fn unquoted(name: &[u8]) -> Result<Vec<u8>, GitError> {
    let unquoted =
        gix::quote::ansi_c::undo(name.into()).map_err(GitError::library("read a quoted name"))?;
    Ok(unquoted.0.to_vec())
}
