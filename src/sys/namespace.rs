//! Mount namespaces.

use std::fs;
use std::path::Path;

/// The mount namespace of a process, by the number that the kernel has for it.
pub fn mount_namespace_of(proc_dir: &Path) -> Option<u64> {
    let link = fs::read_link(proc_dir.join("ns/mnt")).ok()?;
    let number = link.to_str()?.strip_prefix("mnt:[")?.strip_suffix(']')?;
    number.parse().ok()
}
