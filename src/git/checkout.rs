//! What the main checkout has as a base has it, and since when.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::unchanged::{Times, Unchanged};
use super::{Base, BaseDir, GitError, IgnoreRules, Repository, TreeEntryKind, rule_files};
use tine_attr::{Ino, Timestamp};
use tine_path::{DOT_GIT, EntryName, RepoPath};

/// How many symlinks are followed.
const MAX_LINKS: usize = 40;

/// Below this many files or directories a second thread costs more than it saves.
const MIN_TO_SHARE: usize = 1024;

impl Repository {
    /// Finds what of `base` is the same in `checkout` (the main one), and when it got to be so
    /// there: by the number of the node.
    ///
    /// A file is the same where the index has the base's blob, and `lstat` says what the entry
    /// says, which is not racy, or else the bytes are those of the blob; a directory where it has
    /// the same names and no others. What came with an older mtime counts from when it came, except
    /// in a checkout that was copied or unpacked as a whole.
    ///
    /// Some are left out though they are the same, or count as newer: what was built in `checkout`
    /// was built of what was there then.
    /// - Where a directory has other names in `checkout` than in `base`, but for ignored and hidden
    ///   ones, no file in it is there (`*.c`); where directories are among them, none in the
    ///   directories in it either (`*/*.c`).
    /// - What a symlink leads to, or is beneath that, is not there where the link is not the same.
    /// - What a symlink leads to is as new as the symlink.
    /// - What is beneath a directory that was moved here is as new as that.
    ///
    /// Costs an `lstat` a file and a listing a directory, and reads no content but that of racy
    /// entries and of files that were touched.
    ///
    /// # Errors
    /// [`GitError::Library`] where the index cannot be read, others where a tree or a symlink of
    /// the base cannot.
    pub fn same_since(
        &self,
        base: &Base,
        checkout: &Path,
    ) -> Result<Vec<(Ino, Timestamp)>, GitError> {
        let hasher = base.hasher();
        let unchanged = Unchanged::of(self, checkout, hasher)?;
        let (dirs, links) = dirs_and_links(base, &unchanged)?;
        let led_to = ends_of(&links);
        let look = |dirs: &[Arc<BaseDir>]| {
            let found = dirs
                .iter()
                .map(|dir| (dir.clone(), Names::of(checkout, dir)));
            found.collect::<Vec<_>>()
        };
        let mut rules = IgnoreRules::new(self, |dir: &RepoPath| {
            let read = rule_files::read(&checkout.join(dir.as_path()).join(".gitignore"));
            read.map_err(GitError::library("read rules"))
        })?;
        let mut same = Vec::new();
        let mut known: HashMap<RepoPath, Beneath> = HashMap::new();
        // Directories come after those that they are in.
        for (dir, names) in shared(&dirs, look) {
            let above = dir
                .path
                .split_last()
                .and_then(|(above, _)| known.get(&above));
            let above = above.copied().unwrap_or_default();
            let difference = names.difference(&dir, &mut rules)?;
            let moved = names.times.and_then(|times| unchanged.came(times));
            let beneath = Beneath {
                moved: above.moved.max(moved),
                is_among_others: difference == Difference::Directories,
                link: above.link.max(led_to.get(&dir.path).copied()),
            };
            let since = |times: Times| {
                let own = unchanged.since(times);
                own.max(beneath.moved.unwrap_or(own))
            };
            if let Some(times) = names.times.filter(|_| names.are_the_same(&dir)) {
                same.push((hasher.ino(&dir.path), since(times)));
            }
            if difference == Difference::None && !above.is_among_others {
                for entry in &dir.entries {
                    let Some(file) = unchanged.same(entry) else {
                        continue;
                    };
                    let time = since(file.times);
                    match beneath.link.max(led_to.get(&file.path).copied()) {
                        Some(Link::Other) => {}
                        Some(Link::Since(link)) => same.push((entry.ino, time.max(link))),
                        None => same.push((entry.ino, time)),
                    }
                }
            }
            known.insert(dir.path.clone(), beneath);
        }
        Ok(same)
    }
}

/// A symlink of a base: what it leads to, and what is known of it.
type Links = HashMap<RepoPath, (RepoPath, Link)>;

/// The directories of the base, each after the one that it is in, and its symlinks by their path.
fn dirs_and_links(
    base: &Base,
    unchanged: &Unchanged,
) -> Result<(Vec<Arc<BaseDir>>, Links), GitError> {
    let (mut dirs, mut links) = (vec![base.root()?], Links::new());
    let mut next = 0;
    while let Some(dir) = dirs.get(next).cloned() {
        next += 1;
        for entry in &dir.entries {
            let path = || dir.path.join(&entry.name);
            match entry.kind {
                TreeEntryKind::Directory => dirs.push(base.dir(&path(), entry.id)?),
                TreeEntryKind::Symlink => {
                    let target = base.raw_content(entry.id)?.to_vec();
                    let target = target.map_err(GitError::library("read a symlink"))?;
                    let same = unchanged.same(entry);
                    let link =
                        same.map_or(Link::Other, |file| Link::Since(unchanged.since(file.times)));
                    links.extend(led_to(&path(), &target).map(|led_to| (path(), (led_to, link))));
                }
                _ => {}
            }
        }
    }
    Ok((dirs, links))
}

/// What `look` finds of `all`, by two threads where that is worth it.
pub(super) fn shared<T: Sync, Found: Send>(
    all: &[T],
    look: impl Fn(&[T]) -> Vec<Found> + Sync,
) -> Vec<Found> {
    if all.len() < MIN_TO_SHARE {
        return look(all);
    }
    let (first, second) = all.split_at(all.len() / 2);
    thread::scope(|scope| {
        let second = scope.spawn(|| look(second));
        let mut found = look(first);
        // Without it files count as changed, and are built again.
        found.append(&mut second.join().unwrap_or_default());
        found
    })
}

/// Where a symlink leads to in the tree, links on the way left as they are; `None` out of it.
fn led_to(link: &RepoPath, target: &[u8]) -> Option<RepoPath> {
    let mut path = link.split_last()?.0;
    if target.starts_with(b"/") {
        return None;
    }
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => path = path.split_last()?.0,
            name => path.push(&EntryName::new(name).ok()?),
        }
    }
    Some(path)
}

/// A symlink, for what it leads to: what says more is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    /// It is the same since then.
    Since(Timestamp),
    /// It is another one.
    Other,
}

/// What links lead to, by way of others, too.
fn ends_of(links: &Links) -> HashMap<RepoPath, Link> {
    let mut ends: HashMap<RepoPath, Link> = HashMap::new();
    for (led_to, link) in links.values() {
        let mut at = Some(led_to);
        for _ in 0..MAX_LINKS {
            let Some(path) = at else { break };
            let known = ends.entry(path.clone()).or_insert(*link);
            *known = (*known).max(*link);
            at = links.get(path).map(|(led_to, _)| led_to);
        }
    }
    ends
}

/// What holds for all that is in a directory.
#[derive(Clone, Copy, Default)]
struct Beneath {
    /// The link that leads to it, or to one above it.
    link: Option<Link>,
    /// When it, or one above it, was moved here.
    moved: Option<Timestamp>,
    /// Whether other directories are beside those in it.
    is_among_others: bool,
}

/// What tells the names of a directory in the checkout from those of the base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    Files,
    Directories,
}

/// The names of a directory in the checkout beside those of the base.
struct Names {
    /// Of the directory; `None` where there is none that can be listed, or it is changing.
    times: Option<Times>,
    /// Those that the base has not, and whether they are directories.
    more: Vec<(EntryName, bool)>,
    /// How many of the base's there are.
    count: usize,
    /// The base's that are missing, as far as they are directories.
    lacks_dir: bool,
}

impl Names {
    fn of(checkout: &Path, dir: &BaseDir) -> Names {
        let place = checkout.join(dir.path.as_path());
        let mut names = Names {
            times: None,
            more: Vec::new(),
            count: 0,
            lacks_dir: false,
        };
        let mut dirs_left = dir
            .entries
            .iter()
            .filter(|entry| entry.kind == TreeEntryKind::Directory)
            .count();
        let mut look = |names: &mut Names| -> std::io::Result<()> {
            let found = fs::symlink_metadata(&place)?;
            if !found.is_dir() {
                return Ok(());
            }
            for entry in fs::read_dir(&place)? {
                let entry = entry?;
                let name = entry.file_name();
                let name = name.as_bytes();
                if name == DOT_GIT && dir.path.is_root() {
                    continue;
                }
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                match (dir.find(name), EntryName::new(name)) {
                    (Some(index), _) => {
                        names.count += 1;
                        if is_dir && dir.entries[index].kind == TreeEntryKind::Directory {
                            dirs_left = dirs_left.saturating_sub(1);
                        }
                    }
                    (None, Ok(name)) => names.more.push((name, is_dir)),
                    (None, Err(_)) => return Ok(()),
                }
            }
            let is_settled = fs::symlink_metadata(&place)?.ctime_nsec() == found.ctime_nsec();
            names.times = is_settled.then(|| Times::of(&found));
            Ok(())
        };
        if look(&mut names).is_err() {
            names.times = None;
        }
        names.lacks_dir = dirs_left > 0;
        names
    }

    fn are_the_same(&self, dir: &BaseDir) -> bool {
        self.more.is_empty() && self.count == dir.entries.len()
    }

    /// How they tell of other files than those of the base.
    fn difference(
        &self,
        dir: &BaseDir,
        rules: &mut IgnoreRules<'_>,
    ) -> Result<Difference, GitError> {
        let mut difference = match self.times.is_some() && self.count == dir.entries.len() {
            true => Difference::None,
            false if self.lacks_dir => Difference::Directories,
            false => Difference::Files,
        };
        for (name, is_dir) in &self.more {
            // No pattern finds a hidden one that does not name it.
            if !name.as_bytes().starts_with(b".")
                && !rules.is_ignored(&dir.path.join(name), *is_dir)?
            {
                match is_dir {
                    true => difference = Difference::Directories,
                    false if difference == Difference::None => difference = Difference::Files,
                    false => {}
                }
            }
        }
        Ok(difference)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::testing::TestRepository;
    use crate::unchanged::{MIN_COPIED, TICK};
    use crate::{BaseCache, InoHasher};

    const HOUR: Duration = Duration::from_secs(3600);

    /// How many seconds ago each of these got to be what it is.
    fn ages(repository: &TestRepository) -> BTreeMap<String, i64> {
        // What was written just now may change again.
        thread::sleep(2 * TICK);
        let open = repository.open();
        let spool = tempfile::tempdir().unwrap();
        let cache = BaseCache::new(spool.path(), 1 << 20).unwrap();
        let tree_id = repository.id_of("HEAD^{tree}");
        let base = Base::open(&open, tree_id, &cache, InoHasher::new([7; 16])).unwrap();
        let now = Timestamp::now().secs;
        let same: HashMap<Ino, Timestamp> = open
            .same_since(&base, repository.dir())
            .unwrap()
            .into_iter()
            .collect();
        let listed = repository.git(&["ls-tree", "-rt", "--name-only", "HEAD"]);
        let age = |path: &str| {
            let time = same.get(&base.hasher().ino(&RepoPath::parse(path).unwrap()))?;
            Some((path.to_owned(), now - time.secs))
        };
        listed.lines().filter_map(age).collect()
    }

    fn make_old(repository: &TestRepository, path: &str) {
        let file = fs::File::open(repository.dir().join(path)).unwrap();
        file.set_modified(SystemTime::now() - HOUR).unwrap();
    }

    #[test]
    fn a_file_that_came_with_an_old_time_is_as_new_as_it_came_but_in_a_copied_checkout() {
        let repository = TestRepository::new();
        let names: Vec<String> = (0..MIN_COPIED + 4)
            .map(|number| format!("{number}.txt"))
            .collect();
        names.iter().for_each(|name| repository.write(name, name));
        repository.commit("files");
        make_old(&repository, "3.txt");
        assert!(ages(&repository)["3.txt"] < 60);
        names.iter().for_each(|name| make_old(&repository, name));
        assert!(ages(&repository).values().all(|age| *age >= 3600));
        // What comes after that came alone.
        thread::sleep(Duration::from_millis(2100));
        make_old(&repository, "3.txt");
        let ages = ages(&repository);
        let new: Vec<&String> = ages
            .iter()
            .filter(|(_, age)| **age < 60)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(new, ["3.txt"]);
    }

    #[test]
    fn a_file_that_was_touched_counts_by_its_bytes() {
        let repository = TestRepository::new();
        repository.write("same", "bytes\n");
        repository.write("other", "bytes\n");
        repository.commit("files");
        repository.write("same", "bytes\n");
        repository.write("other", "BYTES\n");
        let unchanged: Vec<String> = ages(&repository).into_keys().collect();
        assert_eq!(unchanged, ["same"]);
    }

    #[test]
    fn a_directory_is_the_same_as_long_as_it_has_the_same_names() {
        let repository = TestRepository::new();
        for path in [
            "changed/a",
            "more/a",
            "fewer/a",
            "fewer/b",
            "above/below/a",
            "ignored/a",
        ] {
            repository.write(path, path);
        }
        repository.write(".gitignore", "*.o\n");
        repository.commit("files");
        repository.write("changed/a", "other");
        repository.write("more/b", "b");
        repository.write("ignored/a.o", "b");
        fs::remove_file(repository.dir().join("fewer/b")).unwrap();
        make_old(&repository, "above");
        let same: Vec<String> = ages(&repository).into_keys().collect();
        assert_eq!(
            same,
            [
                ".gitignore",
                "above",
                "above/below",
                "above/below/a",
                "changed",
                "ignored/a"
            ]
        );
    }

    #[test]
    fn what_another_link_leads_to_is_not_the_same() {
        let repository = TestRepository::new();
        for path in ["one/a", "two/deep/a", "three/a"] {
            repository.write(path, path);
        }
        let link = repository.dir().join("three/link");
        std::os::unix::fs::symlink("../one", &link).unwrap();
        repository.commit("files");
        assert!(ages(&repository).contains_key("one/a"));
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("../two", &link).unwrap();
        let same: Vec<String> = ages(&repository)
            .into_keys()
            .filter(|path| path.ends_with("/a"))
            .collect();
        assert_eq!(same, ["three/a", "two/deep/a"]);
    }
}
