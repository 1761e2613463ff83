//! The main repository's settings, as git reads them, kept for a while.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::text::Setting;
use crate::{GitError, Repository, program};

/// Time after which files that the configuration includes are read again.
const LIFETIME: Duration = Duration::from_secs(10);

/// Version of a file: inode number, size, and time of the last change.
type Version = Option<(u64, u64, i64, i64)>;

/// Settings of a repository that were read last.
#[derive(Debug, Default)]
pub(crate) struct KnownSettings(Mutex<Option<Known>>);

/// Settings, and the versions of the files they are from.
#[derive(Debug)]
struct Known {
    versions: [Version; 2],
    read: Instant,
    settings: Arc<[Setting]>,
}

impl KnownSettings {
    /// Returns the settings, and reads them if they may have changed.
    pub(super) fn of(&self, repository: &Repository) -> Result<Arc<[Setting]>, GitError> {
        let versions = versions(repository.common_dir());
        if let Some(known) = &*self.0.lock()
            && known.versions == versions
            && known.read.elapsed() < LIFETIME
        {
            return Ok(known.settings.clone());
        }
        self.read(repository)
    }

    /// Reads the settings in git's order.
    pub(super) fn read(&self, repository: &Repository) -> Result<Arc<[Setting]>, GitError> {
        let common_dir = repository.common_dir();
        let versions = versions(common_dir);
        let mut settings = listed(repository, "--local")?;
        if repository.config_bool("extensions.worktreeConfig") == Some(true)
            && common_dir.join("config.worktree").exists()
        {
            settings.extend(listed(repository, "--worktree")?);
        }
        let mut known = self.0.lock();
        let settings: Arc<[Setting]> = match &*known {
            // Who has made something of them finds that they are the same.
            Some(known) if *known.settings == *settings => known.settings.clone(),
            _ => settings.into(),
        };
        *known = Some(Known {
            versions,
            read: Instant::now(),
            settings: settings.clone(),
        });
        Ok(settings)
    }
}

fn versions(common_dir: &Path) -> [Version; 2] {
    ["config", "config.worktree"].map(|name| {
        let meta = fs::metadata(common_dir.join(name)).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    })
}

fn listed(repository: &Repository, scope: &str) -> Result<Vec<Setting>, GitError> {
    let mut command = program::command(repository.common_dir());
    command.env("GIT_DIR", repository.common_dir()).args([
        "config",
        scope,
        "--includes",
        "--list",
        "-z",
    ]);
    let output = program::run(&mut command, b"")?;
    let entries = output.split(|&byte| byte == 0);
    let settings = entries.filter(|entry| !entry.is_empty()).map(|entry| {
        let mut parts = entry.splitn(2, |&byte| byte == b'\n');
        Setting {
            key: parts.next().unwrap_or_default().to_vec(),
            value: parts.next().map(<[u8]>::to_vec),
        }
    });
    Ok(settings.collect())
}
