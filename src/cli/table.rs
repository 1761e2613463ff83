//! Tables of aligned columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::output::{Output, Tone};
use crate::render::text::one_line;

/// Space between two columns.
const GAP: &str = "  ";

/// Width below which no column is shortened.
const NARROWEST: usize = 6;

/// Mark in a shortened cell.
const ELLIPSIS: char = '…';

/// Cell of a [`table`].
pub(super) struct Cell {
    text: String,
    /// Escape sequence for the cell's colour.
    escape: Option<&'static str>,
    right: bool,
    /// True if shortening keeps the end of the text.
    ending: bool,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>) -> Cell {
        Cell::of(one_line(&text.into()))
    }

    /// Makes a cell that is indented by two spaces.
    ///
    /// It belongs to a line above the table.
    pub(super) fn indented(text: &str) -> Cell {
        Cell::marked("  ", text)
    }

    /// Makes a cell with a mark before the text.
    pub(super) fn marked(mark: &str, text: &str) -> Cell {
        Cell::of(format!("{mark}{}", one_line(text)))
    }

    fn of(text: String) -> Cell {
        Cell {
            text,
            escape: None,
            right: false,
            ending: false,
        }
    }

    /// Colours the cell by `tone`.
    pub(super) fn toned(mut self, output: &Output, tone: Tone) -> Cell {
        self.escape = output.has_colors().then(|| tone.escape());
        self
    }

    /// Aligns the cell to the right, as numbers are.
    pub(super) fn right(mut self) -> Cell {
        self.right = true;
        self
    }

    /// Keeps the end when the cell is shortened, as for paths.
    pub(super) fn ending(mut self) -> Cell {
        self.ending = true;
        self
    }

    fn width(&self) -> usize {
        self.text.width()
    }

    /// Returns the text for a column of `width`, and its width.
    fn shown(&self, width: usize) -> (String, usize) {
        let text = if self.width() <= width {
            self.text.clone()
        } else {
            shortened(&self.text, width, self.ending)
        };
        let shown_width = text.width();
        match self.escape {
            Some(escape) => (format!("{escape}{text}\x1b[0m"), shown_width),
            None => (text, shown_width),
        }
    }
}

/// Shortens `text` to `width`, including the ellipsis.
fn shortened(text: &str, width: usize, ending: bool) -> String {
    let room = width.saturating_sub(1);
    let mut used = 0;
    let mut fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    if ending {
        let kept: Vec<char> = text.chars().rev().take_while(&mut fits).collect();
        return std::iter::once(ELLIPSIS)
            .chain(kept.into_iter().rev())
            .collect();
    }
    let kept: String = text.chars().take_while(&mut fits).collect();
    format!("{}{ELLIPSIS}", kept.trim_end())
}

/// Formats rows as aligned columns, two spaces apart.
///
/// The last column is not padded. Colours do not shift the columns.
pub(super) fn table(rows: &[Vec<Cell>]) -> String {
    fitted(rows, None)
}

/// Formats a [`table`], shortening the longest cells to fit into `columns`.
pub(super) fn fitted(rows: &[Vec<Cell>], columns: Option<usize>) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..count)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(Cell::width).max().unwrap_or(0)
        })
        .collect();
    if let Some(columns) = columns {
        narrow(
            &mut widths,
            columns.saturating_sub(GAP.len() * count.saturating_sub(1)),
        );
    }
    let mut table = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let (shown, shown_width) = cell.shown(*width);
            let padding = " ".repeat(width.saturating_sub(shown_width));
            let is_last = column + 1 == row.len();
            match (cell.right, is_last) {
                (true, _) => table.extend([padding.as_str(), shown.as_str()]),
                (false, true) => table.push_str(&shown),
                (false, false) => table.extend([shown.as_str(), padding.as_str()]),
            }
            if !is_last {
                table.push_str(GAP);
            }
        }
        table.push('\n');
    }
    table
}

/// Shrinks the widest columns until their sum is at most `room`.
///
/// Stops at [`NARROWEST`].
fn narrow(widths: &mut [usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        let widest = widths.iter_mut().filter(|width| **width > NARROWEST).max();
        match widest {
            Some(width) => *width -= 1,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::global::Color;
    use super::*;

    #[test]
    fn columns_are_aligned_whatever_their_colour() {
        let colored = Output::new(false, Color::Always);
        let rows = [
            vec![
                Cell::new("a").toned(&colored, Tone::Name),
                Cell::new("9").right(),
                Cell::new("x"),
            ],
            vec![Cell::new("long"), Cell::new("10").right(), Cell::new("y")],
        ];
        assert_eq!(table(&rows), "\x1b[1ma\x1b[0m      9  x\nlong  10  y\n");
    }

    #[test]
    fn the_longest_cells_give_way_to_the_others() {
        let colored = Output::new(false, Color::Always);
        let rows = [
            vec![
                Cell::new("name"),
                Cell::new("/a/long/way/to/the/fork").ending(),
                Cell::new("what it is about, in words").toned(&colored, Tone::Faint),
            ],
            vec![Cell::new("other"), Cell::new("/b"), Cell::new("")],
        ];
        let second = format!("other  {:13}  \n", "/b");
        assert_eq!(
            fitted(&rows, Some(34)),
            format!("name   …/to/the/fork  \x1b[2mwhat it is…\x1b[0m\n{second}")
        );
        assert_eq!(fitted(&rows, Some(200)), table(&rows));
        // There is no room for that at all: nothing vanishes.
        let narrow = fitted(&rows, Some(3));
        assert!(
            narrow.contains("name ") && narrow.contains("…/fork "),
            "{narrow}"
        );
    }

    #[test]
    fn wide_characters_count_for_what_a_terminal_shows() {
        let rows = [
            vec![Cell::new("日本語"), Cell::new("x")],
            vec![Cell::new("abcdefg"), Cell::new("y")],
        ];
        assert_eq!(table(&rows), "日本語   x\nabcdefg  y\n");
        assert_eq!(shortened("日本語", 4, false), "日…");
        assert_eq!(shortened("日本語", 4, true), "…語");
    }
}
