//! Refusals of an untrusted fork outside its own git directory.
//!
//! See [`tine_dotgit::guarding`]. Only a name that git reads in a git directory is looked at, and
//! what is in a directory with the name `hooks`.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use super::dot_git::entry;
use super::{Operations, Refusal};
use crate::entries::Entry;
use crate::errno::{self, Errno};
use tine_attr::{Attr, FileKind, Ino};
use tine_dotgit::GitDirectory;
use tine_dotgit::guarding::{
    GitRole, GuardedTree, MAX_CHECKED, NameChecks, NameVerdict, NewFile, Refusals,
    is_fleeting_name, is_guarded_name, spliced,
};
use tine_path::{EntryName, RepoPath};
use tine_workspace::{Caller, FsError, RenameMode, Workspace};

/// Nodes of a mount whose names matter to the guard.
///
/// The kernel knows them by these names, or knew them.
#[derive(Default)]
pub(super) struct GuardedNodes {
    /// Directories with the name `hooks`.
    hooks: Mutex<HashSet<Ino>>,
    /// Files that lead to a git directory, while they are written.
    pointers: Mutex<HashSet<Ino>>,
    /// Copies that are shown of files `.git`: directory and name of each.
    copies: Mutex<HashMap<Ino, (Ino, Vec<u8>)>>,
}

/// The fork's files.
struct Files<'a>(&'a Workspace);

impl GuardedTree for Files<'_> {
    type Error = FsError;

    fn kind(&self, path: &[u8]) -> Result<Option<FileKind>, FsError> {
        let path = RepoPath::parse(path).map_err(|_| FsError::Invalid)?;
        match self.0.resolve(&path) {
            Ok(attr) => Ok(Some(attr.kind)),
            Err(FsError::NotFound | FsError::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn content(&self, path: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        let path = RepoPath::parse(path).map_err(|_| FsError::Invalid)?;
        self.0.read_regular(&path, MAX_CHECKED)
    }

    fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, FileKind)>, FsError> {
        let path = RepoPath::parse(path).map_err(|_| FsError::Invalid)?;
        let names = self.0.list_path(&path)?.into_iter();
        Ok(names
            .map(|(name, kind, _)| (name.as_bytes().to_vec(), kind))
            .collect())
    }
}

impl Operations {
    /// Returns the guard, if the fork is not trusted.
    fn refusals(&self) -> Option<(&GitDirectory, &Refusals)> {
        let git = self.git_dir.as_deref()?;
        Some((git, git.refusals()?))
    }

    /// Returns whether the guard must look at a name.
    fn is_guarded(&self, parent: Ino, name: &[u8]) -> bool {
        self.refusals().is_some()
            && (is_guarded_name(name) || self.guarded.hooks.lock().contains(&parent))
    }

    /// Returns whether the kernel may not cache a guarded name.
    pub(super) fn is_fleeting(&self, parent: Ino, name: &[u8]) -> bool {
        self.refusals().is_some() && (is_fleeting_name(name) || self.is_guarded(parent, name))
    }

    /// Looks up a file that nobody may change. `None` for another name.
    pub(super) fn lookup_guarded(
        &self,
        workspace: &Workspace,
        parent: Ino,
        name: &[u8],
    ) -> Result<Option<Entry>, Refusal> {
        let Some((git, refusals)) = self.refusals().filter(|_| self.is_guarded(parent, name))
        else {
            return Ok(None);
        };
        let Some(path) = path_at(workspace, parent, name)? else {
            return Ok(None);
        };
        let (tree, bytes) = (Files(workspace), path.as_bytes());
        let names = files(&tree);
        let role = names.role(bytes)?;
        if role == GitRole::Plain || tree.kind(bytes)? != Some(FileKind::Regular) {
            return Ok(None);
        }
        let content = tree.content(bytes)?.unwrap_or_default();
        if content.is_empty() && matches!(role, GitRole::GitFile | GitRole::CommonDir) {
            // Its creator has not written it yet.
            return Ok(None);
        }
        let attr = workspace.resolve(&path)?;
        let shown = names.shown(role, bytes, (content, attr.perm), refusals)?;
        if let Some(refused) = shown.refused {
            refusals.refuse(refused);
        }
        let attr = Attr {
            perm: shown.perm,
            ..attr
        };
        let found = git
            .show_copy(shown.content, &attr)
            .map_err(|error| host(&error))?;
        if let (GitRole::GitFile, Some(attr)) = (role, found.attr) {
            let place = (parent, name.to_vec());
            self.guarded.copies.lock().insert(attr.ino, place);
        }
        Ok(Some(entry(&found)))
    }

    /// Notes a name that the kernel learns, and limits its cache.
    pub(super) fn note_guarded(&self, parent: Ino, name: &[u8], mut entry: Entry) -> Entry {
        if !self.is_fleeting(parent, name) {
            return entry;
        }
        entry.name_ttl = std::time::Duration::ZERO;
        if let Some(attr) = entry.attr {
            self.note_node(name, attr.ino, attr.kind);
        }
        entry
    }

    /// Notes a node that has a name which matters.
    pub(super) fn note_node(&self, name: &[u8], ino: Ino, kind: FileKind) {
        if self.refusals().is_none() {
            return;
        }
        match (name, kind) {
            (b"hooks", FileKind::Directory) => {
                self.guarded.hooks.lock().insert(ino);
            }
            (b".git" | b"commondir", FileKind::Regular) => {
                self.guarded.pointers.lock().insert(ino);
            }
            _ => {}
        }
    }

    /// Forgets a node that the kernel has forgotten.
    pub(super) fn forget_guarded(&self, workspace: &Workspace, ino: Ino) {
        if self.refusals().is_some() && !workspace.is_remembered(ino) {
            self.guarded.hooks.lock().remove(&ino);
            self.guarded.pointers.lock().remove(&ino);
        }
    }

    /// Checks that a new file may get this name.
    pub(super) fn check_new(
        &self,
        workspace: &Workspace,
        caller: Caller,
        (parent, name): (Ino, &[u8]),
        new: NewFile<'_>,
    ) -> Result<(), Refusal> {
        let Some((_, refusals)) = self.refusals() else {
            return Ok(());
        };
        if !self.is_guarded(parent, name) && !matches!(new, NewFile::Symlink(_)) {
            return Ok(());
        }
        let Some(path) = path_at(workspace, parent, name)? else {
            return Ok(());
        };
        let tree = Files(workspace);
        if tree.kind(path.as_bytes())?.is_some() {
            // The change itself fails.
            return Ok(());
        }
        match files(&tree).new_name(path.as_bytes(), new)? {
            NameVerdict::Refused(refused) => Err(host(&refusals.refuse(refused))),
            NameVerdict::Allowed { renewed } => renew(workspace, caller, parent, &renewed),
            NameVerdict::AsCopy { .. } => Ok(()),
        }
    }

    /// Checks a rename. Returns true if it is done: the new name has a checked copy.
    pub(super) fn rename_guarded(
        &self,
        workspace: &Workspace,
        caller: Caller,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<bool, Refusal> {
        let Some((_, refusals)) = self.refusals() else {
            return Ok(false);
        };
        let Some(moved) = workspace.number_at(parent, name)? else {
            return Ok(false);
        };
        let attr = workspace.getattr(moved)?;
        let is_file = !matches!(attr.kind, FileKind::Directory | FileKind::Symlink);
        let is_exchange = mode == RenameMode::Exchange;
        let is_plain = !self.is_guarded(new_parent, new_name);
        if is_plain && is_file && !(is_exchange && self.is_guarded(parent, name)) {
            return Ok(false);
        }
        let from = path_at(workspace, parent, name)?;
        let to = path_at(workspace, new_parent, new_name)?;
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(false);
        };
        let tree = Files(workspace);
        let names = files(&tree);
        match names.rename(from.as_bytes(), to.as_bytes(), attr.kind, is_exchange)? {
            NameVerdict::Refused(refused) => Err(host(&refusals.refuse(refused))),
            NameVerdict::Allowed { renewed } => {
                renew(workspace, caller, new_parent, &renewed)?;
                self.note_node(new_name, moved, attr.kind);
                Ok(false)
            }
            NameVerdict::AsCopy { content } => {
                put_copy(workspace, caller, new_parent, new_name, attr.perm, &content)?;
                workspace.unlink(caller, parent, name)?;
                Ok(true)
            }
        }
    }

    /// Checks a write to a file that leads to a git directory.
    pub(super) fn check_write(
        &self,
        workspace: &Workspace,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let Some((_, refusals)) = self.refusals() else {
            return Ok(());
        };
        if !self.guarded.pointers.lock().contains(&ino) {
            return Ok(());
        }
        let paths = workspace.paths_of_files(&HashSet::from([ino]));
        let Some(path) = paths.get(&ino) else {
            return Ok(());
        };
        let mut before = vec![0; 4096];
        let len = workspace.read_into(ino, 0, &mut before)?;
        before.truncate(len);
        let content = spliced(&before, offset, data).ok_or(Errno::EPERM)?;
        let tree = Files(workspace);
        let names = files(&tree);
        let role = names.role(path.as_bytes())?;
        match names.leads_out(role, path.as_bytes(), &content, refusals)? {
            Some(refused) => Err(host(&refusals.refuse(refused))),
            None => Ok(()),
        }
    }

    /// Returns whether a node is a copy of a file `.git`.
    pub(super) fn is_git_file(&self, ino: Ino) -> bool {
        self.refusals().is_some() && self.guarded.copies.lock().contains_key(&ino)
    }

    /// Forgets the copy of a file `.git`.
    pub(super) fn forget_copy(&self, ino: Ino) {
        if self.refusals().is_some() {
            self.guarded.copies.lock().remove(&ino);
        }
    }

    /// Writes a file `.git` through its copy: all of it at once.
    pub(super) fn write_git_file(
        &self,
        workspace: &Workspace,
        caller: Caller,
        ino: Ino,
        (offset, data): (u64, &[u8]),
    ) -> Result<(), Refusal> {
        let place = self.guarded.copies.lock().get(&ino).cloned();
        let (Some((parent, name)), Some((_, refusals))) = (place, self.refusals()) else {
            return Err(Errno::ESTALE.into());
        };
        let path = path_at(workspace, parent, &name)?.ok_or(Errno::ESTALE)?;
        let tree = Files(workspace);
        if offset != 0 {
            return Err(Errno::EPERM.into());
        }
        if let Some(refused) =
            files(&tree).leads_out(GitRole::GitFile, path.as_bytes(), data, refusals)?
        {
            return Err(host(&refusals.refuse(refused)));
        }
        let perm = workspace.resolve(&path)?.perm;
        put_copy(workspace, caller, parent, &name, perm, data)
    }
}

fn files<'a>(tree: &'a Files<'a>) -> NameChecks<'a, Files<'a>> {
    NameChecks {
        tree,
        is_git_dir: false,
    }
}

fn host(error: &std::io::Error) -> Refusal {
    Refusal::Errno(errno::of_host(error))
}

/// Returns the path of a name; `None` if its directory is gone.
fn path_at(workspace: &Workspace, parent: Ino, name: &[u8]) -> Result<Option<RepoPath>, FsError> {
    let name = EntryName::new(name)?;
    Ok(workspace.path_of_dir(parent).map(|dir| dir.join(&name)))
}

/// Replaces files in a directory by copies.
///
/// No program has these open.
fn renew(
    workspace: &Workspace,
    caller: Caller,
    parent: Ino,
    paths: &[Vec<u8>],
) -> Result<(), Refusal> {
    let tree = Files(workspace);
    for path in paths {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let found = workspace.number_at(parent, name)?;
        if let (Some(ino), Some(content)) = (found, tree.content(path)?) {
            let perm = workspace.getattr(ino)?.perm;
            put_copy(workspace, caller, parent, name, perm, &content)?;
        }
    }
    Ok(())
}

/// Writes a new file, which replaces what has the name.
fn put_copy(
    workspace: &Workspace,
    caller: Caller,
    parent: Ino,
    name: &[u8],
    perm: u16,
    content: &[u8],
) -> Result<(), Refusal> {
    let new = [name, b".tine-new"].concat();
    if workspace.number_at(parent, &new)?.is_some() {
        // Left by a process that died.
        workspace.unlink(caller, parent, &new)?;
    }
    let as_is = Caller { umask: 0, ..caller };
    let mode = libc::S_IFREG | u32::from(perm & 0o777);
    let made = workspace.mknod(as_is, parent, &new, mode, 0)?;
    let put = workspace
        .write(made.ino, 0, content, None)
        .and_then(|()| workspace.rename(caller, parent, &new, parent, name, RenameMode::Replace));
    workspace.forget(made.ino, 1);
    Ok(put?)
}
