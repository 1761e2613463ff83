//! Files and directories of a fork, as `ls` shows them.

use crate::text::quoted;
use tine_ops::protocol::{NodeKind, NodeLine};
use tine_path::text::PathText;

/// Returns the type and permissions as `ls -l` prints them: `-rw-r--r--`.
pub fn mode_text(node: &NodeLine) -> String {
    let mode = u32::from_str_radix(&node.mode, 8).unwrap_or(0);
    let mut text = String::with_capacity(10);
    text.push(kind_letter(node.kind));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Returns the letter that `ls -l` prints for the type.
pub fn kind_letter(kind: NodeKind) -> char {
    match kind {
        NodeKind::File => '-',
        NodeKind::Directory => 'd',
        NodeKind::Symlink => 'l',
        NodeKind::Fifo => 'p',
        NodeKind::Socket => 's',
        NodeKind::CharDevice => 'c',
        NodeKind::BlockDevice => 'b',
    }
}

/// Returns the English word for the type.
pub fn kind_word(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
        NodeKind::Fifo => "fifo",
        NodeKind::Socket => "socket",
        NodeKind::CharDevice => "character device",
        NodeKind::BlockDevice => "block device",
    }
}

/// Returns the quoted path from the fork's root, `.` for the root.
pub fn shown(path: &PathText) -> String {
    match quoted(path) {
        path if path.is_empty() => ".".to_owned(),
        path => path,
    }
}

/// Appends ` -> TARGET` to `text` if the node is a symlink.
pub fn with_target(text: String, node: &NodeLine) -> String {
    match &node.target {
        Some(target) => format!("{text} -> {}", quoted(target)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tine_ops::protocol::TimeLine;

    #[test]
    fn modes_are_told_as_ls_does() {
        let time = TimeLine { secs: 0, nanos: 0 };
        let told = |mode: &str, kind| {
            mode_text(&NodeLine {
                path: PathText::Text("x".into()),
                kind,
                mode: mode.into(),
                size: 0,
                links: 1,
                uid: 0,
                gid: 0,
                ino: 2,
                modified: time,
                changed: time,
                target: None,
            })
        };
        assert_eq!(told("100644", NodeKind::File), "-rw-r--r--");
        assert_eq!(told("104755", NodeKind::File), "-rwsr-xr-x");
        assert_eq!(told("102640", NodeKind::File), "-rw-r-S---");
        assert_eq!(told("041777", NodeKind::Directory), "drwxrwxrwt");
        assert_eq!(told("120777", NodeKind::Symlink), "lrwxrwxrwx");
    }
}
