//! Contents on their way to the daemon.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::context::Context;
use crate::client::failures;
use crate::ops::transfer::{Outgoing, Transfer};
use crate::ops::{ErrorCode, Failure};
use crate::store::Store;

/// Returns the directory of the repository's store.
pub(super) fn store_dir(context: &Context) -> Result<PathBuf, Failure> {
    Ok(Store::dir_of(context.repository()?))
}

/// Sends `file` to the daemon with `call`; `None`: standard input. Withdraws it if `call` fails.
pub(super) fn send_with<T>(
    context: &Context,
    file: Option<&Path>,
    call: impl FnOnce(Transfer) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let store_dir = store_dir(context)?;
    let content = sent_content(&store_dir, file)?;
    call(content.clone()).inspect_err(|_| content.withdraw(&store_dir))
}

/// Returns `file`, or `None` for `-`, which means standard input.
pub(super) fn file_or_stdin(file: &Path) -> Option<&Path> {
    (file.as_os_str() != "-").then_some(file)
}

/// Begins to send `file` to the daemon; `None`: standard input.
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
