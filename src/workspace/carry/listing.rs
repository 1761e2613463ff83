//! Listing carried directories.
//!
//! A name's place in a listing is a hash of the name, so that it stays there while others come and
//! go, and nothing must be remembered for a listing to go on.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{TICK, age};
use super::{CarriedNode, Carry, found_or_none, host_error};
use crate::FsError;
use tine_attr::{FileKind, Timestamp};
use tine_path::{EntryName, RepoPath};
use tine_sys::beneath::{self, Access, HostStat};

/// Set in every cookie of a carried name: above those of all others, and below 2⁶³.
const COOKIE_BITS: u64 = 3 << 61;

/// Decoded directories that are kept.
const MAX_DIRS: usize = 32;
/// Larger ones are read anew for each part of a listing only if nothing else will do; so many names
/// may be kept at all.
const MAX_NAMES: usize = 200_000;

/// A name in a carried directory.
#[derive(Clone, Debug)]
pub(crate) struct CarriedName {
    pub cookie: u64,
    pub name: EntryName,
}

/// When a directory was read, by what changes with it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    ino: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

struct Decoded {
    path: RepoPath,
    moment: Moment,
    /// Sorted by cookie.
    names: Arc<[CarriedName]>,
}

/// Decoded directories, the last used at the end.
#[derive(Default)]
pub(super) struct Dirs {
    kept: Mutex<VecDeque<Decoded>>,
}

impl Carry {
    /// The names of carried roots in the directory at this base path, sorted by cookie. Not all
    /// need be there.
    pub(crate) fn root_names(&self, dir: &RepoPath) -> Vec<CarriedName> {
        let roots = self.roots.get(dir).into_iter().flatten();
        let mut names: Vec<CarriedName> = roots
            .into_iter()
            .map(|root| self.listed(root.name.clone()))
            .collect();
        names.sort_unstable_by_key(|listed| listed.cookie);
        names
    }

    /// The names in the carried directory at `dir`, sorted by cookie: of all that is there, also
    /// what is not carried.
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

    /// The names in the directory at `dir`, which is now as `stat` says: those that are kept, or
    /// else what `list` gives.
    fn decoded(
        &self,
        dir: &RepoPath,
        stat: &HostStat,
        list: impl FnOnce() -> Result<Vec<EntryName>, FsError>,
    ) -> Result<Arc<[CarriedName]>, FsError> {
        let moment = Moment {
            ino: stat.ino,
            mtime: stat.mtime,
            ctime: stat.ctime,
        };
        let mut kept = self.dirs.kept.lock();
        if let Some(position) = kept.iter().position(|decoded| decoded.path == *dir)
            && let Some(decoded) = kept.remove(position)
            // What changed just now may change again at the same time.
            && decoded.moment == moment
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
            moment,
            names: names.clone(),
        });
        let mut total: usize = kept.iter().map(|decoded| decoded.names.len()).sum();
        while kept.len() > MAX_DIRS || total > MAX_NAMES && kept.len() > 1 {
            total -= kept.pop_front().map_or(0, |decoded| decoded.names.len());
        }
        Ok(names)
    }

    /// Names in the carried directory at `dir` with the nodes that they lead to, for as many as
    /// `take` wants.
    pub(crate) fn nodes_in(
        &self,
        dir: &RepoPath,
        names: &[CarriedName],
    ) -> Result<Vec<(CarriedName, CarriedNode)>, FsError> {
        // What a generation shows is there whatever the main checkout has, also where that has no
        // such directory any more.
        let opened = match self.shown_by(dir) {
            Some(_) => None,
            None => found_or_none(beneath::open(&self.top, dir.as_path(), Access::Look))?,
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

    /// The place of a name in the listing of any carried directory.
    pub(crate) fn cookie(&self, name: &EntryName) -> u64 {
        let path = RepoPath::root().join(name);
        COOKIE_BITS | self.hasher.ino(&path).0 >> 2
    }
}
