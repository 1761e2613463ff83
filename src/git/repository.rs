//! The repository: discovery, opening, configuration, and the HEADs of its worktrees.
//!
//! `GIT_DIR`, `GIT_WORK_TREE` and similar variables are ignored: the daemon serves one repository,
//! whatever the shell that started it had set. A repository that git would not trust
//! (`safe.directory`) is refused.

mod config;
mod head;
mod open;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use gix::ObjectId;
use parking_lot::{Mutex, RwLock};

pub use self::head::Head;
pub(super) use self::open::NO_PACK_SLOTS;
use self::open::{
    canonical, check_format, checkout_dir, common_dir_of, open_shared, promisor_remote, upwards,
};
use super::GitError;
use super::objects::{Protection, TreeCache};
use super::own::behind_mount;
use super::own::settings::KnownSettings;

/// Takes over what the fork with this own git directory committed.
pub type Bringer = Box<dyn Fn(&Path) + Send + Sync>;

/// A git repository, shared by all threads. Cloning is cheap.
#[derive(Clone)]
pub struct Repository {
    inner: Arc<Inner>,
}

struct Inner {
    shared: RwLock<gix::ThreadSafeRepository>,
    /// Number of times that `shared` was replaced. Older handles are dropped.
    generation: AtomicU64,
    hash_kind: gix::hash::Kind,
    /// Absolute path without symlinks.
    common_dir: PathBuf,
    /// Main worktree, or the repository directory itself if it is bare.
    checkout_dir: PathBuf,
    /// Remote that provides a partial clone's missing objects.
    promisor_remote: Option<String>,
    protection: Protection,
    /// Lock held while missing objects are fetched.
    ///
    /// Threads that miss the same objects thus fetch them once.
    fetching: Mutex<()>,
    /// Cache shared with the repositories that this one was reopened from.
    ///
    /// It synchronises itself.
    trees: Arc<TreeCache>,
    /// Settings as git read them last, shared in the same way.
    settings: Arc<KnownSettings>,
    /// Brings what a fork committed, shared in the same way.
    bringer: Arc<OnceLock<Bringer>>,
    /// True if the configuration was read for this request.
    is_fresh: bool,
}

impl Repository {
    /// Finds and opens the repository that contains `dir`.
    ///
    /// `dir` may be in a checkout, a linked worktree (also a fork's mount), a bare repository or a
    /// `.git` directory.
    ///
    /// # Errors
    /// [`GitError::NotARepository`], [`GitError::UntrustedRepository`], or
    /// [`GitError::UnsupportedRepository`] for reftable repositories and others that cannot be read
    /// faithfully.
    pub fn discover(dir: &Path) -> Result<Repository, GitError> {
        Repository::discover_worktree(dir).map(|(repository, _)| repository)
    }

    /// Returns the results of [`Repository::discover`] and [`Repository::git_dir_at`].
    ///
    /// # Errors
    /// Fails as [`Repository::discover`].
    pub fn discover_worktree(dir: &Path) -> Result<(Repository, PathBuf), GitError> {
        let (git_dir, work_dir) = upwards(dir)?;
        if let Some((common_dir, git_dir)) = behind_mount(&git_dir) {
            let repository = Repository::open_at(&common_dir, None, None)?;
            return Ok((repository, canonical(git_dir)?));
        }
        let is_linked = git_dir.join("commondir").exists();
        let common_dir = common_dir_of(&git_dir)?;
        let repository = Repository::open_at(&common_dir, work_dir.filter(|_| !is_linked), None)?;
        Ok((repository, canonical(git_dir)?))
    }

    /// Returns the absolute git directory of the worktree that contains `dir`.
    ///
    /// For a linked worktree, this is its private directory.
    ///
    /// # Errors
    /// [`GitError::NotARepository`], or [`GitError::Io`] if a directory cannot be read.
    pub fn git_dir_at(dir: &Path) -> Result<PathBuf, GitError> {
        let git_dir = upwards(dir)?.0;
        canonical(behind_mount(&git_dir).map_or(git_dir, |(_, own)| own))
    }

    /// Opens the repository whose common directory is `common_dir`.
    ///
    /// # Errors
    /// Fails as [`Repository::discover`].
    pub fn open(common_dir: &Path) -> Result<Repository, GitError> {
        Repository::open_at(&common_dir_of(common_dir)?, None, None)
    }

    /// Opens the same repository with its current configuration, for one request.
    ///
    /// The new value does not read the configuration again. It shares the mapped object database
    /// and the cached trees.
    ///
    /// # Errors
    /// Fails as [`Repository::open`].
    pub fn reopened(&self) -> Result<Repository, GitError> {
        Repository::open_at(self.common_dir(), None, Some(self))
    }

    /// Opens the repository at `common_dir`.
    ///
    /// `work_dir` is the main worktree, if known: it cannot be found from `common_dir` if a `.git`
    /// file or symlink leads there from elsewhere. `earlier` was opened from the same directory.
    fn open_at(
        common_dir: &Path,
        work_dir: Option<PathBuf>,
        earlier: Option<&Repository>,
    ) -> Result<Repository, GitError> {
        let common_dir = common_dir
            .canonicalize()
            .map_err(|_| GitError::NotARepository(common_dir.to_owned()))?;
        gix::discover::is_git(&common_dir)
            .map_err(|_| GitError::NotARepository(common_dir.clone()))?;
        let objects = earlier.map(Repository::object_store);
        let shared = open_shared(&common_dir, objects.as_ref())?;
        let trees = earlier
            // Replacement refs (`refs/replace/`) decide what is read.
            .filter(|_| objects.is_some_and(|objects| Arc::ptr_eq(&objects, &shared.objects)))
            .map_or_else(TreeCache::new, |earlier| earlier.inner.trees.clone());
        let local = shared.to_thread_local();
        let config = local.config_snapshot();
        let config = config.plumbing();
        check_format(config).map_err(|reason| GitError::UnsupportedRepository {
            dir: common_dir.clone(),
            reason,
        })?;
        let checkout_dir = checkout_dir(config, &common_dir, work_dir);
        let promisor_remote = promisor_remote(config);
        let protection = Protection::new(config);
        Ok(Repository {
            inner: Arc::new(Inner {
                hash_kind: shared.objects.object_hash(),
                shared: RwLock::new(shared),
                generation: AtomicU64::new(0),
                common_dir,
                checkout_dir,
                promisor_remote,
                protection,
                fetching: Mutex::new(()),
                trees,
                settings: earlier
                    .map_or_else(Arc::default, |earlier| earlier.inner.settings.clone()),
                bringer: earlier.map_or_else(Arc::default, |earlier| earlier.inner.bringer.clone()),
                is_fresh: earlier.is_some(),
            }),
        })
    }

    /// Returns a repository with the refs in `dir`.
    ///
    /// Objects and configuration are those of `self`.
    pub(super) fn with_refs_in(&self, dir: &Path) -> Repository {
        let mut shared = self.inner.shared.read().clone();
        let options = gix::refs::store::init::Options {
            write_reflog: shared.refs.write_reflog,
            ..Default::default()
        };
        shared.refs = gix::refs::file::Store::at_opts(dir.to_owned(), self.hash_kind(), options);
        Repository {
            inner: Arc::new(Inner {
                shared: RwLock::new(shared),
                generation: AtomicU64::new(0),
                hash_kind: self.inner.hash_kind,
                common_dir: dir.to_owned(),
                checkout_dir: dir.to_owned(),
                promisor_remote: self.inner.promisor_remote.clone(),
                protection: self.inner.protection,
                fetching: Mutex::new(()),
                trees: self.inner.trees.clone(),
                settings: Arc::default(),
                bringer: self.inner.bringer.clone(),
                // The configuration in `dir` must never be read.
                is_fresh: true,
            }),
        }
    }

    /// Sets what brings a commit of a fork's HEAD here.
    ///
    /// Git in a fork may commit between a take-over and a look at HEAD. A second call does nothing.
    pub fn set_bringer(&self, bringer: Bringer) {
        if self.inner.bringer.set(bringer).is_err() {
            log::debug!("the repository has a bringer already");
        }
    }

    /// Returns the absolute common directory (`git rev-parse --git-common-dir`).
    pub fn common_dir(&self) -> &Path {
        &self.inner.common_dir
    }

    /// Returns the main worktree, or the repository directory if it is bare.
    pub fn checkout_dir(&self) -> &Path {
        &self.inner.checkout_dir
    }

    /// Creates a handle for the calling thread.
    ///
    /// [`Repository::with_local`] is cheaper where it suffices.
    pub fn local(&self) -> gix::Repository {
        self.inner.shared.read().to_thread_local()
    }

    /// Runs `work` with the calling thread's handle, which is cached.
    pub fn with_local<R>(&self, work: impl FnOnce(&gix::Repository) -> R) -> R {
        thread_local! {
            static HANDLES: RefCell<Vec<(Weak<Inner>, u64, gix::Repository)>> = const { RefCell::new(Vec::new()) };
        }
        let this = Arc::downgrade(&self.inner);
        let generation = self.inner.generation.load(Ordering::Acquire);
        // The handle is taken out of the cache while in use, so that `work` may call this again.
        let kept = HANDLES.with_borrow_mut(|handles| {
            handles.retain(|(owner, since, _)| {
                owner.strong_count() > 0 && (!owner.ptr_eq(&this) || *since == generation)
            });
            let found = handles.iter().position(|(owner, ..)| owner.ptr_eq(&this))?;
            Some(handles.swap_remove(found).2)
        });
        let handle = kept.unwrap_or_else(|| self.local());
        let result = work(&handle);
        HANDLES.with_borrow_mut(|handles| {
            if !handles.iter().any(|(owner, ..)| owner.ptr_eq(&this)) {
                handles.push((this, generation, handle));
            }
        });
        result
    }

    /// Drops all mappings of the object database, and reopens it.
    ///
    /// Otherwise an object that the disk failed to deliver once would stay missing.
    pub(super) fn forget_mappings(&self) -> Result<(), GitError> {
        let mut shared = self.inner.shared.write();
        *shared = open_shared(&self.inner.common_dir, None)?;
        self.inner.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn object_store(&self) -> Arc<gix::odb::Store> {
        self.inner.shared.read().objects.clone()
    }

    /// Returns the settings that git read last.
    pub(super) fn known_settings(&self) -> &KnownSettings {
        &self.inner.settings
    }

    /// Returns the cache of trees in stored form.
    pub(super) fn trees(&self) -> &TreeCache {
        &self.inner.trees
    }

    /// Returns the hash function of object ids.
    pub fn hash_kind(&self) -> gix::hash::Kind {
        self.inner.hash_kind
    }

    /// Returns the id of the empty tree.
    ///
    /// The tree need not be in the object database.
    pub fn empty_tree_id(&self) -> ObjectId {
        ObjectId::empty_tree(self.hash_kind())
    }

    /// Returns the remote that provides a partial clone's missing objects.
    ///
    /// It is `None` if the clone is complete.
    pub fn promisor_remote(&self) -> Option<&str> {
        self.inner.promisor_remote.as_deref()
    }

    /// Returns the rules for names that its trees must not contain.
    pub(super) fn protection(&self) -> Protection {
        self.inner.protection
    }

    /// Returns the lock that guards fetches of missing objects.
    pub(super) fn fetching(&self) -> &Mutex<()> {
        &self.inner.fetching
    }
}

#[cfg(test)]
mod tests;
