//! What files occupy on the disk, where several names may lead to one.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes on the disk of the files beneath `dir`; what cannot be read counts nothing.
pub fn disk_usage(dir: &Path) -> u64 {
    DiskUsage::default().of(dir)
}

/// Bytes on the disk of what is beneath these directories.
pub(super) fn usage<'a>(dirs: impl IntoIterator<Item = &'a PathBuf>) -> u64 {
    let mut usage = DiskUsage::default();
    dirs.into_iter().map(|dir| usage.of(dir)).sum()
}

/// Bytes on the disk that go with the directory: not those of files that another one has, too.
pub(super) fn sole_usage(dir: &Path) -> u64 {
    DiskUsage::default().sole(dir)
}

/// Counts bytes on the disk, those of a file with several names once.
#[derive(Default)]
struct DiskUsage {
    /// Device and number of the files with several names, and how many of those were met.
    met: HashMap<(u64, u64), u64>,
}

impl DiskUsage {
    /// Of the files beneath `dir` that were not met before.
    fn of(&mut self, dir: &Path) -> u64 {
        self.count(dir, &|_, met| met == 1)
    }

    /// Of the files beneath `dir` that have no name elsewhere.
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
