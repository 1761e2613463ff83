//! The repository: discovery, opening, configuration, and the HEADs of its worktrees.
//!
//! `GIT_DIR`, `GIT_WORK_TREE` and similar variables are ignored: the daemon serves one repository,
//! whatever the shell that started it had set. A repository that git would not trust
//! (`safe.directory`) is refused.

use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use gix::ObjectId;
use gix::config::file::Metadata;
use gix::objs::Kind;
use parking_lot::{Mutex, RwLock};

use super::error::with_causes;
use super::objects::{Protection, TreeCache};
use super::refs::damaged_ref;
use super::{GitError, program};

/// Number of packs that can be known at a time.
///
/// It is fixed when a repository is opened. Packs are added while it is served: with each fetch,
/// and with each object that a partial clone lacks.
const PACK_SLOTS: gix::odb::store::init::Slots =
    gix::odb::store::init::Slots::AsNeededByDiskState {
        multiplier: 2.0,
        minimum: 2048,
    };

/// Slots for an object database that is never read.
pub(super) const NO_PACK_SLOTS: gix::odb::store::init::Slots =
    gix::odb::store::init::Slots::Given(0);

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
    /// True if the configuration was read for this request.
    is_fresh: bool,
}

/// The position of a worktree's HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// HEAD on a branch with a commit.
    Branch {
        /// Full name: `refs/heads/…`.
        name: String,
        /// Commit that the branch points to.
        commit_id: ObjectId,
    },
    /// HEAD on a branch without a commit yet.
    Unborn {
        /// Full name: `refs/heads/…`.
        name: String,
    },
    /// HEAD on a commit, not on a branch.
    Detached {
        /// Commit that HEAD names.
        commit_id: ObjectId,
    },
}

impl Head {
    /// Returns the commit of HEAD, or `None` on an unborn branch.
    pub fn commit_id(&self) -> Option<ObjectId> {
        match self {
            Head::Branch { commit_id, .. } | Head::Detached { commit_id } => Some(*commit_id),
            Head::Unborn { .. } => None,
        }
    }

    /// Returns the branch's full name (`refs/heads/…`), if HEAD is on a branch.
    pub fn branch(&self) -> Option<&str> {
        match self {
            Head::Branch { name, .. } | Head::Unborn { name } => Some(name),
            Head::Detached { .. } => None,
        }
    }

    /// Returns the branch's short name, if HEAD is on a branch.
    pub fn short_branch(&self) -> Option<&str> {
        let name = self.branch()?;
        Some(name.strip_prefix("refs/heads/").unwrap_or(name))
    }
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
        canonical(upwards(dir)?.0)
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
                is_fresh: earlier.is_some(),
            }),
        })
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

    /// Reads HEAD of the worktree with the private git directory `git_dir`.
    ///
    /// `git_dir` is the common directory for the main checkout, and `worktrees/<id>` for a linked
    /// worktree.
    ///
    /// # Errors
    /// [`GitError::DamagedHead`], [`GitError::DamagedRef`] or [`GitError::Io`] if HEAD or its
    /// branch cannot be read.
    pub fn head_of(&self, git_dir: &Path) -> Result<Head, GitError> {
        head_in(&self.refs_of(git_dir))
    }

    /// Reads the commit of HEAD in the submodule repository at `git_dir`.
    ///
    /// Returns `None` if HEAD has no commit yet, or `git_dir` is not a repository.
    ///
    /// # Errors
    /// Fails as [`Repository::head_of`].
    pub fn head_of_submodule(&self, git_dir: &Path) -> Result<Option<ObjectId>, GitError> {
        if !git_dir.join("HEAD").is_file() {
            return Ok(None);
        }
        let refs =
            gix::refs::file::Store::at_opts(git_dir.to_owned(), self.hash_kind(), read_only());
        Ok(head_in(&refs)?.commit_id())
    }

    /// Opens the refs as seen from the worktree with `git_dir`.
    fn refs_of(&self, git_dir: &Path) -> gix::refs::file::Store {
        gix::refs::file::Store::for_linked_worktree_opts(
            git_dir.to_owned(),
            self.inner.common_dir.clone(),
            self.hash_kind(),
            read_only(),
        )
    }

    /// Resolves `revision` to a commit, as seen from the worktree with `git_dir`.
    ///
    /// `HEAD` and `@{1}` are thus the worktree's own. Tags are peeled.
    ///
    /// # Errors
    /// [`GitError::UnknownRevision`] if it does not name a commit.
    pub fn resolve_commit(&self, git_dir: &Path, revision: &str) -> Result<ObjectId, GitError> {
        match self.resolve(git_dir, revision)? {
            (id, Kind::Commit) => Ok(id),
            _ => Err(GitError::UnknownRevision(revision.to_owned())),
        }
    }

    /// Resolves `revision` to a tree, as seen from the worktree with `git_dir`.
    ///
    /// Also returns the commit, unless the revision names a tree itself.
    ///
    /// # Errors
    /// [`GitError::UnknownRevision`] if it names neither a commit nor a tree.
    pub fn resolve_tree(
        &self,
        git_dir: &Path,
        revision: &str,
    ) -> Result<(ObjectId, Option<ObjectId>), GitError> {
        match self.resolve(git_dir, revision)? {
            (id, Kind::Commit) => Ok((self.commit_info(id)?.tree_id, Some(id))),
            (id, Kind::Tree) => Ok((id, None)),
            _ => Err(GitError::UnknownRevision(revision.to_owned())),
        }
    }

    /// Resolves `revision` to an object and its kind. Tags are peeled.
    fn resolve(&self, git_dir: &Path, revision: &str) -> Result<(ObjectId, Kind), GitError> {
        let unknown = || GitError::UnknownRevision(revision.to_owned());
        if revision == "HEAD" {
            let commit_id = self.head_of(git_dir)?.commit_id().ok_or_else(unknown)?;
            return Ok((commit_id, Kind::Commit));
        }
        if revision.is_empty() || revision.contains(['\0', '\n']) {
            return Err(unknown());
        }
        let mut command = program::command(&self.inner.common_dir);
        command
            .env("GIT_DIR", git_dir)
            .args(["rev-parse", "--quiet", "--verify", "--end-of-options"])
            .arg(revision);
        let finished = program::finish(&mut command, b"")?;
        if !finished.status.success() {
            log::debug!("{}", program::failed(&command, &finished));
            return Err(unknown());
        }
        let id = ObjectId::from_hex(finished.stdout.trim_ascii()).map_err(|_| unknown())?;
        match self.peel(id) {
            // git accepts any full id, whether the object exists or not. A ref to a missing object
            // is a different error.
            Err(GitError::MissingObject { .. })
                if revision.eq_ignore_ascii_case(&id.to_string()) =>
            {
                Err(unknown())
            }
            peeled => peeled,
        }
    }

    /// Returns a handle with the configuration that is on disk now.
    ///
    /// A serving process outlives many edits of the configuration.
    pub(super) fn local_with_fresh_config(&self) -> Result<gix::Repository, GitError> {
        if self.inner.is_fresh {
            return Ok(self.local());
        }
        let shared = open_shared(&self.inner.common_dir, Some(&self.object_store()))?;
        Ok(shared.to_thread_local())
    }

    /// Reads a boolean from the current git configuration of the main checkout.
    pub fn config_bool(&self, key: &str) -> Option<bool> {
        let local = self.local_with_fresh_config().ok()?;
        local.config_snapshot().boolean(key)
    }

    /// Returns whether `<section>.<name>` was set when the repository was opened.
    ///
    /// Its value does not matter.
    pub fn has_setting(&self, section: &str, name: &str) -> bool {
        let local = self.local();
        let config = local.config_snapshot();
        let mut sections = config
            .plumbing()
            .sections_by_name(section)
            .into_iter()
            .flatten();
        sections.any(|section| section.contains_value_name(name))
    }

    /// Reads all values of a variable from the current git configuration.
    ///
    /// The configuration is that of the main checkout.
    ///
    /// # Errors
    /// Fails as [`Repository::open`] if the configuration cannot be read.
    pub fn config_values(&self, key: &str) -> Result<Vec<Vec<u8>>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let values = config.plumbing().strings(key).unwrap_or_default();
        Ok(values.into_iter().map(|value| value.to_vec()).collect())
    }

    /// Returns the last value of `<section>.<name>` that a user wrote.
    ///
    /// Files inside a checkout of the repository do not count, even if the configuration includes
    /// them: a commit could change them.
    ///
    /// # Errors
    /// Fails if the configuration or the list of worktrees cannot be read.
    pub fn setting_of_user(&self, section: &str, name: &str) -> Result<Option<Vec<u8>>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let checkouts = self.checkouts()?.into_iter().map(|checkout| {
            let dir = checkout.dir;
            dir.canonicalize().unwrap_or(dir)
        });
        // The list lacks some checkouts of a bare repository. The opened one always counts.
        let checkouts: Vec<PathBuf> = checkouts.chain([self.checkout_dir().to_owned()]).collect();
        let is_of_tree = |path: &Path| {
            // Resolve symlinks, so that a link into a checkout counts as well.
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            checkouts.iter().any(|checkout| path.starts_with(checkout))
                && !path.starts_with(self.common_dir())
        };
        let sections = config
            .plumbing()
            .sections_by_name(section)
            .into_iter()
            .flatten();
        let mut last = None;
        for section in sections {
            if section.header().subsection_name().is_some() {
                continue;
            }
            let Some(value) = section.value(name) else {
                continue;
            };
            let meta = section.meta();
            match meta
                .path
                .as_deref()
                .filter(|path| meta.level > 0 && is_of_tree(path))
            {
                Some(path) => {
                    log::warn!("{}: {name} counts in no file of the tree", path.display())
                }
                None => last = Some(value.to_vec()),
            }
        }
        Ok(last)
    }

    /// Reads a string from the current git configuration of the main checkout.
    pub fn config_string(&self, key: &str) -> Option<String> {
        let local = self.local_with_fresh_config().ok()?;
        local.config_snapshot().string(key).map(|v| v.to_string())
    }
}

/// Returns the common directory of the worktree with `git_dir`.
///
/// See `commondir` in gitrepository-layout(5).
fn common_dir_of(git_dir: &Path) -> Result<PathBuf, GitError> {
    match gix::discover::path::from_plain_file(&git_dir.join("commondir")) {
        None => Ok(git_dir.to_owned()),
        Some(Ok(common)) => Ok(git_dir.join(common)),
        Some(Err(source)) => Err(GitError::Io {
            action: "read",
            path: git_dir.join("commondir"),
            source,
        }),
    }
}

/// Returns whether a section is in the repository's own configuration.
fn is_local(meta: &Metadata) -> bool {
    matches!(
        meta.source,
        gix::config::Source::Local | gix::config::Source::Worktree
    )
}

/// Opens the repository at `common_dir`, if git would trust it.
///
/// Reuses `objects` if they still belong to the repository: an object database allocates a slot for
/// each pack that it may come to have.
fn open_shared(
    common_dir: &Path,
    objects: Option<&Arc<gix::odb::Store>>,
) -> Result<gix::ThreadSafeRepository, GitError> {
    let Some(objects) = objects else {
        return open_with_slots(common_dir, PACK_SLOTS);
    };
    let mut shared = open_with_slots(common_dir, NO_PACK_SLOTS)?;
    let is_same = objects.path() == shared.objects.path()
        && objects.object_hash() == shared.objects.object_hash()
        && objects.replacements().eq(shared.objects.replacements());
    if !is_same {
        return open_with_slots(common_dir, PACK_SLOTS);
    }
    shared.objects = objects.clone();
    Ok(shared)
}

fn open_with_slots(
    common_dir: &Path,
    slots: gix::odb::store::init::Slots,
) -> Result<gix::ThreadSafeRepository, GitError> {
    let mut permissions = gix::open::Permissions::all();
    permissions.config.env = false;
    permissions.env.objects = gix::sec::Permission::Deny;
    let options = gix::open::Options::default()
        .permissions(permissions)
        .object_store_slots(slots)
        .open_path_as_is(true);
    let mut shared = options
        .clone()
        .bail_if_untrusted(true)
        .open(common_dir)
        .map_err(
            |error| match options.bail_if_untrusted(false).open(common_dir) {
                // Only the owner of the repository was wrong. git names the checkout, if there is
                // one.
                Ok(untrusted) => GitError::UntrustedRepository {
                    dir: untrusted
                        .to_thread_local()
                        .workdir()
                        .unwrap_or(common_dir)
                        .to_owned(),
                },
                Err(_) => GitError::UnsupportedRepository {
                    dir: common_dir.to_owned(),
                    reason: with_causes(&error),
                },
            },
        )?;
    // `GIT_NAMESPACE` is for servers of a repository.
    shared.refs.namespace = None;
    Ok(shared)
}

/// Checks format version and extensions as git does (technical/repository-version).
///
/// Also refuses extensions that the git library cannot read or write.
fn check_format(config: &gix::config::File) -> Result<(), String> {
    let version = config
        .integer_filter("core.repositoryFormatVersion", is_local)
        .map_err(|error| with_causes(&error))?
        .unwrap_or(0);
    if !(0..=1).contains(&version) {
        return Err(format!(
            "its format version is {version}, known are 0 and 1"
        ));
    }
    let sections = config
        .sections_by_name_and_filter("extensions", is_local)
        .into_iter()
        .flatten();
    for section in sections {
        for name in section.value_names() {
            let value = section.value(&name).unwrap_or_default().to_string();
            match name.to_ascii_lowercase().as_str() {
                "noop" | "preciousobjects" | "partialclone" | "worktreeconfig" => {}
                "noop-v1" | "objectformat" | "relativeworktrees" => {}
                "refstorage" if value.eq_ignore_ascii_case("files") => {}
                "refstorage" => {
                    return Err(format!(
                        "its refs are stored as {value:?}, only \"files\" can be read"
                    ));
                }
                other if version == 1 => {
                    return Err(format!("it uses the unknown extension {other:?}"));
                }
                // Format 0 has no extensions: git ignores unknown ones.
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns the main worktree, from the configuration and the directory's name.
fn checkout_dir(
    config: &gix::config::File,
    common_dir: &Path,
    work_dir: Option<PathBuf>,
) -> PathBuf {
    let is_bare = config
        .boolean_filter("core.bare", is_local)
        .ok()
        .flatten()
        .unwrap_or(false);
    if is_bare {
        return common_dir.to_owned();
    }
    let configured = config
        .string_filter("core.worktree", is_local)
        .and_then(|path| Some(common_dir.join(gix::path::from_bstring(path).ok()?)));
    let beside = || match common_dir.file_name() {
        Some(name) if name == ".git" => common_dir.parent().map(Path::to_owned),
        _ => None,
    };
    let dir = configured
        .or(work_dir)
        .or_else(beside)
        .unwrap_or_else(|| common_dir.to_owned());
    dir.canonicalize().unwrap_or(dir)
}

/// Returns the first promisor remote.
///
/// Reads `extensions.partialClone` and `remote.*.promisor` as git does.
fn promisor_remote(config: &gix::config::File) -> Option<String> {
    if let Some(name) = config.string_filter("extensions.partialClone", is_local) {
        return Some(name.to_string());
    }
    config.sections_by_name("remote")?.find_map(|section| {
        let name = section.header().subsection_name()?.to_string();
        let key = format!("remote.{name}.promisor");
        matches!(config.boolean(key.as_str()), Ok(Some(true))).then_some(name)
    })
}

fn read_only() -> gix::refs::store::init::Options {
    gix::refs::store::init::Options {
        write_reflog: gix::refs::store::WriteReflog::Disable,
        ..Default::default()
    }
}

/// Reads HEAD from a ref store.
fn head_in(refs: &gix::refs::file::Store) -> Result<Head, GitError> {
    use gix::refs::TargetRef;

    let failed = || GitError::library("read HEAD");
    let path = refs.git_dir().join("HEAD");
    // The library would block on a pipe.
    tine_sys::file::check_regular(&path).map_err(GitError::io("read", &path))?;
    let head = refs
        .find_loose("HEAD")
        .map_err(|error| match tine_sys::file::read(&path) {
            Ok(_) => GitError::DamagedHead {
                path,
                reason: with_causes(&error),
            },
            Err(error) => GitError::io("read", path)(error),
        })?;
    let mut name = match head.target.to_ref() {
        TargetRef::Object(id) => {
            return Ok(Head::Detached {
                commit_id: id.into(),
            });
        }
        TargetRef::Symbolic(name) => name.to_owned(),
    };
    let branch = name.as_bstr().to_string();
    // A branch may be a symbolic ref; git follows five of them.
    for _ in 0..5 {
        let path = refs
            .common_dir_resolved()
            .join(std::ffi::OsStr::from_bytes(name.as_bstr()));
        match tine_sys::file::check_regular(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::IsADirectory => {
                return Err(GitError::io("read", path)(error));
            }
            _ => {}
        }
        let found = refs.try_find(name.as_ref().as_partial_name());
        let Some(reference) = found.map_err(|error| {
            damaged_ref(refs.common_dir_resolved(), name.as_bstr())
                .unwrap_or_else(|| failed()(error))
        })?
        else {
            return Ok(Head::Unborn { name: branch });
        };
        match reference.target.to_ref() {
            TargetRef::Object(id) => {
                return Ok(Head::Branch {
                    name: branch,
                    commit_id: id.into(),
                });
            }
            TargetRef::Symbolic(next) => name = next.to_owned(),
        }
    }
    Err(GitError::Library {
        action: "read HEAD",
        reason: format!("{branch} leads through too many symbolic refs"),
    })
}

/// Finds the git directory and worktree that contain `dir`, searching upwards.
///
/// `GIT_CEILING_DIRECTORIES` ends the search, as in git.
fn upwards(dir: &Path) -> Result<(PathBuf, Option<PathBuf>), GitError> {
    let absolute = std::path::absolute(dir).map_err(GitError::io("resolve", dir))?;
    let options = gix::discover::upwards::Options {
        match_ceiling_dir_or_error: false,
        ..Default::default()
    };
    match gix::discover::upwards_opts(&absolute, options.apply_environment()) {
        Ok((found, _trust)) => Ok(found.into_repository_and_work_tree_directories()),
        Err(_) => {
            Err(hidden(&absolute).unwrap_or_else(|| GitError::NotARepository(dir.to_owned())))
        }
    }
}

fn canonical(git_dir: PathBuf) -> Result<PathBuf, GitError> {
    git_dir
        .canonicalize()
        .map_err(GitError::io("find", git_dir))
}

/// Returns the error for an unreadable repository above `dir`.
///
/// git skips such a repository as if it did not exist.
fn hidden(dir: &Path) -> Option<GitError> {
    dir.ancestors().find_map(|above| {
        let git_dir = above.join(".git");
        match git_dir.join("HEAD").symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Some(GitError::io("read", git_dir)(error))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests;
