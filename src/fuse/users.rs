//! Who keeps a mount busy.
//!
//! Everything is read from `/proc`: no file inside any mount is touched, so a dead one cannot hang us.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::place;

/// The processes that use what is mounted at `dir`, with their command names: by current or root directory, by
/// program, by an open file, or by a mapping. Only those that the caller may look into are seen.
pub fn users_of(dir: &Path) -> Vec<(u32, String)> {
    let Ok(dir) = place::resolve(dir) else {
        return Vec::new();
    };
    let Some(mount) = place::mounts_at(&dir).ok().and_then(|mut mounts| mounts.pop()) else {
        return Vec::new();
    };
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut users = BTreeMap::new();
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let proc_dir = process.path();
        if uses(&proc_dir, &mount) {
            let command = fs::read_to_string(proc_dir.join("comm")).unwrap_or_default();
            users.insert(pid, command.trim_end().to_owned());
        }
    }
    users.into_iter().collect()
}

fn uses(proc_dir: &Path, mount: &place::MountedAt) -> bool {
    ["cwd", "root", "exe"]
        .iter()
        .any(|link| leads_into(&proc_dir.join(link), &mount.dir))
        || has_open_file(proc_dir, mount.mount_id)
        || has_mapping(proc_dir, mount.device)
}

/// The link's text is looked at, nothing behind it.
fn leads_into(link: &Path, dir: &Path) -> bool {
    fs::read_link(link).is_ok_and(|target: PathBuf| target.starts_with(dir))
}

fn has_open_file(proc_dir: &Path, mount_id: u64) -> bool {
    let Ok(infos) = fs::read_dir(proc_dir.join("fdinfo")) else {
        return false;
    };
    infos.flatten().any(|info| {
        fs::read_to_string(info.path()).is_ok_and(|text| place::mount_id_of_fdinfo(&text) == Some(mount_id))
    })
}

/// `/proc/<pid>/maps`: addresses, permissions, offset, device as hexadecimal `major:minor`, inode, path.
fn has_mapping(proc_dir: &Path, (major, minor): (u32, u32)) -> bool {
    let mut maps = Vec::new();
    let read = fs::File::open(proc_dir.join("maps")).and_then(|mut file| file.read_to_end(&mut maps));
    if read.is_err() {
        return false;
    }
    let device = format!("{major:02x}:{minor:02x}");
    maps.split(|&byte| byte == b'\n')
        .any(|line| line.split(|&byte| byte == b' ').nth(3) == Some(device.as_bytes()))
}
