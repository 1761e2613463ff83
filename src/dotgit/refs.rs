//! Refs that are lent: their values, and which of them the fork has hidden or made its own.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Write};

use crate::GitDirectory;
use crate::conflicts::remove_empty_dirs;
use crate::layout::{self, TINE, WORKTREES};
use crate::listing::list_if_there;
use crate::nodes::{self, State};
use crate::packed::read_if_there;
use tine_attr::FileKind;
use tine_sys::host_dir;

/// File with the lent paths that the fork removed.
const HIDDEN: &[u8] = b"tine/hidden";

/// Depth of directories to which refs are listed.
pub(crate) const MAX_DEPTH: usize = 32;

impl GitDirectory {
    /// Returns the value of a ref in the main repository, in hex.
    pub(crate) fn lent_value(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if layout::lent(name).is_none() {
            return Ok(None);
        }
        let loose = read_if_there(&self.lent[0], name);
        let loose = match loose {
            Err(error) if error.raw_os_error() == Some(libc::EISDIR) => Vec::new(),
            loose => loose?,
        };
        let loose = loose.trim_ascii();
        if !loose.is_empty() && loose.iter().all(u8::is_ascii_hexdigit) {
            return Ok(Some(loose.to_vec()));
        }
        let (_, packed, _) = self.main_packed()?;
        Ok(packed.get(name).map(|packed| packed.id.clone()))
    }

    /// Returns whether the main repository has this ref.
    pub(crate) fn is_lent_ref(&self, path: &[u8]) -> io::Result<bool> {
        Ok(layout::is_ref(path) && self.lent_value(path)?.is_some())
    }

    /// Returns the values of the main repository's loose refs.
    pub(crate) fn main_loose(&self) -> io::Result<HashMap<Vec<u8>, Vec<u8>>> {
        let mut found = HashMap::new();
        for path in loose_refs(&self.lent[0])? {
            if let Ok(value) = read_if_there(&self.lent[0], &path) {
                found.insert(path, value.trim_ascii().to_vec());
            }
        }
        Ok(found)
    }

    /// Makes lent branches that HEADs are on the fork's own.
    ///
    /// What moves in the main repository must not move a branch that the fork, or a worktree made in
    /// it, is on.
    pub(crate) fn adopt_heads(&self) -> io::Result<()> {
        let mut heads = vec![b"HEAD".to_vec()];
        let names = list_if_there(&self.own, WORKTREES)?.into_iter();
        heads.extend(names.map(|(name, _)| [WORKTREES, b"/", &name, b"/HEAD"].concat()));
        let mut state = self.state.lock();
        heads
            .iter()
            .try_for_each(|path| self.adopt_head(&mut state, path))
    }

    /// Makes the branch of the HEAD at `path` the fork's own.
    pub(crate) fn adopt_head(&self, state: &mut State, path: &[u8]) -> io::Result<()> {
        let head = read_if_there(&self.own, path)?;
        let Some(name) = head
            .strip_prefix(b"ref:".as_slice())
            .map(<[u8]>::trim_ascii)
        else {
            return Ok(());
        };
        let own = nodes::stat_if_there(&self.own, name)?;
        let is_dir = own.is_some_and(|own| own.kind == FileKind::Directory);
        let is_own = own.is_some() && !is_dir
            || self.own_packed()?.contains_key(name)
            || state.hidden.contains(name);
        let is_safe = name.starts_with(b"refs/heads/")
            && name
                .split(|&byte| byte == b'/')
                .all(|part| !matches!(part, b"" | b"." | b".."));
        if is_own || !is_safe {
            return Ok(());
        }
        let Some(value) = self.lent_value(name)? else {
            return Ok(());
        };
        if !self.shows_lent(state, name, false)? || self.has_own_files(name, 0)? {
            return Ok(());
        }
        let (dir, file_name) = layout::split(name);
        let dir = make_dirs(&self.own, dir)?;
        if is_dir {
            remove_empty_dirs(&dir, file_name)?;
        }
        let mut file = match host_dir::create_file(&dir, file_name, 0o644) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => return Ok(()),
            file => file?,
        };
        self.note_own_ref(state, name, true);
        file.write_all(&[&value[..], b"\n"].concat())?;
        file.sync_data()
    }

    /// Hides a lent path, because the fork removed it.
    pub(crate) fn hide(&self, state: &mut State, path: &[u8]) -> io::Result<()> {
        state.hidden.insert(path.to_vec());
        self.write_hidden(state)
    }

    /// Writes the list of hidden paths.
    pub(crate) fn write_hidden(&self, state: &State) -> io::Result<()> {
        let dir = make_dirs(&self.own, TINE)?;
        let mut content = Vec::new();
        for path in &state.hidden {
            content.extend_from_slice(path);
            content.push(b'\n');
        }
        replace(&dir, b"hidden", &content)
    }

    /// Shows a path again that the fork hid.
    pub(crate) fn show_again(&self, state: &mut State, path: &[u8]) -> io::Result<()> {
        if state.hidden.remove(path) {
            self.write_hidden(state)
        } else {
            Ok(())
        }
    }
}

/// Returns the names of loose refs that a main repository lends.
pub(crate) fn loose_refs(top: &File) -> io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut open = vec![(b"refs".to_vec(), 0_usize)];
    while let Some((dir, depth)) = open.pop() {
        for (name, kind) in list_if_there(top, &dir)? {
            let path = layout::join(&dir, &name);
            if layout::lent(&path).is_none() {
                continue;
            }
            if kind != Some(FileKind::Directory) {
                found.push(path);
            } else if depth < MAX_DEPTH {
                open.push((path, depth.saturating_add(1)));
            }
        }
    }
    Ok(found)
}

/// Reads the list of hidden paths.
pub(crate) fn read_hidden(own: &File) -> io::Result<BTreeSet<Vec<u8>>> {
    let content = read_if_there(own, HIDDEN)?;
    let lines = content.split(|&byte| byte == b'\n');
    Ok(lines
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// Replaces a file of the fork's own, durably.
pub(crate) fn replace(dir: &File, name: &[u8], content: &[u8]) -> io::Result<()> {
    let new = [name, b".tine-new"].concat();
    // Left by a process that died.
    let _ = tine_sys::calls_beneath::remove(dir, &new, false);
    let mut file = host_dir::create_file(dir, &new, 0o644)?;
    file.write_all(content)?;
    file.sync_data()?;
    host_dir::rename((dir, &new), (dir, name), 0)
}

/// Opens a directory below `top`, and creates what is missing of it.
fn make_dirs(top: &File, path: &[u8]) -> io::Result<File> {
    let mut dir = host_dir::open_dir(top, b".")?;
    for name in path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
    {
        match host_dir::make_dir(&dir, name, 0o755) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
            _ => {}
        }
        dir = host_dir::open_dir(&dir, name)?;
    }
    Ok(dir)
}
