//! Ignore rules over a view: paths that `git add -A` leaves out.
//!
//! The caller provides the `.gitignore` files, because they are part of the fork's view.
//! `info/exclude` and `core.excludesFile` are read here. As in gitignore(5), the nearest
//! `.gitignore` with a matching rule decides, then `info/exclude`, then `core.excludesFile`. The
//! content of an ignored directory is always ignored.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix::bstr::{BStr, ByteSlice};
use gix::glob::pattern::Case;
use gix::ignore::Search;
use gix::ignore::search::Ignore;

use super::{GitError, Repository, rule_files};
use tine_path::RepoPath;

/// Maximum size in bytes of a rules file.
///
/// It is that of git (dir.c, `PATTERN_MAX_FILE_SIZE`).
pub const MAX_IGNORE_FILE_BYTES: u64 = 100 << 20;

/// Options under which `$` has no meaning, as in git.
const PARSE: Ignore = Ignore {
    support_precious: false,
};

/// Function that reads the `.gitignore` of a directory.
type ReadIgnoreFile<'a> = Box<dyn Fn(&RepoPath) -> Result<Option<Vec<u8>>, GitError> + 'a>;

/// The ignore rules of a view.
///
/// Each directory's `.gitignore` is read at most once, through `read`.
pub struct IgnoreRules<'a> {
    read: ReadIgnoreFile<'a>,
    case: Case,
    /// Rules of `info/exclude`, then of `core.excludesFile`.
    globals: Search,
    dirs: HashMap<RepoPath, Arc<DirRules>>,
}

/// The rules of one directory.
struct DirRules {
    /// True if the directory with all its content is ignored.
    is_ignored: bool,
    /// Rules of its own `.gitignore`.
    own: Option<Search>,
    /// Rules of the parent; `None` for the root.
    parent: Option<Arc<DirRules>>,
}

impl<'a> IgnoreRules<'a> {
    /// Reads the rules outside the view.
    ///
    /// `read_ignore_file` returns the content of the `.gitignore` in a directory of the view, if it
    /// is a regular file.
    ///
    /// # Errors
    /// [`GitError::Io`] or [`GitError::Library`] if the configuration or a rules file cannot be
    /// read.
    pub fn new(
        repository: &Repository,
        read_ignore_file: impl Fn(&RepoPath) -> Result<Option<Vec<u8>>, GitError> + 'a,
    ) -> Result<IgnoreRules<'a>, GitError> {
        let local = repository.local_with_fresh_config()?;
        let mut globals = Search::default();
        // The later of the two has precedence.
        let files = [
            excludes_file(repository, &local)?,
            Some(repository.common_dir().join("info/exclude")),
        ];
        for path in files.into_iter().flatten() {
            if let Some(bytes) = rule_files::read(&path)? {
                add(&mut globals, bytes, path, None)?;
            }
        }
        Ok(IgnoreRules {
            read: Box::new(read_ignore_file),
            case: match local.config_snapshot().boolean("core.ignoreCase") {
                Some(true) => Case::Fold,
                _ => Case::Sensitive,
            },
            globals,
            dirs: HashMap::new(),
        })
    }

    /// Returns whether an untracked node at `path` is ignored.
    ///
    /// A rule may match the node itself or a directory above it.
    ///
    /// # Errors
    /// Errors of `read_ignore_file`, or [`GitError::Io`] for rules that cannot be parsed.
    pub fn is_ignored(&mut self, path: &RepoPath, is_dir: bool) -> Result<bool, GitError> {
        let Some((parent, _)) = path.split_last() else {
            return Ok(false);
        };
        let rules = self.rules_in(&parent)?;
        Ok(self.decide(&rules, path, is_dir))
    }

    /// Returns the rules in the directory at `path`.
    ///
    /// It iterates down from the nearest cached parent, because a tree may be too deep for
    /// recursion.
    fn rules_in(&mut self, path: &RepoPath) -> Result<Arc<DirRules>, GitError> {
        let mut unknown = Vec::new();
        let mut next = path.clone();
        let mut rules = loop {
            if let Some(known) = self.dirs.get(&next) {
                break known.clone();
            }
            match next.split_last() {
                Some((parent, _)) => unknown.push(std::mem::replace(&mut next, parent)),
                None => break self.rules_below(None, &next)?,
            }
        };
        for dir in unknown.iter().rev() {
            rules = self.rules_below(Some(rules), dir)?;
        }
        Ok(rules)
    }

    /// Returns the rules of the directory at `path`, given its parent's.
    fn rules_below(
        &mut self,
        parent: Option<Arc<DirRules>>,
        path: &RepoPath,
    ) -> Result<Arc<DirRules>, GitError> {
        let is_ignored = parent
            .as_ref()
            .is_some_and(|rules| self.decide(rules, path, true));
        let own = if is_ignored {
            None
        } else {
            self.own_rules(path)?
        };
        let rules = Arc::new(DirRules {
            is_ignored,
            own,
            parent,
        });
        self.dirs.insert(path.clone(), rules.clone());
        Ok(rules)
    }

    fn own_rules(&self, path: &RepoPath) -> Result<Option<Search>, GitError> {
        let Some(bytes) = (self.read)(path)? else {
            return Ok(None);
        };
        let mut search = Search::default();
        let source = path.as_path().join(".gitignore");
        add(&mut search, bytes, source, Some(Path::new("")))?;
        Ok(Some(search))
    }

    /// Returns whether `path` is ignored in a directory with `rules`.
    fn decide(&self, rules: &DirRules, path: &RepoPath, is_dir: bool) -> bool {
        if rules.is_ignored {
            return true;
        }
        let path: &BStr = path.as_bytes().as_bstr();
        let chain = std::iter::successors(Some(rules), |rules| rules.parent.as_deref());
        let found = chain
            .filter_map(|rules| rules.own.as_ref())
            .chain([&self.globals])
            .find_map(|search| {
                search.pattern_matching_relative_path(path, Some(is_dir), self.case)
            });
        found.is_some_and(|found| !found.pattern.is_negative())
    }
}

/// Adds the rules in `bytes`.
///
/// With `root`, they apply under `source`'s directory.
fn add(
    search: &mut Search,
    mut bytes: Vec<u8>,
    source: PathBuf,
    root: Option<&Path>,
) -> Result<(), GitError> {
    if bytes.len() as u64 > MAX_IGNORE_FILE_BYTES {
        log::warn!("{} is ignored, it is too large", source.display());
        return Ok(());
    }
    // git, too, terminates the last line before it strips a carriage return.
    bytes.push(b'\n');
    search
        .add_patterns_buffer(&bytes, source.clone(), root, PARSE)
        .map_err(GitError::io("read", source))
}

/// Returns the path of `core.excludesFile`, or its default.
fn excludes_file(
    repository: &Repository,
    local: &gix::Repository,
) -> Result<Option<PathBuf>, GitError> {
    let config = local.config_snapshot();
    match config.string("core.excludesFile") {
        Some(value) if value.is_empty() => Ok(None),
        Some(_) => {
            let path = config
                .trusted_path("core.excludesFile")
                .map_err(GitError::library("find core.excludesFile"))?;
            // A relative path is resolved at the top of the worktree.
            Ok(path.map(|path| repository.checkout_dir().join(path)))
        }
        None => {
            let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
            let config_home = std::env::var_os("XDG_CONFIG_HOME")
                .filter(|dir| !dir.is_empty())
                .map(PathBuf::from)
                .or_else(home);
            Ok(config_home.map(|dir| dir.join("git/ignore")))
        }
    }
}

#[cfg(test)]
mod tests;
