//! The repository that a store belongs to: it notices that the repository was copied or moved with
//! its store in it.
//!
//! `<store>/home` names the common directory. A store that finds itself in another one was moved,
//! or it is a copy: then the original is still there, and has the same key.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Formats, Places, Store, default_mount_root, files};
use crate::StoreError;
use tine_git::Repository;
use tine_path::text::host_path;
use tine_sys::file::is_same_file;

/// How a store came to another place than it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced {
    /// The common directory that it was in.
    pub from: PathBuf,
    /// Whether the original is still there: the mount places are its.
    pub is_copy: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Home {
    #[serde(with = "host_path")]
    common_dir: PathBuf,
    /// Where forks were mounted by default.
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

/// Looks whether the store is where it was when it was opened last.
pub(super) fn displaced(repository: &Repository, places: &Places) -> Option<Displaced> {
    let now = repository.common_dir();
    let home = read(places).filter(|home| home.common_dir != now)?;
    if is_same_file(&home.common_dir, now) {
        // Seen by another path, as through a bind mount.
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

/// A home that cannot be read says nothing: the store is at home here.
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
    /// How the repository came to another place since the store was last
    /// [settled](Store::settle_home), if it did. The mount places in the records are those of the
    /// old one.
    pub fn displaced(&self) -> Option<Displaced> {
        displaced(&self.repository, &self.places)
    }

    /// The place of a fork of a repository that was moved from `displaced.from`, where that has
    /// moved along: below the default root, or below a directory that was moved with the repository
    /// in it.
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

    /// Notes that the store belongs to the repository that it is in, and that the mount places are
    /// this one's.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub fn settle_home(&self) -> Result<(), StoreError> {
        let home = Home::of(&self.repository);
        match read(&self.places) == Some(Home::of(&self.repository)) {
            true => Ok(()),
            false => files::write_json(&self.places.home(), &home),
        }
    }
}
