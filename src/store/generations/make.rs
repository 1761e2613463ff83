//! Copying of a dependency tree into a new generation.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::{GenerationError, SPARE_BYTES, could_not_read, create};
use crate::{Store, StoreError, files};
use tine_path::RepoPath;
use tine_sys::beneath::{self, Access};
use tine_sys::file::fs_figures;
use tine_workspace::carry::generation::{
    GenerationId, GenerationSummary, MANIFEST, PACK, SUM_BUFFER, SUMMARY, SUMS, checksum,
    with_checksum,
};
use tine_workspace::carry::tree::{TreeListing, below};

/// Minimum size, in bytes, of files aligned to blocks in the pack.
///
/// The disk can share the blocks of such files.
const MIN_SHARED: u64 = 16 << 10;

/// Block size, in bytes, to which such files are aligned.
const BLOCK: u64 = 4096;

impl Store {
    /// Makes the generation; returns the total size of its files.
    pub(super) fn make_generation(
        &self,
        top: &File,
        path: &RepoPath,
        mut listing: TreeListing,
        id: &GenerationId,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, GenerationError> {
        let place = self.places.generation(id);
        let dir = files::temporary_beside(&place);
        files::create_private_dir(&self.places.generations())?;
        files::create_private_dir(&dir)?;
        let made = self
            .fill(&dir, top, path, &mut listing, goes_on)
            .and_then(|bytes| {
                // Files that changed during the copy show now.
                if TreeListing::of(top, path).map_err(could_not_read)?.id() != *id {
                    return Err(GenerationError::Changing);
                }
                // A damaged one may be in the place.
                files::remove_dir(&place)?;
                fs::rename(&dir, &place).map_err(StoreError::io("replace", &place))?;
                files::sync_parent(&place)?;
                Ok(bytes)
            });
        if made.is_err()
            && let Err(error) = files::remove_dir(&dir)
        {
            log::warn!("{error}");
        }
        made
    }

    fn fill(
        &self,
        dir: &Path,
        top: &File,
        path: &RepoPath,
        listing: &mut TreeListing,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, GenerationError> {
        let sizes = listing.entries.iter().filter(|entry| entry.is_file());
        let needed: u64 = sizes.map(|entry| entry.stat.size).sum();
        let figures = fs_figures(dir).map_err(StoreError::io("look at", dir))?;
        let available = figures.block_size.saturating_mul(figures.blocks_available);
        if available < needed.saturating_add(SPARE_BYTES) {
            return Err(GenerationError::NoRoom { needed, available });
        }
        let no_room = |error: StoreError| match &error {
            StoreError::Io { source, .. }
                if matches!(
                    source.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded
                ) =>
            {
                GenerationError::NoRoom { needed, available }
            }
            _ => error.into(),
        };
        let landmarks = listing.landmarks();
        let pack_path = dir.join(PACK);
        let pack = create(&pack_path)?;
        let in_pack = |action| StoreError::io(action, &pack_path);
        let mut end = 0_u64;
        let mut gone = BTreeSet::new();
        // Copying may share blocks and not read the bytes, so they are read for the checksum.
        let mut sums = Vec::new();
        let mut buffer = vec![0; SUM_BUFFER];
        for (index, entry) in listing.entries.iter_mut().enumerate() {
            if !entry.is_file() {
                continue;
            }
            if !goes_on() {
                return Err(GenerationError::Ending);
            }
            if entry.stat.size >= MIN_SHARED {
                end = end.next_multiple_of(BLOCK);
            }
            entry.offset = end;
            (&pack)
                .seek(SeekFrom::Start(end))
                .map_err(|error| no_room(in_pack("write")(error)))?;
            let full = below(path, &entry.path).map_err(GenerationError::Read)?;
            let is_as_listed = |source: &File| {
                let found = beneath::stat(source).map_err(could_not_read)?;
                let is_it = (found.ino, found.size, found.mtime, found.ctime)
                    == (
                        entry.stat.ino,
                        entry.stat.size,
                        entry.stat.mtime,
                        entry.stat.ctime,
                    );
                Ok::<_, GenerationError>(
                    is_it || found.nlink > 1 && found.mtime == entry.stat.mtime,
                )
            };
            let copied = match beneath::open(top, full.as_path(), Access::Read) {
                Ok(source) if is_as_listed(&source)? => {
                    let copied = io::copy(&mut (&source).take(entry.stat.size), &mut &pack)
                        .map_err(|error| no_room(in_pack("write")(error)))?;
                    (&source).rewind().map_err(could_not_read)?;
                    let (sum, read) = checksum((&source).take(entry.stat.size), &mut buffer)
                        .map_err(could_not_read)?;
                    let is_whole =
                        copied == entry.stat.size && read == copied && is_as_listed(&source)?;
                    sums.extend(is_whole.then_some(sum));
                    is_whole
                }
                Ok(_) => false,
                Err(error) => match could_not_read(error) {
                    GenerationError::Changing => false,
                    failed => return Err(failed),
                },
            };
            match copied {
                true => end = end.saturating_add(entry.stat.size),
                false if entry.is_cache() => drop(gone.insert(index)),
                false => return Err(GenerationError::Changing),
            }
        }
        let mut index = 0;
        listing.entries.retain(|_| {
            index += 1;
            !gone.contains(&(index - 1))
        });
        pack.sync_all()
            .map_err(|error| no_room(in_pack("sync")(error)))?;
        let files = listing
            .entries
            .iter()
            .filter(|entry| entry.is_file())
            .count() as u64;
        let summary = GenerationSummary {
            files,
            bytes: end,
            landmarks,
        };
        for (name, bytes) in [
            (MANIFEST, with_checksum(&listing)),
            (SUMMARY, with_checksum(&summary)),
            (SUMS, with_checksum(&sums)),
        ] {
            let path = dir.join(name);
            let bytes = bytes.map_err(StoreError::io("encode", &path))?;
            let mut file = create(&path)?;
            file.write_all(&bytes)
                .map_err(StoreError::io("write", &path))
                .map_err(no_room)?;
        }
        files::sync_files_in(dir).map_err(no_room)?;
        Ok(needed)
    }
}
