//! The nodes that the kernel knows.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::conflicts::OwnLoose;
use crate::layout::{self, Lent};
use crate::packed::SeenSinceLock;
use crate::{errno, is_missing};
use tine_attr::{Attr, FileKind, Ino, InoMap, Timestamp};
use tine_sys::beneath::{self, HostStat};
use tine_sys::host_dir;

/// Second bit of the numbers of nodes in the git directory.
///
/// The counter of a fork's layers never reaches it.
const GIT_BIT: u64 = 1 << 62;

/// Number of the git directory itself.
pub(crate) const ROOT: Ino = Ino(Ino::NEW_BIT | GIT_BIT | 1);

/// Number of files and directories that are kept open, of each kind.
pub(crate) const MAX_OPEN: usize = 512;

/// Files that stay open, whatever else is.
const AT_TOP: [&[u8]; 4] = [b"HEAD", b"index", b"config", layout::PACKED_REFS];

/// Number of missing names that are remembered.
const MAX_MISSING: usize = 8192;

/// Returns the node of the symlink to a lent directory's objects.
pub(crate) fn link(top: usize) -> Ino {
    Ino(ROOT.0 + 1 + top as u64)
}

/// Returns whether a node is in a git directory.
pub fn is_git_node(ino: Ino) -> bool {
    ino.0 >> 62 == 0b11 && ino.0 <= Ino::NEW_BIT | GIT_BIT | u64::from(u32::MAX)
}

/// Name in a directory.
pub(crate) type Name = (Ino, Vec<u8>);

/// Identity of a file of the host.
pub(crate) type HostId = (u64, u64);

/// Version of a lent file: size, and times of the last changes.
///
/// The main repository replaces its files, and the disk gives the number of a removed file to the
/// next one. What the kernel has cached of a node must never be shown for another version.
pub(crate) type Version = (u64, Timestamp, Timestamp);

/// Returns the version of a lent file.
pub(crate) fn version_of(stat: &HostStat) -> Version {
    (stat.size, stat.mtime, stat.ctime)
}

/// A node that the kernel may know.
pub(crate) struct Node {
    pub body: Body,
    /// Number of lookups that the kernel has not forgotten.
    pub lookups: u64,
    /// Names of the node: directory and name. Empty for a removed one, and for the root.
    pub names: Vec<(Ino, Vec<u8>)>,
}

/// Directory of the fork's own.
pub(crate) enum OwnDirectory {
    /// It was used lately, or has lost its name.
    Open(Arc<File>),
    /// It is opened for each use.
    Closed(HostId),
}

/// Kind and state of a node.
pub(crate) enum Body {
    /// A directory. `own` is the fork's, if it exists.
    Dir { own: Option<OwnDirectory> },
    /// A file of the fork's own.
    Own {
        id: HostId,
        /// Open file, if it may vanish or was used lately.
        file: Option<Arc<File>>,
        /// Attributes that the kernel was told last.
        told: HostStat,
    },
    /// A file that the main repository lends.
    Lent {
        id: HostId,
        file: Option<Arc<File>>,
        version: Version,
        at: Lent,
    },
    /// A computed file, immutable.
    Computed {
        content: Arc<[u8]>,
        time: Timestamp,
        /// File that it is a copy of, if any.
        of: Option<HostStat>,
    },
    /// A symlink to a directory of objects of the host. It has no name and is never dropped.
    Link { target: Arc<[u8]> },
}

impl Body {
    /// Returns the body of an open directory of the fork's own.
    pub(crate) fn own_dir(opened: Arc<File>) -> Body {
        Body::Dir {
            own: Some(OwnDirectory::Open(opened)),
        }
    }
}

/// All that changes while the git directory is served.
pub(crate) struct State {
    pub nodes: InoMap<Node>,
    /// Names that nodes have.
    by_name: HashMap<(Ino, Vec<u8>), Ino>,
    /// Files of the host that have nodes.
    pub by_host: HashMap<HostId, Ino>,
    next: u64,
    /// Nodes with open files that may be closed, the oldest first.
    open: VecDeque<Ino>,
    /// The same for those that are kept open for longer.
    open_longer: VecDeque<Ino>,
    /// The same for directories.
    open_dirs: VecDeque<Ino>,
    /// Names that the kernel was told are missing.
    pub missing: HashSet<(Ino, Vec<u8>)>,
    /// Names that the kernel is being made to forget.
    pub forgetting: Vec<Name>,
    /// Lent paths that the fork removed.
    pub hidden: BTreeSet<Vec<u8>>,
    /// Names of the fork's own loose refs.
    pub own_loose: OwnLoose,
    /// Lent directories that a program removed when no ref was visible.
    pub removed_dirs: BTreeSet<Vec<u8>>,
    /// Refs that were just packed, and when.
    ///
    /// git removes the loose files of these next.
    pub packed_now: (HashSet<Vec<u8>>, Option<Instant>),
    /// Lent refs that programs saw since one locked `packed-refs`.
    ///
    /// `None` without a lock.
    pub seen_since_lock: Option<SeenSinceLock>,
    /// Time of the last comparison with the host's files.
    pub compared: Timestamp,
    /// Times of directories at the last comparisons that found a change.
    pub dir_times: HashMap<Ino, Timestamp>,
}

impl State {
    /// Makes a state in which the nodes [`link`] lead to `links`.
    pub(crate) fn new(
        own: Arc<File>,
        hidden: BTreeSet<Vec<u8>>,
        links: impl Iterator<Item = Arc<[u8]>>,
    ) -> State {
        let mut state = State {
            nodes: InoMap::default(),
            by_name: HashMap::new(),
            by_host: HashMap::new(),
            next: ROOT.0,
            open: VecDeque::new(),
            open_longer: VecDeque::new(),
            open_dirs: VecDeque::new(),
            missing: HashSet::new(),
            forgetting: Vec::new(),
            hidden,
            own_loose: OwnLoose::default(),
            removed_dirs: BTreeSet::new(),
            packed_now: (HashSet::new(), None),
            seen_since_lock: None,
            compared: Timestamp::now(),
            dir_times: HashMap::new(),
        };
        let unnamed = |body| Node {
            body,
            lookups: 1,
            names: Vec::new(),
        };
        state.nodes.insert(ROOT, unnamed(Body::own_dir(own)));
        for target in links {
            let ino = state.allocate();
            state.nodes.insert(ino, unnamed(Body::Link { target }));
        }
        state
    }

    /// Returns a number that no node had.
    fn allocate(&mut self) -> Ino {
        self.next = self.next.wrapping_add(1);
        Ino(self.next)
    }

    /// Returns the node `ino`.
    pub(crate) fn node(&self, ino: Ino) -> io::Result<&Node> {
        self.nodes.get(&ino).ok_or_else(|| errno(libc::ESTALE))
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> io::Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or_else(|| errno(libc::ESTALE))
    }

    /// Counts one lookup of a node by the kernel.
    pub(crate) fn count_lookup(&mut self, ino: Ino) -> io::Result<()> {
        let node = self.node_mut(ino)?;
        node.lookups = node.lookups.saturating_add(1);
        Ok(())
    }

    /// Returns the path of a node, in the git directory.
    ///
    /// # Errors
    /// `ESTALE` if no name leads to it.
    pub(crate) fn path(&self, ino: Ino) -> io::Result<Vec<u8>> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (parent, name) = self
                .node(at)?
                .names
                .first()
                .ok_or_else(|| errno(libc::ESTALE))?;
            parts.push(name);
            at = *parent;
        }
        parts.reverse();
        Ok(parts.join(&b'/'))
    }

    /// Returns the fork's own directory `ino`, if it exists.
    ///
    /// # Errors
    /// `ENOTDIR` if the node is no directory.
    pub(crate) fn own_dir(&self, ino: Ino) -> io::Result<Option<Arc<File>>> {
        let node = self.node(ino)?;
        let Body::Dir { own } = &node.body else {
            return Err(errno(libc::ENOTDIR));
        };
        let id = match own {
            None => return Ok(None),
            Some(OwnDirectory::Open(own)) => return Ok(Some(own.clone())),
            Some(OwnDirectory::Closed(id)) => *id,
        };
        let gone = || errno(libc::ESTALE);
        let (parent, name) = node.names.first().ok_or_else(gone)?;
        let above = self.own_dir(*parent)?.ok_or_else(gone)?;
        let own = host_dir::open_dir(&above, name)?;
        let stat = beneath::stat(&own)?;
        if (stat.dev, stat.ino) != id {
            return Err(gone());
        }
        Ok(Some(Arc::new(own)))
    }

    /// Returns the identity of the fork's own directory `ino`, if any.
    ///
    /// # Errors
    /// `ENOTDIR` if the node is no directory, and the error of `fstat(2)`.
    pub(crate) fn own_dir_id(&self, ino: Ino) -> io::Result<Option<HostId>> {
        match &self.node(ino)?.body {
            Body::Dir { own: None } => Ok(None),
            Body::Dir {
                own: Some(OwnDirectory::Closed(id)),
            } => Ok(Some(*id)),
            Body::Dir {
                own: Some(OwnDirectory::Open(own)),
            } => beneath::stat(own).map(|stat| Some((stat.dev, stat.ino))),
            _ => Err(errno(libc::ENOTDIR)),
        }
    }

    /// Returns whether the node is an own directory that is open.
    pub(crate) fn is_open_dir(&self, ino: Ino) -> bool {
        let body = self.nodes.get(&ino).map(|node| &node.body);
        matches!(
            body,
            Some(Body::Dir {
                own: Some(OwnDirectory::Open(_))
            })
        )
    }

    /// Sets a node's own directory, and closes the oldest others.
    pub(crate) fn set_own_dir(&mut self, ino: Ino, opened: Arc<File>) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.body = Body::own_dir(opened);
        }
        self.note_open_dir(ino);
    }

    fn note_open_dir(&mut self, ino: Ino) {
        self.open_dirs.retain(|open| *open != ino);
        self.open_dirs.push_back(ino);
        while self.open_dirs.len() > MAX_OPEN {
            let oldest = self.open_dirs.pop_front();
            let oldest = oldest.and_then(|oldest| self.nodes.get_mut(&oldest));
            if let Some(Node {
                body: Body::Dir { own: Some(own) },
                ..
            }) = oldest
                && let OwnDirectory::Open(opened) = own
                && let Ok(stat) = beneath::stat(opened)
            {
                *own = OwnDirectory::Closed((stat.dev, stat.ino));
            }
        }
    }

    /// Returns the fork's own directory `ino`, and creates a lent one.
    pub(crate) fn make_own_dir(&mut self, ino: Ino) -> io::Result<Arc<File>> {
        if let Some(own) = self.own_dir(ino)? {
            return Ok(own);
        }
        let (parent, name) = self
            .node(ino)?
            .names
            .first()
            .cloned()
            .ok_or_else(|| errno(libc::ENOENT))?;
        let above = self.make_own_dir(parent)?;
        match host_dir::make_dir(&above, &name, 0o755) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
            Ok(()) if tine_sys::process::effective_uid() == 0 => {
                let owner = beneath::stat(&above)?;
                host_dir::set_owner(&above, &name, Some(owner.uid), Some(owner.gid))?;
            }
            _ => {}
        }
        let made = Arc::new(host_dir::open_dir(&above, &name)?);
        self.set_own_dir(ino, made.clone());
        Ok(made)
    }

    /// Returns the node at a name that is known, if any.
    pub(crate) fn known_at(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        self.by_name.get(&(parent, name.to_vec())).copied()
    }

    /// Enters what is at a name now: as a new node, or as a name of a known one.
    pub(crate) fn enter(&mut self, parent: Ino, name: &[u8], body: Body) -> Ino {
        let entry = (parent, name.to_vec());
        self.missing.remove(&entry);
        let id = match &body {
            Body::Own { id, .. } => Some(*id),
            Body::Lent { .. } | Body::Dir { .. } | Body::Computed { .. } | Body::Link { .. } => {
                None
            }
        };
        let here = self.by_name.get(&entry).copied();
        let is_own_dir = matches!(body, Body::Dir { own: Some(_) });
        if let (Some(ino), Body::Dir { .. }) = (here, &body)
            && let Some(Node {
                body: known @ Body::Dir { .. },
                ..
            }) = self.nodes.get_mut(&ino)
        {
            if is_own_dir {
                *known = body;
                self.note_open_dir(ino);
            }
            return ino;
        }
        if let Body::Lent { id, version, .. } = &body
            && let Some(ino) = here
            && let Some(Body::Lent {
                id: known_id,
                version: known_version,
                ..
            }) = self.nodes.get(&ino).map(|node| &node.body)
            && (known_id, known_version) == (id, version)
        {
            return ino;
        }
        let known = id.and_then(|id| self.by_host.get(&id).copied());
        if here.is_some() && here != known {
            self.take_name(parent, name);
        }
        if let Some(ino) = known
            && let Some(node) = self.nodes.get_mut(&ino)
        {
            if let (Body::Own { told, .. }, Body::Own { told: now, .. }) = (&mut node.body, body) {
                *told = now;
            }
            if !node.names.contains(&entry) {
                node.names.push(entry.clone());
                self.by_name.insert(entry, ino);
            }
            return ino;
        }
        let ino = self.allocate();
        if let Some(id) = id {
            self.by_host.insert(id, ino);
        }
        let node = Node {
            body,
            lookups: 0,
            names: vec![entry.clone()],
        };
        self.nodes.insert(ino, node);
        self.by_name.insert(entry, ino);
        if is_own_dir {
            self.note_open_dir(ino);
        }
        ino
    }

    /// Enters a node without a name.
    pub(crate) fn enter_nameless(&mut self, body: Body) -> Ino {
        let ino = self.allocate();
        let node = Node {
            body,
            lookups: 0,
            names: Vec::new(),
        };
        self.nodes.insert(ino, node);
        ino
    }

    /// Takes a name from the node that has it.
    pub(crate) fn take_name(&mut self, parent: Ino, name: &[u8]) {
        let Some(ino) = self.by_name.remove(&(parent, name.to_vec())) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        node.names.retain(|(dir, at)| *dir != parent || at != name);
        if node.names.is_empty() {
            // From now on it can be reached by nothing else.
            for open in [&mut self.open, &mut self.open_longer, &mut self.open_dirs] {
                open.retain(|open| *open != ino);
            }
            // The disk may give the number to another file, unless this one is open.
            if let Body::Own { id, file: None, .. } = node.body
                && self.by_host.get(&id) == Some(&ino)
            {
                self.by_host.remove(&id);
            }
            if node.lookups == 0 {
                self.drop_node(ino);
            }
        }
    }

    /// Gives a node another name in place of one that it has.
    pub(crate) fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8])) {
        let Some(ino) = self.by_name.remove(&(from.0, from.1.to_vec())) else {
            return;
        };
        let entry = (to.0, to.1.to_vec());
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.names
                .retain(|(dir, at)| *dir != from.0 || at != from.1);
            if !node.names.contains(&entry) {
                node.names.push(entry.clone());
            }
        }
        self.missing.remove(&entry);
        self.by_name.insert(entry, ino);
    }

    pub(crate) fn drop_node(&mut self, ino: Ino) {
        let Some(node) = self.nodes.remove(&ino) else {
            return;
        };
        for name in node.names {
            if self.by_name.get(&name) == Some(&ino) {
                self.by_name.remove(&name);
            }
        }
        if let Body::Own { id, .. } = node.body
            && self.by_host.get(&id) == Some(&ino)
        {
            self.by_host.remove(&id);
        }
        for open in [&mut self.open, &mut self.open_longer, &mut self.open_dirs] {
            open.retain(|open| *open != ino);
        }
    }

    /// Keeps an open file for the node, and closes the oldest others.
    pub(crate) fn keep_open(&mut self, ino: Ino, opened: &Arc<File>, kept: KeptOpen) {
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        if let Body::Own { file, .. } | Body::Lent { file, .. } = &mut node.body {
            *file = Some(opened.clone());
        }
        if node.names.is_empty() {
            return;
        }
        let open = match kept {
            KeptOpen::Always => return,
            KeptOpen::Longer => &mut self.open_longer,
            KeptOpen::Shortly => &mut self.open,
        };
        open.push_back(ino);
        while open.len() > MAX_OPEN {
            let oldest = open.pop_front();
            let oldest = oldest.and_then(|oldest| self.nodes.get_mut(&oldest));
            if let Some(Node {
                body: Body::Own { file, .. } | Body::Lent { file, .. },
                ..
            }) = oldest
            {
                *file = None;
            }
        }
    }

    /// Remembers that the kernel was told that a name is missing.
    ///
    /// Returns whether the kernel may cache that.
    pub(crate) fn note_missing(&mut self, parent: Ino, name: &[u8]) -> bool {
        if self.missing.len() >= MAX_MISSING {
            return false;
        }
        self.missing.insert((parent, name.to_vec()));
        true
    }
}

/// Returns the attributes of the fork's own file, as programs see them.
pub(crate) fn attr_of(ino: Ino, stat: &HostStat) -> Attr {
    Attr {
        ino,
        kind: stat.kind,
        perm: stat.perm,
        nlink: u32::try_from(stat.nlink).unwrap_or(u32::MAX),
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
    }
}

/// Returns the attributes of a lent file: nobody may write it.
pub(crate) fn lent_attr(ino: Ino, stat: &HostStat) -> Attr {
    if stat.kind == FileKind::Directory {
        return Attr {
            mtime: listing_time(None, stat),
            ..attr_of(ino, stat)
        };
    }
    Attr {
        perm: stat.perm & !0o222,
        ..attr_of(ino, stat)
    }
}

/// Returns the attributes of an own directory over a lent one.
pub(crate) fn merged_attr(ino: Ino, own: &HostStat, lent: Option<&HostStat>) -> Attr {
    let attr = attr_of(ino, own);
    match lent.filter(|lent| lent.kind == FileKind::Directory) {
        Some(lent) => Attr {
            mtime: listing_time(Some(own), lent),
            ..attr
        },
        None => attr,
    }
}

/// Returns the earliest time that a change at `time` may have.
pub(crate) fn before(time: Timestamp) -> Timestamp {
    /// Twice the longest tick of a file system's clock.
    const TICK_NANOS: u32 = 20_000_000;

    match time.nanos.checked_sub(TICK_NANOS) {
        Some(nanos) => Timestamp { nanos, ..time },
        None => Timestamp {
            secs: time.secs.saturating_sub(1),
            nanos: time.nanos.saturating_add(1_000_000_000 - TICK_NANOS),
        },
    }
}

/// Returns a time that differs after a change of a lent directory.
///
/// The kernel keeps a listing until this time differs. The main repository's clock has ticks: a
/// directory that changed just now may change again at the same time.
fn listing_time(own: Option<&HostStat>, lent: &HostStat) -> Timestamp {
    let now = Timestamp::now();
    match own {
        _ if lent.mtime >= before(now) => now,
        None => lent.mtime,
        Some(own) => Timestamp {
            secs: own.mtime.secs.max(lent.mtime.secs),
            nanos: own.mtime.nanos.wrapping_add(lent.mtime.nanos) % 1_000_000_000,
        },
    }
}

/// Returns the attributes of a file that is missing as `None`.
pub(crate) fn stat_if_there(dir: &File, name: &[u8]) -> io::Result<Option<HostStat>> {
    match beneath::stat_in(dir, name) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Time for which a file is kept open that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptOpen {
    /// While the kernel knows it.
    Always,
    /// Until many others of this kind were opened.
    Longer,
    /// Until many others were opened.
    Shortly,
}

impl KeptOpen {
    /// Returns the time for the lent file at this path.
    ///
    /// git programs keep packs and packed refs mapped.
    pub(crate) fn of_lent(path: &[u8]) -> KeptOpen {
        let is_in_pack = || path.windows(b"/pack/".len()).any(|part| part == b"/pack/");
        if path == layout::PACKED_REFS || layout::is_at_or_below(path, layout::TINE) && is_in_pack()
        {
            KeptOpen::Always
        } else {
            KeptOpen::Shortly
        }
    }

    /// Returns the time for the fork's own file at this path.
    ///
    /// tine replaces files on the host. A program that has one open must go on reading it. Objects
    /// are many, and are removed only through the mount's tables.
    pub(crate) fn of_own(path: &[u8]) -> KeptOpen {
        if AT_TOP.contains(&path) {
            KeptOpen::Always
        } else if layout::is_at_or_below(path, b"objects") {
            KeptOpen::Shortly
        } else {
            KeptOpen::Longer
        }
    }
}
