//! Patterns in the syntax of `.gitignore` that select paths.

use std::path::{Path, PathBuf};

use gix::bstr::ByteSlice;
use gix::glob::pattern::Case;
use gix::glob::wildmatch;
use gix::ignore::Search;
use gix::ignore::search::Ignore;

use super::GitError;
use tine_path::RepoPath;

/// Options under which `$` has no meaning, as in git.
const PARSE: Ignore = Ignore {
    support_precious: false,
};

/// Patterns in the given order. The last match decides.
pub struct PatternSet {
    search: Search,
    /// Components of the anchored patterns with more than one component.
    deep: Vec<Vec<Vec<u8>>>,
}

impl PatternSet {
    /// Parses patterns in the syntax of a `.gitignore` at a checkout's top.
    ///
    /// Each line is a pattern or a comment.
    ///
    /// # Errors
    /// [`GitError::Io`] if the text cannot be parsed.
    pub fn parse(text: &[u8]) -> Result<PatternSet, GitError> {
        let mut search = Search::default();
        let mut bytes = text.to_vec();
        bytes.push(b'\n');
        search
            .add_patterns_buffer(
                &bytes,
                PathBuf::from("patterns"),
                Some(Path::new("")),
                PARSE,
            )
            .map_err(GitError::io("read", "patterns"))?;
        let deep = search
            .patterns
            .iter()
            .flat_map(|list| &list.patterns)
            .filter(|mapping| !mapping.pattern.is_negative())
            .filter_map(|mapping| {
                let text: &[u8] = mapping.pattern.text.as_ref();
                let components: Vec<Vec<u8>> = text
                    .split(|byte| *byte == b'/')
                    .filter(|part| !part.is_empty())
                    .map(<[u8]>::to_vec)
                    .collect();
                (components.len() > 1).then_some(components)
            })
            .collect();
        Ok(PatternSet { search, deep })
    }

    /// Returns whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.search
            .patterns
            .iter()
            .all(|list| list.patterns.is_empty())
    }

    /// Returns whether the patterns select `path` or a directory above it.
    pub fn choose(&self, path: &RepoPath, is_dir: bool) -> bool {
        let mut at = path.clone();
        let mut is_dir = is_dir;
        // A selected directory selects all its content.
        let mut chosen = false;
        while !at.is_root() {
            chosen |= self.deciding(&at, is_dir).is_some();
            let Some((parent, _)) = at.split_last() else {
                break;
            };
            (at, is_dir) = (parent, true);
        }
        chosen
    }

    /// Returns the pattern that selects `path` itself, without slashes at its ends.
    pub fn deciding(&self, path: &RepoPath, is_dir: bool) -> Option<Vec<u8>> {
        let found = self.search.pattern_matching_relative_path(
            path.as_bytes().as_bstr(),
            Some(is_dir),
            Case::Sensitive,
        )?;
        (!found.pattern.is_negative()).then(|| found.pattern.text.to_vec())
    }

    /// Returns whether an anchored pattern may select something in `dir`.
    pub fn may_choose_in(&self, dir: &RepoPath) -> bool {
        let dir: Vec<_> = dir.components().collect();
        self.deep.iter().any(|pattern| {
            for (component, name) in pattern.iter().zip(&dir) {
                if component == b"**" {
                    return true;
                }
                if !is_match(component, name.as_bytes()) {
                    return false;
                }
            }
            pattern.len() > dir.len()
        })
    }
}

/// Returns whether one name matches a pattern without slashes.
pub fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    gix::glob::wildmatch(
        pattern.as_bstr(),
        name.as_bstr(),
        wildmatch::Mode::NO_MATCH_SLASH_LITERAL,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RepoPath {
        RepoPath::parse(text).unwrap()
    }

    #[test]
    fn patterns_choose_as_gitignore_leaves_out() {
        let set =
            PatternSet::parse(b"# builds\ntarget/\n*.env\n!prod.env\n/deep/er/cache\n").unwrap();
        assert!(set.choose(&path("target"), true));
        assert!(set.choose(&path("crates/x/target/debug/x"), false));
        assert!(!set.choose(&path("target"), false));
        assert!(set.choose(&path("a/local.env"), false));
        assert!(!set.choose(&path("prod.env"), false));
        assert!(set.choose(&path("deep/er/cache"), true));
        assert!(!set.choose(&path("x/deep/er/cache"), true));
        assert_eq!(set.deciding(&path("local.env"), false).unwrap(), b"*.env");
        assert!(PatternSet::parse(b"\n# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn ways_into_directories_are_seen() {
        let set = PatternSet::parse(b"a/b*/c\nx\n").unwrap();
        assert!(set.may_choose_in(&path("a")));
        assert!(set.may_choose_in(&path("a/bb")));
        assert!(!set.may_choose_in(&path("a/bb/c")));
        assert!(!set.may_choose_in(&path("other")));
        assert!(
            PatternSet::parse(b"**/cache/x")
                .unwrap()
                .may_choose_in(&path("any/where"))
        );
    }
}
