//! Finding and replacing in a text. Values, without I/O.
//!
//! A text whose lines all end in CR LF keeps these line ends. The texts of an edit get the same
//! line ends, whichever they were written with.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use tine_failure::ToFailure;

/// Maximum size of a text before and after an edit, in bytes.
pub const EDIT_MAX: u64 = 16 << 20;

/// Maximum number of lines that [`EditError::Ambiguous`] lists.
const NAMED_LINES: usize = 20;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextEdit {
    /// Text to replace. It must occur exactly once unless `replace_all`.
    pub old: String,
    /// Replacement.
    pub new: String,
    /// True to replace every occurrence. False if not given.
    #[serde(default)]
    pub replace_all: bool,
}

/// Result of the edits of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The whole text after the edits.
    pub text: String,
    /// Number of occurrences that were replaced.
    pub replaced: u64,
}

/// Error of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Error, ToFailure)]
pub enum EditError {
    /// The list of edits is empty.
    #[error("no edit is given")]
    #[failure(EditEmpty)]
    #[hint("give at least one edit")]
    NoEdits,
    /// `old` is empty.
    #[error("it names no text to replace")]
    #[failure(EditEmpty)]
    #[hint("name the text to replace; to make a file, or to replace all of it, write it")]
    EmptyOld,
    /// `old` and `new` are the same.
    #[error("it would replace a text by the same text")]
    #[failure(EditIdentical)]
    #[hint("the file has it already: nothing was changed")]
    Identical,
    /// `old` does not occur in the text.
    #[error("its text is not there")]
    #[failure(EditNotFound)]
    #[hint(
        "read the file again and name the text exactly as it is there, with all spaces; nothing was changed"
    )]
    NotFound,
    /// `old` occurs more than once.
    #[error("its text is there more than once: {}", shown(lines, *has_more))]
    #[failure(EditAmbiguous)]
    #[hint(
        "name more of what is around it, or replace all of them (`--all`, `replace_all`); nothing was changed"
    )]
    Ambiguous {
        /// Line numbers from 1 of the first occurrences.
        lines: Vec<u64>,
        /// True if there are more occurrences than `lines` lists.
        has_more: bool,
    },
    /// The text would exceed [`EDIT_MAX`].
    #[error("more than {EDIT_MAX} bytes would come of it")]
    #[failure(TooLarge)]
    #[hint("write the file with a program; nothing was changed")]
    TooLarge,
}

fn shown(lines: &[u64], has_more: bool) -> String {
    let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
    let more = if has_more { " and more" } else { "" };
    format!("in the lines {}{more}", lines.join(", "))
}

/// Error of one of several edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditFailed {
    /// Position of the edit that failed, from 1. 0 if there are no edits.
    pub number: usize,
    /// Number of edits.
    pub count: usize,
    /// Reason of the failure.
    pub error: EditError,
}

/// Applies edits in order, each to the result of the one before.
///
/// # Errors
/// [`EditFailed`] with the first edit that fails. Then none is applied.
pub fn apply(text: &str, edits: &[TextEdit]) -> Result<Edited, EditFailed> {
    let failed = |number: usize, error: EditError| EditFailed {
        number,
        count: edits.len(),
        error,
    };
    if edits.is_empty() {
        return Err(failed(0, EditError::NoEdits));
    }
    let is_crlf = has_only_crlf(text);
    let mut edited = Edited {
        text: text.to_owned(),
        replaced: 0,
    };
    for (index, edit) in edits.iter().enumerate() {
        let replaced = replace(&mut edited.text, edit, is_crlf);
        edited.replaced += replaced.map_err(|error| failed(index + 1, error))?;
    }
    Ok(edited)
}

/// Replaces in `text` and returns the number of replacements.
fn replace(text: &mut String, edit: &TextEdit, is_crlf: bool) -> Result<u64, EditError> {
    let ends = |text| {
        if is_crlf {
            with_crlf(text)
        } else {
            Cow::Borrowed(text)
        }
    };
    let (old, new) = (ends(&edit.old), ends(&edit.new));
    if old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if old == new {
        return Err(EditError::Identical);
    }
    let first = text.find(&*old).ok_or(EditError::NotFound)?;
    let count = if edit.replace_all {
        text.matches(&*old).count()
    } else if next_after(text, &old, first).is_some() {
        return Err(ambiguous(text, &old));
    } else {
        1
    };
    let grown = new.len().saturating_sub(old.len()).saturating_mul(count);
    if text.len().saturating_add(grown) as u64 > EDIT_MAX {
        return Err(EditError::TooLarge);
    }
    if edit.replace_all {
        *text = text.replace(&*old, &new);
    } else {
        text.replace_range(first..first + old.len(), &new);
    }
    Ok(count as u64)
}

/// Returns the position of the next `old` after `at`.
///
/// Occurrences may overlap: `aa` occurs in `aaa` twice.
fn next_after(text: &str, old: &str, at: usize) -> Option<usize> {
    let step = text.get(at..)?.chars().next()?.len_utf8();
    let found = text.get(at + step..)?.find(old)?;
    Some(at + step + found)
}

fn ambiguous(text: &str, old: &str) -> EditError {
    let mut lines = Vec::new();
    let (mut counted, mut line) = (0, 1);
    let mut found = text.find(old);
    while let Some(at) = found {
        if lines.len() == NAMED_LINES {
            return EditError::Ambiguous {
                lines,
                has_more: true,
            };
        }
        let between = text.get(counted..at).unwrap_or_default();
        line += between.bytes().filter(|&byte| byte == b'\n').count() as u64;
        counted = at;
        lines.push(line);
        found = next_after(text, old, at);
    }
    EditError::Ambiguous {
        lines,
        has_more: false,
    }
}

/// Returns whether the text has line ends and all are CR LF.
fn has_only_crlf(text: &str) -> bool {
    let ends = text.bytes().filter(|&byte| byte == b'\n').count();
    ends > 0 && ends == text.matches("\r\n").count()
}

/// Converts all line ends to CR LF.
fn with_crlf(text: &str) -> Cow<'_, str> {
    if text.contains('\n') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> TextEdit {
        TextEdit {
            old: old.to_owned(),
            new: new.to_owned(),
            replace_all: false,
        }
    }

    fn all(old: &str, new: &str) -> TextEdit {
        TextEdit {
            replace_all: true,
            ..edit(old, new)
        }
    }

    #[track_caller]
    fn edited(text: &str, edits: &[TextEdit]) -> (String, u64) {
        let Edited { text, replaced } = apply(text, edits).unwrap();
        (text, replaced)
    }

    #[track_caller]
    fn refused(text: &str, edits: &[TextEdit]) -> EditError {
        apply(text, edits).unwrap_err().error
    }

    #[test]
    fn a_text_that_is_there_once_is_replaced() {
        assert_eq!(edited("a b c", &[edit("b", "β")]), ("a β c".to_owned(), 1));
        assert_eq!(edited("a b c", &[edit(" b", "")]), ("a c".to_owned(), 1));
        assert_eq!(edited("ab", &[edit("ab", "")]), (String::new(), 1));
        assert_eq!(
            edited("b b\nb", &[all("b", "bb")]),
            ("bb bb\nbb".to_owned(), 3)
        );
        assert_eq!(edited("once", &[all("once", "1")]), ("1".to_owned(), 1));
    }

    #[test]
    fn each_way_to_fail_is_told_from_the_others() {
        assert_eq!(refused("abc", &[]), EditError::NoEdits);
        assert_eq!(refused("abc", &[edit("", "x")]), EditError::EmptyOld);
        assert_eq!(refused("abc", &[edit("b", "b")]), EditError::Identical);
        assert_eq!(refused("abc", &[edit("B", "x")]), EditError::NotFound);
        assert_eq!(refused("", &[all("b", "x")]), EditError::NotFound);
        let twice = refused("x\na b\n\nb\n", &[edit("b", "x")]);
        assert_eq!(
            twice,
            EditError::Ambiguous {
                lines: vec![2, 4],
                has_more: false
            }
        );
        assert_eq!(
            twice.to_string(),
            "its text is there more than once: in the lines 2, 4"
        );
        let within_itself = refused("aaa", &[edit("aa", "x")]);
        assert_eq!(
            within_itself.to_string().matches('1').count(),
            2,
            "{within_itself}"
        );
        let many = refused(&"é\n".repeat(50), &[edit("é", "e")]);
        assert!(many.to_string().ends_with("19, 20 and more"), "{many}");
    }

    #[test]
    fn of_several_edits_each_sees_what_the_one_before_it_left_and_all_or_none_are_made() {
        let edits = [edit("one", "two two"), all("two", "three"), edit("x", "y")];
        assert_eq!(edited("one x", &edits), ("three three y".to_owned(), 4));
        let failed = apply("one x", &[edit("one", "1"), edit("one", "2")]).unwrap_err();
        assert_eq!(
            (failed.number, failed.count, failed.error),
            (2, 2, EditError::NotFound)
        );
    }

    #[test]
    fn lines_that_end_in_cr_lf_stay_so() {
        let text = "one\r\ntwo\r\nthree\r\n";
        let lf = edit("one\ntwo\n", "1\n2\n2b\n");
        assert_eq!(edited(text, &[lf]).0, "1\r\n2\r\n2b\r\nthree\r\n");
        let crlf = edit("one\r\ntwo\r\n", "1\r\n2\r\n2b\r\n");
        assert_eq!(edited(text, &[crlf]).0, "1\r\n2\r\n2b\r\nthree\r\n");
        assert_eq!(
            edited(text, &[edit("two", "a\nb")]).0,
            "one\r\na\r\nb\r\nthree\r\n"
        );
        assert_eq!(
            refused(text, &[edit("one\r\n", "one\n")]),
            EditError::Identical
        );
        // Of different ends each is as it is written.
        let mixed = "one\r\ntwo\nthree\n";
        assert_eq!(
            refused(mixed, &[edit("one\ntwo", "x")]),
            EditError::NotFound
        );
        assert_eq!(
            edited(mixed, &[edit("two\n", "2\n")]).0,
            "one\r\n2\nthree\n"
        );
        assert_eq!(edited("a\nb\n", &[edit("a\n", "a\r\n")]).0, "a\r\nb\n");
    }

    #[test]
    fn what_would_grow_beyond_measure_is_refused_before_it_does() {
        let text = "a".repeat(1 << 20);
        let grown = "b".repeat(1 << 20);
        assert_eq!(refused(&text, &[all("a", &grown)]), EditError::TooLarge);
        assert_eq!(
            refused(&text, &[edit("a", "b")])
                .to_string()
                .matches(" 1,")
                .count(),
            19
        );
    }
}
