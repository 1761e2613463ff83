//! Looking whether a layer is whole, without opening it: nothing is locked, cut off or freed.
//!
//! Only the log bears checksums. Of contents it is seen that each is where the log says, as long as
//! its node, and that the disk gives every byte of it.

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

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// What was found in a layer whose log can be read.
pub struct CheckedLayer {
    pub id: LayerId,
    pub index: LayerIndex,
    /// The layers whose contents are here.
    pub holds: BTreeSet<LayerId>,
    /// Contents that it names and has, and their bytes.
    pub contents: u64,
    pub content_bytes: u64,
    pub broken: Vec<BrokenContent>,
}

/// A content that is not what its node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenContent {
    pub ino: Ino,
    pub path: PathBuf,
    pub fault: ContentFault,
}

/// What is wrong with a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentFault {
    Missing,
    /// The node has `size` bytes, and only `there` of them are in its place.
    Short {
        size: u64,
        there: u64,
    },
    /// Its place is no place, or is another's too.
    Misplaced(String),
    /// The disk does not give it.
    Unreadable(String),
}

impl CheckedLayer {
    /// The blobs and other objects of git's that the layer's nodes need, with the number of the
    /// node.
    pub fn objects(&self) -> impl Iterator<Item = (Ino, ObjectId)> + '_ {
        self.index
            .nodes()
            .filter_map(|(ino, node)| match &node.content {
                Content::Blob(id) => Some((ino, *id)),
                Content::Base => Some((ino, node.origin.as_ref()?.id)),
                Content::Empty | Content::Link(_) | Content::Own(_) | Content::Carried(_) => None,
            })
    }

    /// Contents that layers beneath must have.
    pub fn of_others(&self) -> BTreeSet<LayerId> {
        let named = named_contents(&self.index).map(|(content, _)| content.layer);
        named.filter(|layer| !self.holds.contains(layer)).collect()
    }
}

/// How closely contents are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Whether they are there, and long enough.
    Places,
    /// Every byte is read.
    Bytes,
}

/// Looks at the layer in `dir`: reads all of its log, and looks for the contents that it names.
///
/// # Errors
/// As of [`Layer::open`](super::Layer::open), where its log cannot be read.
pub fn check(dir: &Path, depth: Depth) -> Result<CheckedLayer, LayerError> {
    let replay = Log::look(dir)?;
    let (id, is_merged) = (replay.id, replay.is_merged());
    let mut layer = CheckedLayer {
        id,
        index: replay.index,
        holds: BTreeSet::new(),
        contents: 0,
        content_bytes: 0,
        broken: Vec::new(),
    };
    let named: BTreeSet<LayerId> = match is_merged {
        true => named_contents(&layer.index)
            .map(|(content, _)| content.layer)
            .collect(),
        false => BTreeSet::from([id]),
    };
    for part in named {
        let part_dir = match is_merged {
            true => part_dir(dir, part),
            false => dir.to_owned(),
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

/// Looks at the contents of the layer `id`, which are in `dir`: how many there are, and their
/// bytes; and what is wrong.
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
        // What no name leads to goes when the layer is opened.
        .filter(|(_, node, content)| content.layer == id && node.nlink > 0);
    for (ino, node, content) in own {
        // Of what was merged two nodes may have the same content.
        let is_new = match content.place {
            ContentLocation::Slot { offset, capacity } => slots.insert((offset, capacity)),
            ContentLocation::File(number) => files.insert(number),
        };
        let fault = match is_new || is_merged {
            true => fault_of(&reader, content, node.size, data_len, &mut buffer),
            false => Some(ContentFault::Misplaced(
                "two nodes have the same content".to_owned(),
            )),
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
        // Not through the reader: it would keep every one of them open.
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

/// Reads `len` bytes from `start`, whatever they are, unless there is no buffer; holes are left
/// out.
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
            // Somebody has made it shorter meanwhile.
            Ok(0) => return None,
            Ok(count) => at += count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(ContentFault::Unreadable(error.to_string())),
        }
    }
}
