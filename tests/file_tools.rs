//! Agents' file tools, through the daemon: that tools, mounts, commands and editors agree on every
//! path, that nothing leads out of a fork, and that no edit is lost, whatever else goes on.

mod support;

#[path = "file_tools/agreement.rs"]
mod agreement;
#[path = "file_tools/hostile.rs"]
mod hostile;
#[path = "file_tools/load.rs"]
mod load;

use std::path::Path;

use support::agent::Agent;

/// All files beneath a directory with their contents, without `.git`.
fn files_beneath(dir: &Path) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = std::collections::BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).expect("a directory can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.file_name().is_some_and(|name| name == ".git") {
                continue;
            }
            let kind = path.symlink_metadata().expect("it is there").file_type();
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(dir).expect("it is beneath").as_os_str();
                let content = std::fs::read(&path).expect("a file can be read");
                found.insert(name.as_bytes().to_vec(), content);
            }
        }
    }
    found
}
