//! Lists directories without a handle: a cookie alone says where to continue.
//!
//! The order is: names of each layer, from the top layer down and the last arrival first; then
//! those of the base, by their index in the immutable base directory; then carried names, by a hash
//! of the name. A name is listed once, at its place in the lowest of base, carry and layers that
//! has it, and with the node of the topmost layer. So a name keeps its place while its node is
//! replaced, and entries that come and go never move others.
//!
//! A new name comes before all others. So a program that makes or renames a file for each entry
//! that it reads never meets those, and its listing ends.
//!
//! ```text
//! 1  .      2  ..      (1 << 62) - ((1 + k) << 40 | n)  the n-th arrival in layer k from the bottom
//! 1 << 62 | i  base entry i      3 << 61 | hash  carried name
//! ```
//!
//! A layer that was merged from several counts as that many, and names keep their numbers in it.

use std::sync::Arc;

use super::carried::{CarriedDir, found};
use super::carry::CarriedName;
use super::error::FsError;
use super::fs::{FoundNode, NodePlace, ViewState, Workspace};
use super::ops::DirEntry;
use tine_attr::{Attr, FileKind, Ino};
use tine_layer::index::ARRIVALS;
use tine_layer::{Dentry, DirDelta};
use tine_path::EntryName;

const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const FIRST_BASE: u64 = 1 << 62;
/// First cookie of carried names: see [`Carry::cookie`](super::carry::Carry::cookie).
const FIRST_CARRIED: u64 = 3 << 61;

/// Number of entries gathered under one hold of the lock.
const BATCH: usize = 256;

/// Entry of a directory, perhaps without its attributes.
struct ListedEntry {
    name: EntryName,
    found: FoundNode,
    kind: FileKind,
    cookie: u64,
    /// Attributes of a layer's node. Those of a base node are read without the lock.
    attr: Option<Attr>,
}

/// Names `.` and `..`, which an [`EntryName`] cannot be.
pub(crate) const DOT_NAMES: [&str; 2] = [".", ".."];

impl Workspace {
    /// Lists a directory from `cookie` (0: the start) until `add` returns false.
    ///
    /// `.` and `..` are not listed but have cookies; see [`Workspace::dots`].
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::NotADirectory`]; [`FsError::Base`] or [`FsError::Carried`] if
    /// a directory or node cannot be read.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<(), FsError> {
        self.list(ino, cookie, false, &mut |listed| {
            let ListedEntry {
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
                is_carried: matches!(found.place, NodePlace::Carried(_)),
            }))
        })
    }

    /// Lists a directory with attributes; see [`Workspace::readdir`].
    ///
    /// Counts one lookup for each entry for which `add` returns true.
    ///
    /// # Errors
    /// Those of [`Workspace::readdir`] and [`Workspace::getattr`].
    pub fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(DirEntry, Attr) -> bool,
    ) -> Result<(), FsError> {
        let base = self.read_state().base.clone();
        self.list(ino, cookie, true, &mut |listed| {
            let ListedEntry {
                name,
                found,
                kind,
                cookie,
                attr,
            } = listed;
            let attr = match (attr, &found.place) {
                (Some(attr), _) => attr,
                (None, NodePlace::Base(node)) => self.base_attr(&base, node)?,
                (None, NodePlace::Carried(node)) => node.attr,
                (None, NodePlace::Layer | NodePlace::BaseRoot) => self.getattr(found.ino)?,
            };
            let taken = add(
                DirEntry {
                    name,
                    ino: found.ino,
                    kind,
                    cookie,
                    is_carried: matches!(found.place, NodePlace::Carried(_)),
                },
                attr,
            );
            if taken {
                self.remember(&found)?;
            }
            Ok(taken)
        })
    }

    /// Returns name, number and cookie of `.` and `..`, if after `cookie`.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::NotADirectory`].
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
        take: &mut dyn FnMut(ListedEntry) -> Result<bool, FsError>,
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

    /// Returns the first `limit` entries of a directory after `cookie`.
    fn entries_after(
        &self,
        state: &ViewState,
        dir: &FoundNode,
        cookie: u64,
        limit: usize,
        with_attrs: bool,
    ) -> Result<Vec<ListedEntry>, FsError> {
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
        // Only for names in layers, so few nodes are read to see if a listed name still exists.
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
                let (place, number) = (NodePlace::Layer, band + arrival);
                let cookie = FIRST_BASE.saturating_sub(number);
                batch.push(self.listed(
                    state,
                    name,
                    FoundNode { ino, place },
                    cookie,
                    with_attrs,
                )?);
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
                    Some(Dentry::Entry(ino)) => Some(FoundNode {
                        ino,
                        place: NodePlace::Layer,
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
                        Some(Dentry::Entry(ino)) => FoundNode {
                            ino,
                            place: NodePlace::Layer,
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
        state: &ViewState,
        name: &EntryName,
        found: FoundNode,
        cookie: u64,
        with_attrs: bool,
    ) -> Result<ListedEntry, FsError> {
        Ok(ListedEntry {
            name: name.clone(),
            kind: self.kind(state, &found)?,
            attr: match found.place {
                NodePlace::Layer if with_attrs => Some(self.attr(state, &found)?),
                _ => None,
            },
            found,
            cookie,
        })
    }

    /// Returns whether the directory is empty.
    pub(super) fn is_empty_dir(&self, state: &ViewState, dir: &FoundNode) -> Result<bool, FsError> {
        Ok(self.entries_after(state, dir, 0, 1, false)?.is_empty())
    }

    /// Returns all entries of a directory.
    pub(super) fn entries(
        &self,
        state: &ViewState,
        dir: &FoundNode,
    ) -> Result<Vec<(EntryName, FileKind, Ino)>, FsError> {
        let entries = self.entries_after(state, dir, 0, usize::MAX, false)?;
        Ok(entries
            .into_iter()
            .map(|listed| (listed.name, listed.kind, listed.found.ino))
            .collect())
    }
}

/// Returns each layer's part of the directory, oldest first.
///
/// The number is the lower bound of the layer's arrival numbers. Layers without a part are left
/// out.
fn deltas_bottom_up(state: &ViewState, ino: Ino) -> Vec<(u64, &DirDelta)> {
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
