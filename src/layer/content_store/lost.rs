//! Contents that `data` has lost: it ends before they do.
//!
//! The next content that is written makes `data` longer, and then nothing would tell such a place
//! from zeroes. So the node gets a content file that is not there, as if that had been lost:
//! reading it fails, and a check finds it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::contents::ContentReader;
use crate::fault;
use crate::{Content, ContentLocation, ContentRef, LayerError, LayerId, LayerIndex, Node, Op};

/// What to change in the layer `id` in `dir` so that contents that `data` lacks stay lost. What is
/// left of one is copied to its file.
///
/// # Errors
/// [`LayerError::Io`], and [`LayerError::Corrupt`] where `index` names a place that cannot be.
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
        // Less than a slot has.
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
