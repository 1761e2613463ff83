//! Lookups of names, and attributes.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::layout::{self, ALIAS, ALIAS_OF_TINE, CHANGED, Lent, PACKED_REFS, TINE, Zone};
use crate::listing::path_of;
use crate::nodes::{self, Body, KeptOpen, ROOT, State};
use crate::{GitDirectory, LookedUp, errno};
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_path::NAME_MAX;
use tine_sys::beneath::{self, HostStat};
use tine_sys::host_dir;

impl GitDirectory {
    /// Looks up a name, and counts one lookup of its node.
    ///
    /// # Errors
    /// `ESTALE` or `ENOTDIR` for the directory, and errors of the host.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> io::Result<LookedUp> {
        if name.len() > NAME_MAX {
            return Err(errno(libc::ENAMETOOLONG));
        }
        let mut state = self.state.lock();
        let found = self.find(&mut state, parent, name)?;
        if let Some(attr) = found.attr {
            state.count_lookup(attr.ino)?;
        }
        Ok(found)
    }

    /// Looks up lent objects for a program that reaches the host's files.
    ///
    /// It gets a symlink to them, so git reads them as it does in the main repository: without a
    /// request, and from the same page cache. All other programs get the directory itself. The
    /// kernel must ask again each time.
    pub fn lookup_link(&self, parent: Ino, name: &[u8]) -> Option<LookedUp> {
        let top = layout::objects_number(name).filter(|top| *top < self.lent.len())?;
        let mut state = self.state.lock();
        let dir = state.path(parent).ok()?;
        if dir != TINE && dir != ALIAS_OF_TINE {
            return None;
        }
        Some(LookedUp {
            attr: Some(self.attr_in(&mut state, nodes::link(top)).ok()?),
            keeps_name: false,
            keeps_attr: true,
        })
    }

    /// Counts one lookup of a directory that the kernel knows by number.
    ///
    /// # Errors
    /// `ESTALE` if the node is not known, and errors of the host.
    pub fn lookup_number(&self, ino: Ino) -> io::Result<LookedUp> {
        let mut state = self.state.lock();
        let attr = self.attr_in(&mut state, ino)?;
        state.count_lookup(ino)?;
        Ok(LookedUp {
            attr: Some(attr),
            keeps_name: false,
            keeps_attr: false,
        })
    }

    /// Forgets lookups of a node.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let mut state = self.state.lock();
        let Some(node) = state.nodes.get_mut(&ino) else {
            return;
        };
        if ino == ROOT || matches!(node.body, Body::Link { .. }) {
            return;
        }
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 {
            state.drop_node(ino);
        }
    }

    /// Returns the directory that holds the directory `ino`; the root holds itself.
    ///
    /// # Errors
    /// `ESTALE` if the node is not known.
    pub fn parent_of(&self, ino: Ino) -> io::Result<Ino> {
        let state = self.state.lock();
        Ok(state
            .node(ino)?
            .names
            .first()
            .map_or(ROOT, |(parent, _)| *parent))
    }

    /// Finds what is at a name, without counting a lookup.
    pub(crate) fn find(&self, state: &mut State, parent: Ino, name: &[u8]) -> io::Result<LookedUp> {
        let own = state.own_dir(parent)?;
        let dir = state.path(parent)?;
        let path = layout::join(&dir, name);
        if layout::is_at_or_below(&path, TINE) {
            if let Some(found) = self.find_computed(state, parent, name, &path) {
                return found;
            }
        } else if path == ALIAS || path == ALIAS_OF_TINE {
            return self.find_computed_dir(state, parent, name);
        } else if path == PACKED_REFS {
            return self.find_packed(state, parent, name);
        } else if let Some(own) = &own
            && let Some(stat) = nodes::stat_if_there(own, name)?
            && !self.is_replaced(state, &path, stat.kind)?
        {
            if let Some(found) = self.find_guarded(state, (parent, name), &stat, &path)? {
                return Ok(found);
            }
            let mut found = found_own(state, (parent, name), own, &stat, &path)?;
            if stat.kind == FileKind::Directory && !found.keeps_attr {
                let attr = found.attr.map(|attr| self.attr_in(state, attr.ino));
                found.attr = attr.transpose()?;
            }
            if stat.kind == FileKind::Directory && layout::is_ref(&path) {
                // The main repository may make a ref of this name.
                found.keeps_name &= self.has_own_below(state, &path)?;
            }
            found.keeps_name &= !self.is_fleeting(name);
            return Ok(found);
        }
        let is_lent = layout::is_ref(&path) || !state.hidden.contains(&path);
        let lent = layout::lent(&path).filter(|_| is_lent);
        let Some(lent) = lent else {
            let keeps_name =
                layout::is_at_or_below(&path, b"objects") || state.note_missing(parent, name);
            return Ok(LookedUp {
                attr: None,
                keeps_name,
                keeps_attr: true,
            });
        };
        let stat = self.stat_lent(&lent)?;
        if stat.is_none() {
            state.removed_dirs.remove(&path);
        }
        match stat {
            Some(stat) if self.shows_lent(state, &path, stat.kind == FileKind::Directory)? => {
                if self.refusals().is_some() && stat.kind != FileKind::Directory {
                    // A program can change what the kernel has cached of a hook.
                    state.take_name(parent, name);
                }
                Ok(self.found_lent(state, (parent, name), lent, &stat, &path))
            }
            _ => Ok(LookedUp::MISSING),
        }
    }

    /// Returns the attributes of what the main repository has.
    pub(crate) fn stat_lent(&self, lent: &Lent) -> io::Result<Option<HostStat>> {
        let Some(top) = self.lent.get(lent.top) else {
            return Ok(None);
        };
        if lent.path.is_empty() {
            return beneath::stat(top).map(Some);
        }
        nodes::stat_if_there(top, &lent.path)
    }

    /// Returns whether a lent ref replaces the own directory at `path`.
    fn is_replaced(&self, state: &mut State, path: &[u8], kind: FileKind) -> io::Result<bool> {
        let is_dir = kind == FileKind::Directory && layout::is_ref(path);
        Ok(is_dir && self.gives_way(state, path)?)
    }

    /// Returns the entry of what is lent at a name.
    ///
    /// A file is opened now: a git program that finds it goes on reading it, also if the main
    /// repository removes it meanwhile.
    pub(crate) fn found_lent(
        &self,
        state: &mut State,
        (parent, name): (Ino, &[u8]),
        at: Lent,
        stat: &HostStat,
        path: &[u8],
    ) -> LookedUp {
        let id = (stat.dev, stat.ino);
        let body = if stat.kind == FileKind::Directory {
            Body::Dir { own: None }
        } else {
            Body::Lent {
                id,
                version: nodes::version_of(stat),
                file: None,
                at: at.clone(),
            }
        };
        let ino = state.enter(parent, name, body);
        let is_closed = state
            .node(ino)
            .is_ok_and(|node| matches!(node.body, Body::Lent { file: None, .. }));
        if is_closed
            && stat.kind == FileKind::Regular
            && let Some(top) = self.lent.get(at.top)
            && let Ok(file) = beneath::open(top, path_of(&at.path), beneath::Access::Read)
            && beneath::stat(&file).is_ok_and(|opened| (opened.dev, opened.ino) == id)
        {
            state.keep_open(ino, &Arc::new(file), KeptOpen::of_lent(path));
        }
        state.note_seen(ino, path);
        LookedUp {
            attr: Some(self.lent_attr(ino, stat, path)),
            keeps_name: stat.kind == FileKind::Directory && layout::is_steady(path),
            keeps_attr: false,
        }
    }

    /// Finds what is computed. `None`: the path is that of something lent.
    fn find_computed(
        &self,
        state: &mut State,
        parent: Ino,
        name: &[u8],
        path: &[u8],
    ) -> Option<io::Result<LookedUp>> {
        if path == TINE || path == CHANGED {
            return Some(self.find_computed_dir(state, parent, name));
        }
        if path.starts_with(b"tine/objects") {
            return None;
        }
        let callbacks = self.callbacks.read().clone();
        let content: Option<Arc<[u8]>> = match path.strip_prefix(b"tine/".as_slice()) {
            Some(b"fork") => Some(self.identity.clone()),
            Some(b"config") => callbacks
                .settings
                .and_then(|settings| settings())
                .map(Arc::from),
            Some(rest) => {
                let token = rest.strip_prefix(b"changed/".as_slice())?;
                callbacks
                    .changed
                    .and_then(|answer| answer(token))
                    .map(Arc::from)
            }
            None => None,
        };
        let Some(content) = content else {
            return Some(Ok(LookedUp::MISSING));
        };
        // A program can change what the kernel has cached of a node.
        let known = state
            .known_at(parent, name)
            .filter(|_| self.refusals().is_none());
        let same = known.filter(|ino| {
            matches!(state.nodes.get(ino).map(|node| &node.body), Some(Body::Computed { content: known, .. }) if *known == content)
        });
        let ino = match same {
            Some(ino) => ino,
            None => {
                state.take_name(parent, name);
                state.enter(
                    parent,
                    name,
                    Body::Computed {
                        content,
                        time: Timestamp::now(),
                        of: None,
                    },
                )
            }
        };
        Some(self.attr_in(state, ino).map(|attr| LookedUp {
            attr: Some(attr),
            keeps_name: false,
            keeps_attr: true,
        }))
    }

    /// Finds a directory that is computed.
    fn find_computed_dir(
        &self,
        state: &mut State,
        parent: Ino,
        name: &[u8],
    ) -> io::Result<LookedUp> {
        let ino = state.enter(parent, name, Body::Dir { own: None });
        self.dir_attr(ino).map(|attr| LookedUp {
            attr: Some(attr),
            keeps_name: true,
            keeps_attr: true,
        })
    }

    /// Returns the attributes of what is lent at `path`.
    ///
    /// A directory in which the fork may make files belongs to the owner of its git directory.
    fn lent_attr(&self, ino: Ino, stat: &HostStat, path: &[u8]) -> Attr {
        let attr = nodes::lent_attr(ino, stat);
        let is_open = stat.kind == FileKind::Directory && layout::zone(path) != Zone::Fixed;
        match beneath::stat(&self.own) {
            Ok(own) if is_open => Attr {
                uid: own.uid,
                gid: own.gid,
                ..attr
            },
            _ => attr,
        }
    }

    /// Returns the attributes of a directory that is computed.
    fn dir_attr(&self, ino: Ino) -> io::Result<Attr> {
        let stat = beneath::stat(&self.own)?;
        Ok(Attr {
            perm: 0o555,
            nlink: 2,
            size: 0,
            blocks: 0,
            ..nodes::attr_of(ino, &stat)
        })
    }

    /// Returns the attributes of a node now.
    pub(crate) fn attr_in(&self, state: &mut State, ino: Ino) -> io::Result<Attr> {
        let path = state.path(ino);
        let node = state.node(ino)?;
        match &node.body {
            Body::Dir { own: Some(_) } => {
                let own = state.own_dir(ino)?.ok_or_else(|| errno(libc::ESTALE))?;
                let stat = beneath::stat(&own)?;
                // A directory that was removed has no path.
                let lent = path.ok().and_then(|path| layout::lent(&path));
                let lent = lent.and_then(|lent| self.stat_lent(&lent).ok().flatten());
                Ok(nodes::merged_attr(ino, &stat, lent.as_ref()))
            }
            Body::Dir { own: None } => {
                let path = path?;
                match layout::lent(&path) {
                    Some(lent) => match self.stat_lent(&lent)? {
                        Some(stat) => Ok(self.lent_attr(ino, &stat, &path)),
                        None => Err(errno(libc::ESTALE)),
                    },
                    None => self.dir_attr(ino),
                }
            }
            Body::Own {
                file: Some(file), ..
            } => Ok(nodes::attr_of(ino, &beneath::stat(file)?)),
            Body::Own { id, .. } => {
                let (id, (parent, name)) = (
                    *id,
                    node.names
                        .first()
                        .cloned()
                        .ok_or_else(|| errno(libc::ESTALE))?,
                );
                let dir = state.own_dir(parent)?.ok_or_else(|| errno(libc::ESTALE))?;
                let stat = beneath::stat_in(&dir, &name).map_err(|_| errno(libc::ESTALE))?;
                if (stat.dev, stat.ino) != id {
                    return Err(errno(libc::ESTALE));
                }
                Ok(nodes::attr_of(ino, &stat))
            }
            Body::Lent {
                file: Some(file), ..
            } => Ok(nodes::lent_attr(ino, &beneath::stat(file)?)),
            Body::Lent { at, id, .. } => match self.stat_lent(at)? {
                Some(stat) if (stat.dev, stat.ino) == *id => Ok(nodes::lent_attr(ino, &stat)),
                _ => Err(errno(libc::ESTALE)),
            },
            Body::Link { target } => {
                let stat = beneath::stat(&self.own)?;
                Ok(Attr {
                    kind: FileKind::Symlink,
                    perm: 0o777,
                    nlink: 1,
                    size: target.len() as u64,
                    blocks: 0,
                    ..nodes::attr_of(ino, &stat)
                })
            }
            Body::Computed {
                content,
                of: Some(stat),
                ..
            } => Ok(Attr {
                size: content.len() as u64,
                ..nodes::attr_of(ino, stat)
            }),
            Body::Computed {
                content,
                time,
                of: None,
            } => {
                let stat = beneath::stat(&self.own)?;
                Ok(Attr {
                    kind: FileKind::Regular,
                    perm: 0o444,
                    nlink: 1,
                    size: content.len() as u64,
                    blocks: (content.len() as u64).div_ceil(512),
                    atime: *time,
                    mtime: *time,
                    ctime: *time,
                    ..nodes::attr_of(ino, &stat)
                })
            }
        }
    }
}

/// Returns the entry of what the fork has at a name.
fn found_own(
    state: &mut State,
    (parent, name): (Ino, &[u8]),
    dir: &Arc<File>,
    stat: &HostStat,
    path: &[u8],
) -> io::Result<LookedUp> {
    if stat.kind == FileKind::Directory {
        let known = state.known_at(parent, name);
        let body = if known.is_some_and(|ino| state.is_open_dir(ino)) {
            Body::Dir { own: None }
        } else {
            Body::own_dir(Arc::new(host_dir::open_dir(dir, name)?))
        };
        let ino = state.enter(parent, name, body);
        return Ok(LookedUp {
            attr: Some(nodes::attr_of(ino, stat)),
            keeps_name: true,
            keeps_attr: layout::lent(path).is_none(),
        });
    }
    let body = Body::Own {
        id: (stat.dev, stat.ino),
        file: None,
        told: *stat,
    };
    let ino = state.enter(parent, name, body);
    let is_closed = matches!(state.node(ino)?.body, Body::Own { file: None, .. });
    let kept = KeptOpen::of_own(path);
    if is_closed && stat.kind == FileKind::Regular && kept != KeptOpen::Shortly {
        let file = Arc::new(host_dir::open_file(dir, name)?);
        state.keep_open(ino, &file, kept);
    }
    Ok(LookedUp {
        attr: Some(nodes::attr_of(ino, stat)),
        keeps_name: true,
        keeps_attr: true,
    })
}
