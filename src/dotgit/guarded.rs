//! The fork's own git directory, guarded if the fork is not trusted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::guarding::{
    self, GitRole, GuardedTree, MAX_CHECKED, NameChecks, NameVerdict, NewFile, is_fleeting_name,
};
use crate::layout::{self, PACKED_REFS};
use crate::listing::{list_if_there, path_of};
use crate::nodes::{self, Body, ROOT, State};
use crate::packed::read_if_there;
use crate::{GitDirectory, LookedUp, errno, refs};
use tine_attr::{Attr, FileKind, Ino, Timestamp};
use tine_sys::beneath::{self, Access, HostStat};
use tine_sys::host_dir;

/// Files of the host in the fork's own git directory.
struct OwnFiles<'a>(&'a File);

impl GuardedTree for OwnFiles<'_> {
    type Error = io::Error;

    fn kind(&self, path: &[u8]) -> io::Result<Option<FileKind>> {
        Ok(nodes::stat_if_there(self.0, path)?.map(|stat| stat.kind))
    }

    fn content(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match nodes::stat_if_there(self.0, path)? {
            Some(stat) if stat.kind == FileKind::Regular && stat.size <= MAX_CHECKED => {
                read_if_there(self.0, path).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, FileKind)>> {
        let kind = |kind: Option<FileKind>| kind.unwrap_or(FileKind::Symlink);
        Ok(list_if_there(self.0, path)?
            .into_iter()
            .map(|(name, of)| (name, kind(of)))
            .collect())
    }
}

impl GitDirectory {
    fn names<'a>(&self, tree: &'a OwnFiles<'a>) -> NameChecks<'a, OwnFiles<'a>> {
        NameChecks {
            tree,
            is_git_dir: true,
        }
    }

    /// Returns whether the kernel may not cache a name.
    ///
    /// A rename takes the kernel's entry along. A file that becomes `packed-refs` gets another node
    /// there, as do guarded ones.
    pub(crate) fn is_fleeting(&self, name: &[u8]) -> bool {
        name.starts_with(PACKED_REFS) || self.refusals().is_some() && is_fleeting_name(name)
    }

    /// Finds one of the fork's own files that nobody may change.
    ///
    /// `None` for another file.
    pub(crate) fn find_guarded(
        &self,
        state: &mut State,
        (parent, name): (Ino, &[u8]),
        stat: &HostStat,
        path: &[u8],
    ) -> io::Result<Option<LookedUp>> {
        let Some(refusals) = self.refusals().filter(|_| stat.kind == FileKind::Regular) else {
            return Ok(None);
        };
        let tree = OwnFiles(&self.own);
        let names = self.names(&tree);
        let role = names.role(path)?;
        if role == GitRole::Plain {
            return Ok(None);
        }
        let content = tree.content(path)?.unwrap_or_default();
        if content.is_empty() && role == GitRole::CommonDir {
            // Its creator has not written it yet.
            return Ok(None);
        }
        let shown = names.shown(role, path, (content, stat.perm), refusals)?;
        if let Some(refused) = shown.refused {
            refusals.refuse(refused);
        }
        state.take_name(parent, name);
        let stat = HostStat {
            perm: shown.perm,
            ..*stat
        };
        let ino = state.enter(parent, name, copy_of(shown.content, stat));
        Ok(Some(LookedUp {
            attr: Some(self.attr_in(state, ino)?),
            keeps_name: false,
            keeps_attr: true,
        }))
    }

    /// Checks that a new file may get this name.
    pub(crate) fn check_new(
        &self,
        state: &mut State,
        path: &[u8],
        new: NewFile<'_>,
    ) -> io::Result<()> {
        let Some(refusals) = self.refusals() else {
            return Ok(());
        };
        let tree = OwnFiles(&self.own);
        match self.names(&tree).new_name(path, new)? {
            NameVerdict::Refused(refused) => Err(refusals.refuse(refused)),
            NameVerdict::Allowed { renewed } => self.renew(state, &renewed),
            NameVerdict::AsCopy { .. } => Ok(()),
        }
    }

    /// Checks a rename.
    ///
    /// Returns the content if the new name gets a copy.
    pub(crate) fn check_rename(
        &self,
        state: &mut State,
        (path, new_path): (&[u8], &[u8]),
        kind: FileKind,
        flags: u32,
    ) -> io::Result<Option<Vec<u8>>> {
        let Some(refusals) = self.refusals() else {
            return Ok(None);
        };
        let tree = OwnFiles(&self.own);
        let is_exchange = flags & libc::RENAME_EXCHANGE != 0;
        let verdict = self
            .names(&tree)
            .rename(path, new_path, kind, is_exchange)?;
        match verdict {
            NameVerdict::Refused(refused) => Err(refusals.refuse(refused)),
            NameVerdict::Allowed { renewed } => self.renew(state, &renewed).map(|()| None),
            NameVerdict::AsCopy { content } => Ok(Some(content)),
        }
    }

    /// Replaces files by copies of themselves, which no program has open.
    fn renew(&self, state: &mut State, paths: &[Vec<u8>]) -> io::Result<()> {
        let tree = OwnFiles(&self.own);
        for path in paths {
            let (dir, name) = layout::split(path);
            let Some(content) = tree.content(path)? else {
                continue;
            };
            let host = beneath::open(&self.own, path_of(dir), Access::Attributes)?;
            self.put_copy((&host, name), (&host, name), &content)?;
            let mut at = Some(ROOT);
            for part in dir.split(|&byte| byte == b'/') {
                at = at.and_then(|at| state.known_at(at, part));
            }
            if let Some(parent) = at {
                state.take_name(parent, name);
            }
        }
        Ok(())
    }

    /// Writes a new file with the mode and owner of another.
    pub(crate) fn put_copy(
        &self,
        (dir, name): (&File, &[u8]),
        (to, new_name): (&File, &[u8]),
        content: &[u8],
    ) -> io::Result<()> {
        let like = beneath::stat_in(dir, name)?;
        refs::replace(to, new_name, content)?;
        tine_sys::calls_beneath::set_mode(to, new_name, like.perm & 0o777)?;
        if tine_sys::process::effective_uid() == 0 {
            host_dir::set_owner(to, new_name, Some(like.uid), Some(like.gid))?;
        }
        Ok(())
    }

    /// Checks a write to a file that leads to a git directory.
    pub(crate) fn check_write(
        &self,
        ino: Ino,
        file: &File,
        offset: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let Some(refusals) = self.refusals() else {
            return Ok(());
        };
        let path = {
            let state = self.state.lock();
            let is_pointer = state
                .node(ino)?
                .names
                .iter()
                .any(|(_, name)| name == b"commondir");
            if !is_pointer {
                return Ok(());
            }
            state.path(ino)?
        };
        let content = written(file, offset, data)?;
        let tree = OwnFiles(&self.own);
        let names = self.names(&tree);
        match names.leads_out(GitRole::CommonDir, &path, &content, refusals)? {
            Some(refused) => Err(refusals.refuse(refused)),
            None => Ok(()),
        }
    }

    /// Returns a node that shows this content of another file.
    ///
    /// Counts one lookup.
    ///
    /// Nobody can change it.
    ///
    /// # Errors
    /// None is expected.
    pub fn show_copy(&self, content: Vec<u8>, attr: &Attr) -> io::Result<LookedUp> {
        let mut state = self.state.lock();
        let stat = HostStat {
            kind: attr.kind,
            perm: attr.perm,
            nlink: attr.nlink.into(),
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            ..beneath::stat(&self.own)?
        };
        let ino = state.enter_nameless(copy_of(content, stat));
        state.count_lookup(ino)?;
        Ok(LookedUp {
            attr: Some(self.attr_in(&mut state, ino)?),
            keeps_name: false,
            keeps_attr: true,
        })
    }
}

fn copy_of(content: Vec<u8>, stat: HostStat) -> Body {
    Body::Computed {
        content: Arc::from(content),
        time: Timestamp::now(),
        of: Some(stat),
    }
}

/// Returns the content that a file would have after a write.
fn written(file: &File, offset: u64, data: &[u8]) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 4096];
    let len = file.read_at(&mut buffer, 0)?;
    let before = buffer.get(..len).unwrap_or_default();
    guarding::spliced(before, offset, data).ok_or_else(|| errno(libc::EPERM))
}
