//! Detection of the processes that keep a mount busy.
//!
//! The functions read `/proc` only. They touch no file inside any mount, so a dead mount cannot
//! block them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::place;
use tine_sys::namespace;

/// Returns the processes that use the mount at `dir`, with command names.
///
/// A process uses a mount by its working or root directory, its executable, an open file, or a
/// mapping. Processes that the caller may not examine are left out.
pub fn users_of(dir: &Path) -> Vec<(u32, String)> {
    users_of_each(&[dir]).pop().unwrap_or_default()
}

/// Returns the users of several mounts, examining each process once.
///
/// Otherwise as [`users_of`].
pub fn users_of_each(dirs: &[&Path]) -> Vec<Vec<(u32, String)>> {
    let mounts: Vec<Option<place::MountedAt>> = dirs.iter().map(|dir| mount_at(dir)).collect();
    users_by_mount(&mounts, UserScope::Everywhere)
}

/// Returns whether a process in another mount namespace uses `mount`.
///
/// The mount may be at another directory there. The kernel would permit unmounting it here.
pub(super) fn is_used_elsewhere(mount: &place::MountedAt) -> bool {
    users_by_mount(&[Some(mount.clone())], UserScope::InOtherNamespaces)
        .iter()
        .any(|users| !users.is_empty())
}

/// Selection of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UserScope {
    /// All processes.
    Everywhere,
    /// Only processes in other mount namespaces.
    InOtherNamespaces,
}

/// Returns the processes that use each of `mounts`, with command names.
fn users_by_mount(
    mounts: &[Option<place::MountedAt>],
    among: UserScope,
) -> Vec<Vec<(u32, String)>> {
    let mut users = vec![BTreeMap::new(); mounts.len()];
    let own_namespace = namespace::mount_namespace_of(Path::new("/proc/self"));
    let mut seen_elsewhere = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let proc_dir = process.path();
        let elsewhere = match namespace::mount_namespace_of(&proc_dir) {
            Some(namespace) if Some(namespace) != own_namespace => {
                let seen = seen_elsewhere.entry(namespace);
                Some(seen.or_insert_with(|| place::mounts_seen_by(&proc_dir).unwrap_or_default()))
            }
            _ if among == UserScope::InOtherNamespaces => continue,
            _ => None,
        };
        let uses = Uses::by(&proc_dir);
        for (mount, users) in mounts.iter().zip(&mut users) {
            let Some(mount) = mount else {
                continue;
            };
            let is_used = match &elsewhere {
                None => uses.include(mount),
                Some(seen) => seen
                    .iter()
                    .any(|seen| seen.device == mount.device && uses.include(seen)),
            };
            if is_used {
                let command = fs::read_to_string(proc_dir.join("comm")).unwrap_or_default();
                users.insert(pid, command.trim_end().to_owned());
            }
        }
    }
    users
        .into_iter()
        .map(|users| users.into_iter().collect())
        .collect()
}

/// Returns the topmost mount at `dir`.
fn mount_at(dir: &Path) -> Option<place::MountedAt> {
    let dir = place::resolve(dir).ok()?;
    place::mounts_at(&dir).ok()?.pop()
}

/// Files that one process uses.
struct Uses {
    /// Working directory, root directory and executable, as link texts.
    ///
    /// Nothing behind the links is accessed.
    paths: Vec<PathBuf>,
    /// Mounts of its open files.
    mount_ids: BTreeSet<u64>,
    /// Devices of its mappings, as hexadecimal `major:minor`.
    ///
    /// This is the form in `/proc/<pid>/maps`.
    devices: BTreeSet<Vec<u8>>,
}

impl Uses {
    /// Reads the files that a process uses.
    fn by(proc_dir: &Path) -> Uses {
        let paths = ["cwd", "root", "exe"]
            .iter()
            .filter_map(|link| fs::read_link(proc_dir.join(link)).ok());
        Uses {
            paths: paths.collect(),
            mount_ids: mounts_of_open_files(proc_dir),
            devices: mapped_devices(proc_dir),
        }
    }

    /// Returns whether one of the files is on `mount`.
    fn include(&self, mount: &place::MountedAt) -> bool {
        let (major, minor) = mount.device;
        let device = format!("{major:02x}:{minor:02x}");
        self.paths.iter().any(|path| path.starts_with(&mount.dir))
            || self.mount_ids.contains(&mount.mount_id)
            || self.devices.contains(device.as_bytes())
    }
}

/// Returns the IDs of the mounts of a process's open files.
fn mounts_of_open_files(proc_dir: &Path) -> BTreeSet<u64> {
    let infos = fs::read_dir(proc_dir.join("fdinfo"))
        .into_iter()
        .flatten()
        .flatten();
    infos
        .filter_map(|info| place::mount_id_of_fdinfo(&fs::read_to_string(info.path()).ok()?))
        .collect()
}

/// Returns the devices of a process's mappings.
///
/// A line of `/proc/<pid>/maps` has addresses, permissions, offset, device, inode and path.
fn mapped_devices(proc_dir: &Path) -> BTreeSet<Vec<u8>> {
    let mut maps = Vec::new();
    let read =
        fs::File::open(proc_dir.join("maps")).and_then(|mut file| file.read_to_end(&mut maps));
    if read.is_err() {
        return BTreeSet::new();
    }
    maps.split(|&byte| byte == b'\n')
        .filter_map(|line| Some(line.split(|&byte| byte == b' ').nth(3)?.to_vec()))
        .collect()
}
