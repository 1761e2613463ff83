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
/// The lines between two chunks are those of ours.
#[derive(Debug, Clone)]
struct Chunk {
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
        self.write(options.style, MAX_JOINED_LINES, |chunk, text| {
            self.write_marked(chunk, options, text)
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
        self.write(style, MAX_JOINED_LINES, |chunk, text| match favor {
            Favor::Base => text.extend_from_slice(self.base.bytes(&chunk.base)),
            Favor::Ours => text.extend_from_slice(self.ours.bytes(&chunk.ours)),
            Favor::Theirs => text.extend_from_slice(self.theirs.bytes(&chunk.theirs)),
            Favor::Union => self.write_both(chunk, text),
        })
    }

    /// Returns the merged text with both sides of each conflict.
    ///
    /// Unlike with [`Favor::Union`], a line that both sides have never appears twice, even if few
    /// such lines separate two conflicts.
    pub fn keep_both(&self) -> Vec<u8> {
        self.write(Style::Merge, 0, |chunk, text| self.write_both(chunk, text))
    }

    fn write_both(&self, chunk: &Chunk, text: &mut Vec<u8>) {
        write_lines(&self.ours, &chunk.ours, self.line_end(chunk), text);
        text.extend_from_slice(self.theirs.bytes(&chunk.theirs));
    }

    fn write(
        &self,
        style: Style,
        max_joined_lines: usize,
        conflict: impl Fn(&Chunk, &mut Vec<u8>),
    ) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.ours.content.len());
        let mut written = 0;
        for chunk in self.chunks(style, max_joined_lines) {
            text.extend_from_slice(self.ours.bytes(&(written..chunk.ours.start)));
            match chunk.taken {
                Taken::Ours => text.extend_from_slice(self.ours.bytes(&chunk.ours)),
                Taken::Theirs => text.extend_from_slice(self.theirs.bytes(&chunk.theirs)),
                Taken::Conflict => conflict(&chunk, &mut text),
            }
            written = chunk.ours.end;
        }
        text.extend_from_slice(self.ours.bytes(&(written..self.ours.count())));
        text
    }

    /// Splits the regions into chunks.
    ///
    /// [`Style::Merge`] joins conflicts with at most `max_joined_lines` lines between them.
    fn chunks(&self, style: Style, max_joined_lines: usize) -> Vec<Chunk> {
        let mut chunks: Vec<Chunk> = Vec::new();
        for region in &self.regions {
            let whole = |taken| Chunk {
                base: region.base.clone(),
                ours: region.ours.clone(),
                theirs: region.theirs.clone(),
                taken,
            };
            match (&region.outcome, style) {
                (Outcome::Ours | Outcome::Same, _) => chunks.push(whole(Taken::Ours)),
                (Outcome::Theirs, _) => chunks.push(whole(Taken::Theirs)),
                (Outcome::Conflict(_), Style::Diff3) => chunks.push(whole(Taken::Conflict)),
                (Outcome::Conflict(_), Style::Zdiff3) => {
                    chunks.push(self.trimmed(whole(Taken::Conflict)))
                }
                (Outcome::Conflict(differences), Style::Merge) => {
                    for difference in differences {
                        join(
                            &mut chunks,
                            max_joined_lines,
                            Chunk {
                                ours: difference.before.clone(),
                                theirs: difference.after.clone(),
                                ..whole(Taken::Conflict)
                            },
                        );
                    }
                }
            }
        }
        chunks
    }

    /// Removes the lines that both sides begin or end with.
    fn trimmed(&self, mut chunk: Chunk) -> Chunk {
        let same = |(a, b): &(_, _)| a == b;
        let (ours, theirs) = (
            self.ours.tokens(&chunk.ours),
            self.theirs.tokens(&chunk.theirs),
        );
        let first = ours.iter().zip(theirs).take_while(same).count();
        chunk.ours.start += first;
        chunk.theirs.start += first;
        let (ours, theirs) = (
            self.ours.tokens(&chunk.ours),
            self.theirs.tokens(&chunk.theirs),
        );
        let last = ours
            .iter()
            .rev()
            .zip(theirs.iter().rev())
            .take_while(same)
            .count();
        chunk.ours.end -= last;
        chunk.theirs.end -= last;
        chunk
    }

    fn write_marked(&self, chunk: &Chunk, options: &MarkerOptions, text: &mut Vec<u8>) {
        let line_end = self.line_end(chunk);
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
        write_lines(&self.ours, &chunk.ours, line_end, text);
        if options.style != Style::Merge {
            marker(b'|', &options.base_label, text);
            write_lines(&self.base, &chunk.base, line_end, text);
        }
        marker(b'=', &None, text);
        write_lines(&self.theirs, &chunk.theirs, line_end, text);
        marker(b'>', &options.theirs_label, text);
    }

    /// Returns the line end for lines that the merge adds.
    ///
    /// It is CRLF if the lines before the conflict and the first line of the base end in CRLF.
    fn line_end(&self, chunk: &Chunk) -> &'static [u8] {
        let before = |lines: &Range<usize>| lines.start.saturating_sub(1);
        let is_crlf = ends_in_crlf(&self.ours, before(&chunk.ours)) != Some(false)
            && ends_in_crlf(&self.theirs, before(&chunk.theirs)) != Some(false)
            && ends_in_crlf(&self.base, 0) == Some(true);
        if is_crlf { b"\r\n" } else { b"\n" }
    }
}

/// Adds a conflict, or extends the previous one if it is near.
fn join(chunks: &mut Vec<Chunk>, max_joined_lines: usize, chunk: Chunk) {
    match chunks.last_mut() {
        Some(last)
            if last.taken == Taken::Conflict
                && chunk.ours.start.saturating_sub(last.ours.end) <= max_joined_lines =>
        {
            last.ours.end = chunk.ours.end;
            last.theirs.end = chunk.theirs.end;
        }
        _ => chunks.push(chunk),
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
