//! Commit messages.

/// Cleans a message up as `git commit -m` does (`--cleanup=whitespace`): no white space at the ends of lines, no empty
/// lines at either end, at most one between paragraphs, one newline at the end. Empty if nothing remains.
pub fn clean_message(message: &str) -> String {
    let mut cleaned = String::with_capacity(message.len() + 1);
    let mut is_paragraph_due = false;
    for line in message.lines() {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            is_paragraph_due = !cleaned.is_empty();
            continue;
        }
        if is_paragraph_due {
            cleaned.push('\n');
            is_paragraph_due = false;
        }
        cleaned.push_str(line);
        cleaned.push('\n');
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_trailing_space_go() {
        assert_eq!(
            clean_message("\n \n  subject \t\n\n\n\nbody\r\n# kept\n\n"),
            "  subject\n\nbody\n# kept\n"
        );
        assert_eq!(clean_message("one"), "one\n");
        assert_eq!(clean_message(" \n\t\n"), "");
    }
}
