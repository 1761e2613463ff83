//! How many lines differ between two trees, as git counts them.

use std::collections::BTreeMap;
use std::process::Command;

use super::{GitError, ObjectId, Repository, program};

/// Lines of one path. `None` of what is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCounts {
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// What makes `git diff` print what [`parse`] reads, whatever is configured.
pub const NUMSTAT_FLAGS: [&str; 6] = [
    "--numstat",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-relative",
];

impl Repository {
    /// The lines that lead from one tree to another, by path, with the attributes of the latter.
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
        ask(&mut git)
    }
}

/// What a `git diff` with the [`NUMSTAT_FLAGS`] prints, by path.
pub fn ask(git: &mut Command) -> Result<BTreeMap<Vec<u8>, LineCounts>, GitError> {
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
