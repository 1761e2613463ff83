//! Comparison of the main checkout with a base, with modification times.

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

/// Maximum number of symlinks that are followed.
const MAX_LINKS: usize = 40;

/// Minimum number of items that justifies a second thread.
const MIN_TO_SHARE: usize = 1024;

impl Repository {
    /// Finds the nodes of `base` that are unchanged in `checkout`.
    ///
    /// `checkout` is the main one. The result lists inode numbers with the time since which each
    /// node is unchanged.
    ///
    /// A file is unchanged if the index has the base's blob, and either `lstat` matches a non-racy
    /// index entry or the bytes are those of the blob. A directory is unchanged if it has the same
    /// names and no others. A file that arrived with an older mtime counts from its arrival, except
    /// in a checkout that was copied or unpacked as a whole.
    ///
    /// Some nodes are left out although they are unchanged, or count as newer, because a build in
    /// `checkout` used what was there at that time:
    /// - If a directory has other names in `checkout` than in `base`, except ignored and hidden
    ///   ones, none of its files is included (`*.c`). If directories are among these names, the
    ///   files of its subdirectories are left out as well (`*/*.c`).
    /// - The target of a symlink, and everything under it, is left out if the link differs.
    /// - The target of a symlink is as new as the symlink.
    /// - Everything under a directory that was moved here is as new as the move.
    ///
    /// It costs an `lstat` for each file and a listing for each directory. It reads only the
    /// contents of racy entries and of files that were touched.
    ///
    /// # Errors
    /// [`GitError::Library`] if the index cannot be read; others if a tree or a symlink of the base
    /// cannot be read.
    pub fn same_since(
        &self,
        base: &Base,
        checkout: &Path,
    ) -> Result<Vec<(Ino, Timestamp)>, GitError> {
        let hasher = base.hasher();
        let unchanged = Unchanged::of(self, checkout, hasher)?;
        let (dirs, links) = dirs_and_links(base, &unchanged)?;
        let led_to = link_targets(&links);
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
        let mut known: HashMap<RepoPath, DirFacts> = HashMap::new();
        // Directories come after their parents.
        for (dir, names) in on_two_threads(&dirs, look) {
            let above = dir
                .path
                .split_last()
                .and_then(|(above, _)| known.get(&above));
            let above = above.copied().unwrap_or_default();
            let difference = names.difference(&dir, &mut rules)?;
            let moved = names.times.and_then(|times| unchanged.arrived(times));
            let facts = DirFacts {
                moved: above.moved.max(moved),
                has_other_subdirs: difference == Difference::Directories,
                link: above.link.max(led_to.get(&dir.path).copied()),
            };
            let since = |times: Times| {
                let own = unchanged.since(times);
                own.max(facts.moved.unwrap_or(own))
            };
            if let Some(times) = names.times.filter(|_| names.matches_base(&dir)) {
                same.push((hasher.ino(&dir.path), since(times)));
            }
            if difference == Difference::None && !above.has_other_subdirs {
                for entry in &dir.entries {
                    let Some(file) = unchanged.same(entry) else {
                        continue;
                    };
                    let time = since(file.times);
                    match facts.link.max(led_to.get(&file.path).copied()) {
                        Some(Link::Other) => {}
                        Some(Link::Since(link)) => same.push((entry.ino, time.max(link))),
                        None => same.push((entry.ino, time)),
                    }
                }
            }
            known.insert(dir.path.clone(), facts);
        }
        Ok(same)
    }
}

/// Symlinks of a base by path: the target path, and the link's state.
type Links = HashMap<RepoPath, (RepoPath, Link)>;

/// Lists the base's directories, parents first, and its symlinks by path.
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

/// Runs `look` on `all`, split over two threads if that pays off.
pub(super) fn on_two_threads<T: Sync, Found: Send>(
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
        // If the thread panicked, its files count as changed and are rebuilt.
        found.append(&mut second.join().unwrap_or_default());
        found
    })
}

/// Returns a symlink's target in the tree, or `None` outside it.
///
/// Symlinks on the way are not resolved.
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

/// State of a symlink, as it affects its target. The stricter one is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    /// Link that is unchanged since this time.
    Since(Timestamp),
    /// Link that differs from the base's.
    Other,
}

/// Maps each direct or indirect link target to the strictest link.
fn link_targets(links: &Links) -> HashMap<RepoPath, Link> {
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

/// Facts that hold for everything in a directory.
#[derive(Clone, Copy, Default)]
struct DirFacts {
    /// Strictest link that leads to it or a parent.
    link: Option<Link>,
    /// Time when it or a parent was moved here.
    moved: Option<Timestamp>,
    /// True if the checkout's subdirectories differ from the base's.
    has_other_subdirs: bool,
}

/// Kind of names in which the checkout's directory differs from the base's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    Files,
    Directories,
}

/// Names of a checkout's directory, compared with the base's.
struct Names {
    /// Times of the directory; `None` if it is unreadable or changing.
    times: Option<Times>,
    /// Names that the base does not have, and whether they are directories.
    more: Vec<(EntryName, bool)>,
    /// Number of the base's names that exist.
    count: usize,
    /// True if a subdirectory of the base is missing.
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

    fn matches_base(&self, dir: &BaseDir) -> bool {
        self.more.is_empty() && self.count == dir.entries.len()
    }

    /// Returns the kind of names that differ, ignored and hidden ones aside.
    fn difference(
        &self,
        dir: &BaseDir,
        rules: &mut IgnoreRules<'_>,
    ) -> Result<Difference, GitError> {
        let mut difference = if self.times.is_some() && self.count == dir.entries.len() {
            Difference::None
        } else if self.lacks_dir {
            Difference::Directories
        } else {
            Difference::Files
        };
        for (name, is_dir) in &self.more {
            // A pattern matches a hidden file only if it names the dot.
            if !name.as_bytes().starts_with(b".")
                && !rules.is_ignored(&dir.path.join(name), *is_dir)?
            {
                if *is_dir {
                    difference = Difference::Directories;
                } else if difference == Difference::None {
                    difference = Difference::Files;
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
