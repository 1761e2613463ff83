//! What each request does, whichever transport brought it: it is counted, carried out on the
//! [`Workspace`], and whatever goes wrong becomes an errno. A transport decodes a request, calls
//! one method here, and encodes the answer.
//!
//! `opendir`, `flush` and `create` answer ENOSYS, once each: the kernel then does them by itself
//! (create as mknod followed by an open). So does `open`, which then costs nothing, unless the
//! mount is for large files ([`super::opens`]) or shows texts that are not saved
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

/// Bytes copied by one request at most, so that one copy does not hold a thread for long. A
/// multiple of the page size.
const MAX_COPY: u64 = 64 * 1024 * 1024;

/// What a request is answered with.
pub(super) type Answer<T> = Result<T, Errno>;

/// Why a request is refused.
enum Refusal {
    /// By the workspace.
    Fs(FsError),
    /// Because its arguments mean nothing here.
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

/// Runs a handler and finds the errno for its failure; what is the machine's fault is logged. A
/// panic becomes EIO, so that the thread goes on serving.
fn guarded<T>(
    operation: Operation,
    ino: Ino,
    run: impl FnOnce() -> Result<T, Refusal>,
) -> Answer<T> {
    match notifier::as_handler(|| catch_unwind(AssertUnwindSafe(run))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Refusal::Errno(errno))) => Err(errno),
        // Another thread will carry it out.
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

/// One mount's file system. All methods may be called from any thread.
pub(super) struct Operations {
    workspace: Arc<Workspace>,
    counters: Arc<Counters>,
    priming: PrimingFile,
    replay: Arc<Replay>,
    generations: Generations,
    /// Where texts are shown that are not saved.
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

    /// The file of a text that is shown; any other number itself.
    fn file(&self, ino: Ino) -> Result<Ino, FsError> {
        match &self.overlay {
            Some(_) => self.workspace.file_of_text(ino),
            None => Ok(ino),
        }
    }

    /// What changes a file's bytes must come to the file itself.
    fn file_to_change(&self, overlay: &Overlay, caller: Caller, ino: Ino) -> Result<(), Errno> {
        if is_text_node(ino) {
            return Err(overlay.begin_again(caller));
        }
        overlay.came_back(caller);
        Ok(())
    }

    fn is_text(&self, ino: Ino) -> bool {
        self.overlay.is_some() && is_text_node(ino)
    }

    fn of_its_generation(&self, entry: Entry) -> Entry {
        Entry {
            generation: entry.attr.map_or(0, |attr| self.generations.of(attr.ino)),
            ..entry
        }
    }

    /// A name that was made.
    fn made(&self, name: &[u8], attr: Attr) -> Entry {
        let entry = self.of_its_generation(Some(attr).into());
        match &self.overlay {
            Some(overlay) => overlay.made(&self.workspace, name, entry),
            None => entry,
        }
    }

    /// Runs what takes these names away or puts others in their place.
    fn changing_names<T>(
        &self,
        names: &[(Ino, &[u8])],
        change: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        match &self.overlay {
            Some(overlay) => overlay.changing_names(&self.workspace, names, change),
            None => change(),
        }
    }

    /// The answer to a request of a thread that replays changes, which is not counted; `None` to
    /// anybody else's.
    fn replayed<T>(
        &self,
        caller: Caller,
        (operation, ino): (Operation, Ino),
        answer: impl FnOnce(&Replay, usize) -> Result<T, Refusal>,
    ) -> Option<Answer<T>> {
        let worker = self.replay.replayed_by(caller)?;
        Some(self.guarded(operation, ino, || answer(&self.replay, worker)))
    }

    /// Acknowledges an act of that thread.
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

    /// As [`Operations::acknowledged`], of a name that it makes: what everybody finds there.
    fn acknowledged_name(
        &self,
        caller: Caller,
        operation: Operation,
        (parent, name): (Ino, &[u8]),
    ) -> Option<Answer<Entry>> {
        self.replayed(caller, (operation, parent), |replay, worker| {
            let entry = self.entry_as_it_is(parent, name)?;
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

    /// What a name leads to, whatever is shown there.
    fn entry_as_it_is(&self, parent: Ino, name: &[u8]) -> Result<Entry, Refusal> {
        let (attr, is_carried) = self.workspace.lookup_untold(parent, name)?;
        let entry = Entry::new(attr.map(|attr| self.with_time(attr)), is_carried);
        let mut entry = self.of_its_generation(entry);
        if self.overlay.is_some() && self.workspace.is_name_shown(name) {
            entry.name_ttl = Duration::ZERO;
        }
        Ok(entry)
    }

    /// Where opening a file is a request; ENOSYS elsewhere.
    pub(super) fn open(&self, caller: Caller, ino: Ino, to_write: bool) -> Answer<Opening> {
        let Some(overlay) = &self.overlay else {
            return Err(self.leave_to_kernel(Operation::Open));
        };
        self.call(Operation::Open, ino, |_| {
            if to_write || !is_text_node(ino) {
                self.file_to_change(overlay, caller, ino)?;
                return Ok(Opening::File);
            }
            Ok(Opening::Text)
        })
    }

    /// Runs the request and counts it, unless somebody else will have to run it.
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

    /// As the function of that name; after a panic the fork takes no more changes.
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

    /// ENOSYS: from now on the kernel does it by itself.
    pub(super) fn leave_to_kernel(&self, operation: Operation) -> Errno {
        self.counters.count(operation);
        Errno::ENOSYS
    }

    /// The file that holds a large content, for the kernel to read from; it is the content's until
    /// it is unpinned.
    pub(super) fn pin(&self, ino: Ino) -> Option<Arc<File>> {
        self.guarded(Operation::Open, ino, || {
            Ok(self.workspace.pin_content(ino)?)
        })
        .ok()
        .flatten()
    }

    /// There is nobody to be told of a failure.
    pub(super) fn note_mapped_writes(&self, ino: Ino) {
        let _ = self.guarded(Operation::Release, ino, || {
            Ok(self.workspace.note_mapped_writes(ino)?)
        });
    }

    pub(super) fn unpin(&self, ino: Ino) {
        // There is nobody to be told of a failure.
        let _ = self.guarded(Operation::Release, ino, || {
            self.workspace.unpin_content(ino);
            Ok(())
        });
    }

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
                Former::AsItIs => self.entry_as_it_is(parent, name),
                Former::Nothing => Err(Errno::ENOENT.into()),
                // The node may have other attributes by now.
                Former::Node(attr) => Ok(self.of_its_generation(Entry {
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
            // A handle alone: no path leads through these.
            let by_number = match name {
                b"." => Some(parent),
                b".." => Some(workspace.number_of_parent(parent)?),
                _ => None,
            };
            if let Some(number) = by_number {
                return Ok(self.of_its_generation(Some(workspace.lookup_number(number)?).into()));
            }
            let (attr, is_carried) = workspace.lookup_untold(parent, name)?;
            let entry = self.of_its_generation(Entry::new(attr, is_carried));
            Ok(match &self.overlay {
                Some(overlay) => overlay.looked_up(workspace, caller, (parent, name), entry),
                None => entry,
            })
        })
    }

    /// There is nobody to be told of a failure.
    pub(super) fn forget(&self, ino: Ino, lookups: u64) {
        if ino == PrimingFile::INO {
            return;
        }
        let _ = self.call(Operation::Forget, ino, |workspace| {
            match self.is_text(ino) {
                true => workspace.forget_text(ino, lookups),
                false => workspace.forget(ino, lookups),
            }
            self.generations
                .note_forgotten(ino, || workspace.is_remembered(ino));
            Ok(())
        });
    }

    /// With how long the kernel may remember them.
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
                self.file_to_change(overlay, caller, ino)?;
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

    /// A file's attributes, with the time that it has where a text was shown.
    fn with_time(&self, attr: Attr) -> Attr {
        match &self.overlay {
            Some(_) => self.workspace.uncovered(attr),
            None => attr,
        }
    }

    pub(super) fn readlink(&self, ino: Ino) -> Answer<Vec<u8>> {
        self.call(Operation::ReadLink, ino, |workspace| {
            Ok(workspace.readlink(ino)?)
        })
    }

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
            Ok(self.made(name, workspace.mknod(caller, parent, name, mode, rdev)?))
        })
    }

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
            Ok(self.made(name, workspace.mkdir(caller, parent, name, mode)?))
        })
    }

    pub(super) fn unlink(&self, caller: Caller, parent: Ino, name: &[u8]) -> Answer<()> {
        let act = Act::Remove(parent, name);
        if let Some(answer) = self.acknowledged(caller, (Operation::Unlink, parent), act) {
            return answer;
        }
        self.call(Operation::Unlink, parent, |workspace| {
            self.changing_names(&[(parent, name)], || {
                Ok(workspace.unlink(caller, parent, name)?)
            })
        })
    }

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
            Ok(self.made(name, workspace.symlink(caller, parent, name, target)?))
        })
    }

    /// `flags` are those of renameat2(2).
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
            let renamed = self.changing_names(&[(parent, name), (new_parent, new_name)], || {
                Ok(workspace.rename(caller, parent, name, new_parent, new_name, mode)?)
            });
            if let Some(overlay) = self
                .overlay
                .as_ref()
                .filter(|_| !nonblocking::was_refused())
            {
                overlay.came_back(caller);
            }
            renamed
        })
    }

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
            Ok(self.made(
                new_name,
                workspace.link(caller, file, new_parent, new_name)?,
            ))
        })
    }

    /// `mask` is that of access(2).
    pub(super) fn access(&self, ino: Ino, mask: i32) -> Answer<()> {
        // The kernel asks where it does not check permissions: of whoever may read and write
        // everything.
        self.call(Operation::Access, ino, |workspace| {
            match mask & libc::X_OK {
                0 => Ok(()),
                _ => Ok(workspace.check_executable(self.file(ino)?)?),
            }
        })
    }

    /// Answers how much was read, which is less than fits only at the end of the file.
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

    /// `kill_privileges` asks that the file lose its set-id bits and capabilities. Answers how much
    /// was written.
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

    pub(super) fn fsync(&self, ino: Ino) -> Answer<()> {
        self.call(Operation::Fsync, ino, |workspace| {
            Ok(workspace.fsync(self.file(ino)?)?)
        })
    }

    pub(super) fn fsyncdir(&self, ino: Ino) -> Answer<()> {
        self.call(Operation::FsyncDir, ino, |workspace| {
            Ok(workspace.fsync(ino)?)
        })
    }

    /// Lists what follows `cookie` until `add` answers that the entry does not fit.
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

    /// As [`Operations::readdir`], with attributes. Each entry that was added is one lookup, but
    /// for `.` and `..`.
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
                // The kernel takes these two for what they are and counts no lookup.
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

    pub(super) fn statfs(&self, ino: Ino) -> Answer<StatFs> {
        self.call(Operation::StatFs, ino, |workspace| Ok(workspace.statfs()?))
    }

    /// `flags` are those of setxattr(2).
    pub(super) fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        // The kernel takes privileges from a file before it changes: the change has taken them.
        if self.replay.replayed_by(caller).is_some() {
            return Ok(());
        }
        self.call(Operation::SetXattr, ino, |workspace| {
            let mode = convert::xattr_mode(flags)?;
            Ok(workspace.setxattr(caller, self.file(ino)?, name, value, mode)?)
        })
    }

    /// `size` is that of the caller's buffer.
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

    /// The names, each with a zero after it. `size` is that of the caller's buffer.
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

    pub(super) fn removexattr(&self, caller: Caller, ino: Ino, name: &[u8]) -> Answer<()> {
        // The kernel takes privileges from a file before it changes: the change has taken them.
        if self.replay.replayed_by(caller).is_some() {
            return Ok(());
        }
        self.call(Operation::RemoveXattr, ino, |workspace| {
            Ok(workspace.removexattr(caller, self.file(ino)?, name)?)
        })
    }

    /// `mode` is that of fallocate(2).
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

    /// `whence` is that of lseek(2).
    pub(super) fn lseek(&self, ino: Ino, offset: i64, whence: i32) -> Answer<i64> {
        self.call(Operation::Lseek, ino, |workspace| {
            let whence = convert::seek_whence(whence)?;
            // lseek(2): an offset before the beginning is ENXIO, as one past the end is.
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let found = match self.is_text(ino) {
                true => overlay::seek_text(&workspace.text_of(ino)?, offset, whence)?,
                false => workspace.seek(ino, offset, whence)?,
            };
            i64::try_from(found).map_err(|_| Errno::EOVERFLOW.into())
        })
    }

    /// Copies between two offsets. Answers how much was copied, which may be less than asked for.
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
                // The kernel then reads and writes by itself.
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

    /// Answers what the program's structure shall hold.
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

/// Who asks, unless that is somebody who keeps set-id bits: unlike a write, these requests do not
/// say whether the file shall lose them.
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
