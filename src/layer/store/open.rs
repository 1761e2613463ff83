//! Opening of a layer, also after a crash or a failed sync.

use std::path::Path;

use super::space::is_disk_full;
use super::{FAILED_NAME, Layer};
use crate::content_store::{ContentStore, lost_contents};
use crate::contents::DATA_NAME;
use crate::index::Effects;
use crate::log::{Log, SpaceUse};
use crate::{LayerError, LayerIndex, Op};

impl Layer {
    /// Opens the layer in `dir`.
    ///
    /// This reads the log, truncates a torn tail, drops unlinked nodes, and frees contents without
    /// a node.
    ///
    /// # Errors
    /// [`LayerError::Locked`] if another [`Layer`] is open there; [`LayerError::Frozen`],
    /// [`LayerError::Corrupt`], [`LayerError::NewerFormat`], or [`LayerError::Io`].
    pub fn open(dir: &Path) -> Result<Layer, LayerError> {
        let (mut log, mut index) = Log::open(dir)?;
        let unlinked: Vec<Op> = index
            .nodes()
            .filter(|(_, node)| node.nlink == 0)
            .map(|(ino, _)| Op::DropNode(ino))
            .collect();
        if !unlinked.is_empty() {
            match log.append(&unlinked, SpaceUse::Frees) {
                Ok(()) => {
                    let mut effects = Effects::default();
                    for op in unlinked {
                        index.apply(op, &mut effects);
                    }
                }
                // A layer must open on a full disk, too. The next opening drops the nodes.
                Err(error) => log::warn!("unlinked nodes are not dropped: {error}"),
            }
        }
        log_lost_contents(dir, &mut log, &mut index)?;
        let failed = dir.join(FAILED_NAME);
        let durability = if failed.exists() {
            Durability::Uncertain
        } else {
            complete_before_freeing(&mut log)?
        };
        let may_free = durability == Durability::Complete;
        let contents = ContentStore::open(dir, log.id(), &index, may_free)?;
        let mut layer = Layer::assemble(dir, log, index, contents);
        if durability == Durability::Uncertain {
            match layer.rewrite_all() {
                Ok(()) => {
                    // A marker that stays only causes another rewrite.
                    let _ = std::fs::remove_file(failed);
                }
                Err(error) => {
                    log::error!("{} can only be read: {error}", dir.display());
                    layer.poison();
                }
            }
        }
        Ok(layer)
    }

    /// Rewrites everything that may be only in the page cache.
    ///
    /// After a failed write the kernel marks the pages as clean, so a sync would skip them.
    fn rewrite_all(&mut self) -> Result<(), LayerError> {
        log::warn!(
            "{}: writing all again, because a sync failed",
            self.dir.display()
        );
        // These calls may report the earlier failure, which is already known.
        self.contents.clear_write_errors();
        let _ = self.log.point().sync();
        self.must_rewrite_contents = true;
        self.compact()
    }
}

/// Durability of a layer that was just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// The log is on disk, with all contents that it names.
    Complete,
    /// The disk has no room for the record that would confirm it.
    Unconfirmed,
    /// The disk failed to take some of it.
    Uncertain,
}

/// Logs the loss of contents at the end of `data`.
///
/// This must come before `data` grows over their places.
fn log_lost_contents(dir: &Path, log: &mut Log, index: &mut LayerIndex) -> Result<(), LayerError> {
    let lost = lost_contents(dir, log.id(), index)?;
    if lost.is_empty() {
        return Ok(());
    }
    log::error!(
        "{}: bytes of {} files are lost",
        dir.join(DATA_NAME).display(),
        lost.len()
    );
    log.append(&lost, SpaceUse::Frees)?;
    let mut effects = Effects::default();
    for op in lost {
        index.apply(op, &mut effects);
    }
    Ok(())
}

/// Syncs a log that was just read, with all its contents.
///
/// The caller is about to free the contents that the log dropped.
fn complete_before_freeing(log: &mut Log) -> Result<Durability, LayerError> {
    if log.is_synced() {
        return Ok(Durability::Complete);
    }
    if !log.is_complete()
        && let Err(error) = log.sync_fs()
    {
        log::warn!("{error}");
        return Ok(if is_disk_full(&error) {
            Durability::Unconfirmed
        } else {
            Durability::Uncertain
        });
    }
    let upto = log.len();
    let point = match log.complete(upto) {
        Ok(point) => point,
        Err(error) if is_disk_full(&error) => {
            log.check()?;
            log::warn!("what is unused stays for now: {error}");
            return Ok(Durability::Unconfirmed);
        }
        Err(error) => return Err(error),
    };
    if let Err(error) = point.sync() {
        log::warn!("{error}");
        return Ok(Durability::Uncertain);
    }
    log.mark_synced(&point);
    Ok(Durability::Complete)
}
