//! Regular-expression search in the lines of a fork's text files.
//!
//! The search first finds the files without reading them. Then it reads several at a time, in the
//! order of their paths, until it has enough lines. It leaves out files that git ignores, unless
//! they are tracked.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::thread;

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;

use super::error::ToolError;
use super::router::ActiveFork;
use tine_attr::FileKind;
use tine_change::changeset::read_ignore_file;
use tine_git::IgnoreRules;
use tine_git::index::tracked_below;
use tine_path::RepoPath;
use tine_sys::parallel;
use tine_workspace::{FsError, OperationError};

/// Maximum size of a searched file, in bytes. Longer ones are only listed.
pub const SEARCH_MAX: u64 = 64 << 20;

/// Maximum number of lines that a search returns.
pub const LINES_MAX: usize = 10_000;

/// Maximum length of a returned line, in characters.
const LINE_MAX: usize = 500;

/// Number of files between two checks for enough lines.
const RUN: usize = 256;

/// Pattern, place and limits of a search.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// Regular expression.
    pub pattern: String,
    /// Path as the tool got it. None for the whole fork.
    pub path: Option<Vec<u8>>,
    /// Globs of files to search. A glob that begins with `!` excludes files.
    pub globs: Vec<String>,
    /// True to ignore case.
    pub ignore_case: bool,
    /// True to search files that git ignores, too.
    pub ignored: bool,
    /// Maximum number of lines, capped at [`LINES_MAX`].
    pub limit: usize,
}

/// Line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedLine {
    /// Path of the file.
    pub path: RepoPath,
    /// Line number, from 1.
    pub line: u64,
    /// Text of the line without its end, lossily decoded. A long one is cut.
    pub text: String,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchOutcome {
    /// Lines that match, sorted by path and line.
    pub lines: Vec<MatchedLine>,
    /// True if there are more lines.
    pub truncated: bool,
    /// Files that were not searched, because they exceed [`SEARCH_MAX`].
    pub too_large: Vec<RepoPath>,
}

/// Searches the files at and under `start`, which is free of symlinks.
///
/// `texts` replace the files at their paths.
///
/// # Errors
/// [`ToolError::Pattern`] and [`ToolError::Glob`] if the options are not valid, and
/// [`ToolError::Operation`] and [`ToolError::Git`] if the fork cannot be read.
pub fn search(
    active: &ActiveFork<'_>,
    start: &RepoPath,
    texts: BTreeMap<RepoPath, String>,
    options: &SearchOptions,
) -> Result<SearchOutcome, ToolError> {
    let matcher = matcher(&options.pattern, options.ignore_case)?;
    let walk = Walk {
        active,
        globs: Globs::parse(&options.globs)?,
        ignored: options.ignored,
    };
    let files = walk.files(start, texts.keys())?;
    let limit = options.limit.min(LINES_MAX);
    let mut outcome = SearchOutcome::default();
    for run in files.chunks(RUN) {
        let left = limit - outcome.lines.len();
        let searched = search_run(active, run, &texts, &matcher, left)?;
        for file in searched.into_values() {
            match file {
                Searched::Lines(lines) => outcome.lines.extend(lines),
                Searched::TooLarge(path) => outcome.too_large.push(path),
            }
        }
        // One line more than wanted shows that there are more.
        if outcome.lines.len() > limit {
            outcome.lines.truncate(limit);
            outcome.truncated = true;
            break;
        }
    }
    Ok(outcome)
}

/// Builds the matcher. `^` and `$` match at line ends of both kinds.
fn matcher(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .case_insensitive(ignore_case)
        .multi_line(true)
        .crlf(true)
        .build(pattern)
        .map_err(|error| ToolError::Pattern(error.to_string()))
}

/// Globs as a `.gitignore` that selects files instead of excluding them.
struct Globs(Gitignore);

impl Globs {
    fn parse(globs: &[String]) -> Result<Globs, ToolError> {
        let failed = |error: ignore::Error| ToolError::Glob(error.to_string());
        let mut builder = GitignoreBuilder::new("");
        builder.allow_unclosed_class(false);
        for glob in globs {
            builder.add_line(None, glob).map_err(failed)?;
        }
        Ok(Globs(builder.build().map_err(failed)?))
    }

    /// Returns whether the globs select a file or a directory above it.
    fn choose(&self, path: &RepoPath) -> bool {
        match self.0.matched_path_or_any_parents(path.as_path(), false) {
            Match::Ignore(_) => true,
            Match::Whitelist(_) => false,
            Match::None => self.0.num_ignores() == 0,
        }
    }

    /// Returns whether the globs exclude a directory with all under it.
    fn leave_out(&self, dir: &RepoPath) -> bool {
        self.0.matched(dir.as_path(), true).is_whitelist()
    }
}

/// Finds the files to search.
struct Walk<'a> {
    active: &'a ActiveFork<'a>,
    globs: Globs,
    ignored: bool,
}

impl Walk<'_> {
    /// Returns all files to search, sorted. Buffers are files, saved or not.
    fn files<'t>(
        &self,
        start: &RepoPath,
        buffers: impl Iterator<Item = &'t RepoPath>,
    ) -> Result<Vec<RepoPath>, ToolError> {
        let workspace = &self.active.fork.workspace;
        let buffers: Vec<&RepoPath> = buffers.filter(|path| path.starts_with(start)).collect();
        match workspace.resolve(start) {
            Ok(attr) if attr.kind == FileKind::Directory => {}
            // A file that the caller names is searched regardless of the rules.
            Ok(attr) if attr.kind == FileKind::Regular => return Ok(vec![start.clone()]),
            Ok(_) => return Err(OperationError::NotAFile(start.clone()).into()),
            Err(_) if buffers.contains(&start) => return Ok(vec![start.clone()]),
            Err(error) => return Err(OperationError::at(start)(error).into()),
        }
        let mut rules = IgnoreRules::new(self.active.repository, |dir: &RepoPath| {
            read_ignore_file(self.active.fork, dir)
        })?;
        let heeds_rules = !self.ignored && !rules.is_ignored(start, true)?;
        let mut is_ignored = |path: &RepoPath, is_dir| {
            if heeds_rules {
                rules.is_ignored(path, is_dir)
            } else {
                Ok(false)
            }
        };
        let (mut files, mut ignored) = (BTreeSet::new(), Vec::new());
        let mut rest = vec![start.clone()];
        while let Some(dir) = rest.pop() {
            let entries = match workspace.list_path(&dir) {
                // The directory was removed meanwhile.
                Err(FsError::NotFound | FsError::NotADirectory) => continue,
                entries => entries.map_err(OperationError::at(&dir))?,
            };
            for (name, kind, _) in entries {
                let path = dir.join(&name);
                let is_dir = kind == FileKind::Directory;
                let is_wanted = match kind {
                    _ if name.is_dot_git() => false,
                    FileKind::Directory => !self.globs.leave_out(&path),
                    FileKind::Regular => self.globs.choose(&path),
                    _ => false,
                };
                if !is_wanted {
                    continue;
                }
                if is_ignored(&path, is_dir)? {
                    ignored.push(path);
                } else if is_dir {
                    rest.push(path);
                } else {
                    files.insert(path);
                }
            }
        }
        for path in buffers {
            if self.globs.choose(path) && !is_ignored(path, false)? {
                files.insert(path.clone());
            }
        }
        let tracked = tracked_below(self.active.repository, &self.active.fork.worktree, &ignored)?;
        let is_file = |path: &RepoPath| matches!(workspace.resolve(path), Ok(attr) if attr.kind == FileKind::Regular);
        let tracked = tracked.into_iter();
        files.extend(tracked.filter(|path| self.globs.choose(path) && is_file(path)));
        Ok(files.into_iter().collect())
    }
}

/// Result of searching one file.
enum Searched {
    Lines(Vec<MatchedLine>),
    TooLarge(RepoPath),
}

/// Searches some files, several at a time, and returns results by path.
///
/// Each file gives at most one line more than `limit`.
fn search_run(
    active: &ActiveFork<'_>,
    files: &[RepoPath],
    texts: &BTreeMap<RepoPath, String>,
    matcher: &RegexMatcher,
    limit: usize,
) -> Result<BTreeMap<RepoPath, Searched>, ToolError> {
    let found = Mutex::new(BTreeMap::new());
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    parallel::at_once(files, threads, |path| {
        let searched = match texts.get(path) {
            Some(text) => Searched::Lines(search_bytes(path, text.as_bytes(), matcher, limit)?),
            None => search_file(active, path, matcher, limit)?,
        };
        if !matches!(&searched, Searched::Lines(lines) if lines.is_empty()) {
            found.lock().insert(path.clone(), searched);
        }
        Ok::<(), ToolError>(())
    })?;
    Ok(found.into_inner())
}

/// Reason to stop reading a file.
enum Ended {
    Binary,
    TooLarge,
    Failed(OperationError),
}

impl From<OperationError> for Ended {
    fn from(error: OperationError) -> Ended {
        Ended::Failed(error)
    }
}

fn search_file(
    active: &ActiveFork<'_>,
    path: &RepoPath,
    matcher: &RegexMatcher,
    limit: usize,
) -> Result<Searched, ToolError> {
    let mut bytes = Vec::new();
    let read = active.fork.workspace.read_at(path, &mut |piece| {
        // A file with a NUL gives no lines, so the rest of it need not be read.
        if piece.contains(&0) && !has_wide_mark(&bytes, piece) {
            return Err(Ended::Binary);
        }
        if (bytes.len() + piece.len()) as u64 > SEARCH_MAX {
            return Err(Ended::TooLarge);
        }
        bytes.extend_from_slice(piece);
        Ok(())
    });
    match read {
        Ok(_) => Ok(Searched::Lines(search_bytes(path, &bytes, matcher, limit)?)),
        Err(Ended::Binary) => Ok(Searched::Lines(Vec::new())),
        Err(Ended::TooLarge) => Ok(Searched::TooLarge(path.clone())),
        // The file was removed or replaced meanwhile.
        Err(Ended::Failed(
            OperationError::NotFound(_)
            | OperationError::NotADirectory(_)
            | OperationError::IsADirectory(_)
            | OperationError::NotAFile(_),
        )) => Ok(Searched::Lines(Vec::new())),
        Err(Ended::Failed(error)) => Err(error.into()),
    }
}

/// Returns whether a file begins with a byte order mark of UTF-16.
///
/// `read` is what was read before `piece`.
fn has_wide_mark(read: &[u8], piece: &[u8]) -> bool {
    let beginning = if read.is_empty() { piece } else { read };
    beginning.starts_with(&[0xff, 0xfe]) || beginning.starts_with(&[0xfe, 0xff])
}

fn search_bytes(
    path: &RepoPath,
    bytes: &[u8],
    matcher: &RegexMatcher,
    limit: usize,
) -> Result<Vec<MatchedLine>, ToolError> {
    let mut searcher = SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .line_number(true)
        .build();
    let mut collector = MatchCollector {
        path,
        limit,
        lines: Vec::new(),
    };
    let searched = searcher.search_slice(matcher, bytes, &mut collector);
    searched.map_err(|error| ToolError::Pattern(error.to_string()))?;
    Ok(collector.lines)
}

/// Collects lines that match.
struct MatchCollector<'a> {
    path: &'a RepoPath,
    limit: usize,
    lines: Vec<MatchedLine>,
}

impl Sink for MatchCollector<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, std::io::Error> {
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.lines.push(MatchedLine {
            path: self.path.clone(),
            line: found.line_number().unwrap_or(0),
            text: String::from_utf8_lossy(line)
                .chars()
                .take(LINE_MAX)
                .collect(),
        });
        Ok(self.lines.len() <= self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RepoPath {
        RepoPath::parse(text).unwrap()
    }

    fn chosen(globs: &[&str]) -> String {
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let globs = Globs::parse(&globs).unwrap();
        let files = [
            "a.rs",
            "b.ts",
            "src/a.rs",
            "src/b.tsx",
            "target/a.rs",
            "target/x/b.ts",
        ];
        let files = files.into_iter().filter(|file| globs.choose(&path(file)));
        files.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn globs_choose_as_a_gitignore_leaves_out() {
        let all = "a.rs b.ts src/a.rs src/b.tsx target/a.rs target/x/b.ts";
        assert_eq!(chosen(&[]), all);
        assert_eq!(chosen(&["*.rs"]), "a.rs src/a.rs target/a.rs");
        assert_eq!(chosen(&["/*.rs"]), "a.rs");
        assert_eq!(chosen(&["*.{ts,tsx}"]), "b.ts src/b.tsx target/x/b.ts");
        assert_eq!(chosen(&["src/"]), "src/a.rs src/b.tsx");
        assert_eq!(chosen(&["src/**/*.rs"]), "src/a.rs");
        assert_eq!(chosen(&["!target"]), "a.rs b.ts src/a.rs src/b.tsx");
        assert_eq!(chosen(&["*.rs", "!target"]), "a.rs src/a.rs target/a.rs");
        assert_eq!(chosen(&["*.rs", "!target/**"]), "a.rs src/a.rs");
        assert!(matches!(
            Globs::parse(&["a[".to_owned()]),
            Err(ToolError::Glob(_))
        ));
    }

    fn lines(pattern: &str, bytes: &[u8]) -> Vec<(u64, String)> {
        let matcher = matcher(pattern, false).unwrap();
        let found = search_bytes(&path("f"), bytes, &matcher, 3).unwrap();
        found
            .into_iter()
            .map(|line| (line.line, line.text))
            .collect()
    }

    #[test]
    fn lines_are_told_without_their_ends_and_long_ones_are_cut() {
        assert_eq!(
            lines("b$", b"a b\r\nb c\nc b\nb"),
            [
                (1, "a b".to_owned()),
                (3, "c b".to_owned()),
                (4, "b".to_owned())
            ]
        );
        assert_eq!(lines("x", &[b'x'; 2000])[0].1.len(), LINE_MAX);
        assert_eq!(lines("b", b"\xff b\n")[0].1, "\u{fffd} b");
        assert_eq!(
            lines("b", b"b\nb\nb\nb\nb\n").len(),
            4,
            "one more than wanted"
        );
        assert_eq!(lines("b", b"b\n\0b\n"), [], "no text");
        assert_eq!(lines("b", b"\xff\xfea\0\n\0b\0\n\0"), [(2, "b".to_owned())]);
    }
}
