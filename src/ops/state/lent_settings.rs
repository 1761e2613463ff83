//! Settings of the main repository that forks see.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use tine_dotgit::SharedSettings;
use tine_git::Repository;
use tine_git::own::settings::shared_settings;

/// Time after which files that the configuration includes are read again.
const LIFETIME: Duration = Duration::from_secs(10);

/// Version of a file: inode number, size, and time of the last change.
type Version = Option<(u64, u64, i64, i64)>;

/// Settings, and the versions of the files they are from.
struct Known {
    versions: [Version; 2],
    read: Instant,
    settings: Option<Vec<u8>>,
}

/// Returns the function that lends the settings of `repository` to a fork.
pub(crate) fn lender(repository: &Repository, untrusted: bool) -> SharedSettings {
    let repository = repository.clone();
    let known: Mutex<Option<Known>> = Mutex::new(None);
    Arc::new(move || {
        let dir = repository.common_dir();
        let versions = ["config", "config.worktree"].map(|name| version(&dir.join(name)));
        let mut known = known.lock();
        if let Some(known) = known.as_ref()
            && known.versions == versions
            && known.read.elapsed() < LIFETIME
        {
            return known.settings.clone();
        }
        let settings = shared_settings(&repository, untrusted);
        let settings = settings
            .inspect_err(|error| log::warn!("the settings that forks see: {error}"))
            .ok();
        *known = Some(Known {
            versions,
            read: Instant::now(),
            settings: settings.clone(),
        });
        settings
    })
}

fn version(path: &Path) -> Version {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}
