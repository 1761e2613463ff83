//! Check of a layer without opening it: it locks, truncates and frees nothing.
//!
//! Only the log has checksums. For contents, the check verifies that each is where the log says, is
//! as long as its node, and can be read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::contents::{ContentReader, named_contents};
use super::log::Log;
use super::merge::part_dir;
use super::slots::SlotMap;
use super::{Content, ContentLocation, ContentRef, LayerError, LayerId, LayerIndex};
use tine_attr::Ino;
use tine_git::ObjectId;

/// Number of bytes to read at once.
const CHUNK: usize = 1 << 20;

/// Result of a check of a layer whose log can be read.
pub struct CheckedLayer {
    /// Id of the layer.
    pub id: LayerId,
    /// State of the layer according to its log.
    pub index: LayerIndex,
    /// Layers whose contents are here.
    pub holds: BTreeSet<LayerId>,
    /// Number of contents that the layer names and has.
    pub contents: u64,
    /// Sum of the sizes of these contents, in bytes.
    pub content_bytes: u64,
    /// Contents that do not match their nodes.
    pub broken: Vec<BrokenContent>,
}

/// Content that does not match its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenContent {
    /// Node of the content.
    pub ino: Ino,
    /// File that should have the content.
    pub path: PathBuf,
    /// Kind of fault.
    pub fault: ContentFault,
}

/// Fault of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentFault {
    /// The content's file does not exist.
    Missing,
    /// The place has fewer bytes than the node.
    Short {
        /// Size of the node in bytes.
        size: u64,
        /// Number of bytes that are in the place.
        there: u64,
    },
    /// The place is invalid, or another content has it, too.
    Misplaced(String),
    /// The content cannot be read from the disk.
    Unreadable(String),
}

impl CheckedLayer {
    /// Returns the git objects that the layer's nodes need.
    ///
    /// Each comes with the number of its node.
    pub fn objects(&self) -> impl Iterator<Item = (Ino, ObjectId)> + '_ {
        self.index
            .nodes()
            .filter_map(|(ino, node)| match &node.content {
                Content::Blob(id) => Some((ino, *id)),
                Content::Base => Some((ino, node.origin.as_ref()?.id)),
                Content::Empty | Content::Link(_) | Content::Own(_) | Content::Carried(_) => None,
            })
    }

    /// Returns the layers below that must have contents for this one.
    pub fn of_others(&self) -> BTreeSet<LayerId> {
        let named = named_contents(&self.index).map(|(content, _)| content.layer);
        named.filter(|layer| !self.holds.contains(layer)).collect()
    }
}

/// Thoroughness of the check of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only existence and length.
    Places,
    /// Also every byte.
    Bytes,
}

/// Checks the layer in `dir`.
///
/// It reads all of the log and looks for the contents that it names.
///
/// # Errors
/// [`LayerError::Corrupt`], [`LayerError::NewerFormat`] or [`LayerError::Io`] if the log cannot be
/// read.
pub fn check(dir: &Path, depth: Depth) -> Result<CheckedLayer, LayerError> {
    let replay = Log::read_unlocked(dir)?;
    let (id, is_merged) = (replay.id, replay.is_merged());
    let mut layer = CheckedLayer {
        id,
        index: replay.index,
        holds: BTreeSet::new(),
        contents: 0,
        content_bytes: 0,
        broken: Vec::new(),
    };
    let named: BTreeSet<LayerId> = if is_merged {
        named_contents(&layer.index)
            .map(|(content, _)| content.layer)
            .collect()
    } else {
        BTreeSet::from([id])
    };
    for part in named {
        let part_dir = if is_merged {
            part_dir(dir, part)
        } else {
            dir.to_owned()
        };
        if !is_merged || part_dir.exists() {
            let (found, broken) = check_contents(&part_dir, part, &layer.index, is_merged, depth)?;
            layer.holds.insert(part);
            layer.contents += found.0;
            layer.content_bytes += found.1;
            layer.broken.extend(broken);
        }
    }
    Ok(layer)
}

/// Checks the contents of the layer `id`, which are in `dir`.
///
/// Returns their number, their size in bytes, and the broken ones.
fn check_contents(
    dir: &Path,
    id: LayerId,
    index: &LayerIndex,
    is_merged: bool,
    depth: Depth,
) -> Result<((u64, u64), Vec<BrokenContent>), LayerError> {
    let reader = ContentReader::open(dir, id, false)?;
    let data_len = reader
        .data()
        .metadata()
        .map_err(LayerError::io("stat", reader.data_path()))?
        .len();
    let mut found = (0, 0);
    let (mut broken, mut slots, mut files) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut buffer = match depth {
        Depth::Places => Vec::new(),
        Depth::Bytes => vec![0; CHUNK],
    };
    let own = index
        .nodes()
        .filter_map(|(ino, node)| Some((ino, node, node.content.own()?)))
        // Opening the layer drops nodes without names.
        .filter(|(_, node, content)| content.layer == id && node.nlink > 0);
    for (ino, node, content) in own {
        // In a merged layer, two nodes may have the same content.
        let is_new = match content.place {
            ContentLocation::Slot { offset, capacity } => slots.insert((offset, capacity)),
            ContentLocation::File(number) => files.insert(number),
        };
        let fault = if is_new || is_merged {
            fault_of(&reader, content, node.size, data_len, &mut buffer)
        } else {
            Some(ContentFault::Misplaced(
                "two nodes have the same content".to_owned(),
            ))
        };
        found = (found.0 + 1, found.1 + node.size);
        broken.extend(fault.map(|fault| BrokenContent {
            ino,
            path: reader.path(content.place),
            fault,
        }));
    }
    if let Err(bad) = SlotMap::rebuild(slots.into_iter().collect()) {
        return Err(LayerError::Corrupt {
            path: reader.data_path().to_owned(),
            offset: bad.offset,
            reason: "the log names a slot that cannot be".to_owned(),
        });
    }
    Ok((found, broken))
}

fn fault_of(
    reader: &ContentReader,
    content: ContentRef,
    size: u64,
    data_len: u64,
    buffer: &mut [u8],
) -> Option<ContentFault> {
    let short = |there| (there < size).then_some(ContentFault::Short { size, there });
    match reader.check(content, size) {
        Err(LayerError::Corrupt { reason, .. }) => Some(ContentFault::Misplaced(reason)),
        Err(error) => Some(ContentFault::Unreadable(error.to_string())),
        Ok(ContentLocation::Slot { offset, .. }) => short(data_len.saturating_sub(offset))
            .or_else(|| unreadable(reader.data(), offset, size, buffer)),
        // Do not use the reader, which would keep every file open.
        Ok(ContentLocation::File(_)) => match tine_sys::file::open(&reader.path(content.place)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(ContentFault::Missing),
            Err(error) => Some(ContentFault::Unreadable(error.to_string())),
            Ok(file) => match file.metadata() {
                Ok(meta) => short(meta.len()).or_else(|| unreadable(&file, 0, size, buffer)),
                Err(error) => Some(ContentFault::Unreadable(error.to_string())),
            },
        },
    }
}

/// Returns a fault if a byte of the range cannot be read.
///
/// Holes are skipped. It reads nothing if `buffer` is empty.
fn unreadable(file: &File, start: u64, len: u64, buffer: &mut [u8]) -> Option<ContentFault> {
    if buffer.is_empty() {
        return None;
    }
    let mut at = start;
    let end = start.saturating_add(len);
    loop {
        match tine_sys::file::seek_data(file, at) {
            Ok(Some(data)) if data < end => at = data,
            Ok(_) => return None,
            Err(error) => return Some(ContentFault::Unreadable(error.to_string())),
        }
        let count = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        match file.read_at(&mut buffer[..count], at) {
            // Another process truncated the file meanwhile.
            Ok(0) => return None,
            Ok(count) => at += count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(ContentFault::Unreadable(error.to_string())),
        }
    }
}
