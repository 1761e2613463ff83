//! A fork in this process, through the library, with and without a mount.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tine::change::changeset::{Blobs, changeset};
use tine::change::commit::commit;
use tine::change::{ChangeError, Changeset, CommitOptions, CommitOutcome};
use tine::fuse::{FuseMount, MountError, MountOptions, UnmountMode};
use tine::git::Repository;
use tine::store::{
    Fork, ForkName, ForkOptions, GitKind, MountSettings, Store, StoreError, UnmountPolicy,
};
use tine::workspace::Workspace;

use super::TestRepo;
use super::fuse::{Watchdog, transport};

/// How long a test may use a mount before it is cut off.
const MOUNT_LIMIT: Duration = Duration::from_secs(240);

/// A fork of a [`TestRepo`] (which must outlive it), open in this process. Dropping it unmounts and
/// closes the store.
pub struct TestFork {
    // In the order in which they must go.
    mount: Option<FuseMount>,
    fork: Option<Arc<Fork>>,
    store: Option<Store>,
    repository: Repository,
    name: ForkName,
    mount_dir: PathBuf,
    settings: MountSettings,
    _watchdog: Watchdog,
}

impl TestFork {
    /// Makes the fork `name` from HEAD and opens it.
    pub fn new(repo: &TestRepo, name: &str) -> TestFork {
        TestFork::with(repo, name, |_| {})
    }

    /// As [`TestFork::new`], and mounts it.
    pub fn mounted(repo: &TestRepo, name: &str) -> TestFork {
        let mut fork = TestFork::new(repo, name);
        fork.mount();
        fork
    }

    /// Makes a fork with other options.
    #[track_caller]
    pub fn with(repo: &TestRepo, name: &str, change: impl FnOnce(&mut ForkOptions)) -> TestFork {
        TestFork::try_with(repo, name, change)
            .unwrap_or_else(|error| panic!("no fork is made: {error}"))
    }

    /// Makes a fork that may be refused.
    pub fn try_with(
        repo: &TestRepo,
        name: &str,
        change: impl FnOnce(&mut ForkOptions),
    ) -> Result<TestFork, StoreError> {
        let repository = Repository::discover(repo.dir())?;
        let name = ForkName::parse(name).expect("a test's fork has a valid name");
        let mount_dir = repo.root().join("repo.forks").join(name.as_str());
        // SAFETY: these calls touch no memory.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        let mut options = ForkOptions {
            name: name.clone(),
            git_dir: repo.git_dir(),
            from: None,
            parent: None,
            state: None,
            branch: None,
            detached: false,
            git_kind: GitKind::default(),
            untrusted: false,
            follow: false,
            mount_dir: mount_dir.clone(),
            mounted: false,
            settings: MountSettings::default(),
            on_unmount: UnmountPolicy::Keep,
            snapshot_every: None,
            uid,
            gid,
            umask: 0o022,
            carry: Default::default(),
        };
        change(&mut options);
        let store = open_store(&repository)?;
        store.create_fork(&options)?;
        let fork = store.open_fork(&name)?;
        Ok(TestFork {
            mount: None,
            fork: Some(fork),
            store: Some(store),
            repository,
            name,
            mount_dir: options.mount_dir,
            settings: options.settings,
            _watchdog: Watchdog::start(repo.root(), MOUNT_LIMIT),
        })
    }

    /// Mounts the fork at [`TestFork::path`].
    pub fn mount(&mut self) {
        assert!(self.mount.is_none(), "the fork is mounted already");
        let options = MountOptions {
            dir: self.mount_dir.clone(),
            name: self.name.to_string(),
            settings: self.settings,
            transport: transport(),
            guarded: false,
        };
        let mount = FuseMount::start(
            self.fork().workspace.clone(),
            None,
            &options,
            Box::new(|| {}),
        );
        self.mount = Some(mount.expect("the fork can be mounted"));
    }

    /// Unmounts; a program that goes on using the mount makes it fail. What git leaves running
    /// behind itself (`git maintenance run --detach`) gets its time.
    pub fn unmount(&mut self) {
        if let Some(mount) = self.mount.take() {
            let deadline = Instant::now() + Duration::from_secs(10);
            let mut unmounted = mount.unmount(UnmountMode::Clean);
            while matches!(unmounted, Err(MountError::Busy(_))) && Instant::now() < deadline {
                std::thread::yield_now();
                unmounted = mount.unmount(UnmountMode::Clean);
            }
            unmounted.expect("nobody uses the mount");
        }
    }

    /// Gives everything up without a sync, as a process that ends does, and opens the store again.
    /// Mounts again what was mounted.
    pub fn reopen(&mut self) {
        let mounted = self.mount.is_some();
        self.unmount();
        self.fork = None;
        self.store = None;
        let store = open_store(&self.repository).expect("the store opens again");
        self.fork = Some(store.open_fork(&self.name).expect("the fork opens again"));
        self.store = Some(store);
        if mounted {
            self.mount();
        }
    }

    /// Unmounts and removes the fork.
    pub fn remove(mut self) {
        self.unmount();
        self.fork = None;
        self.store()
            .remove_fork(&self.name)
            .expect("nobody holds the fork open");
    }

    /// Where the fork is, or would be, mounted.
    pub fn path(&self) -> &Path {
        &self.mount_dir
    }

    pub fn name(&self) -> &ForkName {
        &self.name
    }

    pub fn fork(&self) -> &Arc<Fork> {
        self.fork.as_ref().expect("open except within reopen")
    }

    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.fork().workspace
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("open except within reopen")
    }

    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The mount, where there is one.
    pub fn mounted_at(&self) -> Option<&FuseMount> {
        self.mount.as_ref()
    }

    /// The changes against HEAD, with blobs written.
    pub fn changes(&self) -> Changeset {
        changeset(&self.repository, self.fork(), Blobs::Write).expect("the changes are computed")
    }

    /// Commits as `tine commit` does.
    pub fn commit(&self, message: &str) -> Result<CommitOutcome, ChangeError> {
        let options = CommitOptions {
            message: message.to_owned(),
            ..CommitOptions::default()
        };
        commit(&self.repository, &self.name, self.fork(), &options)
    }
}

/// Opens the store, and waits for its lock: a program that another test starts at the same time
/// holds it, too, from fork to exec.
pub fn open_store(repository: &Repository) -> Result<Store, StoreError> {
    let mut opened = Store::open(repository);
    let deadline = Instant::now() + Duration::from_secs(5);
    while matches!(opened, Err(StoreError::Locked { .. })) && Instant::now() < deadline {
        std::thread::yield_now();
        opened = Store::open(repository);
    }
    opened
}

impl Drop for TestFork {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take()
            && mount.unmount(UnmountMode::Force).is_err()
        {
            super::force_unmount_beneath(&self.mount_dir);
        }
    }
}
