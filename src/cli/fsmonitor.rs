//! `tine fsmonitor STORE FORK 2 TOKEN`: answers git's query for changed paths.
//!
//! git runs it before `git status` and similar commands, so it does only what is necessary. It
//! prints nothing but the answer. Without an answer git looks at the files itself.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::client::origin::AtOrigin;
use crate::git::Repository;
use crate::ops::monitor::COMMAND;
use crate::ops::protocol::ChangedSince;
use crate::store::{ForkName, Store};
use crate::{client, ops};

/// Supported version of git's protocol: a token, then paths, each followed by NUL.
const VERSION: &str = "2";

/// Time limit for the daemon. Beyond it, git alone would be faster.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers if `words` are git's query.
pub(super) fn run(words: &[OsString]) -> Option<ExitCode> {
    let [_, command, store, fork, version, token] = words else {
        return None;
    };
    if *command != *COMMAND {
        return None;
    }
    let answered = answer(Path::new(store), fork, version, token);
    Some(answered.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn answer(store: &Path, fork: &OsString, version: &OsString, token: &OsString) -> Option<()> {
    if *version != *VERSION {
        return None;
    }
    let mut dir = std::env::current_dir().ok()?;
    let mut store = store.to_owned();
    if !store.is_dir() {
        let repository = Repository::discover(&dir).ok()?;
        dir = AtOrigin::of(repository.common_dir())?.outside(&dir);
        store = Store::dir_of(&repository);
    }
    let request = ops::AskChanged {
        fork: ForkName::parse(fork.to_str()?).ok()?,
        dir,
        token: token.to_str()?.to_owned(),
    };
    let Ok(ChangedSince { token, paths }) = client::ask_running(&store, &request, PATIENCE) else {
        return None;
    };
    let mut answer = token.into_bytes();
    answer.push(0);
    for path in &paths {
        answer.extend(path.to_bytes());
        answer.push(0);
    }
    std::io::stdout().lock().write_all(&answer).ok()
}
