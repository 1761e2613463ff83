//! Conflicts of own and lent refs: a file against a directory.
//!
//! git forbids a ref `a` beside a ref `a/b`. Where the fork has one of them and the main
//! repository the other, the fork's wins: it shadows the lent one for as long as it exists.
//!
//! Programs make a ref in the place of an empty directory. So a lent directory without visible
//! refs goes when a program removes it, and an own one without refs gives way to a lent ref.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use crate::GitDirectory;
use crate::layout;
use crate::listing::list_if_there;
use crate::nodes::State;
use crate::packed::Refs;
use crate::refs::{MAX_DEPTH, loose_refs};
use tine_attr::FileKind;
use tine_sys::beneath;
use tine_sys::host_dir;

/// Directories of refs that are never in the way of a ref.
const STANDARD_DIRS: [&[u8]; 4] = [b"refs", b"refs/heads", b"refs/tags", b"refs/remotes"];

/// Names of refs.
pub(crate) type Names = BTreeSet<Vec<u8>>;

/// Names of the fork's own loose refs.
#[derive(Default)]
pub(crate) struct OwnLoose {
    names: Names,
    /// False if the names must be read from the host.
    is_known: bool,
    /// Number of changes that may change which packed refs are shadowed.
    pub changes: u64,
}

impl OwnLoose {
    /// Makes the next use read the names from the host.
    pub(crate) fn forget(&mut self) {
        self.is_known = false;
    }
}

/// Packed refs that are shadowed, and what they were computed from.
pub(crate) struct Shadowed {
    main: Arc<Refs>,
    own: Arc<Refs>,
    changes: u64,
    names: Arc<Names>,
}

impl GitDirectory {
    /// Reads the names of own loose refs, unless they are known.
    fn know_own_loose(&self, state: &mut State) -> io::Result<()> {
        if state.own_loose.is_known {
            return Ok(());
        }
        let names: Names = loose_refs(&self.own)?.into_iter().collect();
        let known = &mut state.own_loose;
        if known.names != names {
            known.names = names;
            known.changes = known.changes.wrapping_add(1);
        }
        known.is_known = true;
        Ok(())
    }

    /// Notes that a file of the fork's own came or went.
    pub(crate) fn note_own_ref(&self, state: &mut State, path: &[u8], is_there: bool) {
        let known = &mut state.own_loose;
        if !known.is_known || !layout::is_ref(path) || layout::lent(path).is_none() {
            return;
        }
        let is_changed = if is_there {
            known.names.insert(path.to_vec())
        } else {
            known.names.remove(path)
        };
        let is_in_conflict = || match self.main_packed() {
            Ok((_, main, _)) => {
                dirs_above(path).any(|dir| main.contains_key(dir)) || has_below(&main, path)
            }
            Err(_) => true,
        };
        if is_changed && is_in_conflict() {
            known.changes = known.changes.wrapping_add(1);
        }
    }

    /// Returns whether an own ref is below a directory of refs.
    pub(crate) fn has_own_below(&self, state: &mut State, dir: &[u8]) -> io::Result<bool> {
        if STANDARD_DIRS.contains(&dir) {
            return Ok(true);
        }
        self.know_own_loose(state)?;
        let is_loose = names_below(&state.own_loose.names, dir).next().is_some();
        Ok(is_loose || has_below(&*self.own_packed()?, dir))
    }

    /// Returns whether what is lent at `path` is visible.
    pub(crate) fn shows_lent(
        &self,
        state: &mut State,
        path: &[u8],
        is_dir: bool,
    ) -> io::Result<bool> {
        if !layout::is_ref(path) {
            return Ok(!state.hidden.contains(path));
        }
        let packed = self.own_packed()?;
        self.shows_lent_ref(state, &packed, path, is_dir)
    }

    /// Returns the same for a ref or a directory of refs.
    ///
    /// `packed` are the fork's own packed refs.
    pub(crate) fn shows_lent_ref(
        &self,
        state: &mut State,
        packed: &Refs,
        path: &[u8],
        is_dir: bool,
    ) -> io::Result<bool> {
        self.know_own_loose(state)?;
        if !state.has_room_for(packed, path, is_dir) {
            return Ok(false);
        }
        if !is_dir || !state.removed_dirs.contains(path) {
            return Ok(true);
        }
        let is_visible = self.has_visible_below(state, packed, path, 0)?;
        if is_visible {
            state.removed_dirs.remove(path);
        }
        Ok(is_visible)
    }

    /// Returns whether a ref below a lent directory is visible.
    fn has_visible_below(
        &self,
        state: &State,
        packed: &Refs,
        dir: &[u8],
        depth: usize,
    ) -> io::Result<bool> {
        for (name, kind) in list_if_there(&self.lent[0], dir)? {
            let path = layout::join(dir, &name);
            let is_dir = kind == Some(FileKind::Directory);
            if layout::lent(&path).is_none() || !state.has_room_for(packed, &path, is_dir) {
                continue;
            }
            let depth = depth.saturating_add(1);
            if !is_dir
                || depth >= MAX_DEPTH
                || self.has_visible_below(state, packed, &path, depth)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a lent ref replaces an own directory.
    ///
    /// git leaves empty directories. One with a file in it, as a lock, stays.
    pub(crate) fn gives_way(&self, state: &mut State, path: &[u8]) -> io::Result<bool> {
        if self.has_own_below(state, path)? {
            return Ok(false);
        }
        let Some(lent) = layout::lent(path) else {
            return Ok(false);
        };
        let lent = self.stat_lent(&lent)?;
        Ok(lent.is_some_and(|lent| lent.kind != FileKind::Directory)
            && self.shows_lent(state, path, false)?
            && !self.has_own_files(path, 0)?)
    }

    /// Returns whether a file is below an own directory.
    pub(crate) fn has_own_files(&self, dir: &[u8], depth: usize) -> io::Result<bool> {
        for (name, kind) in list_if_there(&self.own, dir)? {
            let depth = depth.saturating_add(1);
            if kind != Some(FileKind::Directory)
                || depth >= MAX_DEPTH
                || self.has_own_files(&layout::join(dir, &name), depth)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes that a program removed a directory without visible refs.
    pub(crate) fn note_removed_dir(&self, state: &mut State, path: &[u8]) -> io::Result<()> {
        let Some(lent) = layout::lent(path) else {
            return Ok(());
        };
        let lent = self.stat_lent(&lent)?;
        if lent.is_some_and(|lent| lent.kind == FileKind::Directory) {
            state.removed_dirs.insert(path.to_vec());
        }
        Ok(())
    }

    /// Returns the main repository's packed refs that the fork's own refs shadow.
    ///
    /// Refs of the same name are not among them.
    pub(crate) fn shadowed(
        &self,
        state: &mut State,
        main: &Arc<Refs>,
        own: &Arc<Refs>,
    ) -> io::Result<Arc<Names>> {
        self.know_own_loose(state)?;
        let changes = state.own_loose.changes;
        let mut cache = self.packed.lock();
        if let Some(known) = &cache.shadowed
            && Arc::ptr_eq(&known.main, main)
            && Arc::ptr_eq(&known.own, own)
            && known.changes == changes
        {
            return Ok(known.names.clone());
        }
        let mut names = Names::new();
        for name in own.keys().chain(&state.own_loose.names) {
            if main.contains_key(name) {
                continue;
            }
            let above = dirs_above(name).filter(|dir| main.contains_key(*dir));
            names.extend(above.map(<[u8]>::to_vec));
            names.extend(keys_below(main, name).cloned());
        }
        let names = Arc::new(names);
        cache.shadowed = Some(Shadowed {
            main: main.clone(),
            own: own.clone(),
            changes,
            names: names.clone(),
        });
        Ok(names)
    }
}

impl State {
    /// Returns whether a lent ref or directory is neither hidden nor shadowed.
    fn has_room_for(&self, packed: &Refs, path: &[u8], is_dir: bool) -> bool {
        let loose = &self.own_loose.names;
        // A lent loose ref would win over the fork's own packed one.
        if packed.contains_key(path)
            || dirs_above(path).any(|dir| packed.contains_key(dir) || loose.contains(dir))
        {
            return false;
        }
        // The main repository may have a directory of the name that the fork hid.
        is_dir
            || !self.hidden.contains(path)
                && !has_below(packed, path)
                && names_below(loose, path).next().is_none()
    }
}

/// Returns the directories of a ref below `refs`, the uppermost first.
fn dirs_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.skip(1).filter_map(|(slash, _)| path.get(..slash))
}

/// Returns the names below a directory.
fn names_below<'n>(names: &'n Names, dir: &[u8]) -> impl Iterator<Item = &'n Vec<u8>> {
    let first = [dir, b"/"].concat();
    let from = (Bound::Included(&first[..]), Bound::Unbounded);
    let after = names.range::<[u8], _>(from);
    after.take_while(move |name| name.starts_with(&first))
}

/// Returns the keys below a directory.
fn keys_below<'m, V>(
    names: &'m BTreeMap<Vec<u8>, V>,
    dir: &[u8],
) -> impl Iterator<Item = &'m Vec<u8>> {
    let first = [dir, b"/"].concat();
    let from = (Bound::Included(&first[..]), Bound::Unbounded);
    let after = names.range::<[u8], _>(from).map(|(name, _)| name);
    after.take_while(move |name| name.starts_with(&first))
}

fn has_below(refs: &Refs, dir: &[u8]) -> bool {
    keys_below(refs, dir).next().is_some()
}

/// Removes a directory with only directories in it.
///
/// # Errors
/// `ENOTEMPTY` if there is a file, and errors of the host.
pub(crate) fn remove_empty_dirs(parent: &File, name: &[u8]) -> io::Result<()> {
    let dir = host_dir::open_dir(parent, name)?;
    for (below, kind) in beneath::list(host_dir::readable(&dir)?)? {
        if kind == Some(FileKind::Directory) {
            remove_empty_dirs(&dir, &below)?;
        }
    }
    tine_sys::calls_beneath::remove(parent, name, true)
}
