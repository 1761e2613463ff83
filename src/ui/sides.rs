//! Comparison of two texts side by side. Pure.
//!
//! Each row has a line of each text. Lines are compared as `git diff` does. Lines that replace each
//! other are compared again word by word.

use std::ops::Range;

use gix::diff::blob::{Algorithm, Diff, InternedInput};
use serde::Serialize;

/// Maximum length of a shown line, in bytes. A longer one is cut.
const LINE_MAX: usize = 2000;

/// Divisor for the likeness of two lines.
///
/// Their words are compared if they share one part in so many of the shorter line.
const LIKENESS: usize = 4;

/// Limits of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SidesOptions {
    /// Number of unchanged lines around each difference.
    pub context: usize,
    /// Maximum number of rows.
    pub max_rows: usize,
}

/// Differences between two texts.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Sides {
    /// Hunks in the order of lines.
    pub hunks: Vec<Hunk>,
    /// Number of all rows, also of those over the limit.
    pub rows: usize,
}

/// Consecutive rows of both texts.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hunk {
    /// First line in the old text, from 1.
    pub old_line: usize,
    /// First line in the new text, from 1.
    pub new_line: usize,
    pub rows: Vec<DiffRow>,
}

/// Line of each text.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum DiffRow {
    Same {
        same: Vec<Span>,
    },
    /// Lines that differ. None if only the other text has a line here.
    Changed {
        old: Option<Vec<Span>>,
        new: Option<Vec<Span>>,
    },
}

/// Part of a line.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Span(pub Mark, pub String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mark {
    Plain,
    /// Text that the other line does not have here.
    Changed,
    /// Remark about the line, not part of its text.
    Note,
}

/// Compares two texts. The cost grows with their lines and differences.
pub(crate) fn sides(old: &[u8], new: &[u8], options: SidesOptions) -> Sides {
    let old_lines: Vec<&[u8]> = old.split_inclusive(|&byte| byte == b'\n').collect();
    let new_lines: Vec<&[u8]> = new.split_inclusive(|&byte| byte == b'\n').collect();
    let mut input = InternedInput::default();
    input.update_before(old_lines.iter().copied());
    input.update_after(new_lines.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let differences: Vec<(Range<usize>, Range<usize>)> = diff
        .hunks()
        .map(|hunk| (wide(hunk.before), wide(hunk.after)))
        .collect();

    let mut builder = SidesBuilder {
        old: &old_lines,
        new: &new_lines,
        room: options.max_rows,
        sides: Sides {
            hunks: Vec::new(),
            rows: 0,
        },
    };
    let mut differences = differences.into_iter().peekable();
    while let Some((before, after)) = differences.next() {
        let lead = before.start.min(options.context);
        builder.begin(before.start - lead, after.start.saturating_sub(lead));
        builder.same(before.start - lead..before.start);
        let mut end = before.end;
        builder.changed(before, after);
        // Differences closer than both contexts share a hunk.
        while let Some((before, after)) = differences.next_if(|(next, _)| {
            next.start.saturating_sub(end) <= options.context.saturating_mul(2)
        }) {
            builder.same(end..before.start);
            end = before.end;
            builder.changed(before, after);
        }
        builder.same(end..end.saturating_add(options.context).min(old_lines.len()));
    }
    builder.sides.hunks.retain(|hunk| !hunk.rows.is_empty());
    builder.sides
}

struct SidesBuilder<'a> {
    old: &'a [&'a [u8]],
    new: &'a [&'a [u8]],
    /// Number of rows that may still be added. Further ones are only counted.
    room: usize,
    sides: Sides,
}

impl SidesBuilder<'_> {
    fn begin(&mut self, old_start: usize, new_start: usize) {
        self.sides.hunks.push(Hunk {
            old_line: old_start + 1,
            new_line: new_start + 1,
            rows: Vec::new(),
        });
    }

    fn push(&mut self, row: impl FnOnce() -> DiffRow) {
        self.sides.rows += 1;
        if let Some(hunk) = self.sides.hunks.last_mut().filter(|_| self.room > 0) {
            self.room -= 1;
            hunk.rows.push(row());
        }
    }

    /// Adds unchanged lines, given by their range in the old text.
    fn same(&mut self, lines: Range<usize>) {
        for line in self.old.get(lines).unwrap_or_default() {
            self.push(|| DiffRow::Same { same: plain(line) });
        }
    }

    fn changed(&mut self, before: Range<usize>, after: Range<usize>) {
        let old = self.old.get(before).unwrap_or_default();
        let new = self.new.get(after).unwrap_or_default();
        for at in 0..old.len().max(new.len()) {
            self.push(|| match (old.get(at), new.get(at)) {
                (Some(old), Some(new)) => {
                    let (old, new) = by_words(old, new);
                    DiffRow::Changed {
                        old: Some(old),
                        new: Some(new),
                    }
                }
                (old, new) => DiffRow::Changed {
                    old: old.map(|line| plain(line)),
                    new: new.map(|line| plain(line)),
                },
            });
        }
    }
}

fn wide(lines: Range<u32>) -> Range<usize> {
    lines.start as usize..lines.end as usize
}

/// Returns the shown text of a line, and a remark about it.
///
/// The text has no line end, and is cut if it is too long.
fn shown(line: &[u8]) -> (String, Option<Span>) {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let end = text.len().min(LINE_MAX);
    let note = match (text.len() - end, line.ends_with(b"\n")) {
        (0, true) => None,
        (0, false) => Some("no newline at the end".to_owned()),
        (more, _) => Some(format!("{more} bytes more")),
    };
    (
        String::from_utf8_lossy(&text[..end]).into_owned(),
        note.map(|note| Span(Mark::Note, note)),
    )
}

fn plain(line: &[u8]) -> Vec<Span> {
    let (text, note) = shown(line);
    std::iter::once(Span(Mark::Plain, text))
        .chain(note)
        .collect()
}

/// Compares two lines and marks what differs.
///
/// Nothing is marked if they have little in common.
fn by_words(old: &[u8], new: &[u8]) -> (Vec<Span>, Vec<Span>) {
    let ((old_text, old_note), (new_text, new_note)) = (shown(old), shown(new));
    let mut input = InternedInput::default();
    input.update_before(words(&old_text));
    input.update_after(words(&new_text));
    let diff = Diff::compute(Algorithm::Histogram, &input);
    let is_same: Vec<bool> = (0..input.before.len())
        .map(|at| !diff.is_removed(u32::try_from(at).unwrap_or(u32::MAX)))
        .collect();
    let shared: usize = words(&old_text)
        .zip(&is_same)
        .filter(|(word, is_same)| **is_same && !word.trim().is_empty())
        .map(|(word, _)| word.len())
        .sum();
    let is_alike = shared * LIKENESS >= old_text.trim().len().min(new_text.trim().len());
    let is_added = |at: usize| diff.is_added(u32::try_from(at).unwrap_or(u32::MAX));
    let is_removed = |at: usize| !is_same.get(at).copied().unwrap_or_default();
    let spans = |text: &str, is_changed: &dyn Fn(usize) -> bool, note: Option<Span>| -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for (at, word) in words(text).enumerate() {
            let mark = if is_alike && is_changed(at) {
                Mark::Changed
            } else {
                Mark::Plain
            };
            match spans.last_mut() {
                Some(Span(last, text)) if *last == mark => text.push_str(word),
                _ => spans.push(Span(mark, word.to_owned())),
            }
        }
        spans.extend(note);
        spans
    };
    (
        spans(&old_text, &is_removed, old_note),
        spans(&new_text, &is_added, new_note),
    )
}

/// Splits into words, white space, and single other characters.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let kind = |c: char| match c {
        _ if c.is_alphanumeric() || c == '_' => 0,
        _ if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let of = kind(first);
        let end = match of {
            2 => first.len_utf8(),
            _ => rest.find(|c| kind(c) != of).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: SidesOptions = SidesOptions {
        context: 1,
        max_rows: 100,
    };

    fn span(mark: Mark, text: &str) -> Span {
        Span(mark, text.to_owned())
    }

    #[test]
    fn lines_in_the_place_of_each_other_are_compared_word_by_word() {
        let compared = sides(
            b"a\nlet x = one(two);\nz\n",
            b"a\nlet x = one(three);\nz\n",
            ALL,
        );
        let line = |word| {
            Some(vec![
                span(Mark::Plain, "let x = one("),
                span(Mark::Changed, word),
                span(Mark::Plain, ");"),
            ])
        };
        let same = |text| DiffRow::Same {
            same: vec![span(Mark::Plain, text)],
        };
        let changed = DiffRow::Changed {
            old: line("two"),
            new: line("three"),
        };
        assert_eq!(
            compared,
            Sides {
                hunks: vec![Hunk {
                    old_line: 1,
                    new_line: 1,
                    rows: vec![same("a"), changed, same("z")],
                }],
                rows: 3,
            }
        );
    }

    #[test]
    fn lines_that_share_nothing_are_not_marked() {
        let compared = sides(b"alpha beta\n", b"12345 67890\n", ALL);
        let DiffRow::Changed { old: Some(old), .. } = &compared.hunks[0].rows[0] else {
            panic!("{compared:?}")
        };
        assert_eq!(*old, [span(Mark::Plain, "alpha beta")]);
    }

    #[test]
    fn hunks_apart_stay_apart_and_say_where_they_begin() {
        let old = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let compared = sides(old, b"1\n3\n4\n5\n6\n7\n8\n9\nten\n", ALL);
        let places: Vec<_> = compared
            .hunks
            .iter()
            .map(|hunk| (hunk.old_line, hunk.new_line, hunk.rows.len()))
            .collect();
        assert_eq!(places, [(1, 1, 3), (9, 8, 2)]);
        assert_eq!(
            compared.hunks[0].rows[1],
            DiffRow::Changed {
                old: Some(vec![span(Mark::Plain, "2")]),
                new: None
            }
        );
    }

    #[test]
    fn what_is_cut_off_is_counted() {
        let new: String = (0..50).map(|line| format!("{line}\n")).collect();
        let options = SidesOptions {
            max_rows: 10,
            ..ALL
        };
        let compared = sides(b"", new.as_bytes(), options);
        assert_eq!((compared.hunks[0].rows.len(), compared.rows), (10, 50));
    }

    #[test]
    fn a_missing_newline_and_a_long_line_are_told() {
        let compared = sides(b"end\n", b"end", ALL);
        let DiffRow::Changed {
            old: Some(old),
            new: Some(new),
        } = &compared.hunks[0].rows[0]
        else {
            panic!("{compared:?}")
        };
        assert_eq!(*old, [span(Mark::Plain, "end")]);
        assert_eq!(
            *new,
            [
                span(Mark::Plain, "end"),
                span(Mark::Note, "no newline at the end")
            ]
        );
        let long = sides(b"", &[b'x'; 2500], ALL);
        let DiffRow::Changed { new: Some(new), .. } = &long.hunks[0].rows[0] else {
            panic!("{long:?}")
        };
        assert_eq!(new[1], span(Mark::Note, "500 bytes more"));
    }

    #[test]
    fn equal_texts_and_empty_ones_have_no_hunks() {
        assert_eq!(sides(b"a\n", b"a\n", ALL).hunks, []);
        assert_eq!(sides(b"", b"", ALL).hunks, []);
    }
}
