//! The repository that tine keeps for a directory without git.
//!
//! It is under `$XDG_DATA_HOME/tine/directories/`, in a directory named after the path, with its
//! forks beside it. It is made when a session starts and removed when it is unused.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::change::{recovery, round};
use crate::cli::context::Context;
use crate::client::{Client, ending, failures};
use crate::git::{Repository, program};
use crate::ops;
use crate::ops::{ErrorCode, Failure};
use crate::store::{ForkName, Store};

/// Directory without git, with the repository that tine keeps for it.
pub(super) struct Place {
    /// Absolute path without symlinks.
    pub directory: PathBuf,
    pub common_dir: PathBuf,
    repository: Repository,
}

/// Finds the place of `dir`. Makes it if `create` is true.
pub(super) fn find(context: &Context, dir: &Path, create: bool) -> Result<Place, Failure> {
    let dir = context.absolute(dir);
    let directory = dir
        .canonicalize()
        .map_err(|error| failures::named("find", &dir, &error))?;
    if let Ok(repository) = Repository::discover(&directory) {
        return Err(Failure::new(
            ErrorCode::Usage,
            format!(
                "{} is in the git repository {}",
                directory.display(),
                repository.common_dir().display()
            ),
        )
        .hint("`tine round` without `--no-git` works in repositories"));
    }
    let home = home(&directory)?;
    if home.starts_with(&directory) {
        return Err(Failure::new(
            ErrorCode::Usage,
            format!("{} holds what tine keeps of it", directory.display()),
        )
        .hint("set XDG_DATA_HOME to a place outside, or name a directory further down"));
    }
    let common_dir = home.join("repo.git");
    if !create && !common_dir.is_dir() {
        return Err(Failure::new(
            ErrorCode::NoSuchSession,
            format!("there is no session of {}", directory.display()),
        )
        .hint("`tine round start --agents A,B --no-git DIR` begins one"));
    }
    let repository = Repository::open_for_directory(&common_dir)?;
    Ok(Place {
        common_dir: repository.common_dir().to_owned(),
        directory,
        repository,
    })
}

/// Returns tine's own directory for `directory`.
fn home(directory: &Path) -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let data = variable("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/share")))
        .ok_or_else(|| {
            Failure::new(
                ErrorCode::Usage,
                "no place for tine's own repositories is known",
            )
            .hint("set HOME or XDG_DATA_HOME")
        })?;
    let mut hash = program::command(Path::new("/"));
    let path = directory.as_os_str().as_bytes();
    let id = program::run(hash.args(["hash-object", "--stdin"]), path)?;
    let id = String::from_utf8_lossy(&id);
    Ok(data
        .join("tine/directories")
        .join(id.get(..16).unwrap_or("0")))
}

impl Place {
    /// Imports the directory's files, unless the session exists.
    pub(super) fn take_in_unless_begun(
        &self,
        connection: &mut Client,
        session: &ForkName,
    ) -> Result<(), Failure> {
        let request = ops::ShowRound {
            session: session.clone(),
        };
        match connection.call(&request) {
            Ok(_) => Ok(()),
            Err(failure) if failure.code == ErrorCode::NoSuchSession => {
                self.repository.take_in(&self.directory)?;
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Removes the repository if nothing in it is used.
    ///
    /// A session, fork, archive or entry of `tine recover` is a use. Returns whether it was
    /// removed.
    pub(super) fn remove_if_unused(&self, mut connection: Client) -> Result<bool, Failure> {
        let store = Store::dir_of(&self.repository);
        let rounds = round::session_dir(&store, &ForkName::parse("x")?);
        let is_used = rounds.parent().is_some_and(holds_anything)
            || !connection.forks()?.0.is_empty()
            // An entry can be brought back until it expires.
            || !recovery::list(&self.repository)?.0.is_empty();
        if is_used {
            return Ok(false);
        }
        drop(connection);
        ending::stop(&self.repository, false)?;
        let home = self.common_dir.parent().unwrap_or(&self.common_dir);
        fs::remove_dir_all(home).map_err(|error| Failure::io("remove", home, &error))?;
        Ok(true)
    }
}

/// Returns whether there is a session or an archive.
fn holds_anything(rounds: &Path) -> bool {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let has_record = names(&rounds.join(".records"))
        .iter()
        .any(|name| name.as_bytes().ends_with(b".json"));
    has_record || names(rounds).iter().any(|name| name != ".records")
}
