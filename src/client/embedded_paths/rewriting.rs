//! Rewrites texts and symlinks so that they lead to the fork.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{EmbeddedPathKind, Search};
use tine_path::{RepoPath, normalized};
use tine_sys::beneath::{self, Access};

/// Number of bytes that the kernel reads of a script's first line.
const MAX_SHEBANG_BYTES: usize = 255;

impl Search<'_> {
    /// Rewrites paths to other trees in a text file.
    ///
    /// Returns the root of the other tree, and whether the file leads to the fork now. With
    /// `if_there`, the file is rewritten only if the fork has every path that it names. `None` if
    /// the file names no other tree.
    pub(super) fn rewrite(&self, path: &RepoPath, if_there: bool) -> Option<(Vec<u8>, bool)> {
        let mut text = self.text(path)?;
        let mut other_root = None;
        for root in self.roots {
            let root = root.as_os_str().as_bytes();
            let Some((rewritten, named)) = replaced(&text, root, self.to) else {
                continue;
            };
            other_root = other_root.or_else(|| Some(root.to_vec()));
            let is_there = |rest: &Vec<u8>| {
                let place = [self.to, rest.as_slice()].concat();
                Path::new(OsStr::from_bytes(&place))
                    .symlink_metadata()
                    .is_ok()
            };
            if if_there && !named.iter().all(is_there) {
                return other_root.map(|root| (root, false));
            }
            text = rewritten;
        }
        let other_root = other_root?;
        let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if first_line.starts_with(b"#!") && first_line.len() > MAX_SHEBANG_BYTES {
            return Some((other_root, false));
        }
        let written = self.replace(path, &text);
        if let Err(error) = &written {
            log::warn!("{path} leads elsewhere still: {error}");
        }
        Some((other_root, written.is_ok()))
    }

    /// Replaces the text of the file at `path` and keeps its mode.
    fn replace(&self, path: &RepoPath, text: &[u8]) -> io::Result<()> {
        let before = beneath::open(&self.top, path.as_path(), Access::Read)?.metadata()?;
        self.exchange(path, |new| {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(new)?;
            file.write_all(text)?;
            file.set_permissions(fs::Permissions::from_mode(
                before.permissions().mode() & 0o7777,
            ))
        })
    }

    /// Replaces the file at `path` atomically by the one that `make` creates.
    ///
    /// `make` gets a temporary path. Both paths go through a descriptor of the directory, so a
    /// symlink that appears in the path meanwhile has no effect.
    fn exchange(
        &self,
        path: &RepoPath,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some((dir, name)) = path.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let dir = beneath::open(&self.top, dir.as_path(), Access::Attributes)?;
        let dir = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        let new = dir.join(format!(".tine-{}.new", std::process::id()));
        let made = make(&new)
            .and_then(|()| fs::rename(&new, dir.join(OsStr::from_bytes(name.as_bytes()))));
        if made.is_err() {
            let _ = fs::remove_file(&new);
        }
        made
    }

    /// Checks a symlink and rewrites it if the fork has the target.
    pub(super) fn rewrite_link(&mut self, path: &RepoPath) {
        if !self.may_open() {
            return;
        }
        let target = beneath::open(&self.top, path.as_path(), Access::Attributes)
            .and_then(|link| beneath::read_link(&link));
        let Ok(target) = target else {
            return;
        };
        if !target.starts_with(b"/") {
            return;
        }
        let under_a_root = |target: &Path| {
            let mut roots = self.roots.iter();
            roots.find_map(|root| Some((root, target.strip_prefix(root).ok()?.to_owned())))
        };
        // Symlinks in the target's path may lead to a root by another name.
        let target = Path::new(OsStr::from_bytes(&target));
        let found = under_a_root(&normalized(target))
            .or_else(|| under_a_root(&target.canonicalize().ok()?));
        let Some((root, rest)) = found else {
            return;
        };
        // Joining an empty path would append a slash.
        let to = Path::new(OsStr::from_bytes(self.to));
        let to: PathBuf = to.components().chain(rest.components()).collect();
        let is_right =
            to.symlink_metadata().is_ok() && self.exchange(path, |new| symlink(&to, new)).is_ok();
        let root = root.as_os_str().as_bytes().to_vec();
        self.report(path, EmbeddedPathKind::Symlink, &root, is_right);
    }
}

/// Replaces the prefix `root` by `to` in all paths of a text.
///
/// Returns the new text, and for each path the part after the prefix. `None` if no path in the text
/// begins with `root`.
pub(super) fn replaced(text: &[u8], root: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let is_of_name =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+~@".contains(byte) || !byte.is_ascii();
    let ends_path = |byte: &u8| b" \t\r\n\"'`:;,)]}<>|&$\\".contains(byte);
    let mut rewritten = Vec::with_capacity(text.len());
    let mut named = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(position) = rest.windows(root.len()).position(|window| window == root) else {
            rewritten.extend_from_slice(rest);
            break;
        };
        let (start, end) = (at + position, at + position + root.len());
        rewritten.extend_from_slice(&text[at..start]);
        let is_path = text.get(end).is_none_or(|next| !is_of_name(next))
            && (start == 0 || text.get(start - 1).is_none_or(|before| !is_of_name(before)));
        rewritten.extend_from_slice(if is_path { to } else { root });
        if is_path {
            let follows = text.get(end..).unwrap_or_default();
            let len = follows.iter().position(ends_path).unwrap_or(follows.len());
            named.push(follows[..len].to_vec());
        }
        at = end;
    }
    (!named.is_empty()).then_some((rewritten, named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_replaced_where_it_is_a_path() {
        let text =
            b"#!/x/repo/.venv/bin/python\nurl=file:///x/repo\n/x/repo.forks/a /y/x/repo \"/x/repo/a b\"";
        let (rewritten, named) = replaced(text, b"/x/repo", b"/f").unwrap();
        assert_eq!(
            String::from_utf8(rewritten).unwrap(),
            "#!/f/.venv/bin/python\nurl=file:///f\n/x/repo.forks/a /y/x/repo \"/f/a b\""
        );
        assert_eq!(
            named,
            [b"/.venv/bin/python".to_vec(), b"".to_vec(), b"/a".to_vec()]
        );
        assert!(replaced(b"/x/repository", b"/x/repo", b"/f").is_none());
    }
}
