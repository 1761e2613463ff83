//! Implementation of the requests, for all transports.
//!
//! Each method counts its request, carries it out on the [`Workspace`], and maps a failure to an
//! errno. A transport decodes a request, calls one method, and encodes the answer.
//!
//! `opendir`, `flush` and `create` answer ENOSYS once each. The kernel then does them itself
//! (create as mknod and open). So it does with `open`, which then costs nothing. The exceptions are
//! mounts for large files ([`super::opens`]) and mounts that show unsaved text
//! ([`super::overlay`]). No operation needs a handle: a node lives until the kernel forgets it.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, error};

use super::convert::{self, XattrAnswer};
use super::counters::{Counters, Operation};
use super::entries::{Entry, Listed, Opening, REMEMBER, ttl};
use super::errno::{self, Errno};
use super::generations::Generations;
use super::ioctl::{self, Ioctl};
use super::notifier;
use super::overlay::{self, Overlay};
use super::priming::PrimingFile;
use super::replay::{Act, Former, Replay, Unacknowledged};
use tine_attr::{Attr, FileKind, Ino, InodeFlags};
use tine_git::nonblocking;
use tine_workspace::{Caller, FsError, SetAttr, StatFs, Workspace, is_text_node};

/// Largest number of bytes that one request copies.
///
/// The limit keeps a copy from blocking its thread for long. It is a multiple of the page size.
const MAX_COPY: u64 = 64 * 1024 * 1024;

/// Answer to a request.
pub(super) type Answer<T> = Result<T, Errno>;

/// Reason why a request fails.
enum Refusal {
    /// The workspace failed or refused.
    Fs(FsError),
    /// The arguments are not valid here.
    Errno(Errno),
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Refusal {
        Refusal::Fs(error)
    }
}

impl From<Unacknowledged> for Refusal {
    fn from(reason: Unacknowledged) -> Refusal {
        match reason {
            Unacknowledged::Fs(error) => Refusal::Fs(error),
            Unacknowledged::Errno(errno) => Refusal::Errno(errno),
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Errno(errno)
    }
}

/// Runs a handler and maps its failure to an errno.
///
/// Logs errors of the machine or the store. A panic becomes EIO, so that the thread keeps serving.
fn guarded<T>(
    operation: Operation,
    ino: Ino,
    run: impl FnOnce() -> Result<T, Refusal>,
) -> Answer<T> {
    match notifier::as_handler(|| catch_unwind(AssertUnwindSafe(run))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Refusal::Errno(errno))) => Err(errno),
        // Another thread will carry out the request.
        Ok(Err(Refusal::Fs(_))) if nonblocking::was_refused() => Err(Errno::EAGAIN),
        Ok(Err(Refusal::Fs(failure))) => {
            let errno = errno::of(&failure);
            if errno == Errno::EIO {
                error!("{} of inode {}: {failure}", operation.name(), ino.0);
            } else {
                debug!("{} of inode {}: {failure}", operation.name(), ino.0);
            }
            Err(errno)
        }
        Err(_panic) => {
            error!("{} of inode {} panicked", operation.name(), ino.0);
            Err(Errno::EIO)
        }
    }
}

/// File system of one mount. Any thread may call any method.
pub(super) struct Operations {
    /// Workspace that the mount shows.
    workspace: Arc<Workspace>,
    /// Statistics of the requests.
    counters: Arc<Counters>,
    /// File for the first open on the mount.
    priming: PrimingFile,
    /// State of the replay of a change.
    replay: Arc<Replay>,
    /// Generations of removed directories.
    generations: Generations,
    /// State for unsaved text, on a mount that shows it.
    overlay: Option<Overlay>,
}

impl Operations {
    pub(super) fn new(
        workspace: Arc<Workspace>,
        counters: Arc<Counters>,
        priming: PrimingFile,
        replay: Arc<Replay>,
        shows_texts: bool,
    ) -> Operations {
        Operations {
            workspace,
            counters,
            priming,
            replay,
            generations: Generations::default(),
            overlay: shows_texts.then(Overlay::default),
        }
    }

    /// Returns the file behind a text node, and any other number itself.
    fn file(&self, ino: Ino) -> Result<Ino, FsError> {
        match &self.overlay {
            Some(_) => self.workspace.file_of_text(ino),
            None => Ok(ino),
        }
    }

    /// Checks that a request to change bytes is not for a text.
    ///
    /// # Errors
    /// ESTALE for a text node; the kernel then retries.
    fn check_is_file(&self, overlay: &Overlay, caller: Caller, ino: Ino) -> Result<(), Errno> {
        if is_text_node(ino) {
            return Err(overlay.request_retry(caller));
        }
        overlay.note_retried(caller);
        Ok(())
    }

    /// Returns whether a node is the text of a file.
    fn is_text(&self, ino: Ino) -> bool {
        self.overlay.is_some() && is_text_node(ino)
    }

    /// Sets the generation of an entry.
    fn with_generation(&self, entry: Entry) -> Entry {
        Entry {
            generation: entry.attr.map_or(0, |attr| self.generations.of(attr.ino)),
            ..entry
        }
    }

    /// Returns the entry for a name that a request created.
    fn created(&self, name: &[u8], attr: Attr) -> Entry {
        let entry = self.with_generation(Some(attr).into());
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

    /// Answers a request of a thread that replays changes.
    ///
    /// Such a request is not counted. `None` for any other thread.
    fn replayed<T>(
        &self,
        caller: Caller,
        (operation, ino): (Operation, Ino),
        answer: impl FnOnce(&Replay, usize) -> Result<T, Refusal>,
    ) -> Option<Answer<T>> {
        let worker = self.replay.replayed_by(caller)?;
        Some(self.guarded(operation, ino, || answer(&self.replay, worker)))
    }

    /// Acknowledges a call of a replaying thread, without carrying it out.
    fn acknowledged(
        &self,
        caller: Caller,
        request: (Operation, Ino),
        act: Act<'_>,
    ) -> Option<Answer<()>> {
        self.replayed(caller, request, |replay, worker| {
            Ok(replay.acknowledge(&self.workspace, worker, act)?)
        })
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
        let (attr, is_carried) = self.workspace.lookup_untold(parent, name)?;
        let entry = Entry::new(attr.map(|attr| self.with_time(attr)), is_carried);
        let mut entry = self.with_generation(entry);
        if self.overlay.is_some() && self.workspace.is_name_shown(name) {
            entry.name_ttl = Duration::ZERO;
        }
        Ok(entry)
    }

    /// Opens a file, on a mount where that is a request.
    ///
    /// ENOSYS on other mounts.
    pub(super) fn open(&self, caller: Caller, ino: Ino, to_write: bool) -> Answer<Opening> {
        let Some(overlay) = &self.overlay else {
            return Err(self.leave_to_kernel(Operation::Open));
        };
        self.call(Operation::Open, ino, |_| {
            if to_write || !is_text_node(ino) {
                self.check_is_file(overlay, caller, ino)?;
                return Ok(Opening::File);
            }
            Ok(Opening::Text)
        })
    }

    /// Runs a request and counts it, unless another thread must rerun it.
    fn call<T>(
        &self,
        operation: Operation,
        ino: Ino,
        run: impl FnOnce(&Workspace) -> Result<T, Refusal>,
    ) -> Answer<T> {
        let begun = Instant::now();
        let answer = self.guarded(operation, ino, || run(&self.workspace));
        if !nonblocking::was_refused() {
            self.counters.count_since(operation, begun);
        }
        answer
    }

    /// Runs a handler; if it panics, the fork accepts no more changes.
    fn guarded<T>(
        &self,
        operation: Operation,
        ino: Ino,
        run: impl FnOnce() -> Result<T, Refusal>,
    ) -> Answer<T> {
        let mut has_returned = false;
        let answer = guarded(operation, ino, || {
            let done = run();
            has_returned = true;
            done
        });
        if !has_returned {
            self.workspace.interrupt();
        }
        answer
    }

    /// Counts a request that the transport answers.
    pub(super) fn count(&self, operation: Operation) {
        self.counters.count(operation);
    }

    /// Counts a request and returns ENOSYS.
    ///
    /// The kernel then does these requests itself.
    pub(super) fn leave_to_kernel(&self, operation: Operation) -> Errno {
        self.counters.count(operation);
        Errno::ENOSYS
    }

    /// Pins a large content and returns its file for passthrough.
    ///
    /// The file holds this content until it is unpinned. `None` if there is no such file.
    pub(super) fn pin(&self, ino: Ino) -> Option<Arc<File>> {
        self.guarded(Operation::Open, ino, || {
            Ok(self.workspace.pin_content(ino)?)
        })
        .ok()
        .flatten()
    }

    /// Notes that mappings may have changed a pinned content.
    ///
    /// A failure cannot be reported to a program.
    pub(super) fn note_mapped_writes(&self, ino: Ino) {
        let _ = self.guarded(Operation::Release, ino, || {
            Ok(self.workspace.note_mapped_writes(ino)?)
        });
    }

    /// Unpins a content.
    pub(super) fn unpin(&self, ino: Ino) {
        // A failure cannot be reported to a program.
        let _ = self.guarded(Operation::Release, ino, || {
            self.workspace.unpin_content(ino);
            Ok(())
        });
    }

    /// Looks up a name, and counts one lookup of its node.
    pub(super) fn lookup(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<Entry> {
        if self.priming.is(parent, name) {
            return Ok(Entry {
                attr: Some(self.priming.attr()),
                name_ttl: Duration::ZERO,
                attr_ttl: REMEMBER,
                generation: 0,
            });
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
            let (attr, is_carried) = workspace.lookup_untold(parent, name)?;
            let entry = self.with_generation(Entry::new(attr, is_carried));
            Ok(match &self.overlay {
                Some(overlay) => overlay.resolve(workspace, caller, (parent, name), entry),
                None => entry,
            })
        })
    }

    /// Forgets lookups of a node. A failure cannot be reported.
    pub(super) fn forget(&self, ino: Ino, lookups: u64) {
        if ino == PrimingFile::INO {
            return;
        }
        let _ = self.call(Operation::Forget, ino, |workspace| {
            if self.is_text(ino) {
                workspace.forget_text(ino, lookups);
            } else {
                workspace.forget(ino, lookups);
            }
            self.generations
                .note_forgotten(ino, || workspace.is_remembered(ino));
            Ok(())
        });
    }

    /// Returns the attributes, and their cache time in the kernel.
    pub(super) fn getattr(&self, caller: Caller, ino: Ino) -> Answer<(Attr, Duration)> {
        if ino == PrimingFile::INO {
            return Ok((self.priming.attr(), REMEMBER));
        }
        let replayed = self.replayed(caller, (Operation::GetAttr, ino), |replay, _| {
            let attr = match self.workspace.getattr(ino) {
                Ok(attr) => self.with_time(attr),
                Err(error) => replay.former_node(ino).ok_or(error)?,
            };
            Ok((attr, Duration::ZERO))
        });
        if let Some(answer) = replayed {
            return answer;
        }
        self.call(Operation::GetAttr, ino, |workspace| {
            if self.is_text(ino) {
                return Ok((workspace.getattr_of_text(ino)?, Duration::ZERO));
            }
            let attr = self.with_time(workspace.getattr(ino)?);
            let is_carried = attr.kind == FileKind::Directory && workspace.is_carried(ino);
            Ok((attr, ttl(is_carried)))
        })
    }

    /// Changes attributes, and returns them as [`Operations::getattr`] does.
    pub(super) fn setattr(
        &self,
        caller: Caller,
        ino: Ino,
        set: &SetAttr,
    ) -> Answer<(Attr, Duration)> {
        let replayed = self.replayed(caller, (Operation::SetAttr, ino), |replay, worker| {
            replay.acknowledge(&self.workspace, worker, Act::SetAttributes(ino))?;
            Ok((self.with_time(self.workspace.getattr(ino)?), REMEMBER))
        });
        if let Some(answer) = replayed {
            return answer;
        }
        self.call(Operation::SetAttr, ino, |workspace| {
            let Some(overlay) = &self.overlay else {
                return Ok((workspace.setattr(caller, ino, set)?, REMEMBER));
            };
            if set.size.is_some() {
                self.check_is_file(overlay, caller, ino)?;
            }
            let file = workspace.file_of_text(ino)?;
            if set.mtime.is_some() {
                workspace.forget_uncovered(file);
            }
            let attr = workspace.setattr(caller, file, set)?;
            if file == ino {
                return Ok((workspace.uncovered(attr), REMEMBER));
            }
            workspace.announce_shown(&[file]);
            Ok((workspace.getattr_of_text(ino)?, Duration::ZERO))
        })
    }

    /// Adjusts the times of a file of which text was shown.
    fn with_time(&self, attr: Attr) -> Attr {
        match &self.overlay {
            Some(_) => self.workspace.uncovered(attr),
            None => attr,
        }
    }

    /// Returns the target of a symlink.
    pub(super) fn readlink(&self, ino: Ino) -> Answer<Vec<u8>> {
        self.call(Operation::ReadLink, ino, |workspace| {
            Ok(workspace.readlink(ino)?)
        })
    }

    /// Creates a file of any kind except a directory or symlink.
    pub(super) fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Answer<Entry> {
        if let Some(answer) = self.acknowledged_name(caller, Operation::MkNod, (parent, name)) {
            return answer;
        }
        self.call(Operation::MkNod, parent, |workspace| {
            Ok(self.created(name, workspace.mknod(caller, parent, name, mode, rdev)?))
        })
    }

    /// Creates a directory.
    pub(super) fn mkdir(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Answer<Entry> {
        if let Some(answer) = self.acknowledged_name(caller, Operation::MkDir, (parent, name)) {
            return answer;
        }
        self.call(Operation::MkDir, parent, |workspace| {
            Ok(self.created(name, workspace.mkdir(caller, parent, name, mode)?))
        })
    }

    /// Removes a name of a file that is not a directory.
    pub(super) fn unlink(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
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
    pub(super) fn rmdir(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
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
    pub(super) fn symlink(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Answer<Entry> {
        if let Some(answer) = self.acknowledged_name(caller, Operation::Symlink, (parent, name)) {
            return answer;
        }
        self.call(Operation::Symlink, parent, |workspace| {
            Ok(self.created(name, workspace.symlink(caller, parent, name, target)?))
        })
    }

    /// Renames a file. `flags` are those of renameat2(2).
    pub(super) fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: u32,
    ) -> Answer<()> {
        let act = Act::Rename((parent, name), (new_parent, new_name));
        if let Some(answer) = self.acknowledged(caller, (Operation::Rename, parent), act) {
            return answer;
        }
        self.call(Operation::Rename, parent, |workspace| {
            let mode = convert::rename_mode(flags)?;
            if let Some(overlay) = &self.overlay {
                overlay.check_rename(workspace, caller, [name, new_name])?;
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
    pub(super) fn link(
        &self,
        caller: Caller,
        ino: Ino,
        new_parent: Ino,
        new_name: &[u8],
    ) -> Answer<Entry> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        self.call(Operation::Link, ino, |workspace| {
            let file = self.file(ino)?;
            Ok(self.created(
                new_name,
                workspace.link(caller, file, new_parent, new_name)?,
            ))
        })
    }

    /// Checks access. `mask` is that of access(2).
    pub(super) fn access(&self, ino: Ino, mask: i32) -> Answer<()> {
        // The kernel sends this only if it does not check permissions, for a process that may read
        // and write everything.
        self.call(Operation::Access, ino, |workspace| {
            match mask & libc::X_OK {
                0 => Ok(()),
                _ => Ok(workspace.check_executable(self.file(ino)?)?),
            }
        })
    }

    /// Reads bytes and returns their number.
    ///
    /// It is less than the size of `buffer` only at the end of the file.
    pub(super) fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let answer = self.call(Operation::Read, ino, |workspace| {
            if self.is_text(ino) {
                return Ok(overlay::read_text(&workspace.text_of(ino)?, offset, buffer));
            }
            Ok(workspace.read_into(ino, offset, buffer)?)
        });
        if let Ok(count) = answer {
            self.counters.has_read(ino, count as u64);
        }
        answer
    }

    /// Writes bytes and returns their number.
    ///
    /// With `kill_privileges`, the file loses its set-ID bits and capabilities.
    pub(super) fn write(
        &self,
        caller: Caller,
        ino: Ino,
        offset: u64,
        data: &[u8],
        kill_privileges: bool,
    ) -> Answer<u32> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        let answer = self.call(Operation::Write, ino, |workspace| {
            workspace.write(ino, offset, data, kill_privileges.then_some(caller))?;
            u32::try_from(data.len()).map_err(|_| Errno::EINVAL.into())
        });
        if let Ok(count) = answer {
            self.counters.has_written(ino, count.into());
        }
        answer
    }

    /// Flushes a file to disk.
    pub(super) fn fsync(&self, ino: Ino) -> Answer<()> {
        self.call(Operation::Fsync, ino, |workspace| {
            Ok(workspace.fsync(self.file(ino)?)?)
        })
    }

    /// Flushes a directory to disk.
    pub(super) fn fsyncdir(&self, ino: Ino) -> Answer<()> {
        self.call(Operation::FsyncDir, ino, |workspace| {
            Ok(workspace.fsync(ino)?)
        })
    }

    /// Lists the entries after `cookie`.
    ///
    /// Stops when `add` returns false: the entry did not fit.
    pub(super) fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Answer<()> {
        self.call(Operation::ReadDir, ino, |workspace| {
            for dot in workspace.dots(ino, cookie)? {
                if !add(Listed::dot(dot)) {
                    return Ok(());
                }
            }
            Ok(workspace.readdir(ino, cookie, &mut |entry| {
                add(Listed {
                    name: entry.name.as_bytes(),
                    ino: entry.ino,
                    kind: entry.kind,
                    cookie: entry.cookie,
                    is_carried: entry.is_carried,
                    is_shown: false,
                    generation: 0,
                })
            })?)
        })
    }

    /// Lists the entries after `cookie` with attributes.
    ///
    /// Each added entry counts as one lookup, except `.` and `..`. Otherwise as
    /// [`Operations::readdir`].
    pub(super) fn readdirplus(
        &self,
        ino: Ino,
        cookie: u64,
        add: &mut dyn FnMut(Listed<'_>, &Attr) -> bool,
    ) -> Answer<()> {
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
            Ok(workspace.readdir_plus(ino, cookie, &mut |entry, attr| {
                let listed = Listed {
                    name: entry.name.as_bytes(),
                    ino: entry.ino,
                    kind: entry.kind,
                    cookie: entry.cookie,
                    is_carried: entry.is_carried,
                    generation: self.generations.of(entry.ino),
                    is_shown: shown.iter().any(|name| *name == entry.name.as_bytes()),
                };
                add(listed, &self.with_time(attr))
            })?)
        })
    }

    /// Returns the statistics of the file system.
    pub(super) fn statfs(&self, ino: Ino) -> Answer<StatFs> {
        self.call(Operation::StatFs, ino, |workspace| Ok(workspace.statfs()?))
    }

    /// Sets an extended attribute. `flags` are those of setxattr(2).
    pub(super) fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        // The kernel removes privileges before it changes a file. The replayed change has done so.
        if self.replay.replayed_by(caller).is_some() {
            return Ok(());
        }
        self.call(Operation::SetXattr, ino, |workspace| {
            let mode = convert::xattr_mode(flags)?;
            Ok(workspace.setxattr(caller, self.file(ino)?, name, value, mode)?)
        })
    }

    /// Reads an extended attribute into a buffer of `size` bytes.
    pub(super) fn getxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        size: u32,
    ) -> Answer<XattrAnswer> {
        self.call(Operation::GetXattr, ino, |workspace| {
            let value = workspace.getxattr(caller, self.file(ino)?, name)?;
            Ok(convert::xattr_answer(value, size)?)
        })
    }

    /// Lists the names of extended attributes.
    ///
    /// A zero byte follows each name. `size` is that of the caller's buffer.
    pub(super) fn listxattr(&self, caller: Caller, ino: Ino, size: u32) -> Answer<XattrAnswer> {
        self.call(Operation::ListXattr, ino, |workspace| {
            let mut list = Vec::new();
            for name in workspace.listxattr(caller, self.file(ino)?)? {
                list.extend_from_slice(&name);
                list.push(0);
            }
            Ok(convert::xattr_answer(list, size)?)
        })
    }

    /// Removes an extended attribute.
    pub(super) fn removexattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Answer<()> {
        // The kernel removes privileges before it changes a file. The replayed change has done so.
        if self.replay.replayed_by(caller).is_some() {
            return Ok(());
        }
        self.call(Operation::RemoveXattr, ino, |workspace| {
            Ok(workspace.removexattr(caller, self.file(ino)?, name)?)
        })
    }

    /// Changes the allocation of a file. `mode` is that of fallocate(2).
    pub(super) fn fallocate(
        &self,
        caller: Caller,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Answer<()> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        self.call(Operation::Fallocate, ino, |workspace| {
            let mode = convert::fallocate_mode(mode)?;
            Ok(workspace.fallocate(ino, offset, len, mode, unprivileged(caller))?)
        })
    }

    /// Finds data or a hole. `whence` is that of lseek(2).
    pub(super) fn lseek(&self, ino: Ino, offset: i64, whence: i32) -> Answer<i64> {
        self.call(Operation::Lseek, ino, |workspace| {
            let whence = convert::seek_whence(whence)?;
            // lseek(2): an offset before the start is ENXIO, as one past the end.
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let found = if self.is_text(ino) {
                overlay::seek_text(&workspace.text_of(ino)?, offset, whence)?
            } else {
                workspace.seek(ino, offset, whence)?
            };
            i64::try_from(found).map_err(|_| Errno::EOVERFLOW.into())
        })
    }

    /// Copies bytes between files and returns their number.
    ///
    /// The number may be less than `len`.
    pub(super) fn copy_file_range(
        &self,
        caller: Caller,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
        flags: u64,
    ) -> Answer<u32> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        let answer = self.call(Operation::CopyFileRange, to, |workspace| {
            if flags != 0 {
                return Err(Errno::EINVAL.into());
            }
            if self.is_text(from) {
                // The kernel then falls back to reading and writing.
                return Err(Errno::EXDEV.into());
            }
            let len = len.min(MAX_COPY);
            let unprivileged = unprivileged(caller);
            let copied =
                workspace.copy_range(from, from_offset, to, to_offset, len, unprivileged)?;
            u32::try_from(copied).map_err(|_| Errno::EOVERFLOW.into())
        });
        if let Ok(count) = answer {
            self.counters.has_read(from, count.into());
            self.counters.has_written(to, count.into());
        }
        answer
    }

    /// Gets or sets inode flags, and returns the bytes for the program.
    pub(super) fn ioctl(
        &self,
        caller: Caller,
        ino: Ino,
        command: u32,
        data: &[u8],
    ) -> Answer<Vec<u8>> {
        if self.replay.replayed_by(caller).is_some() {
            return Err(Errno::EPERM);
        }
        self.call(Operation::Ioctl, ino, |workspace| {
            let ino = self.file(ino)?;
            Ok(match ioctl::decode(command, data)? {
                Ioctl::GetFlags => ioctl::flags(workspace.flags(ino)?),
                Ioctl::GetExtended => ioctl::extended(workspace.flags(ino)?),
                Ioctl::SetFlags(flags) => {
                    workspace.set_flags(caller, ino, flags)?;
                    Vec::new()
                }
                Ioctl::SetExtended(flags) => {
                    let kept = workspace.flags(ino)?.intersection(InodeFlags::DIRSYNC);
                    workspace.set_flags(caller, ino, flags.union(kept))?;
                    Vec::new()
                }
            })
        })
    }
}

/// Returns the caller if a change must remove set-ID bits.
///
/// Unlike writes, these requests do not say whether the file loses them.
fn unprivileged(caller: Caller) -> Option<Caller> {
    Some(caller).filter(|caller| !caller.is_privileged())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_panics_answers_eio_and_the_next_one_works() {
        let panicked: Answer<()> = guarded(Operation::Read, Ino(5), || panic!("on purpose"));
        assert_eq!(panicked, Err(Errno::EIO));
        assert_eq!(guarded(Operation::Read, Ino(5), || Ok(7)), Ok(7));
    }

    #[test]
    fn a_refusal_becomes_its_errno() {
        let by_workspace: Answer<()> =
            guarded(Operation::RmDir, Ino(5), || Err(FsError::NotEmpty.into()));
        assert_eq!(by_workspace, Err(Errno::ENOTEMPTY));
        let by_decoding: Answer<()> =
            guarded(Operation::Lseek, Ino(5), || Err(Errno::ENXIO.into()));
        assert_eq!(by_decoding, Err(Errno::ENXIO));
    }
}
