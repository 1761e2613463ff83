//! Requests about names: lookups, listings, and changes of directories.

use std::time::Duration;

use super::dot_git::{LAST, entry, listed};
use super::{Answer, Operations, Refusal};
use crate::convert;
use crate::counters::Operation;
use crate::entries::{Entry, Listed, REMEMBER};
use crate::errno::Errno;
use crate::priming::PrimingFile;
use crate::replay::{Act, Former};
use tine_attr::{Attr, Ino};
use tine_dotgit::guarding::NewFile;
use tine_git::nonblocking;
use tine_path::DOT_GIT;
use tine_workspace::Caller;

impl Operations {
    /// Returns the entry for a name that a request created.
    fn created(&self, parent: Ino, name: &[u8], attr: Attr) -> Entry {
        let entry = self.with_generation(Some(attr).into());
        let entry = self.note_guarded(parent, name, entry);
        match &self.overlay {
            Some(overlay) => overlay.created(&self.workspace, name, entry),
            None => entry,
        }
    }

    /// Runs `change`, which removes or replaces these names.
    fn change_names<T>(
        &self,
        names: &[(Ino, &[u8])],
        change: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        match &self.overlay {
            Some(overlay) => overlay.change_names(&self.workspace, names, change),
            None => change(),
        }
    }

    /// Acknowledges the creation of a name, with its actual entry.
    ///
    /// Otherwise as [`Operations::acknowledged`].
    fn acknowledged_name(
        &self,
        caller: Caller,
        operation: Operation,
        (parent, name): (Ino, &[u8]),
    ) -> Option<Answer<Entry>> {
        self.replayed(caller, (operation, parent), |replay, worker| {
            let entry = self.current_entry(parent, name)?;
            let acknowledged = replay.acknowledge(&self.workspace, worker, Act::Make(parent, name));
            if let (Err(_), Some(attr)) = (&acknowledged, entry.attr) {
                self.workspace.forget(attr.ino, 1);
            }
            acknowledged?;
            match entry.attr {
                Some(_) => Ok(entry),
                None => Err(Errno::EPERM.into()),
            }
        })
    }

    /// Looks up a name without regard for unsaved text.
    fn current_entry(&self, parent: Ino, name: &[u8]) -> Result<Entry, Refusal> {
        let (attr, is_carried) = self.workspace.try_lookup(parent, name)?;
        let entry = Entry::new(attr.map(|attr| self.with_time(attr)), is_carried);
        let mut entry = self.note_guarded(parent, name, self.with_generation(entry));
        if self.overlay.is_some() && self.workspace.is_name_shown(name) {
            entry.name_ttl = Duration::ZERO;
        }
        Ok(entry)
    }

    /// Looks up a name, and counts one lookup of its node.
    pub(crate) fn lookup(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<Entry> {
        if self.priming.is(parent, name) {
            return Ok(Entry {
                attr: Some(self.priming.attr()),
                name_ttl: Duration::ZERO,
                attr_ttl: REMEMBER,
                generation: 0,
            });
        }
        if let Some(answer) = self.lookup_in_git(caller, parent, name) {
            return answer;
        }
        let replayed = self.replayed(caller, (Operation::Lookup, parent), |replay, _| {
            match replay.lookup(&self.workspace, parent, name) {
                Former::Current => self.current_entry(parent, name),
                Former::Nothing => Err(Errno::ENOENT.into()),
                // The node may have other attributes now.
                Former::Node(attr) => Ok(self.with_generation(Entry {
                    attr: Some(attr),
                    name_ttl: Duration::ZERO,
                    attr_ttl: Duration::ZERO,
                    generation: 0,
                })),
            }
        });
        if let Some(answer) = replayed {
            return answer;
        }
        self.call(Operation::Lookup, parent, |workspace| {
            // The kernel has only a file handle: no path leads through these names.
            let by_number = match name {
                b"." => Some(parent),
                b".." => Some(workspace.number_of_parent(parent)?),
                _ => None,
            };
            if let Some(number) = by_number {
                return Ok(self.with_generation(Some(workspace.lookup_number(number)?).into()));
            }
            if let Some(entry) = self.lookup_guarded(workspace, parent, name)? {
                return Ok(entry);
            }
            let (attr, is_carried) = workspace.try_lookup(parent, name)?;
            let entry = self.with_generation(Entry::new(attr, is_carried));
            let entry = self.note_guarded(parent, name, entry);
            Ok(match &self.overlay {
                Some(overlay) => overlay.resolve(workspace, caller, (parent, name), entry),
                None => entry,
            })
        })
    }

    /// Forgets lookups of a node. A failure cannot be reported.
    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        if ino == PrimingFile::INO {
            return;
        }
        if let Some(git) = self.git_node(ino) {
            self.count(Operation::Forget);
            self.forget_copy(ino);
            return git.forget(ino, lookups);
        }
        let _ = self.call(Operation::Forget, ino, |workspace| {
            if self.is_text(ino) {
                workspace.forget_text(ino, lookups);
            } else {
                workspace.forget(ino, lookups);
            }
            self.generations
                .note_forgotten(ino, || workspace.is_remembered(ino));
            self.forget_guarded(workspace, ino);
            Ok(())
        });
    }

    /// Returns the target of a symlink.
    pub(crate) fn readlink(&self, ino: Ino) -> Answer<Vec<u8>> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::ReadLink, ino, || git.readlink(ino));
        }
        self.call(Operation::ReadLink, ino, |workspace| {
            Ok(workspace.readlink(ino)?)
        })
    }

    /// Creates a file of any kind except a directory or symlink.
    pub(crate) fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Answer<Entry> {
        if let Some(git) = self.git_node(parent) {
            return self.in_git(Operation::MkNod, parent, || {
                Ok(entry(&git.mknod(caller, parent, name, mode)?))
            });
        }
        self.refuse_git_root(parent, name, Errno::EEXIST)?;
        if let Some(answer) = self.acknowledged_name(caller, Operation::MkNod, (parent, name)) {
            return answer;
        }
        self.call(Operation::MkNod, parent, |workspace| {
            self.check_new(workspace, caller, (parent, name), NewFile::File)?;
            let made = workspace.mknod(caller, parent, name, mode, rdev)?;
            Ok(self.created(parent, name, made))
        })
    }

    /// Creates a directory.
    pub(crate) fn mkdir(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Answer<Entry> {
        if let Some(git) = self.git_node(parent) {
            return self.in_git(Operation::MkDir, parent, || {
                Ok(entry(&git.mkdir(caller, parent, name, mode)?))
            });
        }
        self.refuse_git_root(parent, name, Errno::EEXIST)?;
        if let Some(answer) = self.acknowledged_name(caller, Operation::MkDir, (parent, name)) {
            return answer;
        }
        self.call(Operation::MkDir, parent, |workspace| {
            self.check_new(workspace, caller, (parent, name), NewFile::Dir)?;
            let made = workspace.mkdir(caller, parent, name, mode)?;
            Ok(self.created(parent, name, made))
        })
    }

    /// Removes a name of a file that is not a directory.
    pub(crate) fn unlink(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
        if let Some(git) = self.git_node(parent) {
            return self.in_git(Operation::Unlink, parent, || git.unlink(parent, name));
        }
        self.refuse_git_root(parent, name, Errno::EISDIR)?;
        let act = Act::Remove(parent, name);
        if let Some(answer) = self.acknowledged(caller, (Operation::Unlink, parent), act) {
            return answer;
        }
        self.call(Operation::Unlink, parent, |workspace| {
            self.change_names(&[(parent, name)], || {
                Ok(workspace.unlink(caller, parent, name)?)
            })
        })
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
        if let Some(git) = self.git_node(parent) {
            return self.in_git(Operation::RmDir, parent, || git.rmdir(parent, name));
        }
        self.refuse_git_root(parent, name, Errno::EBUSY)?;
        let act = Act::Remove(parent, name);
        let removed = self.replay.removed_dir();
        if let Some(answer) = self.acknowledged(caller, (Operation::RmDir, parent), act) {
            if let (Ok(()), Some(ino)) = (&answer, removed) {
                self.generations.note_removed(ino);
            }
            return answer;
        }
        self.call(Operation::RmDir, parent, |workspace| {
            let removed = workspace.number_at(parent, name)?;
            workspace.rmdir(caller, parent, name)?;
            removed.inspect(|ino| self.generations.note_removed(*ino));
            Ok(())
        })
    }

    /// Creates a symlink.
    pub(crate) fn symlink(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Entry> {
        if let Some(git) = self.git_node(parent) {
            return self.in_git(Operation::Symlink, parent, || {
                Ok(entry(&git.symlink(caller, parent, name, target)?))
            });
        }
        self.refuse_git_root(parent, name, Errno::EEXIST)?;
        if let Some(answer) = self.acknowledged_name(caller, Operation::Symlink, (parent, name)) {
            return answer;
        }
        self.call(Operation::Symlink, parent, |workspace| {
            self.check_new(workspace, caller, (parent, name), NewFile::Symlink(target))?;
            let made = workspace.symlink(caller, parent, name, target)?;
            Ok(self.created(parent, name, made))
        })
    }

    /// Renames a file. `flags` are those of renameat2(2).
    pub(crate) fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: u32,
    ) -> Answer<()> {
        self.refuse_git_root(parent, name, Errno::EBUSY)?;
        self.refuse_git_root(new_parent, new_name, Errno::EBUSY)?;
        self.refuse_across(parent, new_parent)?;
        if let Some(git) = self.git_node(parent) {
            return self.in_git(Operation::Rename, parent, || {
                git.rename((parent, name), (new_parent, new_name), flags)
            });
        }
        let act = Act::Rename((parent, name), (new_parent, new_name));
        if let Some(answer) = self.acknowledged(caller, (Operation::Rename, parent), act) {
            return answer;
        }
        self.call(Operation::Rename, parent, |workspace| {
            let mode = convert::rename_mode(flags)?;
            if let Some(overlay) = &self.overlay {
                overlay.check_rename(workspace, caller, [name, new_name])?;
            }
            let (from, to) = ((parent, name), (new_parent, new_name));
            if self.rename_guarded(workspace, caller, from, to, mode)? {
                return Ok(());
            }
            let renamed = self.change_names(&[(parent, name), (new_parent, new_name)], || {
                Ok(workspace.rename(caller, parent, name, new_parent, new_name, mode)?)
            });
            if let Some(overlay) = self
                .overlay
                .as_ref()
                .filter(|_| !nonblocking::was_refused())
            {
                overlay.note_retried(caller);
            }
            renamed
        })
    }

    /// Creates a hard link.
    pub(crate) fn link(
        &self,
        caller: Caller,
        ino: Ino,
        new_parent: Ino,
        new_name: &[u8],
    ) -> Answer<Entry> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        self.refuse_across(ino, new_parent)?;
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::Link, ino, || {
                Ok(entry(&git.link(ino, new_parent, new_name)?))
            });
        }
        self.refuse_git_root(new_parent, new_name, Errno::EEXIST)?;
        self.call(Operation::Link, ino, |workspace| {
            let file = self.file(ino)?;
            self.check_new(workspace, caller, (new_parent, new_name), NewFile::Link)?;
            let linked = workspace.link(caller, file, new_parent, new_name)?;
            Ok(self.created(new_parent, new_name, linked))
        })
    }

    /// Lists the entries after `cookie`.
    ///
    /// Stops when `add` returns false: the entry did not fit.
    pub(crate) fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Answer<()> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::ReadDir, ino, || {
                git.readdir(ino, cookie, &mut |entry| add(listed(entry, true)))
            });
        }
        if cookie == LAST {
            return Ok(());
        }
        self.call(Operation::ReadDir, ino, |workspace| {
            for dot in workspace.dots(ino, cookie)? {
                if !add(Listed::dot(dot)) {
                    return Ok(());
                }
            }
            let git_root = self.listed_git_root(ino, cookie);
            let mut is_full = false;
            workspace.readdir(ino, cookie, &mut |entry| {
                if git_root.is_some() && entry.name.as_bytes() == DOT_GIT {
                    return true;
                }
                is_full = !add(Listed {
                    name: entry.name.as_bytes(),
                    ino: entry.ino,
                    kind: entry.kind,
                    cookie: entry.cookie,
                    is_carried: entry.is_carried,
                    is_shown: false,
                    generation: 0,
                });
                !is_full
            })?;
            if let Some((listed, _)) = git_root.filter(|_| !is_full) {
                add(listed);
            }
            Ok(())
        })
    }

    /// Lists the entries after `cookie` with attributes.
    ///
    /// Each added entry counts as one lookup, except `.` and `..`. Otherwise as
    /// [`Operations::readdir`].
    pub(crate) fn readdirplus(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(Listed<'_>, &Attr) -> bool,
    ) -> Answer<()> {
        if let Some(git) = self.git_node(ino) {
            return self.in_git(Operation::ReadDirPlus, ino, || {
                git.readdirplus(ino, cookie, &mut |entry, attr, keeps| {
                    add(listed(entry, keeps), attr)
                })
            });
        }
        if cookie == LAST {
            return Ok(());
        }
        self.call(Operation::ReadDirPlus, ino, |workspace| {
            let shown = match &self.overlay {
                Some(_) => workspace.shown_in(ino),
                None => Vec::new(),
            };
            for dot in workspace.dots(ino, cookie)? {
                // The kernel recognises these two and counts no lookup.
                let listed = Listed::dot(dot);
                let attr = Attr {
                    ino: listed.ino,
                    ..workspace.getattr(ino)?
                };
                if !add(listed, &attr) {
                    return Ok(());
                }
            }
            let git_root = self.listed_git_root(ino, cookie);
            let mut is_full = false;
            workspace.readdir_plus(ino, cookie, &mut |entry, attr| {
                if git_root.is_some() && entry.name.as_bytes() == DOT_GIT {
                    workspace.forget(entry.ino, 1);
                    return true;
                }
                let listed = Listed {
                    name: entry.name.as_bytes(),
                    ino: entry.ino,
                    kind: entry.kind,
                    cookie: entry.cookie,
                    is_carried: entry.is_carried,
                    generation: self.generations.of(entry.ino),
                    is_shown: shown.iter().any(|name| *name == entry.name.as_bytes())
                        || self.is_fleeting(ino, entry.name.as_bytes()),
                };
                self.note_node(listed.name, listed.ino, listed.kind);
                is_full = !add(listed, &self.with_time(attr));
                !is_full
            })?;
            if let Some((listed, attr)) = git_root.filter(|_| !is_full) {
                add(listed, &attr);
            }
            Ok(())
        })
    }
}
