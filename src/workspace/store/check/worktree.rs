//! HEAD, index and `.git` file of a fork: whether they can be read, and how they are put right.

use std::io;
use std::path::{Path, PathBuf};

use super::finding::{FindingKind, Found, Remedy};
use super::repair::{move_to, way_back};
use super::{FSCK, Look, REPAIRS, next_aside, unreadable};
use crate::StoreError;
use crate::fork::{ForkName, ForkRecord};
use crate::store::beginning::Beginning;
use crate::store::mend::dot_git_path;
use crate::store::{DotGit, Store, is_there};
use tine_git::index::tracked_paths;
use tine_git::{DamagedBranch, GitError, Head, LinkedWorktree, ObjectId};
use tine_sys::file;

impl Look<'_> {
    /// HEAD of the worktree in `dir`.
    pub(super) fn head(&mut self, record: &ForkRecord, dir: &Path) {
        let detail = match self.store.head_trouble(record, dir) {
            None => return,
            Some(Trouble::Unreadable(path, error)) => {
                return self.unreadable(Some(record.name.as_str()), &path, &error);
            }
            Some(Trouble::Damaged(detail)) => detail,
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
            .push(found.with(Remedy::MendHead(record.name.clone())));
    }

    /// Branches whose files hold no ref, but for those of which something was said with the fork
    /// that is on them.
    pub(super) fn branches(&mut self) -> Result<(), StoreError> {
        let told: Vec<String> = self
            .found
            .iter()
            .filter(|one| one.finding.kind == FindingKind::HeadDamaged)
            .filter_map(|one| branch_of(Path::new(&one.finding.what).parent()?))
            .collect();
        for DamagedBranch { name, reason } in self.repository().damaged_branches()? {
            if told.contains(&name) {
                continue;
            }
            let what = format!("refs/heads/{name}");
            let (hint, remedy) = match self.repository().newest_of_branch(&name)? {
                Some(newest) => (
                    format!("{REPAIRS}puts it back at {newest}, where its reflog says that it was"),
                    Remedy::MendBranch(name),
                ),
                None => (
                    format!(
                        "where it was is not known: `git update-ref {what} COMMIT` says it; {FSCK}"
                    ),
                    Remedy::None,
                ),
            };
            self.found
                .push(Found::new(FindingKind::RefDamaged, None, what, reason, hint).with(remedy));
        }
        Ok(())
    }

    /// The index of the worktree in `dir`.
    pub(super) fn index(&mut self, record: &ForkRecord, dir: &Path) {
        let path = dir.join("index");
        if let Some(error) = unreadable(&path) {
            return self.unreadable(Some(record.name.as_str()), &path, &error);
        }
        // A fork without a commit has none until something is staged.
        if !path.exists() && record.base_commit.is_none() {
            return;
        }
        let trouble = match path.exists() {
            true => match LinkedWorktree::open(self.repository(), &record.worktree_id) {
                // Asking for any path reads all of it.
                Ok(worktree) => {
                    tracked_paths(self.repository(), &worktree, &[dot_git_path()]).err()
                }
                Err(_) => None,
            }
            .map(|error| error.to_string()),
            false => Some("it is missing".to_owned()),
        };
        let Some(trouble) = trouble else {
            return;
        };
        let found = Found::new(
            FindingKind::IndexDamaged,
            Some(record.name.as_str()),
            path.display(),
            trouble,
            format!(
                "{REPAIRS}makes it again, of HEAD; what was staged is unstaged then, and in the files"
            ),
        );
        self.found
            .push(found.with(Remedy::MendIndex(record.name.clone())));
    }

    /// The `.git` file, where the fork is open: the next opening mends it otherwise.
    pub(super) fn dot_git(&mut self, record: &ForkRecord) {
        let open = self.store.open.lock();
        let fork = open
            .forks
            .get(&record.name)
            .and_then(|(fork, _)| fork.upgrade());
        drop(open);
        let (detail, hint, remedy) = match fork.map(|fork| fork.dot_git()) {
            None | Some(DotGit::Right) => return,
            Some(DotGit::Broken(reason)) => (
                reason,
                format!("{REPAIRS}writes it anew, as the next command does"),
                Remedy::MendDotGit(record.name.clone()),
            ),
            Some(DotGit::Other) => (
                "it is not a file".to_owned(),
                "it may be a repository of its own: move it away, and the next command writes the file anew"
                    .to_owned(),
                Remedy::None,
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
        self.found.push(found.with(remedy));
    }
}

/// What the reflog says of a branch that is put back.
const BACK_TO_NEWEST: &str = "tine: back to the newest commit that is there";

/// What is wrong with a HEAD.
enum Trouble {
    Damaged(String),
    /// This may be whole.
    Unreadable(PathBuf, io::Error),
}

impl Store {
    /// What is wrong with HEAD of the worktree in `dir`, if anything is.
    fn head_trouble(&self, record: &ForkRecord, dir: &Path) -> Option<Trouble> {
        let head = match self.repository.head_of(dir) {
            Ok(head) => head,
            Err(error) => {
                let path = dir.join("HEAD");
                let branch = self.broken_branch_of(dir).map(|(_, path)| path);
                return Some(
                    match [path].into_iter().chain(branch).find_map(with_error) {
                        Some((path, error)) => Trouble::Unreadable(path, error),
                        None => Trouble::Damaged(format!("it cannot be read: {error}")),
                    },
                );
            }
        };
        let trouble = match (&head, head.commit_id()) {
            (_, Some(id)) if !self.repository.has_object(id) => {
                let on = head.short_branch().map_or(String::new(), |branch| {
                    format!(", where the branch {branch} is,")
                });
                Some(format!("its commit {id}{on} is not in the repository"))
            }
            // On another branch without commits its user may have begun anew
            // (`git switch --orphan`).
            (Head::Unborn { .. }, None)
                if record.base_commit.is_some() && head.short_branch() == Some(&record.branch) =>
            {
                Some(format!("its branch {} is gone", record.branch))
            }
            _ => None,
        };
        trouble.map(Trouble::Damaged)
    }

    /// The branch (short name) that a HEAD which cannot be followed leads to, and its file, where
    /// that is there.
    fn broken_branch_of(&self, dir: &Path) -> Option<(String, PathBuf)> {
        let branch = branch_of(dir)?;
        self.repository.check_branch_name(&branch).ok()?;
        let path = self
            .repository
            .common_dir()
            .join("refs/heads")
            .join(&branch);
        is_there(&path).then_some((branch, path))
    }

    /// The newest commit that HEAD of the worktree in `dir` was on and that is there; else the
    /// base.
    fn newest_there(&self, record: &ForkRecord, dir: &Path) -> Option<ObjectId> {
        let base = record.base_commit.as_deref();
        let base = base.and_then(|hex| ObjectId::from_hex(hex.as_bytes()).ok());
        let newest = self.repository.newest_of_head(dir).unwrap_or_else(|error| {
            log::warn!("{}: {error}", record.name);
            None
        });
        newest.or(base.filter(|id| self.repository.has_object(*id)))
    }

    /// Takes a HEAD that is damaged to the newest commit of its own that is there, and its branch
    /// with it; what was done. Files stay as they are. One that is whole stays, too.
    ///
    /// # Errors
    /// Where HEAD cannot be written.
    pub fn mend_head(&self, name: &ForkName) -> Result<String, StoreError> {
        let record = self.places.read_record(name)?;
        let dir = self.worktree_dir(&record);
        match self.head_trouble(&record, &dir) {
            None => return Ok("it is whole".to_owned()),
            Some(Trouble::Unreadable(path, error)) => {
                return Err(StoreError::io("read", path)(error));
            }
            Some(Trouble::Damaged(_)) => {}
        }
        let repository = &self.repository;
        let newest = self.newest_there(&record, &dir);
        if let Some(newest) = newest {
            // It may keep the commit that is lost.
            repository.keep(name.as_str(), "head", newest)?;
        }
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
                _ => Err(none_there(dir.join("HEAD"))),
            },
            Err(_) if let Some((branch, path)) = self.broken_branch_of(&dir) => match newest {
                Some(newest) => self.put_branch(&branch, &path, newest),
                None => Err(none_there(path)),
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
                Ok(format!("it is on {at} again; {}", was(aside)))
            }
        }
    }

    /// Puts the branch (short name), whose file holds no ref, at the newest commit that it, or a
    /// checkout that is on it, was at.
    ///
    /// # Errors
    /// Where no such commit is there, or the branch cannot be written.
    pub(super) fn mend_branch(&self, branch: &str) -> Result<String, StoreError> {
        let path = self.repository.common_dir().join("refs/heads").join(branch);
        if !matches!(
            self.repository.branch(branch),
            Err(GitError::DamagedRef { .. })
        ) {
            return Ok("it is whole".to_owned());
        }
        match self.repository.newest_of_branch(branch)? {
            Some(newest) => self.put_branch(branch, &path, newest),
            None => Err(none_there(path)),
        }
    }

    /// Moves the damaged file of a branch (short name) aside, and has the branch at `commit_id`;
    /// what was done.
    fn put_branch(
        &self,
        branch: &str,
        path: &Path,
        commit_id: ObjectId,
    ) -> Result<String, StoreError> {
        let reflog = BACK_TO_NEWEST;
        let aside = next_aside(&self.places)?;
        move_to(path, &aside.join("refs/heads").join(branch))?;
        // What was packed is older.
        match self.repository.branch_target(branch)? {
            Some(packed) => self
                .repository
                .move_branch(branch, packed, commit_id, reflog)?,
            None => self.repository.create_branch(branch, commit_id, reflog)?,
        }
        Ok(format!(
            "the branch {branch}, whose ref was damaged, is at {commit_id}; {}",
            way_back(&aside)
        ))
    }

    /// As [`Store::mend_head`], where HEAD is damaged; `None` where it is whole.
    ///
    /// # Errors
    /// As [`Store::mend_head`].
    pub fn mend_lost_head(&self, name: &ForkName) -> Result<Option<String>, StoreError> {
        let record = self.places.read_record(name)?;
        match self.head_trouble(&record, &self.worktree_dir(&record)) {
            Some(_) => self.mend_head(name).map(Some),
            None => Ok(None),
        }
    }

    fn write_head(&self, dir: &Path, head: &Head) -> Result<(), StoreError> {
        Ok(LinkedWorktree::replace_head(dir, head)?)
    }

    /// Makes the index of a fork again, of HEAD, or of the base where there is no HEAD.
    pub(super) fn mend_index(&self, name: &ForkName) -> Result<String, StoreError> {
        let record = self.places.read_record(name)?;
        let dir = self.worktree_dir(&record);
        let head = self
            .repository
            .head_of(&dir)
            .ok()
            .and_then(|head| head.commit_id());
        let head = head.filter(|id| self.repository.has_object(*id));
        let commit_id = head.or_else(|| self.newest_there(&record, &dir));
        let prepared = self.prepare_base(
            commit_id,
            record.base_attrs,
            record.conversions.as_ref(),
            None,
        )?;
        let worktree = LinkedWorktree::open(&self.repository, &record.worktree_id)?;
        let aside = self.worktree_file_aside(&dir, "index")?;
        Beginning::at(prepared, commit_id, None).fill_worktree(&worktree)?;
        Ok(format!("made again; {}", was(aside)))
    }

    /// Moves the index of a fork aside, which cannot be read; the number that [`Store::put_back`]
    /// takes. The fork has none then.
    pub fn set_index_aside(&self, name: &ForkName) -> Result<Option<u64>, StoreError> {
        let _admin = self.admin.lock();
        let dir = self.worktree_dir(&self.places.read_record(name)?);
        let aside = self.worktree_file_aside(&dir, "index")?;
        Ok(aside.and_then(|aside| aside.file_name()?.to_str()?.parse().ok()))
    }

    /// Moves a file of a worktree aside, if it is there; where to.
    fn worktree_file_aside(&self, dir: &Path, file: &str) -> Result<Option<PathBuf>, StoreError> {
        if !is_there(&dir.join(file)) {
            return Ok(None);
        }
        let aside = next_aside(&self.places)?;
        let id = dir.file_name().unwrap_or_default();
        let to = aside.join("worktrees").join(id).join(file);
        move_to(&dir.join(file), &to)?;
        Ok(Some(aside))
    }
}

/// What became of what was there, in words.
fn was(aside: Option<PathBuf>) -> String {
    match aside {
        Some(aside) => format!(
            "what it was is in {}: {}",
            aside.display(),
            way_back(&aside)
        ),
        None => "it was missing".to_owned(),
    }
}

/// A path that cannot be read, and why.
fn with_error(path: PathBuf) -> Option<(PathBuf, io::Error)> {
    unreadable(&path).map(|error| (path, error))
}

/// The branch (short name) that HEAD of the worktree in `dir` names.
fn branch_of(dir: &Path) -> Option<String> {
    let head = file::read_to_string(&dir.join("HEAD")).ok()?;
    Some(head.strip_prefix("ref: refs/heads/")?.trim_end().to_owned())
}

/// No commit is known, and there, that the ref in this file was at.
fn none_there(path: PathBuf) -> StoreError {
    StoreError::Damaged {
        path,
        reason: "no commit that it was on is there".to_owned(),
    }
}
