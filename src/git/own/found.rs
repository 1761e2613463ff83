//! Forks that only their kept refs tell of.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::GitError;
use crate::refs::list_dir;

/// Prefix of the refs that forks keep.
const PREFIX: &[u8] = b"refs/tine/";

/// Number of bytes that are read of `packed-refs` at once.
const BLOCK: u64 = 64 << 10;

/// Number of bytes that hold the first line of `packed-refs`.
const HEADER: u64 = 256;

/// Returns the forks among `wanted` of which the main repository keeps HEAD.
///
/// Only forks that are repositories of their own have `refs/tine/<fork>/git/HEAD`. Costs a listing
/// of `refs/tine`, and a few reads of `packed-refs`, whatever its size.
///
/// # Errors
/// [`GitError::Io`] if refs cannot be listed.
pub fn forks_with_kept_head(
    common_dir: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeSet<String>, GitError> {
    let mut forks = BTreeSet::new();
    for dir in list_dir(&common_dir.join("refs/tine"))? {
        let fork = dir.file_name().and_then(|name| name.to_str());
        if let Some(fork) = fork.filter(|fork| wanted(fork))
            && dir.join("git/HEAD").exists()
        {
            forks.insert(fork.to_owned());
        }
    }
    let path = common_dir.join("packed-refs");
    match packed(&path) {
        Ok(packed) => forks.extend(packed.into_iter().filter(|fork| wanted(fork))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(GitError::io("read", &path)(error)),
    }
    Ok(forks)
}

/// Returns the forks in a file of packed refs.
fn packed(path: &Path) -> io::Result<Vec<String>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let head = read_at(&file, 0, HEADER)?;
    let header = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let is_sorted = header.starts_with(b"#") && header.windows(6).any(|word| word == b"sorted");
    let mut at = if is_sorted {
        first_block(&file, len)?
    } else {
        0
    };
    let mut forks = Vec::new();
    let mut rest: Vec<u8> = Vec::new();
    while at < len {
        rest.extend(read_at(&file, at, BLOCK)?);
        at = at.saturating_add(BLOCK);
        let end = match rest.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => end,
            None => continue,
        };
        for line in rest[..end].split(|&byte| byte == b'\n') {
            let Some(name) = name_of(line) else {
                continue;
            };
            if is_sorted && name > PREFIX && !name.starts_with(PREFIX) {
                return Ok(forks);
            }
            let fork = name
                .strip_prefix(PREFIX)
                .and_then(|label| label.strip_suffix(b"/git/HEAD"));
            forks.extend(fork.and_then(|fork| String::from_utf8(fork.to_vec()).ok()));
        }
        rest.drain(..end);
    }
    Ok(forks)
}

/// Returns where to begin to read a sorted file: no ref of a fork is before it.
fn first_block(file: &File, len: u64) -> io::Result<u64> {
    let (mut low, mut high) = (0, len / BLOCK);
    while low < high {
        let middle = low.midpoint(high).saturating_add(1);
        let block = read_at(file, middle.saturating_mul(BLOCK), BLOCK)?;
        // The first line may be cut.
        let mut lines = block.split(|&byte| byte == b'\n').skip(1);
        match lines.find_map(name_of) {
            Some(name) if name < PREFIX => low = middle,
            _ => high = middle.saturating_sub(1),
        }
    }
    Ok(low.saturating_mul(BLOCK))
}

/// Returns the name in a line `<id> <name>`.
///
/// `None` for headers and peeled ids.
fn name_of(line: &[u8]) -> Option<&[u8]> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    (!line.starts_with(b"#")).then(|| &line[space.saturating_add(1)..])
}

fn read_at(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut block = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < block.len() {
        let from = at.saturating_add(filled as u64);
        match file.read_at(&mut block[filled..], from)? {
            0 => break,
            count => filled = filled.saturating_add(count),
        }
    }
    block.truncate(filled);
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_found_in_packed_refs_of_any_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let id = "0123456789012345678901234567890123456789";
        for (before, after) in [
            (0, 0),
            (1, 0),
            (0, 3),
            (5_000, 0),
            (0, 5_000),
            (9_000, 9_000),
        ] {
            for header in ["# pack-refs with: peeled fully-peeled sorted \n", ""] {
                let mut text = header.to_owned();
                for number in 0..before {
                    text += &format!("{id} refs/heads/{number:06}\n^{id}\n");
                }
                for name in [
                    "+recover/1",
                    "a/base",
                    "a/git/HEAD",
                    "a/git/heads/x",
                    "b/base",
                ] {
                    text += &format!("{id} refs/tine/{name}\n");
                }
                for number in 0..after {
                    text += &format!("{id} refs/tines/{number:06}\n");
                }
                std::fs::write(dir.path().join("packed-refs"), text).expect("it is written");
                let found = forks_with_kept_head(dir.path(), |_| true).expect("they are read");
                assert_eq!(
                    found.into_iter().collect::<Vec<_>>(),
                    ["a"],
                    "{before} {after}"
                );
            }
        }
    }
}
