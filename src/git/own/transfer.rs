//! Transfer of objects from an own git directory into the main repository.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use gix::ObjectId;

use super::dir::{Found, Loose, OwnDir};
use super::quarantine::{Checked, PACK_LIMIT, Quarantine, Taken};
use super::tips::loose_file;
use super::walk::{MAX_LOOSE_BYTES, Walk, Walked, Walker};
use crate::refs::read_if_there;
use crate::{GitError, Repository};
use tine_sys::{file, pause};

/// Maximum bytes of files whose objects are held in memory.
const MAX_HELD_FILE_BYTES: u64 = 8 << 20;
/// Maximum number of objects that are synced in the own git directory.
const MAX_SYNCED_OBJECTS: usize = 50;
/// Maximum bytes of objects that are held in memory.
const MAX_HELD_BYTES: usize = 64 << 20;

/// Maximum bytes of the fork's file of commits at which history ends.
const MAX_SHALLOW_BYTES: u64 = 1 << 20;

/// File of the commits at which history ends.
pub(super) const SHALLOW: &str = "shallow";

/// Directory of the packs, relative to the git directory.
pub(super) const PACK_DIR: &str = "objects/pack";

/// Lists the names of an own git directory's packs, sorted.
pub(super) fn pack_names(dir: &OwnDir) -> Vec<String> {
    let names = dir.list(Path::new(PACK_DIR)).into_iter();
    let names = names.filter_map(|(name, _)| String::from_utf8(name).ok());
    let mut packs: Vec<String> = names
        .filter(|name| name.starts_with("pack-") && name.ends_with(".pack"))
        .collect();
    packs.sort();
    packs
}

/// Returns the reason for refusing a tip that needs `id`.
pub(super) fn missing_reason(id: ObjectId) -> String {
    format!("the object {id} is missing")
}

/// A transfer of one or more tips.
pub(super) struct Transfer<'a> {
    pub(super) main: &'a Repository,
    pub(super) dir: &'a OwnDir,
    pub(super) quarantine: &'a Quarantine<'a>,
    /// Objects that the main repository keeps with all that they need.
    pub(super) known: &'a HashSet<ObjectId>,
    /// Further objects of that kind, for the check of connections only.
    pub(super) reachable: &'a [ObjectId],
    /// Files that must be on disk before a ref here changes.
    pub(super) files: &'a BTreeSet<PathBuf>,
}

impl Transfer<'_> {
    /// Brings what `tips` need into the main repository.
    ///
    /// Returns which of the own git directory's objects the main repository has then. The inner
    /// error is the reason why they are refused.
    pub(super) fn bring(&self, tips: &[ObjectId]) -> Checked<Taken> {
        self.quarantine.create()?;
        let shallow = self.shallow()?;
        let walker = Walker {
            main: self.main,
            dir: self.dir,
            packs: None,
            known: self.known,
            shallow: &shallow,
        };
        let mut walk = match walker.walk(tips)? {
            Ok(walk) => walk,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut staged_packs = Vec::new();
        if !walk.missing.is_empty() {
            for (name, pack) in self.packs() {
                // A pack that another program is writing or removing counts for nothing.
                if let Found::Good((file, _)) = self.dir.open_file(&pack, MAX_LOOSE_BYTES) {
                    self.quarantine.stage()?;
                    match self.quarantine.stage_pack(file)? {
                        Ok(index) => staged_packs.push((name, index)),
                        Err(reason) => {
                            log::debug!("{}: {reason}", self.dir.path_of(pack).display())
                        }
                    }
                }
            }
            if !staged_packs.is_empty() {
                let stage = self.quarantine.stage()?;
                let options = gix::odb::store::init::Options::default();
                let staged = gix::odb::at_opts(stage, self.main.hash_kind(), [], options)
                    .map_err(GitError::io("open", self.dir.path_of("objects")))?;
                let walker = Walker {
                    packs: Some(&staged),
                    ..walker
                };
                walk = match walker.walk(tips)? {
                    Ok(walk) => walk,
                    Err(reason) => return Ok(Err(reason)),
                };
            }
        }
        pause::at("walked");
        // A partial clone may lack objects that its remote has.
        if self.main.promisor_remote().is_none() && !walk.missing.is_empty() {
            // A repack here may hide objects for a moment.
            let missing = self.main.missing_objects(walk.missing.iter().copied())?;
            if let Some(id) = missing.iter().min() {
                let reason = self.cut_reason(&walk, &shallow);
                return Ok(Err(reason.unwrap_or_else(|| missing_reason(*id))));
            }
        }
        if !walk.found.is_empty()
            && let Err(reason) = self.check(&walk, !staged_packs.is_empty())?
        {
            return Ok(Err(reason));
        }
        let new: Vec<ObjectId> = tips
            .iter()
            .filter(|id| !self.known.contains(*id))
            .copied()
            .collect();
        let known: Vec<ObjectId> = self
            .known
            .iter()
            .chain(self.reachable)
            .copied()
            .filter(|id| self.main.has_object(*id))
            .collect();
        if !new.is_empty()
            && let Err(reason) = self.quarantine.check_connected(&new, &known)?
        {
            return Ok(Err(reason));
        }
        pause::at("checked");
        if !walk.found.is_empty() {
            self.sync(&walk)?;
            pause::at("synced");
            self.quarantine.migrate()?;
            pause::at("migrated");
        }
        let packs = self.whole_packs(&walk, staged_packs);
        let packed = walk.found.iter().filter(|walked| !walked.is_loose);
        let packed = packed.map(|walked| walked.id).collect();
        let loose = walk.found.into_iter().filter(|walked| walked.is_loose);
        let loose = loose.map(|walked| walked.id).chain(walk.damaged).collect();
        Ok(Ok(Taken {
            loose,
            packs,
            packed,
        }))
    }

    /// Returns the names of packs with objects of the walk only.
    fn whole_packs(&self, walk: &Walk, staged: Vec<(String, PathBuf)>) -> Vec<String> {
        let walked: HashSet<ObjectId> = walk.found.iter().map(|walked| walked.id).collect();
        let is_whole = |index: &Path| {
            gix::odb::pack::index::File::at(index, self.main.hash_kind())
                .is_ok_and(|index| index.iter().all(|entry| walked.contains(&entry.oid)))
        };
        let whole = staged.into_iter().filter(|(_, index)| is_whole(index));
        whole.map(|(name, _)| name).collect()
    }

    /// Writes the objects into the quarantine, where git checks them.
    fn check(&self, walk: &Walk, is_staged: bool) -> Checked<()> {
        let bytes: u64 = walk.found.iter().map(|walked| walked.size).sum();
        if is_staged || bytes > MAX_HELD_FILE_BYTES {
            return self.check_copies(walk);
        }
        let mut objects = Vec::new();
        let mut files = Vec::new();
        let mut held = 0_usize;
        for Walked { id, .. } in &walk.found {
            let hash_kind = self.main.hash_kind();
            let read = self.dir.read_loose(hash_kind, *id, MAX_HELD_BYTES as u64)?;
            let (raw, content) = match read {
                Ok(Loose::Read(raw, content)) => (raw, content),
                Ok(Loose::TooLarge) => return self.check_copies(walk),
                Ok(Loose::Missing) => return Ok(Err(missing_reason(*id))),
                Err(_) if self.main.has_object(*id) => continue,
                Err(reason) => return Ok(Err(reason)),
            };
            held = held.saturating_add(content.data.len());
            if held > MAX_HELD_BYTES {
                return self.check_copies(walk);
            }
            objects.push(content);
            files.push((*id, raw));
        }
        if objects.is_empty() {
            Ok(Ok(()))
        } else if objects.len() < PACK_LIMIT {
            self.quarantine.check_loose(&objects, &files)
        } else {
            self.quarantine.check_pack(&objects)
        }
    }

    /// Copies the objects, and has git pack and check the copies.
    fn check_copies(&self, walk: &Walk) -> Checked<()> {
        let stage = self.quarantine.stage()?;
        for walked in walk.found.iter().filter(|walked| walked.is_loose) {
            let path = loose_file(&walked.id);
            let (mut from, _) = match self.dir.open_file(&path, MAX_LOOSE_BYTES) {
                Found::Good(found) => found,
                Found::Missing | Found::Invalid(_) => {
                    return Ok(Err(format!("the object {} cannot be read", walked.id)));
                }
            };
            let to = stage.join(path.strip_prefix("objects").unwrap_or(&path));
            let copied = to
                .parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| io::copy(&mut from, &mut File::create(&to)?));
            copied.map_err(GitError::io("write", &to))?;
        }
        let objects: Vec<(ObjectId, Vec<u8>)> = walk
            .found
            .iter()
            .map(|walked| (walked.id, walked.name.clone()))
            .collect();
        self.quarantine.pack(&objects)
    }

    /// Syncs the own git directory's files and the checked objects.
    ///
    /// A loss of power may damage many small objects that are not synced. They are in the main
    /// repository then, and the next call removes them.
    fn sync(&self, walk: &Walk) -> Result<(), GitError> {
        let mut files = self.files.clone();
        if walk.found.len() <= MAX_SYNCED_OBJECTS {
            let loose = walk.found.iter().filter(|walked| walked.is_loose);
            files.extend(loose.map(|walked| loose_file(&walked.id)));
        } else if walk.found.iter().map(|walked| walked.size).sum::<u64>() > MAX_HELD_FILE_BYTES {
            let path = self.dir.path_of("objects");
            let synced = File::open(&path).and_then(|dir| file::sync_fs(&dir));
            synced.map_err(GitError::io("sync", path))?;
        }
        self.dir.sync_all(&files)?;
        self.quarantine.sync()
    }

    /// Lists the packs, relative to the git directory.
    fn packs(&self) -> Vec<(String, PathBuf)> {
        let names = pack_names(self.dir).into_iter();
        names
            .map(|name| {
                let path = Path::new(PACK_DIR).join(&name);
                (name, path)
            })
            .collect()
    }

    /// Reads the commits without parents of a shallow main repository.
    fn shallow(&self) -> Result<HashSet<ObjectId>, GitError> {
        let content = read_if_there(&self.main.common_dir().join(SHALLOW))?.unwrap_or_default();
        Ok(shallow_commits(&content).collect())
    }

    /// Returns the reason for refusing partly fetched history.
    ///
    /// `main` are the commits at which the main repository's history ends. As `git fetch` does, the
    /// main repository gets no others.
    fn cut_reason(&self, walk: &Walk, main: &HashSet<ObjectId>) -> Option<String> {
        let Found::Good(content) = self.dir.read(Path::new(SHALLOW), MAX_SHALLOW_BYTES) else {
            return None;
        };
        let found: HashSet<ObjectId> = walk.found.iter().map(|walked| walked.id).collect();
        let mut cut = shallow_commits(&content);
        let id = cut.find(|id| found.contains(id) && !main.contains(id))?;
        Some(format!(
            "its history ends at {id}: `git fetch --unshallow` in the fork gets the rest"
        ))
    }
}

/// Parses the file `shallow`.
fn shallow_commits(content: &[u8]) -> impl Iterator<Item = ObjectId> {
    let lines = content.split(|&byte| byte == b'\n');
    lines.filter_map(|line| ObjectId::from_hex(line.trim_ascii()).ok())
}
