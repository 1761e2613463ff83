//! All objects of a repository in memory, the marks in them, and what reaches what.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use crate::marks::{MarkId, words_in};
use crate::support::{OutputExt, TestRepo, run_with_timeout};

type Id = Vec<u8>;

enum Object {
    Commit { tree: Id, parents: Vec<Id> },
    Tree(Vec<Id>),
    Blob(BTreeSet<MarkId>),
    Tag(Id),
}

pub struct Objects {
    objects: HashMap<Id, Object>,
    /// Marks in a tree and all below it.
    in_trees: RefCell<HashMap<Id, Rc<BTreeSet<MarkId>>>>,
}

impl Objects {
    pub fn read(repo: &TestRepo) -> Objects {
        let args = [
            "cat-file",
            "--batch-all-objects",
            "--unordered",
            "--buffer",
            "--batch",
        ];
        let output = run_with_timeout(repo.command("git", repo.dir()).args(args));
        let output = output.expect_success("git cat-file").stdout;
        let mut objects = HashMap::new();
        let mut rest = &output[..];
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            let mut words = line.split(' ');
            let id = words.next().expect("a line has a word").as_bytes().to_vec();
            let kind = words.next().unwrap_or_default().to_owned();
            let size: usize = words.next().and_then(|size| size.parse().ok()).unwrap_or(0);
            let body = &rest[end + 1..end + 1 + size];
            rest = &rest[end + 1 + size + 1..];
            let id_bytes = id.len() / 2;
            objects.insert(id, parse(&kind, body, id_bytes));
        }
        Objects {
            objects,
            in_trees: RefCell::default(),
        }
    }

    fn tree_of(&self, commit: &str) -> Option<&Id> {
        match self.objects.get(commit.as_bytes())? {
            Object::Commit { tree, .. } => Some(tree),
            Object::Tree(_) | Object::Blob(_) | Object::Tag(_) => None,
        }
    }

    /// Marks in the tree of a commit.
    pub fn in_commit(&self, commit: &str) -> Rc<BTreeSet<MarkId>> {
        self.tree_of(commit)
            .map_or_else(Rc::default, |tree| self.in_tree(tree))
    }

    fn in_tree(&self, tree: &Id) -> Rc<BTreeSet<MarkId>> {
        if let Some(known) = self.in_trees.borrow().get(tree) {
            return known.clone();
        }
        let mut found = BTreeSet::new();
        if let Some(Object::Tree(entries)) = self.objects.get(tree) {
            for entry in entries {
                match self.objects.get(entry) {
                    Some(Object::Blob(marks)) => found.extend(marks),
                    Some(Object::Tree(_)) => found.extend(self.in_tree(entry).iter()),
                    Some(Object::Commit { .. } | Object::Tag(_)) | None => {}
                }
            }
        }
        let found = Rc::new(found);
        self.in_trees
            .borrow_mut()
            .insert(tree.clone(), found.clone());
        found
    }

    /// Marks in all that the objects `from` reach.
    pub fn reached(&self, from: &[String]) -> BTreeSet<MarkId> {
        let mut found = BTreeSet::new();
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut open: Vec<&[u8]> = from.iter().map(|id| id.as_bytes()).collect();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            match self.objects.get(id) {
                Some(Object::Commit { tree, parents }) => {
                    open.push(tree);
                    open.extend(parents.iter().map(Vec::as_slice));
                }
                Some(Object::Tree(entries)) => open.extend(entries.iter().map(Vec::as_slice)),
                Some(Object::Blob(marks)) => found.extend(marks),
                Some(Object::Tag(to)) => open.push(to),
                None => {}
            }
        }
        found
    }

    /// Each commit that `from` reach, with each of its parents.
    pub fn history(&self, from: &[String]) -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut open: Vec<&[u8]> = from.iter().map(|id| id.as_bytes()).collect();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            if let Some(Object::Commit { parents, .. }) = self.objects.get(id) {
                open.extend(parents.iter().map(Vec::as_slice));
                let text = |id: &[u8]| String::from_utf8_lossy(id).into_owned();
                found.push((text(id), parents.iter().map(|id| text(id)).collect()));
            }
        }
        found
    }
}

fn parse(kind: &str, body: &[u8], id_bytes: usize) -> Object {
    match kind {
        "commit" => {
            let mut tree = Id::new();
            let mut parents = Vec::new();
            for line in body
                .split(|&byte| byte == b'\n')
                .take_while(|line| !line.is_empty())
            {
                if let Some(id) = line.strip_prefix(b"tree ") {
                    tree = id.to_vec();
                } else if let Some(id) = line.strip_prefix(b"parent ") {
                    parents.push(id.to_vec());
                }
            }
            Object::Commit { tree, parents }
        }
        "tree" => {
            let mut entries = Vec::new();
            let mut rest = body;
            while let Some(end) = rest.iter().position(|&byte| byte == 0) {
                let id = &rest[end + 1..end + 1 + id_bytes];
                entries.push(
                    id.iter()
                        .flat_map(|byte| format!("{byte:02x}").into_bytes())
                        .collect(),
                );
                rest = &rest[end + 1 + id_bytes..];
            }
            Object::Tree(entries)
        }
        "tag" => {
            let line = body.split(|&byte| byte == b'\n').next().unwrap_or_default();
            Object::Tag(line.strip_prefix(b"object ").unwrap_or_default().to_vec())
        }
        _ => Object::Blob(words_in(body)),
    }
}
