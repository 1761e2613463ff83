//! Runs one shell command in several forks at the same time.
//!
//! It commits the changes in each fork and prints the commit ids.
//!
//! ```sh
//! cargo run -p tine-client --example agents -- path/to/repository 'date > now.txt' one two three
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::Arc;
use std::thread;

use tine_client::commit::{self, CommitWithHooks};
use tine_client::hooks::HookOutput;
use tine_client::ops::{ErrorCode, Failure};
use tine_client::place::{Place, Silent};
use tine_client::{ForkName, ops};

/// Makes a fork, runs the command in it, and returns the commit.
fn work(repository: &Path, name: &str, command: &str) -> Result<String, Failure> {
    let place = Place::find(repository, Arc::new(Silent))?;
    let mut client = place.connect()?;
    let fork = client.call(&ops::New::of(ForkName::parse(name)?))?;
    let status = Command::new("sh")
        .args(["-c", command])
        .current_dir(&fork.mount_dir)
        .status()
        .map_err(|error| Failure::io("run a shell in", &fork.mount_dir, &error))?;
    if !status.success() {
        return Err(Failure::new(
            ErrorCode::Io,
            format!("the command in {name} ended with {status}"),
        ));
    }
    let request = CommitWithHooks::of(format!("Work of {name}"));
    let made = commit::make(
        &place,
        &mut client,
        &fork,
        request,
        HookOutput::Kept,
        &|| Ok(()),
    )?;
    Ok(made.committed.commit)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [repository, command, names @ ..] = words.as_slice() else {
        eprintln!("usage: agents REPOSITORY COMMAND NAME…");
        exit(2);
    };
    let repository = PathBuf::from(repository);
    let failed = thread::scope(|scope| {
        let agents: Vec<_> = names
            .iter()
            .map(|name| {
                let repository = &repository;
                (name, scope.spawn(move || work(repository, name, command)))
            })
            .collect();
        let mut failed = false;
        for (name, agent) in agents {
            match agent.join() {
                Ok(Ok(commit)) => println!("{name}\t{commit}"),
                Ok(Err(failure)) => {
                    eprintln!("{name}\t{failure}");
                    failed = true;
                }
                Err(_) => failed = true,
            }
        }
        failed
    });
    exit(i32::from(failed));
}
