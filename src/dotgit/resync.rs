//! Changes of the fork's own files on the host.
//!
//! The kernel does not know of them.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use crate::GitDirectory;
use crate::layout;
use crate::nodes::{self, Body, Name, ROOT, State};
use crate::refs::read_hidden;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_path::{DOT_GIT, EntryName, RepoPath};
use tine_sys::host_dir;
use tine_workspace::{Announcement, Invalidation, NamePlace, ViewStep};

impl GitDirectory {
    /// Makes the kernel forget what tine changed on the host.
    ///
    /// Calls `forget` with what differs from the kernel's knowledge; it returns when the kernel has
    /// forgotten that. Returns steps for programs that watch the files: a file that came or changed
    /// is a write, one that went a change of its directory's mode.
    pub fn resync(&self, forget: impl FnOnce(Vec<Invalidation>)) -> Vec<ViewStep> {
        let Announcement {
            invalidations,
            steps,
        } = self.differences();
        let replaced: Vec<Name> = invalidations.iter().filter_map(replaced_name).collect();
        forget(invalidations);
        let mut state = self.state.lock();
        for name in replaced {
            let at = state.forgetting.iter().position(|other| *other == name);
            at.map(|at| state.forgetting.swap_remove(at));
        }
        steps
    }

    /// Returns whether the kernel may know an older file to lock.
    ///
    /// git takes the lock, and then reads the file to compare it with what it expects: it must not
    /// get what the kernel remembers. It tries again where it finds a ref locked.
    pub(crate) fn is_outdated(&self, state: &State, parent: Ino, lock: &[u8]) -> io::Result<bool> {
        let Some(name) = lock.strip_suffix(b".lock") else {
            return Ok(false);
        };
        if state
            .forgetting
            .iter()
            .any(|(dir, at)| *dir == parent && at == name)
        {
            return Ok(true);
        }
        let Some(dir) = state.own_dir(parent)? else {
            return Ok(false);
        };
        let known = state.known_at(parent, name);
        let known = known.and_then(|ino| match &state.nodes.get(&ino)?.body {
            Body::Own { id, .. } => Some(*id),
            _ => None,
        });
        if known.is_none() && !state.missing.contains(&(parent, name.to_vec())) {
            return Ok(false);
        }
        let now = nodes::stat_if_there(&dir, name)?;
        Ok(known != now.map(|now| (now.dev, now.ino)))
    }

    /// Compares the kernel's knowledge with the files on the host.
    fn differences(&self) -> Announcement {
        let mut state = self.state.lock();
        match read_hidden(&self.own) {
            Ok(hidden) => state.hidden = hidden,
            Err(error) => log::warn!("the hidden refs of a git directory: {error}"),
        }
        state.own_loose.forget();
        let mut changes = Announcement::default();
        let compared = std::mem::replace(&mut state.compared, Timestamp::now());
        let names: Vec<(Ino, Vec<u8>, Ino)> = state
            .nodes
            .iter()
            .flat_map(|(ino, node)| {
                let names = node.names.iter();
                names.map(move |(parent, name)| (*parent, name.clone(), *ino))
            })
            .collect();
        for (parent, name, ino) in names {
            if let Err(error) = self.resync_name(&mut state, (parent, &name), ino, &mut changes) {
                log::debug!("a file of a git directory: {error}");
            }
        }
        let missing: Vec<(Ino, Vec<u8>)> = state.missing.iter().cloned().collect();
        for (parent, name) in missing {
            let is_there = match state.own_dir(parent) {
                Ok(Some(dir)) => matches!(nodes::stat_if_there(&dir, &name), Ok(Some(_))),
                Ok(None) => false,
                Err(_) => true,
            };
            if is_there {
                state.missing.remove(&(parent, name.clone()));
                changes.invalidations.extend(entry(parent, &name));
                changes.steps.extend(written(&state, (parent, &name)));
            }
        }
        let replaced = changes.invalidations.iter().filter_map(replaced_name);
        state.forgetting.extend(replaced);
        self.tell_listings(&mut state, compared, &mut changes.invalidations);
        changes
    }

    /// Adds the directories that changed since `compared`.
    ///
    /// The kernel keeps a listing until the time of the directory differs, or a name in it went.
    fn tell_listings(
        &self,
        state: &mut State,
        compared: Timestamp,
        changes: &mut Vec<Invalidation>,
    ) {
        let told: HashSet<Ino> = changes
            .iter()
            .filter_map(|change| match change {
                Invalidation::Entry { parent, .. } => Some(*parent),
                _ => None,
            })
            .collect();
        let changed: Vec<(Ino, Timestamp)> = (state.nodes.keys())
            .filter_map(|ino| {
                let own = state.own_dir(*ino).ok()??;
                let stat = tine_sys::beneath::stat(&own).ok()?;
                Some((*ino, stat.mtime))
            })
            .filter(|(_, mtime)| *mtime >= crate::nodes::before(compared))
            .collect();
        for (ino, mtime) in changed {
            if state.dir_times.insert(ino, mtime) != Some(mtime) && !told.contains(&ino) {
                changes.push(Invalidation::Attributes(ino));
            }
        }
        let State {
            nodes, dir_times, ..
        } = state;
        dir_times.retain(|ino, _| nodes.contains_key(ino));
    }

    fn resync_name(
        &self,
        state: &mut State,
        (parent, name): (Ino, &[u8]),
        ino: Ino,
        changes: &mut Announcement,
    ) -> io::Result<()> {
        let (is_dir, told) = match &state.node(ino)?.body {
            Body::Own { told, .. } => (false, Some(*told)),
            Body::Dir { own: Some(_) } => (true, None),
            Body::Dir { own: None }
            | Body::Lent { .. }
            | Body::Computed { .. }
            | Body::Link { .. } => return Ok(()),
        };
        let dir = state.own_dir(parent)?;
        let now = match &dir {
            Some(dir) => nodes::stat_if_there(dir, name)?,
            None => None,
        };
        if is_dir {
            let Some(known) = state.own_dir_id(ino)? else {
                return Ok(());
            };
            match (now, dir) {
                (Some(now), _) if (now.dev, now.ino) == known => {
                    let path = state.path(ino)?;
                    if layout::is_ref(&path) && self.gives_way(state, &path)? {
                        state.take_name(parent, name);
                        changes.invalidations.extend(entry(parent, name));
                    }
                }
                (Some(now), Some(dir)) if now.kind == FileKind::Directory => {
                    let opened = Arc::new(host_dir::open_dir(&dir, name)?);
                    state.set_own_dir(ino, opened);
                }
                _ => {
                    let path = state.path(ino)?;
                    let is_lent = match layout::lent(&path) {
                        Some(lent) => self.stat_lent(&lent)?.is_some(),
                        None => false,
                    };
                    if is_lent {
                        if let Body::Dir { own } = &mut state.node_mut(ino)?.body {
                            *own = None;
                        }
                    } else {
                        state.take_name(parent, name);
                    }
                    changes.invalidations.extend(entry(parent, name));
                }
            }
            return Ok(());
        }
        let Some(told) = told else {
            return Ok(());
        };
        match now {
            Some(now) if (now.dev, now.ino) == (told.dev, told.ino) => {
                if (now.size, now.mtime) != (told.size, told.mtime) {
                    if let Body::Own { told, .. } = &mut state.node_mut(ino)?.body {
                        *told = now;
                    }
                    changes.invalidations.push(Invalidation::Node(ino));
                    changes.steps.extend(written(state, (parent, name)));
                } else if now.ctime != told.ctime {
                    if let Body::Own { told, .. } = &mut state.node_mut(ino)?.body {
                        *told = now;
                    }
                    changes.invalidations.push(Invalidation::Attributes(ino));
                }
            }
            now => {
                state.take_name(parent, name);
                changes.invalidations.extend(entry(parent, name));
                changes.steps.extend(match now {
                    Some(_) => written(state, (parent, name)),
                    None => touched(state, parent),
                });
            }
        }
        Ok(())
    }

    /// Removes one of the fork's own files.
    ///
    /// Programs that have it open go on.
    ///
    /// `path` is relative to the git directory. Returns what the kernel must forget.
    ///
    /// # Errors
    /// Errors of the host. A missing file is none.
    pub fn remove(&self, path: &[u8]) -> io::Result<Vec<Invalidation>> {
        let mut state = self.state.lock();
        let mut at = ROOT;
        let (dir, name) = layout::split(path);
        for part in dir
            .split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty())
        {
            match state.known_at(at, part) {
                Some(next) => at = next,
                // The kernel does not know the directory, and so not the file.
                None => return self.remove_unknown(path).map(|()| Vec::new()),
            }
        }
        let Some(ino) = state.known_at(at, name) else {
            return self.remove_unknown(path).map(|()| Vec::new());
        };
        self.pin(&mut state, ino)?;
        self.remove_unknown(path)?;
        self.note_own_ref(&mut state, path, false);
        state.take_name(at, name);
        Ok(entry(at, name).into_iter().collect())
    }

    fn remove_unknown(&self, path: &[u8]) -> io::Result<()> {
        let (dir, name) = layout::split(path);
        let dir = tine_sys::beneath::open(
            &self.own,
            crate::listing::path_of(dir),
            tine_sys::beneath::Access::Attributes,
        );
        match dir.and_then(|dir| tine_sys::calls_beneath::remove(&dir, name, false)) {
            Err(error) if !crate::is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns the name that the kernel must look up again.
fn replaced_name(change: &Invalidation) -> Option<Name> {
    match change {
        Invalidation::Entry { parent, name, .. } => Some((*parent, name.as_bytes().to_vec())),
        _ => None,
    }
}

/// Returns the step of a file that came or changed.
///
/// The next lookup of the name gives the file its number. Watchers of the directory get the event.
fn written(state: &State, (parent, name): (Ino, &[u8])) -> Option<ViewStep> {
    let at = place(state, parent, name)?;
    let ino = state.known_at(parent, name).unwrap_or(parent);
    Some(ViewStep::Write { at, ino })
}

/// Returns the step of a directory that lost a name.
fn touched(state: &State, dir: Ino) -> Option<ViewStep> {
    let (at, ino) = match state.node(dir).ok()?.names.first() {
        Some((parent, name)) => (place(state, *parent, name)?, dir),
        None => {
            let name = EntryName::dot_git();
            let (dir, dir_path) = (Ino::ROOT, RepoPath::root());
            let at = NamePlace {
                dir,
                dir_path,
                name,
            };
            (at, ROOT)
        }
    };
    let own = state.own_dir(dir).ok()??;
    let perm = tine_sys::beneath::stat(&own).ok()?.perm;
    Some(ViewStep::SetMode { at, ino, perm })
}

/// Returns the place of a name, from the fork's root.
fn place(state: &State, parent: Ino, name: &[u8]) -> Option<NamePlace> {
    let dir_path = [DOT_GIT, b"/", &state.path(parent).ok()?].concat();
    Some(NamePlace {
        dir: parent,
        dir_path: RepoPath::parse(dir_path).ok()?,
        name: EntryName::new(name).ok()?,
    })
}

fn entry(parent: Ino, name: &[u8]) -> Option<Invalidation> {
    let name = EntryName::new(name).ok()?;
    Some(Invalidation::Entry { parent, name })
}
