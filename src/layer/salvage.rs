//! Repair of a damaged layer from its readable parts.
//!
//! The log is truncated at its first damaged record. The records before it may name places that
//! were freed since: their bytes are punched out, or belong to another file. Intact records after
//! the damage show this, so that no file shows the bytes of another one. Such a file gets the
//! content that a later record gives it. Otherwise its content is lost, and reading it fails.
//!
//! The caller must keep a copy: opening the layer frees what the new log does not name.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::contents::{DATA_NAME, FILES_NAME};
use super::log::{Log, sync_dir};
use super::ranges::clone_or_copy;
use super::store::make_dir;
use super::{Content, ContentLocation, ContentRef, LayerError, LayerId, LayerIndex, Node, Op};
use tine_attr::Ino;

/// Result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Salvaged {
    /// Length of the log before the damage, in bytes.
    pub kept_bytes: u64,
    /// Length of the whole log, in bytes.
    pub log_bytes: u64,
    /// Number of intact records after the damage, which are dropped.
    pub cut_records: u64,
    /// Number of files with the content of a later record.
    pub later_contents: u64,
    /// Number of files whose content is lost.
    pub lost_contents: u64,
}

/// Repairs the layer `id` in `dir` so that it can be opened.
///
/// It gets the state before the first damaged record, and is on disk when this returns. Missing
/// parts are created empty. No process may have the layer open. The repair can be repeated after a
/// process died in the middle.
///
/// # Errors
/// [`LayerError::Io`] if a file cannot be read, written or removed.
pub fn salvage(dir: &Path, id: LayerId) -> Result<Salvaged, LayerError> {
    if !is_there(dir)? {
        make_dir(dir)?;
    }
    let data_path = dir.join(DATA_NAME);
    clear_unless(&data_path, |meta| meta.is_file())?;
    let data = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&data_path)
        .map_err(LayerError::io("create", &data_path))?;
    let files = dir.join(FILES_NAME);
    clear_unless(&files, |meta| meta.is_dir())?;
    if !is_there(&files)? {
        make_dir(&files)?;
    }
    let (mut remains, log_bytes) = Log::remains(dir, id)?;
    let mut salvaged = Salvaged {
        kept_bytes: remains.good_len,
        log_bytes,
        cut_records: remains.later_records,
        ..Salvaged::default()
    };
    let later = LaterRecords::of(id, &remains.later);
    let repairs = later.repairs(&remains.index, &data, &files, &mut salvaged)?;
    let mut effects = Default::default();
    for op in repairs {
        remains.index.apply(op, &mut effects);
    }
    let inos = Op::ReserveInos {
        below: later.inos_below.max(remains.index.inos_below()),
    };
    clear_unless(&dir.join("log"), |meta| meta.is_file())?;
    Log::replace(dir, id, remains.index.checkpoint().chain([inos]))?;
    if let Some(parent) = dir.parent() {
        sync_dir(parent)?;
    }
    Ok(salvaged)
}

/// Copies the file or directory at `from` to the new path `to`.
///
/// It is usually the directory of a layer. The copy is on disk when this returns. A later change of
/// one does not change the other.
///
/// # Errors
/// [`LayerError::Io`] if a file cannot be read or created.
pub fn copy_all(from: &Path, to: &Path) -> Result<(), LayerError> {
    let kind = fs::symlink_metadata(from)
        .map_err(LayerError::io("look at", from))?
        .file_type();
    if kind.is_symlink() {
        let target = fs::read_link(from).map_err(LayerError::io("read", from))?;
        return std::os::unix::fs::symlink(target, to).map_err(LayerError::io("create", to));
    }
    if kind.is_file() {
        let source = tine_sys::file::open(from).map_err(LayerError::io("open", from))?;
        let copy = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(to)
            .map_err(LayerError::io("create", to))?;
        let len = source
            .metadata()
            .map_err(LayerError::io("stat", from))?
            .len();
        return clone_or_copy(&source, &copy, len)
            .and_then(|()| copy.sync_all())
            .map_err(LayerError::io("copy", from));
    }
    if !kind.is_dir() {
        // A socket or a fifo has no data to keep.
        return Ok(());
    }
    make_dir(to)?;
    for entry in fs::read_dir(from).map_err(LayerError::io("list", from))? {
        let name = entry.map_err(LayerError::io("list", from))?.file_name();
        copy_all(&from.join(&name), &to.join(&name))?;
    }
    sync_dir(to)
}

fn is_there(path: &Path) -> Result<bool, LayerError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(LayerError::io("look at", path)(error)),
    }
}

/// Removes the file at `path`, unless `is_right` accepts it.
fn clear_unless(
    path: &Path,
    is_right: impl FnOnce(&fs::Metadata) -> bool,
) -> Result<(), LayerError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(LayerError::io("look at", path)(error)),
    };
    if is_right(&meta) {
        return Ok(());
    }
    let removed = if meta.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    removed.map_err(LayerError::io("remove", path))
}

/// State of contents in intact records after the damage.
struct LaterRecords {
    id: LayerId,
    /// Last state of each node; `None` if it was dropped.
    nodes: HashMap<Ino, Option<Node>>,
    /// New owners of places, in order.
    claims: Vec<(ContentLocation, Ino)>,
    inos_below: Ino,
}

impl LaterRecords {
    fn of(id: LayerId, ops: &[Op]) -> LaterRecords {
        let mut later = LaterRecords {
            id,
            nodes: HashMap::new(),
            claims: Vec::new(),
            inos_below: Ino(0),
        };
        for op in ops {
            match op {
                Op::PutNode(ino, node) => {
                    let own = node.content.own().filter(|content| content.layer == id);
                    later
                        .claims
                        .extend(own.map(|content| (content.place, *ino)));
                    later.nodes.insert(*ino, Some(node.clone()));
                }
                Op::Written { ino, size, .. } => {
                    if let Some(Some(node)) = later.nodes.get_mut(ino) {
                        node.size = *size;
                    }
                }
                Op::DropNode(ino) => drop(later.nodes.insert(*ino, None)),
                Op::ReserveInos { below } => later.inos_below = later.inos_below.max(*below),
                Op::PutDentry { .. } | Op::DropDentry { .. } => {}
            }
        }
        later
    }

    /// Returns the last owner of a part of `place`.
    ///
    /// The second value is true if the owner has exactly this place.
    fn last_claim(&self, place: ContentLocation) -> Option<(Ino, bool)> {
        let mut claims = self.claims.iter().rev();
        let (claimed, ino) = claims.find(|(claimed, _)| overlap(*claimed, place))?;
        Some((*ino, *claimed == place))
    }

    /// Returns changes to `index` that take freed places from nodes.
    fn repairs(
        &self,
        index: &LayerIndex,
        data: &File,
        files: &Path,
        salvaged: &mut Salvaged,
    ) -> Result<Vec<Op>, LayerError> {
        let mut ops = Vec::new();
        let mut lost = Vec::new();
        for (ino, node) in index.nodes() {
            let Some(content) = node
                .content
                .own()
                .filter(|content| content.layer == self.id)
            else {
                continue;
            };
            let is_reassigned = match self.last_claim(content.place) {
                Some((owner, is_same)) => owner != ino || !is_same,
                None => false,
            };
            let after = self.nodes.get(&ino);
            let was_freed = match after {
                Some(Some(after)) => after.content != node.content || after.nlink == 0,
                Some(None) => true,
                None => false,
            };
            let is_gone =
                is_reassigned || was_freed && !is_filled(data, files, content.place, node.size)?;
            if !is_gone {
                continue;
            }
            match after {
                Some(Some(after))
                    if after.content != node.content && self.is_of(ino, after, files)? =>
                {
                    salvaged.later_contents += 1;
                    let node = Node {
                        content: after.content.clone(),
                        size: after.size,
                        mtime: after.mtime,
                        ctime: after.ctime,
                        ..node.clone()
                    };
                    ops.push(Op::PutNode(ino, node));
                }
                _ => lost.push((ino, node)),
            }
        }
        salvaged.lost_contents = lost.len() as u64;
        // A content file that does not exist, as for any lost content.
        let unused = (self.unused_file(index, files)?..).zip(lost);
        ops.extend(unused.map(|(number, (ino, node))| {
            let place = ContentLocation::File(number);
            let layer = self.id;
            let node = Node {
                content: Content::Own(ContentRef { layer, place }),
                ..node.clone()
            };
            Op::PutNode(ino, node)
        }));
        Ok(ops)
    }

    /// Returns true if the content in a later record is still there.
    fn is_of(&self, ino: Ino, after: &Node, files: &Path) -> Result<bool, LayerError> {
        Ok(match after.content.own() {
            None => true,
            Some(content) if content.layer != self.id => true,
            Some(content) => {
                let is_owner = self.last_claim(content.place) == Some((ino, true));
                match content.place {
                    ContentLocation::Slot { .. } => is_owner,
                    ContentLocation::File(number) => {
                        is_owner && is_there(&files.join(number.to_string()))?
                    }
                }
            }
        })
    }

    /// Returns a number above those of all content files.
    fn unused_file(&self, index: &LayerIndex, files: &Path) -> Result<u64, LayerError> {
        let mut last = 0;
        let named = index
            .nodes()
            .filter_map(|(_, node)| Some(node.content.own()?.place));
        for place in named.chain(self.claims.iter().map(|(place, _)| *place)) {
            if let ContentLocation::File(number) = place {
                last = last.max(number);
            }
        }
        for entry in fs::read_dir(files).map_err(LayerError::io("list", files))? {
            let name = entry.map_err(LayerError::io("list", files))?.file_name();
            last = last.max(
                name.to_str()
                    .and_then(|name| name.parse().ok())
                    .unwrap_or(0),
            );
        }
        Ok(last.saturating_add(1))
    }
}

fn overlap(one: ContentLocation, other: ContentLocation) -> bool {
    match (one, other) {
        (ContentLocation::File(one), ContentLocation::File(other)) => one == other,
        (
            ContentLocation::Slot { offset, capacity },
            ContentLocation::Slot {
                offset: other,
                capacity: other_capacity,
            },
        ) => {
            offset < other.saturating_add(u64::from(other_capacity))
                && other < offset.saturating_add(u64::from(capacity))
        }
        (ContentLocation::File(_), ContentLocation::Slot { .. })
        | (ContentLocation::Slot { .. }, ContentLocation::File(_)) => false,
    }
}

/// Returns true if a freed place still has bytes.
///
/// Then it was neither punched out nor unlinked.
fn is_filled(
    data: &File,
    files: &Path,
    place: ContentLocation,
    size: u64,
) -> Result<bool, LayerError> {
    match place {
        ContentLocation::File(number) => is_there(&files.join(number.to_string())),
        ContentLocation::Slot { .. } if size == 0 => Ok(true),
        ContentLocation::Slot { offset, .. } => {
            let found = tine_sys::file::seek_data(data, offset)
                .map_err(LayerError::io("look into", DATA_NAME))?;
            Ok(found.is_some_and(|found| found < offset.saturating_add(size)))
        }
    }
}
