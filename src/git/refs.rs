//! Refs: branches, and the refs that protect a fork's objects from `git gc`.
//!
//! Every change is a compare-and-swap. `refs/tine/<fork>/<label>` keeps the objects that a fork
//! needs. It is in the common namespace, because `refs/worktree/*` would not protect them. A ref's
//! new value is synced before the ref changes, as with git's default `core.fsync`, so a crash never
//! leaves an empty ref behind.

mod branch;
mod damage;
mod keeping;
mod locks;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::lock::acquire::Fail;
use gix::objs::Kind;
use gix::refs::Target;
use gix::refs::file::Store;
use gix::refs::file::transaction::prepare::{MustNotExist, ReferenceOutOfDate};
use gix::refs::store::WriteReflog;
use gix::refs::transaction::{Change, PreviousValue, RefEdit};

pub(super) use self::branch::branch_ref;
pub use self::damage::DamagedBranch;
pub(super) use self::damage::{damaged_ref, refuse_packed_pipe};
use self::keeping::KEEPING;
pub use self::keeping::{HELD, STATE, is_for_layers};
pub(super) use self::locks::{lock_of, ref_locked, remove_stale_lock};
use super::{GitError, Repository};
use tine_sys::file;
use tine_sys::pause;

/// Maximum wait for a locked ref.
///
/// git waits for 100 ms by default (`core.filesRefLockTimeout`). Another tine process holds the
/// lock until the new value is synced, which takes longer on a busy disk.
const REF_LOCK_TIMEOUT: Duration = Duration::from_millis(2000);

/// Number of attempts to delete a ref when `packed-refs` goes missing.
const DELETE_ATTEMPTS: usize = 8;

const PACKED_REFS_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum wait for a locked `packed-refs` (`core.packedRefsTimeout`'s default).
const PACKED_REFS_LOCK_TIMEOUT: Duration = Duration::from_millis(1000);

/// Number of attempts to list refs while another process deletes some.
const LIST_ATTEMPTS: usize = 5;
const LIST_INTERVAL: Duration = Duration::from_millis(2);

impl Repository {
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
            Some(git_dir) if self.is_own_git_dir(git_dir) => {
                Store::at_opts(git_dir.to_owned(), self.hash_kind(), options)
            }
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
pub(crate) fn list_dir(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
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
