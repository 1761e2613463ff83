//! Protection of untracked files in a fast-forward.
//!
//! git itself overwrites ignored files where a merge adds files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::{CheckoutMove, paths};
use crate::{GitError, ObjectId, TreeEntryKind};
use tine_path::{EntryName, RepoPath};

impl CheckoutMove<'_> {
    /// Checks that the move does not replace untracked files.
    ///
    /// The move must not add a file at, above or below an ignored file, another repository or a
    /// pipe.
    ///
    /// # Errors
    /// [`GitError::UntrackedInTheWay`].
    pub(super) fn refuse_over_untracked(&self) -> Result<(), GitError> {
        let mut in_the_way = BTreeSet::new();
        let new_tree = self.repository.commit_info(self.to)?.tree_id;
        // Paths that are added or change their kind.
        for path in self.differing(&["--diff-filter=AT"])? {
            self.find_at(&path, new_tree, &mut in_the_way)?;
        }
        if in_the_way.is_empty() {
            return Ok(());
        }
        let tracked = paths(self.place.git().args(["ls-files", "-z"]))?;
        in_the_way.retain(|path| tracked.binary_search(path).is_err());
        if in_the_way.is_empty() {
            return Ok(());
        }
        Err(GitError::UntrackedInTheWay {
            dir: self.place.dir.clone(),
            paths: in_the_way.into_iter().collect(),
        })
    }

    /// Adds the existing files that `path` would replace to `found`.
    ///
    /// They are at, above or below `path`, tracked or not.
    fn find_at(
        &self,
        path: &RepoPath,
        new_tree: ObjectId,
        found: &mut BTreeSet<RepoPath>,
    ) -> Result<(), GitError> {
        for dir in path.directories_above() {
            if let Ok(meta) = fs::symlink_metadata(self.place.file(&dir))
                && (!meta.is_dir() || self.is_repository(&dir))
            {
                found.insert(dir);
            }
        }
        let new = self.repository.tree_entry(new_tree, path)?;
        let is_submodule = new.is_some_and(|entry| entry.kind == TreeEntryKind::Submodule);
        let mut rest = vec![path.clone()];
        while let Some(path) = rest.pop() {
            let place = self.place.file(&path);
            let Ok(meta) = fs::symlink_metadata(&place) else {
                continue;
            };
            if meta.is_dir() && is_submodule {
                // git only creates the directory.
                continue;
            }
            if !meta.is_dir() || self.is_repository(&path) {
                found.insert(path);
                continue;
            }
            for entry in fs::read_dir(&place).map_err(GitError::io("list", &place))? {
                let entry = entry.map_err(GitError::io("list", &place))?;
                if let Ok(name) = EntryName::new(entry.file_name().as_bytes()) {
                    rest.push(path.join(&name));
                }
            }
        }
        Ok(())
    }

    fn is_repository(&self, dir: &RepoPath) -> bool {
        fs::symlink_metadata(self.place.file(dir).join(".git")).is_ok()
    }
}
