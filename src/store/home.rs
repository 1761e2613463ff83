//! Detection of a repository that was moved or copied with its store.
//!
//! `<store>/home` names the common directory. If the store is in another one, it was moved or it is
//! a copy. Of a copy, the original still exists and has the same key.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::format::Formats;
use super::places::Places;
use super::{Store, default_mount_root, files};
use crate::StoreError;
use tine_git::Repository;
use tine_path::text::host_path;
use tine_sys::file::is_same_file;

/// Move of a store away from its recorded place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced {
    /// Common directory that the store was in.
    pub from: PathBuf,
    /// True if the original still exists. Then the mount directories belong to it.
    pub is_copy: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Home {
    #[serde(with = "host_path")]
    common_dir: PathBuf,
    /// Default directory of mounts.
    #[serde(with = "host_path")]
    mount_root: PathBuf,
}

impl Home {
    fn of(repository: &Repository) -> Home {
        Home {
            common_dir: repository.common_dir().to_owned(),
            mount_root: default_mount_root(repository.checkout_dir()),
        }
    }
}

/// Checks whether the store is where it was when last opened.
pub(super) fn displaced(repository: &Repository, places: &Places) -> Option<Displaced> {
    let now = repository.common_dir();
    let home = read(places).filter(|home| home.common_dir != now)?;
    if is_same_file(&home.common_dir, now) {
        // The same directory by another path, as through a bind mount.
        return None;
    }
    let original = Places {
        root: home.common_dir.join("tine"),
    };
    Some(Displaced {
        is_copy: key(&original).is_some_and(|original| Some(original) == key(places)),
        from: home.common_dir,
    })
}

/// Reads the recorded home. An unreadable one counts as none.
fn read(places: &Places) -> Option<Home> {
    match files::read_json::<Home>(&places.home()) {
        Ok(home) => home,
        Err(error) => {
            log::warn!("where the store was is not known: {error}");
            None
        }
    }
}

fn key(places: &Places) -> Option<String> {
    Formats::read(places)
        .chosen()
        .map(|format| format.ino_key.clone())
}

impl Store {
    /// Returns the move of the repository since [`Store::settle_home`], if any.
    ///
    /// The mount directories in the records are then those of the old place.
    pub fn displaced(&self) -> Option<Displaced> {
        displaced(&self.repository, &self.places)
    }

    /// Returns the new mount directory of a fork whose repository was moved.
    ///
    /// A directory below the default root moves with that root. A directory below one that was
    /// moved together with the repository moves with it. Others stay.
    pub fn followed(&self, displaced: &Displaced, mount_dir: &Path) -> PathBuf {
        let Some(home) = read(&self.places) else {
            return mount_dir.to_owned();
        };
        let now = Home::of(&self.repository);
        if let Ok(rest) = mount_dir.strip_prefix(&home.mount_root) {
            return now.mount_root.join(rest);
        }
        let (mut old, mut new) = (displaced.from.as_path(), now.common_dir.as_path());
        while let (Some(one), Some(other)) = (old.file_name(), new.file_name())
            && one == other
            && let (Some(one), Some(other)) = (old.parent(), new.parent())
        {
            (old, new) = (one, other);
        }
        let is_gone = mount_dir.parent().is_none_or(|parent| !parent.exists());
        let along = mount_dir.strip_prefix(old).map(|rest| new.join(rest));
        match along {
            Ok(along) if is_gone && along.parent().is_some_and(Path::exists) => along,
            _ => mount_dir.to_owned(),
        }
    }

    /// Records the repository that the store is in as its home.
    ///
    /// From then on the mount directories in the records belong to this repository.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the home cannot be written.
    pub fn settle_home(&self) -> Result<(), StoreError> {
        let home = Home::of(&self.repository);
        if read(&self.places) == Some(Home::of(&self.repository)) {
            Ok(())
        } else {
            files::write_json(&self.places.home(), &home)
        }
    }
}
