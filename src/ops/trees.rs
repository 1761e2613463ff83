//! Takes up dependency trees of the main checkout in a fork.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::{self, ErrorCode, Failure};
use crate::operation::{Call, Operation};
use crate::protocol::{TreeTakenUp, TreesTakenUp};
use crate::state::generations;
use crate::state::slots::Daemon;
use tine_path::RepoPath;
use tine_path::text::PathText;
use tine_store::ForkName;
use tine_store::{Depth, GenerationError, MadeGeneration};
use tine_workspace::DependencyTree;

/// Shows the fork's dependency trees as the main checkout has them now.
///
/// Blocks until the trees have stopped changing and their files are copied. Programs in the fork
/// continue meanwhile.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeUpTrees {
    /// Fork that takes the trees up.
    pub fork: ForkName,
    /// True to go back to the trees that the fork showed before.
    pub previous: bool,
}

impl Operation for TakeUpTrees {
    const NAME: &'static str = "take-up-trees";
    const PROGRESS: &'static str = "taking up dependency trees";
    type Answer = TreesTakenUp;

    fn run(self, call: &Call<'_>) -> Result<TreesTakenUp, Failure> {
        let (daemon, fork) = (call.daemon, &self.fork);
        let record = daemon.store.find_dependency_trees(fork)?;
        let Some(carry) = record.carry.filter(|carry| !carry.trees.is_empty()) else {
            return Err(
                Failure::new(ErrorCode::Usage, format!("{fork} carries no dependency tree")).hint(
                    "`git config tine.dependencyTrees` says which directories are; `tine new --carry PATTERN` carries them",
                ),
            );
        };
        let mut trees: Vec<TreeTakenUp> = Vec::new();
        if self.previous {
            let back = daemon.store.take_up_previous(fork)?;
            trees.extend(back.iter().map(|path| taken_up(path, true, 0)));
        } else {
            let mut failed = None;
            for path in carry.trees.iter().filter_map(|tree| tree.path()) {
                match keep_at_rest(daemon, fork, &carry.from, &path) {
                    Ok(kept) => trees.push(taken_up(
                        &path,
                        kept.forks.contains(fork),
                        kept.copied_bytes.unwrap_or(0),
                    )),
                    Err(GenerationError::Missing) if carry.trees.len() > 1 => {
                        trees.push(TreeTakenUp {
                            missing: true,
                            ..taken_up(&path, false, 0)
                        })
                    }
                    // One tree that fails does not stop the others.
                    Err(error) => failed = failed.or(Some(not_kept(fork, &path, error))),
                }
            }
            if let Some(failed) = failed {
                // The daemon retries the trees for which the fork waits.
                generations::make_wanted(daemon);
                let taken: Vec<String> = trees
                    .iter()
                    .filter(|tree| tree.changed)
                    .map(|tree| String::from_utf8_lossy(&tree.path.to_bytes()).into_owned())
                    .collect();
                return Err(if taken.is_empty() {
                    failed
                } else {
                    failed.cause(format!("{} taken up all the same", taken.join(", ")))
                });
            }
        }
        Ok(TreesTakenUp {
            fork: fork.clone(),
            trees,
        })
    }
}

/// Longest wait for a tree to stop changing. A user has often just installed it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two attempts to keep the tree.
const PAUSE: Duration = Duration::from_millis(200);

/// Keeps the tree when the main checkout has stopped changing it. Blocks until then.
fn keep_at_rest(
    daemon: &Daemon,
    fork: &ForkName,
    from: &Path,
    path: &RepoPath,
) -> Result<MadeGeneration, GenerationError> {
    let began = Instant::now();
    let goes_on = || daemon.refuse_if_stopping().is_ok();
    let takes_it = |name: &ForkName, tree: &DependencyTree, names| {
        name == fork || tree.is_wanted() && tree.is_whole_with(names)
    };
    loop {
        match daemon
            .store
            .keep_tree(from, path, Depth::Bytes, &takes_it, &goes_on)
        {
            Err(GenerationError::Changing) if began.elapsed() < PATIENCE && goes_on() => {
                thread::sleep(PAUSE)
            }
            kept => return kept,
        }
    }
}

fn taken_up(path: &RepoPath, changed: bool, copied_bytes: u64) -> TreeTakenUp {
    TreeTakenUp {
        path: PathText::from(path),
        changed,
        copied_bytes,
        missing: false,
    }
}

fn not_kept(fork: &ForkName, path: &RepoPath, error: GenerationError) -> Failure {
    let again = format!(
        "`tine update {fork} --carried` tries again, and {fork} shows what it did until then"
    );
    match error {
        GenerationError::Store(error) => error.into(),
        GenerationError::Changing => Failure::new(
            ErrorCode::Busy,
            format!("{path} cannot be taken up: the main checkout is changing it"),
        )
        .hint(format!("wait until it is installed: {again}")),
        GenerationError::Missing | GenerationError::Partial => Failure::new(
            ErrorCode::NoSuchPath,
            format!("{path} cannot be taken up: the main checkout does not have it"),
        )
        .hint(format!("install it there: {again}")),
        GenerationError::NoRoom { needed, available } => failure::no_space(&format!("there is no room for {path}"))
            .cause(format!(
                "it takes {needed} bytes, and {available} are free, of which some are left for what forks write"
            )),
        GenerationError::Ending => Failure::new(
            ErrorCode::DaemonUnreachable,
            format!("the daemon ended before {path} was copied"),
        )
        .hint(again),
        GenerationError::Read(error) => Failure::new(
            ErrorCode::Io,
            format!("{path} of the main checkout cannot be read"),
        )
        .cause(error.to_string())
        .hint(format!("`ls -l` there says why; {again}")),
    }
}
