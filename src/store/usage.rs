//! Disk usage of files, with hard links counted once.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the disk space below `dir` in bytes; unreadable files count zero.
pub fn disk_usage(dir: &Path) -> u64 {
    DiskUsage::default().of(dir)
}

/// Returns the disk space below these directories, in bytes.
pub(super) fn usage<'a>(dirs: impl IntoIterator<Item = &'a PathBuf>) -> u64 {
    let mut usage = DiskUsage::default();
    dirs.into_iter().map(|dir| usage.of(dir)).sum()
}

/// Returns the disk space that removing the directory frees, in bytes.
///
/// Files with a hard link elsewhere do not count.
pub(super) fn sole_usage(dir: &Path) -> u64 {
    DiskUsage::default().sole(dir)
}

/// Sum of disk space that counts a file with several names once.
#[derive(Default)]
struct DiskUsage {
    /// Device and inode of files with hard links, and the links found.
    met: HashMap<(u64, u64), u64>,
}

impl DiskUsage {
    /// Returns the bytes below `dir` not counted before.
    fn of(&mut self, dir: &Path) -> u64 {
        self.count(dir, &|_, met| met == 1)
    }

    /// Returns the bytes of files below `dir` without links elsewhere.
    fn sole(&mut self, dir: &Path) -> u64 {
        self.count(dir, &|names, met| names == met)
    }

    fn count(&mut self, dir: &Path, counts: &dyn Fn(u64, u64) -> bool) -> u64 {
        let Ok(entries) = std::fs::read_dir(dir) else {
            return 0;
        };
        let mut bytes = 0_u64;
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                bytes = bytes.saturating_add(self.count(&entry.path(), counts));
                continue;
            }
            let met = match metadata.nlink() {
                1 => 1,
                _ => {
                    let met = self
                        .met
                        .entry((metadata.dev(), metadata.ino()))
                        .or_default();
                    *met += 1;
                    *met
                }
            };
            if counts(metadata.nlink(), met) {
                bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512));
            }
        }
        bytes
    }
}
