//! Which paths changed since a moment: what git asks before it looks at a fork's files (`fsmonitor`
//! in its words).
//!
//! A path that is missing here is a change that git does not see, so whatever cannot be told for
//! sure is [`Changed::Everything`]. A path too many costs git one `stat`.
//!
//! A moment is named by a token. `tine:<instance>:<length>:<hash>` is a position in the open
//! layer's log; what was logged since is what changed. `tine:base:…` is the state in which a fork
//! on this base with these attributes begins, and everything that its layers speak of changed
//! since: that is the token in the index of a new fork, which all forks of a base have in common.
//!
//! git keeps two things that age: which files are as its index says, and for each directory which
//! untracked files are in it. [`Changed::Everything`] makes it look at all files, and list
//! directories anew where their times tell it to. But if that git command lists nothing
//! (`git diff`), it believes its lists from then on, though they are as old as before. So the token
//! that goes with such an answer ends in `:stale`, and whoever comes back with that is told all
//! directories that there are.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::base_nodes::BaseAttrs;
use super::dir_places::DirPlaces;
use super::error::FsError;
use super::fs::{Found, Invalidation, State, Workspace};
use tine_attr::{FileKind, Ino};
use tine_git::Base;
use tine_layer::{Dentry, LayerIndex, LogPosition, Node, Touched};
use tine_path::{DOT_GIT, EntryName, RepoPath};

/// More paths than these are told as everything.
const PATHS_MAX: usize = 200_000;

/// A name that stands for "some name in this directory": git then lists the directory anew.
const ANY_NAME: &[u8] = b".tine";

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// Perhaps everything.
    Everything,
    /// These paths of the view, and what is beneath those that end in a slash. Some name what is
    /// not there, now or ever.
    Paths(BTreeSet<Vec<u8>>),
}

/// Names the state in which every fork on `base` with these attributes, whatever its times, begins.
pub(super) fn beginning(base: &Base, attrs: &BaseAttrs) -> String {
    format!("tine:base:{}", base_name(base, attrs))
}

/// A name that two bases have in common only if a fork of one begins as one of the other does.
pub(super) fn base_name(base: &Base, attrs: &BaseAttrs) -> String {
    let tree_id = base.tree_id();
    let BaseAttrs {
        uid, gid, umask, ..
    } = attrs;
    format!(
        "{tree_id}-{uid}-{gid}-{umask:o}-{:016x}",
        base.fingerprint()
    )
}

/// What a token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since {
    position: LogPosition,
    /// Whether git's lists of untracked files may be older than that.
    is_stale: bool,
}

const STALE: &str = ":stale";

impl Since {
    fn parse(token: &str) -> Option<Since> {
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
        Some(Since { position, is_stale })
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
    /// Names the state in which this fork began, for [`Workspace::changed_since`]: without layers.
    pub fn beginning(&self) -> String {
        let state = self.read_state();
        beginning(&state.base.base, &state.base.attrs)
    }

    /// This moment, for [`ApplyOptions::since`](super::ApplyOptions::since).
    pub fn position(&self) -> LogPosition {
        self.read_state().stack.open_layer().position()
    }

    /// Whether [`Workspace::changed_since`] can tell what changed since the moment that `token`
    /// names, which is none of a new fork's.
    pub fn can_tell_since(&self, token: &str) -> bool {
        Since::parse(token).is_some_and(|since| {
            let state = self.read_state();
            !since.is_stale
                && state
                    .stack
                    .open_layer()
                    .changes_since(since.position)
                    .is_some()
        })
    }

    /// What changed since the moment that `token` names, and a token for a moment that is not later
    /// than this answer.
    pub fn changed_since(&self, token: &str) -> Result<(String, Changed), FsError> {
        let since = Since::parse(token);
        let lists_are_stale = since.is_some_and(|since| since.is_stale);
        let begins = token == self.beginning();
        let (position, all, changes, recent) = {
            let state = self.read_state();
            let layer = state.stack.open_layer();
            let all = match begins {
                true => Some(self.paths_of(&state, self.all_touched(&state), lists_are_stale)?),
                false => None,
            };
            let changes = since.and_then(|since| layer.changes_since(since.position));
            (layer.position(), all, changes, layer.recent_changes())
        };
        let touched = changes.and_then(|changes| changes.read());
        let (recent, before) = recent;
        self.have_seen(&before);
        match &touched {
            // Who got that token had seen what was before it.
            Some(touched) => self.have_seen(touched),
            None => self.have_seen(&recent.and_then(|recent| recent.read()).unwrap_or_default()),
        }
        // What changes from here on is told the next time: under its name of then, and under the
        // name that it loses now.
        let changed = match all {
            Some(changed) => changed,
            None => self.paths_of(&self.read_state(), touched, lists_are_stale)?,
        };
        let is_stale = changed == Changed::Everything;
        Ok((Since { position, is_stale }.token(), changed))
    }

    /// Makes sure that programs see what has changed. A change is in the log before the program
    /// that makes it, and the kernel, have had their answer: git would be told of it, find the file
    /// as it was, and believe that for good. A name changes while the kernel has the directory
    /// locked, so whoever has it forget a name there, any name, has waited for that. Attributes it
    /// asks for anew.
    fn have_seen(&self, touched: &Touched) {
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

    /// The paths of the view at which `touched` shows.
    pub(super) fn paths_touched(&self, touched: Touched) -> Result<Changed, FsError> {
        self.paths_of(&self.read_state(), Some(touched), false)
    }

    /// All that the layers speak of; `None` where that is too much.
    fn all_touched(&self, state: &State) -> Option<Touched> {
        let is_as_beneath = |node: &Node| {
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
            touched.add_layer(index, is_as_beneath);
        }
        Some(touched)
    }

    /// The paths at which `touched` shows; where git's lists are stale all directories are among
    /// them.
    fn paths_of(
        &self,
        state: &State,
        touched: Option<Touched>,
        lists_are_stale: bool,
    ) -> Result<Changed, FsError> {
        let Some(touched) = touched else {
            return Ok(Changed::Everything);
        };
        let mut teller = Teller {
            workspace: self,
            state,
            paths: BTreeSet::new(),
            places: DirPlaces::new(state),
            walked: BTreeSet::new(),
        };
        let told = teller.tell(&touched).and_then(|()| match lists_are_stale {
            true => teller.tell_all_directories(),
            false => Ok(()),
        });
        match told {
            Ok(()) => Ok(Changed::Paths(teller.paths)),
            Err(Stop::TooMuch) => Ok(Changed::Everything),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

/// The layers' indexes, newest first.
fn layers(state: &State) -> impl Iterator<Item = &LayerIndex> {
    state.stack.indexes()
}

/// Why an answer is not put together to its end.
enum Stop {
    /// Everything must be told.
    TooMuch,
    Failed(FsError),
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Stop {
        Stop::Failed(error)
    }
}

/// Puts an answer together.
struct Teller<'a> {
    workspace: &'a Workspace,
    state: &'a State,
    paths: BTreeSet<Vec<u8>>,
    places: DirPlaces<'a>,
    /// Directories of which everything beneath was told.
    walked: BTreeSet<RepoPath>,
}

impl Teller<'_> {
    fn tell(&mut self, touched: &Touched) -> Result<(), Stop> {
        for (parent, name) in &touched.names {
            self.tell_name(*parent, name)?;
        }
        // Nodes with names that are still to be found, and how many.
        let mut missing: HashMap<Ino, u32> = HashMap::new();
        for ino in &touched.nodes {
            let node = self.state.stack.node(*ino).filter(|node| node.nlink > 0);
            match node.map(|node| (node.kind, node.nlink)) {
                None => {}
                Some((FileKind::Directory, _)) => self.tell_directory(*ino)?,
                Some((_, names)) => {
                    let missing_names =
                        names.saturating_sub(u32::from(self.tell_base_place(*ino)?));
                    missing.insert(*ino, missing_names);
                }
            }
        }
        missing.retain(|_, names| *names > 0);
        // Who makes or replaces a file names it in the same breath, and those names are told.
        for (parent, name) in &touched.names {
            if let Some(Dentry::Entry(ino)) = self.state.stack.dentry(*parent, name.as_bytes())
                && (self.places.dir_path(*parent).is_some() || self.is_in_attic(*parent, None))
            {
                find_one(&mut missing, ino);
            }
        }
        self.search(&mut missing, &touched.names)?;
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Stop::TooMuch),
        }
    }

    /// Looks for the rest of `missing` among all that the layers name, but not among what is told
    /// already.
    fn search(
        &mut self,
        missing: &mut HashMap<Ino, u32>,
        told: &HashSet<(Ino, EntryName)>,
    ) -> Result<(), Stop> {
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
                        && !told.contains(&(parent, name.clone()))
                        && seen.insert((parent, name.clone()))
                    {
                        match self.places.dir_path(parent) {
                            Some(dir) => self.add(&dir, name)?,
                            None if self.is_in_attic(parent, None) => {}
                            None => continue,
                        }
                        find_one(missing, ino);
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells of `name` in the directory `parent`.
    fn tell_name(&mut self, parent: Ino, name: &EntryName) -> Result<(), Stop> {
        // Where the directory is gone, that is told of it.
        let Some(dir) = self.places.dir_path(parent) else {
            return Ok(());
        };
        self.add(&dir, name)?;
        let path = dir.join(name);
        match self.workspace.walk(self.state, &path) {
            Ok(child) if self.workspace.kind(self.state, &child)? == FileKind::Directory => {
                self.tell_beneath(path, child)
            }
            Ok(_) => Ok(()),
            // It may have been a directory.
            Err(FsError::NotFound | FsError::NotADirectory) => {
                self.paths.insert([path.as_bytes(), b"/"].concat());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Tells of a directory that changed itself: everything beneath may be out of reach now.
    fn tell_directory(&mut self, ino: Ino) -> Result<(), Stop> {
        let Some(path) = self.places.dir_path(ino) else {
            return Ok(());
        };
        let Some((parent, name)) = path.split_last() else {
            return Err(Stop::TooMuch);
        };
        self.add(&parent, &name)?;
        let found = self.workspace.walk(self.state, &path)?;
        self.tell_beneath(path, found)
    }

    /// Has git list every directory anew.
    fn tell_all_directories(&mut self) -> Result<(), Stop> {
        self.paths.insert(ANY_NAME.to_vec());
        let root = self.workspace.find(self.state, Ino::ROOT)?;
        self.tell_directories(RepoPath::root(), root)
    }

    /// Tells of all that is beneath the directory at `path`. What git knows of untracked files it
    /// knows for each directory by itself, so each is named.
    fn tell_beneath(&mut self, path: RepoPath, found: Found) -> Result<(), Stop> {
        if path.components().any(|name| name.is_dot_git()) || self.walked.contains(&path) {
            return Ok(());
        }
        self.paths.insert([path.as_bytes(), b"/"].concat());
        self.tell_directories(path, found)
    }

    /// Has git list the directory at `path`, and those beneath, anew.
    fn tell_directories(&mut self, path: RepoPath, found: Found) -> Result<(), Stop> {
        let mut open = vec![(path, found)];
        while let Some((path, found)) = open.pop() {
            // git ignores what is carried, and does not look.
            let is_carried =
                self.workspace.carried_path(self.state, &found).as_ref() == Some(&path);
            if is_carried || !self.walked.insert(path.clone()) {
                continue;
            }
            if self.paths.len() > PATHS_MAX
                || path.components().any(|name| is_shunned(name.as_bytes()))
            {
                return Err(Stop::TooMuch);
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

    /// Whether the node, which is no directory, stands where it did in the base; then that is told,
    /// if anybody can see it there.
    fn tell_base_place(&mut self, ino: Ino) -> Result<bool, Stop> {
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
            return Ok(self.is_in_attic(parent, Some(base_parent)));
        };
        // Where the directory itself went, nothing is left that says so of the name.
        match self.workspace.walk(self.state, &dir.join(&name)) {
            Ok(there) if there.ino == ino => self.add(&dir, &name).map(|()| true),
            Ok(_) | Err(FsError::NotFound | FsError::NotADirectory) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds `name` in the directory at `dir`, and that the directory is to be listed anew.
    fn add(&mut self, dir: &RepoPath, name: &EntryName) -> Result<(), Stop> {
        let mut outer = RepoPath::root();
        for (depth, component) in dir.components().chain([name.clone()]).enumerate() {
            if component.is_dot_git() {
                // Whether a directory is a repository of its own is what its `.git` says. The
                // fork's own is no news.
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
            return Err(Stop::TooMuch);
        }
        self.paths.insert(outer.as_bytes().to_vec());
        if is_shunned(name.as_bytes()) {
            self.paths.insert(in_dir(dir, ANY_NAME));
        }
        match self.paths.len() > PATHS_MAX {
            true => Err(Stop::TooMuch),
            false => Ok(()),
        }
    }

    /// Whether what keeps the directory is the attic, where nobody sees it. `base_path` is that of
    /// a base directory, which need not be in a layer.
    fn is_in_attic(&self, ino: Ino, base_path: Option<RepoPath>) -> bool {
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

/// One of the names was found.
fn find_one(missing: &mut HashMap<Ino, u32>, ino: Ino) {
    if let Some(count) = missing.get_mut(&ino) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            missing.remove(&ino);
        }
    }
}

fn in_dir(dir: &RepoPath, name: &[u8]) -> Vec<u8> {
    match dir.is_root() {
        true => name.to_vec(),
        false => [dir.as_bytes(), b"/", name].concat(),
    }
}

/// Whether git may take the name for another spelling of `.git`, and then forgets what it is told
/// of it (`verify_path`). Some that it does not are among them.
fn is_shunned(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_dot_git = |part: &[u8]| {
        let rest = part
            .strip_prefix(DOT_GIT)
            .or_else(|| part.strip_prefix(b"git~1"));
        let end = rest.map(|rest| rest.iter().find(|byte| !b". ".contains(byte)));
        matches!(end, Some(None | Some(b':')))
    };
    // Bytes that are not ASCII may be characters that some file systems drop.
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
            let since = Since { position, is_stale };
            assert_eq!(Since::parse(&since.token()), Some(since));
        }
        for foreign in [
            "",
            "1700000000000000000",
            "builtin:fake",
            "tine:base:x-1",
            "tine:1",
            "tine:x:1",
        ] {
            assert_eq!(Since::parse(foreign), None, "{foreign}");
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
