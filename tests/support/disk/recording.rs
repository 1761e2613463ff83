//! What was written to a disk, and disks as a power failure may have left them.
//!
//! A disk keeps what was written before the last flush, and of what was written since any part, in
//! units of sectors.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::{OutputExt, Random, path_text, run_with_timeout};
use super::server::{IMAGE, WRITES};

/// The disk before the first recorded write.
pub(super) const START_IMAGE: &str = "start.img";
const HEADER: usize = 16;

/// One recorded request: 8 bytes offset, 8 bytes length, data. A flush has the greatest offset.
pub(super) enum Entry<'a> {
    Write { offset: u64, data: &'a [u8] },
    Flush,
}

impl Entry<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (offset, data) = match self {
            Entry::Write { offset, data } => (*offset, *data),
            Entry::Flush => (u64::MAX, &[][..]),
        };
        let mut bytes = Vec::with_capacity(HEADER + data.len());
        bytes.extend(offset.to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        bytes.extend(data);
        bytes
    }
}

/// A sparse copy of an image.
pub(super) fn copy_image(from: &Path, to: &Path) {
    let _ = fs::remove_file(to);
    run_with_timeout(Command::new("cp").args(["--sparse=always", path_text(from), path_text(to)]))
        .expect_success("copying an image");
}

/// A finished recording.
pub struct Recording {
    dir: PathBuf,
    /// What the disk writes whole or not at all, in bytes.
    sector: usize,
    bytes: Vec<u8>,
    /// Where each entry ends in `bytes`, and whether it is a flush.
    ends: Vec<(usize, bool)>,
}

/// A disk as a power failure may have left it.
pub struct Replayed {
    pub image: PathBuf,
    /// All before this position is on the disk: where the last flush ended.
    pub flushed: u64,
    /// Nothing after this position is.
    pub reached: u64,
}

impl Recording {
    pub(super) fn open(dir: &Path, sector: usize) -> Recording {
        let bytes = fs::read(dir.join(WRITES)).expect("the recording is there");
        let mut ends = Vec::new();
        let mut at = 0;
        while let Some(header) = bytes.get(at..at + HEADER) {
            let number = |range: std::ops::Range<usize>| {
                u64::from_le_bytes(header[range].try_into().expect("eight bytes were taken"))
            };
            at += HEADER + number(8..16) as usize;
            ends.push((at, number(0..8) == u64::MAX));
        }
        assert_eq!(at, bytes.len(), "the recording is whole");
        Recording {
            dir: dir.to_owned(),
            sector,
            bytes,
            ends,
        }
    }

    /// How many requests were recorded, and how many of these are flushes.
    pub fn counts(&self) -> (usize, usize) {
        let flushes = self.ends.iter().filter(|(_, is_flush)| *is_flush).count();
        (self.ends.len(), flushes)
    }

    /// Positions right behind each flush that ended after `from`.
    pub fn barriers(&self, from: u64) -> Vec<u64> {
        self.ends
            .iter()
            .filter(|(end, is_flush)| *is_flush && *end as u64 > from)
            .map(|(end, _)| *end as u64)
            .collect()
    }

    /// Positions behind each request after `from`.
    pub fn positions(&self, from: u64) -> Vec<u64> {
        let ends = self.ends.iter().map(|(end, _)| *end as u64);
        ends.filter(|end| *end > from).collect()
    }

    /// The end of the last flush that ended at or before `position`.
    pub fn flushed_at(&self, position: u64) -> u64 {
        self.ends
            .iter()
            .take_while(|(end, _)| *end as u64 <= position)
            .filter(|(_, is_flush)| *is_flush)
            .map(|(end, _)| *end as u64)
            .last()
            .unwrap_or(0)
    }

    /// Makes the disk as a power failure at `position` may have left it: with what was flushed by
    /// then, and of what was written since each request with the chance of `chance` in 100, a few
    /// of them torn.
    pub fn replay(&self, position: u64, chance: u64, random: &mut Random) -> Replayed {
        let image = self.dir.join("replayed.img");
        copy_image(&self.dir.join(START_IMAGE), &image);
        let file = OpenOptions::new()
            .write(true)
            .open(&image)
            .expect("it was just made");
        let flushed = self.flushed_at(position);
        let mut start = 0;
        for (end, is_flush) in &self.ends {
            let entry = &self.bytes[start..*end];
            start = *end;
            if *end as u64 > position {
                break;
            }
            if *is_flush {
                continue;
            }
            let offset = u64::from_le_bytes(entry[..8].try_into().expect("eight bytes were taken"));
            let data = &entry[HEADER..];
            if *end as u64 <= flushed {
                write(&file, data, offset);
            } else if random.below(100) < chance {
                match random.below(4) {
                    0 => {
                        let mut at = 0;
                        while at < data.len() {
                            let begin = offset + at as u64;
                            let sector = self.sector as u64;
                            let next = data.len().min(at + (sector - begin % sector) as usize);
                            if random.below(2) == 0 {
                                write(&file, &data[at..next], begin);
                            }
                            at = next;
                        }
                    }
                    _ => write(&file, data, offset),
                }
            }
        }
        Replayed {
            image,
            flushed,
            reached: position,
        }
    }

    /// Makes the disk as it was left at the end, and checks it against what the server wrote.
    pub fn check_end(&self) {
        let end = self.bytes.len() as u64;
        let replayed = self.replay(end, 100, &mut Random::new(3));
        let expected = fs::read(self.dir.join(IMAGE)).expect("the image is there");
        let found = fs::read(&replayed.image).expect("the image was just made");
        let flushed = self.flushed_at(end) == end;
        assert!(
            !flushed || expected == found,
            "the recording is not what was written"
        );
    }
}

fn write(file: &File, data: &[u8], offset: u64) {
    file.write_all_at(data, offset)
        .expect("the image can be written");
}
