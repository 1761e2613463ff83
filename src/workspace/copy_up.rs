//! Copy-up: copies the bytes that a lower file keeps at its first change.
//!
//! The file is a base file or a carried one. Its blob is fetched before the state is locked. A
//! large one is also copied before, to a place in the layer that no record names yet. Neither a
//! blob nor a version of a carried file ever changes, so the only check needed later is that the
//! node still has it.

use super::error::FsError;
use super::fs::{ViewState, Workspace};
use super::lower::{ByteSource, LowerBytes};
use tine_attr::Ino;
use tine_git::nonblocking;
use tine_layer::contents::SLOT_MAX;
use tine_layer::{CarriedContent, Content, ContentRef, Node};

/// Size of the pieces in which contents are copied, in bytes.
const COPY_CHUNK: u64 = 1 << 20;

/// Bytes that are about to be copied up.
pub(super) struct Fetched {
    /// Content that the node had when the bytes were fetched.
    of: Content,
    lower: LowerBytes,
    /// Copy in the open layer, and the number of bytes copied.
    copied: Option<(ContentRef, u64)>,
}

impl Workspace {
    /// Fetches the node's lower bytes, if any, and runs `change`.
    ///
    /// `keep` maps the present length to the number of bytes that the change keeps. `expected_len`
    /// is the length after the change. The caller holds the node's content lock and no other.
    pub(super) fn copying_up<T>(
        &self,
        ino: Ino,
        keep: impl FnOnce(u64) -> u64,
        expected_len: u64,
        change: impl FnOnce(&mut Option<Fetched>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let mut fetched = self.fetch_for_copy_up(ino, keep, expected_len)?;
        let changed = change(&mut fetched);
        if let Some((unused, _)) = fetched.and_then(|fetched| fetched.copied) {
            self.write_state()
                .stack
                .open_layer_mut()
                .abandon_content(unused);
        }
        changed
    }

    fn fetch_for_copy_up(
        &self,
        ino: Ino,
        keep: impl FnOnce(u64) -> u64,
        expected_len: u64,
    ) -> Result<Option<Fetched>, FsError> {
        let (bytes, of, keep) = {
            let state = self.read_state();
            let found = self.find(&state, ino)?;
            let bytes = self.bytes(&state, &found)?;
            let of = match &bytes {
                ByteSource::Base(..) => Content::Base,
                ByteSource::Blob(_, id) => Content::Blob(*id),
                ByteSource::Carried(file) => Content::Carried(Box::new(CarriedContent {
                    path: file.path.clone(),
                    version: Some(file.version),
                })),
                ByteSource::Layer => return Ok(None),
            };
            (bytes, of, keep(self.attr(&state, &found)?.size))
        };
        if keep == 0 {
            return Ok(None);
        }
        if keep > COPY_CHUNK {
            nonblocking::check()?;
        }
        let Some(lower) = self.fetch(bytes)? else {
            return Ok(None);
        };
        let copied = if keep > SLOT_MAX {
            self.copy_ahead(&lower, keep, expected_len)
        } else {
            None
        };
        Ok(Some(Fetched { of, lower, copied }))
    }

    /// Copies while others use the fork. Returns `None` on failure.
    ///
    /// The copy is then made with the state locked, which frees space on a full disk or reports the
    /// error.
    fn copy_ahead(
        &self,
        lower: &LowerBytes,
        keep: u64,
        expected_len: u64,
    ) -> Option<(ContentRef, u64)> {
        let file = {
            let mut state = self.write_state();
            let layer = state.stack.open_layer_mut();
            let content = layer.new_content(keep.max(expected_len)).ok()?;
            match layer.begin_writing(content, 0) {
                Ok(Some(file)) => file,
                Ok(None) | Err(_) => {
                    layer.abandon_content(content);
                    return None;
                }
            }
        };
        let copied = copy_lower(lower, keep, |offset, chunk| {
            Ok(file.write(offset, offset, chunk)?)
        });
        let mut state = self.write_state();
        let layer = state.stack.open_layer_mut();
        layer.end_writing(&file);
        match copied {
            Ok(()) => Some((file.content(), keep)),
            Err(_) => {
                layer.abandon_content(file.content());
                None
            }
        }
    }

    /// Returns a content with the first `keep` bytes of the node's.
    ///
    /// The content is the open layer's. It has room for `expected_len` bytes. It is fresh (no
    /// record names it) unless the node's content was the open layer's already.
    pub(super) fn own_content(
        &self,
        state: &mut ViewState,
        node: &Node,
        keep: u64,
        expected_len: u64,
        fetched: &mut Option<Fetched>,
    ) -> Result<ContentRef, FsError> {
        let fetched = fetched
            .as_mut()
            .filter(|fetched| fetched.of == node.content);
        let (copied, lower) = match fetched {
            Some(fetched) => (
                fetched.copied.take_if(|(_, len)| *len == keep),
                Some(fetched.lower.clone()),
            ),
            None => (None, None),
        };
        if let Some((content, _)) = copied {
            return Ok(content);
        }
        let lower = match (&node.content, &node.origin) {
            (Content::Own(content), _) => {
                return match state.stack.frozen_owner(*content).cloned() {
                    Some(frozen) => Ok(state
                        .stack
                        .open_layer_mut()
                        .copy_up(&frozen, *content, node.size)?),
                    None => Ok(*content),
                };
            }
            (Content::Empty, _) => {
                return Ok(state.stack.open_layer_mut().new_content(expected_len)?);
            }
            (Content::Link(_), _) | (Content::Base, None) => return Err(FsError::Invalid),
            (Content::Base | Content::Blob(_) | Content::Carried(_), _) if keep == 0 => None,
            (Content::Base, Some(origin)) => match lower {
                Some(lower) => Some(lower),
                None => Some(LowerBytes::Blob(
                    state.base.base.content(&origin.path, origin.id)?,
                )),
            },
            (Content::Blob(id), _) => match lower {
                Some(lower) => Some(lower),
                None => Some(LowerBytes::Blob(state.base.base.raw_content(*id)?)),
            },
            (Content::Carried(carried), _) => match lower {
                Some(lower) => Some(lower),
                None => self.fetch(self.carried_bytes(carried)?)?,
            },
        };
        let layer = state.stack.open_layer_mut();
        let mut content = layer.new_content(keep.max(expected_len))?;
        let Some(lower) = lower else {
            return Ok(content);
        };
        let copied = copy_lower(&lower, keep, |offset, chunk| {
            let moved = layer.write_content(content, offset, offset, chunk)?;
            if moved != content {
                layer.abandon_content(content);
                content = moved;
            }
            Ok(())
        });
        match copied {
            Ok(()) => Ok(content),
            Err(error) => {
                layer.abandon_content(content);
                Err(error)
            }
        }
    }
}

/// Passes the first `len` bytes to `write` in pieces, with offsets.
///
/// Fewer bytes are [`FsError::Stale`].
fn copy_lower(
    lower: &LowerBytes,
    len: u64,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let mut done = 0;
    while done < len {
        let step = (len - done).min(COPY_CHUNK) as usize;
        let chunk = lower.read(done, step)?;
        if chunk.len() < step {
            return Err(FsError::Stale);
        }
        write(done, &chunk)?;
        done += step as u64;
    }
    Ok(())
}
