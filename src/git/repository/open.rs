//! Search for a repository, and the checks when it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix::config::file::Metadata;

use crate::GitError;
use crate::error::with_causes;

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
pub(crate) const NO_PACK_SLOTS: gix::odb::store::init::Slots =
    gix::odb::store::init::Slots::Given(0);

/// Returns the common directory of the worktree with `git_dir`.
///
/// See `commondir` in gitrepository-layout(5).
pub(super) fn common_dir_of(git_dir: &Path) -> Result<PathBuf, GitError> {
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
pub(super) fn open_shared(
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
pub(super) fn check_format(config: &gix::config::File) -> Result<(), String> {
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
pub(super) fn checkout_dir(
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
pub(super) fn promisor_remote(config: &gix::config::File) -> Option<String> {
    if let Some(name) = config.string_filter("extensions.partialClone", is_local) {
        return Some(name.to_string());
    }
    config.sections_by_name("remote")?.find_map(|section| {
        let name = section.header().subsection_name()?.to_string();
        let key = format!("remote.{name}.promisor");
        matches!(config.boolean(key.as_str()), Ok(Some(true))).then_some(name)
    })
}

/// Finds the git directory and worktree that contain `dir`, searching upwards.
///
/// `GIT_CEILING_DIRECTORIES` ends the search, as in git.
pub(super) fn upwards(dir: &Path) -> Result<(PathBuf, Option<PathBuf>), GitError> {
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

pub(super) fn canonical(git_dir: PathBuf) -> Result<PathBuf, GitError> {
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
