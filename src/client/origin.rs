//! A fork at the main checkout's path, for one command: `tine exec --at-origin`.
//!
//! The command runs in a private mount namespace with these mounts and files:
//!
//! ```text
//! <main checkout>                 the fork: a bind mount of its mount
//! <backstage>/<repo>/.git         the common git directory: a bind mount
//! <backstage>/<repo>/<name>       symlinks to the names at the fork's root (1)
//! <backstage>/<name>              symlinks to the names beside the main checkout (1)
//! <fork>/.git/tine/fork           a file that names <backstage>/<repo>/.git, for a repository of its own
//! <any worktree or submodule>/.git
//!                                 a file that names its directory in <backstage>/<repo>/.git
//! …/.git/worktrees/<id>/gitdir    of the fork: a copy, because git may write its path there
//! ```
//!
//! (1) Only if the git directory is in the main checkout: the targets of relative paths in git's
//! configuration, alternates and submodules.
//!
//! The backstage is a file system in memory, mounted over an empty directory beside the main
//! checkout. It is necessary because the fork at the main checkout's path hides the common git
//! directory, and a directory cannot be mounted over the `.git` file of a linked worktree.
//!
//! tine's own commands detect the namespace with [`AtOrigin::of`]. They send the daemon paths as
//! they are outside. They start no daemon, because no process outside would see its mounts.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::place::Place;
use tine_git::own::IDENTITY_NAME;
use tine_git::{Repository, Worktree};
use tine_ops::protocol::ForkInfo;
use tine_ops::{ErrorCode, Failure};
use tine_store::{BACKSTAGE_NAME, default_mount_root};
use tine_store::{ForkName, VisiblePath};
use tine_sys::{namespace, process};

/// Configuration key: true to show forks at the main checkout's path.
const CONFIG_KEY: &str = "tine.atOrigin";

/// Name of the file on the backstage with the encoded [`AtOrigin`].
const AT_ORIGIN_NAME: &str = ".tine-standing";
/// Name of the backstage's directory with files for bind mounts.
const FILES_NAME: &str = ".tine-files";

/// Paths of a private mount namespace, as seen outside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtOrigin {
    /// Common git directory.
    pub common_dir: PathBuf,
    /// Main checkout, at whose path the command sees the fork.
    pub checkout_dir: PathBuf,
    /// Mount directory of the fork.
    pub mount_dir: PathBuf,
}

impl AtOrigin {
    /// Returns the paths if this process runs in such a namespace.
    ///
    /// `common_dir` is the common git directory that git finds from inside it: it is then on the
    /// backstage.
    pub fn of(common_dir: &Path) -> Option<AtOrigin> {
        let backstage = common_dir.parent()?.parent()?;
        if backstage.file_name() != Some(OsStr::new(BACKSTAGE_NAME)) {
            return None;
        }
        AtOrigin::decode(&tine_sys::file::read(&backstage.join(AT_ORIGIN_NAME)).ok()?)
    }

    /// Returns `path` as seen outside the namespace.
    pub fn outside(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.checkout_dir) {
            Ok(rest) => self.mount_dir.join(rest),
            Err(_) => path.to_owned(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let paths = [&self.common_dir, &self.checkout_dir, &self.mount_dir];
        paths.map(|path| path.as_os_str().as_bytes()).join(&0)
    }

    fn decode(bytes: &[u8]) -> Option<AtOrigin> {
        let mut paths = bytes
            .split(|&byte| byte == 0)
            .map(|path| PathBuf::from(OsStr::from_bytes(path)));
        Some(AtOrigin {
            common_dir: paths.next()?,
            checkout_dir: paths.next()?,
            mount_dir: paths.next().filter(|path| path.is_absolute())?,
        })
    }
}

/// Returns the path at which commands see `fork` by default.
///
/// The fork's settings decide, or else `tine.atOrigin`. Returns `None` for the fork's mount
/// directory. The main checkout's path is ignored if there is no main checkout, and every setting
/// is ignored in a command that already sees a fork at another path.
///
/// # Errors
/// `no-such-fork` or `not-mounted` if the parent's path is set and not available,
/// `namespace-not-permitted` if no mount namespace can be made.
pub fn by_default(place: &Place, fork: &ForkInfo) -> Result<Option<PathBuf>, Failure> {
    let repository = place.repository()?;
    let seen_at = setting(place, fork)?;
    if AtOrigin::of(repository.common_dir()).is_some()
        || seen_at == VisiblePath::Origin && main_checkout(repository).is_err()
    {
        return Ok(None);
    }
    let seen = place_of(place, fork, seen_at)?;
    if seen.is_some() {
        check(place)?;
    }
    Ok(seen)
}

/// Returns the setting of the fork, or else of the configuration.
fn setting(place: &Place, fork: &ForkInfo) -> Result<VisiblePath, Failure> {
    Ok(match fork.settings.at_origin {
        Some(seen_at) => seen_at,
        None => match place.repository()?.config_bool(CONFIG_KEY) {
            Some(true) => VisiblePath::Origin,
            _ => VisiblePath::Own,
        },
    })
}

/// Returns the path for `seen_at`. `None` means the fork's mount directory.
///
/// # Errors
/// `unsupported-repository` if there is no main checkout, `no-such-fork` or `not-mounted` if the
/// parent's path is not available.
pub fn place_of(
    place: &Place,
    fork: &ForkInfo,
    seen_at: VisiblePath,
) -> Result<Option<PathBuf>, Failure> {
    match seen_at {
        VisiblePath::Own => Ok(None),
        VisiblePath::Origin => main_checkout(place.repository()?).map(Some),
        VisiblePath::Parent => parent_place(place, fork).map(Some),
    }
}

/// Paths at which commands can see a fork.
pub struct SeenPlaces {
    /// Setting of the fork or of the configuration.
    pub by_default: VisiblePath,
    /// Path for `--at-origin`: the main checkout. `None` if there is none.
    pub origin: Option<PathBuf>,
    /// Path for `--at-parent`. `None` if the fork has no parent or the path is not available.
    pub parent: Option<PathBuf>,
}

impl SeenPlaces {
    /// Returns the paths for `fork`.
    ///
    /// # Errors
    /// The errors of [`Place::repository`].
    pub fn of(place: &Place, fork: &ForkInfo) -> Result<SeenPlaces, Failure> {
        let parent = fork
            .parent
            .as_ref()
            .and_then(|_| parent_place(place, fork).ok());
        Ok(SeenPlaces {
            by_default: setting(place, fork)?,
            origin: main_checkout(place.repository()?).ok(),
            parent,
        })
    }
}

/// Returns the path at which the parent of `fork` was seen.
///
/// That is the parent's mount directory. If the parent itself is set to be seen at its parent's
/// path, it is that path. The configuration for all forks is ignored: build products in the parent
/// name the parent's own path.
fn parent_place(place: &Place, fork: &ForkInfo) -> Result<PathBuf, Failure> {
    let (forks, _) = place.connect()?.forks()?;
    let mut at = fork;
    // A fork with the name of a deleted one may close a cycle of parents.
    for _ in 0..=forks.len() {
        let Some(parent) = &at.parent else {
            return Err(Failure::new(
                ErrorCode::NoSuchFork,
                format!("{} did not begin as another fork", at.name),
            )
            .hint("`tine new NAME --from-fork PARENT` makes one that does; `--at-origin` is for the main checkout's path"));
        };
        let Some(parent) = forks.iter().find(|found| found.name == parent.fork) else {
            return Err(Failure::new(
                ErrorCode::NoSuchFork,
                format!("{}, which {} began as, is gone", parent.fork, at.name),
            )
            .hint("`--no-at-origin` runs the command at the fork's own path: build again there what leads elsewhere"));
        };
        if parent.settings.at_origin == Some(VisiblePath::Parent) {
            at = parent;
            continue;
        }
        if parent.mount_dir.is_dir() {
            return Ok(parent.mount_dir.clone());
        }
        return Err(Failure::new(
            ErrorCode::NotMounted,
            format!(
                "there is no directory at {}, where {} is mounted",
                parent.mount_dir.display(),
                parent.name
            ),
        )
        .hint(format!("`tine mount {}` makes it", parent.name)));
    }
    Err(Failure::new(
        ErrorCode::NoSuchFork,
        format!("the forks that {} began as lead back to it", fork.name),
    )
    .hint("`--no-at-origin` runs the command at the fork's own path"))
}

/// Returns the fork's root for a command, and the command's directory.
///
/// If `origin` is given, the process enters a mount namespace in which the fork is at that path.
///
/// # Errors
/// The errors of [`enter`]. After one, the process must end.
pub fn place(
    place: &Place,
    fork: &ForkInfo,
    origin: Option<PathBuf>,
) -> Result<(PathBuf, PathBuf), Failure> {
    Ok(match origin {
        Some(checkout_dir) => {
            enter(place, fork, &checkout_dir)?;
            let dir = dir_in_fork(place.cwd(), fork, &checkout_dir);
            (checkout_dir, dir)
        }
        None => (fork.mount_dir.clone(), fork.mount_dir.clone()),
    })
}

/// Checks that this process can enter a namespace with [`enter`].
///
/// # Errors
/// `busy` if the process is already in such a namespace, `namespace-not-permitted` if the system
/// does not allow one.
pub fn check(place: &Place) -> Result<(), Failure> {
    let repository = place.repository()?;
    if let Some(at_origin) = AtOrigin::of(repository.common_dir()) {
        return Err(Failure::new(
            ErrorCode::Busy,
            format!("a fork is already at {}", at_origin.checkout_dir.display()),
        )
        .hint(
            "run the command without `--at-origin` to have it in another fork, or from outside",
        ));
    }
    namespace::try_private_mounts().map_err(|error| not_permitted(&error))
}

/// Returns the main checkout of `repository`.
///
/// # Errors
/// `unsupported-repository` if the repository is bare or git does not find it from its checkout.
pub fn main_checkout(repository: &Repository) -> Result<PathBuf, Failure> {
    let dir = repository.checkout_dir();
    if dir != repository.common_dir()
        && Repository::git_dir_at(dir).is_ok_and(|git_dir| git_dir == repository.common_dir())
    {
        return Ok(dir.to_owned());
    }
    Err(Failure::new(
        ErrorCode::UnsupportedRepository,
        format!(
            "the repository at {} has no main checkout that can be found from here",
            repository.common_dir().display()
        ),
    )
    .hint("`--at-origin` needs one: a bare repository has none; where .git is a file, run it in the main checkout"))
}

/// Enters a private mount namespace in which `fork` is at `checkout_dir`.
///
/// The fork must be mounted. Unless the user is root, the process must have one thread only.
///
/// # Errors
/// `namespace-not-permitted`, `permission-denied` if another user could replace the backstage, or
/// `io`. The process must end after an error, which also removes the incomplete namespace.
pub fn enter(place: &Place, fork: &ForkInfo, checkout_dir: &Path) -> Result<(), Failure> {
    let repository = place.repository()?;
    let common_dir = repository.common_dir();
    let at_origin = AtOrigin {
        common_dir: common_dir.to_owned(),
        checkout_dir: checkout_dir.to_owned(),
        mount_dir: fork.mount_dir.clone(),
    };
    let dot_gits = Worktree::dot_gits(common_dir)?;
    let backstage = make_backstage(&at_origin)?;
    namespace::enter_private_mounts().map_err(|error| not_permitted(&error))?;
    set_up(&at_origin, &backstage, &dot_gits, &fork.name)
}

/// Returns the directory under `checkout_dir` that corresponds to `cwd`.
///
/// `cwd` is a path in the main checkout or in the fork's mount. The result is `checkout_dir` if
/// `cwd` is in neither, or if the fork does not have the directory.
pub fn dir_in_fork(cwd: &Path, fork: &ForkInfo, checkout_dir: &Path) -> PathBuf {
    [checkout_dir, &fork.mount_dir]
        .iter()
        .find_map(|root| cwd.strip_prefix(root).ok())
        // Joining an empty path would append a slash.
        .filter(|rest| !rest.as_os_str().is_empty())
        .map(|rest| checkout_dir.join(rest))
        .filter(|dir| dir.is_dir())
        .unwrap_or_else(|| checkout_dir.to_owned())
}

/// Makes the mounts of the namespace, which the process has entered.
///
/// `dot_gits` are the `.git` files of worktrees and submodules, each with its git directory
/// relative to the common git directory. `fork` is the name of the fork.
fn set_up(
    at_origin: &AtOrigin,
    backstage: &Path,
    dot_gits: &[(PathBuf, PathBuf)],
    fork: &ForkName,
) -> Result<(), Failure> {
    namespace::mount_memory(backstage).map_err(failed("mount a file system at", backstage))?;
    let like_checkout = backstage.join(
        at_origin
            .checkout_dir
            .file_name()
            .unwrap_or(OsStr::new("repo")),
    );
    let git_dir = like_checkout.join(".git");
    let files_dir = backstage.join(FILES_NAME);
    for dir in [&like_checkout, &git_dir, &files_dir] {
        fs::create_dir(dir).map_err(failed("make", dir))?;
    }
    bind(&at_origin.common_dir, &git_dir)?;
    let mut count = 0;
    let mut write = |content: &[&[u8]]| -> Result<PathBuf, Failure> {
        count += 1;
        let path = files_dir.join(count.to_string());
        fs::write(&path, content.concat()).map_err(failed("write", &path))?;
        Ok(path)
    };
    for (dot_git, private_dir) in dot_gits {
        // A fork that is not mounted has no `.git` file.
        if !fs::symlink_metadata(dot_git).is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let private_dir = git_dir.join(private_dir);
        bind(
            &write(&[b"gitdir: ", private_dir.as_os_str().as_bytes(), b"\n"])?,
            dot_git,
        )?;
        if dot_git.parent() == Some(&at_origin.mount_dir) {
            let origin = at_origin.checkout_dir.join(".git");
            bind(
                &write(&[origin.as_os_str().as_bytes(), b"\n"])?,
                &private_dir.join("gitdir"),
            )?;
        }
    }
    // A git directory of the fork's own says where the main repository is.
    let identity = at_origin.mount_dir.join(".git").join(IDENTITY_NAME);
    if identity.is_file() {
        let lines = [
            git_dir.as_os_str().as_bytes(),
            b"\n",
            fork.as_str().as_bytes(),
            b"\n",
        ];
        bind(&write(&lines)?, &identity)?;
    }
    // The bind mount includes the files that are mounted over the fork's.
    bind(&at_origin.mount_dir, &at_origin.checkout_dir)?;
    if at_origin.common_dir.parent() == Some(&at_origin.checkout_dir) {
        link_names(&at_origin.checkout_dir, &like_checkout)?;
        if let Some(parent) = at_origin.checkout_dir.parent() {
            link_names(parent, backstage)?;
        }
    }
    let file = backstage.join(AT_ORIGIN_NAME);
    fs::write(&file, at_origin.encode()).map_err(failed("write", &file))
}

/// Makes a symlink in `at` for each name in `dir`.
///
/// Names that exist in `at` are skipped. A directory that cannot be listed counts as empty.
fn link_names(dir: &Path, at: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let link = at.join(entry.file_name());
        match symlink(entry.path(), &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("make", &link)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes the empty directory over which the backstage is mounted.
///
/// It is beside the main checkout, so that `includeIf` conditions in git's configuration match in
/// most cases, or else beside the fork. All commands use it, and it is not removed.
fn make_backstage(at_origin: &AtOrigin) -> Result<PathBuf, Failure> {
    let near_checkout = default_mount_root(&at_origin.checkout_dir);
    let near_fork = at_origin.mount_dir.parent().unwrap_or(&at_origin.mount_dir);
    let backstage = near_checkout.join(BACKSTAGE_NAME);
    match make_dir(&near_checkout).and_then(|()| make_dir(&backstage)) {
        Ok(()) => return trusted(&at_origin.checkout_dir, &near_checkout, backstage),
        Err(error) => log::info!("{}: {error}", backstage.display()),
    }
    let backstage = near_fork.join(BACKSTAGE_NAME);
    make_dir(&backstage).map_err(failed("make", &backstage))?;
    trusted(&at_origin.checkout_dir, near_fork, backstage)
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Fails if an untrusted user owns the backstage's parent directory.
///
/// That user could replace the backstage and with it git's configuration, which names programs.
/// Trusted are root, this process's user and the owner of the main checkout.
fn trusted(checkout_dir: &Path, parent: &Path, backstage: PathBuf) -> Result<PathBuf, Failure> {
    let owner_of = |path: &Path| fs::metadata(path).ok().map(|meta| meta.uid());
    let mut trusted = vec![0, process::effective_uid()];
    trusted.extend(owner_of(checkout_dir));
    match owner_of(parent).filter(|owner| !trusted.contains(owner)) {
        None => Ok(backstage),
        Some(owner) => Err(Failure::new(
            ErrorCode::PermissionDenied,
            format!(
                "user {owner} owns {} and could exchange what is in it",
                parent.display()
            ),
        )
        .hint("mount the fork at a place of your own: `tine mount NAME --at DIR`")),
    }
}

fn bind(from: &Path, to: &Path) -> Result<(), Failure> {
    namespace::bind(from, to).map_err(|error| {
        failed("mount over", to)(error)
            .cause(format!("what is to be seen there is {}", from.display()))
    })
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::io(action, path, &error)
}

/// Returns the failure for a refused mount namespace.
///
/// The hint depends on the kernel settings that refuse one.
pub fn not_permitted(error: &io::Error) -> Failure {
    let says = |name: &str, value: &str| {
        fs::read_to_string(Path::new("/proc/sys").join(name)).is_ok_and(|text| text.trim() == value)
    };
    let hint = if says("user/max_mnt_namespaces", "0") {
        "the system allows no mount namespaces: `sysctl user.max_mnt_namespaces=10000` as root"
    } else if says("user/max_user_namespaces", "0") {
        "the system allows no user namespaces, without which only root can have one: `sysctl user.max_user_namespaces=10000` as root"
    } else if says("kernel/unprivileged_userns_clone", "0") {
        "user namespaces are kept from ordinary users: `sysctl kernel.unprivileged_userns_clone=1` as root"
    } else if says("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor keeps user namespaces from ordinary users: `sysctl kernel.apparmor_restrict_unprivileged_userns=0` as root, or a profile for tine with `userns,`"
    } else {
        "run it as root; a container needs `--cap-add SYS_ADMIN`, or a seccomp profile that lets unshare and mount pass"
    };
    Failure::new(
        ErrorCode::NamespaceNotPermitted,
        "no private mount namespace can be made, which `--at-origin` needs",
    )
    .cause(error.to_string())
    .hint(hint)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn at_origin() -> AtOrigin {
        AtOrigin {
            common_dir: "/x/repo/.git".into(),
            checkout_dir: "/x/repo".into(),
            mount_dir: OsString::from_vec(b"/x/repo.forks/\xff".to_vec()).into(),
        }
    }

    #[test]
    fn what_stands_where_is_read_as_it_was_written() {
        assert_eq!(AtOrigin::decode(&at_origin().encode()), Some(at_origin()));
        assert_eq!(AtOrigin::decode(b""), None);
        assert_eq!(AtOrigin::decode(b"/a\0/b"), None);
        assert_eq!(AtOrigin::of(Path::new("/x/repo/.git")), None);
    }

    #[test]
    fn paths_in_the_main_checkout_are_the_forks() {
        let at_origin = at_origin();
        let outside = |path: &str| at_origin.outside(Path::new(path));
        assert_eq!(outside("/x/repo/a/b"), at_origin.mount_dir.join("a/b"));
        assert_eq!(outside("/x/repo-2"), PathBuf::from("/x/repo-2"));
    }
}
