//! What a new fork begins with: a base and its index, or what another fork has.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::snapshots::dot_git_with;
use super::{Fork, Store, files};
use crate::attr::{FileKind, Ino, Timestamp};
use crate::git::index::{BaseStat, write_base_index};
use crate::git::{Base, ConversionSettings, LinkedWorktree, ObjectId, program};
use crate::layer::{Dentry, FrozenLayer, Layer, LayerId, Node, Op, inos_below};
use crate::path::{DOT_GIT, RepoPath};
use crate::workspace::StoreError;
use crate::workspace::base_nodes::{BaseAttrs, BaseNodes, base_node};
use crate::workspace::carry::{CarryRecord, CarryWish};
use crate::workspace::changed::{base_name, beginning};
use crate::workspace::fork::{ForkName, Parent};
use crate::workspace::inodes::BaseRef;
use crate::workspace::snapshot::SnapshotRecord;

/// Base nodes are at least this many seconds older than their index: git reads a file again whose time is not older
/// than the index that lists it.
const RACY_SECS: i64 = 2;

/// The base of a fork that is being made: its tree, the attributes of its nodes, and its index, ready to be copied.
pub(super) struct PreparedBase {
    pub base: Arc<Base>,
    pub attrs: BaseAttrs,
    pub index: PathBuf,
    /// Base files that must seem to have changed just now.
    pub newer: Vec<RepoPath>,
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
    pub base_commit: Option<String>,
    /// Newest first.
    pub frozen: Vec<Arc<FrozenLayer>>,
    /// As [`Standing::since`](crate::workspace::standing::Standing::since).
    pub stands_since: Option<Timestamp>,
    pub index: IndexSource,
    /// Base files that must seem to have changed just now.
    pub newer: Vec<RepoPath>,
    pub parent: Option<Parent>,
    pub carry: Option<CarryRecord>,
}

/// Where a new fork's index comes from.
pub(super) enum IndexSource {
    /// A copy of this one. Whether it is the base's, which lacks nothing of the tree.
    File { path: PathBuf, is_base: bool },
    /// git makes it from the tree of this commit.
    Commit(ObjectId),
    /// A copy of this one, which is the base's, as far as it says what HEAD's commit says; the rest of that is unread.
    Head {
        path: PathBuf,
        commit_id: Option<ObjectId>,
    },
}

impl Beginning {
    /// On a base, with nothing changed.
    pub fn at(prepared: PreparedBase, commit_id: Option<ObjectId>, carry: Option<CarryRecord>) -> Beginning {
        Beginning {
            base: prepared.base,
            attrs: prepared.attrs,
            base_commit: commit_id.map(|id| id.to_string()),
            frozen: Vec::new(),
            stands_since: None,
            index: IndexSource::File {
                path: prepared.index,
                is_base: true,
            },
            newer: prepared.newer,
            parent: None,
            carry,
        }
    }

    /// Gives a worktree that was just registered its index, and brings all of it to the disk: no record may name a worktree
    /// that a power loss took.
    pub fn fill_worktree(&self, worktree: &LinkedWorktree) -> Result<(), StoreError> {
        match &self.index {
            IndexSource::File { path, .. } => copy_index(path, &worktree.index_path())?,
            IndexSource::Commit(commit_id) => {
                let mut git = program::command(worktree.git_dir());
                git.arg("--git-dir").arg(worktree.git_dir());
                program::run(git.arg("read-tree").arg(commit_id.to_string()), b"")?;
            }
            IndexSource::Head { path, commit_id } => {
                let mut git = program::command(worktree.git_dir());
                git.arg("--git-dir").arg(worktree.git_dir()).arg("read-tree");
                match commit_id {
                    // What is the same keeps what is known of the file.
                    Some(commit_id) => {
                        copy_index(path, &worktree.index_path())?;
                        git.args(["-i", "-m"]).arg(commit_id.to_string());
                    }
                    None => drop(git.arg("--empty")),
                }
                program::run(&mut git, b"")?;
            }
        }
        files::sync_files_in(worktree.git_dir())
    }

    /// Makes the layer in which the fork is written: nothing but the `.git` file that makes its root a checkout of
    /// `worktree`.
    pub fn create_layer(&self, dir: &Path, id: u64, worktree: &LinkedWorktree) -> Result<(), StoreError> {
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
        let newer = newer_nodes(&self.base, self.attrs, &self.newer)?;
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
            ops.extend(newer);
            layer.commit(ops)
        })?;
        Ok(())
    }

    /// The root as the base has it, with what is carried there.
    fn root_node(&self) -> Result<Node, StoreError> {
        let nodes = BaseNodes {
            base: self.base.clone(),
            attrs: self.attrs,
        };
        let mut root = base_node(&nodes.root_attr()?, nodes.root_origin());
        let carried = self.carry.as_ref().map_or(0, CarryRecord::dirs_at_the_top);
        root.nlink = root.nlink.saturating_add(carried);
        Ok(root)
    }
}

impl Store {
    /// What the fork `parent` has at this moment, or had when a snapshot was taken: nothing of it is copied, and it may be
    /// written to meanwhile. `head` is the commit that the new fork's HEAD is on. The caller holds `admin`.
    pub(super) fn beginning_in(
        &self,
        parent: &ParentOptions,
        head: Option<ObjectId>,
        carry: &CarryWish,
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
        let standing = self.standing_of(&mut self.open.lock(), &record)?;
        let index = match (&parent.snapshot, head) {
            (Some(_), Some(head)) => IndexSource::Commit(head),
            _ => IndexSource::File {
                path: parent.fork.worktree.index_path(),
                is_base: false,
            },
        };
        Ok(Beginning {
            carry: self.inherit_carried(carry, &standing.base, record.carry)?,
            base: standing.base,
            attrs: standing.attrs,
            base_commit: record.base_commit,
            frozen: standing.frozen,
            stands_since: standing.since,
            index,
            newer: Vec::new(),
            parent: Some(Parent {
                fork: parent.name.clone(),
                snapshot: parent.snapshot.as_ref().map(|snapshot| snapshot.name.clone()),
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
        let head_tree = match take_up.head {
            Some(commit_id) => self.repository.commit_info(commit_id)?.tree_id,
            None => self.repository.empty_tree_id(),
        };
        let is_committed = head_tree == prepared.base.tree_id();
        let path = prepared.index.clone();
        let mut beginning = Beginning::at(prepared, take_up.base, carry);
        if !is_committed {
            beginning.index = IndexSource::Head {
                path,
                commit_id: take_up.head,
            };
        }
        Ok(beginning)
    }

    /// The base of `commit_id`, with the settings of now.
    pub(super) fn base_at(&self, commit_id: Option<ObjectId>) -> Result<Arc<Base>, StoreError> {
        let tree_id = match commit_id {
            Some(commit_id) => self.repository.commit_info(commit_id)?.tree_id,
            None => self.repository.empty_tree_id(),
        };
        self.shared_base(&mut self.open.lock(), tree_id, None)
    }

    /// Opens the base of `commit_id` (the empty tree where there is none) with `settings` (or those of now) and makes sure
    /// that its index is cached.
    ///
    /// Build tools compare the times of a file and of what was made from it. So where something is carried from the main
    /// checkout, base files are as old as its oldest one: older than whatever was made there of files that are the same. Those
    /// that are not the same there must be newer.
    pub(super) fn prepare_base(
        &self,
        commit_id: Option<ObjectId>,
        uid: u32,
        gid: u32,
        umask: u16,
        settings: Option<&ConversionSettings>,
        carried_from: Option<&Path>,
    ) -> Result<PreparedBase, StoreError> {
        let mut newest_secs = Timestamp::now().secs - RACY_SECS;
        let mut newer = Vec::new();
        if let (Some(checkout), Some(commit_id)) = (carried_from, commit_id) {
            let oldest_secs = self.repository.oldest_file_secs()?;
            newest_secs = newest_secs.min(oldest_secs.unwrap_or(newest_secs));
            newer = self.repository.paths_that_differ(checkout, commit_id)?;
        }
        let (tree_id, secs) = match commit_id {
            Some(commit_id) => {
                let info = self.repository.commit_info(commit_id)?;
                (info.tree_id, info.time_secs.min(newest_secs))
            }
            None => (self.repository.empty_tree_id(), newest_secs),
        };
        // git's index holds seconds since 1970 without a sign, and takes 0 for "unknown".
        let time = Timestamp::from_secs(secs.max(1));
        let base = self.shared_base(&mut self.open.lock(), tree_id, settings)?;

        let attrs = BaseAttrs {
            uid,
            gid,
            umask,
            time,
        };
        // The index has the sizes of converted files.
        let index = self.places.bases().join(base_name(&base, &attrs));
        let _build = self.index_build.lock();
        match File::open(&index) {
            // The time of the last use decides which cached indexes are kept.
            Ok(file) => file
                .set_modified(SystemTime::now())
                .map_err(StoreError::io("touch", &index))?,
            Err(_) => files::replace_atomically(&index, |temporary| {
                let stat = BaseStat { uid, gid, time };
                write_base_index(&base, &stat, &beginning(&base, &attrs), temporary).map_err(StoreError::from)
            })?,
        }
        Ok(PreparedBase {
            base,
            attrs,
            index,
            newer,
        })
    }
}

/// Nodes of base files as they are, but for the time, which is now.
pub(super) fn newer_nodes(
    base: &Arc<Base>,
    attrs: BaseAttrs,
    paths: &[RepoPath],
) -> Result<Vec<Op>, StoreError> {
    let nodes = BaseNodes {
        base: base.clone(),
        attrs,
    };
    let now = Timestamp::now();
    let mut ops = Vec::new();
    for path in paths {
        let Some(place) = base
            .find(path)?
            .and_then(|(dir, index)| BaseRef::new(&dir, index))
        else {
            continue;
        };
        let mut node = base_node(&nodes.attr(&place)?, place.origin());
        if node.kind == FileKind::Regular {
            (node.mtime, node.ctime) = (now, now);
            ops.push(Op::PutNode(place.entry().ino, node));
        }
    }
    Ok(ops)
}

/// Copies an index: shared blocks where the disk can. A hard link would not do, as some programs write an index in place.
pub(super) fn copy_index(cached: &Path, to: &Path) -> Result<(), StoreError> {
    fs::copy(cached, to)
        .map(|_| ())
        .map_err(StoreError::io("write", to))
}
