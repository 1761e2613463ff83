//! Listings of directories.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use siphasher::sip::SipHasher13;

use crate::layout::{self, ALIAS, CHANGED, PACKED_REFS, TINE};
use crate::nodes::{ROOT, State};
use crate::{GitDirectory, Listed, is_missing};
use tine_attr::{Attr, FileKind, Ino};
use tine_sys::beneath::{self, Access};
use tine_sys::host_dir;

/// Positions of `.` and `..` in a listing.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

impl GitDirectory {
    /// Lists the entries after `cookie`, in a fixed order.
    ///
    /// Stops when `add` returns false.
    ///
    /// # Errors
    /// `ENOTDIR` or `ESTALE`, and errors of the host.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(&Listed) -> bool,
    ) -> io::Result<()> {
        let listed = {
            let mut state = self.state.lock();
            self.listed(&mut state, ino, cookie)?
        };
        for entry in &listed {
            if !add(entry) {
                break;
            }
        }
        Ok(())
    }

    /// Lists the entries after `cookie` with attributes.
    ///
    /// Each added entry counts as one lookup, except `.` and `..`. The last argument of `add` is true
    /// if the kernel may cache the entry.
    ///
    /// # Errors
    /// As in [`GitDirectory::readdir`].
    pub fn readdirplus(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(&Listed, &Attr, bool) -> bool,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        for mut entry in self.listed(&mut state, ino, cookie)? {
            if entry.cookie <= DOT_DOT {
                let attr = Attr {
                    ino: entry.ino,
                    ..self.attr_in(&mut state, ino)?
                };
                if !add(&entry, &attr, false) {
                    break;
                }
                continue;
            }
            // It may have gone meanwhile.
            let found = self.find(&mut state, ino, &entry.name)?;
            let Some(attr) = found.attr else {
                continue;
            };
            entry.ino = attr.ino;
            state.count_lookup(attr.ino)?;
            if !add(&entry, &attr, found.keeps_name && found.keeps_attr) {
                let node = state.node_mut(attr.ino)?;
                node.lookups = node.lookups.saturating_sub(1);
                break;
            }
        }
        Ok(())
    }

    fn listed(&self, state: &mut State, ino: Ino, cookie: u64) -> io::Result<Vec<Listed>> {
        let parent = state
            .node(ino)?
            .names
            .first()
            .map_or(ROOT, |(parent, _)| *parent);
        let dots = [(&b"."[..], ino, DOT), (&b".."[..], parent, DOT_DOT)];
        let mut listed: Vec<Listed> = dots
            .into_iter()
            .map(|(name, ino, cookie)| Listed {
                name: name.to_vec(),
                ino,
                kind: FileKind::Directory,
                cookie,
            })
            .collect();
        let names = self.entries(state, ino)?;
        listed.extend(names.into_iter().map(|(name, kind)| {
            let cookie = position(&name);
            Listed {
                ino: state.known_at(ino, &name).unwrap_or(Ino(cookie)),
                cookie,
                name,
                kind,
            }
        }));
        listed.retain(|entry| entry.cookie > cookie);
        listed.sort_by_key(|entry| entry.cookie);
        Ok(listed)
    }

    /// Returns the names in a directory, without `.` and `..`.
    pub(crate) fn entries(
        &self,
        state: &mut State,
        ino: Ino,
    ) -> io::Result<BTreeMap<Vec<u8>, FileKind>> {
        let own = state.own_dir(ino)?;
        let path = state.path(ino)?;
        let mut names = BTreeMap::new();
        if path == CHANGED {
            return Ok(names);
        }
        if path == TINE {
            for (name, kind) in [
                (&b"fork"[..], FileKind::Regular),
                (b"config", FileKind::Regular),
                (b"changed", FileKind::Directory),
                (b"objects", FileKind::Directory),
            ] {
                names.insert(name.to_vec(), kind);
            }
            for number in 1..self.lent.len() {
                names.insert(
                    format!("objects-{number}").into_bytes(),
                    FileKind::Directory,
                );
            }
            if self.callbacks.read().settings.is_none() {
                names.remove(&b"config"[..]);
            }
            return Ok(names);
        }
        if let Some(lent) = layout::lent(&path)
            && let Some(top) = self.lent.get(lent.top)
            && let Ok(dir) = beneath::open(top, path_of(&lent.path), Access::Read)
            && let Ok(found) = beneath::list(dir)
        {
            let packed = if layout::is_ref(&path) {
                Some(self.own_packed()?)
            } else {
                None
            };
            for (name, kind) in found {
                let at = layout::join(&path, &name);
                if layout::lent(&at).is_none() {
                    continue;
                }
                let is_dir = kind == Some(FileKind::Directory);
                let is_shown = match &packed {
                    Some(packed) => self.shows_lent_ref(state, packed, &at, is_dir)?,
                    None => !state.hidden.contains(&at),
                };
                if is_shown {
                    names.insert(name, kind.unwrap_or(FileKind::Regular));
                }
            }
        }
        if let Some(own) = own {
            for (name, kind) in beneath::list(host_dir::readable(&own)?)? {
                let at = layout::join(&path, &name);
                if at == ALIAS {
                    continue;
                }
                let is_dir = |kind: &FileKind| *kind == FileKind::Directory;
                if layout::is_ref(&at)
                    && kind.as_ref().is_some_and(is_dir)
                    && names.get(&name).is_some_and(|lent| !is_dir(lent))
                    && !self.has_own_files(&at, 0)?
                {
                    continue;
                }
                names.insert(name, kind.unwrap_or(FileKind::Regular));
            }
        }
        if ino == ROOT {
            names.insert(TINE.to_vec(), FileKind::Directory);
            if self.find(state, ROOT, PACKED_REFS)?.attr.is_some() {
                names.insert(PACKED_REFS.to_vec(), FileKind::Regular);
            }
            for name in [&b"hooks"[..], b"lfs", b"shallow", b"refs"] {
                if !names.contains_key(name)
                    && let Some(attr) = self.find(state, ROOT, name)?.attr
                {
                    names.insert(name.to_vec(), attr.kind);
                }
            }
        }
        Ok(names)
    }
}

/// Returns the position of a name in listings: a hash, which no change of other names moves.
fn position(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(name);
    (hasher.finish() >> 1).clamp(DOT_DOT + 1, i64::MAX as u64 - 1)
}

/// Name in a directory, and its kind if it is known.
type Entry = (Vec<u8>, Option<FileKind>);

/// Lists a directory below `top`; a missing one is empty.
pub(crate) fn list_if_there(top: &File, dir: &[u8]) -> io::Result<Vec<Entry>> {
    match beneath::open(top, path_of(dir), Access::Read).and_then(beneath::list) {
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        listed => listed,
    }
}

pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
