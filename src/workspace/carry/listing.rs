//! Listings of carried directories.
//!
//! A name's position in a listing is a hash of the name. So it is stable while other names are
//! added and removed, and a listing continues without stored state.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{TICK, age};
use super::{CarriedNode, Carry, found_or_none, host_error};
use crate::FsError;
use tine_attr::{FileKind, Timestamp};
use tine_path::{EntryName, RepoPath};
use tine_sys::beneath::{self, Access, HostStat};

/// Bits set in every cookie of a carried name.
///
/// Such cookies are above all others and below 2⁶³.
const COOKIE_BITS: u64 = 3 << 61;

/// Maximum number of decoded directories kept.
const MAX_DIRS: usize = 32;
/// Maximum number of names in all decoded directories kept.
///
/// A single larger directory is kept alone.
const MAX_NAMES: usize = 200_000;

/// Name in a carried directory.
#[derive(Clone, Debug)]
pub(crate) struct CarriedName {
    pub cookie: u64,
    pub name: EntryName,
}

/// Attributes that change when a directory changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DirStamp {
    ino: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

struct Decoded {
    path: RepoPath,
    stamp: DirStamp,
    /// Sorted by cookie.
    names: Arc<[CarriedName]>,
}

/// Cache of decoded directories, the last used at the end.
#[derive(Default)]
pub(super) struct Dirs {
    kept: Mutex<VecDeque<Decoded>>,
}

impl Carry {
    /// Returns the carried roots in a base directory, sorted by cookie.
    ///
    /// Some of them may not exist.
    pub(crate) fn root_names(&self, dir: &RepoPath) -> Vec<CarriedName> {
        let roots = self.roots.get(dir).into_iter().flatten();
        let mut names: Vec<CarriedName> = roots
            .into_iter()
            .map(|root| self.listed(root.name.clone()))
            .collect();
        names.sort_unstable_by_key(|listed| listed.cookie);
        names
    }

    /// Lists the names in the carried directory `dir`, sorted by cookie.
    ///
    /// The list includes names that are not carried.
    pub(crate) fn names(&self, dir: &RepoPath) -> Result<Arc<[CarriedName]>, FsError> {
        if let Some(frozen) = self.shown_by(dir) {
            let Some(stat) = frozen.stat(dir) else {
                return Ok(Arc::new([]));
            };
            let names = || {
                Ok(frozen
                    .generation
                    .names(frozen.below(dir))
                    .cloned()
                    .collect())
            };
            return self.decoded(dir, &stat, names);
        }
        let opened = beneath::open(&self.top, dir.as_path(), Access::Read);
        let Some(file) = found_or_none(opened)? else {
            return Ok(Arc::new([]));
        };
        let stat = beneath::stat(&file).map_err(host_error)?;
        if stat.kind != FileKind::Directory || stat.dev != self.device {
            return Ok(Arc::new([]));
        }
        self.decoded(dir, &stat, || {
            let listed = beneath::list(file).map_err(host_error)?.into_iter();
            let is_carried = |kind: &Option<FileKind>| {
                !matches!(
                    kind,
                    Some(
                        FileKind::Fifo
                            | FileKind::Socket
                            | FileKind::CharDevice
                            | FileKind::BlockDevice
                    )
                )
            };
            let carried = listed.filter(|(_, kind)| is_carried(kind));
            Ok(carried
                .filter_map(|(name, _)| EntryName::new(name).ok())
                .collect())
        })
    }

    /// Returns the names in `dir` from the cache, or else from `list`.
    ///
    /// `stat` has the directory's current attributes.
    fn decoded(
        &self,
        dir: &RepoPath,
        stat: &HostStat,
        list: impl FnOnce() -> Result<Vec<EntryName>, FsError>,
    ) -> Result<Arc<[CarriedName]>, FsError> {
        let stamp = DirStamp {
            ino: stat.ino,
            mtime: stat.mtime,
            ctime: stat.ctime,
        };
        let mut kept = self.dirs.kept.lock();
        if let Some(position) = kept.iter().position(|decoded| decoded.path == *dir)
            && let Some(decoded) = kept.remove(position)
            // A directory that changed just now may change again without a new time.
            && decoded.stamp == stamp
            && age(stat.ctime).is_some_and(|age| age > TICK)
        {
            let names = decoded.names.clone();
            kept.push_back(decoded);
            return Ok(names);
        }
        drop(kept);
        let mut names: Vec<CarriedName> =
            list()?.into_iter().map(|name| self.listed(name)).collect();
        names.sort_unstable_by_key(|listed| listed.cookie);
        let names: Arc<[CarriedName]> = names.into();
        let mut kept = self.dirs.kept.lock();
        kept.push_back(Decoded {
            path: dir.clone(),
            stamp,
            names: names.clone(),
        });
        let mut total: usize = kept.iter().map(|decoded| decoded.names.len()).sum();
        while kept.len() > MAX_DIRS || total > MAX_NAMES && kept.len() > 1 {
            total -= kept.pop_front().map_or(0, |decoded| decoded.names.len());
        }
        Ok(names)
    }

    /// Looks up the nodes of `names` in the carried directory `dir`.
    ///
    /// Names that are not carried are left out.
    pub(crate) fn nodes_in(
        &self,
        dir: &RepoPath,
        names: &[CarriedName],
    ) -> Result<Vec<(CarriedName, CarriedNode)>, FsError> {
        // A generation is shown even if the main checkout no longer has such a directory.
        let opened = match self.shown_by(dir) {
            Some(_) => None,
            None => found_or_none(beneath::open(&self.top, dir.as_path(), Access::Attributes))?,
        };
        let mut nodes = Vec::with_capacity(names.len());
        for listed in names {
            let path = dir.join(&listed.name);
            let node = match (&opened, self.shown_by(&path)) {
                (_, Some(_)) => self.node(&path)?,
                (Some(opened), None) => {
                    let stat = found_or_none(beneath::stat_in(opened, listed.name.as_bytes()))?;
                    stat.and_then(|stat| self.shown(path, &stat))
                }
                (None, None) => None,
            };
            nodes.extend(node.map(|node| (listed.clone(), node)));
        }
        Ok(nodes)
    }

    fn listed(&self, name: EntryName) -> CarriedName {
        CarriedName {
            cookie: self.cookie(&name),
            name,
        }
    }

    /// Returns a name's position in listings of carried directories.
    pub(crate) fn cookie(&self, name: &EntryName) -> u64 {
        let path = RepoPath::root().join(name);
        COOKIE_BITS | self.hasher.ino(&path).0 >> 2
    }
}
