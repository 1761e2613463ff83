//! Three-way merging of texts, line by line.
//!
//! ```text
//! base ─► ours    hunks ┐    touching hunks of both sides        equal, or one side only ─► clean
//! base ─► theirs  hunks ┴─►  become one region of the base  ─►   else ─► a conflict
//! ```
//!
//! The rules are those of `git merge-file`. Changes with no unchanged line between them touch. A
//! change that both sides made alike is not a conflict.
//!
//! In [`Style::Merge`], ours and theirs are compared once more inside a conflict. The lines that
//! they share are not part of it, unless only three or fewer of them separate two differences. The
//! styles that show the base keep the conflict whole, because the base lines would not match a part
//! of it.

mod render;
#[cfg(test)]
mod tests;

mod reversal;

use std::ops::Range;

use gix::diff::blob::{Algorithm, Diff, Interner, NoSliderHeuristic, Token};

pub use self::render::{MarkerOptions, Style};

/// Number of bytes that git searches for a NUL byte.
const BINARY_LOOK_BYTES: usize = 8000;

/// Returns true if git would treat these bytes as binary.
pub fn is_binary(content: &[u8]) -> bool {
    content
        .iter()
        .take(BINARY_LOOK_BYTES)
        .any(|&byte| byte == 0)
}

pub use self::reversal::takes_back;

/// Side whose lines replace a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favor {
    /// Lines of the base.
    Base,
    /// Lines of ours.
    Ours,
    /// Lines of theirs.
    Theirs,
    /// Lines of ours, then of theirs. Lines that they share appear once.
    Union,
}

/// Result of a three-way merge of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextMerge {
    base: Lines,
    ours: Lines,
    theirs: Lines,
    /// Regions where a side differs from the base, in ascending order.
    ///
    /// Between two regions the texts are alike, or both sides made the same change.
    regions: Vec<Region>,
}

/// Conflict in a text: the lines of each text at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextHunk<'a> {
    /// Lines of the base.
    pub base: &'a [u8],
    /// Lines of ours.
    pub ours: &'a [u8],
    /// Lines of theirs.
    pub theirs: &'a [u8],
    /// Line numbers in the base: 1-based, the end excluded.
    ///
    /// An empty range is before the line that it names.
    pub base_lines: Range<usize>,
    /// Line numbers in ours, as in `base_lines`.
    pub ours_lines: Range<usize>,
    /// Line numbers in theirs, as in `base_lines`.
    pub theirs_lines: Range<usize>,
}

/// Merges the changes of ours and theirs to `base`.
///
/// The cost grows with the number of lines and of differences. Lines are counted with 31 bits.
pub fn merge_text(base: &[u8], ours: &[u8], theirs: &[u8]) -> TextMerge {
    let mut interner = Interner::new(0);
    let [base, ours, theirs] =
        [base, ours, theirs].map(|content| Lines::new(content, &mut interner));
    let regions = regions(&base, &ours, &theirs, interner.num_tokens());
    TextMerge {
        base,
        ours,
        theirs,
        regions,
    }
}

impl TextMerge {
    /// Returns true if there is no conflict.
    pub fn is_clean(&self) -> bool {
        !self.regions.iter().any(Region::is_conflict)
    }

    /// Returns the conflicts, each whole.
    ///
    /// The styles that show the base show them like this.
    pub fn hunks(&self) -> Vec<TextHunk<'_>> {
        let one_based = |lines: &Range<usize>| lines.start + 1..lines.end + 1;
        self.regions
            .iter()
            .filter(|region| region.is_conflict())
            .map(|region| TextHunk {
                base: self.base.bytes(&region.base),
                ours: self.ours.bytes(&region.ours),
                theirs: self.theirs.bytes(&region.theirs),
                base_lines: one_based(&region.base),
                ours_lines: one_based(&region.ours),
                theirs_lines: one_based(&region.theirs),
            })
            .collect()
    }
}

/// Lines of a text, with their line ends.
///
/// The last line may have none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lines {
    content: Vec<u8>,
    /// Offset of each line, followed by the length of the text.
    starts: Vec<usize>,
    tokens: Vec<Token>,
}

impl Lines {
    fn new<'a>(content: &'a [u8], interner: &mut Interner<&'a [u8]>) -> Lines {
        let mut starts = vec![0];
        let mut tokens = Vec::new();
        let mut end = 0;
        for line in content.split_inclusive(|&byte| byte == b'\n') {
            end += line.len();
            starts.push(end);
            tokens.push(interner.intern(line));
        }
        Lines {
            content: content.to_vec(),
            starts,
            tokens,
        }
    }

    fn count(&self) -> usize {
        self.tokens.len()
    }

    fn bytes(&self, lines: &Range<usize>) -> &[u8] {
        let start = self.starts.get(lines.start).copied().unwrap_or_default();
        let end = self.starts.get(lines.end).copied().unwrap_or(start);
        self.content.get(start..end).unwrap_or_default()
    }

    fn tokens(&self, lines: &Range<usize>) -> &[Token] {
        self.tokens.get(lines.clone()).unwrap_or_default()
    }
}

/// Lines of one text that replace lines of another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    before: Range<usize>,
    after: Range<usize>,
}

fn differences(before: &[Token], after: &[Token], token_count: u32) -> Vec<Difference> {
    let mut diff = Diff::default();
    diff.compute_with(Algorithm::Histogram, before, after, token_count);
    diff.postprocess_with(before, after, NoSliderHeuristic);
    let wide = |lines: Range<u32>| lines.start as usize..lines.end as usize;
    diff.hunks()
        .map(|hunk| Difference {
            before: wide(hunk.before),
            after: wide(hunk.after),
        })
        .collect()
}

/// Range of the texts where a side differs from the base.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Region {
    base: Range<usize>,
    ours: Range<usize>,
    theirs: Range<usize>,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Ours,
    Theirs,
    /// Both sides have the same lines, after changes that touch.
    Same,
    /// Differences between ours and theirs, at least one.
    Conflict(Vec<Difference>),
}

impl Region {
    fn is_conflict(&self) -> bool {
        matches!(self.outcome, Outcome::Conflict(_))
    }
}

/// Position in one side while following the lines of the base.
struct SideCursor<'a> {
    differences: std::iter::Peekable<std::slice::Iter<'a, Difference>>,
    /// End of the last difference taken, as a line of the base.
    base_end: usize,
    side_end: usize,
}

impl<'a> SideCursor<'a> {
    fn new(differences: &'a [Difference]) -> SideCursor<'a> {
        SideCursor {
            differences: differences.iter().peekable(),
            base_end: 0,
            side_end: 0,
        }
    }

    /// Returns the base line at which the next difference begins.
    fn next_start(&mut self) -> Option<usize> {
        self.differences.peek().map(|next| next.before.start)
    }

    /// Takes the next difference if it begins at or before `end`.
    fn take_up_to(&mut self, end: usize) -> Option<&'a Difference> {
        let next = self.differences.next_if(|next| next.before.start <= end)?;
        self.base_end = next.before.end;
        self.side_end = next.after.end;
        Some(next)
    }

    /// Returns the side's line for a line of the base.
    ///
    /// The line must be after the last difference taken, and before the next one.
    fn side_line(&self, base_line: usize) -> usize {
        self.side_end + base_line.saturating_sub(self.base_end)
    }
}

/// Joins differences of both sides that touch, and decides their outcome.
fn regions(base: &Lines, ours: &Lines, theirs: &Lines, token_count: u32) -> Vec<Region> {
    let our_differences = differences(&base.tokens, &ours.tokens, token_count);
    let their_differences = differences(&base.tokens, &theirs.tokens, token_count);
    let (mut left, mut right) = (
        SideCursor::new(&our_differences),
        SideCursor::new(&their_differences),
    );
    let mut regions = Vec::new();
    while let Some(start) = [left.next_start(), right.next_start()]
        .into_iter()
        .flatten()
        .min()
    {
        let (ours_start, theirs_start) = (left.side_line(start), right.side_line(start));
        let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
        let mut end = start;
        loop {
            if let Some(difference) = left.take_up_to(end) {
                end = end.max(difference.before.end);
                of_ours.push(difference);
            } else if let Some(difference) = right.take_up_to(end) {
                end = end.max(difference.before.end);
                of_theirs.push(difference);
            } else {
                break;
            }
        }
        let (ours_range, theirs_range) = (
            ours_start..left.side_line(end),
            theirs_start..right.side_line(end),
        );
        let outcome = match (of_ours.as_slice(), of_theirs.as_slice()) {
            (_, []) => Outcome::Ours,
            ([], _) => Outcome::Theirs,
            ([one], [other])
                if one.before == other.before
                    && ours.tokens(&one.after) == theirs.tokens(&other.after) =>
            {
                // Both sides made the same change, so the text of ours is kept.
                continue;
            }
            _ => conflict(ours, &ours_range, theirs, &theirs_range, token_count),
        };
        regions.push(Region {
            base: start..end,
            ours: ours_range,
            theirs: theirs_range,
            outcome,
        });
    }
    regions
}

/// Finds the differences between ours and theirs in a conflict.
fn conflict(
    ours: &Lines,
    ours_range: &Range<usize>,
    theirs: &Lines,
    theirs_range: &Range<usize>,
    token_count: u32,
) -> Outcome {
    let within = |lines: Range<usize>, range: &Range<usize>| {
        lines.start + range.start..lines.end + range.start
    };
    let found = differences(
        ours.tokens(ours_range),
        theirs.tokens(theirs_range),
        token_count,
    );
    if found.is_empty() {
        return Outcome::Same;
    }
    let found = found.into_iter().map(|difference| Difference {
        before: within(difference.before, ours_range),
        after: within(difference.after, theirs_range),
    });
    Outcome::Conflict(found.collect())
}
