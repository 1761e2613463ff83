//! Finding and opening a repository, and where its worktrees' HEADs stand.
//!
//! The environment of the process does not mislead: `GIT_DIR`, `GIT_WORK_TREE` and their like are
//! not looked at, as the daemon serves one repository whatever the shell that started it had set. A
//! repository that git itself would not trust (`safe.directory`) is refused.

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

/// How many packs can be known at a time. The number is fixed when a repository is opened, and
/// packs come while it is served: with each fetch, and with each object that a partial clone lacks.
const PACK_SLOTS: gix::odb::store::init::Slots =
    gix::odb::store::init::Slots::AsNeededByDiskState {
        multiplier: 2.0,
        minimum: 2048,
    };

/// For an object database that is never read.
pub(super) const NO_PACK_SLOTS: gix::odb::store::init::Slots =
    gix::odb::store::init::Slots::Given(0);

/// A git repository, shared by all threads. Cloning is cheap.
#[derive(Clone)]
pub struct Repository {
    inner: Arc<Inner>,
}

struct Inner {
    shared: RwLock<gix::ThreadSafeRepository>,
    /// Goes up when `shared` is replaced: handles of the old one are given up.
    generation: AtomicU64,
    hash_kind: gix::hash::Kind,
    /// Absolute and free of symlinks.
    common_dir: PathBuf,
    /// The main worktree, or the repository directory itself where it is bare.
    checkout_dir: PathBuf,
    /// The remote that a partial clone's missing objects come from.
    promisor_remote: Option<String>,
    protection: Protection,
    /// Held while missing objects are fetched, so that threads that miss the same ones fetch them
    /// once.
    fetching: Mutex<()>,
    /// Shared with the repositories that this one was reopened from. Synchronises itself.
    trees: Arc<TreeCache>,
    /// Whether the configuration was read just now, for whoever asks for a fresh one.
    is_fresh: bool,
}

/// Where a worktree's HEAD stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// On a branch (full name: `refs/heads/…`) that has a commit.
    Branch {
        name: String,
        commit_id: ObjectId,
    },
    /// On a branch without a commit yet.
    Unborn {
        name: String,
    },
    Detached {
        commit_id: ObjectId,
    },
}

impl Head {
    pub fn commit_id(&self) -> Option<ObjectId> {
        match self {
            Head::Branch { commit_id, .. } | Head::Detached { commit_id } => Some(*commit_id),
            Head::Unborn { .. } => None,
        }
    }

    /// The branch's full name (`refs/heads/…`), if HEAD is on one.
    pub fn branch(&self) -> Option<&str> {
        match self {
            Head::Branch { name, .. } | Head::Unborn { name } => Some(name),
            Head::Detached { .. } => None,
        }
    }

    /// The branch's short name, if HEAD is on one.
    pub fn short_branch(&self) -> Option<&str> {
        let name = self.branch()?;
        Some(name.strip_prefix("refs/heads/").unwrap_or(name))
    }
}

impl Repository {
    /// Finds the repository that `dir` is in: in a checkout, a linked worktree (so also inside a
    /// fork's mount), a bare repository or a `.git` directory. Refuses reftable repositories and
    /// others that cannot be read faithfully.
    pub fn discover(dir: &Path) -> Result<Repository, GitError> {
        Repository::discover_worktree(dir).map(|(repository, _)| repository)
    }

    /// As [`Repository::discover`], together with what [`Repository::git_dir_at`] returns.
    pub fn discover_worktree(dir: &Path) -> Result<(Repository, PathBuf), GitError> {
        let (git_dir, work_dir) = upwards(dir)?;
        let is_linked = git_dir.join("commondir").exists();
        let common_dir = common_dir_of(&git_dir)?;
        let repository = Repository::open_at(&common_dir, work_dir.filter(|_| !is_linked), None)?;
        Ok((repository, canonical(git_dir)?))
    }

    /// The private git directory of the worktree that `dir` is in, or the git directory itself;
    /// absolute.
    pub fn git_dir_at(dir: &Path) -> Result<PathBuf, GitError> {
        canonical(upwards(dir)?.0)
    }

    /// Opens the repository whose common directory is `common_dir`.
    pub fn open(common_dir: &Path) -> Result<Repository, GitError> {
        Repository::open_at(&common_dir_of(common_dir)?, None, None)
    }

    /// The same repository with the configuration that it has now, for the length of one request:
    /// it is not read again. What is mapped of the object database stays, and what was read of it.
    pub fn reopened(&self) -> Result<Repository, GitError> {
        Repository::open_at(self.common_dir(), None, Some(self))
    }

    /// `work_dir` is the main worktree, where it is known already: a `.git` file or symlink that
    /// leads to a repository elsewhere cannot be found from there. `earlier` was opened from the
    /// same directory.
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
            // What replaces an object decides over what is read.
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

    /// The directory that all worktrees share (`git rev-parse --git-common-dir`), absolute.
    pub fn common_dir(&self) -> &Path {
        &self.inner.common_dir
    }

    /// The main worktree; where the repository is bare, the repository directory itself.
    pub fn checkout_dir(&self) -> &Path {
        &self.inner.checkout_dir
    }

    /// A new handle for the calling thread. [`Repository::with_local`] is cheaper where it will do.
    pub fn local(&self) -> gix::Repository {
        self.inner.shared.read().to_thread_local()
    }

    /// Runs `work` with the calling thread's own handle, which is kept for the next time.
    pub fn with_local<R>(&self, work: impl FnOnce(&gix::Repository) -> R) -> R {
        thread_local! {
            static HANDLES: RefCell<Vec<(Weak<Inner>, u64, gix::Repository)>> = const { RefCell::new(Vec::new()) };
        }
        let this = Arc::downgrade(&self.inner);
        let generation = self.inner.generation.load(Ordering::Acquire);
        // The handle is taken out while it is in use, so that `work` may come here again.
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

    /// Gives up all that is mapped of the object database, and opens it anew: what the disk could
    /// not give once would be missing for good.
    pub(super) fn forget_mappings(&self) -> Result<(), GitError> {
        let mut shared = self.inner.shared.write();
        *shared = open_shared(&self.inner.common_dir, None)?;
        self.inner.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn object_store(&self) -> Arc<gix::odb::Store> {
        self.inner.shared.read().objects.clone()
    }

    /// Trees that were read before, as they are stored.
    pub(super) fn trees(&self) -> &TreeCache {
        &self.inner.trees
    }

    /// The hash function of object ids.
    pub fn hash_kind(&self) -> gix::hash::Kind {
        self.inner.hash_kind
    }

    /// The id of the empty tree (it need not be in the object database).
    pub fn empty_tree_id(&self) -> ObjectId {
        ObjectId::empty_tree(self.hash_kind())
    }

    /// The remote that a partial clone's missing objects are fetched from; `None` where the clone
    /// is whole.
    pub fn promisor_remote(&self) -> Option<&str> {
        self.inner.promisor_remote.as_deref()
    }

    /// Which names its trees may not have.
    pub(super) fn protection(&self) -> Protection {
        self.inner.protection
    }

    /// Held by whoever fetches missing objects.
    pub(super) fn fetching(&self) -> &Mutex<()> {
        &self.inner.fetching
    }

    /// HEAD of the worktree whose private git directory is `git_dir` (the common directory for the
    /// main checkout, `worktrees/<id>` for a linked one).
    pub fn head_of(&self, git_dir: &Path) -> Result<Head, GitError> {
        head_in(&self.refs_of(git_dir))
    }

    /// The commit that HEAD names in a submodule's repository, at `git_dir`; `None` where it has
    /// none yet, or is no repository.
    pub fn head_of_submodule(&self, git_dir: &Path) -> Result<Option<ObjectId>, GitError> {
        if !git_dir.join("HEAD").is_file() {
            return Ok(None);
        }
        let refs =
            gix::refs::file::Store::at_opts(git_dir.to_owned(), self.hash_kind(), read_only());
        Ok(head_in(&refs)?.commit_id())
    }

    /// The refs as the worktree with `git_dir` sees them.
    fn refs_of(&self, git_dir: &Path) -> gix::refs::file::Store {
        gix::refs::file::Store::for_linked_worktree_opts(
            git_dir.to_owned(),
            self.inner.common_dir.clone(),
            self.hash_kind(),
            read_only(),
        )
    }

    /// The commit that `revision` names, as seen from the worktree with `git_dir` (so that `HEAD`
    /// and `@{1}` are its own). Tags are peeled.
    pub fn resolve_commit(&self, git_dir: &Path, revision: &str) -> Result<ObjectId, GitError> {
        match self.resolve(git_dir, revision)? {
            (id, Kind::Commit) => Ok(id),
            _ => Err(GitError::UnknownRevision(revision.to_owned())),
        }
    }

    /// The tree that `revision` names, by a commit or by itself, as seen from the worktree with
    /// `git_dir`; and that commit.
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

    /// What `revision` names, and of what kind that is. Tags are peeled.
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
            // git takes any full id for granted. That one which a ref names is missing is another
            // matter.
            Err(GitError::MissingObject { .. })
                if revision.eq_ignore_ascii_case(&id.to_string()) =>
            {
                Err(unknown())
            }
            peeled => peeled,
        }
    }

    /// A handle with the configuration as it is on disk now: a serving process outlives many edits
    /// of it.
    pub(super) fn local_with_fresh_config(&self) -> Result<gix::Repository, GitError> {
        if self.inner.is_fresh {
            return Ok(self.local());
        }
        let shared = open_shared(&self.inner.common_dir, Some(&self.object_store()))?;
        Ok(shared.to_thread_local())
    }

    /// A boolean from git's configuration as the main checkout sees it now.
    pub fn config_bool(&self, key: &str) -> Option<bool> {
        let local = self.local_with_fresh_config().ok()?;
        local.config_snapshot().boolean(key)
    }

    /// Whether the configuration that the repository was opened with has `<section>.<name>`,
    /// whatever its value.
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

    /// All values of a variable in git's configuration as the main checkout sees it now.
    pub fn config_values(&self, key: &str) -> Result<Vec<Vec<u8>>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let values = config.plumbing().strings(key).unwrap_or_default();
        Ok(values.into_iter().map(|value| value.to_vec()).collect())
    }

    /// The last value of `<section>.<name>` in the configuration that users write: not in a file of
    /// a checkout of the repository that the configuration includes, which a commit may bring.
    pub fn setting_of_user(&self, section: &str, name: &str) -> Result<Option<Vec<u8>>, GitError> {
        let local = self.local_with_fresh_config()?;
        let config = local.config_snapshot();
        let checkouts = self.checkouts()?.into_iter().map(|checkout| {
            let dir = checkout.dir;
            dir.canonicalize().unwrap_or(dir)
        });
        // A bare repository's are not all; the one that was opened counts in any case.
        let checkouts: Vec<PathBuf> = checkouts.chain([self.checkout_dir().to_owned()]).collect();
        let is_of_tree = |path: &Path| {
            // Through a link, too.
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

    /// A string from git's configuration as the main checkout sees it now.
    pub fn config_string(&self, key: &str) -> Option<String> {
        let local = self.local_with_fresh_config().ok()?;
        local.config_snapshot().string(key).map(|v| v.to_string())
    }
}

/// The common directory of the worktree with `git_dir` (gitrepository-layout(5), `commondir`).
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

/// Whether a section stands in the repository's own configuration.
fn is_local(meta: &Metadata) -> bool {
    matches!(
        meta.source,
        gix::config::Source::Local | gix::config::Source::Worktree
    )
}

/// Opens the repository whose common directory is `common_dir`, if git would trust it, over
/// `objects`, if they are still its own. An object database of its own costs thousands of
/// instructions for each pack that it may come to have.
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
                // Nothing but its owner was in the way. git asks for the checkout, where there is
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
    // `GIT_NAMESPACE` is for those who serve a repository to others.
    shared.refs.namespace = None;
    Ok(shared)
}

/// Checks format version and extensions as git does (technical/repository-version), less what the
/// git library cannot read or write.
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
                // Format 0 has no extensions: git ignores what it does not know.
                _ => {}
            }
        }
    }
    Ok(())
}

/// The main worktree as the configuration and the directory's name give it.
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

/// The first remote that promises objects, as git reads `extensions.partialClone` and
/// `remote.*.promisor`.
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

/// HEAD as a store of refs has it.
fn head_in(refs: &gix::refs::file::Store) -> Result<Head, GitError> {
    use gix::refs::TargetRef;

    let failed = || GitError::library("read HEAD");
    let path = refs.git_dir().join("HEAD");
    // The library would wait at a pipe.
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
    // A branch may be a symbolic ref itself; git follows five of them.
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

/// The git directory and the worktree that `dir` is in, or above it, as far as git looks:
/// `GIT_CEILING_DIRECTORIES` ends it.
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

/// A repository above `dir` that this user may not look into: git passes over it as if there were
/// none.
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
