//! Embedded paths of virtual environments and build directories.

use std::fs::File;

use super::{EmbeddedPathKind, Search, child};
use tine_attr::FileKind;
use tine_path::RepoPath;

/// Maximum number of dependency files read in each directory of a build.
const MAX_DEP_FILES: usize = 8;

impl Search<'_> {
    /// Searches a virtual environment of Python, and the packages in it.
    pub(super) fn search_venv(&mut self, dir: &RepoPath) {
        let mut files: Vec<RepoPath> = child(dir, "pyvenv.cfg").into_iter().collect();
        let mut other_root = None;
        let mut is_right = true;
        if let Some(bin) = child(dir, "bin") {
            for (name, kind) in self.list(&bin) {
                match kind {
                    FileKind::Regular => files.push(bin.join(&name)),
                    FileKind::Symlink => self.rewrite_link(&bin.join(&name)),
                    _ => {}
                }
            }
        }
        for file in files {
            if let Some((root, right)) = self.rewrite(&file, false) {
                other_root = other_root.or(Some(root));
                is_right &= right;
            }
        }
        if let Some(root) = other_root {
            self.report(dir, EmbeddedPathKind::Venv, &root, is_right);
        }
        let Some(lib) = child(dir, "lib") else {
            return;
        };
        for (version, kind) in self.list(&lib) {
            if kind == FileKind::Directory
                && let Some(packages) = child(&lib.join(&version), "site-packages")
            {
                self.search_packages(&packages);
            }
        }
    }

    fn search_packages(&mut self, packages: &RepoPath) {
        for (name, kind) in self.list(packages) {
            let bytes = name.as_bytes();
            let path = packages.join(&name);
            let file = match kind {
                FileKind::Regular
                    if bytes.ends_with(b".pth")
                        || bytes.ends_with(b".egg-link")
                        || bytes.starts_with(b"__editable__") =>
                {
                    Some(path)
                }
                FileKind::Directory if bytes.ends_with(b".dist-info") => {
                    child(&path, "direct_url.json")
                }
                _ => None,
            };
            if let Some(file) = file
                && let Some((root, is_right)) = self.rewrite(&file, true)
            {
                self.report(&file, EmbeddedPathKind::EditableInstall, &root, is_right);
            }
        }
    }

    /// Searches a build directory of CMake by its cache.
    pub(super) fn search_cmake(&mut self, dir: &RepoPath) {
        let Some(path) = child(dir, "CMakeCache.txt") else {
            return;
        };
        let Some(text) = self.text(&path) else {
            return;
        };
        let places = text.split(|byte| *byte == b'\n').filter(|line| {
            line.starts_with(b"CMAKE_HOME_DIRECTORY:") || line.starts_with(b"CMAKE_CACHEFILE_DIR:")
        });
        let root = places.into_iter().find_map(|line| self.root_in(line));
        if let Some(root) = root {
            self.report(&path, EmbeddedPathKind::CmakeCache, &root, false);
        }
    }

    /// Searches a target directory of cargo by its dependency files (`*.d`).
    pub(super) fn search_cargo(&mut self, dir: &RepoPath) {
        let found = self
            .build_top
            .as_ref()
            .and_then(|top| self.search_cargo_in(top, dir));
        if let Some(root) = found {
            self.report(dir, EmbeddedPathKind::CargoTarget, &root, false);
        }
    }

    fn search_cargo_in(&self, top: &File, dir: &RepoPath) -> Option<Vec<u8>> {
        let profiles = self.list_in(top, dir).into_iter();
        let profiles = profiles
            .filter(|(name, kind)| *kind == FileKind::Directory && name.as_bytes() != b"tmp");
        for (profile, _) in profiles {
            let profile = dir.join(&profile);
            for place in [Some(profile.clone()), child(&profile, "deps")]
                .into_iter()
                .flatten()
            {
                let lists = self.list_in(top, &place).into_iter();
                let lists = lists.filter(|(name, kind)| {
                    *kind == FileKind::Regular && name.as_bytes().ends_with(b".d")
                });
                for (name, _) in lists.take(MAX_DEP_FILES) {
                    let text = self.text_in(top, &place.join(&name)).unwrap_or_default();
                    if let Some(root) = self.root_in(&text) {
                        return Some(root);
                    }
                }
            }
        }
        None
    }
}
