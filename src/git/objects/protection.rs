//! Names that a tree must not contain.

use super::tree::TreeEntryKind;
use tine_path::{DOT_GIT, EntryName, PathError};

/// Variants of `.git` that are refused, as in `verify_path` of git's read-cache.c.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protection {
    hfs: bool,
    ntfs: bool,
}

impl Protection {
    /// Reads the settings. The defaults are git's outside macOS and Windows: NTFS on, HFS off.
    pub(crate) fn new(config: &gix::config::File) -> Protection {
        let is_on = |key| config.boolean(key).ok().flatten();
        Protection {
            hfs: is_on("core.protectHFS").unwrap_or(false),
            ntfs: is_on("core.protectNTFS").unwrap_or(true),
        }
    }

    pub(super) fn check(self, name: &EntryName, kind: TreeEntryKind) -> Result<(), PathError> {
        use gix::validate::path::component;

        let bytes = name.as_bytes();
        let mode = (kind == TreeEntryKind::Symlink).then_some(component::Mode::Symlink);
        let options = component::Options {
            protect_windows: false,
            protect_hfs: self.hfs,
            protect_ntfs: self.ntfs,
        };
        let refused = || PathError::Reserved(bytes.to_vec());
        if bytes.eq_ignore_ascii_case(DOT_GIT) {
            return Err(refused());
        }
        gix::validate::path::component(bytes.into(), mode, options).map_err(|_| refused())?;
        let ends_in_disguise = |part: &[u8]| {
            matches!(
                gix::validate::path::component(part.into(), mode, options),
                Err(component::Error::DotGitDir | component::Error::SymlinkedGitModules)
            )
        };
        // git ends a name at the first byte that is not UTF-8.
        if self.hfs && ends_in_disguise(utf8_start(bytes)) {
            return Err(refused());
        }
        if self.ntfs {
            // On NTFS a backslash separates names, so check each part as a name.
            for part in bytes.split(|&b| b == b'\\') {
                if ends_in_disguise(part) {
                    return Err(refused());
                }
            }
        }
        Ok(())
    }
}

/// Returns the leading part that git accepts as UTF-8.
///
/// git (`pick_one_utf8_char`) also refuses the last two code points of each plane.
fn utf8_start(bytes: &[u8]) -> &[u8] {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let end = valid.find(|c| u32::from(c) & 0xfffe == 0xfffe);
    &bytes[..end.unwrap_or(valid.len())]
}
