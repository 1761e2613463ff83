//! Quoting of words for a shell.
//!
//! It makes a command in a message one that can be pasted unchanged.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Quotes `word` if a shell would not read it literally.
///
/// The result is in single quotes. A word with control characters, or one that is not UTF-8,
/// becomes `$'…'`, which bash, zsh and ksh understand.
pub fn shell_word(word: impl AsRef<[u8]>) -> String {
    let bytes = word.as_ref();
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric()
            || "_@%+:,./-".contains(c)
            || (!c.is_ascii() && c.is_alphanumeric())
    };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Ok(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let escaped = bytes.iter().map(|byte| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                byte => format!("\\{byte:03o}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

/// Quotes a path as [`shell_word`] does.
pub fn shell_path(path: &Path) -> String {
    shell_word(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_a_word_as_it_was() {
        assert_eq!(shell_word("tine/demo-1.x"), "tine/demo-1.x");
        assert_eq!(shell_word("grün"), "grün");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        let words: [&[u8]; 9] = [
            b"",
            b"a b",
            b"$HOME",
            b"say \"hi\"",
            b"it's",
            b"~",
            b"two\nlines'\\",
            b"\xff1",
            b"-x=#*?[",
        ];
        for word in words {
            let script = format!("printf %s {}", shell_word(word));
            let read = Command::new("bash")
                .args(["-c", &script])
                .output()
                .expect("bash runs");
            assert_eq!(read.stdout, word, "{script}");
        }
    }
}
