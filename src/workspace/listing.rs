//! Listing directories without a handle: a cookie alone says where to go on.
//!
//! The names of each layer come first, from the top down and in each the last that arrived first,
//! then the base's, numbered by their place in the immutable base directory, then what is carried,
//! numbered by a hash of the name. A name is listed once: at the place it has in the lowest of them
//! that speaks of it (of base, carry and layers), and leads to what the topmost layer says. So a
//! name keeps its place while what it leads to is replaced, and entries that come and go never move
//! the others.
//!
//! A name that is made comes before all others. So a program that makes or renames a file for each
//! entry it reads never meets its own, and its listing ends.
//!
//! ```text
//! 1  .      2  ..      (1 << 62) - ((1 + k) << 40 | n)  the n-th arrival in layer k from the bottom
//! 1 << 62 | i  base entry i      3 << 61 | hash  carried name
//! ```
//!
//! What is merged of several layers counts as so many, and names keep their numbers in it.

use std::sync::Arc;

use super::carried::{CarriedDir, found};
use super::carry::CarriedName;
use super::error::FsError;
use super::fs::{Found, Place, State, Workspace};
use super::ops::DirEntry;
use tine_attr::{Attr, FileKind, Ino};
use tine_layer::index::ARRIVALS;
use tine_layer::{Dentry, DirDelta};
use tine_path::EntryName;

const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const FIRST_BASE: u64 = 1 << 62;
/// Cookies of carried names: see [`Carry::cookie`](super::carry::Carry::cookie).
const FIRST_CARRIED: u64 = 3 << 61;

/// Entries gathered under one hold of the lock.
const BATCH: usize = 256;

/// One entry before its attributes are known.
struct Listed {
    name: EntryName,
    found: Found,
    kind: FileKind,
    cookie: u64,
    /// Of nodes that a layer names; a base node's are read without the lock.
    attr: Option<Attr>,
}

/// `.` or `..`, which are no names.
pub(crate) const DOT_NAMES: [&str; 2] = [".", ".."];

impl Workspace {
    /// Lists a directory from `cookie` (0: the beginning) until `add` answers false. `.` and `..`
    /// are not listed, but have their cookies: see [`Workspace::dots`].
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), FsError> {
        self.list(ino, cookie, false, &mut |listed| {
            let Listed {
                name,
                found,
                kind,
                cookie,
                ..
            } = listed;
            Ok(add(DirEntry {
                name,
                ino: found.ino,
                kind,
                cookie,
                is_carried: matches!(found.place, Place::Carried(_)),
            }))
        })
    }

    /// As [`Workspace::readdir`], with attributes; counts one lookup for each entry that `add`
    /// took.
    pub fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(DirEntry, Attr) -> bool,
    ) -> Result<(), FsError> {
        let base = self.read_state().base.clone();
        self.list(ino, cookie, true, &mut |listed| {
            let Listed {
                name,
                found,
                kind,
                cookie,
                attr,
            } = listed;
            let attr = match (attr, &found.place) {
                (Some(attr), _) => attr,
                (None, Place::Base(node)) => self.base_attr(&base, node)?,
                (None, Place::Carried(node)) => node.attr,
                (None, Place::Layer | Place::BaseRoot) => self.getattr(found.ino)?,
            };
            let taken = add(
                DirEntry {
                    name,
                    ino: found.ino,
                    kind,
                    cookie,
                    is_carried: matches!(found.place, Place::Carried(_)),
                },
                attr,
            );
            if taken {
                self.remember(&found)?;
            }
            Ok(taken)
        })
    }

    /// The entries `.` and `..` with their cookies, as far as `cookie` has not passed them: numbers
    /// and cookies.
    pub fn dots(&self, ino: Ino, cookie: u64) -> Result<Vec<(&'static str, Ino, u64)>, FsError> {
        let state = self.read_state();
        let dir = self.find_dir(&state, ino)?;
        let parent = self.parent_of(&state, &dir)?;
        let dots = [(DOT_NAMES[0], ino, DOT), (DOT_NAMES[1], parent, DOT_DOT)];
        Ok(dots
            .into_iter()
            .filter(|(_, _, dot)| *dot > cookie)
            .collect())
    }

    fn list(
        &self,
        ino: Ino,
        mut cookie: u64,
        with_attrs: bool,
        take: &mut dyn FnMut(Listed) -> Result<bool, FsError>,
    ) -> Result<(), FsError> {
        loop {
            let batch = {
                let state = self.read_state();
                let dir = self.find_dir(&state, ino)?;
                self.entries_after(&state, &dir, cookie, BATCH, with_attrs)?
            };
            let Some(last) = batch.last() else {
                return Ok(());
            };
            cookie = last.cookie;
            for listed in batch {
                if !take(listed)? {
                    return Ok(());
                }
            }
        }
    }

    /// The first `limit` entries of a directory after `cookie`.
    fn entries_after(
        &self,
        state: &State,
        dir: &Found,
        cookie: u64,
        limit: usize,
        with_attrs: bool,
    ) -> Result<Vec<Listed>, FsError> {
        let mut batch = Vec::new();
        let base_dir = self.base_dir(state, dir)?;
        let is_in_base = |name: &EntryName| {
            base_dir
                .as_ref()
                .is_some_and(|base_dir| base_dir.find(name.as_bytes()).is_some())
        };
        let carried = self.carried_dir(state, dir)?;
        let carried = match &carried {
            Some((carry, CarriedDir::Roots(path))) => {
                Some((carry, path, carry.root_names(path).into()))
            }
            Some((carry, CarriedDir::Within(path))) => Some((carry, path, carry.names(path)?)),
            None => None,
        };
        // Whether it is there, or only in the directory's list, is asked of those alone that layers
        // speak of.
        let is_carried = |name: &EntryName| {
            carried
                .as_ref()
                .is_some_and(|(carry, path, names): &(_, _, Arc<[CarriedName]>)| {
                    let cookie = carry.cookie(name);
                    let is_listed = names
                        .binary_search_by_key(&cookie, |listed| listed.cookie)
                        .is_ok();
                    is_listed
                        && carry
                            .node(&path.join(name))
                            .is_ok_and(|node| node.is_some())
                })
        };
        let layers = deltas_bottom_up(state, dir.ino);
        let last_number = FIRST_BASE.saturating_sub(cookie);
        for (k, (band, delta)) in layers.iter().enumerate().rev() {
            let is_below = |name: &EntryName| {
                let mut below = layers.iter().take(k);
                is_in_base(name) || below.any(|(_, delta)| delta.get(name.as_bytes()).is_some())
            };
            for (arrival, name, _) in delta.arrived_before(last_number.saturating_sub(*band)) {
                let Some(Dentry::Entry(ino)) = state.stack.dentry(dir.ino, name.as_bytes()) else {
                    continue;
                };
                if is_below(name) || is_carried(name) {
                    continue;
                }
                if batch.len() == limit {
                    return Ok(batch);
                }
                let (place, number) = (Place::Layer, band + arrival);
                let cookie = FIRST_BASE.saturating_sub(number);
                batch.push(self.listed(state, name, Found { ino, place }, cookie, with_attrs)?);
            }
        }
        if cookie < FIRST_CARRIED
            && let Some(base_dir) = &base_dir
        {
            let first =
                usize::try_from((cookie + 1).saturating_sub(FIRST_BASE)).unwrap_or(usize::MAX);
            for (index, entry) in base_dir.entries.iter().enumerate().skip(first) {
                if batch.len() == limit {
                    return Ok(batch);
                }
                let found = match state.stack.dentry(dir.ino, entry.name.as_bytes()) {
                    Some(Dentry::Entry(ino)) => Some(Found {
                        ino,
                        place: Place::Layer,
                    }),
                    Some(Dentry::Whiteout) => None,
                    None => self.base_child(state, base_dir, index),
                };
                if let Some(found) = found {
                    let cookie = FIRST_BASE + index as u64;
                    batch.push(self.listed(state, &entry.name, found, cookie, with_attrs)?);
                }
            }
        }
        if let Some((carry, path, names)) = carried {
            let first = names.partition_point(|listed| listed.cookie <= cookie);
            let mut rest = names.get(first..).unwrap_or_default();
            while batch.len() < limit && !rest.is_empty() {
                let (some, others) = rest.split_at(rest.len().min(BATCH.min(limit - batch.len())));
                rest = others;
                for (CarriedName { cookie, name }, node) in carry.nodes_in(path, some)? {
                    let found = match state.stack.dentry(dir.ino, name.as_bytes()) {
                        Some(Dentry::Entry(ino)) => Found {
                            ino,
                            place: Place::Layer,
                        },
                        Some(Dentry::Whiteout) => continue,
                        None if is_in_base(&name) => continue,
                        None => match found(carry, state, node) {
                            Some(found) => found,
                            None => continue,
                        },
                    };
                    batch.push(self.listed(state, &name, found, cookie, with_attrs)?);
                }
            }
        }
        Ok(batch)
    }

    fn listed(
        &self,
        state: &State,
        name: &EntryName,
        found: Found,
        cookie: u64,
        with_attrs: bool,
    ) -> Result<Listed, FsError> {
        Ok(Listed {
            name: name.clone(),
            kind: self.kind(state, &found)?,
            attr: match found.place {
                Place::Layer if with_attrs => Some(self.attr(state, &found)?),
                _ => None,
            },
            found,
            cookie,
        })
    }

    /// Whether a directory has no entry.
    pub(super) fn is_empty_dir(&self, state: &State, dir: &Found) -> Result<bool, FsError> {
        Ok(self.entries_after(state, dir, 0, 1, false)?.is_empty())
    }

    /// Every entry of a directory.
    pub(super) fn entries(
        &self,
        state: &State,
        dir: &Found,
    ) -> Result<Vec<(EntryName, FileKind, Ino)>, FsError> {
        let entries = self.entries_after(state, dir, 0, usize::MAX, false)?;
        Ok(entries
            .into_iter()
            .map(|listed| (listed.name, listed.kind, listed.found.ino))
            .collect())
    }
}

/// What the layers say of the directory, the oldest first, the open one last: each with the number
/// above which those of its names are. Those that say nothing are left out.
fn deltas_bottom_up(state: &State, ino: Ino) -> Vec<(u64, &DirDelta)> {
    let mut end = ARRIVALS;
    let indexes = state.stack.indexes().rev();
    let bands = indexes.map(|index| {
        let band = end;
        end = end.saturating_add(index.span().saturating_mul(ARRIVALS));
        (band, index.dir(ino))
    });
    bands
        .filter_map(|(band, delta)| Some((band, delta?)))
        .collect()
}
