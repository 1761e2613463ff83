//! Patches of lines: between two texts, and applied to one.

use gix::diff::blob::{Algorithm, Diff, InternedInput};

use super::TextPatch;

/// What leads from `before` to `after`, in the order of the lines.
pub fn patches(before: &str, after: &str) -> Vec<TextPatch> {
    let (old, new) = (split(before), split(after));
    let mut input: InternedInput<&str> = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_no_heuristic(&input);
    diff.hunks()
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

/// The lines that both texts have, in their order.
pub fn common(one: &str, other: &str) -> String {
    let mut patches = patches(one, other);
    for patch in &mut patches {
        patch.text.clear();
    }
    patched(one, &patches).unwrap_or_default()
}

/// The text with the patches, or why they do not fit.
pub fn patched(text: &str, patches: &[TextPatch]) -> Result<String, &'static str> {
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
