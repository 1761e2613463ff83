//! Line counts of the difference between two trees, by git.

use std::collections::BTreeMap;
use std::process::Command;

use super::{GitError, ObjectId, Repository, program};

/// Line counts of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCounts {
    /// Number of added lines; `None` for a binary file.
    pub added: Option<u64>,
    /// Number of removed lines; `None` for a binary file.
    pub removed: Option<u64>,
}

/// Options of `git diff` for the format that this module parses.
///
/// They override the configuration.
pub const NUMSTAT_FLAGS: [&str; 6] = [
    "--numstat",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-relative",
];

impl Repository {
    /// Counts the changed lines between two trees, by path.
    ///
    /// The attributes of the new tree apply.
    ///
    /// # Errors
    /// [`GitError::GitFailed`] if a tree is missing.
    pub fn line_counts(
        &self,
        old_tree: ObjectId,
        new_tree: ObjectId,
    ) -> Result<BTreeMap<Vec<u8>, LineCounts>, GitError> {
        let mut git = program::command(self.common_dir());
        git.arg(format!("--attr-source={new_tree}"))
            .arg("diff")
            .args(NUMSTAT_FLAGS)
            .args([old_tree.to_string(), new_tree.to_string()]);
        run(&mut git)
    }
}

/// Runs a `git diff` with [`NUMSTAT_FLAGS`], and returns the counts by path.
///
/// # Errors
/// [`GitError::GitFailed`] if git fails.
pub fn run(git: &mut Command) -> Result<BTreeMap<Vec<u8>, LineCounts>, GitError> {
    Ok(parse(&program::run(git, b"")?))
}

fn parse(printed: &[u8]) -> BTreeMap<Vec<u8>, LineCounts> {
    let mut counts: BTreeMap<Vec<u8>, LineCounts> = BTreeMap::new();
    for record in printed
        .split(|&byte| byte == 0)
        .filter(|record| !record.is_empty())
    {
        let mut fields = record.splitn(3, |&byte| byte == b'\t');
        let mut number = || {
            let field = std::str::from_utf8(fields.next()?).ok()?;
            field.parse::<u64>().ok()
        };
        let (added, removed) = (number(), number());
        let Some(path) = fields.next() else { continue };
        // A path whose type changed has a record for each side.
        let entry = counts.entry(path.to_vec()).or_insert(LineCounts {
            added: Some(0),
            removed: Some(0),
        });
        entry.added = entry.added.zip(added).map(|(a, b)| a.saturating_add(b));
        entry.removed = entry.removed.zip(removed).map(|(a, b)| a.saturating_add(b));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_what_is_no_text_is_told_apart() {
        let counts = parse(b"1\t2\ta\tb\0-\t-\tbinary\x000\t1\tkind\x003\t0\tkind\0");
        let of = |path: &[u8]| counts[path];
        assert_eq!(
            of(b"a\tb"),
            LineCounts {
                added: Some(1),
                removed: Some(2)
            }
        );
        assert_eq!(of(b"binary"), LineCounts::default());
        assert_eq!(of(b"kind").added, Some(3));
    }
}
