//! Reading and writing contents.
//!
//! The state is not locked while much is read or written: the node's content lock keeps its readers
//! and writers apart, and others use the fork meanwhile. Small contents share a file and may move
//! in it, so these are copied under the lock.

use std::io::Read;

use super::copy_up::Fetched;
use super::error::FsError;
use super::flags::{check_may_allocate, check_may_write};
use super::fs::{Invalidation, State, Workspace, shown_ctime};
use super::lower::Bytes;
use super::ops::{Caller, FallocateMode};
use super::privileges::{loses_privileges, take_privileges};
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::ObjectId;
use tine_layer::store::SeekWhence;
use tine_layer::{Content, ContentFile, ContentRef, LayerError, Node, Op};

/// Contents are copied in pieces of this many bytes.
const COPY_CHUNK: usize = 1 << 20;

/// Changes of this many bytes and more let others use the fork.
const BULK: usize = 32 << 10;

/// Largest file in bytes: offsets are signed in the kernel.
const MAX_SIZE: u64 = i64::MAX as u64;

impl Workspace {
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
        if let Bytes::Carried(link) = &bytes {
            return self.note_stale(ino, link.carry.read_link(&link.path, &link.version));
        }
        let lower = self.fetch(bytes)?.ok_or(FsError::Invalid)?;
        lower.read(0, usize::try_from(size).map_err(|_| FsError::TooLarge)?)
    }

    /// Reads up to `len` bytes at `offset`: fewer only at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, FsError> {
        let mut buffer = vec![0; len];
        let read = self.read_into(ino, offset, &mut buffer)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// As [`Workspace::read`], into `buffer`; how much was read.
    pub fn read_into(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let read = self.read_locked(ino, offset, buffer);
        self.note_stale(ino, read)
    }

    fn read_locked(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let _content = self.contents.read(ino)?;
        self.read_unlocked(ino, offset, buffer)
    }

    /// As [`Workspace::read_into`], for who has the node's content lock.
    pub(super) fn read_unlocked(
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

    /// Writes all of `data` at `offset`. By an `unprivileged` caller the file loses what it grants
    /// to whoever runs it.
    pub fn write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        unprivileged: Option<Caller>,
    ) -> Result<(), FsError> {
        let written = self.note_stale(ino, self.write_locked(ino, offset, data, unprivileged));
        if let Err(FsError::NotPermitted) = written {
            // Written through a mapping it is in the kernel's cache already, where it must not
            // stay.
            self.announce([Invalidation::Node(ino)]);
        }
        self.after_content_change(ino, written?)
    }

    /// Whether the file lost what it granted.
    fn write_locked(
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
        let check = |state: &State| check_may_write(state, ino, offset);
        let write = |file: &ContentFile, len: u64| {
            file.write(len, offset, data)?;
            Ok(len.max(end))
        };
        if data.len() >= BULK && self.change_beside(ino, unprivileged, check, write)? {
            return Ok(false);
        }
        let kept = |size| match offset == 0 && end >= size || data.is_empty() {
            true => 0,
            false => size,
        };
        self.copying_up(ino, kept, end, |fetched| {
            self.write_fetched(ino, offset, data, unprivileged, fetched)
        })
    }

    /// Changes a file of the open layer's own where it is, while others use the fork; whether that
    /// could be done. `change` is told its length and answers the new one.
    fn change_beside(
        &self,
        ino: Ino,
        unprivileged: Option<Caller>,
        check: impl FnOnce(&State) -> Result<(), FsError>,
        change: impl FnOnce(&ContentFile, u64) -> Result<u64, LayerError>,
    ) -> Result<bool, FsError> {
        let in_place = |state: &State| {
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
        // A full disk is for the other way, which makes room. And the file may have been replaced
        // or gone meanwhile.
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

    /// Writes all that [`Workspace::write`] does, small or copied up.
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

    /// What is left to do when a content has changed. The kernel finds no mode in the answer and
    /// would go on with the one that it remembers. No lock may be held.
    fn after_content_change(&self, ino: Ino, has_lost_privileges: bool) -> Result<(), FsError> {
        self.announce(has_lost_privileges.then_some(Invalidation::Attributes(ino)));
        self.sync_if_flagged(ino)
    }

    /// Changes a content from [`Workspace::own_content`]. Where it moves or the change fails, one
    /// that no record names is given back.
    fn write_owned(
        &self,
        state: &mut State,
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

    /// The node's content cut or grown to `size` bytes. The node must then be put with it.
    pub(super) fn resize(
        &self,
        state: &mut State,
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
        // A copied-up content has what was kept; one that was there already, or came from a frozen
        // layer, has all.
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

    /// Puts a node whose content may be new; if that fails, a content that no record names is given
    /// back.
    pub(super) fn put_content(
        &self,
        state: &mut State,
        ino: Ino,
        node: Node,
    ) -> Result<(), FsError> {
        let home = self.home_of(state, ino);
        let layer = state.stack.open_layer_mut();
        let before = layer.index().node(ino).and_then(|node| node.content.own());
        let fresh = node.content.own();
        let fresh = fresh.filter(|content| content.layer == layer.id() && before != fresh);
        let committed = home.and_then(|home| {
            let above = home
                .nodes
                .into_iter()
                .map(|(ino, node)| Op::PutNode(ino, node));
            let mut ops: Vec<Op> = above.collect();
            ops.push(Op::PutNode(ino, node));
            ops.extend(home.names);
            Ok(layer.commit(ops)?)
        });
        if committed.is_err()
            && let Some(content) = fresh
        {
            layer.abandon_content(content);
        }
        committed
    }

    /// Allocates, or makes zeros of, a range. Privileges go as with a write.
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
        let check = |state: &State| check_may_allocate(state, ino, mode);
        let zero = |file: &ContentFile, size: u64| {
            file.zero(size, offset, len)?;
            Ok(size)
        };
        let has_lost = self.note_stale(ino, {
            let _content = self.contents.write(ino)?;
            let allocate = |fetched: &mut _| {
                self.allocate_fetched(ino, offset, end, mode, unprivileged, fetched)
            };
            match keeps_size
                && len >= BULK as u64
                && self.change_beside(ino, unprivileged, check, zero)?
            {
                true => Ok(false),
                false => self.copying_up(ino, |size| size, end, allocate),
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

    /// `SEEK_DATA` and `SEEK_HOLE`; [`FsError::NoSuchOffset`] past the end.
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

    /// Copies up to `len` bytes from one file to another (or within one); the number copied. It
    /// ends where the source ended at the start, also if the copy itself makes that longer.
    pub fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
        unprivileged: Option<Caller>,
    ) -> Result<u64, FsError> {
        // What the copy itself adds to a file that is copied onto its own end does not count.
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

    /// Runs `read` over the whole content of a node, which nobody changes meanwhile: its length,
    /// and a reader. Others use the fork; `read` may not.
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
                    // It is short.
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

    /// For nodes that are unchanged since `ctime` was seen: their content is this blob's now, which
    /// the repository keeps, and leaves the layer. Number, times and attributes stay, so nothing is
    /// announced. Returns how many contents left.
    pub fn adopt_blobs(&self, adopted: &[(Ino, Timestamp, ObjectId)]) -> Result<usize, FsError> {
        let mut state = self.write_state();
        let State {
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
