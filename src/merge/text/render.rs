//! Rendering of a merge, with conflict markers or with settled conflicts.

use std::ops::Range;

use super::{Favor, Lines, Outcome, TextMerge};

/// Maximum number of lines between conflicts that are joined, as in git.
const MAX_JOINED_LINES: usize = 3;

const DEFAULT_MARKER_SIZE: usize = 7;

/// Content of a conflict between its markers (`merge.conflictStyle`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// The lines in which ours and theirs differ.
    #[default]
    Merge,
    /// The lines of all three texts.
    Diff3,
    /// `Diff3` without the lines that both sides begin or end with.
    Zdiff3,
}

/// Choices for conflict markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerOptions {
    /// Content between the markers.
    pub style: Style,
    /// Length of a marker in characters; 0 means 7.
    pub size: usize,
    /// Label after the base marker; `None` for a bare marker.
    pub base_label: Option<String>,
    /// Label after the ours marker.
    pub ours_label: Option<String>,
    /// Label after the theirs marker.
    pub theirs_label: Option<String>,
}

impl Default for MarkerOptions {
    fn default() -> MarkerOptions {
        MarkerOptions {
            style: Style::default(),
            size: DEFAULT_MARKER_SIZE,
            base_label: None,
            ours_label: None,
            theirs_label: None,
        }
    }
}

/// Lines of a conflict or of one side's change.
///
/// The lines between two pieces are those of ours.
#[derive(Debug, Clone)]
struct Piece {
    base: Range<usize>,
    ours: Range<usize>,
    theirs: Range<usize>,
    taken: Taken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Ours,
    Theirs,
    Conflict,
}

impl TextMerge {
    /// Returns the merged text with conflict markers, as `git merge-file -p`.
    pub fn render(&self, options: &MarkerOptions) -> Vec<u8> {
        self.write(options.style, MAX_JOINED_LINES, |piece, text| {
            self.write_marked(piece, options, text)
        })
    }

    /// Returns the merged text with its conflicts settled.
    ///
    /// The result is that of `git merge-file -p` with `--ours`, `--theirs` or `--union`.
    /// [`Favor::Base`] drops the conflicting changes of both sides and keeps the others.
    pub fn settle(&self, favor: Favor) -> Vec<u8> {
        let style = match favor {
            // Only a whole conflict has lines of the base.
            Favor::Base => Style::Diff3,
            Favor::Ours | Favor::Theirs | Favor::Union => Style::Merge,
        };
        self.write(style, MAX_JOINED_LINES, |piece, text| match favor {
            Favor::Base => text.extend_from_slice(self.base.bytes(&piece.base)),
            Favor::Ours => text.extend_from_slice(self.ours.bytes(&piece.ours)),
            Favor::Theirs => text.extend_from_slice(self.theirs.bytes(&piece.theirs)),
            Favor::Union => self.write_both(piece, text),
        })
    }

    /// Returns the merged text with both sides of each conflict.
    ///
    /// Unlike with [`Favor::Union`], a line that both sides have never appears twice, even if few
    /// such lines separate two conflicts.
    pub fn keep_both(&self) -> Vec<u8> {
        self.write(Style::Merge, 0, |piece, text| self.write_both(piece, text))
    }

    fn write_both(&self, piece: &Piece, text: &mut Vec<u8>) {
        write_lines(&self.ours, &piece.ours, self.line_end(piece), text);
        text.extend_from_slice(self.theirs.bytes(&piece.theirs));
    }

    fn write(
        &self,
        style: Style,
        max_joined_lines: usize,
        conflict: impl Fn(&Piece, &mut Vec<u8>),
    ) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.ours.content.len());
        let mut written = 0;
        for piece in self.pieces(style, max_joined_lines) {
            text.extend_from_slice(self.ours.bytes(&(written..piece.ours.start)));
            match piece.taken {
                Taken::Ours => text.extend_from_slice(self.ours.bytes(&piece.ours)),
                Taken::Theirs => text.extend_from_slice(self.theirs.bytes(&piece.theirs)),
                Taken::Conflict => conflict(&piece, &mut text),
            }
            written = piece.ours.end;
        }
        text.extend_from_slice(self.ours.bytes(&(written..self.ours.count())));
        text
    }

    /// Splits the regions into pieces.
    ///
    /// [`Style::Merge`] joins conflicts with at most `max_joined_lines` lines between them.
    fn pieces(&self, style: Style, max_joined_lines: usize) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for region in &self.regions {
            let whole = |taken| Piece {
                base: region.base.clone(),
                ours: region.ours.clone(),
                theirs: region.theirs.clone(),
                taken,
            };
            match (&region.outcome, style) {
                (Outcome::Ours | Outcome::Same, _) => pieces.push(whole(Taken::Ours)),
                (Outcome::Theirs, _) => pieces.push(whole(Taken::Theirs)),
                (Outcome::Conflict(_), Style::Diff3) => pieces.push(whole(Taken::Conflict)),
                (Outcome::Conflict(_), Style::Zdiff3) => {
                    pieces.push(self.trimmed(whole(Taken::Conflict)))
                }
                (Outcome::Conflict(differences), Style::Merge) => {
                    for difference in differences {
                        join(
                            &mut pieces,
                            max_joined_lines,
                            Piece {
                                ours: difference.before.clone(),
                                theirs: difference.after.clone(),
                                ..whole(Taken::Conflict)
                            },
                        );
                    }
                }
            }
        }
        pieces
    }

    /// Removes the lines that both sides begin or end with.
    fn trimmed(&self, mut piece: Piece) -> Piece {
        let same = |(a, b): &(_, _)| a == b;
        let (ours, theirs) = (
            self.ours.tokens(&piece.ours),
            self.theirs.tokens(&piece.theirs),
        );
        let first = ours.iter().zip(theirs).take_while(same).count();
        piece.ours.start += first;
        piece.theirs.start += first;
        let (ours, theirs) = (
            self.ours.tokens(&piece.ours),
            self.theirs.tokens(&piece.theirs),
        );
        let last = ours
            .iter()
            .rev()
            .zip(theirs.iter().rev())
            .take_while(same)
            .count();
        piece.ours.end -= last;
        piece.theirs.end -= last;
        piece
    }

    fn write_marked(&self, piece: &Piece, options: &MarkerOptions, text: &mut Vec<u8>) {
        let line_end = self.line_end(piece);
        let size = match options.size {
            0 => DEFAULT_MARKER_SIZE,
            size => size,
        };
        let marker = |character: u8, label: &Option<String>, text: &mut Vec<u8>| {
            text.resize(text.len() + size, character);
            if let Some(label) = label {
                text.push(b' ');
                text.extend_from_slice(label.as_bytes());
            }
            text.extend_from_slice(line_end);
        };
        marker(b'<', &options.ours_label, text);
        write_lines(&self.ours, &piece.ours, line_end, text);
        if options.style != Style::Merge {
            marker(b'|', &options.base_label, text);
            write_lines(&self.base, &piece.base, line_end, text);
        }
        marker(b'=', &None, text);
        write_lines(&self.theirs, &piece.theirs, line_end, text);
        marker(b'>', &options.theirs_label, text);
    }

    /// Returns the line end for lines that the merge adds.
    ///
    /// It is CRLF if the lines before the conflict and the first line of the base end in CRLF.
    fn line_end(&self, piece: &Piece) -> &'static [u8] {
        let before = |lines: &Range<usize>| lines.start.saturating_sub(1);
        let is_crlf = ends_in_crlf(&self.ours, before(&piece.ours)) != Some(false)
            && ends_in_crlf(&self.theirs, before(&piece.theirs)) != Some(false)
            && ends_in_crlf(&self.base, 0) == Some(true);
        if is_crlf { b"\r\n" } else { b"\n" }
    }
}

/// Adds a conflict, or extends the previous one if it is near.
fn join(pieces: &mut Vec<Piece>, max_joined_lines: usize, piece: Piece) {
    match pieces.last_mut() {
        Some(last)
            if last.taken == Taken::Conflict
                && piece.ours.start.saturating_sub(last.ours.end) <= max_joined_lines =>
        {
            last.ours.end = piece.ours.end;
            last.theirs.end = piece.theirs.end;
        }
        _ => pieces.push(piece),
    }
}

/// Returns true if a line ends in CRLF.
///
/// For a last line without a line end, the line before it counts. `None` if there is no such line.
fn ends_in_crlf(lines: &Lines, line: usize) -> Option<bool> {
    let bytes = |line: usize| lines.bytes(&(line..line + 1));
    let whole = match bytes(line) {
        [.., b'\n'] => bytes(line),
        _ => bytes(line.checked_sub(1)?),
    };
    Some(whole.ends_with(b"\r\n"))
}

/// Writes lines, and a line end if the last one has none.
fn write_lines(lines: &Lines, range: &Range<usize>, line_end: &[u8], text: &mut Vec<u8>) {
    let bytes = lines.bytes(range);
    text.extend_from_slice(bytes);
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        text.extend_from_slice(line_end);
    }
}
