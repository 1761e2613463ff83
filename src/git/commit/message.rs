//! Commit messages.

/// The message of a commit to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Text that is cleaned up as by `git commit -m` ([`clean_message`]).
    Cleaned(String),
    /// Bytes that are written unchanged.
    Verbatim(Vec<u8>),
}

impl Message {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Message::Cleaned(text) => clean_message(text.as_bytes()),
            Message::Verbatim(bytes) => bytes.clone(),
        }
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::Cleaned(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::Cleaned(text.to_owned())
    }
}

/// Cleans a message up as `git commit -m` does (`--cleanup=whitespace`).
///
/// Removes white space at the ends of lines and empty lines at either end, and reduces empty lines
/// between paragraphs to one. The message ends in one newline, or is empty if nothing remains.
pub fn clean_message(message: &[u8]) -> Vec<u8> {
    let mut cleaned = Vec::with_capacity(message.len() + 1);
    let mut is_paragraph_due = false;
    for line in message.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            is_paragraph_due = !cleaned.is_empty();
            continue;
        }
        if is_paragraph_due {
            cleaned.push(b'\n');
            is_paragraph_due = false;
        }
        cleaned.extend_from_slice(line);
        cleaned.push(b'\n');
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_trailing_space_go() {
        assert_eq!(
            clean_message(b"\n \n  subject \t\n\n\n\nbody\r\n# kept\n\n"),
            b"  subject\n\nbody\n# kept\n"
        );
        assert_eq!(clean_message(b"one"), b"one\n");
        assert_eq!(clean_message(b" \n\t\n"), b"");
    }
}
