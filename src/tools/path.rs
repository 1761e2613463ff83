//! Mapping of tools' paths to paths in a fork.
//!
//! This module maps paths by their text alone. It touches nothing on the machine but the
//! directories above a mount, because the mount itself may hang.
//! [`Workspace::follow`](tine_workspace::Workspace::follow) follows symlinks within the fork. A
//! path must not contain `..`, so its text always shows where it leads.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::ToolError;
use tine_path::RepoPath;

/// Directories whose absolute paths map to paths in the fork.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The fork's mount place, mounted or not.
    pub mount_dir: &'a Path,
    /// The main checkout. None if there is none.
    pub checkout_dir: Option<&'a Path>,
}

/// Path in the fork. It may contain symlinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPath {
    /// Path from the fork's root.
    pub path: RepoPath,
    /// True if the text ends like the path of a directory.
    pub is_dir: bool,
}

impl Places<'_> {
    /// Maps a path to the fork.
    ///
    /// The path is relative to the fork's root, or absolute in one of the places.
    ///
    /// # Errors
    /// [`ToolError::NoPath`] if it is empty, [`ToolError::Outside`] if it is absolute and in none
    /// of the places, and [`ToolError::Path`] if it is not valid.
    pub fn resolve(&self, path: &[u8]) -> Result<ToolPath, ToolError> {
        if path.is_empty() {
            return Err(ToolError::NoPath);
        }
        let relative = match path.first() {
            Some(b'/') => {
                let path = Path::new(OsStr::from_bytes(path));
                let places = [Some(self.mount_dir), self.checkout_dir];
                let mut places = places.into_iter().flatten();
                let relative = places.find_map(|dir| relative_path(dir, path));
                relative.ok_or_else(|| ToolError::Outside {
                    path: path.to_owned(),
                })?
            }
            _ => PathBuf::from(OsStr::from_bytes(path)),
        };
        Ok(ToolPath {
            path: RepoPath::parse(relative.as_os_str().as_bytes())?,
            is_dir: path.ends_with(b"/") || path.ends_with(b"/."),
        })
    }
}

/// Returns `path` relative to `dir`, if it is at or under `dir`.
///
/// `dir` may be spelled as given or in canonical form. This does not touch `dir` itself, which may
/// be a mount that hangs.
pub fn relative_path(dir: &Path, path: &Path) -> Option<PathBuf> {
    if let Ok(relative) = path.strip_prefix(dir) {
        return Some(relative.to_owned());
    }
    let (parent, name) = dir.parent().zip(dir.file_name())?;
    let canonical = parent.canonicalize().ok()?.join(name);
    path.strip_prefix(canonical).ok().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(path: &str) -> Result<ToolPath, ToolError> {
        let places = Places {
            mount_dir: Path::new("/mnt/fork"),
            checkout_dir: Some(Path::new("/home/a/repo")),
        };
        places.resolve(path.as_bytes())
    }

    #[test]
    fn paths_from_the_root_and_in_the_places_mean_the_same() {
        for path in [
            "a/b",
            "./a//b",
            "/mnt/fork/a/b",
            "//mnt/./fork//a/b",
            "/home/a/repo/a/b",
        ] {
            let resolved = resolve(path).unwrap();
            assert_eq!(resolved.path.as_bytes(), b"a/b", "{path}");
            assert!(!resolved.is_dir, "{path}");
        }
        for path in ["/mnt/fork", "/mnt/fork/", ".", "./"] {
            assert!(resolve(path).unwrap().path.is_root(), "{path}");
        }
        for path in ["a/", "a/.", "/mnt/fork/a//"] {
            assert!(resolve(path).unwrap().is_dir, "{path}");
        }
    }

    #[test]
    fn what_leads_out_is_refused() {
        for path in [
            "/mnt/fork2/a",
            "/mnt/for",
            "/mnt",
            "/",
            "/etc/passwd",
            "/proc/self/root/mnt/fork/a",
            "/mnt/FORK/a",
            "/home/a/repo.forks/x",
            "/mnt/x/../fork/a",
        ] {
            assert!(
                matches!(resolve(path), Err(ToolError::Outside { .. })),
                "{path}"
            );
        }
        for path in [
            "..",
            "a/..",
            "a/../b",
            "/mnt/fork/..",
            "/mnt/fork/../fork/a",
            "a/../../x",
            "a\0b",
        ] {
            assert!(matches!(resolve(path), Err(ToolError::Path(_))), "{path}");
        }
        assert!(matches!(resolve(""), Err(ToolError::NoPath)));
    }

    #[test]
    fn a_place_is_known_as_it_is_written_and_as_the_kernel_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("real")).unwrap();
        std::os::unix::fs::symlink("real", real.join("link")).unwrap();
        // The place itself need not be there.
        let written = real.join("link/fork");
        for path in [real.join("link/fork/a"), real.join("real/fork/a")] {
            assert_eq!(
                relative_path(&written, &path),
                Some(PathBuf::from("a")),
                "{path:?}"
            );
        }
        assert_eq!(relative_path(&written, &real.join("real/forks/a")), None);
    }
}
