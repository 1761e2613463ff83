//! Search for the objects of an own git directory.

use std::collections::HashSet;

use gix::ObjectId;
use gix::objs::{CommitRefIter, Find, Kind, TagRef, TreeRefIter};

use super::dir::{Loose, OwnDir};
use super::object::Content;
use super::quarantine::Checked;
use super::tips::loose_file;
use crate::{GitError, Repository};

/// Maximum bytes of a commit, tree or tag.
const MAX_STRUCTURE_BYTES: u64 = 64 << 20;
/// Maximum bytes of a loose object's file.
pub(super) const MAX_LOOSE_BYTES: u64 = 1 << 40;

/// An object that the own git directory has.
pub(super) struct Walked {
    pub(super) id: ObjectId,
    /// Name in its tree, which tells git what to compare it with.
    pub(super) name: Vec<u8>,
    /// Bytes of its file, or of its content in a pack.
    pub(super) size: u64,
    pub(super) is_loose: bool,
}

/// Objects found by a walk.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) found: Vec<Walked>,
    /// Objects that neither the own directory nor the main repository has.
    pub(super) missing: HashSet<ObjectId>,
    /// Damaged loose objects that the main repository has.
    pub(super) damaged: Vec<ObjectId>,
}

/// A walk from tips to the objects of an own git directory.
pub(super) struct Walker<'a> {
    pub(super) main: &'a Repository,
    pub(super) dir: &'a OwnDir,
    /// Private copies of the own directory's packs.
    pub(super) packs: Option<&'a gix::odb::Handle>,
    /// Objects that the main repository keeps with all that they need.
    pub(super) known: &'a HashSet<ObjectId>,
    /// Commits without parents in a shallow repository.
    pub(super) shallow: &'a HashSet<ObjectId>,
}

/// An object, with its content if it names others.
type Found = (Walked, Option<Content>);

/// An object to visit: its id, its kind if known, and its name in a tree.
type Next = (ObjectId, Option<Kind>, Vec<u8>);

impl Walker<'_> {
    /// Walks from `tips`.
    ///
    /// The inner error is the reason why the objects cannot be taken over.
    pub(super) fn walk(&self, tips: &[ObjectId]) -> Checked<Walk> {
        let mut walk = Walk::default();
        let mut seen: HashSet<ObjectId> = HashSet::new();
        let mut open: Vec<Next> = tips.iter().map(|id| (*id, None, Vec::new())).collect();
        while let Some((id, kind, name)) = open.pop() {
            if self.known.contains(&id) || !seen.insert(id) {
                continue;
            }
            let (walked, content) = match self.find(id, kind, name)? {
                Ok(Some(found)) => found,
                Ok(None) => {
                    if !self.main.has_object(id) {
                        walk.missing.insert(id);
                    }
                    continue;
                }
                Err(reason) if self.main.has_object(id) => {
                    log::info!("{reason}, but the main repository has it");
                    walk.damaged.push(id);
                    // What it names may be damaged, too.
                    if let Some(content) = self.content_in_main(id) {
                        let _ = self.follow(id, &content, &mut open);
                    }
                    continue;
                }
                Err(reason) => return Ok(Err(reason)),
            };
            if let Some(content) = content
                && let Err(error) = self.follow(id, &content, &mut open)
            {
                return Ok(Err(format!("the object {id} is corrupt: {error}")));
            }
            walk.found.push(walked);
        }
        Ok(Ok(walk))
    }

    /// Finds an object, with its content if it names others.
    fn find(&self, id: ObjectId, kind: Option<Kind>, name: Vec<u8>) -> Checked<Option<Found>> {
        let path = loose_file(&id);
        let is_loose = true;
        let stat = self.dir.stat_file(&path);
        // A tip may be a blob of any size. git looks at blobs later.
        let is_blob = kind == Some(Kind::Blob)
            || (kind.is_none() && stat.is_some_and(|stat| stat.size > MAX_STRUCTURE_BYTES));
        if is_blob && let Some(size) = stat.map(|stat| stat.size) {
            let walked = Walked {
                id,
                name,
                size,
                is_loose,
            };
            return Ok(Ok(Some((walked, None))));
        }
        let read = match self
            .dir
            .read_loose(self.main.hash_kind(), id, MAX_STRUCTURE_BYTES)?
        {
            Ok(read) => read,
            Err(reason) => return Ok(Err(reason)),
        };
        match read {
            Loose::Read(raw, content) => {
                let size = raw.len() as u64;
                let walked = Walked {
                    id,
                    name,
                    size,
                    is_loose,
                };
                Ok(Ok(Some((walked, Some(content)))))
            }
            // A tip may be a blob of any size.
            Loose::TooLarge if kind.is_none() => {
                let walked = Walked {
                    id,
                    name,
                    size: MAX_STRUCTURE_BYTES,
                    is_loose,
                };
                Ok(Ok(Some((walked, None))))
            }
            Loose::TooLarge => Ok(Err(format!("the object {id} is too large"))),
            Loose::Missing => self.find_packed(id, name),
        }
    }

    /// Reads an object of the main repository, unless it is a blob.
    fn content_in_main(&self, id: ObjectId) -> Option<Content> {
        let mut data = Vec::new();
        let kind = self.main.with_local(|local| {
            let found = local.objects.try_find(&id, &mut data).ok().flatten()?;
            (found.kind != Kind::Blob).then_some(found.kind)
        })?;
        Some(Content { kind, data })
    }

    fn find_packed(&self, id: ObjectId, name: Vec<u8>) -> Checked<Option<Found>> {
        let Some(packs) = self.packs else {
            return Ok(Ok(None));
        };
        let mut data = Vec::new();
        let found = packs.try_find(&id, &mut data);
        let found = found.map_err(GitError::library("read an object of a fork"))?;
        let Some(kind) = found.map(|found| found.kind) else {
            return Ok(Ok(None));
        };
        let walked = Walked {
            id,
            name,
            size: data.len() as u64,
            is_loose: false,
        };
        let content = (kind != Kind::Blob).then_some(Content { kind, data });
        Ok(Ok(Some((walked, content))))
    }

    /// Adds the objects that `content` names to `open`.
    fn follow(
        &self,
        id: ObjectId,
        content: &Content,
        open: &mut Vec<Next>,
    ) -> Result<(), gix::Error> {
        let hash_kind = id.kind();
        match content.kind {
            Kind::Blob => {}
            Kind::Commit => {
                // Of a commit with other faults git says which they are.
                let commit = || CommitRefIter::from_bytes(&content.data, hash_kind);
                let tree_id = commit().tree_id()?;
                if !self.shallow.contains(&id) {
                    let parents = commit().parent_ids();
                    open.extend(parents.map(|id| (id, Some(Kind::Commit), Vec::new())));
                }
                open.push((tree_id, Some(Kind::Tree), Vec::new()));
            }
            Kind::Tag => {
                let tag = TagRef::from_bytes(&content.data, hash_kind)?;
                open.push((tag.target(), Some(tag.target_kind), Vec::new()));
            }
            Kind::Tree => {
                for entry in TreeRefIter::from_bytes(&content.data, hash_kind) {
                    let entry = entry?;
                    if entry.mode.is_commit() {
                        continue;
                    }
                    let kind = if entry.mode.is_tree() {
                        Kind::Tree
                    } else {
                        Kind::Blob
                    };
                    open.push((entry.oid.to_owned(), Some(kind), entry.filename.to_vec()));
                }
            }
        }
        Ok(())
    }
}
