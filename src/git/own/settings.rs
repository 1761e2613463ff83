//! Settings of a fork: what it shares with the main repository, and its own file.
//!
//! git in a fork reads the fork's own `config`. Its first line includes `tine/config`, which the
//! daemon serves: the main repository's settings without credentials. A later line wins, so that
//! the fork's own settings override shared ones.
//!
//! Remotes, branches and submodules are copied into the fork's own file instead: git commands
//! change and remove their settings, which they cannot in an included file.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

mod known;
pub mod pattern;
pub mod refused;
mod rules;
pub mod text;

pub(crate) use self::known::KnownSettings;
use self::rules::{COPIED, LEFT_OUT, without_secrets};
use self::text::{KeyParts, Setting, append, parse};
use crate::{GitError, Repository};

/// Path of the shared settings in the fork's own git directory.
pub const SHARED_PATH: &str = "tine/config";

/// Key of the directory of hooks.
const HOOKS_KEY: &[u8] = b"core.hookspath";

/// Key of the line that includes them.
const INCLUDE_KEY: &[u8] = b"include.path";

/// Returns the main repository's configuration as a fork may see it.
///
/// The text is that of a configuration file, with all included files resolved and no credentials.
/// Conditional includes are those that hold in the main checkout. An untrusted fork gets the main
/// checkout's hooks and not its own. A setting that cannot be written
/// is left out and logged. Blocks while git reads the files.
///
/// # Errors
/// [`GitError::GitFailed`] if git cannot read the configuration, [`GitError::GitMissing`] if git
/// cannot be run.
pub fn shared_settings(repository: &Repository, untrusted: bool) -> Result<Vec<u8>, GitError> {
    let settings = main_settings(repository)?;
    Ok(shared_of(repository, &settings, untrusted))
}

/// Returns the main repository's settings, at most ten seconds old.
///
/// A change of its own configuration file is always seen. The result is the same allocation for as
/// long as nothing changes. Blocks while git reads the files.
///
/// # Errors
/// Fails as [`shared_settings`].
pub fn main_settings(repository: &Repository) -> Result<Arc<[Setting]>, GitError> {
    repository.known_settings().of(repository)
}

/// Returns the text of [`shared_settings`] for given settings of the main repository.
pub fn shared_of(repository: &Repository, settings: &[Setting], untrusted: bool) -> Vec<u8> {
    let mut text = b"# Settings of the main repository. tine writes this file.\n".to_vec();
    for setting in settings.iter().cloned() {
        let Some(mut setting) = as_shared(setting).filter(|setting| !is_copied(setting)) else {
            continue;
        };
        if untrusted && setting.key.eq_ignore_ascii_case(HOOKS_KEY) {
            let Some(dir) = hooks_in_main(repository, setting.value.as_deref()) else {
                continue;
            };
            setting.value = Some(dir);
        }
        if !append(&mut text, &setting) {
            let key = String::from_utf8_lossy(&setting.key);
            log::warn!("the setting {key:?} is left out in forks: no file can hold it");
        }
    }
    text
}

/// Returns a new fork's settings of remotes, branches and submodules.
///
/// A relative path to a remote becomes absolute: the fork is elsewhere.
fn copied_settings(repository: &Repository) -> Result<Vec<Setting>, GitError> {
    let settings = repository.known_settings().read(repository)?;
    let shared = settings.iter().cloned().filter_map(as_shared);
    let mut copied: Vec<Setting> = shared.filter(is_copied).collect();
    for setting in &mut copied {
        let key = KeyParts::of(&setting.key);
        let is_url = key.section == b"remote" && matches!(&key.variable[..], b"url" | b"pushurl");
        if is_url && let Some(url) = setting.value.as_mut().filter(|url| is_relative(url)) {
            let path = repository.checkout_dir().join(OsStr::from_bytes(url));
            let path = path.canonicalize().unwrap_or(path);
            *url = path.into_os_string().into_vec();
        }
    }
    Ok(copied)
}

/// Returns whether git takes a URL for a relative path.
fn is_relative(url: &[u8]) -> bool {
    let first = url.split(|&byte| byte == b'/').next().unwrap_or_default();
    !url.is_empty() && !first.is_empty() && !first.contains(&b':')
}

fn is_copied(setting: &Setting) -> bool {
    let key = KeyParts::of(&setting.key);
    COPIED.iter().any(|pattern| pattern.matches(&key))
}

/// Returns the main checkout's directory of hooks, for an untrusted fork.
///
/// A relative path would lead to files that programs in the fork may have changed.
fn hooks_in_main(repository: &Repository, value: Option<&[u8]>) -> Option<Vec<u8>> {
    let value = value?;
    if value.starts_with(b"/") || value.starts_with(b"~") || value.starts_with(b"%(prefix)") {
        return Some(value.to_vec());
    }
    let checkout = repository.main_checkout()?;
    Some(
        checkout
            .join(OsStr::from_bytes(value))
            .into_os_string()
            .into_vec(),
    )
}

/// Returns a setting as a fork may see it.
///
/// Returns `None` if the fork must not have it.
fn as_shared(mut setting: Setting) -> Option<Setting> {
    let key = KeyParts::of(&setting.key);
    if LEFT_OUT.iter().any(|row| row.pattern.matches(&key)) {
        return None;
    }
    setting.key = without_secrets(&setting.key);
    setting.value = setting.value.map(|value| without_secrets(&value));
    Some(setting)
}

/// Choices for a fork's own configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSettings {
    /// Value of `extensions.objectFormat`, if the main repository sets it.
    ///
    /// git does not read the extensions from included files.
    pub object_format: Option<Vec<u8>>,
    /// Remote that provides missing objects (`extensions.partialClone`).
    pub partial_clone: Option<Vec<u8>>,
    /// True if the executable bit counts (`core.fileMode`).
    pub file_mode: bool,
    /// True if the fork's files may be symbolic links.
    pub symlinks: bool,
    /// True if names differ by more than letter case only.
    pub ignore_case: bool,
    /// Command of `core.fsmonitor`, if git shall ask for changes.
    pub monitor_command: Option<Vec<u8>>,
    /// Settings that are copied from the main repository.
    pub copied: Vec<Setting>,
}

impl OwnSettings {
    /// Returns the choices for a fork of `repository` in a mount.
    ///
    /// Blocks while git reads the configuration.
    ///
    /// # Errors
    /// Fails as [`shared_settings`].
    pub fn for_fork_of(
        repository: &Repository,
        monitor_command: Option<Vec<u8>>,
    ) -> Result<OwnSettings, GitError> {
        let is_sha256 = repository.hash_kind() == gix::hash::Kind::Sha256;
        Ok(OwnSettings {
            object_format: is_sha256.then(|| b"sha256".to_vec()),
            partial_clone: repository
                .promisor_remote()
                .map(|remote| remote.as_bytes().to_vec()),
            file_mode: repository.config_bool("core.fileMode") != Some(false),
            symlinks: true,
            ignore_case: false,
            monitor_command,
            copied: copied_settings(repository)?,
        })
    }
}

/// Command that asks the mount for changed paths, with git's arguments.
///
/// It needs only a shell and `cat`, so it works where neither tine nor its socket is. Without an
/// answer, git looks at every file.
pub const MONITOR_COMMAND: &[u8] = b"exec cat \".git/tine/changed/$2\" 2>/dev/null #";

/// Returns the first `config` of a fork's own git directory.
///
/// The include comes first, so that the fork's own settings win.
pub fn own_settings(choices: &OwnSettings) -> Vec<u8> {
    let boolean = |value: bool| if value { "true" } else { "false" };
    let has_extensions = choices.object_format.is_some() || choices.partial_clone.is_some();
    let mut lines: Vec<(&str, &[u8])> = vec![
        ("include.path", SHARED_PATH.as_bytes()),
        (
            "core.repositoryformatversion",
            if has_extensions { b"1" } else { b"0" },
        ),
    ];
    if let Some(format) = &choices.object_format {
        lines.push(("extensions.objectformat", format));
    }
    if let Some(remote) = &choices.partial_clone {
        lines.push(("extensions.partialclone", remote));
    }
    lines.extend([
        ("core.bare", boolean(false).as_bytes()),
        ("core.filemode", boolean(choices.file_mode).as_bytes()),
        ("core.logallrefupdates", b"true"),
        ("core.symlinks", boolean(choices.symlinks).as_bytes()),
        ("core.ignorecase", boolean(choices.ignore_case).as_bytes()),
    ]);
    if let Some(command) = &choices.monitor_command {
        lines.extend([
            ("core.fsmonitor", command.as_slice()),
            ("core.fsmonitorhookversion", b"2"),
            ("core.untrackedcache", b"true"),
            ("fsmonitor.allowremote", b"true"),
        ]);
    }
    let own = lines.into_iter().map(|(key, value)| Setting {
        key: key.as_bytes().to_vec(),
        value: Some(value.to_vec()),
    });
    let mut text = Vec::new();
    for setting in own.chain(choices.copied.iter().cloned()) {
        if !append(&mut text, &setting) {
            let key = String::from_utf8_lossy(&setting.key);
            log::warn!("the setting {key:?} is left out of a fork: no file can hold it");
        }
    }
    text
}

/// Settings of a sparse checkout, which each worktree has.
pub(super) const SPARSE_KEYS: [&[u8]; 3] = [
    b"core.sparsecheckout",
    b"core.sparsecheckoutcone",
    b"index.sparse",
];

/// Returns whether `content` has other settings than `first`.
///
/// `first` is the configuration that a new fork gets. Settings of a sparse checkout do not count.
pub(super) fn own_in(content: &[u8], first: &[u8]) -> bool {
    let counted = |content: &[u8]| -> Vec<Setting> {
        let is_sparse = |setting: &Setting| {
            SPARSE_KEYS.contains(&&setting.key[..]) || setting.key == b"extensions.worktreeconfig"
        };
        // git sets the version with the extension.
        let is_version = |setting: &Setting| setting.key == b"core.repositoryformatversion";
        let mut settings = parse(content).0;
        settings.retain(|setting| !is_sparse(setting) && !is_version(setting));
        settings.sort_by(|one, other| (&one.key, &one.value).cmp(&(&other.key, &other.value)));
        settings
    };
    counted(content) != counted(first)
}

/// Returns whether `content` is the configuration of a fork's own git directory.
///
/// It is if its first setting includes the shared settings.
pub fn is_own(content: &[u8]) -> bool {
    let (settings, _) = parse(content);
    settings.first().is_some_and(|first| {
        first.key == INCLUDE_KEY && first.value.as_deref() == Some(SHARED_PATH.as_bytes())
    })
}

#[cfg(test)]
mod tests;
