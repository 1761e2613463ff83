//! Chooses and checks the directories and transports of mounts.
//!
//! It knows the default directory, the directories that are refused, and the settings in git's
//! configuration.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use clap::ValueEnum;

use crate::failure::{ErrorCode, Failure};
use tine_fuse::{TransportChoice, UnknownTransport};
use tine_git::{GitError, Repository, program};
use tine_store::default_mount_root;
use tine_store::{ForkName, ForkRecord, GitKind};
use tine_sys::process;

/// Returns the default mount place of the fork `name`.
///
/// It is under the setting `tine.mountRoot` of git's configuration, or else under
/// [`default_mount_root`]. A relative setting counts from the checkout; `~/` is expanded.
/// `repository` must have been opened just now, because the configuration can change while the
/// daemon runs.
pub(crate) fn default_dir(repository: &Repository, name: &ForkName) -> Result<PathBuf, Failure> {
    if !repository.has_setting("tine", "mountRoot") {
        return Ok(default_mount_root(repository.checkout_dir()).join(name.as_str()));
    }
    let output = program::command(repository.checkout_dir())
        .args(["config", "--type=path", "--get", "tine.mountRoot"])
        .output()
        .map_err(GitError::GitMissing)?;
    let root = match output.status.code() {
        Some(0) => {
            let value = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
            repository
                .checkout_dir()
                .join(OsString::from_vec(value.to_vec()))
        }
        // The setting is not set.
        Some(1) => default_mount_root(repository.checkout_dir()),
        _ => {
            return Err(Failure::new(
                ErrorCode::GitFailed,
                "the setting tine.mountRoot cannot be read",
            )
            .cause(String::from_utf8_lossy(&output.stderr).trim())
            .hint("`git config --get-all tine.mountRoot` shows it"));
        }
    };
    Ok(root.join(name.as_str()))
}

/// Returns the transport that git's setting `tine.transport` names.
pub(crate) fn transport(repository: &Repository) -> Result<TransportChoice, Failure> {
    let Some(text) = repository.config_string("tine.transport") else {
        return Ok(TransportChoice::default());
    };
    text.parse().map_err(|error: UnknownTransport| {
        Failure::new(
            ErrorCode::MountFailed,
            format!("the setting tine.transport is {text:?}"),
        )
        .cause(error.to_string())
        .hint("`git config tine.transport auto`")
    })
}

/// Returns the kind of git directory that git's setting `tine.git` names.
///
/// Without it a fork is a repository of its own.
pub(crate) fn git_kind(repository: &Repository) -> Result<GitKind, Failure> {
    let Some(text) = repository.config_string("tine.git") else {
        return Ok(GitKind::Own);
    };
    GitKind::from_str(&text, true).map_err(|_| {
        Failure::new(
            ErrorCode::Usage,
            format!("the setting tine.git is {text:?}"),
        )
        .hint("`git config tine.git own` or `git config tine.git linked`")
    })
}

/// Resolves `dir` and checks that the fork `name` may be mounted there.
///
/// The result is absolute and has no symlinks. It is outside the checkout and the git directory,
/// where git would see the mount. It is neither in nor around another fork's mount place. It is
/// missing, or an empty directory, or the fork's own place.
pub(crate) fn check(
    repository: &Repository,
    forks: &[ForkRecord],
    name: &ForkName,
    dir: &Path,
) -> Result<PathBuf, Failure> {
    let dir = resolve(dir)?;
    let refused = |what: String| {
        Failure::new(
            ErrorCode::MountDirRefused,
            format!("{} is not a valid place for a fork: {what}", dir.display()),
        )
        .hint(
            "choose another place with `--at DIR`, or set `tine.mountRoot` in git's configuration",
        )
    };
    if dir.starts_with(repository.common_dir()) {
        return Err(refused("it is inside the git directory".into()));
    }
    if dir.starts_with(repository.checkout_dir()) {
        return Err(refused("it is inside the checkout".into()));
    }
    for other in forks.iter().filter(|other| other.name != *name) {
        if dir.starts_with(&other.mount_dir) {
            return Err(refused(format!(
                "the fork {} has its place there",
                other.name
            )));
        }
        if other.mount_dir.starts_with(&dir) {
            return Err(refused(format!(
                "the fork {} has its place beneath it",
                other.name
            )));
        }
    }
    if let Some(owner) = foreign_owner(repository, &dir) {
        return Err(refused(format!(
            "user {owner} owns the directory around it and could exchange it"
        )));
    }
    // Mounting brings files that programs put into the fork's own place into the fork.
    let is_own = forks
        .iter()
        .any(|own| own.name == *name && own.mount_dir == dir);
    let is_free = match fs::read_dir(&dir) {
        Ok(mut entries) => is_own || entries.next().is_none(),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => true,
            ErrorKind::NotADirectory => false,
            _ => return Err(Failure::io("look into", &dir, &error)),
        },
    };
    if is_free {
        Ok(dir)
    } else {
        Err(Failure::new(
            ErrorCode::MountDirNotEmpty,
            format!("{} exists and is not an empty directory", dir.display()),
        )
        .hint("empty or remove it, or choose another place with `--at DIR`"))
    }
}

/// Returns the owner of the default root above `dir`, unless trusted.
///
/// Beside a repository in `/tmp` any user may make that directory. A place that a user chose is not
/// checked.
fn foreign_owner(repository: &Repository, dir: &Path) -> Option<u32> {
    let root = default_mount_root(repository.checkout_dir());
    let owner_of = |path: &Path| fs::metadata(path).ok().map(|meta| meta.uid());
    let owner = owner_of(&root).filter(|_| dir.starts_with(&root))?;
    let trusted = [
        Some(0),
        Some(process::effective_uid()),
        owner_of(repository.checkout_dir()),
    ];
    (!trusted.contains(&Some(owner))).then_some(owner)
}

/// Returns the absolute path without symlinks that `dir` leads to.
///
/// `dir` need not exist.
fn resolve(dir: &Path) -> Result<PathBuf, Failure> {
    let unusable = |why: &str| {
        Failure::new(
            ErrorCode::Usage,
            format!("{} is not a valid place for a fork: {why}", dir.display()),
        )
        .hint("name an absolute directory")
    };
    if !dir.is_absolute() {
        return Err(unusable("it is relative"));
    }
    if dir.as_os_str().as_bytes().contains(&0) {
        return Err(unusable("it holds a NUL byte"));
    }
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut existing = dir;
    loop {
        match existing.canonicalize() {
            Ok(mut resolved) => {
                resolved.extend(missing.iter().rev());
                return Ok(resolved);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::io("look at", existing, &error)),
        }
        if existing.is_symlink() {
            return Err(unusable("a symbolic link in it leads nowhere"));
        }
        match (existing.components().next_back(), existing.parent()) {
            (Some(Component::Normal(name)), Some(parent)) => {
                missing.push(name);
                existing = parent;
            }
            _ => return Err(unusable("it leads through a directory that does not exist")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_resolved_through_what_does() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        fs::create_dir(real.join("real")).unwrap();
        std::os::unix::fs::symlink("real", real.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", real.join("dangling")).unwrap();
        assert_eq!(
            resolve(&real.join("link/a/b")).unwrap(),
            real.join("real/a/b")
        );
        assert_eq!(resolve(&real.join("link")).unwrap(), real.join("real"));
        for bad in [
            PathBuf::from("relative"),
            real.join("dangling"),
            real.join("missing/../x"),
        ] {
            let failure = resolve(&bad).unwrap_err();
            assert_eq!(failure.code, ErrorCode::Usage, "{}", bad.display());
        }
    }

    #[test]
    fn a_fork_is_mounted_where_git_does_not_see_it() {
        use tine_git::testing::TestRepository;
        use tine_store::{ForkOptions, MountSettings, Store, UnmountPolicy};

        let place = TestRepository::new();
        place.git(&["commit", "-q", "--allow-empty", "-m", "base"]);
        let repository = place.open();
        let store = Store::open(&repository).expect("a new store");
        let name = |name: &str| ForkName::parse(name).expect("a good name");
        let root = default_mount_root(repository.checkout_dir());
        let record = store
            .create_fork(&ForkOptions {
                name: name("one"),
                git_dir: repository.common_dir().to_owned(),
                from: None,
                parent: None,
                state: None,
                branch: None,
                detached: false,
                git_kind: GitKind::default(),
                untrusted: false,
                follow: false,
                mount_dir: root.join("one"),
                mounted: false,
                settings: MountSettings::default(),
                on_unmount: UnmountPolicy::Keep,
                snapshot_every: None,
                uid: 0,
                gid: 0,
                umask: 0o022,
                carry: Default::default(),
            })
            .expect("a new fork");
        let forks = [record];
        let checked = |fork: &str, dir: &Path| check(&repository, &forks, &name(fork), dir);
        let refusal = |dir: &Path| checked("two", dir).expect_err("it is refused").code;

        let good = root.join("two");
        assert_eq!(
            default_dir(&repository, &name("two")).expect("the default"),
            good
        );
        assert_eq!(checked("two", &good).expect("it is fit"), good);
        assert_eq!(
            checked("one", &root.join("one")).expect("its own place"),
            root.join("one")
        );
        for bad in [
            repository.checkout_dir().to_owned(),
            repository.checkout_dir().join("a/b"),
            repository.common_dir().join("x"),
            root.join("one"),
            root.join("one/inner"),
            root.clone(),
        ] {
            assert_eq!(
                refusal(&bad),
                ErrorCode::MountDirRefused,
                "{}",
                bad.display()
            );
        }
        fs::create_dir_all(root.join("full/x")).expect("a directory");
        assert_eq!(refusal(&root.join("full")), ErrorCode::MountDirNotEmpty);
        fs::write(root.join("file"), "").expect("a file");
        assert_eq!(refusal(&root.join("file")), ErrorCode::MountDirNotEmpty);
        // What looks like the checkout's name is not inside it.
        let beside = PathBuf::from(format!("{}-beside", repository.checkout_dir().display()));
        assert!(checked("two", &beside).is_ok());
    }
}
