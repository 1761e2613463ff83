//! Contents that are lost because `data` ends before them.
//!
//! The next write extends `data`, and then nothing would distinguish such a place from zeroes. So
//! the node gets a content file that does not exist, as if that file had been lost. Reading it
//! fails, and a check finds it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::contents::ContentReader;
use crate::fault;
use crate::{Content, ContentLocation, ContentRef, LayerError, LayerId, LayerIndex, Node, Op};

/// Returns changes after which the contents that `data` lacks stay lost.
///
/// They are for the layer `id` in `dir`. The remaining bytes of a content are copied to its file.
///
/// # Errors
/// [`LayerError::Corrupt`] if `index` names an invalid place, [`LayerError::Io`] otherwise.
pub(crate) fn lost_contents(
    dir: &Path,
    id: LayerId,
    index: &LayerIndex,
) -> Result<Vec<Op>, LayerError> {
    let reader = ContentReader::open(dir, id, false)?;
    let (data, path) = (reader.data(), reader.data_path());
    let data_len = data.metadata().map_err(LayerError::io("stat", path))?.len();
    let mut lost = Vec::new();
    let mut last_number = 0;
    for (ino, node) in index.nodes() {
        let Some(content) = node.content.own().filter(|content| content.layer == id) else {
            continue;
        };
        match reader.check(content, node.size)? {
            ContentLocation::Slot { offset, .. }
                if node.size > 0 && offset + node.size > data_len =>
            {
                lost.push((ino, node, offset));
            }
            ContentLocation::Slot { .. } => {}
            ContentLocation::File(number) => last_number = last_number.max(number),
        }
    }
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    let files = reader.files();
    for entry in std::fs::read_dir(files.dir()).map_err(LayerError::io("list", files.dir()))? {
        let entry = entry.map_err(LayerError::io("list", files.dir()))?;
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        last_number = last_number.max(number.unwrap_or(0));
    }
    let mut ops = Vec::new();
    for (number, (ino, node, offset)) in (last_number.saturating_add(1)..).zip(lost) {
        // It is less than a slot.
        let left = data_len.saturating_sub(offset) as usize;
        if left > 0 {
            let mut bytes = vec![0; left];
            fault::step()
                .and_then(|()| data.read_exact_at(&mut bytes, offset))
                .map_err(LayerError::io("read", path))?;
            fault::step()
                .and_then(|()| {
                    let mut options = OpenOptions::new();
                    let file = options.write(true).create(true).truncate(true).mode(0o600);
                    file.open(files.path(number))?.write_all(&bytes)
                })
                .map_err(LayerError::io("write", files.path(number)))?;
        }
        let content = ContentRef {
            layer: id,
            place: ContentLocation::File(number),
        };
        let node = Node {
            content: Content::Own(content),
            ..node.clone()
        };
        ops.push(Op::PutNode(ino, node));
    }
    Ok(ops)
}
