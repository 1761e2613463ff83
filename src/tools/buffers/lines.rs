//! Patches of lines: between two texts, and applied to one.

use std::ops::Range;

use gix::diff::blob::{Algorithm, Diff, InternedInput};

use super::TextPatch;

/// Returns the patches from `before` to `after`, in the order of lines.
pub(super) fn patches(before: &str, after: &str) -> Vec<TextPatch> {
    let new = split(after);
    diff(before, after)
        .hunks()
        .map(|hunk| TextPatch {
            first_line: hunk.before.start.into(),
            lines: (hunk.before.end - hunk.before.start).into(),
            text: new
                .get(hunk.after.start as usize..hunk.after.end as usize)
                .unwrap_or_default()
                .concat(),
        })
        .collect()
}

fn diff(before: &str, after: &str) -> Diff {
    let mut input: InternedInput<&str> = InternedInput::default();
    input.update_before(split(before).into_iter());
    input.update_after(split(after).into_iter());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_no_heuristic(&input);
    diff
}

fn range(lines: &Range<u32>) -> Range<usize> {
    lines.start as usize..lines.end as usize
}

/// Returns the agent's own lines of `after`, in order.
///
/// These are the lines that `before` lacks, and lines that one of the texts `known` has, too.
pub(super) fn own(before: &str, after: &str, known: &[&str]) -> String {
    let lines = split(after);
    let mut is_own = vec![false; lines.len()];
    for patch in diff(before, after).hunks() {
        is_own[range(&patch.after)].fill(true);
    }
    for text in known {
        let mut is_known = vec![true; lines.len()];
        for patch in diff(text, after).hunks() {
            is_known[range(&patch.after)].fill(false);
        }
        for (own, known) in is_own.iter_mut().zip(is_known) {
            *own |= known;
        }
    }
    let own = lines.iter().zip(is_own).filter(|(_, is_own)| *is_own);
    own.map(|(line, _)| *line).collect()
}

/// Applies patches to a text. The error says why they do not fit.
pub(super) fn patched(text: &str, patches: &[TextPatch]) -> Result<String, &'static str> {
    let lines = split(text);
    let mut patched = String::with_capacity(text.len());
    let mut done = 0;
    for patch in patches {
        let first = usize::try_from(patch.first_line).map_err(|_| OUTSIDE)?;
        let count = usize::try_from(patch.lines).map_err(|_| OUTSIDE)?;
        let end = first.checked_add(count).ok_or(OUTSIDE)?;
        if first < done {
            return Err("it begins before the end of the one before it");
        }
        let between = lines.get(done..first).ok_or(OUTSIDE)?;
        lines.get(first..end).ok_or(OUTSIDE)?;
        patched.extend(between.iter().copied());
        if !patch.text.is_empty() {
            if !patched.is_empty() && !patched.ends_with('\n') {
                return Err("the line before it has no end");
            }
            if !patch.text.ends_with('\n') && end < lines.len() {
                return Err("its last line has no end, and others follow");
            }
        }
        patched.push_str(&patch.text);
        done = end;
    }
    patched.extend(lines.get(done..).unwrap_or_default().iter().copied());
    Ok(patched)
}

const OUTSIDE: &str = "it names lines that are not there";

fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}
