//! Initial content of a new fork: a base and its index, or another fork's.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use super::snapshots::dot_git_with;
use super::{Fork, Store, files};
use crate::StoreError;
use crate::fork::{ForkName, Parent};
use crate::snapshot::SnapshotRecord;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::index::{BaseStat, Stamp, write_base_index, write_stamped_index};
use tine_git::{Base, ConversionSettings, ObjectId, Repository, Worktree, program};
use tine_layer::{Dentry, FrozenLayer, Layer, LayerId, Node, Op, inos_below};
use tine_path::{DOT_GIT, RepoPath};
use tine_workspace::changed::{base_name, beginning};
use tine_workspace::{BaseAttrs, BaseTimes, CarryRecord, CarryRules, base_root};

/// Time of entries in a cached index, replaced for every fork.
///
/// git takes 0 for "unknown".
const CACHED_TIME: Timestamp = Timestamp::from_secs(1);

/// Base of a fork to be made or mended.
///
/// It has the tree, the attributes of its nodes and its index.
#[derive(Clone)]
pub(super) struct PreparedBase {
    pub base: Arc<Base>,
    pub attrs: BaseAttrs,
    pub times: Option<Arc<BaseTimes>>,
    /// Path of the cached index, which has no times yet.
    cached_index: PathBuf,
}

impl PreparedBase {
    /// Writes the index with this base's times to `to`.
    pub(super) fn write_index(&self, to: &Path) -> Result<(), StoreError> {
        let hasher = self.base.hasher();
        let modified = |path: &[u8]| {
            let known = self.times.as_ref().zip(RepoPath::parse(path).ok());
            let known = known.and_then(|(times, path)| times.get(hasher.ino(&path)));
            known.unwrap_or(self.attrs.time)
        };
        let stamp = Stamp {
            changed: self.attrs.change_time(),
            modified: &modified,
            latest: self.attrs.time,
        };
        let hash_kind = self.base.repository().hash_kind();
        let written = write_stamped_index(&self.cached_index, hash_kind, &stamp, to);
        if written.is_err() {
            // A damaged one is rebuilt for the next fork.
            let _ = fs::remove_file(&self.cached_index);
        }
        Ok(written?)
    }
}

/// Fork from which a new fork is made.
#[derive(Clone)]
pub struct ParentOptions {
    /// Name of the parent.
    pub name: ForkName,
    /// The open parent.
    pub fork: Arc<Fork>,
    /// Snapshot of the parent to begin at; `None`: its live state.
    pub snapshot: Option<SnapshotRecord>,
}

/// State to make a fork of: a commit whose tree becomes its view.
///
/// The difference to HEAD's tree is uncommitted in the new fork.
#[derive(Debug, Clone)]
pub struct ForkState {
    /// Commit whose tree becomes the view.
    pub commit_id: ObjectId,
    /// Commit of the new HEAD; `None` on a branch without a commit.
    pub head: Option<ObjectId>,
    /// Commit that counts as the fork's base commit.
    pub base: Option<ObjectId>,
    /// Commit after which the own commits begin; `None` if all are own.
    pub fork_point: Option<ObjectId>,
    /// Branch that the state came from (short name).
    pub from_branch: Option<String>,
    /// Source of the state, for the reflog.
    pub origin: String,
}

/// Initial content of a new fork.
pub(super) struct InitialContent {
    pub base: Arc<Base>,
    pub attrs: BaseAttrs,
    pub times: Option<Arc<BaseTimes>>,
    pub base_commit: Option<String>,
    /// Newest first.
    pub frozen: Vec<Arc<FrozenLayer>>,
    /// See [`LowerStack::since`](tine_workspace::LowerStack::since).
    pub min_ctime: Option<Timestamp>,
    pub index: IndexSource,
    pub parent: Option<Parent>,
    pub carry: Option<CarryRecord>,
}

/// Source of a new fork's index.
pub(super) enum IndexSource {
    /// The base's index, complete for the fork's tree.
    Base(PreparedBase),
    /// A copy of this index.
    File(PathBuf),
    /// An index that git makes from the tree of this commit.
    Commit(ObjectId),
    /// Base index for entries equal to HEAD's; other entries from HEAD.
    ///
    /// The other entries have no file status.
    Head {
        base: PreparedBase,
        commit_id: Option<ObjectId>,
    },
}

impl InitialContent {
    /// Returns an unchanged base.
    pub(super) fn of_base(
        prepared: PreparedBase,
        commit_id: Option<ObjectId>,
        carry: Option<CarryRecord>,
    ) -> InitialContent {
        InitialContent {
            base: prepared.base.clone(),
            attrs: prepared.attrs,
            times: prepared.times.clone(),
            base_commit: commit_id.map(|id| id.to_string()),
            frozen: Vec::new(),
            min_ctime: None,
            index: IndexSource::Base(prepared),
            parent: None,
            carry,
        }
    }

    /// Writes a new worktree's index and syncs the worktree.
    ///
    /// A record must never name a worktree that a power loss could remove.
    pub(super) fn fill_worktree(
        &self,
        repository: &Repository,
        worktree: &Worktree,
    ) -> Result<(), StoreError> {
        match &self.index {
            IndexSource::Base(base) => base.write_index(&worktree.index_path())?,
            IndexSource::File(path) => copy_index(path, &worktree.index_path())?,
            IndexSource::Commit(commit_id) => {
                let mut git = on_index(repository, worktree);
                program::run(git.arg("read-tree").arg(commit_id.to_string()), b"")?;
            }
            IndexSource::Head { base, commit_id } => {
                let mut git = on_index(repository, worktree);
                git.arg("read-tree");
                match commit_id {
                    // Entries that are the same keep their file status.
                    Some(commit_id) => {
                        base.write_index(&worktree.index_path())?;
                        git.args(["-i", "-m"]).arg(commit_id.to_string());
                    }
                    None => drop(git.arg("--empty")),
                }
                program::run(&mut git, b"")?;
            }
        }
        files::sync_files_in(worktree.git_dir())
    }

    /// Makes the fork's open layer, which contains at most the `.git` file.
    ///
    /// That file makes the fork's root a checkout of `worktree`, if that is a linked worktree.
    pub(super) fn create_layer(
        &self,
        dir: &Path,
        id: u64,
        worktree: &Worktree,
    ) -> Result<(), StoreError> {
        let root = self.root_node()?;
        if worktree.is_own() {
            Layer::create_with(dir, LayerId(id), |layer| {
                layer.reserve_below(inos_below(&self.frozen))?;
                if self.frozen.is_empty() {
                    layer.commit(vec![Op::PutNode(Ino::ROOT, root)])
                } else {
                    Ok(())
                }
            })?;
            return Ok(());
        }
        // Over another fork's `.git` file it is the same node with other bytes.
        let known = self.frozen.iter().find_map(|layer| {
            let dentry = layer.index().dir(Ino::ROOT)?.get(DOT_GIT)?;
            Some(dentry)
        });
        let known = match known {
            Some(Dentry::Entry(ino)) => {
                let node = self.frozen.iter().find_map(|layer| layer.index().node(ino));
                let node = node.filter(|node| node.kind == FileKind::Regular);
                node.map(|node| (ino, node.clone()))
            }
            Some(Dentry::Whiteout) | None => None,
        };
        Layer::create_with(dir, LayerId(id), |layer| {
            layer.reserve_below(inos_below(&self.frozen))?;
            let (ino, dot_git) = match known {
                Some(known) => known,
                None => {
                    let dot_git = Node {
                        kind: FileKind::Regular,
                        perm: 0o644,
                        nlink: 1,
                        origin: None,
                        ..root.clone()
                    };
                    (layer.allocate_ino()?, dot_git)
                }
            };
            let mut ops = dot_git_with(layer, ino, dot_git, &worktree.dot_git())?;
            if self.frozen.is_empty() {
                ops.push(Op::PutNode(Ino::ROOT, root));
            }
            layer.commit(ops)
        })?;
        Ok(())
    }

    /// Returns the base's root node, with the carried directories counted.
    fn root_node(&self) -> Result<Node, StoreError> {
        let mut root = base_root(self.base.clone(), self.attrs, self.times.clone())?;
        let carried = self.carry.as_ref().map_or(0, CarryRecord::dirs_at_the_top);
        root.nlink = root.nlink.saturating_add(carried);
        Ok(root)
    }
}

/// Returns the git program, set up to write the index of `worktree`.
///
/// It reads the configuration of the main repository. That of a fork's own git directory may be the
/// work of a confined program.
fn on_index(repository: &Repository, worktree: &Worktree) -> Command {
    let git_dir = if worktree.is_own() {
        repository.common_dir()
    } else {
        worktree.git_dir()
    };
    let mut git = program::command(git_dir);
    git.arg("--git-dir").arg(git_dir);
    git.env("GIT_INDEX_FILE", worktree.index_path());
    git
}

impl Store {
    /// Freezes the parent, or takes a snapshot of it, as initial content.
    ///
    /// Nothing is copied, and the parent may be written to meanwhile. `head` is the commit of the
    /// new fork's HEAD. The caller holds `admin`.
    pub(super) fn content_of_parent(
        &self,
        parent: &ParentOptions,
        head: Option<ObjectId>,
        carry: &CarryRules,
    ) -> Result<InitialContent, StoreError> {
        if parent
            .snapshot
            .as_ref()
            .is_some_and(|snapshot| snapshot.is_sparse)
        {
            return Err(StoreError::SparseCheckout(parent.name.clone()));
        }
        let record = match &parent.snapshot {
            Some(snapshot) => snapshot.as_fork(&self.places.read_record(&parent.name)?),
            None => self.freeze(&parent.name, &parent.fork.workspace)?,
        };
        let lower_stack = self.lower_stack_of(&mut self.open.lock(), &record)?;
        let index = match (&parent.snapshot, head) {
            (Some(_), Some(head)) => IndexSource::Commit(head),
            _ => IndexSource::File(parent.fork.worktree.index_path()),
        };
        Ok(InitialContent {
            carry: self.inherit_carried(
                carry,
                &lower_stack.base,
                record.carry,
                lower_stack.attrs.time,
            )?,
            base: lower_stack.base,
            attrs: lower_stack.attrs,
            times: lower_stack.times,
            base_commit: record.base_commit,
            frozen: lower_stack.frozen,
            min_ctime: lower_stack.since,
            index,
            parent: Some(Parent {
                fork: parent.name.clone(),
                snapshot: parent
                    .snapshot
                    .as_ref()
                    .map(|snapshot| snapshot.name.clone()),
            }),
        })
    }

    /// Returns the content for a state: a base with empty layers.
    pub(super) fn content_of_state(
        &self,
        prepared: PreparedBase,
        state: &ForkState,
        carry: Option<CarryRecord>,
    ) -> Result<InitialContent, StoreError> {
        let head_tree = self.repository.tree_of(state.head)?;
        let is_committed = head_tree == prepared.base.tree_id();
        let head_base = prepared.clone();
        let mut content = InitialContent::of_base(prepared, state.base, carry);
        if !is_committed {
            content.index = IndexSource::Head {
                base: head_base,
                commit_id: state.head,
            };
        }
        Ok(content)
    }

    /// Opens the base of `commit_id` with the current settings.
    pub(super) fn base_at(&self, commit_id: Option<ObjectId>) -> Result<Arc<Base>, StoreError> {
        let tree_id = self.repository.tree_of(commit_id)?;
        self.shared_base(&mut self.open.lock(), tree_id, None)
    }

    /// Opens the base of `commit_id` and caches its index.
    ///
    /// `None` is the empty tree. Without `settings` it uses those configured now. Nodes have the
    /// times of `attrs`. If files are carried from the main checkout `carried_from`, unchanged
    /// files get the times that they have there.
    pub(super) fn prepare_base(
        &self,
        commit_id: Option<ObjectId>,
        mut attrs: BaseAttrs,
        settings: Option<&ConversionSettings>,
        carried_from: Option<&Path>,
    ) -> Result<PreparedBase, StoreError> {
        let tree_id = self.repository.tree_of(commit_id)?;
        let base = self.shared_base(&mut self.open.lock(), tree_id, settings)?;
        let times = match carried_from {
            Some(checkout) => self.make_times(&base, checkout)?,
            None => self.times_of(&mut self.open.lock(), &attrs),
        };
        if carried_from.is_some() {
            attrs.times = times.as_ref().map(|times| times.id());
        }
        // The index has the sizes of converted files.
        let cached_index = self.places.bases().join(base_name(&base, &attrs));
        let _build = self.index_build.lock();
        match tine_sys::file::open(&cached_index) {
            // The time of the last use decides which cached indexes are kept.
            Ok(file) => file
                .set_modified(SystemTime::now())
                .map_err(StoreError::io("touch", &cached_index))?,
            Err(_) => files::replace_atomically(&cached_index, |temporary| {
                let BaseAttrs { uid, gid, .. } = attrs;
                let stat = BaseStat {
                    uid,
                    gid,
                    time: CACHED_TIME,
                };
                write_base_index(&base, &stat, &beginning(&base, &attrs), temporary)
                    .map_err(StoreError::from)
            })?,
        }
        Ok(PreparedBase {
            base,
            attrs,
            times,
            cached_index,
        })
    }
}

/// Copies an index with its modification time, sharing blocks if possible.
///
/// git decides by that time which entries are racy. A hard link would not do, because some programs
/// write an index in place.
pub(super) fn copy_index(from: &Path, to: &Path) -> Result<(), StoreError> {
    let copied = tine_sys::file::open(from).and_then(|mut source| {
        let modified = source.metadata()?.modified()?;
        let mut copy = File::create(to)?;
        io::copy(&mut source, &mut copy)?;
        copy.set_modified(modified)
    });
    copied.map_err(StoreError::io("write", to))
}
