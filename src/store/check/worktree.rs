//! Check and repair of a fork's HEAD, index and `.git` file.

use std::io;
use std::path::{Path, PathBuf};

use super::finding::{FindingKind, Found, Repair};
use super::records::unreadable;
use super::repair::{move_to, put_back_hint};
use super::{FSCK, REPAIRS, StoreCheck, next_aside};
use crate::fork::{ForkName, ForkRecord, GitKind};
use crate::initial::InitialContent;
use crate::mend::dot_git_path;
use crate::places::is_there;
use crate::{DotGit, Store, StoreError};
use tine_git::index::tracked_paths;
use tine_git::{DamagedBranch, GitError, Head, ObjectId, Repository, Worktree};
use tine_sys::file;

impl StoreCheck<'_> {
    /// Checks HEAD of the worktree in `dir`.
    pub(super) fn head(&mut self, record: &ForkRecord, dir: &Path) {
        // Where HEAD's branch is, is not known before that is mended; it is found by itself.
        if file::check_regular(&dir.join("packed-refs")).is_err() {
            return;
        }
        let detail = match self.store.head_defect(record, dir) {
            None => return,
            Some(HeadDefect::Unreadable(path, error)) => {
                return self.unreadable(Some(record.name.as_str()), &path, &error);
            }
            Some(HeadDefect::Damaged(detail)) => detail,
        };
        let hint = format!(
            "{REPAIRS}takes HEAD to the newest commit of its own that is there, as `tine reset {}` does, which takes the files along; {FSCK}",
            record.name
        );
        let name = record.name.as_str();
        let found = Found::new(
            FindingKind::HeadDamaged,
            Some(name),
            dir.join("HEAD").display(),
            detail,
            hint,
        );
        self.found
            .push(found.with(Repair::MendHead(record.name.clone())));
    }

    /// Checks for branches with invalid files.
    ///
    /// A branch reported with its fork's HEAD is left out.
    pub(super) fn branches(&mut self) -> Result<(), StoreError> {
        let reported: Vec<String> = self
            .found
            .iter()
            .filter(|one| one.finding.kind == FindingKind::HeadDamaged)
            .filter_map(|one| branch_of(Path::new(&one.finding.what).parent()?))
            .collect();
        for DamagedBranch { name, reason } in self.repository().damaged_branches()? {
            if reported.contains(&name) {
                continue;
            }
            let what = format!("refs/heads/{name}");
            let (hint, repair) = match self.repository().newest_of_branch(&name)? {
                Some(newest) => (
                    format!("{REPAIRS}puts it back at {newest}, where its reflog says that it was"),
                    Repair::MendBranch(name),
                ),
                None => (
                    format!(
                        "where it was is not known: `git update-ref {what} COMMIT` says it; {FSCK}"
                    ),
                    Repair::None,
                ),
            };
            self.found
                .push(Found::new(FindingKind::RefDamaged, None, what, reason, hint).with(repair));
        }
        Ok(())
    }

    /// Checks the index of the worktree in `dir`.
    pub(super) fn index(&mut self, record: &ForkRecord, dir: &Path) {
        let path = dir.join("index");
        if let Some(error) = unreadable(&path) {
            return self.unreadable(Some(record.name.as_str()), &path, &error);
        }
        // A fork without a commit has no index until something is staged.
        if !path.exists() && record.base_commit.is_none() {
            return;
        }
        let defect = if path.exists() {
            match record.open_worktree(self.repository()) {
                // Asking for any path reads the whole index.
                Ok(worktree) => {
                    tracked_paths(self.repository(), &worktree, &[dot_git_path()]).err()
                }
                Err(_) => None,
            }
            .map(|error| error.to_string())
        } else {
            Some("it is missing".to_owned())
        };
        let Some(defect) = defect else {
            return;
        };
        let found = Found::new(
            FindingKind::IndexDamaged,
            Some(record.name.as_str()),
            path.display(),
            defect,
            format!(
                "{REPAIRS}makes it again, of HEAD; what was staged is unstaged then, and in the files"
            ),
        );
        self.found
            .push(found.with(Repair::MendIndex(record.name.clone())));
    }

    /// Checks the `.git` file if the fork is open.
    ///
    /// Otherwise the next opening repairs it.
    pub(super) fn dot_git(&mut self, record: &ForkRecord) {
        let open = self.store.open.lock();
        let fork = open
            .forks
            .get(&record.name)
            .and_then(|(fork, _)| fork.upgrade());
        drop(open);
        let (detail, hint, repair) = match fork.map(|fork| fork.dot_git()) {
            None | Some(DotGit::Right) => return,
            Some(DotGit::Broken(reason)) => (
                reason,
                format!("{REPAIRS}writes it anew, as the next command does"),
                Repair::MendDotGit(record.name.clone()),
            ),
            Some(DotGit::Other) => (
                "it is not a file".to_owned(),
                "it may be a repository of its own: move it away, and the next command writes the file anew"
                    .to_owned(),
                Repair::None,
            ),
        };
        let name = record.name.as_str();
        let what = record.mount_dir.join(".git");
        let found = Found::new(
            FindingKind::DotGitDamaged,
            Some(name),
            what.display(),
            detail,
            hint,
        );
        self.found.push(found.with(repair));
    }
}

/// Reflog message for a branch or HEAD that is reset.
const BACK_TO_NEWEST: &str = "tine: back to the newest commit that is there";

/// Problem of a HEAD.
enum HeadDefect {
    Damaged(String),
    /// It cannot be read, and may be valid.
    Unreadable(PathBuf, io::Error),
}

impl Store {
    /// Returns the problem with HEAD of the worktree in `dir`, if any.
    fn head_defect(&self, record: &ForkRecord, dir: &Path) -> Option<HeadDefect> {
        let head = match self.repository.head_of(dir) {
            Ok(head) => head,
            Err(error) => {
                let path = dir.join("HEAD");
                let branch = self.broken_branch_of(dir).map(|(_, path)| path);
                return Some(
                    match [path].into_iter().chain(branch).find_map(with_error) {
                        Some((path, error)) => HeadDefect::Unreadable(path, error),
                        None => HeadDefect::Damaged(format!("it cannot be read: {error}")),
                    },
                );
            }
        };
        let defect = match (&head, head.commit_id()) {
            (_, Some(id)) if !self.has_object_for(record, dir, id) => {
                let on = head.short_branch().map_or(String::new(), |branch| {
                    format!(", where the branch {branch} is,")
                });
                Some(format!("its commit {id}{on} is not in the repository"))
            }
            // With `git switch --orphan` the user may be on a new branch without commits.
            (Head::Unborn { .. }, None)
                if record.base_commit.is_some() && head.short_branch() == Some(&record.branch) =>
            {
                Some(format!("its branch {} is gone", record.branch))
            }
            _ => None,
        };
        defect.map(HeadDefect::Damaged)
    }

    /// Returns whether the fork with the git directory `dir` has an object.
    ///
    /// An object that the main repository refuses is only in the fork's own git directory.
    fn has_object_for(&self, record: &ForkRecord, dir: &Path, id: ObjectId) -> bool {
        self.repository.has_object(id)
            || record.git_kind == GitKind::Own && self.repository.has_own_object(dir, id)
    }

    /// Returns the branch (short name) and file that a broken HEAD names.
    ///
    /// `None` if that file does not exist.
    fn broken_branch_of(&self, dir: &Path) -> Option<(String, PathBuf)> {
        let branch = branch_of(dir)?;
        self.repository.check_branch_name(&branch).ok()?;
        let refs = self.repository.refs_at(dir);
        let path = refs.common_dir().join("refs/heads").join(&branch);
        is_there(&path).then_some((branch, path))
    }

    /// Returns HEAD's newest commit that still exists, else the base.
    fn newest_existing(&self, record: &ForkRecord, dir: &Path) -> Option<ObjectId> {
        let base = record.base_commit.as_deref();
        let base = base.and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok());
        let newest = self.repository.newest_of_head(dir).unwrap_or_else(|error| {
            log::warn!("{}: {error}", record.name);
            None
        });
        newest.or(base.filter(|id| self.repository.has_object(*id)))
    }

    /// Sets a damaged HEAD, and its branch, to its newest existing commit.
    ///
    /// Files and a valid HEAD stay unchanged. Returns a description of the repair.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`], [`StoreError::Damaged`] if no commit of HEAD exists, or an error
    /// of reading or writing HEAD.
    pub fn mend_head(&self, name: &ForkName) -> Result<String, StoreError> {
        let record = self.places.read_record(name)?;
        let dir = self.worktree_dir(&record);
        match self.head_defect(&record, &dir) {
            None => return Ok("it is whole".to_owned()),
            Some(HeadDefect::Unreadable(path, error)) => {
                return Err(StoreError::io("read", path)(error));
            }
            Some(HeadDefect::Damaged(_)) => {}
        }
        let newest = self.newest_existing(&record, &dir);
        if let Some(newest) = newest {
            // The existing ref may keep the lost commit.
            self.repository.keep(name.as_str(), "head", newest)?;
        }
        let repository = &self.repository.refs_at(&dir);
        let reflog = BACK_TO_NEWEST;
        match repository.head_of(&dir) {
            Ok(head) => match (head.short_branch(), head.commit_id(), newest) {
                (Some(branch), Some(lost), Some(newest)) => {
                    repository.move_branch(branch, lost, newest, reflog)?;
                    Ok(format!(
                        "the branch {branch} went from {lost}, which is lost, to {newest}"
                    ))
                }
                (Some(branch), None, Some(newest)) => {
                    repository.create_branch(branch, newest, reflog)?;
                    Ok(format!("the branch {branch} was made again at {newest}"))
                }
                (None, Some(lost), Some(newest)) => {
                    self.write_head(&dir, &Head::Detached { commit_id: newest })?;
                    Ok(format!("it went from {lost}, which is lost, to {newest}"))
                }
                _ => Err(no_known_commit(dir.join("HEAD"))),
            },
            Err(_) if let Some((branch, path)) = self.broken_branch_of(&dir) => match newest {
                Some(newest) => self.reset_branch(repository, &branch, &path, newest),
                None => Err(no_known_commit(path)),
            },
            Err(_) => {
                let branch = record.head_branch.as_ref().unwrap_or(&record.branch);
                let full_name = format!("refs/heads/{branch}");
                let tip = match repository.checked_out_at(branch)? {
                    Some(_) => None,
                    None => repository.branch(branch)?,
                };
                let head = match (tip, newest) {
                    (Some(commit_id), _) => Head::Branch {
                        name: full_name,
                        commit_id,
                    },
                    (None, Some(commit_id)) => Head::Detached { commit_id },
                    (None, None) => Head::Unborn { name: full_name },
                };
                let aside = self.worktree_file_aside(&dir, "HEAD")?;
                self.write_head(&dir, &head)?;
                let at = head.short_branch().map_or_else(
                    || newest.map_or_else(String::new, |id| id.to_string()),
                    |branch| format!("the branch {branch}"),
                );
                Ok(format!("it is on {at} again; {}", describe_aside(aside)))
            }
        }
    }

    /// Sets a branch with an invalid file to its newest commit.
    ///
    /// `branch` is a short name. The commit is one that the branch, or a checkout on it, was at and
    /// that still exists.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if no such commit exists, or an error of writing the branch.
    pub(super) fn mend_branch(&self, branch: &str) -> Result<String, StoreError> {
        let path = self.repository.common_dir().join("refs/heads").join(branch);
        if !matches!(
            self.repository.branch(branch),
            Err(GitError::DamagedRef { .. })
        ) {
            return Ok("it is whole".to_owned());
        }
        match self.repository.newest_of_branch(branch)? {
            Some(newest) => self.reset_branch(&self.repository, branch, &path, newest),
            None => Err(no_known_commit(path)),
        }
    }

    /// Moves a branch's damaged file aside and sets the branch to `commit_id`.
    ///
    /// `branch` is a short name in `refs`. Returns a description of the repair.
    fn reset_branch(
        &self,
        refs: &Repository,
        branch: &str,
        path: &Path,
        commit_id: ObjectId,
    ) -> Result<String, StoreError> {
        let reflog = BACK_TO_NEWEST;
        let aside = next_aside(&self.places)?;
        let within = path.strip_prefix(self.places.root());
        let kept = within.map_or(Path::new("refs/heads").join(branch), Path::to_owned);
        move_to(path, &aside.join(kept))?;
        // The packed value is older.
        match refs.branch_target(branch)? {
            Some(packed) => refs.move_branch(branch, packed, commit_id, reflog)?,
            None => refs.create_branch(branch, commit_id, reflog)?,
        }
        Ok(format!(
            "the branch {branch}, whose ref was damaged, is at {commit_id}; {}",
            put_back_hint(&aside)
        ))
    }

    /// Repairs a damaged HEAD like [`Store::mend_head`]; `None` if it is valid.
    ///
    /// # Errors
    /// Same as [`Store::mend_head`].
    pub fn mend_lost_head(&self, name: &ForkName) -> Result<Option<String>, StoreError> {
        let record = self.places.read_record(name)?;
        match self.head_defect(&record, &self.worktree_dir(&record)) {
            Some(_) => self.mend_head(name).map(Some),
            None => Ok(None),
        }
    }

    fn write_head(&self, dir: &Path, head: &Head) -> Result<(), StoreError> {
        Ok(Worktree::replace_head(dir, head)?)
    }

    /// Rebuilds a fork's index from HEAD, or from the base without HEAD.
    pub(super) fn mend_index(&self, name: &ForkName) -> Result<String, StoreError> {
        let record = self.places.read_record(name)?;
        let dir = self.worktree_dir(&record);
        let head = self
            .repository
            .head_of(&dir)
            .ok()
            .and_then(|head| head.commit_id());
        let head = head.filter(|id| self.repository.has_object(*id));
        let commit_id = head.or_else(|| self.newest_existing(&record, &dir));
        let prepared = self.prepare_base(
            commit_id,
            record.base_attrs,
            record.conversions.as_ref(),
            None,
        )?;
        let worktree = record.open_worktree(&self.repository)?;
        let aside = self.worktree_file_aside(&dir, "index")?;
        InitialContent::of_base(prepared, commit_id, None)
            .fill_worktree(&self.repository, &worktree)?;
        Ok(format!("made again; {}", describe_aside(aside)))
    }

    /// Moves a fork's unreadable index aside. The fork has none then.
    ///
    /// Returns the number for [`Store::put_back`]; `None` if the index was missing.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFork`] or [`StoreError::Damaged`] for the record, or an I/O error of
    /// moving the file.
    pub fn set_index_aside(&self, name: &ForkName) -> Result<Option<u64>, StoreError> {
        let _admin = self.admin.lock();
        let dir = self.worktree_dir(&self.places.read_record(name)?);
        let aside = self.worktree_file_aside(&dir, "index")?;
        Ok(aside.and_then(|aside| aside.file_name()?.to_str()?.parse().ok()))
    }

    /// Moves a worktree's file aside, if any; returns the directory.
    fn worktree_file_aside(&self, dir: &Path, file: &str) -> Result<Option<PathBuf>, StoreError> {
        if !is_there(&dir.join(file)) {
            return Ok(None);
        }
        let aside = next_aside(&self.places)?;
        let to = match dir.strip_prefix(self.places.root()) {
            // The fork's own git directory.
            Ok(within) => aside.join(within).join(file),
            Err(_) => {
                let id = dir.file_name().unwrap_or_default();
                aside.join("worktrees").join(id).join(file)
            }
        };
        move_to(&dir.join(file), &to)?;
        Ok(Some(aside))
    }
}

/// Describes what was moved aside.
fn describe_aside(aside: Option<PathBuf>) -> String {
    match aside {
        Some(aside) => format!(
            "what it was is in {}: {}",
            aside.display(),
            put_back_hint(&aside)
        ),
        None => "it was missing".to_owned(),
    }
}

/// Pairs a path with its read error; `None` if it is readable.
fn with_error(path: PathBuf) -> Option<(PathBuf, io::Error)> {
    unreadable(&path).map(|error| (path, error))
}

/// Returns the branch (short name) that HEAD in `dir` names.
fn branch_of(dir: &Path) -> Option<String> {
    let head = file::read_to_string(&dir.join("HEAD")).ok()?;
    Some(head.strip_prefix("ref: refs/heads/")?.trim_end().to_owned())
}

/// Returns the error for a ref without any known, existing commit.
fn no_known_commit(path: PathBuf) -> StoreError {
    StoreError::Damaged {
        path,
        reason: "no commit that it was on is there".to_owned(),
    }
}
