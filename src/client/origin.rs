//! A fork at the main checkout's own path, for one command: `tine exec --at-origin`.
//!
//! In a mount namespace of the command's own:
//!
//! ```text
//! <main checkout>                the fork (its mount, bound there)
//! <backstage>/<repo>/.git        the common git directory, which the fork hides where it is inside the main checkout
//! <backstage>/<repo>/<name>      links to what is at the root of the fork ┐ relative paths in git's configuration,
//! <backstage>/<name>             links to what is beside the main checkout ┘ alternates and submodules lead there
//! <any worktree>/.git            a file that leads to <backstage>/<repo>/.git/worktrees/<id>; of submodules, too
//! …/.git/worktrees/<id>/gitdir   of the fork: a copy, as git may write there where it believes to be
//! ```
//!
//! The backstage is a file system in memory over an empty directory beside the main checkout.
//! `.git` of a worktree is a file, and nothing else can be mounted on it: so the real git directory
//! cannot be at its own path beneath the fork.
//!
//! Commands of tine's that run there find out by [`AtOrigin::of`]: they talk to the daemon outside
//! in its own terms, and start none, which would mount forks where nobody else sees them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::place::Place;
use tine_git::{LinkedWorktree, Repository};
use tine_ops::protocol::ForkInfo;
use tine_ops::{ErrorCode, Failure};
use tine_sys::{namespace, process};
use tine_workspace::SeenAt;
use tine_workspace::store::{BACKSTAGE_NAME, default_mount_root};

/// The configuration variable that has commands see forks at the main checkout's path.
const CONFIG_KEY: &str = "tine.atOrigin";

/// The file on the backstage that says who stands where.
const AT_ORIGIN_NAME: &str = ".tine-standing";
/// Where the backstage keeps the files that are bound over others.
const FILES_NAME: &str = ".tine-files";

/// What is where, in the terms of everybody outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtOrigin {
    /// The common git directory.
    pub common_dir: PathBuf,
    /// The main checkout, where the fork is seen.
    pub checkout_dir: PathBuf,
    /// The fork's mount.
    pub mount_dir: PathBuf,
}

impl AtOrigin {
    /// How a command stands whose repository has this common directory; `None` where everything is
    /// at its own place.
    pub fn of(common_dir: &Path) -> Option<AtOrigin> {
        let backstage = common_dir.parent()?.parent()?;
        if backstage.file_name() != Some(OsStr::new(BACKSTAGE_NAME)) {
            return None;
        }
        AtOrigin::decode(&tine_sys::file::read(&backstage.join(AT_ORIGIN_NAME)).ok()?)
    }

    /// `path` as it is called outside.
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

/// Where commands in `fork` see it, if not at its own place, as it was made or as `tine.atOrigin`
/// says. Where no main checkout can be found, and in a command that sees a fork elsewhere already,
/// it is as if nothing were asked for.
pub fn by_default(place: &Place, fork: &ForkInfo) -> Result<Option<PathBuf>, Failure> {
    let repository = place.repository()?;
    let seen_at = setting(place, fork)?;
    if AtOrigin::of(repository.common_dir()).is_some()
        || seen_at == SeenAt::Origin && main_checkout(repository).is_err()
    {
        return Ok(None);
    }
    let seen = place_of(place, fork, seen_at)?;
    if seen.is_some() {
        check(place)?;
    }
    Ok(seen)
}

fn setting(place: &Place, fork: &ForkInfo) -> Result<SeenAt, Failure> {
    Ok(match fork.settings.at_origin {
        Some(seen_at) => seen_at,
        None => match place.repository()?.config_bool(CONFIG_KEY) {
            Some(true) => SeenAt::Origin,
            _ => SeenAt::Own,
        },
    })
}

pub fn place_of(
    place: &Place,
    fork: &ForkInfo,
    seen_at: SeenAt,
) -> Result<Option<PathBuf>, Failure> {
    match seen_at {
        SeenAt::Own => Ok(None),
        SeenAt::Origin => main_checkout(place.repository()?).map(Some),
        SeenAt::Parent => parent_place(place, fork).map(Some),
    }
}

/// Where a fork can be seen, and where commands see it that say nothing of that.
pub struct SeenPlaces {
    pub by_default: SeenAt,
    /// The main checkout's path: `--at-origin`.
    pub origin: Option<PathBuf>,
    /// `--at-parent`.
    pub parent: Option<PathBuf>,
}

impl SeenPlaces {
    /// Those of `fork`.
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

/// The place of the fork that `fork` began as: of one that was made to be seen at its own parent's
/// place, that. What is configured for all forks does not count: what was built there names the
/// place itself.
fn parent_place(place: &Place, fork: &ForkInfo) -> Result<PathBuf, Failure> {
    let (forks, _) = place.connect()?.forks()?;
    let mut at = fork;
    // A name that was given again may make a circle.
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
        if parent.settings.at_origin == Some(SeenAt::Parent) {
            at = parent;
            continue;
        }
        return match parent.mount_dir.is_dir() {
            true => Ok(parent.mount_dir.clone()),
            false => Err(Failure::new(
                ErrorCode::NotMounted,
                format!(
                    "there is no directory at {}, where {} is mounted",
                    parent.mount_dir.display(),
                    parent.name
                ),
            )
            .hint(format!("`tine mount {}` makes it", parent.name))),
        };
    }
    Err(Failure::new(
        ErrorCode::NoSuchFork,
        format!("the forks that {} began as lead back to it", fork.name),
    )
    .hint("`--no-at-origin` runs the command at the fork's own path"))
}

/// The root of the fork as a command sees it that runs now, and the directory in which it runs.
/// Where `origin` is given, this process moves into a namespace where the fork is there.
pub fn place(
    place: &Place,
    fork: &ForkInfo,
    origin: Option<PathBuf>,
) -> Result<(PathBuf, PathBuf), Failure> {
    Ok(match origin {
        Some(checkout_dir) => {
            stand(place, fork, &checkout_dir)?;
            let dir = dir_like(place.cwd(), fork, &checkout_dir);
            (checkout_dir, dir)
        }
        None => (fork.mount_dir.clone(), fork.mount_dir.clone()),
    })
}

/// Refuses what is known not to work.
pub fn check(place: &Place) -> Result<(), Failure> {
    let repository = place.repository()?;
    if let Some(at_origin) = AtOrigin::of(repository.common_dir()) {
        return Err(Failure::new(
            ErrorCode::Busy,
            format!(
                "a fork stands at {} already",
                at_origin.checkout_dir.display()
            ),
        )
        .hint(
            "run the command without `--at-origin` to have it in another fork, or from outside",
        ));
    }
    namespace::try_private_mounts().map_err(|error| not_permitted(&error))
}

/// The main checkout of `repository`, if that is where git finds the repository from.
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

/// Moves this process into a namespace where `fork`, which is mounted, stands at `checkout_dir`.
/// Where that fails nothing is left of it: the process must end.
pub fn stand(place: &Place, fork: &ForkInfo, checkout_dir: &Path) -> Result<(), Failure> {
    let repository = place.repository()?;
    let common_dir = repository.common_dir();
    let at_origin = AtOrigin {
        common_dir: common_dir.to_owned(),
        checkout_dir: checkout_dir.to_owned(),
        mount_dir: fork.mount_dir.clone(),
    };
    let dot_gits = LinkedWorktree::dot_gits(common_dir)?;
    let backstage = make_backstage(&at_origin)?;
    namespace::enter_private_mounts().map_err(|error| not_permitted(&error))?;
    set_up(&at_origin, &backstage, &dot_gits)
}

/// The place in the fork, which stands at `checkout_dir`, that `cwd` is in the main checkout or in
/// the fork; the root where it is in neither or the fork has no such directory.
pub fn dir_like(cwd: &Path, fork: &ForkInfo, checkout_dir: &Path) -> PathBuf {
    [checkout_dir, &fork.mount_dir]
        .iter()
        .find_map(|root| cwd.strip_prefix(root).ok())
        // Joining nothing would add a slash.
        .filter(|rest| !rest.as_os_str().is_empty())
        .map(|rest| checkout_dir.join(rest))
        .filter(|dir| dir.is_dir())
        .unwrap_or_else(|| checkout_dir.to_owned())
}

fn set_up(
    at_origin: &AtOrigin,
    backstage: &Path,
    dot_gits: &[(PathBuf, PathBuf)],
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
        // Of a fork that is not mounted there is none.
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
    // With what was bound over its `.git`.
    bind(&at_origin.mount_dir, &at_origin.checkout_dir)?;
    if at_origin.common_dir.parent() == Some(&at_origin.checkout_dir) {
        link_names(&at_origin.checkout_dir, &like_checkout)?;
        if let Some(parent) = at_origin.checkout_dir.parent() {
            link_names(parent, backstage)?;
        }
    }
    let said = backstage.join(AT_ORIGIN_NAME);
    fs::write(&said, at_origin.encode()).map_err(failed("write", &said))
}

/// Makes each name in `dir` a link in `at`, unless it is taken there. Of a directory that cannot be
/// listed there are none.
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

/// The empty directory that the backstage is mounted over: beside the main checkout, where the
/// paths that git's conditional includes look at are much the same, or else beside the fork. It
/// stays, for all commands.
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

/// Nobody else may exchange what is mounted there: it holds git's configuration, which names
/// programs.
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

/// Why no namespace can be had, as far as the system tells.
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
