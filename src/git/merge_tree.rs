//! Three-way merges of commits or trees by the git program.
//!
//! `git merge-tree` does the work of `git merge` without a checkout: renames, configuration,
//! attributes and merge drivers count alike. It changes neither refs nor index, and adds blobs and
//! trees to the object database.

use gix::ObjectId;
use gix::objs::Kind;

use super::commit::check_path;
use super::{GitError, Repository, TreeChange, TreeEntry, TreeEntryKind, program};
use tine_path::{PathError, RepoPath};

/// The input of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeTreeSpec {
    /// Merge base, a commit or a tree.
    ///
    /// If it is `None`, git finds it in the history, which requires commits on both sides. git
    /// merges several bases into one.
    pub base: Option<ObjectId>,
    /// Our side, a commit or a tree, whose attributes count.
    pub ours: ObjectId,
    /// Their side, a commit or a tree.
    pub theirs: ObjectId,
    /// True if unrelated histories are merged, over an empty base.
    pub allow_unrelated: bool,
    /// True to override `merge.directoryRenames` with `false`.
    pub ignore_directory_renames: bool,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedTree {
    /// Merged tree, with conflict markers in texts.
    ///
    /// Files that are in each other's way have names that git chose.
    pub tree_id: ObjectId,
    /// Unmerged index entries, sorted by path, then stage.
    pub stages: Vec<IndexStage>,
    /// Messages about conflicts and other events.
    pub messages: Vec<MergeMessage>,
    /// True if git would commit the result.
    ///
    /// Conflicts need not leave stages.
    pub is_clean: bool,
}

/// The side of an unmerged index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StageSide {
    /// Merge base, stage 1.
    Base,
    /// Our side, stage 2.
    Ours,
    /// Their side, stage 3.
    Theirs,
}

/// An unmerged index entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStage {
    /// Path in the merged tree.
    pub path: RepoPath,
    /// Side that the entry comes from.
    pub stage: StageSide,
    /// Mode; never that of a directory.
    pub kind: TreeEntryKind,
    /// Id of the blob, or of the submodule's commit.
    pub id: ObjectId,
}

/// A message of git about some paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeMessage {
    /// Subject of the message, followed by other paths involved.
    pub paths: Vec<RepoPath>,
    /// Untranslated kind: `Auto-merging`, `CONFLICT (contents)` …
    pub kind: String,
    /// Text for people, in the environment's language.
    pub text: String,
}

impl MergedTree {
    /// Swaps the two sides.
    fn mirrored(mut self) -> MergedTree {
        for stage in &mut self.stages {
            stage.stage = match stage.stage {
                StageSide::Base => StageSide::Base,
                StageSide::Ours => StageSide::Theirs,
                StageSide::Theirs => StageSide::Ours,
            };
        }
        self.stages
            .sort_by(|a, b| (&a.path, a.stage).cmp(&(&b.path, b.stage)));
        self
    }
}

/// The result of one git call.
enum Answer {
    Merged(MergedTree),
    /// Result without one version, because of a bug in git.
    ///
    /// An assertion in git failed, or it has an unmerged entry with mode 000000. git 2.47 does so
    /// if one side adds a file at a directory's name and the other side renames its surroundings.
    /// With the sides swapped it does not.
    Lost {
        reason: GitError,
        /// Invalid tree with that entry that git wrote, if any.
        tree_id: Option<ObjectId>,
    },
}

impl Repository {
    /// Merges two commits or trees with `git merge-tree`.
    ///
    /// If a bug in git makes the first call fail, merges again with the sides swapped.
    ///
    /// # Errors
    /// [`GitError::UnrelatedHistories`] if no base is given and none exists;
    /// [`GitError::HostilePath`] or [`GitError::HostileTree`] if the trees contain names that a
    /// checkout must refuse; [`GitError::GitFailed`] if git fails.
    pub fn merge_tree(&self, spec: &MergeTreeSpec) -> Result<MergedTree, GitError> {
        let ours_tree_id = self.peel_to_tree(spec.ours)?;
        let theirs_tree_id = self.peel_to_tree(spec.theirs)?;
        let attributes_id = self.attribute_source(spec, ours_tree_id, theirs_tree_id)?;
        let merged = match self.run_merge_tree(spec, attributes_id)? {
            Answer::Merged(merged) => merged,
            Answer::Lost { reason, tree_id } => {
                log::warn!(
                    "{reason}: merging {} into {} the other way round",
                    spec.theirs,
                    spec.ours
                );
                self.remove_faulty_trees(tree_id)?;
                let swapped = MergeTreeSpec {
                    ours: spec.theirs,
                    theirs: spec.ours,
                    ..*spec
                };
                match self.run_merge_tree(&swapped, attributes_id)? {
                    Answer::Merged(merged) => merged.mirrored(),
                    Answer::Lost { reason, tree_id } => {
                        self.remove_faulty_trees(tree_id)?;
                        return Err(reason);
                    }
                }
            }
        };
        self.note_merged(&merged, [ours_tree_id, theirs_tree_id])?;
        Ok(merged)
    }

    fn run_merge_tree(
        &self,
        spec: &MergeTreeSpec,
        attributes_id: ObjectId,
    ) -> Result<Answer, GitError> {
        let mut command = program::command(self.common_dir());
        // Merge drivers write files to the working directory, which must not be the user's
        // checkout. With a work tree above it, git would print paths relative to this directory.
        command
            .arg("--git-dir")
            .arg(self.common_dir())
            .arg("--work-tree")
            .arg(self.common_dir())
            .arg(format!("--attr-source={attributes_id}"));
        if spec.ignore_directory_renames {
            command.args(["-c", "merge.directoryRenames=false"]);
        }
        command
            .args(["merge-tree", "--write-tree", "-z", "--messages"])
            // With a higher value, git also prints the messages of merging several bases.
            .env("GIT_MERGE_VERBOSITY", "2");
        if spec.allow_unrelated {
            command.arg("--allow-unrelated-histories");
        }
        if let Some(base) = spec.base {
            command.arg(format!("--merge-base={base}"));
        }
        command.args([spec.ours.to_string(), spec.theirs.to_string()]);
        let finished = program::finish(&mut command, b"")?;
        match finished.status.code() {
            Some(0) => parse(&finished.stdout, true),
            // The status is also 1 if there is nothing to merge.
            Some(1) if !finished.stdout.is_empty() => parse(&finished.stdout, false),
            None => Ok(Answer::Lost {
                reason: program::failed(&command, &finished),
                tree_id: None,
            }),
            _ if self.is_unrelated(spec) => Err(GitError::UnrelatedHistories),
            _ => Err(program::failed(&command, &finished)),
        }
    }

    /// Lists all best common ancestors of two commits, in git's order.
    ///
    /// The list is empty if the histories are unrelated.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if a commit is missing.
    pub fn merge_bases(&self, a: ObjectId, b: ObjectId) -> Result<Vec<ObjectId>, GitError> {
        let mut command = program::command(self.common_dir());
        command
            .arg("--git-dir")
            .arg(self.common_dir())
            .args(["merge-base", "--all"])
            .args([a.to_string(), b.to_string()]);
        let finished = program::finish(&mut command, b"")?;
        match finished.status.code() {
            Some(0) => {}
            Some(1) => return Ok(Vec::new()),
            _ => return Err(program::failed(&command, &finished)),
        }
        finished
            .stdout
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|hex| ObjectId::from_hex(hex).map_err(GitError::library("read the merge bases")))
            .collect()
    }

    /// Returns the tree of a commit, or the tree itself, following tags.
    ///
    /// # Errors
    /// [`GitError::CorruptObject`] if the id leads to a blob, or the object is damaged;
    /// [`GitError::MissingObject`].
    pub fn peel_to_tree(&self, id: ObjectId) -> Result<ObjectId, GitError> {
        if id == self.empty_tree_id() {
            return Ok(id);
        }
        match self.peel(id)? {
            (commit_id, Kind::Commit) => Ok(self.commit_info(commit_id)?.tree_id),
            (tree_id, Kind::Tree) => Ok(tree_id),
            (id, kind) => Err(GitError::CorruptObject {
                id,
                reason: format!("it is a {kind}, not a tree"),
            }),
        }
    }

    /// Returns the entry of `tree_id` at `path`, if any.
    ///
    /// # Errors
    /// Fails as [`Repository::read_tree`].
    pub fn tree_entry(
        &self,
        tree_id: ObjectId,
        path: &RepoPath,
    ) -> Result<Option<TreeEntry>, GitError> {
        let mut found: Option<TreeEntry> = None;
        for name in path.components() {
            let dir_id = match &found {
                None => tree_id,
                Some(entry) if entry.kind == TreeEntryKind::Directory => entry.id,
                Some(_) => return Ok(None),
            };
            let entries = self.read_tree(dir_id)?;
            found = entries.into_iter().find(|entry| entry.name == name);
            if found.is_none() {
                return Ok(None);
            }
        }
        Ok(found)
    }

    /// Returns the tree whose attributes apply, normally our side's.
    ///
    /// `git merge` reads attributes from the checkout. If that has no `.gitattributes` and texts
    /// are renormalised, it uses the merged file, which is the one that their side adds.
    fn attribute_source(
        &self,
        spec: &MergeTreeSpec,
        ours_tree_id: ObjectId,
        theirs_tree_id: ObjectId,
    ) -> Result<ObjectId, GitError> {
        if self.config_bool("merge.renormalize") != Some(true) {
            return Ok(ours_tree_id);
        }
        let path =
            RepoPath::parse(b".gitattributes").map_err(GitError::library("name the attributes"))?;
        let Some(added) = self.tree_entry(theirs_tree_id, &path)? else {
            return Ok(ours_tree_id);
        };
        let base = match spec.base {
            Some(base) => Some(base),
            None => self.merge_bases(spec.ours, spec.theirs)?.first().copied(),
        };
        let was_there = match base {
            Some(base) => self.tree_entry(self.peel_to_tree(base)?, &path)?.is_some(),
            None => false,
        };
        if was_there || self.tree_entry(ours_tree_id, &path)?.is_some() {
            return Ok(ours_tree_id);
        }
        let change = TreeChange {
            path,
            new: Some((added.kind, added.id)),
        };
        self.edit_tree(ours_tree_id, &[change])
    }

    fn is_unrelated(&self, spec: &MergeTreeSpec) -> bool {
        spec.base.is_none()
            && !spec.allow_unrelated
            && matches!(self.merge_bases(spec.ours, spec.theirs), Ok(bases) if bases.is_empty())
    }

    /// Records the objects that git may have written and not synced.
    ///
    /// These are the objects that neither input tree has.
    fn note_merged(&self, merged: &MergedTree, known: [ObjectId; 2]) -> Result<(), GitError> {
        for stage in merged
            .stages
            .iter()
            .filter(|stage| stage.kind != TreeEntryKind::Submodule)
        {
            self.note_unsynced(stage.id);
        }
        self.note_tree(merged.tree_id, known)
    }
}

/// Parses the output of `git merge-tree -z --messages` (git-merge-tree(1), OUTPUT).
fn parse(output: &[u8], is_clean: bool) -> Result<Answer, GitError> {
    let mut fields = Fields { rest: output };
    let tree_id = fields.id()?;
    let mut stages = Vec::new();
    let mut seen = fields.next()?;
    while !seen.is_empty() {
        if seen.starts_with(b"000000 ") {
            return Ok(Answer::Lost {
                reason: GitError::Library {
                    action: "merge",
                    reason: format!("git lost a version: {:?}", String::from_utf8_lossy(seen)),
                },
                tree_id: Some(tree_id),
            });
        }
        stages.push(stage(seen, tree_id)?);
        seen = fields.next()?;
    }
    let mut messages = Vec::new();
    while !fields.rest.is_empty() {
        let count = text(fields.next()?)
            .parse::<usize>()
            .map_err(GitError::library(READ))?;
        let mut paths = Vec::new();
        for _ in 0..count {
            paths.push(path(fields.next()?, tree_id)?);
        }
        messages.push(MergeMessage {
            paths,
            kind: text(fields.next()?),
            text: text(fields.next()?).trim_end().to_owned(),
        });
    }
    Ok(Answer::Merged(MergedTree {
        tree_id,
        stages,
        messages,
        is_clean,
    }))
}

const READ: &str = "read what git merge-tree says";

/// Reader of fields that end in NUL.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a [u8], GitError> {
        let end = self.rest.iter().position(|&byte| byte == 0);
        let (field, rest) = end
            .and_then(|end| Some((self.rest.get(..end)?, self.rest.get(end + 1..)?)))
            .ok_or_else(|| unexpected(self.rest))?;
        self.rest = rest;
        Ok(field)
    }

    fn id(&mut self) -> Result<ObjectId, GitError> {
        ObjectId::from_hex(self.next()?).map_err(GitError::library(READ))
    }
}

/// Parses `<mode> <id> <stage>TAB<path>`.
fn stage(field: &[u8], tree_id: ObjectId) -> Result<IndexStage, GitError> {
    let (head, name) = split_at(field, b'\t').ok_or_else(|| unexpected(field))?;
    let (mode, rest) = split_at(head, b' ').ok_or_else(|| unexpected(field))?;
    let (id, number) = split_at(rest, b' ').ok_or_else(|| unexpected(field))?;
    let kind = match mode {
        b"100755" => TreeEntryKind::Executable,
        b"120000" => TreeEntryKind::Symlink,
        b"160000" => TreeEntryKind::Submodule,
        b"100644" => TreeEntryKind::File,
        _ => return Err(unexpected(field)),
    };
    let stage = match number {
        b"1" => StageSide::Base,
        b"2" => StageSide::Ours,
        b"3" => StageSide::Theirs,
        _ => return Err(unexpected(field)),
    };
    let path = path(name, tree_id)?;
    check_path(&path, kind)?;
    Ok(IndexStage {
        path,
        stage,
        kind,
        id: ObjectId::from_hex(id).map_err(GitError::library(READ))?,
    })
}

fn path(bytes: &[u8], tree_id: ObjectId) -> Result<RepoPath, GitError> {
    RepoPath::parse(bytes).map_err(|source: PathError| GitError::HostileTree { tree_id, source })
}

fn split_at(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn unexpected(bytes: &[u8]) -> GitError {
    GitError::Library {
        action: READ,
        reason: format!("{:?} was not expected", String::from_utf8_lossy(bytes)),
    }
}

#[cfg(test)]
mod tests;
