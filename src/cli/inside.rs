//! Paths of a fork on the command line, and what is there in words.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::context::{Connection, Context};
use super::failures;
use super::output::quoted;
use crate::ops::protocol::{NodeKind, NodeLine, Nodes};
use crate::ops::transfer::{Outgoing, Transfer};
use crate::ops::{ErrorCode, Failure, Operation};
use crate::path::RepoPath;
use crate::path::shell::shell_word;
use crate::path::text::PathText;
use crate::tools::path::beneath;
use crate::workspace::{ForkName, Store};

/// The fork that a command works in.
pub struct Inside {
    pub connection: Connection,
    pub fork: ForkName,
    /// Asked for when it is needed.
    mount_dir: Option<PathBuf>,
}

impl Inside {
    pub fn new(context: &Context, fork: &str) -> Result<Inside, Failure> {
        let (connection, fork) = context.connect_to_fork(Some(fork))?;
        Ok(Inside {
            connection,
            fork,
            mount_dir: None,
        })
    }

    /// The path from the fork's root that `path` means: that, or an absolute one in its mount.
    pub fn path(&mut self, path: &OsStr) -> Result<PathText, Failure> {
        let bytes = path.as_bytes();
        if bytes.is_empty() {
            return Err(Failure::new(ErrorCode::Usage, "a path is empty")
                .hint("`.` is the fork's root, everything else is named from there"));
        }
        let beneath = match bytes.first() {
            Some(b'/') => self.beneath_mount(Path::new(path))?,
            _ => PathBuf::from(path),
        };
        Ok((&RepoPath::parse(beneath.as_os_str().as_bytes())?).into())
    }

    pub fn paths<'p>(
        &mut self,
        paths: impl IntoIterator<Item = &'p OsStr>,
    ) -> Result<Vec<PathText>, Failure> {
        paths.into_iter().map(|path| self.path(path)).collect()
    }

    fn beneath_mount(&mut self, path: &Path) -> Result<PathBuf, Failure> {
        let mount_dir = match &self.mount_dir {
            Some(dir) => dir.clone(),
            None => self.connection.show(&self.fork)?.mount_dir,
        };
        let beneath = beneath(&mount_dir, path);
        let refused = || {
            Failure::new(
                ErrorCode::PathRefused,
                format!("{} is not in {}", path.display(), self.fork),
            )
            .hint(format!(
                "name it from the fork's root, or beneath {}",
                mount_dir.display()
            ))
        };
        let beneath = beneath.ok_or_else(refused)?;
        self.mount_dir = Some(mount_dir);
        Ok(beneath)
    }

    pub fn nodes(&mut self, operation: &impl Operation<Answer = Nodes>) -> Result<Vec<NodeLine>, Failure> {
        Ok(self.connection.call(operation)?.nodes)
    }
}

/// Where the store of the repository is.
pub fn store_dir(context: &Context) -> Result<PathBuf, Failure> {
    Ok(Store::dir_of(context.repository()?))
}

/// The content of `file`, or of standard input, on its way to the daemon.
pub fn sent_content(store_dir: &Path, file: Option<&Path>) -> Result<Transfer, Failure> {
    let mut outgoing = Outgoing::new(store_dir);
    match file {
        Some(path) => {
            let mut file = File::open(path).map_err(|error| failures::named("read", path, &error))?;
            if file.metadata().is_ok_and(|meta| meta.is_dir()) {
                return Err(
                    Failure::new(ErrorCode::WrongKind, format!("{} is a directory", path.display()))
                        .hint("name a file"),
                );
            }
            outgoing.add_all(&mut file)?;
        }
        None => outgoing.add_all(&mut std::io::stdin().lock())?,
    }
    Ok(outgoing.finish())
}

/// How this process was called, as a shell would take it.
pub fn command_line() -> String {
    let words = std::env::args_os()
        .skip(1)
        .map(|word| shell_word(word.as_bytes()));
    std::iter::once("tine".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// `ls -l`'s first column: `-rw-r--r--`.
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

/// `ls -l`'s letter.
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

/// What it is, in words.
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

/// The path from the fork's root; a dot for that.
pub fn shown(path: &PathText) -> String {
    match quoted(path) {
        path if path.is_empty() => ".".to_owned(),
        path => path,
    }
}

/// `text`, and where it leads, if it is a symlink.
pub fn with_target(text: String, node: &NodeLine) -> String {
    match &node.target {
        Some(target) => format!("{text} -> {}", quoted(target)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::protocol::TimeLine;

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
