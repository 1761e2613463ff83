//! Paths that changed since a moment, for git's `fsmonitor`.
//!
//! Git does not see a change whose path is missing here, so the answer is [`Changed::Everything`]
//! unless it is certain. A path too many costs git one `stat`.
//!
//! A token names the moment. `tine:<instance>:<length>:<hash>` is a position in the open layer's
//! log; the later records are the changes. `tine:base:…` is the state in which a fork on this base
//! with these attributes begins; everything in its layers is a change. All new forks of a base have
//! that token in their index.
//!
//! Git caches two things: which files match its index, and the untracked files of each directory.
//! [`Changed::Everything`] makes git check all files, and list a directory again if its times
//! differ. But after a command that lists nothing (`git diff`), git trusts its lists, although they
//! are as old as before. So the token of such an answer ends in `:stale`, and the next answer for
//! that token names every directory.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::base_nodes::BaseAttrs;
use super::dir_places::DirPlaces;
use super::error::FsError;
use super::fs::{FoundNode, Invalidation, ViewState, Workspace};
use tine_attr::{FileKind, Ino};
use tine_git::Base;
use tine_layer::{Dentry, LayerIndex, LogPosition, Node, Touched};
use tine_path::{DOT_GIT, EntryName, RepoPath};

/// Maximum number of paths in an answer. With more, the answer is "everything".
const PATHS_MAX: usize = 200_000;

/// Name that means "some name in this directory". Git then lists the directory again.
const ANY_NAME: &[u8] = b".tine";

/// Changes since a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// Anything may have changed.
    Everything,
    /// Paths of the view, and everything below paths with a final slash.
    ///
    /// Some may name nothing, now or ever.
    Paths(BTreeSet<Vec<u8>>),
}

/// Returns the token of a fork's first state on `base`.
///
/// It depends on the attributes of base nodes, but not on their times.
pub fn beginning(base: &Base, attrs: &BaseAttrs) -> String {
    format!("tine:base:{}", base_name(base, attrs))
}

/// Returns a name for a base and its attributes.
///
/// Two bases share it only if their forks begin alike.
pub fn base_name(base: &Base, attrs: &BaseAttrs) -> String {
    let tree_id = base.tree_id();
    let BaseAttrs {
        uid, gid, umask, ..
    } = attrs;
    format!(
        "{tree_id}-{uid}-{gid}-{umask:o}-{:016x}",
        base.fingerprint()
    )
}

/// Contents of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChangeToken {
    /// Position in the log of the open layer.
    position: LogPosition,
    /// True if git's lists of untracked files may predate `position`.
    is_stale: bool,
}

const STALE: &str = ":stale";

impl ChangeToken {
    fn parse(token: &str) -> Option<ChangeToken> {
        let (token, is_stale) = match token.strip_suffix(STALE) {
            Some(token) => (token, true),
            None => (token, false),
        };
        let (instance, rest) = token.strip_prefix("tine:")?.split_once(':')?;
        let (len, prefix) = match rest.split_once(':') {
            Some((len, prefix)) => (len, Some(u64::from_str_radix(prefix, 16).ok()?)),
            None => (rest, None),
        };
        let position = LogPosition {
            instance: u64::from_str_radix(instance, 16).ok()?,
            len: len.parse().ok()?,
            prefix,
        };
        Some(ChangeToken { position, is_stale })
    }

    fn token(&self) -> String {
        let LogPosition {
            instance,
            len,
            prefix,
        } = self.position;
        let prefix = prefix.map_or(String::new(), |prefix| format!(":{prefix:016x}"));
        let end = if self.is_stale { STALE } else { "" };
        format!("tine:{instance:016x}:{len}{prefix}{end}")
    }
}

impl Workspace {
    /// Returns the token of this fork's first state, without layers.
    ///
    /// [`Workspace::changed_since`] accepts it.
    pub fn beginning(&self) -> String {
        let state = self.read_state();
        beginning(&state.base.base, &state.base.attrs)
    }

    /// Returns the present position, for [`ApplyOptions::since`](super::ApplyOptions::since).
    pub fn position(&self) -> LogPosition {
        self.read_state().stack.open_layer().position()
    }

    /// Returns whether the changes since `token` are known.
    ///
    /// False for the token of a new fork and for a stale one.
    pub fn can_tell_since(&self, token: &str) -> bool {
        ChangeToken::parse(token).is_some_and(|since| {
            let state = self.read_state();
            !since.is_stale
                && state
                    .stack
                    .open_layer()
                    .changes_since(since.position)
                    .is_some()
        })
    }

    /// Returns the paths that changed since `token`, and the next token.
    ///
    /// The next token's moment is not later than this answer.
    ///
    /// # Errors
    /// [`FsError::Base`] or [`FsError::Carried`] if a directory cannot be read, [`FsError::Stale`]
    /// if a dentry names no node.
    pub fn changed_since(&self, token: &str) -> Result<(String, Changed), FsError> {
        let since = ChangeToken::parse(token);
        let lists_are_stale = since.is_some_and(|since| since.is_stale);
        let begins = token == self.beginning();
        let (position, all, changes, recent) = {
            let state = self.read_state();
            let layer = state.stack.open_layer();
            let all = if begins {
                Some(self.paths_of(&state, self.all_touched(&state), lists_are_stale)?)
            } else {
                None
            };
            let changes = since.and_then(|since| layer.changes_since(since.position));
            (layer.position(), all, changes, layer.recent_changes())
        };
        let touched = changes.and_then(|changes| changes.read());
        let (recent, before) = recent;
        self.settle_in_kernel(&before);
        match &touched {
            // The holder of that token has seen everything before it.
            Some(touched) => self.settle_in_kernel(touched),
            None => {
                self.settle_in_kernel(&recent.and_then(|recent| recent.read()).unwrap_or_default())
            }
        }
        // A later change is part of the next answer: under the path it has then, and under the name
        // that it removes.
        let changed = match all {
            Some(changed) => changed,
            None => self.paths_of(&self.read_state(), touched, lists_are_stale)?,
        };
        let is_stale = changed == Changed::Everything;
        Ok((ChangeToken { position, is_stale }.token(), changed))
    }

    /// Makes the kernel see changes that are in the log already.
    ///
    /// A change is in the log before the program that makes it, and the kernel, have the answer.
    /// Git would hear of it, find the file unchanged, and keep that for good. While a name changes,
    /// the kernel holds the directory's lock. So to invalidate any name there is to wait for the
    /// change. Attributes are invalidated, too.
    fn settle_in_kernel(&self, touched: &Touched) {
        let Ok(name) = EntryName::new(ANY_NAME) else {
            return;
        };
        let parents: HashSet<Ino> = touched.names.iter().map(|(parent, _)| *parent).collect();
        self.announce(parents.into_iter().map(|parent| Invalidation::Entry {
            parent,
            name: name.clone(),
        }));
        self.announce(touched.nodes.iter().copied().map(Invalidation::Attributes));
    }

    /// Returns the paths of the view that `touched` affects.
    pub(super) fn paths_touched(&self, touched: Touched) -> Result<Changed, FsError> {
        self.paths_of(&self.read_state(), Some(touched), false)
    }

    /// Returns everything that the layers touch; `None` if that is too much.
    fn all_touched(&self, state: &ViewState) -> Option<Touched> {
        let is_as_below = |node: &Node| {
            let origin = node.origin.as_ref();
            node.perm == origin.map_or(node.perm, |origin| state.base.attrs.perm(origin.kind))
                && (node.uid, node.gid) == (state.base.attrs.uid, state.base.attrs.gid)
                && node.xattrs.is_empty()
        };
        let mut touched = Touched::default();
        for index in layers(state) {
            if index.node_count().saturating_add(index.dentry_count()) > PATHS_MAX as u64 {
                return None;
            }
            touched.add_layer(index, is_as_below);
        }
        Some(touched)
    }

    /// Returns the paths that `touched` affects. All directories, too, if git's lists are stale.
    fn paths_of(
        &self,
        state: &ViewState,
        touched: Option<Touched>,
        lists_are_stale: bool,
    ) -> Result<Changed, FsError> {
        let Some(touched) = touched else {
            return Ok(Changed::Everything);
        };
        let mut collector = PathCollector {
            workspace: self,
            state,
            paths: BTreeSet::new(),
            places: DirPlaces::new(state),
            walked: BTreeSet::new(),
        };
        let added = collector.add_touched(&touched).and_then(|()| {
            if lists_are_stale {
                collector.add_all_directories()
            } else {
                Ok(())
            }
        });
        match added {
            Ok(()) => Ok(Changed::Paths(collector.paths)),
            Err(StopCollecting::TooMuch) => Ok(Changed::Everything),
            Err(StopCollecting::Failed(error)) => Err(error),
        }
    }
}

/// Returns the layers' indexes, newest first.
fn layers(state: &ViewState) -> impl Iterator<Item = &LayerIndex> {
    state.stack.indexes()
}

/// Reason to stop collecting paths.
enum StopCollecting {
    /// The answer must be "everything".
    TooMuch,
    /// The file system failed.
    Failed(FsError),
}

impl From<FsError> for StopCollecting {
    fn from(error: FsError) -> StopCollecting {
        StopCollecting::Failed(error)
    }
}

/// Collector of changed paths.
struct PathCollector<'a> {
    workspace: &'a Workspace,
    state: &'a ViewState,
    paths: BTreeSet<Vec<u8>>,
    places: DirPlaces<'a>,
    /// Directories below which everything is in `paths`.
    walked: BTreeSet<RepoPath>,
}

impl PathCollector<'_> {
    fn add_touched(&mut self, touched: &Touched) -> Result<(), StopCollecting> {
        for (parent, name) in &touched.names {
            self.add_name(*parent, name)?;
        }
        // Nodes with names that are still to be found, and the number of those.
        let mut missing: HashMap<Ino, u32> = HashMap::new();
        for ino in &touched.nodes {
            let node = self.state.stack.node(*ino).filter(|node| node.nlink > 0);
            match node.map(|node| (node.kind, node.nlink)) {
                None => {}
                Some((FileKind::Directory, _)) => self.add_directory(*ino)?,
                Some((_, names)) => {
                    let missing_names = names.saturating_sub(u32::from(self.add_base_path(*ino)?));
                    missing.insert(*ino, missing_names);
                }
            }
        }
        missing.retain(|_, names| *names > 0);
        // The record that makes or replaces a file also names it, and those names are added.
        for (parent, name) in &touched.names {
            if let Some(Dentry::Entry(ino)) = self.state.stack.dentry(*parent, name.as_bytes())
                && (self.places.dir_path(*parent).is_some() || self.is_in_trash(*parent, None))
            {
                find_one(&mut missing, ino);
            }
        }
        self.search(&mut missing, &touched.names)?;
        if missing.is_empty() {
            Ok(())
        } else {
            Err(StopCollecting::TooMuch)
        }
    }

    /// Searches the layers for the other names of the `missing` nodes.
    ///
    /// Skips names in `added`.
    fn search(
        &mut self,
        missing: &mut HashMap<Ino, u32>,
        added: &HashSet<(Ino, EntryName)>,
    ) -> Result<(), StopCollecting> {
        let mut seen = HashSet::new();
        for index in layers(self.state) {
            for (parent, dir) in index.dirs() {
                if missing.is_empty() {
                    return Ok(());
                }
                for (name, dentry) in dir.iter() {
                    if let Dentry::Entry(ino) = dentry
                        && missing.contains_key(&ino)
                        && self.state.stack.dentry(parent, name.as_bytes()) == Some(dentry)
                        && !added.contains(&(parent, name.clone()))
                        && seen.insert((parent, name.clone()))
                    {
                        match self.places.dir_path(parent) {
                            Some(dir) => self.add(&dir, name)?,
                            None if self.is_in_trash(parent, None) => {}
                            None => continue,
                        }
                        find_one(missing, ino);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds `name` in the directory `parent`, and everything below it.
    fn add_name(&mut self, parent: Ino, name: &EntryName) -> Result<(), StopCollecting> {
        // If the directory is gone, its own name is added.
        let Some(dir) = self.places.dir_path(parent) else {
            return Ok(());
        };
        self.add(&dir, name)?;
        let path = dir.join(name);
        match self.workspace.walk(self.state, &path) {
            Ok(child) if self.workspace.kind(self.state, &child)? == FileKind::Directory => {
                self.add_below(path, child)
            }
            Ok(_) => Ok(()),
            // The node may have been a directory.
            Err(FsError::NotFound | FsError::NotADirectory) => {
                self.paths.insert([path.as_bytes(), b"/"].concat());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a directory whose own node changed, with everything below: it may be unreachable now.
    fn add_directory(&mut self, ino: Ino) -> Result<(), StopCollecting> {
        let Some(path) = self.places.dir_path(ino) else {
            return Ok(());
        };
        let Some((parent, name)) = path.split_last() else {
            return Err(StopCollecting::TooMuch);
        };
        self.add(&parent, &name)?;
        let found = self.workspace.walk(self.state, &path)?;
        self.add_below(path, found)
    }

    /// Makes git list every directory again.
    fn add_all_directories(&mut self) -> Result<(), StopCollecting> {
        self.paths.insert(ANY_NAME.to_vec());
        let root = self.workspace.find(self.state, Ino::ROOT)?;
        self.add_listings(RepoPath::root(), root)
    }

    /// Adds everything below the directory at `path`.
    ///
    /// Git keeps the untracked files of each directory separately, so each directory is named.
    fn add_below(&mut self, path: RepoPath, found: FoundNode) -> Result<(), StopCollecting> {
        if path.components().any(|name| name.is_dot_git()) || self.walked.contains(&path) {
            return Ok(());
        }
        self.paths.insert([path.as_bytes(), b"/"].concat());
        self.add_listings(path, found)
    }

    /// Makes git list the directory at `path` again, and those below it.
    fn add_listings(&mut self, path: RepoPath, found: FoundNode) -> Result<(), StopCollecting> {
        let mut open = vec![(path, found)];
        while let Some((path, found)) = open.pop() {
            // Git ignores carried directories and does not list them.
            let is_carried =
                self.workspace.carried_path(self.state, &found).as_ref() == Some(&path);
            if is_carried || !self.walked.insert(path.clone()) {
                continue;
            }
            if self.paths.len() > PATHS_MAX
                || path.components().any(|name| is_shunned(name.as_bytes()))
            {
                return Err(StopCollecting::TooMuch);
            }
            self.paths.insert(in_dir(&path, ANY_NAME));
            for (name, kind, _) in self.workspace.entries(self.state, &found)? {
                if kind == FileKind::Directory
                    && !name.is_dot_git()
                    && let Some(child) =
                        self.workspace.child(self.state, &found, name.as_bytes())?
                {
                    open.push((path.join(&name), child));
                }
            }
        }
        Ok(())
    }

    /// Adds the base path of a node that has not moved. Returns whether it has not.
    ///
    /// The node is not a directory. The path is left out if it is in the trash.
    fn add_base_path(&mut self, ino: Ino) -> Result<bool, StopCollecting> {
        let node = self.workspace.layer_node(self.state, ino)?;
        let Some((base_parent, name)) = node
            .origin
            .as_ref()
            .and_then(|origin| origin.path.split_last())
        else {
            return Ok(false);
        };
        let parent = self.state.base.base.hasher().ino(&base_parent);
        if self.state.stack.dentry(parent, name.as_bytes()).is_some() {
            return Ok(false);
        }
        let Some(dir) = self.places.base_dir_path(parent, base_parent.clone()) else {
            return Ok(self.is_in_trash(parent, Some(base_parent)));
        };
        // If the directory itself was moved, no dentry of the layers says so of this name.
        match self.workspace.walk(self.state, &dir.join(&name)) {
            Ok(there) if there.ino == ino => self.add(&dir, &name).map(|()| true),
            Ok(_) | Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a name, and makes git list its directory if needed.
    fn add(&mut self, dir: &RepoPath, name: &EntryName) -> Result<(), StopCollecting> {
        let mut outer = RepoPath::root();
        for (depth, component) in dir.components().chain([name.clone()]).enumerate() {
            if component.is_dot_git() {
                // A directory's `.git` decides whether it is a repository. The fork's own does not
                // change that.
                if depth > 0 {
                    self.paths.insert(outer.as_bytes().to_vec());
                    self.paths.insert(in_dir(&outer, ANY_NAME));
                }
                return Ok(());
            }
            outer.push(&component);
        }
        if dir
            .components()
            .any(|component| is_shunned(component.as_bytes()))
        {
            return Err(StopCollecting::TooMuch);
        }
        self.paths.insert(outer.as_bytes().to_vec());
        if is_shunned(name.as_bytes()) {
            self.paths.insert(in_dir(dir, ANY_NAME));
        }
        if self.paths.len() > PATHS_MAX {
            Err(StopCollecting::TooMuch)
        } else {
            Ok(())
        }
    }

    /// Returns whether the directory is in the trash, where no path leads.
    ///
    /// `base_path` is the path of a base directory, which need not be in a layer.
    fn is_in_trash(&self, ino: Ino, base_path: Option<RepoPath>) -> bool {
        let origin = |ino| match self.state.stack.node(ino) {
            Some(node) if node.nlink == 0 => None,
            Some(node) => Some(node.origin.as_ref().map(|origin| origin.path.clone())),
            None => Some(None),
        };
        let mut at = ino;
        let mut path = base_path;
        while at != Ino::TRASH {
            let Some(known) = origin(at) else {
                return false;
            };
            path = known.or(path);
            if let Some(parent) = self.state.stack.dir_parent(at) {
                (at, path) = (parent, None);
            } else {
                let Some((parent, _)) = path.as_ref().and_then(RepoPath::split_last) else {
                    return false;
                };
                at = self.state.base.base.hasher().ino(&parent);
                path = Some(parent);
            }
        }
        true
    }
}

/// Counts one name of the node as found.
fn find_one(missing: &mut HashMap<Ino, u32>, ino: Ino) {
    if let Some(count) = missing.get_mut(&ino) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            missing.remove(&ino);
        }
    }
}

fn in_dir(dir: &RepoPath, name: &[u8]) -> Vec<u8> {
    if dir.is_root() {
        name.to_vec()
    } else {
        [dir.as_bytes(), b"/", name].concat()
    }
}

/// Returns whether git may take the name for another spelling of `.git`.
///
/// Git ignores such a name in an answer (`verify_path`). Some names that it accepts are included.
fn is_shunned(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_dot_git = |part: &[u8]| {
        let rest = part
            .strip_prefix(DOT_GIT)
            .or_else(|| part.strip_prefix(b"git~1"));
        let end = rest.map(|rest| rest.iter().find(|byte| !b". ".contains(byte)));
        matches!(end, Some(None | Some(b':')))
    };
    // Non-ASCII bytes may be characters that some file systems drop.
    let is_ascii = lower.is_ascii();
    lower.split(|byte| *byte == b'\\').any(is_dot_git)
        || !is_ascii && lower.iter().filter(|byte| byte.is_ascii()).eq(DOT_GIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_written() {
        for (is_stale, prefix) in [
            (false, None),
            (true, None),
            (false, Some(5)),
            (true, Some(u64::MAX)),
        ] {
            let position = LogPosition {
                instance: 0xab,
                len: 17,
                prefix,
            };
            let since = ChangeToken { position, is_stale };
            assert_eq!(ChangeToken::parse(&since.token()), Some(since));
        }
        for foreign in [
            "",
            "1700000000000000000",
            "builtin:fake",
            "tine:base:x-1",
            "tine:1",
            "tine:x:1",
        ] {
            assert_eq!(ChangeToken::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn names_that_git_forgets_are_known() {
        for name in [
            &b".git"[..],
            b".GIT",
            b"git~1",
            b"GIT~1",
            b".git ",
            b".git. .",
            b".git::$INDEX_ALLOCATION",
            b"a\\.git",
            b".g\xe2\x80\x8cit",
        ] {
            assert!(is_shunned(name), "{}", String::from_utf8_lossy(name));
        }
        for name in [
            &b".github"[..],
            b".gitignore",
            b"git",
            b"git~2",
            b"a:b",
            b"d\xff",
            b".gi\xcc\x88t.x",
        ] {
            assert!(!is_shunned(name), "{}", String::from_utf8_lossy(name));
        }
    }
}
