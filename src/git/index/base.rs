//! The index of a fresh checkout of a base.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::writer::{
    CachedTree, Encoder, EntryFlags, EntryStat, index_size, index_time, replace_file,
};
use super::{check_depth, on_deep_stack};
use crate::{Base, BaseDir, GitError, ObjectId, TreeEntryKind};
use tine_attr::Timestamp;
use tine_path::RepoPath;

/// The `stat(2)` fields that are the same for every base node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseStat {
    /// Owner of every node.
    pub uid: u32,
    /// Group of every node.
    pub gid: u32,
    /// Access, modification and change time.
    pub time: Timestamp,
}

/// Minimum number of files that justifies a second thread.
const MIN_FILES_TO_SHARE: usize = 4096;

/// Number of files at which all are counted, before memory runs out.
const MIN_FILES_TO_COUNT: usize = 100_000;

/// Writes the index of a fresh checkout of `base` to `to`.
///
/// Every path must be one that a checkout may have. `token` names the state of a fork's files that
/// matches this index, so that git checks only later changes. Sizes come from the objects' headers.
/// In a partial clone, missing objects are fetched first, in one request.
///
/// # Errors
/// [`GitError::HostileTree`] or [`GitError::TooManyFiles`] for trees that a checkout must refuse,
/// [`GitError::Io`] if the file cannot be written, and errors of reading the base.
pub fn write_base_index(
    base: &Base,
    stat: &BaseStat,
    token: &str,
    to: &Path,
) -> Result<(), GitError> {
    on_deep_stack(to, || {
        replace_file(to, &encode_base_index(base, stat, token)?)
    })
}

fn encode_base_index(base: &Base, stat: &BaseStat, token: &str) -> Result<Vec<u8>, GitError> {
    let mut files = Vec::new();
    let tree = collect(
        base,
        &RepoPath::root(),
        Vec::new(),
        base.tree_id(),
        0,
        &mut files,
    )?;
    if base.repository().promisor_remote().is_some() {
        let ids: Vec<ObjectId> = files
            .iter()
            .map(FileEntry::get)
            .filter(|entry| entry.kind != TreeEntryKind::Submodule)
            .map(|entry| entry.id)
            .collect();
        base.repository().fetch_missing(&ids)?;
    }
    let sizes = sizes(base, &files)?;
    let time = index_time(stat.time);
    let mut encoder = Encoder::new(base.repository().hash_kind(), files.len());
    for (file, size) in files.iter().zip(sizes) {
        let entry = file.get();
        let entry_stat = match entry.kind {
            // git only checks that a submodule is a directory.
            TreeEntryKind::Submodule => EntryStat::default(),
            _ => EntryStat {
                ctime: time,
                mtime: time,
                dev: 0,
                ino: entry.ino.0 as u32,
                uid: stat.uid,
                gid: stat.gid,
                size: index_size(size),
            },
        };
        let path = file.dir.path.join(&entry.name);
        encoder.push(
            path.as_bytes(),
            entry.kind,
            entry.id,
            &entry_stat,
            EntryFlags::default(),
        );
    }
    encoder.finish(&tree, Some(token), None)
}

/// A future index entry: an entry of a base directory, but not a directory.
struct FileEntry {
    dir: Arc<BaseDir>,
    /// Valid index into `dir.entries`.
    index: usize,
}

impl FileEntry {
    fn get(&self) -> &crate::BaseEntry {
        &self.dir.entries[self.index]
    }
}

/// Collects the files under `path` in the index's order.
fn collect(
    base: &Base,
    path: &RepoPath,
    name: Vec<u8>,
    tree_id: ObjectId,
    depth: usize,
    files: &mut Vec<FileEntry>,
) -> Result<CachedTree, GitError> {
    check_depth(depth, tree_id)?;
    let dir = base.dir(path, tree_id)?;
    let count_before = files.len();
    let mut children = Vec::new();
    for index in in_git_order(&dir) {
        let entry = &dir.entries[index];
        if entry.kind == TreeEntryKind::Directory {
            let name = entry.name.as_bytes().to_vec();
            children.push(collect(
                base,
                &path.join(&entry.name),
                name,
                entry.id,
                depth + 1,
                files,
            )?);
        } else {
            if files.len() == MIN_FILES_TO_COUNT {
                base.repository().check_file_count(base.tree_id())?;
            }
            let dir = dir.clone();
            files.push(FileEntry { dir, index });
        }
    }
    Ok(CachedTree {
        name,
        id: tree_id,
        entry_count: u32::try_from(files.len() - count_before)
            .map(Some)
            .map_err(GitError::library("count the files"))?,
        children,
    })
}

/// Sorts the entries of `dir` by the paths under them.
///
/// A directory sorts as its name with a slash.
fn in_git_order(dir: &BaseDir) -> Vec<usize> {
    let mut order: Vec<usize> = (0..dir.entries.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&dir.entries[a], &dir.entries[b]);
        gix::objs::tree::name_order(
            a.name.as_bytes(),
            a.kind == TreeEntryKind::Directory,
            b.name.as_bytes(),
            b.kind == TreeEntryKind::Directory,
        )
    });
    order
}

/// Returns the sizes in bytes of `files` in a checkout.
fn sizes(base: &Base, files: &[FileEntry]) -> Result<Vec<u64>, GitError> {
    let sizes_of = |files: &[FileEntry]| -> Result<Vec<u64>, GitError> {
        files
            .iter()
            .map(|file| match file.get().kind {
                TreeEntryKind::Submodule => Ok(0),
                _ => base.size(&file.dir, file.index),
            })
            .collect()
    };
    if files.len() < MIN_FILES_TO_SHARE {
        return sizes_of(files);
    }
    let (first, second) = files.split_at(files.len() / 2);
    thread::scope(|scope| {
        let second = scope.spawn(|| sizes_of(second));
        let mut sizes = sizes_of(first)?;
        sizes.append(&mut second.join().expect("reading sizes does not panic")?);
        Ok(sizes)
    })
}

#[cfg(test)]
mod tests;
