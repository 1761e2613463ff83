//! Refs: branches, and the refs that protect a fork's objects from `git gc`.
//!
//! Every change is a compare-and-swap. `refs/tine/<fork>/<label>` keeps the objects that a fork
//! needs. It is in the common namespace, because `refs/worktree/*` would not protect them. A ref's
//! new value is synced before the ref changes, as with git's default `core.fsync`, so a crash never
//! leaves an empty ref behind.

mod damage;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::lock::acquire::Fail;
use gix::objs::Kind;
use gix::refs::file::Store;
use gix::refs::file::transaction::prepare::{MustNotExist, ReferenceOutOfDate};
use gix::refs::store::WriteReflog;
use gix::refs::transaction::{Change, PreviousValue, RefEdit};
use gix::refs::{FullName, Target};

pub use self::damage::DamagedBranch;
pub(super) use self::damage::damaged_ref;
use self::damage::is_broken;
use super::index::{has_switch_to, is_within, switches_to};
use super::worktree::Checkout;
use super::{GitError, LinkedWorktree, Repository};
use tine_sys::file;
use tine_sys::pause;

/// Maximum wait for a locked ref.
///
/// git waits for 100 ms by default (`core.filesRefLockTimeout`). Another tine process holds the
/// lock until the new value is synced, which takes longer on a busy disk.
const REF_LOCK_TIMEOUT: Duration = Duration::from_millis(2000);

/// Maximum wait for a `git switch` in progress.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(2);
const SWITCH_INTERVAL: Duration = Duration::from_millis(10);

const REF_LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Number of attempts to delete a ref when `packed-refs` goes missing.
const DELETE_ATTEMPTS: usize = 8;

/// Maximum wait before the lock of the packed refs counts as stale.
///
/// git holds it only briefly, except while it writes a large file beside it.
const STALE_PACKED_REFS_TIMEOUT: Duration = Duration::from_secs(2);
const PACKED_REFS_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum wait for a locked `packed-refs` (`core.packedRefsTimeout`'s default).
const PACKED_REFS_LOCK_TIMEOUT: Duration = Duration::from_millis(1000);

/// Number of attempts to list refs while another process deletes some.
const LIST_ATTEMPTS: usize = 5;
const LIST_INTERVAL: Duration = Duration::from_millis(2);

/// Prefix of the refs that keep tine's objects.
const KEEPING: &str = "refs/tine/";

/// Prefix of labels for a layer's objects other than base and head.
pub const HELD: &str = "held-";

/// Label of the fork's state that was last created for a remote.
pub const STATE: &str = "state";

/// Returns whether a label belongs to the fork's layers.
///
/// A ref `refs/tine/<fork>/<label>` with such a label is removed with the layers.
pub fn is_for_layers(label: &str) -> bool {
    label == "base" || label == "head" || label.starts_with(HELD)
}

impl Repository {
    /// Returns the commit of the branch `name` (short: `tine/demo`), if it exists.
    ///
    /// # Errors
    /// [`GitError::DamagedRef`] if its file does not contain a ref, or the commit is missing;
    /// [`GitError::AliasLoop`] or [`GitError::DanglingAlias`] for a broken alias.
    pub fn branch(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        let full_name = branch_ref(name)?;
        self.refuse_pipe_at(full_name.as_bstr())?;
        let repository = self.local();
        let found =
            repository.try_find_reference(full_name.as_ref()).map_err(
                |error| match damaged_ref(self.common_dir(), full_name.as_bstr()) {
                    Some(damaged) => damaged,
                    None => GitError::library("read the branch")(error),
                },
            )?;
        match found {
            Some(mut reference) => {
                let behind = format!("refs/heads/{}", self.branch_behind(name));
                let broken = || {
                    self.broken_alias(name)
                        .or_else(|| damaged_ref(self.common_dir(), behind.as_bytes().as_bstr()))
                        .or_else(|| self.lost_by_ref(&behind))
                };
                let id = reference.peel_to_id().map_err(|error| match broken() {
                    Some(broken) => broken,
                    None => GitError::library("read the branch")(error),
                })?;
                Ok(Some(id.detach()))
            }
            None => Ok(None),
        }
    }

    /// Returns the object id in the branch `name` (short).
    ///
    /// The object need not exist. An alias gives `None`.
    ///
    /// # Errors
    /// [`GitError::DamagedRef`] or [`GitError::Library`] if the branch cannot be read.
    pub fn branch_target(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        self.target_of(&format!("refs/heads/{name}"))
    }

    fn target_of(&self, name: &str) -> Result<Option<ObjectId>, GitError> {
        self.refuse_pipe_at(name.as_bytes().as_bstr())?;
        let repository = self.local();
        let found = repository
            .try_find_reference(name)
            .map_err(GitError::library("read the branch"))?;
        Ok(found.and_then(|found| found.target().try_id().map(ToOwned::to_owned)))
    }

    /// Checks that `name` is a valid short branch name.
    ///
    /// It applies the rules of `git check-ref-format --branch`.
    ///
    /// # Errors
    /// [`GitError::InvalidBranchName`].
    pub fn check_branch_name(&self, name: &str) -> Result<(), GitError> {
        branch_ref(name).map(drop)
    }

    /// Creates the branch `name` (short) at `commit_id`.
    ///
    /// # Errors
    /// [`GitError::BranchExists`] if the branch exists, or one that conflicts with it (`a` for
    /// `a/b`, or the reverse); [`GitError::InvalidBranchName`]; [`GitError::RefLocked`].
    pub fn create_branch(
        &self,
        name: &str,
        commit_id: ObjectId,
        reflog: &str,
    ) -> Result<(), GitError> {
        let full_name = branch_ref(name)?;
        if let Some(in_the_way) = self.conflicting_branch(name)? {
            return Err(GitError::BranchExists(in_the_way));
        }
        let edit = RefEdit::update(
            full_name,
            commit_id,
            PreviousValue::MustNotExist,
            reflog_message(reflog),
        );
        match self.apply_ref_edit(
            &self.ref_store(None),
            edit,
            &self.common_dir().join("refs/heads").join(name),
        ) {
            // The library accepts a ref that already has the wanted value.
            Ok(Some(_)) | Err(GitError::RefMoved { .. }) => {
                Err(GitError::BranchExists(name.to_owned()))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Moves the branch `name` (short) from `expected` to `commit_id`.
    ///
    /// The commit must be on disk. The branch must not be checked out.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] if the branch is not at `expected`, or [`GitError::RefLocked`].
    pub fn move_branch(
        &self,
        name: &str,
        expected: ObjectId,
        commit_id: ObjectId,
        reflog: &str,
    ) -> Result<(), GitError> {
        let full_name = branch_ref(name)?;
        let expected = PreviousValue::MustExistAndMatch(Target::Object(expected));
        let edit = RefEdit::update(full_name, commit_id, expected, reflog_message(reflog));
        let path = self.common_dir().join("refs/heads").join(name);
        self.apply_ref_edit(&self.ref_store(None), edit, &path)
            .map(drop)
    }

    /// Checks that the branch `name` (short) is not locked for long.
    ///
    /// Waits up to two seconds for the lock.
    ///
    /// # Errors
    /// [`GitError::RefLocked`].
    pub fn check_branch_unlocked(&self, name: &str) -> Result<(), GitError> {
        branch_ref(name)?;
        self.check_unlocked_for_a_while(&self.common_dir().join("refs/heads").join(name))
    }

    /// Checks that a file of the repository is unlocked within [`REF_LOCK_TIMEOUT`].
    pub(super) fn check_unlocked_for_a_while(&self, path: &Path) -> Result<(), GitError> {
        let deadline = Instant::now() + REF_LOCK_TIMEOUT;
        while let Some(locked) = ref_locked(self.common_dir(), path) {
            if Instant::now() >= deadline {
                return Err(locked);
            }
            thread::sleep(REF_LOCK_INTERVAL);
        }
        Ok(())
    }

    /// Deletes the branch `name` (short) if it is still at `expected`.
    ///
    /// If it is an alias, deletes only the alias.
    ///
    /// # Errors
    /// [`GitError::RefMoved`] if the branch is not at `expected`, or [`GitError::RefLocked`].
    pub fn delete_branch(&self, name: &str, expected: ObjectId) -> Result<(), GitError> {
        let full_name = branch_ref(name)?;
        let target = match self.alias_of(name) {
            Some(target) => Target::Symbolic(
                FullName::try_from(target).map_err(GitError::library("read the branch"))?,
            ),
            None => Target::Object(expected),
        };
        let expected = PreviousValue::MustExistAndMatch(target);
        let path = self.common_dir().join("refs/heads").join(name);
        self.apply_ref_edit(
            &self.ref_store(None),
            RefEdit::delete(full_name, expected),
            &path,
        )
        .map(drop)
    }

    /// Returns the directory of the worktree that uses the branch `name` (short).
    ///
    /// The main worktree counts, and so does a branch that is being rebased or bisected, as in git.
    ///
    /// # Errors
    /// [`GitError::Io`] if the worktrees cannot be listed.
    pub fn checked_out_at(&self, name: &str) -> Result<Option<PathBuf>, GitError> {
        let full_name = format!("refs/heads/{}", self.branch_behind(name));
        let mut checkouts = self.checkouts()?.into_iter();
        let found = checkouts.find(|checkout| checkout.uses(full_name.as_bytes()));
        Ok(found.map(|checkout| checkout.dir))
    }

    /// Returns the directory of another worktree on the branch `name` (short).
    ///
    /// A worktree whose directory is gone does not count.
    ///
    /// # Errors
    /// [`GitError::Io`] if the worktrees cannot be listed.
    pub fn other_checkout_of(
        &self,
        name: &str,
        worktree: &LinkedWorktree,
    ) -> Result<Option<PathBuf>, GitError> {
        let full_name = format!("refs/heads/{}", self.branch_behind(name));
        let mut others = self.checkouts()?.into_iter().filter(|checkout| {
            checkout.git_dir != worktree.git_dir()
                && checkout.branch.as_deref() == Some(full_name.as_bytes())
        });
        // A locked one may be a mount of this process, which must not be accessed.
        let is_there =
            |checkout: &Checkout| checkout.git_dir.join("locked").exists() || checkout.dir.exists();
        Ok(others.find(is_there).map(|checkout| checkout.dir))
    }

    /// Waits until no git command is switching to the branch `name`.
    ///
    /// `name` is the short name.
    ///
    /// Such a command has read the branch, but updates HEAD only after index and files. A branch
    /// moved meanwhile would seem to be checked out nowhere. Blocks for at most two seconds.
    ///
    /// # Errors
    /// [`GitError::IndexLocked`] if git still holds the index lock then.
    pub fn await_switch_to(&self, name: &str) -> Result<(), GitError> {
        let deadline = Instant::now() + SWITCH_TIMEOUT;
        loop {
            let locked = self.checkouts_locked_by_git()?;
            let switching = locked.into_iter().find(|(_, dir)| has_switch_to(dir, name));
            let is_late = Instant::now() >= deadline;
            match switching.map(|(lock, _)| lock) {
                Some(lock) if is_late => return Err(GitError::IndexLocked { lock }),
                None if is_late || !self.is_being_checked_out(name)? => return Ok(()),
                _ => thread::sleep(SWITCH_INTERVAL),
            }
        }
    }

    /// Returns whether a git command is switching a checkout to the branch.
    ///
    /// git locks the index only for a part of the time between reading the branch `name` (short)
    /// and moving HEAD.
    fn is_being_checked_out(&self, name: &str) -> Result<bool, GitError> {
        let dirs = switches_to(name);
        if dirs.is_empty() {
            return Ok(false);
        }
        let full_name = format!("refs/heads/{}", self.branch_behind(name));
        let is_about = |checkout: Checkout| {
            checkout.branch.as_deref() != Some(full_name.as_bytes())
                && dirs.iter().any(|dir| is_within(dir, &checkout.dir))
        };
        Ok(self.checkouts()?.into_iter().any(is_about))
    }

    /// Points `refs/tine/<fork>/<label>` at `id` (a commit, tree or blob).
    ///
    /// Creates or moves the ref.
    ///
    /// # Errors
    /// [`GitError::RefLocked`], or [`GitError::Io`] if the ref cannot be written.
    pub fn keep(&self, fork: &str, label: &str, id: ObjectId) -> Result<(), GitError> {
        let (full_name, path) = self.keeping_ref(fork, label)?;
        let edit = RefEdit::update(full_name, id, PreviousValue::Any, "");
        self.change_kept(edit, &path)
    }

    /// Returns the object that `refs/tine/<fork>/<label>` keeps, if any.
    ///
    /// A damaged ref keeps nothing.
    ///
    /// # Errors
    /// [`GitError::Library`] if the ref cannot be read.
    pub fn kept_as(&self, fork: &str, label: &str) -> Result<Option<ObjectId>, GitError> {
        let (full_name, path) = self.keeping_ref(fork, label)?;
        let found = self
            .keeping_store()
            .try_find(full_name.as_ref().as_partial_name());
        match found {
            Ok(found) => Ok(found.and_then(|reference| reference.target.try_into_id().ok())),
            Err(_) if is_broken(&path) => Ok(None),
            Err(error) => Err(GitError::library("read a ref of the fork")(error)),
        }
    }

    /// Lists the refs under `refs/tine/<fork>/` by label, with their targets.
    ///
    /// Damaged refs are left out.
    ///
    /// # Errors
    /// Fails if the refs cannot be listed.
    pub fn kept(&self, fork: &str) -> Result<Vec<(String, ObjectId)>, GitError> {
        let labels = self.labels(fork)?.into_iter();
        Ok(labels
            .filter_map(|(label, id)| Some((label, id?)))
            .collect())
    }

    /// Lists the refs under `refs/tine/<fork>/`, including damaged ones.
    ///
    /// A damaged ref has no target. The list is sorted by label.
    ///
    /// # Errors
    /// Fails if the refs cannot be listed.
    pub fn labels(&self, fork: &str) -> Result<Vec<(String, Option<ObjectId>)>, GitError> {
        let prefix = format!("{KEEPING}{fork}/");
        let label = |name: String| {
            name.strip_prefix(&prefix)
                .map(str::to_owned)
                .unwrap_or(name)
        };
        let (mut refs, failure) = self.refs_below(&prefix)?;
        if let Some(failure) = failure {
            let broken = self.broken_below(&prefix)?;
            if broken.is_empty() {
                return Err(failure);
            }
            refs.extend(broken.into_iter().map(|name| (name, None)));
        }
        let mut labels: Vec<_> = refs
            .into_iter()
            .map(|(name, id)| (label(name), id))
            .collect();
        labels.sort();
        Ok(labels)
    }

    /// Returns the fork names that have refs under `refs/tine/`.
    ///
    /// Names that a fork cannot have, and refs that cannot be read, are left out.
    ///
    /// # Errors
    /// [`GitError::Library`] if the ref store cannot be opened.
    pub fn keepers(&self) -> Result<BTreeSet<String>, GitError> {
        let group = |name: &str| Some(name.strip_prefix(KEEPING)?.split_once('/')?.0.to_owned());
        let (refs, _) = self.refs_below(KEEPING)?;
        let groups = refs.into_iter().filter_map(|(name, _)| group(&name));
        Ok(groups.filter(|group| !group.starts_with('+')).collect())
    }

    /// Lists the refs whose full names begin with `prefix`.
    ///
    /// Returns each with its object id, which is `None` for a symbolic ref, and the first failure
    /// if some refs cannot be read.
    #[expect(
        clippy::type_complexity,
        reason = "a pair of lists that two callers take apart at once"
    )]
    fn refs_below(
        &self,
        prefix: &str,
    ) -> Result<(Vec<(String, Option<ObjectId>)>, Option<GitError>), GitError> {
        if let Err(damaged) = self.refuse_pipes_below(prefix) {
            return Ok((Vec::new(), Some(damaged)));
        }
        let list = || -> Result<_, GitError> {
            let repository = self.local();
            let platform = repository
                .references()
                .map_err(GitError::library("list refs"))?;
            // The library lists nothing under a name that Windows forbids.
            let mut listed = prefix;
            let references = loop {
                match platform.prefixed(listed) {
                    Ok(references) => break references,
                    Err(error) => match listed.trim_end_matches('/').rfind('/') {
                        Some(slash) => listed = &listed[..=slash],
                        None => return Err(GitError::library("list refs")(error)),
                    },
                }
            };
            let (mut refs, mut failure) = (Vec::new(), None);
            for reference in references {
                match reference {
                    Ok(reference) => {
                        let name = reference.name().as_bstr().to_str_lossy().into_owned();
                        if !name.starts_with(prefix) {
                            continue;
                        }
                        refs.push((name, reference.target().try_id().map(ToOwned::to_owned)));
                    }
                    Err(error) => {
                        failure.get_or_insert(GitError::library("list refs")(error));
                    }
                }
            }
            Ok((refs, failure))
        };
        // A ref that is deleted between listing and reading causes an error there.
        for _ in 0..LIST_ATTEMPTS {
            if let Ok((refs, None)) = list() {
                return Ok((refs, None));
            }
            thread::sleep(LIST_INTERVAL);
        }
        list()
    }

    /// Keeps an object of the fork's layers for the fork's lifetime.
    ///
    /// `id` is a commit or a tree.
    ///
    /// # Errors
    /// Fails as [`Repository::keep`].
    pub fn hold(&self, fork: &str, id: ObjectId) -> Result<(), GitError> {
        self.keep(fork, &self.next_label(fork, HELD)?, id)
    }

    /// Returns the unused label `<prefix><n>` with the next number.
    ///
    /// The number follows the greatest one in use under `refs/tine/<fork>/`.
    ///
    /// # Errors
    /// Fails as [`Repository::labels`].
    pub fn next_label(&self, fork: &str, prefix: &str) -> Result<String, GitError> {
        let labels = self.labels(fork)?;
        let numbers = labels
            .iter()
            .filter_map(|(label, _)| label.strip_prefix(prefix));
        let greatest = numbers
            .filter_map(|number| number.parse::<u64>().ok())
            .max();
        Ok(format!(
            "{prefix}{}",
            greatest.unwrap_or(0).saturating_add(1)
        ))
    }

    /// Removes `refs/tine/<fork>/<label>`, if it exists.
    ///
    /// # Errors
    /// [`GitError::RefLocked`], or [`GitError::Io`] if the ref cannot be removed.
    pub fn release(&self, fork: &str, label: &str) -> Result<(), GitError> {
        let (full_name, path) = self.keeping_ref(fork, label)?;
        self.change_kept(RefEdit::delete(full_name, PreviousValue::Any), &path)
    }

    /// Changes a ref under `refs/tine/`, whose loose file is `path`.
    ///
    /// Removes a damaged file first, because it contains no value.
    fn change_kept(&self, edit: RefEdit, path: &Path) -> Result<(), GitError> {
        let store = self.keeping_store();
        if file::check_regular(path).is_err() && !path.is_dir() {
            log::warn!("removing {}, which is no file", path.display());
            fs::remove_file(path).map_err(GitError::io("remove", path))?;
        }
        match self.apply_ref_edit(&store, edit.clone(), path) {
            Err(_) if is_broken(path) => {
                log::warn!("removing the ref {}, which is damaged", path.display());
                fs::remove_file(path).map_err(GitError::io("remove", path))?;
                self.apply_ref_edit(&store, edit, path).map(drop)
            }
            changed => changed.map(drop),
        }
    }

    /// Checks that the refs under `refs/tine/<fork>/` can be removed.
    ///
    /// Neither they nor the packed refs may be locked. Waits for locks as a removal does.
    ///
    /// # Errors
    /// [`GitError::RefLocked`].
    pub fn check_releasable(&self, fork: &str) -> Result<(), GitError> {
        let common_dir = self.common_dir();
        let mut paths = vec![(common_dir.join("packed-refs"), PACKED_REFS_LOCK_TIMEOUT)];
        for (label, _) in self.labels(fork)? {
            paths.push((self.keeping_ref(fork, &label)?.1, REF_LOCK_TIMEOUT));
        }
        let started = Instant::now();
        for (path, timeout) in paths {
            while let Some(locked) = ref_locked(common_dir, &path) {
                if started.elapsed() >= timeout {
                    return Err(locked);
                }
                thread::sleep(PACKED_REFS_INTERVAL);
            }
        }
        Ok(())
    }

    /// Removes the stale locks under `refs/tine/` of processes that died.
    ///
    /// The caller guarantees that no other tine process uses them. git takes such locks only while
    /// it packs refs, and retries.
    ///
    /// # Errors
    /// [`GitError::Io`] if a directory cannot be listed or a lock cannot be removed.
    pub fn release_stale_ref_locks(&self) -> Result<(), GitError> {
        for dir in list_dir(&self.common_dir().join(KEEPING))? {
            let paths = match list_dir(&dir) {
                Ok(paths) => paths,
                // It affects only its own fork.
                Err(error) => {
                    log::warn!("{error}");
                    continue;
                }
            };
            for path in paths {
                if path
                    .extension()
                    .is_some_and(|extension| extension == "lock")
                {
                    remove_stale_lock(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the stale lock of the branch `name` (short).
    ///
    /// The caller guarantees that a tine process took the lock and died.
    ///
    /// # Errors
    /// [`GitError::InvalidBranchName`], or [`GitError::Io`] if the lock cannot be removed.
    pub fn release_stale_branch_lock(&self, name: &str) -> Result<(), GitError> {
        branch_ref(name)?;
        remove_stale_lock(&lock_of(&self.common_dir().join("refs/heads").join(name)))
    }

    /// Removes the stale packed-refs lock of an interrupted deletion.
    ///
    /// The lock may also be git's: then it goes away by itself, or the file that git writes under
    /// it exists. Blocks for up to two seconds.
    ///
    /// # Errors
    /// [`GitError::Io`] if the lock cannot be removed.
    pub fn release_stale_packed_refs_lock(&self) -> Result<(), GitError> {
        let lock = lock_of(&self.common_dir().join("packed-refs"));
        let new = self.common_dir().join("packed-refs.new");
        let identity = || {
            let meta = fs::symlink_metadata(&lock).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
        };
        let Some(before) = identity() else {
            return Ok(());
        };
        let deadline = Instant::now() + STALE_PACKED_REFS_TIMEOUT;
        while Instant::now() < deadline {
            if identity() != Some(before) || fs::symlink_metadata(&new).is_ok() {
                return Ok(());
            }
            thread::sleep(PACKED_REFS_INTERVAL);
        }
        remove_stale_lock(&lock)
    }

    /// Returns whether `ancestor` is reachable from `descendant`.
    ///
    /// A commit reaches itself. A tree reaches no commit.
    ///
    /// # Errors
    /// [`GitError::MissingObject`], [`GitError::CorruptObject`], or [`GitError::Library`] if the
    /// history cannot be walked.
    pub fn is_ancestor(&self, ancestor: ObjectId, descendant: ObjectId) -> Result<bool, GitError> {
        if ancestor == descendant {
            return Ok(true);
        }
        if self.object_header(descendant)?.0 != Kind::Commit {
            return Ok(false);
        }
        let base = self
            .local()
            .merge_base(ancestor, descendant)
            .map_err(GitError::library("find the merge base"))?
            .map(|id| id.detach());
        Ok(base == Some(ancestor))
    }

    /// Opens the ref store of a worktree, or of the main checkout.
    ///
    /// It has the current packed refs, and reflogs as configured. It never touches a checkout.
    pub(super) fn ref_store(&self, git_dir: Option<&Path>) -> Store {
        let repository = self.local();
        let config = repository.config_snapshot();
        let write_reflog = match config.string("core.logAllRefUpdates") {
            Some(value) if value.eq_ignore_ascii_case(b"always") => WriteReflog::Always,
            _ => match config.boolean("core.logAllRefUpdates") {
                Some(false) => WriteReflog::Disable,
                Some(true) => WriteReflog::Normal,
                // A linked worktree is never bare, even if its repository is.
                None if git_dir.is_none() && repository.is_bare() => WriteReflog::Disable,
                None => WriteReflog::Normal,
            },
        };
        let options = gix::refs::store::init::Options {
            write_reflog,
            ..Default::default()
        };
        let common_dir = self.common_dir().to_owned();
        match git_dir {
            Some(git_dir) => Store::for_linked_worktree_opts(
                git_dir.to_owned(),
                common_dir,
                self.hash_kind(),
                options,
            ),
            None => Store::at_opts(common_dir, self.hash_kind(), options),
        }
    }

    /// Applies one edit, and returns the ref's previous value.
    ///
    /// `path` is the loose ref's file. Its new content is synced before it is moved into place, and
    /// its directory after.
    pub(super) fn apply_ref_edit(
        &self,
        store: &Store,
        edit: RefEdit,
        path: &Path,
    ) -> Result<Option<Target>, GitError> {
        let is_deletion = matches!(edit.change, Change::Delete { .. });
        for _ in 1..DELETE_ATTEMPTS {
            match self.try_ref_edit(store, edit.clone(), path) {
                // Nothing has changed yet: the library assumes that the packed refs exist while
                // another process has them locked, and then does not find their file.
                Err(GitError::Io { source, .. })
                    if is_deletion && source.kind() == ErrorKind::NotFound =>
                {
                    log::debug!("{} is to be deleted once more", path.display());
                }
                done => return done,
            }
        }
        self.try_ref_edit(store, edit, path)
    }

    fn try_ref_edit(
        &self,
        store: &Store,
        edit: RefEdit,
        path: &Path,
    ) -> Result<Option<Target>, GitError> {
        let name = edit.name.as_bstr().to_string();
        let is_kept = name.starts_with(KEEPING);
        if is_kept {
            pause::at("before-keeping");
        } else {
            pause::at("before-ref");
        }
        // Locks under `refs/tine/` are known to be tine's.
        let _locking = (!is_kept)
            .then(|| self.note_locking(&[lock_of(path), lock_of(&store.git_dir().join(&name))]));
        let new_id = match &edit.change {
            Change::Update { new, .. } => new.try_id().map(ToOwned::to_owned),
            Change::Delete { .. } => None,
        };
        let is_update = matches!(edit.change, Change::Update { .. });
        let is_logged = is_update && store.write_reflog != WriteReflog::Disable;
        let signature = is_logged.then(|| self.reflog_signature());
        let mut time = gix::date::parse::TimeBuf::default();
        let prepared = store
            .transaction()
            .prepare(
                Some(edit),
                Fail::AfterDurationWithBackoff(REF_LOCK_TIMEOUT),
                Fail::AfterDurationWithBackoff(PACKED_REFS_LOCK_TIMEOUT),
            )
            .map_err(|error| ref_error(store, &name, path, &error))?;
        if is_update {
            sync_if_there(&lock_of(path))?;
        }
        if !is_kept {
            pause::at("ref-locked");
        }
        let applied = prepared
            .commit(
                signature
                    .as_ref()
                    .map(|signature| signature.to_ref(&mut time)),
            )
            .map_err(|error| ref_error(store, &name, path, &error))?;
        // The removal of the lock is on disk only after this sync.
        if let Some(dir) = path.parent() {
            sync_if_there(dir)?;
        }
        if let Some(id) = new_id {
            self.confirm_named(id);
        }
        Ok(applied
            .into_iter()
            .next_back()
            .and_then(|edit| match edit.change {
                Change::Update {
                    expected: PreviousValue::MustExistAndMatch(previous),
                    ..
                } => Some(previous),
                _ => None,
            }))
    }

    /// Opens the ref store for refs without reflogs.
    pub(super) fn keeping_store(&self) -> Store {
        let mut store = self.ref_store(None);
        store.write_reflog = WriteReflog::Disable;
        store
    }

    /// Returns name and loose file of `refs/tine/<fork>/<label>`.
    pub(super) fn keeping_ref(
        &self,
        fork: &str,
        label: &str,
    ) -> Result<(FullName, PathBuf), GitError> {
        let name = format!("{KEEPING}{fork}/{label}");
        let path = self.common_dir().join(&name);
        let full_name =
            FullName::try_from(name).map_err(GitError::library("name a ref for the fork"))?;
        Ok((full_name, path))
    }

    /// Returns an existing branch that conflicts with `name`, if any.
    ///
    /// Two names conflict if one would be a directory of the other.
    pub(super) fn conflicting_branch(&self, name: &str) -> Result<Option<String>, GitError> {
        for (slash, _) in name.match_indices('/') {
            let above = &name[..slash];
            if self.branch(above)?.is_some() {
                return Ok(Some(above.to_owned()));
            }
        }
        let prefix = format!("refs/heads/{name}/");
        let (refs, failure) = self.refs_below(&prefix)?;
        match (refs.first(), failure) {
            (Some((name, _)), _) => Ok(Some(
                name.strip_prefix("refs/heads/").unwrap_or(name).to_owned(),
            )),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }
}

/// Returns the full ref name of the branch `name` (short).
pub(super) fn branch_ref(name: &str) -> Result<FullName, GitError> {
    let invalid = || GitError::InvalidBranchName(name.to_owned());
    // `git check-ref-format --branch` rejects a leading dash as an option, and `@` as HEAD.
    if name.starts_with('-') || name == "@" {
        return Err(invalid());
    }
    // A ref is a file, and its lock file is beside it while it is written.
    let is_too_long = |part: &str| part.len() + ".lock".len() > tine_path::NAME_MAX;
    if name.split('/').any(is_too_long) {
        return Err(invalid());
    }
    let full_name = format!("refs/heads/{name}");
    gix::validate::reference::branch_name(full_name.as_bytes().as_bstr()).map_err(|_| invalid())?;
    FullName::try_from(full_name).map_err(|_| invalid())
}

/// Formats a reflog message as git does: one line, single spaces.
pub(super) fn reflog_message(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Maps the error of a failed transaction on the ref `name`.
///
/// Its value is in the loose file `path`. An unexpected value becomes [`GitError::RefMoved`], a
/// lock [`GitError::RefLocked`].
fn ref_error(store: &Store, name: &str, path: &Path, error: &gix::Error) -> GitError {
    let name = name.to_owned();
    if error.downcast_any_ref::<ReferenceOutOfDate>().is_some()
        || error.downcast_any_ref::<MustNotExist>().is_some()
    {
        GitError::RefMoved { name }
    } else if error.is_retryable() {
        let packed_refs = store.common_dir_resolved().join("packed-refs");
        let files = [path.to_owned(), store.git_dir().join(&name), packed_refs];
        let held = files
            .iter()
            .find_map(|file| ref_locked(store.common_dir_resolved(), file));
        held.unwrap_or_else(|| GitError::RefLocked {
            name,
            lock: lock_of(path),
        })
    } else if error.is_not_found() && error.downcast_any_ref::<io::Error>().is_none() {
        GitError::RefMoved { name }
    } else {
        library_io_error("change the ref", PathBuf::from(name), error)
    }
}

/// Lists the paths in `dir`.
///
/// The list is empty if `dir` is not a directory.
fn list_dir(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    match fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(GitError::io("list", dir)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(GitError::io("list", dir)(error)),
    }
}

/// Removes a stale lock, if it exists.
pub(super) fn remove_stale_lock(lock: &Path) -> Result<(), GitError> {
    match fs::remove_file(lock) {
        Ok(()) => {
            log::info!("removed {}, with which a process died", lock.display());
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(GitError::io("remove", lock)(error)),
    }
}

/// Returns the error for a locked ref in the loose file `path`.
///
/// It is `None` if the ref is not locked.
pub(super) fn ref_locked(common_dir: &Path, path: &Path) -> Option<GitError> {
    let lock = lock_of(path);
    fs::symlink_metadata(&lock).ok()?;
    let name = path.strip_prefix(common_dir).unwrap_or(path);
    Some(GitError::RefLocked {
        name: name.display().to_string(),
        lock,
    })
}

/// Returns git's lock file for `path`.
pub(super) fn lock_of(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Wraps an error of the git library.
///
/// The system's own error is kept if there is one (a full disk, no permission).
pub(super) fn library_io_error(
    action: &'static str,
    path: PathBuf,
    error: &gix::Error,
) -> GitError {
    match error.downcast_any_ref::<io::Error>() {
        Some(cause) => GitError::Io {
            action,
            path,
            source: match cause.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(cause.kind(), cause.to_string()),
            },
        },
        None => GitError::Library {
            action,
            reason: format!("{}: {error}", path.display()),
        },
    }
}

/// Syncs a file or directory. A missing one is not an error.
pub(super) fn sync_if_there(path: &Path) -> Result<(), GitError> {
    match file::sync(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(GitError::io("sync", path)(error)),
        _ => Ok(()),
    }
}

/// Reads a small file of a git directory, if it exists.
pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    match file::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(GitError::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests;
