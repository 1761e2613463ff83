//! Three-way merging of texts, line by line.
//!
//! ```text
//! base ─► ours    hunks ┐    touching hunks of both sides        equal, or one side only ─► clean
//! base ─► theirs  hunks ┴─►  become one region of the base  ─►   else ─► a conflict
//! ```
//!
//! The rules are those of `git merge-file`: changes with no unchanged line between them touch, and
//! what both sides changed alike is no conflict. Within a conflict ours and theirs are compared
//! once more; the lines that they share are no part of it, unless there are three or fewer between
//! two differences ([`Style::Merge`]; where the base is shown it would not fit, so the conflict
//! stays whole).

mod render;
#[cfg(test)]
mod tests;

mod reversal;

use std::ops::Range;

use gix::diff::blob::{Algorithm, Diff, Interner, NoSliderHeuristic, Token};

pub use self::render::{MarkerOptions, Style};

/// git looks so far for a NUL byte.
const BINARY_LOOK_BYTES: usize = 8000;

/// Whether git would take these bytes for no text.
pub fn is_binary(content: &[u8]) -> bool {
    content
        .iter()
        .take(BINARY_LOOK_BYTES)
        .any(|&byte| byte == 0)
}

pub use self::reversal::takes_back;

/// Which side's lines a conflict becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favor {
    Base,
    Ours,
    Theirs,
    /// Ours, then theirs; what they share once.
    Union,
}

/// Three texts, merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextMerge {
    base: Lines,
    ours: Lines,
    theirs: Lines,
    /// From the beginning to the end; between them all three are alike, or both changed the same.
    regions: Vec<Region>,
}

/// A conflict: what stands in each text at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextHunk<'a> {
    pub base: &'a [u8],
    pub ours: &'a [u8],
    pub theirs: &'a [u8],
    /// 1-based, the end excluded: an empty range is before the line that it names.
    pub base_lines: Range<usize>,
    pub ours_lines: Range<usize>,
    pub theirs_lines: Range<usize>,
}

/// Merges what ours and theirs made of `base`. Costs grow with the lines and with the differences
/// between them; lines are counted with 31 bits.
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
    /// Whether nothing is in conflict.
    pub fn is_clean(&self) -> bool {
        !self.regions.iter().any(Region::is_conflict)
    }

    /// The conflicts, each whole: as they are shown with their base.
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

/// A text's lines, with their ends; the last one may have none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lines {
    content: Vec<u8>,
    /// Where each line begins, and the end of the last.
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

/// Lines of one text that stand in the place of lines of another.
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

/// The same place in all three texts, where at least one side differs from the base.
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
    /// Both sides came to the same, by changes that touch.
    Same,
    /// Where ours and theirs differ, at least once.
    Conflict(Vec<Difference>),
}

impl Region {
    fn is_conflict(&self) -> bool {
        matches!(self.outcome, Outcome::Conflict(_))
    }
}

/// How far the lines of the base have been followed in a side.
struct Followed<'a> {
    differences: std::iter::Peekable<std::slice::Iter<'a, Difference>>,
    /// The end of the last difference, in the base and in the side.
    base_end: usize,
    side_end: usize,
}

impl<'a> Followed<'a> {
    fn new(differences: &'a [Difference]) -> Followed<'a> {
        Followed {
            differences: differences.iter().peekable(),
            base_end: 0,
            side_end: 0,
        }
    }

    /// Where the next difference begins, in the base.
    fn next_start(&mut self) -> Option<usize> {
        self.differences.peek().map(|next| next.before.start)
    }

    /// The next difference, if it begins at `end` or before.
    fn take_up_to(&mut self, end: usize) -> Option<&'a Difference> {
        let next = self.differences.next_if(|next| next.before.start <= end)?;
        self.base_end = next.before.end;
        self.side_end = next.after.end;
        Some(next)
    }

    /// Where a line of the base is in the side: one that is in no difference, behind the last one
    /// taken.
    fn side_line(&self, base_line: usize) -> usize {
        self.side_end + base_line.saturating_sub(self.base_end)
    }
}

/// Joins the differences of both sides where they touch, and decides whose they are.
fn regions(base: &Lines, ours: &Lines, theirs: &Lines, token_count: u32) -> Vec<Region> {
    let our_differences = differences(&base.tokens, &ours.tokens, token_count);
    let their_differences = differences(&base.tokens, &theirs.tokens, token_count);
    let (mut left, mut right) = (
        Followed::new(&our_differences),
        Followed::new(&their_differences),
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
                // As if nobody had changed anything.
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

/// What is really different in a conflict.
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
