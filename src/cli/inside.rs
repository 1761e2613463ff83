//! Paths of a fork on the command line.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::context::Context;
use crate::client::{Client, failures};
use crate::ops::transfer::{Outgoing, Transfer};
use crate::ops::{ErrorCode, Failure};
use crate::path::RepoPath;
use crate::path::text::PathText;
use crate::tools::path::beneath;
use crate::workspace::{ForkName, Store};

/// The fork that a command works in.
pub(super) struct Inside {
    pub connection: Client,
    pub fork: ForkName,
    /// Asked for when it is needed.
    mount_dir: Option<PathBuf>,
}

impl Inside {
    pub(super) fn new(context: &Context, fork: &str) -> Result<Inside, Failure> {
        let (connection, fork) = context.connect_to_fork(Some(fork))?;
        Ok(Inside {
            connection,
            fork,
            mount_dir: None,
        })
    }

    /// The path from the fork's root that `path` means: that, or an absolute one in its mount.
    pub(super) fn path(&mut self, path: &OsStr) -> Result<PathText, Failure> {
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
}

/// Where the store of the repository is.
pub(super) fn store_dir(context: &Context) -> Result<PathBuf, Failure> {
    Ok(Store::dir_of(context.repository()?))
}

/// The content of `file`, or of standard input, on its way to the daemon.
pub(super) fn sent_content(store_dir: &Path, file: Option<&Path>) -> Result<Transfer, Failure> {
    let mut outgoing = Outgoing::new(store_dir);
    match file {
        Some(path) => {
            let mut file =
                File::open(path).map_err(|error| failures::named("read", path, &error))?;
            if file.metadata().is_ok_and(|meta| meta.is_dir()) {
                return Err(Failure::new(
                    ErrorCode::WrongKind,
                    format!("{} is a directory", path.display()),
                )
                .hint("name a file"));
            }
            outgoing.add_all(&mut file)?;
        }
        None => outgoing.add_all(&mut std::io::stdin().lock())?,
    }
    Ok(outgoing.finish())
}
