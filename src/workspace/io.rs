//! Reads and writes contents.
//!
//! Large reads and writes do not hold the state. The node's content lock separates its readers from
//! its writers, and others use the fork meanwhile. Small contents share a file and may move in it,
//! so they are copied under the state's lock.

use std::io::Read;

use super::copy_up::Fetched;
use super::error::FsError;
use super::flags::{check_may_allocate, check_may_write};
use super::fs::{Invalidation, ViewState, Workspace, shown_ctime};
use super::lower::ByteSource;
use super::ops::{Caller, FallocateMode};
use super::privileges::{loses_privileges, take_privileges};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::ObjectId;
use tine_layer::contents::SeekWhence;
use tine_layer::{Content, ContentFile, ContentRef, LayerError, Node, Op};

/// Size of the pieces in which contents are copied, in bytes.
const COPY_CHUNK: usize = 1 << 20;

/// Size from which a change does not hold the state, in bytes.
const BULK: usize = 32 << 10;

/// Maximum size of a file in bytes: offsets are signed in the kernel.
const MAX_SIZE: u64 = i64::MAX as u64;

impl Workspace {
    /// Returns the target of a symlink.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if the node is not a symlink, [`FsError::Stale`] if it is unknown or
    /// its carried link changed.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let (bytes, size) = {
            let state = self.read_state();
            let found = self.find(&state, ino)?;
            if self.kind(&state, &found)? != FileKind::Symlink {
                return Err(FsError::Invalid);
            }
            if let Some(Node {
                content: Content::Link(target),
                ..
            }) = state.stack.node(ino)
            {
                return Ok(target.to_vec());
            }
            (self.bytes(&state, &found)?, self.attr(&state, &found)?.size)
        };
        if let ByteSource::Carried(link) = &bytes {
            return self.note_stale(ino, link.carry.read_link(&link.path, &link.version));
        }
        let lower = self.fetch(bytes)?.ok_or(FsError::Invalid)?;
        lower.read(0, usize::try_from(size).map_err(|_| FsError::TooLarge)?)
    }

    /// Reads up to `len` bytes at `offset`. Returns fewer only at the end of the file.
    ///
    /// # Errors
    /// Those of [`Workspace::read_into`].
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, FsError> {
        let mut buffer = vec![0; len];
        let read = self.read_into(ino, offset, &mut buffer)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Reads at `offset` into `buffer`. Returns the number of bytes read.
    ///
    /// It is less than the buffer's length only at the end of the file.
    ///
    /// # Errors
    /// [`FsError::IsADirectory`] or [`FsError::Invalid`] if the node is not a regular file,
    /// [`FsError::Stale`] if it is unknown or its carried file changed; [`FsError::Layer`] or
    /// [`FsError::Base`] if the bytes cannot be read.
    pub fn read_into(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let read = self.lock_and_read(ino, offset, buffer);
        self.note_stale(ino, read)
    }

    fn lock_and_read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let _content = self.contents.read(ino)?;
        self.read_locked(ino, offset, buffer)
    }

    /// Reads like [`Workspace::read_into`]. The caller holds the node's content lock.
    pub(super) fn read_locked(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, FsError> {
        let bytes = {
            let state = self.read_state();
            let found = self.find(&state, ino)?;
            match self.kind(&state, &found)? {
                FileKind::Regular => {}
                FileKind::Directory => return Err(FsError::IsADirectory),
                _ => return Err(FsError::Invalid),
            }
            match state.stack.node(ino).map(|node| (&node.content, node.size)) {
                Some((Content::Own(content), size)) => {
                    let available =
                        usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
                    let len = buffer.len().min(available);
                    let buffer = &mut buffer[..len];
                    return Ok(match state.stack.content_file(*content, size)? {
                        Some(file) => {
                            drop(state);
                            file.read(size, offset, buffer)?
                        }
                        None => state.stack.read_content(*content, size, offset, buffer)?,
                    });
                }
                Some((Content::Empty, _)) => return Ok(0),
                _ => self.bytes(&state, &found)?,
            }
        };
        match self.fetch(bytes)? {
            Some(lower) => lower.read_into(offset, buffer),
            None => Ok(0),
        }
    }

    /// Writes all of `data` at `offset`.
    ///
    /// A write by an `unprivileged` caller clears set-user-id, set-group-id and file capabilities.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::IsADirectory`], [`FsError::Invalid`] if the node is not a
    /// file, [`FsError::NotPermitted`] if the inode flags forbid it; [`FsError::NoSpace`] or
    /// [`FsError::Layer`] if the layer cannot be written.
    pub fn write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        unprivileged: Option<Caller>,
    ) -> Result<(), FsError> {
        let written = self.note_stale(ino, self.lock_and_write(ino, offset, data, unprivileged));
        if let Err(FsError::NotPermitted) = written {
            // The kernel's cache already has what was written through a mapping. It must drop that.
            self.announce([Invalidation::Node(ino)]);
        }
        self.after_content_change(ino, written?)
    }

    /// Writes under the content lock. Returns whether the file lost privileges.
    fn lock_and_write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        unprivileged: Option<Caller>,
    ) -> Result<bool, FsError> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= MAX_SIZE)
            .ok_or(FsError::TooLarge)?;
        let _content = self.contents.write(ino)?;
        let check = |state: &ViewState| check_may_write(state, ino, offset);
        let write = |file: &ContentFile, len: u64| {
            file.write(len, offset, data)?;
            Ok(len.max(end))
        };
        if data.len() >= BULK && self.change_in_place(ino, unprivileged, check, write)? {
            return Ok(false);
        }
        let kept = |size| {
            if offset == 0 && end >= size || data.is_empty() {
                0
            } else {
                size
            }
        };
        self.copying_up(ino, kept, end, |fetched| {
            self.write_fetched(ino, offset, data, unprivileged, fetched)
        })
    }

    /// Changes a file of the open layer in place.
    ///
    /// Others use the fork meanwhile. `change` gets the file and its length and returns the new
    /// length. Returns false if the content cannot be changed in place.
    fn change_in_place(
        &self,
        ino: Ino,
        unprivileged: Option<Caller>,
        check: impl FnOnce(&ViewState) -> Result<(), FsError>,
        change: impl FnOnce(&ContentFile, u64) -> Result<u64, LayerError>,
    ) -> Result<bool, FsError> {
        let in_place = |state: &ViewState| {
            let (node, content) = state.stack.open_layer().content_of(ino)?;
            let has_to_lose = unprivileged.is_some_and(|caller| loses_privileges(node, caller));
            (!has_to_lose).then_some((content, node.size))
        };
        let (file, len) = {
            let mut state = self.write_state();
            let Some((content, len)) = in_place(&state) else {
                return Ok(false);
            };
            check(&state)?;
            match state.stack.open_layer_mut().begin_writing(content, len)? {
                Some(file) => (file, len),
                None => return Ok(false),
            }
        };
        let changed = change(&file, len);
        let mut state = self.write_state();
        state.stack.open_layer_mut().end_writing(&file);
        let has_it = in_place(&state).is_some_and(|(content, _)| content == file.content());
        // If the disk is full, the other way makes room. The file may also have been replaced or
        // removed meanwhile.
        let (true, Ok(size)) = (has_it, changed) else {
            return Ok(false);
        };
        let time = Timestamp::now();
        state
            .stack
            .open_layer_mut()
            .commit(vec![Op::Written { ino, size, time }])?;
        Ok(true)
    }

    /// Writes as [`Workspace::write`] does, under the state's lock. Copies up if needed.
    ///
    /// Returns whether the file lost privileges.
    pub(super) fn write_fetched(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        unprivileged: Option<Caller>,
        fetched: &mut Option<Fetched>,
    ) -> Result<bool, FsError> {
        let end = offset + data.len() as u64;
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        match self.kind(&state, &found)? {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsADirectory),
            _ => return Err(FsError::Invalid),
        }
        if data.is_empty() {
            return Ok(false);
        }
        check_may_write(&state, ino, offset)?;
        let time = Timestamp::now();
        let open_layer = state.stack.open_layer_mut();
        if let Some((node, content)) = open_layer.content_of(ino)
            && !unprivileged.is_some_and(|caller| loses_privileges(node, caller))
        {
            let (len, size) = (node.size, node.size.max(end));
            let written = open_layer.write_content(content, len, offset, data)?;
            if written == content {
                open_layer.commit(vec![Op::Written { ino, size, time }])?;
                return Ok(false);
            }
            let mut node = open_layer
                .index()
                .node(ino)
                .cloned()
                .ok_or(FsError::Stale)?;
            (node.content, node.size) = (Content::Own(written), size);
            (node.mtime, node.ctime) = (time, time);
            self.put_content(&mut state, ino, node)?;
            return Ok(false);
        }
        let mut node = self.node(&state, &found)?;
        let is_replaced = offset == 0 && end >= node.size;
        let keep = if is_replaced { 0 } else { node.size };
        let content = self.own_content(&mut state, &node, keep, end, fetched)?;
        let written = self.write_owned(&mut state, &node, content, |layer, content| {
            layer.write_content(content, keep, offset, data)
        })?;
        node.content = Content::Own(written);
        node.size = node.size.max(end);
        (node.mtime, node.ctime) = (time, time);
        let has_lost = unprivileged.is_some_and(|caller| take_privileges(&mut node, caller));
        self.put_content(&mut state, ino, node)?;
        Ok(has_lost)
    }

    /// Notifies the kernel and syncs after a content change. No lock may be held.
    ///
    /// The kernel's answer to a write carries no mode, so it would keep using the old one.
    fn after_content_change(&self, ino: Ino, has_lost_privileges: bool) -> Result<(), FsError> {
        self.announce(has_lost_privileges.then_some(Invalidation::Attributes(ino)));
        self.sync_if_flagged(ino)
    }

    /// Changes a content from [`Workspace::own_content`].
    ///
    /// If the content moves or the change fails, frees it unless a record names it.
    fn write_owned(
        &self,
        state: &mut ViewState,
        node: &Node,
        content: ContentRef,
        change: impl FnOnce(&mut tine_layer::Layer, ContentRef) -> Result<ContentRef, LayerError>,
    ) -> Result<ContentRef, FsError> {
        let is_fresh = node.content != Content::Own(content);
        let layer = state.stack.open_layer_mut();
        let changed = change(layer, content);
        if is_fresh && !matches!(changed, Ok(place) if place == content) {
            layer.abandon_content(content);
        }
        Ok(changed?)
    }

    /// Returns the node's content, truncated or extended to `size` bytes.
    ///
    /// The caller must then put the node with it.
    pub(super) fn resize(
        &self,
        state: &mut ViewState,
        ino: Ino,
        node: &Node,
        size: u64,
        fetched: &mut Option<Fetched>,
    ) -> Result<Content, FsError> {
        if size == node.size {
            return Ok(node.content.clone());
        }
        if size == 0 && !state.pins.contains_key(&ino) {
            return Ok(Content::Empty);
        }
        let keep = node.size.min(size);
        let content = self.own_content(state, node, keep, size, fetched)?;
        // A copied-up content has only the bytes that were kept. One of the open layer, or one
        // copied from a frozen layer, has all.
        let len = if matches!(node.content, Content::Own(_)) {
            node.size
        } else {
            keep
        };
        let resized = self.write_owned(state, node, content, |layer, content| {
            layer.resize_content(content, len, size)
        })?;
        Ok(Content::Own(resized))
    }

    /// Puts a node whose content may be new.
    ///
    /// If that fails, frees the content unless a record names it.
    pub(super) fn put_content(
        &self,
        state: &mut ViewState,
        ino: Ino,
        node: Node,
    ) -> Result<(), FsError> {
        let places = self.place_records_of(state, ino);
        let layer = state.stack.open_layer_mut();
        let before = layer.index().node(ino).and_then(|node| node.content.own());
        let fresh = node.content.own();
        let fresh = fresh.filter(|content| content.layer == layer.id() && before != fresh);
        let committed = places.and_then(|places| {
            let above = places
                .nodes
                .into_iter()
                .map(|(ino, node)| Op::PutNode(ino, node));
            let mut ops: Vec<Op> = above.collect();
            ops.push(Op::PutNode(ino, node));
            ops.extend(places.names);
            Ok(layer.commit(ops)?)
        });
        if committed.is_err()
            && let Some(content) = fresh
        {
            layer.abandon_content(content);
        }
        committed
    }

    /// Allocates or zeroes a range. Clears privileges as a write does.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::Invalid`] if `len` is 0 or the node is not a file,
    /// [`FsError::IsADirectory`], [`FsError::NotPermitted`] if the inode flags forbid it;
    /// [`FsError::NoSpace`] or [`FsError::Layer`] if the layer cannot be written.
    pub fn fallocate(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: FallocateMode,
        unprivileged: Option<Caller>,
    ) -> Result<(), FsError> {
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= MAX_SIZE)
            .ok_or(FsError::TooLarge)?;
        if len == 0 {
            return Err(FsError::Invalid);
        }
        let keeps_size = match mode {
            FallocateMode::PunchHole | FallocateMode::ZeroRange { keep_size: true } => true,
            FallocateMode::Allocate { .. } | FallocateMode::ZeroRange { keep_size: false } => false,
        };
        let check = |state: &ViewState| check_may_allocate(state, ino, mode);
        let zero = |file: &ContentFile, size: u64| {
            file.zero(size, offset, len)?;
            Ok(size)
        };
        let has_lost = self.note_stale(ino, {
            let _content = self.contents.write(ino)?;
            let allocate = |fetched: &mut _| {
                self.allocate_fetched(ino, offset, end, mode, unprivileged, fetched)
            };
            if keeps_size
                && len >= BULK as u64
                && self.change_in_place(ino, unprivileged, check, zero)?
            {
                Ok(false)
            } else {
                self.copying_up(ino, |size| size, end, allocate)
            }
        })?;
        self.after_content_change(ino, has_lost)
    }

    fn allocate_fetched(
        &self,
        ino: Ino,
        offset: u64,
        end: u64,
        mode: FallocateMode,
        unprivileged: Option<Caller>,
        fetched: &mut Option<Fetched>,
    ) -> Result<bool, FsError> {
        let mut state = self.write_state();
        let found = self.find(&state, ino)?;
        let mut node = self.node(&state, &found)?;
        match node.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsADirectory),
            _ => return Err(FsError::Invalid),
        }
        check_may_allocate(&state, ino, mode)?;
        let size = match mode {
            FallocateMode::Allocate { keep_size: false }
            | FallocateMode::ZeroRange { keep_size: false } => node.size.max(end),
            FallocateMode::Allocate { keep_size: true }
            | FallocateMode::ZeroRange { keep_size: true }
            | FallocateMode::PunchHole => node.size,
        };
        if node.size == 0 && matches!(mode, FallocateMode::PunchHole) {
            return Ok(false);
        }
        let len_before = node.size;
        let content = self.own_content(&mut state, &node, len_before, size.max(end), fetched)?;
        let changed = self.write_owned(&mut state, &node, content, |layer, content| {
            let content = match mode {
                FallocateMode::Allocate { .. } => {
                    layer.reserve_content(content, len_before, offset, end - offset)?
                }
                FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => {
                    let zero_end = end.min(len_before);
                    if offset < zero_end {
                        layer.zero_content(content, len_before, offset, zero_end - offset)?;
                    }
                    content
                }
            };
            if size > len_before {
                layer.resize_content(content, len_before, size)
            } else {
                Ok(content)
            }
        })?;
        node.content = Content::Own(changed);
        node.size = size;
        let now = Timestamp::now();
        (node.mtime, node.ctime) = (now, now);
        let has_lost = unprivileged.is_some_and(|caller| take_privileges(&mut node, caller));
        self.put_content(&mut state, ino, node)?;
        Ok(has_lost)
    }

    /// Finds the next data or hole at or after `offset` (`SEEK_DATA`, `SEEK_HOLE`).
    ///
    /// # Errors
    /// [`FsError::NoSuchOffset`] at or past the end of the file, or if no data follows.
    pub fn seek(&self, ino: Ino, offset: u64, whence: SeekWhence) -> Result<u64, FsError> {
        let state = self.read_state();
        let found = self.find(&state, ino)?;
        let size = self.attr(&state, &found)?.size;
        if offset >= size {
            return Err(FsError::NoSuchOffset);
        }
        if let Some(Node {
            content: Content::Own(content),
            ..
        }) = state.stack.node(ino)
        {
            return state
                .stack
                .seek_content(*content, size, offset, whence)?
                .ok_or(FsError::NoSuchOffset);
        }
        Ok(match whence {
            SeekWhence::Data => offset,
            SeekWhence::Hole => size,
        })
    }

    /// Copies up to `len` bytes between files, or within one. Returns the number copied.
    ///
    /// The copy ends where the source ended at the start, even if the copy itself extends the
    /// source.
    ///
    /// # Errors
    /// Those of [`Workspace::read`] and [`Workspace::write`], if nothing was copied yet.
    pub fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
        unprivileged: Option<Caller>,
    ) -> Result<u64, FsError> {
        // Bytes that the copy itself appends to its source are not copied.
        let len = len.min(self.getattr(from)?.size.saturating_sub(from_offset));
        let mut copied = 0;
        while copied < len {
            let step = (len - copied).min(COPY_CHUNK as u64) as usize;
            let at = |offset: u64| offset.checked_add(copied).ok_or(FsError::TooLarge);
            let chunk = self.read(from, at(from_offset)?, step)?;
            if chunk.is_empty() {
                break;
            }
            match self.write(to, at(to_offset)?, &chunk, unprivileged) {
                Ok(()) => copied += chunk.len() as u64,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    /// Runs `read` over the whole content of a node.
    ///
    /// The content stays unchanged meanwhile. `read` gets the length and a reader. Others may use
    /// the fork; `read` itself must not.
    ///
    /// # Errors
    /// [`FsError::Stale`] if the node is unknown or its carried file changed; [`FsError::Layer`] or
    /// [`FsError::Base`] if the bytes cannot be read.
    pub fn with_content<T>(
        &self,
        ino: Ino,
        read: impl FnOnce(u64, &mut dyn Read) -> T,
    ) -> Result<T, FsError> {
        let _content = self.contents.read(ino)?;
        let state = self.read_state();
        let found = self.find(&state, ino)?;
        let size = self.attr(&state, &found)?.size;
        match state.stack.node(ino) {
            Some(Node {
                content: Content::Link(target),
                ..
            }) => {
                let target = target.clone();
                drop(state);
                return Ok(read(target.len() as u64, &mut &target[..]));
            }
            Some(Node {
                content: Content::Own(content),
                ..
            }) => {
                let Some(file) = state.stack.content_file(*content, size)? else {
                    // A content without a file of its own is short.
                    let mut bytes = vec![0; usize::try_from(size).map_err(|_| FsError::TooLarge)?];
                    state.stack.read_content(*content, size, 0, &mut bytes)?;
                    drop(state);
                    return Ok(read(size, &mut bytes.as_slice()));
                };
                drop(state);
                let mut reader = FileReader {
                    file: &file,
                    len: size,
                    offset: 0,
                };
                return Ok(read(size, &mut reader));
            }
            _ => {}
        }
        let bytes = self.bytes(&state, &found)?;
        drop(state);
        match self.fetch(bytes)? {
            Some(lower) => Ok(read(lower.len(), &mut lower.reader())),
            None => Ok(read(size, &mut std::io::empty())),
        }
    }

    /// Replaces contents in the layer by blobs of the repository.
    ///
    /// Each entry names a node, the ctime at which it was read, and the blob that has its bytes.
    /// Nodes that changed since are skipped. Number, times and attributes stay, so no invalidation
    /// is needed. Returns the number of contents freed.
    ///
    /// # Errors
    /// [`FsError::Layer`] or [`FsError::NoSpace`] if the open layer cannot record it.
    pub fn adopt_blobs(&self, adopted: &[(Ino, Timestamp, ObjectId)]) -> Result<usize, FsError> {
        let mut state = self.write_state();
        let ViewState {
            stack, pins, since, ..
        } = &mut *state;
        let layer = stack.open_layer_mut();
        let mut ops = Vec::new();
        for (ino, ctime, blob_id) in adopted {
            if let Some(node) = layer.index().node(*ino)
                && !pins.contains_key(ino)
                && shown_ctime(node, *since) == *ctime
                && node.kind == FileKind::Regular
                && node.nlink > 0
                && matches!(node.content, Content::Own(_))
            {
                ops.push(Op::PutNode(
                    *ino,
                    Node {
                        content: Content::Blob(*blob_id),
                        ..node.clone()
                    },
                ));
            }
        }
        let left = ops.len();
        if left > 0 {
            layer.commit(ops)?;
        }
        Ok(left)
    }
}

struct FileReader<'a> {
    file: &'a ContentFile,
    len: u64,
    offset: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(self.len, self.offset, buffer);
        let read = read.map_err(std::io::Error::other)?;
        self.offset += read as u64;
        Ok(read)
    }
}
