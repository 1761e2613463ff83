//! Attributes of files, with the `.gitattributes` files of the base tree.
//!
//! By falling precedence, as in gitattributes(5): `info/attributes`, the `.gitattributes` files
//! from the file's directory up to the root, `core.attributesFile` or its default, the system's
//! file. A directory's rules are collected on first use.

use std::collections::HashMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix::attrs::search::{MetadataCollection, Outcome};
use gix::attrs::{Search, StateRef};
use gix::bstr::{BStr, BString, ByteSlice};
use gix::glob::pattern::Case;
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use crate::base::Base;
use crate::{GitError, Repository, TreeEntryKind, rule_files};
use tine_path::RepoPath;

/// Attributes that affect a checkout.
const NAMES: [&str; 6] = [
    "text",
    "crlf",
    "eol",
    "ident",
    "filter",
    "working-tree-encoding",
];

/// Maximum size in bytes of an attributes file.
///
/// It is that of git (attr.h, `ATTR_MAX_FILE_SIZE`).
const MAX_FILE_BYTES: u64 = 100 << 20;

/// The class of a file by `text`, or by the older `crlf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Always,
    Binary,
    Input,
    Auto,
}

/// The attributes of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FileAttributes {
    pub text: Option<TextKind>,
    /// True for `eol=crlf`, false for `eol=lf`.
    pub eol_is_crlf: Option<bool>,
    pub ident: bool,
    /// Name of a filter driver, configured or not.
    pub filter: Option<BString>,
    /// True for an encoding other than UTF-8.
    pub has_encoding: bool,
}

/// The `.gitattributes` rules for one directory, if any.
type DirSearch = Option<Arc<Search>>;

/// All rules that apply in one directory.
pub(super) struct Rules {
    dir: DirSearch,
    /// True if there are rules outside the tree.
    has_globals: bool,
}

impl Rules {
    /// Returns whether no file in the directory can have an attribute.
    pub(super) fn is_empty(&self) -> bool {
        self.dir.is_none() && !self.has_globals
    }
}

pub(super) struct Attributes {
    case: Case,
    globals: Search,
    /// Rules of `info/attributes`, which precede all others.
    info: Search,
    /// Content of that file; empty if it is missing.
    info_rules: Vec<u8>,
    has_globals: bool,
    /// Hash of the rules outside the tree.
    fingerprint: u64,
    state: Mutex<State>,
}

/// State under one lock, because all lists share the attribute numbers.
struct State {
    names: MetadataCollection,
    dirs: HashMap<RepoPath, DirSearch>,
}

impl Attributes {
    /// Reads the rules outside the tree. `local` has the applicable configuration.
    pub(super) fn new(
        repository: &Repository,
        local: &gix::Repository,
    ) -> Result<Attributes, GitError> {
        let mut names = MetadataCollection::default();
        // This numbers the relevant attributes, whether or not a file names them.
        Search::default()
            .add_patterns_buffer(
                format!("* {}", NAMES.join(" ")).as_bytes(),
                "".into(),
                None,
                &mut names,
                false,
            )
            .map_err(GitError::library("number the attributes"))?;
        let paths = local
            .attribute_global_paths()
            .map_err(GitError::library("find the attribute files"))?;
        let no_files: [PathBuf; 0] = [];
        let mut globals = Search::new_globals(no_files, &mut Vec::new(), &mut names)
            .map_err(GitError::library("number the attributes"))?;
        let mut has_globals = false;
        let mut hasher = SipHasher13::new();
        for path in paths {
            if let Some(bytes) = rule_files::read(&path)? {
                has_globals = true;
                hasher.write(&bytes);
                globals
                    .add_patterns_buffer(&bytes, path.clone(), None, &mut names, true)
                    .map_err(GitError::io("read", path))?;
            }
            // Separate the files in the hash.
            hasher.write(&[0]);
        }
        let mut info = Search::default();
        let info_path = repository.common_dir().join("info/attributes");
        let info_rules = rule_files::read(&info_path)?.unwrap_or_default();
        has_globals |= !info_rules.is_empty();
        hasher.write(&info_rules);
        info.add_patterns_buffer(&info_rules, info_path.clone(), None, &mut names, true)
            .map_err(GitError::io("read", info_path))?;
        Ok(Attributes {
            case: match local.config_snapshot().boolean("core.ignoreCase") {
                Some(true) => Case::Fold,
                _ => Case::Sensitive,
            },
            globals,
            info,
            info_rules,
            has_globals,
            fingerprint: hasher.finish(),
            state: Mutex::new(State {
                names,
                dirs: HashMap::new(),
            }),
        })
    }

    /// Returns a number that changes with the rules outside the tree.
    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the attributes of the file at `path` in the directory `parent`.
    pub(super) fn of_file(
        &self,
        base: &Base,
        parent: &RepoPath,
        path: &RepoPath,
    ) -> Result<FileAttributes, GitError> {
        let rules = self.of_dir(base, parent)?;
        if rules.is_empty() {
            return Ok(FileAttributes::default());
        }
        Ok(self.matching(&rules, path))
    }

    /// Returns the rules in the directory at `path`, existing or not.
    pub(super) fn of_dir(&self, base: &Base, path: &RepoPath) -> Result<Rules, GitError> {
        Ok(Rules {
            dir: self.dir_search(base, path)?,
            has_globals: self.has_globals,
        })
    }

    /// Returns the `.gitattributes` rules of a directory.
    ///
    /// It iterates down from the nearest cached parent, because a tree may be too deep for
    /// recursion.
    fn dir_search(&self, base: &Base, path: &RepoPath) -> Result<DirSearch, GitError> {
        let known = |path: &RepoPath| self.state.lock().dirs.get(path).cloned();
        let (mut search, mut unknown) = (None, Vec::new());
        let mut next = Some(path.clone());
        while let Some(dir) = next {
            if let Some(known) = known(&dir) {
                search = known;
                break;
            }
            next = dir.split_last().map(|(parent, _)| parent);
            unknown.push(dir);
        }
        for dir in unknown.iter().rev() {
            search = self.search_below(base, search, dir)?;
        }
        Ok(search)
    }

    /// Returns the rules of the directory at `path`, given its parent's.
    fn search_below(
        &self,
        base: &Base,
        parent: DirSearch,
        path: &RepoPath,
    ) -> Result<DirSearch, GitError> {
        let own = match own_rules(base, path)? {
            OwnFile::NoDirectory => return Ok(parent),
            own => own,
        };
        let mut state = self.state.lock();
        let search = match own {
            OwnFile::NoDirectory | OwnFile::NoFile => parent,
            OwnFile::Rules(bytes) => {
                let mut search = parent.map(|parent| (*parent).clone()).unwrap_or_default();
                let source = path.as_path().join(".gitattributes");
                search
                    .add_patterns_buffer(
                        &bytes,
                        source.clone(),
                        Some(Path::new("")),
                        &mut state.names,
                        path.is_root(),
                    )
                    .map_err(GitError::io("read", source))?;
                if path.is_root() {
                    self.prefer_macros_of_info(&mut state.names)?;
                }
                Some(Arc::new(search))
            }
        };
        // Two threads may have read the same file: the first one's rules stay.
        Ok(state.dirs.entry(path.clone()).or_insert(search).clone())
    }

    /// Restores the precedence of macros in `info/attributes`.
    ///
    /// The definition of a macro that is read last wins, and `info/attributes` has precedence over
    /// the tree.
    fn prefer_macros_of_info(&self, names: &mut MetadataCollection) -> Result<(), GitError> {
        Search::default()
            .add_patterns_buffer(
                &self.info_rules,
                "info/attributes".into(),
                None,
                names,
                true,
            )
            .map_err(GitError::library("read info/attributes"))
    }

    /// Returns the attributes of the file at `path` by `rules`.
    pub(super) fn matching(&self, rules: &Rules, path: &RepoPath) -> FileAttributes {
        let mut outcome = Outcome::default();
        outcome.initialize_with_selection(&self.state.lock().names, NAMES);
        self.match_all(rules, path, &mut outcome);
        let mut found = FileAttributes::default();
        let mut crlf = None;
        for attribute in outcome.iter_selected() {
            let state = attribute.assignment.state;
            match attribute.assignment.name.as_str() {
                "text" => found.text = text(state),
                "crlf" => crlf = text(state),
                "eol" => found.eol_is_crlf = eol_is_crlf(state),
                "ident" => found.ident = state == StateRef::Set,
                "filter" => found.filter = state.as_bstr().map(BStr::to_owned),
                _ => found.has_encoding = has_encoding(state),
            }
        }
        found.text = found.text.or(crlf);
        found
    }

    /// Fills `outcome` with the attributes of `path`, for the library's filters.
    pub(super) fn fill(&self, rules: &Rules, path: &RepoPath, outcome: &mut Outcome) {
        outcome.initialize(&self.state.lock().names);
        self.match_all(rules, path, outcome);
    }

    fn match_all(&self, rules: &Rules, path: &RepoPath, outcome: &mut Outcome) {
        let path = path.as_bytes().as_bstr();
        let searches = [Some(&self.info), rules.dir.as_deref(), Some(&self.globals)];
        for search in searches.into_iter().flatten() {
            if outcome.is_done() {
                break;
            }
            search.pattern_matching_relative_path(path, self.case, Some(false), outcome);
        }
    }
}

/// The attributes file of a directory.
enum OwnFile {
    /// Directory that is not in the base.
    ///
    /// It is not cached, because there may be any number of such paths.
    NoDirectory,
    NoFile,
    /// Content of its `.gitattributes`.
    Rules(Vec<u8>),
}

fn own_rules(base: &Base, path: &RepoPath) -> Result<OwnFile, GitError> {
    let dir = if path.is_root() {
        base.root()?
    } else {
        let Some((parent, index)) = base.find(path)? else {
            return Ok(OwnFile::NoDirectory);
        };
        let entry = &parent.entries[index];
        if entry.kind != TreeEntryKind::Directory {
            return Ok(OwnFile::NoDirectory);
        }
        base.dir(path, entry.id)?
    };
    let Some(entry) = dir.find(b".gitattributes").map(|index| &dir.entries[index]) else {
        return Ok(OwnFile::NoFile);
    };
    match entry.kind {
        TreeEntryKind::File | TreeEntryKind::Executable => {}
        TreeEntryKind::Symlink | TreeEntryKind::Directory | TreeEntryKind::Submodule => {
            return Ok(OwnFile::NoFile);
        }
    }
    if base.repository().blob_size(entry.id)? > MAX_FILE_BYTES {
        log::warn!("{path}/.gitattributes is ignored, it is too large");
        return Ok(OwnFile::NoFile);
    }
    base.repository().read_blob(entry.id).map(OwnFile::Rules)
}

fn text(state: StateRef<'_>) -> Option<TextKind> {
    match state {
        StateRef::Set => Some(TextKind::Always),
        StateRef::Unset => Some(TextKind::Binary),
        StateRef::Value(value) => match value.as_bstr().as_bytes() {
            b"input" => Some(TextKind::Input),
            b"auto" => Some(TextKind::Auto),
            _ => None,
        },
        StateRef::Unspecified => None,
    }
}

fn eol_is_crlf(state: StateRef<'_>) -> Option<bool> {
    match state.as_bstr()?.as_bytes() {
        b"crlf" => Some(true),
        b"lf" => Some(false),
        _ => None,
    }
}

/// Returns whether the encoding may differ from UTF-8.
///
/// git reports unknown encodings.
fn has_encoding(state: StateRef<'_>) -> bool {
    match state {
        StateRef::Unspecified => false,
        StateRef::Set | StateRef::Unset => true,
        StateRef::Value(value) => {
            let name = value.as_bstr();
            !name.eq_ignore_ascii_case(b"utf-8")
                && !name.eq_ignore_ascii_case(b"utf8")
                && !name.is_empty()
        }
    }
}

#[cfg(test)]
mod tests;
