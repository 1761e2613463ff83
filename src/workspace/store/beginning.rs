//! What a new fork begins with: a base and its index, or what another fork has.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::snapshots::dot_git_with;
use super::{Fork, Store, files};
use crate::StoreError;
use crate::base_nodes::{BaseAttrs, BaseNodes, base_node};
use crate::base_times::BaseTimes;
use crate::carry::{CarryRecord, CarryRules};
use crate::changed::{base_name, beginning};
use crate::fork::{ForkName, Parent};
use crate::snapshot::SnapshotRecord;
use tine_attr::{FileKind, Ino, Timestamp};
use tine_git::index::{BaseStat, Stamp, write_base_index, write_stamped_index};
use tine_git::{Base, ConversionSettings, LinkedWorktree, ObjectId, program};
use tine_layer::{Dentry, FrozenLayer, Layer, LayerId, Node, Op, inos_below};
use tine_path::{DOT_GIT, RepoPath};

/// The times in a cached index, which every fork replaces. git takes 0 for "unknown".
const CACHED_TIME: Timestamp = Timestamp::from_secs(1);

/// The base of a fork that is being made, or mended: its tree, the attributes of its nodes, and its
/// index.
#[derive(Clone)]
pub(super) struct PreparedBase {
    pub base: Arc<Base>,
    pub attrs: BaseAttrs,
    pub times: Option<Arc<BaseTimes>>,
    /// The cached one, which has no times yet.
    cached_index: PathBuf,
}

impl PreparedBase {
    /// Writes its index to `to`.
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
            // One that is damaged is made again for the next.
            let _ = fs::remove_file(&self.cached_index);
        }
        Ok(written?)
    }
}

/// Which fork a new one begins as.
#[derive(Clone)]
pub struct ParentOptions {
    pub name: ForkName,
    pub fork: Arc<Fork>,
    /// As of this snapshot; else as it is now.
    pub snapshot: Option<SnapshotRecord>,
}

/// A commit whose tree a new fork's view is, uncommitted where HEAD's is another.
#[derive(Debug, Clone)]
pub struct TakeUp {
    pub commit_id: ObjectId,
    /// Where HEAD is; `None` on a branch without a commit.
    pub head: Option<ObjectId>,
    /// The commit that the fork counts as made from.
    pub base: Option<ObjectId>,
    /// Where the fork's own commits begin; `None` where all are.
    pub fork_point: Option<ObjectId>,
    /// The branch (short name) that it came from.
    pub from_branch: Option<String>,
    /// Where it was found, for the reflog.
    pub origin: String,
}

/// What a new fork begins with.
pub(super) struct Beginning {
    pub base: Arc<Base>,
    pub attrs: BaseAttrs,
    pub times: Option<Arc<BaseTimes>>,
    pub base_commit: Option<String>,
    /// Newest first.
    pub frozen: Vec<Arc<FrozenLayer>>,
    /// As [`LowerStack::since`](crate::standing::Standing::since).
    pub stands_since: Option<Timestamp>,
    pub index: IndexSource,
    pub parent: Option<Parent>,
    pub carry: Option<CarryRecord>,
}

/// Where a new fork's index comes from.
pub(super) enum IndexSource {
    /// The base's, which lacks nothing of the tree.
    Base(PreparedBase),
    /// A copy of this one.
    File(PathBuf),
    /// git makes it from the tree of this commit.
    Commit(ObjectId),
    /// The base's, as far as it says what HEAD's commit says; the rest of that is unread.
    Head {
        base: PreparedBase,
        commit_id: Option<ObjectId>,
    },
}

impl Beginning {
    /// On a base, with nothing changed.
    pub(super) fn at(
        prepared: PreparedBase,
        commit_id: Option<ObjectId>,
        carry: Option<CarryRecord>,
    ) -> Beginning {
        Beginning {
            base: prepared.base.clone(),
            attrs: prepared.attrs,
            times: prepared.times.clone(),
            base_commit: commit_id.map(|id| id.to_string()),
            frozen: Vec::new(),
            stands_since: None,
            index: IndexSource::Base(prepared),
            parent: None,
            carry,
        }
    }

    /// Gives a worktree that was just registered its index, and brings all of it to the disk: no
    /// record may name a worktree that a power loss took.
    pub(super) fn fill_worktree(&self, worktree: &LinkedWorktree) -> Result<(), StoreError> {
        match &self.index {
            IndexSource::Base(base) => base.write_index(&worktree.index_path())?,
            IndexSource::File(path) => copy_index(path, &worktree.index_path())?,
            IndexSource::Commit(commit_id) => {
                let mut git = program::command(worktree.git_dir());
                git.arg("--git-dir").arg(worktree.git_dir());
                program::run(git.arg("read-tree").arg(commit_id.to_string()), b"")?;
            }
            IndexSource::Head { base, commit_id } => {
                let mut git = program::command(worktree.git_dir());
                git.arg("--git-dir")
                    .arg(worktree.git_dir())
                    .arg("read-tree");
                match commit_id {
                    // What is the same keeps what is known of the file.
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

    /// Makes the layer in which the fork is written: nothing but the `.git` file that makes its
    /// root a checkout of `worktree`.
    pub(super) fn create_layer(
        &self,
        dir: &Path,
        id: u64,
        worktree: &LinkedWorktree,
    ) -> Result<(), StoreError> {
        let root = self.root_node()?;
        // Over another fork's file of that name it is the same node with other bytes.
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

    /// The root as the base has it, with what is carried there.
    fn root_node(&self) -> Result<Node, StoreError> {
        let nodes = BaseNodes {
            base: self.base.clone(),
            attrs: self.attrs,
            times: self.times.clone(),
        };
        let mut root = base_node(&nodes.root_attr()?, nodes.root_origin());
        let carried = self.carry.as_ref().map_or(0, CarryRecord::dirs_at_the_top);
        root.nlink = root.nlink.saturating_add(carried);
        Ok(root)
    }
}

impl Store {
    /// What the fork `parent` has at this moment, or had when a snapshot was taken: nothing of it
    /// is copied, and it may be written to meanwhile. `head` is the commit that the new fork's HEAD
    /// is on. The caller holds `admin`.
    pub(super) fn beginning_in(
        &self,
        parent: &ParentOptions,
        head: Option<ObjectId>,
        carry: &CarryRules,
    ) -> Result<Beginning, StoreError> {
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
        Ok(Beginning {
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
            stands_since: lower_stack.since,
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

    /// A state: its view is the base, with nothing over it, whatever HEAD's tree is.
    pub(super) fn beginning_with(
        &self,
        prepared: PreparedBase,
        take_up: &TakeUp,
        carry: Option<CarryRecord>,
    ) -> Result<Beginning, StoreError> {
        let head_tree = self.repository.tree_of(take_up.head)?;
        let is_committed = head_tree == prepared.base.tree_id();
        let head_base = prepared.clone();
        let mut beginning = Beginning::at(prepared, take_up.base, carry);
        if !is_committed {
            beginning.index = IndexSource::Head {
                base: head_base,
                commit_id: take_up.head,
            };
        }
        Ok(beginning)
    }

    /// The base of `commit_id`, with the settings of now.
    pub(super) fn base_at(&self, commit_id: Option<ObjectId>) -> Result<Arc<Base>, StoreError> {
        let tree_id = self.repository.tree_of(commit_id)?;
        self.shared_base(&mut self.open.lock(), tree_id, None)
    }

    /// Opens the base of `commit_id` (the empty tree where there is none) with `settings` (or those
    /// of now) and makes sure that its index is cached. Its nodes have the times of `attrs`; where
    /// something is carried from the main checkout `carried_from`, with those of its files that are
    /// the same.
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

/// Copies an index with its time, by which git tells which of its entries are racy: shared blocks
/// where the disk can. A hard link would not do, as some programs write an index in place.
pub(super) fn copy_index(from: &Path, to: &Path) -> Result<(), StoreError> {
    let copied = tine_sys::file::open(from).and_then(|mut source| {
        let modified = source.metadata()?.modified()?;
        let mut copy = File::create(to)?;
        io::copy(&mut source, &mut copy)?;
        copy.set_modified(modified)
    });
    copied.map_err(StoreError::io("write", to))
}
