//! Taking over: objects and refs of an own git directory into the main repository.
//!
//! ```text
//! 1 read the tips ─► 2 compare ─► 3 copy and check objects ─► 4 sync both sides ─► 5 migrate objects
//!   ─► 6 refs/tine/<fork>/git/… in one transaction ─► 7 refs/heads/tine/<fork> ─► 8 objects leave the own directory
//! ```
//!
//! Each step can be the last one of a process that dies. The next call then finishes the rest.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use gix::ObjectId;

use super::dir::OwnDir;
use super::large_files::{StrangeFiles, take_large_files};
use super::logged::unreached;
use super::own_branch::{BRANCH, OwnBranch};
use super::quarantine::{Quarantine, Taken};
use super::rejected::{RejectedRef, by_name};
use super::removal::{prunes_new_objects, remove_taken};
use super::tips::{LogStamp, Tips, kept_label, read_tips};
use super::transfer::{SHALLOW, Transfer, missing_reason, pack_names};
use crate::{GitError, Repository};
use tine_attr::Timestamp;
use tine_sys::pause;

/// Maximum number of checks in one call.
///
/// Each refused tip costs a few. Those that are left are refused without a check.
const MAX_CHECKS: usize = 200;

/// Age at which git ignores the file of a `git gc`.
const GC_FILE_AGE: Duration = Duration::from_secs(12 * 60 * 60);

/// Number of attempts to leave the objects to the main repository.
const REMOVE_ATTEMPTS: usize = 3;

/// Maximum wait for a `git gc`.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(2);
const COLLECTOR_INTERVAL: Duration = Duration::from_millis(2);

/// Label of the commit that keeps what only logs name.
const LOGS: &str = "git/logs";
/// Prefix of labels of logged objects that are not commits.
const LOGGED: &str = "git/logged/";

/// Removes a file, whose path is relative to the own git directory.
pub type RemoveObject<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;

/// Result of taking over.
#[derive(Debug, Clone, Default)]
pub struct TakenOver {
    /// Labels below `git/` that changed, with their new values.
    pub changed: BTreeMap<String, Option<ObjectId>>,
    /// State of the fork's branch, if the fork has it.
    pub branch: Option<OwnBranch>,
    /// Refs and files that were refused, now or earlier.
    pub rejected: Vec<RejectedRef>,
    /// True if another call must follow, because of a `git gc`.
    ///
    /// Objects are then in the own git directory alone, or in both places.
    pub is_pending: bool,
    memory: Memory,
}

/// State that spares the next call work. It may be lost.
#[derive(Debug, Clone, Default)]
struct Memory {
    named: BTreeMap<String, ObjectId>,
    log_stamps: BTreeMap<PathBuf, LogStamp>,
    /// Logged ids without an object, while `packs` are as they were.
    absent: HashSet<ObjectId>,
    packs: Vec<String>,
    /// Version of the fork's file `shallow`.
    shallow: Option<FileVersion>,
    /// Git LFS objects with another content than their names say.
    strange: StrangeFiles,
}

/// Version of a file: inode number, size, and time of the last change.
type FileVersion = (u64, u64, Timestamp);

impl Repository {
    /// Takes over what a fork has in its own git directory `own`.
    ///
    /// `own_branch` is the short name of the branch that follows the fork's, if any. `remove` removes
    /// a file of the own git directory, while that is mounted. `last` is the result of the previous
    /// call, if there is one. Only one call for a fork may run at a time. The caller has called
    /// [`Repository::release_noted_locks`] after another process died.
    ///
    /// What only the index names is kept before something else that names it goes. Blocks on the
    /// disk and on git, unless nothing changed.
    ///
    /// # Errors
    /// [`GitError::Io`] if a file cannot be read, written or synced, [`GitError::RefLocked`] if git
    /// holds a lock for long, [`GitError::RefMoved`] if the branch moved meanwhile. What was not
    /// done is done by the next call.
    pub fn take_over(
        &self,
        own: &Path,
        fork: &str,
        own_branch: Option<&str>,
        last: Option<&TakenOver>,
        remove: Option<RemoveObject<'_>>,
    ) -> Result<TakenOver, GitError> {
        // The refs of a directory that is being removed were not deleted one by one.
        let head = own.join("HEAD");
        std::fs::symlink_metadata(&head).map_err(GitError::io("open", &head))?;
        let dir = OwnDir::open(own)?;
        let kept: BTreeMap<String, Option<ObjectId>> = self.labels(fork)?.into_iter().collect();
        let quarantine = Quarantine::of(self, fork);
        let mut taking = Taking {
            main: self,
            own,
            dir: &dir,
            quarantine: &quarantine,
            known: kept.values().flatten().copied().collect(),
            tips: read_tips(self, &dir),
            kept,
            fork,
            own_branch,
            remove,
            rejected_before: last.map(|last| by_name(&last.rejected)).unwrap_or_default(),
            last: last.cloned().unwrap_or_default(),
            done: TakenOver::default(),
            taken: Taken::default(),
            checks_left: MAX_CHECKS,
            is_synced: false,
            is_again: false,
        };
        taking.run()?;
        Ok(taking.done)
    }
}

/// Returns whether a name is a log's, and not a label.
fn is_logged(name: &str) -> bool {
    name.starts_with("logs/")
}

/// A tip to bring: its name for messages, and its id.
type Tip = (String, ObjectId);

pub(super) struct Taking<'a> {
    pub(super) main: &'a Repository,
    own: &'a Path,
    pub(super) dir: &'a OwnDir,
    quarantine: &'a Quarantine<'a>,
    pub(super) fork: &'a str,
    pub(super) own_branch: Option<&'a str>,
    remove: Option<RemoveObject<'a>>,
    pub(super) tips: Tips,
    /// Values by label below `refs/tine/<fork>/`.
    pub(super) kept: BTreeMap<String, Option<ObjectId>>,
    /// Objects that the main repository keeps with all that they need.
    known: HashSet<ObjectId>,
    last: TakenOver,
    /// Refs that the last call rejected, by name.
    rejected_before: HashMap<String, RejectedRef>,
    pub(super) done: TakenOver,
    taken: Taken,
    checks_left: usize,
    is_synced: bool,
    /// True if an earlier call did not end. All is brought again.
    is_again: bool,
}

impl Taking<'_> {
    fn run(&mut self) -> Result<(), GitError> {
        let strange = &self.last.memory.strange;
        self.done.memory.strange = take_large_files(self.main, self.dir, self.remove, strange)?;
        for (name, reason) in std::mem::take(&mut self.tips.invalid) {
            self.reject(name, None, reason);
        }
        let left = self.left_by_earlier()?;
        let shallow = self.dir.stat_file(Path::new(SHALLOW));
        let shallow = shallow.map(|stat| (stat.ino, stat.size, stat.mtime));
        let memory = &self.last.memory;
        let has_same_ends = memory.shallow == shallow;
        let is_due = self.rejected_before.values().any(RejectedRef::is_due);
        let is_same = !self.is_again
            && !is_due
            && has_same_ends
            && memory.named == self.tips.named
            && memory.log_stamps == self.tips.log_stamps;
        if !has_same_ends {
            // The fork may have fetched what was missing.
            self.last.rejected.clear();
            self.rejected_before.clear();
        }
        if !is_same {
            let hash_kind = self.main.hash_kind();
            self.tips.read_logged(hash_kind, self.dir);
        }
        let logged = if is_same {
            let old = self.last.rejected.iter();
            let old = old.filter(|rejected| is_logged(&rejected.name));
            self.done.rejected.extend(old.cloned());
            None
        } else {
            Some(self.logged_to_bring())
        };
        let named = self.named_to_bring();
        let tips: Vec<Tip> = named
            .iter()
            .cloned()
            .chain(logged.into_iter().flatten())
            .collect();
        let is_new = tips.iter().any(|(_, id)| !self.known.contains(id));
        if is_new && prunes_new_objects(self.main) {
            // It would remove the objects here before refs name them.
            let ids: Vec<ObjectId> = tips.iter().map(|(_, id)| *id).collect();
            let known: Vec<ObjectId> = ["base", "head", "git/HEAD"]
                .iter()
                .filter_map(|label| self.kept.get(*label).copied().flatten())
                .collect();
            if let Err(error) = self.main.hold_needed(self.fork, self.own, &ids, &known) {
                log::warn!("{}: a git gc may remove what it needs: {error}", self.fork);
            }
            self.leave_pending();
            return Ok(());
        }
        self.bring(&tips)?;
        let mut changes = self.changes_of_names();
        if !is_same {
            changes.extend(self.changes_of_logs()?);
        }
        changes.retain(|label, value| match value {
            Some(_) => self.kept.get(label) != Some(value),
            None => self.kept.contains_key(label),
        });
        let former = self.former_branch();
        let mut all_changes = changes.clone();
        let branch_at = match self.own_branch {
            Some(branch) => self.main.branch_target(branch)?,
            None => None,
        };
        let recorded = self.kept.get(BRANCH).copied().flatten();
        // The branch moved, and the process died before it recorded that.
        if former.is_some() && branch_at == former && recorded != former {
            all_changes.insert(BRANCH.to_owned(), former);
            self.kept.insert(BRANCH.to_owned(), former);
        }
        if is_new && !self.is_kept_until_named(&tips)? {
            self.leave_pending();
            return Ok(());
        }
        if all_changes.keys().any(|label| self.forgets(label))
            && let Err(error) = self.main.protect_index(self.own, self.fork)
        {
            log::warn!("{}: what is staged is not protected: {error}", self.fork);
        }
        if !all_changes.is_empty() {
            self.sync_own()?;
            pause::at("before-taking-refs");
            self.main
                .change_labels(self.fork, &self.kept, &all_changes)?;
            pause::at("refs-taken");
        }
        self.done.branch = self.move_branch()?;
        self.done.changed = changes;
        self.done
            .rejected
            .sort_by(|one, other| one.name.cmp(&other.name));
        self.taken.extend(left);
        self.remove()?;
        let packs = pack_names(self.dir);
        let old = std::mem::take(&mut self.last.memory);
        let memory = &mut self.done.memory;
        memory.named = std::mem::take(&mut self.tips.named);
        memory.log_stamps = std::mem::take(&mut self.tips.log_stamps);
        if old.packs == packs {
            memory.absent.extend(old.absent);
        }
        memory.packs = packs;
        memory.shallow = shallow;
        Ok(())
    }

    /// Returns whether the label keeps something now that no log names.
    ///
    /// When it changes, the index may be all that names a blob.
    fn forgets(&self, label: &str) -> bool {
        let Some(old) = self.kept.get(label).copied().flatten() else {
            return false;
        };
        let is_logged = |id: &ObjectId| self.tips.logged.contains_key(id);
        if label == LOGS {
            let commits = self.main.kept_by_keeper(Some(old));
            return !commits.iter().all(is_logged);
        }
        !is_logged(&old)
    }

    /// Leaves the rest to a later call.
    fn leave_pending(&mut self) {
        self.done = TakenOver {
            changed: BTreeMap::new(),
            branch: None,
            is_pending: true,
            ..std::mem::take(&mut self.last)
        };
    }

    /// Waits for a concurrent `git gc`, and brings what it removed.
    ///
    /// Refs must never name what is gone. Returns false if the gc takes long.
    fn is_kept_until_named(&mut self, tips: &[Tip]) -> Result<bool, GitError> {
        if !prunes_new_objects(self.main) {
            return Ok(true);
        }
        if !is_over(self.main) {
            return Ok(false);
        }
        let taken = self.taken.loose.iter().chain(&self.taken.packed);
        if !self.main.missing_objects(taken.copied())?.is_empty() {
            self.know_little();
            self.bring(tips)?;
        }
        Ok(true)
    }

    fn reject(&mut self, name: String, id: Option<ObjectId>, reason: String) {
        if self
            .rejected_before
            .get(&name)
            .is_none_or(|old| old.id != id)
        {
            log::info!("{}: {name} is not taken over: {reason}", self.fork);
        }
        let before = self.rejected_before.get(&name);
        let rejected = RejectedRef::new((name, id), reason, before);
        self.done.rejected.push(rejected);
    }

    /// Rejects the tip again if it was rejected before.
    fn is_rejected(&mut self, name: &str, id: ObjectId) -> bool {
        let old = self.rejected_before.get(name);
        let old = old.filter(|old| old.id == Some(id) && !old.is_due());
        let old = old.cloned();
        let is_rejected = old.is_some();
        self.done.rejected.extend(old);
        is_rejected
    }

    /// Returns objects that an earlier call left in both places.
    ///
    /// If that call did not end, or a concurrent `git gc` removed objects here, all tips are brought
    /// once more.
    fn left_by_earlier(&mut self) -> Result<Taken, GitError> {
        if !self.quarantine.exists() {
            return Ok(Taken::default());
        }
        let left = self.quarantine.taken();
        let missing = self.main.missing_objects(left.loose.iter().copied())?;
        if left.is_empty() || !missing.is_empty() {
            self.is_again = true;
            self.know_little();
        }
        Ok(left)
    }

    fn named_to_bring(&mut self) -> Vec<Tip> {
        let mut tips = Vec::new();
        for (name, id) in self.tips.named.clone() {
            let is_kept = self.kept.get(&format!("git/{name}")) == Some(&Some(id));
            if (!is_kept || self.is_again) && !self.is_rejected(&name, id) {
                tips.push((name, id));
            }
        }
        tips
    }

    /// Returns the logged objects that the main repository lacks.
    fn logged_to_bring(&mut self) -> Vec<Tip> {
        let packs = pack_names(self.dir);
        let known_absent = if self.last.memory.packs == packs {
            self.last.memory.absent.clone()
        } else {
            HashSet::new()
        };
        let named: HashSet<ObjectId> = self.tips.named.values().copied().collect();
        let mut tips = Vec::new();
        for (id, log) in self.tips.logged.clone() {
            let is_loose = self.dir.has_loose(&id);
            let is_here = self.main.has_object(id) && !(self.is_again && is_loose);
            if named.contains(&id) || known_absent.contains(&id) || is_here {
                continue;
            }
            if packs.is_empty() && !is_loose {
                self.done.memory.absent.insert(id);
                continue;
            }
            let name = format!("{log}@{id}");
            if !self.is_rejected(&name, id) {
                tips.push((name, id));
            }
        }
        tips.sort();
        tips
    }

    /// Brings what `tips` need. Rejects those for which that fails.
    fn bring(&mut self, tips: &[Tip]) -> Result<(), GitError> {
        let ids: BTreeSet<ObjectId> = tips.iter().map(|(_, id)| *id).collect();
        let ids: Vec<ObjectId> = ids
            .difference(&self.known.iter().copied().collect())
            .copied()
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut names: HashMap<ObjectId, Vec<String>> = HashMap::new();
        for (name, id) in tips {
            names.entry(*id).or_default().push(name.clone());
        }
        self.bring_ids(&ids, &names)
    }

    fn bring_ids(
        &mut self,
        ids: &[ObjectId],
        names: &HashMap<ObjectId, Vec<String>>,
    ) -> Result<(), GitError> {
        let brought = match self.checks_left.checked_sub(1) {
            None => Err("too many refs of the fork fail git's checks".to_owned()),
            Some(left) => {
                self.checks_left = left;
                let reachable = self.reachable(ids, names);
                let transfer = Transfer {
                    main: self.main,
                    dir: self.dir,
                    quarantine: self.quarantine,
                    known: &self.known,
                    reachable: &reachable,
                    files: &self.tips.files,
                };
                transfer.bring(ids)?
            }
        };
        match (brought, ids) {
            (Ok(taken), _) => {
                self.is_synced |= !taken.is_empty();
                self.taken.extend(taken);
                self.known.extend(ids);
            }
            (Err(reason), [id]) => {
                // Reflogs outlive the objects that they name.
                let is_absent = reason == missing_reason(*id) || reason.starts_with("bad object");
                for name in names.get(id).into_iter().flatten() {
                    if is_logged(name) && is_absent {
                        self.done.memory.absent.insert(*id);
                    } else {
                        self.reject(name.clone(), Some(*id), reason.clone());
                    }
                }
            }
            (Err(_), _) => {
                let (first, second) = ids.split_at(ids.len() / 2);
                self.bring_ids(first, names)?;
                self.bring_ids(second, names)?;
            }
        }
        Ok(())
    }

    /// Returns objects of refs here, which shorten the check.
    ///
    /// These are its HEAD and the refs of the same names, which a fork often starts from.
    fn reachable(&self, ids: &[ObjectId], names: &HashMap<ObjectId, Vec<String>>) -> Vec<ObjectId> {
        const USUAL: [&str; 4] = [
            "HEAD",
            "refs/heads/main",
            "refs/heads/master",
            "refs/remotes/origin/HEAD",
        ];
        let same = ids.iter().filter_map(|id| names.get(id)).flatten();
        let same = same
            .filter(|name| !is_logged(name) && !name.starts_with("pseudo/"))
            .map(|name| format!("refs/{name}"));
        let usual = USUAL.iter().map(|name| (*name).to_owned());
        usual
            .chain(same)
            .filter_map(|name| super::tips::target_in_main(self.main, &name))
            .collect()
    }

    /// Returns the label's values of all names that may be kept.
    fn changes_of_names(&self) -> BTreeMap<String, Option<ObjectId>> {
        let rejected: HashSet<String> = (self.done.rejected.iter())
            .flat_map(|rejected| [rejected.name.clone(), kept_label(&rejected.name)])
            .collect();
        let is_rejected = |name: &str| rejected.contains(name);
        let is_unknown = is_rejected("packed-refs");
        let mut changes = BTreeMap::new();
        for (name, id) in &self.tips.named {
            if !is_rejected(name) {
                changes.insert(format!("git/{name}"), Some(*id));
            }
        }
        for label in self.kept.keys() {
            let Some(name) = label.strip_prefix("git/") else {
                continue;
            };
            let is_of_logs = label == LOGS || label.starts_with(LOGGED);
            if !is_of_logs
                && !is_unknown
                && !self.tips.named.contains_key(name)
                && !is_rejected(name)
            {
                changes.insert(label.clone(), None);
            }
        }
        changes
    }

    /// Returns the values of the labels that keep what only logs name.
    fn changes_of_logs(&mut self) -> Result<BTreeMap<String, Option<ObjectId>>, GitError> {
        let keeper = self.kept.get(LOGS).copied().flatten();
        let settled: BTreeSet<ObjectId> = self.main.kept_by_keeper(keeper);
        let mut roots: HashSet<ObjectId> = self.tips.named.values().copied().collect();
        for label in ["base", "head"] {
            roots.extend(self.kept.get(label).copied().flatten());
        }
        let refused: HashSet<ObjectId> = self
            .done
            .rejected
            .iter()
            .filter_map(|rejected| rejected.id)
            .collect();
        let wanted: HashSet<ObjectId> = self
            .tips
            .logged
            .keys()
            .copied()
            .filter(|id| !refused.contains(id) && !self.done.memory.absent.contains(id))
            .collect();
        let settled_ids: HashSet<ObjectId> = settled.iter().copied().collect();
        let mut found = unreached(self.main, &roots, &wanted, &settled_ids);
        // Values that were kept until now need no check, and neither do those brought just now.
        let unchecked = |id: &ObjectId| !settled.contains(id) && !self.known.contains(id);
        let new: Vec<Tip> = found
            .commits
            .union(&found.others)
            .filter(|id| unchecked(id))
            .map(|id| {
                let log = self.tips.logged.get(id).cloned().unwrap_or_default();
                (format!("{log}@{id}"), *id)
            })
            .collect();
        if !new.is_empty() {
            self.bring(&new)?;
            let refused: HashSet<ObjectId> = self
                .done
                .rejected
                .iter()
                .filter_map(|rejected| rejected.id)
                .collect();
            found.commits.retain(|id| !refused.contains(id));
            found.others.retain(|id| !refused.contains(id));
        }
        let mut changes = BTreeMap::new();
        let value = if found.commits.is_empty() {
            None
        } else if found.commits == settled {
            keeper
        } else {
            Some(self.main.write_keeper(&found.commits)?)
        };
        changes.insert(LOGS.to_owned(), value);
        let gone = self.kept.keys().filter(|label| label.starts_with(LOGGED));
        changes.extend(gone.map(|label| (label.clone(), None)));
        let others = found.others.into_iter();
        changes.extend(others.map(|id| (format!("{LOGGED}{id}"), Some(id))));
        Ok(changes)
    }

    /// Syncs the own git directory's refs, unless a transfer has done so.
    fn sync_own(&self) -> Result<(), GitError> {
        if self.is_synced {
            return Ok(());
        }
        self.dir.sync_all(&self.tips.files)
    }

    /// Removes the objects that were taken over from the own git directory.
    fn remove(&mut self) -> Result<(), GitError> {
        for _ in 0..REMOVE_ATTEMPTS {
            let taken = std::mem::take(&mut self.taken);
            if taken.is_empty() {
                // A refused transfer may have left something.
                return self.quarantine.remove();
            }
            self.quarantine.note_taken(&taken)?;
            pause::at("before-leaving");
            if !taken.packs.is_empty() && self.is_repacked() {
                // That program has listed the packs. A later call removes them.
                return Ok(());
            }
            // One that began before the refs were there may still remove objects here.
            if !is_over(self.main) {
                break;
            }
            if remove_taken(self.main, self.dir, &taken, self.remove)? {
                pause::at("objects-left");
                return self.quarantine.remove();
            }
            log::info!(
                "{}: a git gc removed objects that were taken over",
                self.fork
            );
            self.bring_again()?;
        }
        self.done.is_pending = true;
        Ok(())
    }

    /// Returns whether a `git gc` seems to run in the fork.
    fn is_repacked(&self) -> bool {
        let stat = self.dir.stat_file(Path::new("gc.pid"));
        let settled = SystemTime::now().checked_sub(GC_FILE_AGE);
        stat.is_some_and(|stat| settled.is_some_and(|settled| stat.mtime > settled.into()))
    }

    /// Brings everything that the own git directory has once more.
    fn bring_again(&mut self) -> Result<(), GitError> {
        self.know_little();
        let rejected = by_name(&self.done.rejected);
        let named = self.tips.named.iter().filter(|(name, id)| {
            let rejected = rejected.get(*name);
            rejected.is_none_or(|rejected| rejected.id != Some(**id))
        });
        let mut tips: Vec<Tip> = named.map(|(name, id)| (name.clone(), *id)).collect();
        let logged = self.tips.logged.iter();
        let logged = logged.filter(|(id, _)| self.dir.has_loose(id));
        tips.extend(logged.map(|(id, log)| (format!("{log}@{id}"), *id)));
        self.bring(&tips)
    }

    /// Assumes that only base and head are here as a whole.
    fn know_little(&mut self) {
        self.known.clear();
        for label in ["base", "head"] {
            self.known.extend(self.kept.get(label).copied().flatten());
        }
    }
}

/// Waits for the end of a `git gc` that removes new objects. Returns false if it takes long.
fn is_over(main: &Repository) -> bool {
    let deadline = Instant::now() + COLLECTOR_TIMEOUT;
    while prunes_new_objects(main) {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(COLLECTOR_INTERVAL);
    }
    true
}
