//! Detection of changes that a later text reverts.

use std::ops::Range;

use gix::diff::blob::{Interner, Token};

use super::{Lines, differences};

/// Returns true if `new` reverts a change made from `before` to `now`.
///
/// `new` was made from `now`. A change is reverted if the lines that it replaced are back, or the
/// lines that it added are gone, as a whole. Lines that were changed once more do not count.
pub fn takes_back(before: &[u8], now: &[u8], new: &[u8]) -> bool {
    let mut interner = Interner::new(0);
    let [before, now, new] = [before, now, new].map(|content| Lines::new(content, &mut interner));
    let count = interner.num_tokens();
    let made = differences(&before.tokens, &now.tokens, count);
    let since = differences(&now.tokens, &new.tokens, count);
    made.iter().any(|made| {
        let (old, added) = (before.tokens(&made.before), now.tokens(&made.after));
        since.iter().any(|since| {
            let put = new.tokens(&since.after);
            let is_back = match old {
                // Replacing added lines by others changes them further.
                [] => put.is_empty(),
                old => contains(put, old) && (added.is_empty() || !contains(put, added)),
            };
            is_back && covers(&since.before, &made.after)
        })
    })
}

/// Returns true if `replaced` covers all of `changed`.
///
/// An empty `changed` may also be at an end of `replaced`.
fn covers(replaced: &Range<usize>, changed: &Range<usize>) -> bool {
    replaced.start <= changed.start && changed.end <= replaced.end
}

fn contains(lines: &[Token], part: &[Token]) -> bool {
    lines.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::takes_back;

    const BEFORE: &str = "1\n2\n3\n4\n5\n";

    #[test]
    fn a_change_that_is_gone_is_taken_back_whatever_else_changed() {
        for (now, new) in [
            ("1\n2\nM3\n4\n5\n", "1\n2\n3\n4\n5\n"),
            ("1\n2\nM3\n4\n5\n", "1\n2\n3\n4\nF5\n"),
            ("1\n2\nM3\n4\n5\n", "1\n2\n3\nF4\n5\nmore\n"),
            ("1\n2\n3\nadded\n4\n5\n", "F1\n2\n3\n4\n5\n"),
            ("1\n2\n4\n5\n", "1\n2\n3\n4\nF5\n"),
            ("1\nM2\n3\nM4\n5\n", "1\n2\n3\nM4\n5\n"),
        ] {
            assert!(
                takes_back(BEFORE.as_bytes(), now.as_bytes(), new.as_bytes()),
                "{new}"
            );
        }
    }

    #[test]
    fn a_change_that_is_kept_or_changed_on_is_not() {
        for (now, new) in [
            ("1\n2\nM3\n4\n5\n", "1\n2\nM3\n4\nF5\n"),
            ("1\n2\nM3\n4\n5\n", "1\n2\nN3\n4\n5\n"),
            ("1\n2\nM3\n4\n5\n", "1\n2\n4\n5\n"),
            ("1\n2\n3\nadded\n4\n5\n", "1\n2\n3\nadded\nmore\n4\n5\n"),
            ("1\n2\n3\nadded\n4\n5\n", "1\n2\n3\nchanged\n4\n5\n"),
            ("1\n2\n4\n5\n", "1\n2\nN\n4\n5\n"),
            ("1\n2\nM3\n4\n5\n", "1\n2\nM3\n3\n4\n5\n"),
        ] {
            assert!(
                !takes_back(BEFORE.as_bytes(), now.as_bytes(), new.as_bytes()),
                "{new}"
            );
        }
    }
}
