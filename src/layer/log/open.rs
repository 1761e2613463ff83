//! Opening and reading of existing logs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::{LOG_NAME, Log, NEW_LOG_NAME, boot_id, lock};
use crate::position::{PrefixHash, draw_instance};
use crate::record::{self, BootId, Remains, Replay};
use crate::{LayerError, LayerId, LayerIndex};

impl Log {
    /// Locks and reads the log in `dir`, and truncates its torn tail.
    ///
    /// # Errors
    /// [`LayerError::Locked`], [`LayerError::Corrupt`], [`LayerError::NewerFormat`],
    /// [`LayerError::Io`], or [`LayerError::Frozen`] for a sealed log.
    pub(crate) fn open(dir: &Path) -> Result<(Log, LayerIndex), LayerError> {
        Log::open_under(dir, boot_id())
    }

    pub(crate) fn open_under(dir: &Path, boot: BootId) -> Result<(Log, LayerIndex), LayerError> {
        let path = dir.join(LOG_NAME);
        let file = open_locked(&path)?;
        let bytes = read_all(&file, &path)?;
        let replay = record::replay(&bytes, &path, boot)?;
        if replay.is_sealed {
            return Err(LayerError::Frozen { path });
        }
        let leftover = dir.join(NEW_LOG_NAME);
        match std::fs::remove_file(&leftover) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LayerError::io("remove", leftover)(error));
            }
            _ => {}
        }
        let mut log = Log {
            file: Arc::new(file),
            dir: dir.to_owned(),
            path,
            version: replay.version,
            id: replay.id,
            len: replay.good_len,
            synced_len: replay.synced_len,
            complete_len: if replay.is_complete {
                replay.good_len
            } else {
                0
            },
            changed_len: replay.changed_len,
            logged_synced_len: replay.synced_len,
            unlogged_boot: (replay.last_boot != Some(boot)).then_some(boot),
            reserved_len: 0,
            instance: draw_instance(),
            prefix: PrefixHash::default(),
            recent: [replay.good_len; 2],
            is_sealed: false,
            is_poisoned: false,
            is_interrupted: false,
            buffer: Vec::new(),
        };
        let tail_len = bytes.len() as u64 - replay.good_len;
        if tail_len > 0 {
            log::warn!(
                "{}: cut a torn tail of {tail_len} bytes",
                log.path.display()
            );
            log.truncate_tail(bytes.len() as u64, replay.is_after_power_loss)?;
        }
        if let Err(error) = log.log_boot() {
            // A layer must open on a full disk, too. This record is then written before the next
            // one.
            log::warn!("{error}");
            log.check()?;
        }
        Ok((log, replay.index))
    }

    /// Truncates the file, of `file_len` bytes, to the log's end.
    fn truncate_tail(
        &mut self,
        file_len: u64,
        is_after_power_loss: bool,
    ) -> Result<(), LayerError> {
        if is_after_power_loss {
            // Everything that was read is on disk. A record must say so before the truncation
            // removes the record that says it now. It overwrites the tail, so it needs no disk
            // space.
            let boot = self.unlogged_boot.take();
            let upto = self.len;
            self.append_complete(upto)?;
            self.unlogged_boot = boot;
            self.point().sync()?;
            self.synced_len = self.len;
            self.complete_len = upto;
        }
        if self.len < file_len {
            self.file
                .set_len(self.len)
                .map_err(LayerError::io("truncate", &self.path))?;
        }
        self.log_synced_len();
        Ok(())
    }

    /// Reads the log in `dir`, sealed or not, without a lock.
    ///
    /// If a process is writing to the log, a half-written record at its end counts as a torn tail.
    pub(crate) fn read_unlocked(dir: &Path) -> Result<Replay, LayerError> {
        let path = dir.join(LOG_NAME);
        let file = tine_sys::file::open(&path).map_err(LayerError::io("open", &path))?;
        record::replay(&read_all(&file, &path)?, &path, boot_id())
    }

    /// Reads the sealed log in `dir`.
    pub(crate) fn read_sealed(dir: &Path) -> Result<Replay, LayerError> {
        let path = dir.join(LOG_NAME);
        let file = tine_sys::file::open(&path).map_err(LayerError::io("open", &path))?;
        let bytes = read_all(&file, &path)?;
        let replay = record::replay(&bytes, &path, boot_id())?;
        if !replay.is_sealed {
            return Err(LayerError::Unsealed { path });
        }
        if replay.good_len != bytes.len() as u64 {
            return Err(LayerError::Corrupt {
                path,
                offset: replay.good_len,
                reason: "something follows the seal".to_owned(),
            });
        }
        Ok(replay)
    }

    /// Reads what remains of a damaged log of the layer `id`.
    ///
    /// The second value is the length of the file. A log that is missing, or is not a file, is
    /// empty.
    pub(crate) fn remains(dir: &Path, id: LayerId) -> Result<(Remains, u64), LayerError> {
        let path = dir.join(LOG_NAME);
        let bytes = match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => {
                tine_sys::file::read(&path).map_err(LayerError::io("read", &path))?
            }
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(LayerError::io("look at", &path)(error)),
        };
        Ok((record::remains(&bytes, id, boot_id()), bytes.len() as u64))
    }
}

/// Opens the log at `path` and locks it.
///
/// The kernel releases the lock when the process ends.
fn open_locked(path: &Path) -> Result<File, LayerError> {
    loop {
        let file = tine_sys::file::open_with(path, OpenOptions::new().read(true).write(true))
            .map_err(LayerError::io("open", path))?;
        lock(&file, path)?;
        // Another process may have replaced the log between the opening and the locking.
        let mine = file.metadata().map_err(LayerError::io("stat", path))?;
        let there = std::fs::metadata(path).map_err(LayerError::io("stat", path))?;
        if (mine.dev(), mine.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
    }
}

fn read_all(file: &File, path: &Path) -> Result<Vec<u8>, LayerError> {
    let mut bytes = Vec::new();
    let mut reader = file;
    reader
        .read_to_end(&mut bytes)
        .map_err(LayerError::io("read", path))?;
    Ok(bytes)
}
