//! Who keeps a mount busy.
//!
//! Everything is read from `/proc`: no file inside any mount is touched, so a dead one cannot hang
//! us.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::place;
use tine_sys::namespace;

/// The processes that use what is mounted at `dir`, with their command names: by current or root
/// directory, by program, by an open file, or by a mapping. Only those that the caller may look
/// into are seen.
pub fn users_of(dir: &Path) -> Vec<(u32, String)> {
    users_of_each(&[dir]).pop().unwrap_or_default()
}

/// As [`users_of`], of several directories with one look at each process.
pub fn users_of_each(dirs: &[&Path]) -> Vec<Vec<(u32, String)>> {
    let mounts: Vec<Option<place::MountedAt>> = dirs.iter().map(|dir| mount_at(dir)).collect();
    look(&mounts, Where::Everywhere)
}

/// Whether a process of another mount namespace uses `mount`, where it may stand at another place:
/// unmounting it here would be permitted.
pub(super) fn is_used_elsewhere(mount: &place::MountedAt) -> bool {
    look(&[Some(mount.clone())], Where::InOtherNamespaces)
        .iter()
        .any(|users| !users.is_empty())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Everywhere,
    InOtherNamespaces,
}

/// The processes that use each of `mounts`, with their command names.
fn look(mounts: &[Option<place::MountedAt>], among: Where) -> Vec<Vec<(u32, String)>> {
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
            _ if among == Where::InOtherNamespaces => continue,
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

fn mount_at(dir: &Path) -> Option<place::MountedAt> {
    let dir = place::resolve(dir).ok()?;
    place::mounts_at(&dir).ok()?.pop()
}

/// What one process uses.
struct Uses {
    /// Its current and root directory and its program, as the links' texts have them: nothing
    /// behind them is looked at.
    paths: Vec<PathBuf>,
    /// The mounts that its open files are on.
    mount_ids: BTreeSet<u64>,
    /// The devices that its mappings are of, as `/proc/<pid>/maps` names them: hexadecimal
    /// `major:minor`.
    devices: BTreeSet<Vec<u8>>,
}

impl Uses {
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

    fn include(&self, mount: &place::MountedAt) -> bool {
        let (major, minor) = mount.device;
        let device = format!("{major:02x}:{minor:02x}");
        self.paths.iter().any(|path| path.starts_with(&mount.dir))
            || self.mount_ids.contains(&mount.mount_id)
            || self.devices.contains(device.as_bytes())
    }
}

fn mounts_of_open_files(proc_dir: &Path) -> BTreeSet<u64> {
    let infos = fs::read_dir(proc_dir.join("fdinfo"))
        .into_iter()
        .flatten()
        .flatten();
    infos
        .filter_map(|info| place::mount_id_of_fdinfo(&fs::read_to_string(info.path()).ok()?))
        .collect()
}

/// `/proc/<pid>/maps`: addresses, permissions, offset, device, inode, path.
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
