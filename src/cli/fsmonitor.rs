//! `tine fsmonitor STORE FORK 2 TOKEN`: the answer to git's question what changed, for `git status`
//! and the like. It runs before each of them, so it does nothing that it need not, and says nothing
//! but the answer: where there is none git looks for itself.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::client::origin::AtOrigin;
use crate::git::Repository;
use crate::ops::monitor::COMMAND;
use crate::ops::protocol::ChangedSince;
use crate::workspace::{ForkName, Store};
use crate::{client, ops};

/// The version of git's protocol that is understood: a token, then paths, each with a NUL behind
/// it.
const VERSION: &str = "2";

/// A daemon that takes longer would be slower than git is without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers, if `words` are git's question.
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
