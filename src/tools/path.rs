//! What the paths that tools are given mean in a fork.
//!
//! Paths are taken by their text alone, here: nothing on the machine is touched but the directories
//! above a mount, as the mount itself may hang. Symlinks on the way are followed within the fork,
//! by [`Workspace::follow`](tine_workspace::Workspace::follow); `..` is no part of any path, so
//! that the text of a path and where it leads never part.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::ToolError;
use tine_path::RepoPath;

/// Directories in which an absolute path means one of the fork.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The fork's own place, mounted or not.
    pub mount_dir: &'a Path,
    /// The main checkout, where there is one: the same path in the fork is meant.
    pub checkout_dir: Option<&'a Path>,
}

/// A path of the fork, symlinks on the way and all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPath {
    pub path: RepoPath,
    /// It ends so that it can only be a directory's.
    pub is_dir: bool,
}

impl Places<'_> {
    /// The path of the fork that `path` means: from the fork's root, or absolute in one of the
    /// places.
    pub fn resolve(&self, path: &[u8]) -> Result<ToolPath, ToolError> {
        if path.is_empty() {
            return Err(ToolError::NoPath);
        }
        let beneath = match path.first() {
            Some(b'/') => {
                let path = Path::new(OsStr::from_bytes(path));
                let places = [Some(self.mount_dir), self.checkout_dir];
                let mut places = places.into_iter().flatten();
                let beneath = places.find_map(|dir| beneath(dir, path));
                beneath.ok_or_else(|| ToolError::Outside {
                    path: path.to_owned(),
                })?
            }
            _ => PathBuf::from(OsStr::from_bytes(path)),
        };
        Ok(ToolPath {
            path: RepoPath::parse(beneath.as_os_str().as_bytes())?,
            is_dir: path.ends_with(b"/") || path.ends_with(b"/."),
        })
    }
}

/// `path` from `dir`, as that is written or as the kernel has it, if it is there or beneath. `dir`
/// itself is not touched: it may be a mount that hangs.
pub fn beneath(dir: &Path, path: &Path) -> Option<PathBuf> {
    if let Ok(beneath) = path.strip_prefix(dir) {
        return Some(beneath.to_owned());
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
                beneath(&written, &path),
                Some(PathBuf::from("a")),
                "{path:?}"
            );
        }
        assert_eq!(beneath(&written, &real.join("real/forks/a")), None);
    }
}
