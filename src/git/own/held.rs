//! Second names of objects that were taken over, held for a while.
//!
//! ```text
//! <main>/objects/tine-held/<nanoseconds>-<fork>/
//!   <id>                 loose object
//!   pack-….pack, .idx    pack
//! ```
//!
//! A `git prune` or `git repack -ad` that read the refs before the fork's were there removes the
//! objects. Git tells nobody that such a program runs, so hard links hold each object for longer
//! than it may take, and what is missing gets its name back.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gix::ObjectId;

use super::quarantine::move_into;
use super::tips::loose_file;
use crate::refs::sync_if_there;
use crate::{GitError, Repository, program};

/// Directory below the main repository's git directory.
const HELD: &str = "objects/tine-held";

/// Time for which objects are held. No pruning takes longer after it read the refs.
const HOLD_TIME: Duration = Duration::from_secs(600);

/// One set of held objects, which were taken over together.
pub(super) struct HeldSet {
    dir: PathBuf,
}

impl HeldSet {
    /// Creates an empty set.
    pub(super) fn create(main: &Repository, fork: &str) -> Result<HeldSet, GitError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = now.unwrap_or_default().as_nanos();
        let dir = main.common_dir().join(HELD).join(format!("{nanos}-{fork}"));
        fs::create_dir_all(&dir).map_err(GitError::io("create", &dir))?;
        Ok(HeldSet { dir })
    }

    /// Holds a checked and synced file of objects.
    ///
    /// A file system without hard links holds nothing.
    pub(super) fn hold(&self, file: &Path) {
        self.hold_as(file, file.file_name().unwrap_or_default());
    }

    fn hold_as(&self, file: &Path, name: &OsStr) {
        if let Err(error) = fs::hard_link(file, self.dir.join(name)) {
            log::debug!("{} is not held: {error}", file.display());
        }
    }
}

impl Repository {
    /// Holds loose objects that a fork's `tips` need from here.
    ///
    /// A running `git gc` may remove them, because no ref names them yet: git in the fork found them
    /// here and wrote no copies. `known` are tips here. What is packed is not held.
    pub(super) fn hold_needed(
        &self,
        fork: &str,
        own: &Path,
        tips: &[ObjectId],
        known: &[ObjectId],
    ) -> Result<(), GitError> {
        let mut list = program::command(self.common_dir());
        list.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", own.join("objects"));
        list.args([
            "--no-replace-objects",
            "rev-list",
            "--objects",
            "--no-object-names",
        ]);
        list.args(["--ignore-missing", "--missing=allow-any", "--stdin"]);
        let tips = tips.iter().map(|id| format!("{id}\n"));
        let known = known.iter().map(|id| format!("^{id}\n"));
        let input: String = tips.chain(known).collect();
        let listed = program::run(&mut list, input.as_bytes())?;
        let ids = listed
            .split(|&byte| byte == b'\n')
            .filter_map(|line| ObjectId::from_hex(line).ok());
        let mut set = None;
        for id in ids {
            let path = loose_file(&id);
            let file = self.common_dir().join(&path);
            if fs::symlink_metadata(own.join(&path)).is_ok() || fs::symlink_metadata(&file).is_err()
            {
                continue;
            }
            let set = match &set {
                Some(set) => set,
                None => set.insert(HeldSet::create(self, fork)?),
            };
            set.hold_as(&file, OsStr::new(&id.to_string()));
        }
        Ok(())
    }

    /// Gives objects their names back that a concurrent pruning removed.
    ///
    /// These are objects that were taken over from forks in the last minutes. Also forgets older
    /// ones. Returns the number of files that came back.
    ///
    /// # Errors
    /// [`GitError::Io`] if a directory cannot be read, or a file cannot be linked.
    pub fn restore_held(&self) -> Result<usize, GitError> {
        let top = self.common_dir().join(HELD);
        let mut count = 0_usize;
        for set in &names_if_there(&top)? {
            count = count.saturating_add(self.restore_set(set)?);
            if is_old(set) && !self.is_being_collected() {
                fs::remove_dir_all(set).map_err(GitError::io("remove", set))?;
            }
        }
        self.note_restored(count)?;
        // It stays while another set is there.
        let _ = fs::remove_dir(&top);
        Ok(count)
    }

    /// Does the same for what one fork gave in the time `max_age`.
    ///
    /// # Errors
    /// Fails as [`Repository::restore_held`].
    pub fn restore_held_of(&self, fork: &str, max_age: Duration) -> Result<usize, GitError> {
        let since = SystemTime::now().checked_sub(max_age);
        let mut count = 0_usize;
        for set in names_if_there(&self.common_dir().join(HELD))? {
            if let Some((created, of)) = maker_of(&set)
                && of == fork
                && since.is_none_or(|since| created >= since)
            {
                count = count.saturating_add(self.restore_set(&set)?);
            }
        }
        self.note_restored(count)?;
        Ok(count)
    }

    fn note_restored(&self, count: usize) -> Result<(), GitError> {
        if count > 0 {
            log::info!("{count} files of objects came back that a git program had pruned");
            self.forget_mappings()?;
        }
        Ok(())
    }

    fn restore_set(&self, set: &Path) -> Result<usize, GitError> {
        let objects = self.common_dir().join("objects");
        let mut files = names(set).map_err(GitError::io("list", set))?;
        // As in git: an index makes its pack visible, and comes last.
        files.sort_by_key(|file| file.extension() == Some(OsStr::new("idx")));
        let gone: Vec<(PathBuf, PathBuf)> = files
            .into_iter()
            .filter_map(|file| {
                let place = objects.join(place_of(&file)?);
                fs::symlink_metadata(&place)
                    .is_err()
                    .then_some((file, place))
            })
            .collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let ids = gone.iter().flat_map(|(file, _)| self.ids_in(file));
        if self.missing_objects(ids)?.is_empty() {
            // They were packed.
            return Ok(0);
        }
        for (file, place) in &gone {
            let link = set.join("link");
            let linked =
                fs::hard_link(file, &link).and_then(|()| move_into(&link, place, &objects));
            linked.map_err(GitError::io("write", place))?;
            if let Some(dir) = place.parent() {
                sync_if_there(dir)?;
            }
        }
        Ok(gone.len())
    }

    /// Returns the ids of the objects in a file or pack.
    fn ids_in(&self, file: &Path) -> Vec<ObjectId> {
        if let Some(id) = loose_id(file) {
            return vec![id];
        }
        if file.extension() != Some(OsStr::new("idx")) {
            return Vec::new();
        }
        gix::odb::pack::index::File::at(file, self.hash_kind())
            .map(|index| index.iter().map(|entry| entry.oid).collect())
            .unwrap_or_default()
    }
}

fn loose_id(file: &Path) -> Option<ObjectId> {
    ObjectId::from_hex(file.file_name()?.as_bytes()).ok()
}

/// Returns the place of a held file below `objects`.
fn place_of(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?;
    if let Some(id) = loose_id(file) {
        let place = loose_file(&id);
        return Some(place.strip_prefix("objects").ok()?.to_owned());
    }
    let is_of_pack = name.as_bytes().starts_with(b"pack-");
    is_of_pack.then(|| Path::new("pack").join(name))
}

/// Returns a set's time of creation and fork, from its name.
fn maker_of(set: &Path) -> Option<(SystemTime, &str)> {
    let (nanos, fork) = set.file_name()?.to_str()?.split_once('-')?;
    let created = UNIX_EPOCH.checked_add(Duration::from_nanos(nanos.parse().ok()?))?;
    Some((created, fork))
}

/// Returns whether a set need not be held any more.
fn is_old(set: &Path) -> bool {
    let modified = fs::metadata(set).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > HOLD_TIME))
}

/// Lists the sets; without the directory there are none.
fn names_if_there(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    match names(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        sets => sets.map_err(GitError::io("list", dir)),
    }
}

fn names(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
