//! Makes generations of dependency trees in the background.
//!
//! It makes those that new forks carry, and those that a daemon that died left unmade. One thread
//! runs while there is something to make, at the lowest priority. If the main checkout is changing
//! a tree, the thread retries it after a pause.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::slots::Daemon;
use tine_path::RepoPath;
use tine_store::{Depth, GenerationError};
use tine_sys::cpu::let_others_go_first;
use tine_workspace::DependencyTree;

/// First pause before a retry. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before a retry.
const MAX_PAUSE: Duration = Duration::from_secs(32);
/// Number of tries before a tree is given up: about five minutes.
const MAX_TRIES: u32 = 14;

/// State that the daemon shares with the thread.
///
/// Its lock is the last one: no other lock is taken while it is held.
#[derive(Default)]
pub struct GenerationMaker {
    state: Mutex<MakerState>,
    changed: Condvar,
}

/// State of the thread; protected by [`GenerationMaker::state`].
#[derive(Default)]
struct MakerState {
    /// True while the thread runs.
    is_running: bool,
    /// True if records may name trees that the thread has not seen.
    is_new: bool,
}

impl GenerationMaker {
    /// Wakes the thread, so that it sees that the daemon is ending.
    pub fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }
}

/// Tree of a main checkout: the checkout's directory and the tree's path in it.
type Tree = (PathBuf, RepoPath);

/// Number of tries of a tree, and time of the next.
struct RetryState {
    count: u32,
    next: Instant,
}

/// Starts making the generations that records wait for; does not block.
pub fn make_wanted(daemon: &Arc<Daemon>) {
    let mut state = daemon.generations.state.lock();
    state.is_new = true;
    daemon.generations.changed.notify_all();
    if state.is_running {
        return;
    }
    let making = daemon.clone();
    let spawned = thread::Builder::new()
        .name("generations".into())
        .spawn(move || run(&making));
    match spawned {
        Ok(_) => state.is_running = true,
        Err(error) => log::error!("no thread to make generations: {error}"),
    }
}

fn run(daemon: &Daemon) {
    if let Err(error) = let_others_go_first() {
        log::debug!("generations are made as any other work: {error}");
    }
    let mut retries: BTreeMap<Tree, RetryState> = BTreeMap::new();
    loop {
        daemon.generations.state.lock().is_new = false;
        let now = Instant::now();
        let wanted = wanted(daemon);
        retries.retain(|tree, _| wanted.contains(tree));
        for tree in &wanted {
            let is_due = retries.get(tree).is_none_or(|retry| retry.next <= now);
            if is_due && daemon.refuse_if_stopping().is_ok() {
                attempt(daemon, tree, &mut retries);
            }
        }
        let mut state = daemon.generations.state.lock();
        let next = retries.values().map(|retry| retry.next).min();
        let is_done = next.is_none() && !state.is_new;
        if is_done || daemon.refuse_if_stopping().is_err() {
            state.is_running = false;
            return;
        }
        if let Some(next) = next.filter(|_| !state.is_new) {
            daemon.generations.changed.wait_until(&mut state, next);
        }
    }
}

fn attempt(daemon: &Daemon, tree: &Tree, retries: &mut BTreeMap<Tree, RetryState>) {
    let (from, path) = tree;
    let began = Instant::now();
    let goes_on = || daemon.refuse_if_stopping().is_ok();
    let kept = daemon.store.keep_tree(
        from,
        path,
        Depth::Places,
        &|_, tree: &DependencyTree, names| tree.is_wanted() && tree.is_whole_with(names),
        &goes_on,
    );
    let failed = match kept {
        Ok(kept) => {
            log::info!(
                "{path} is kept after {:?}: {} files, {} bytes copied",
                began.elapsed(),
                kept.files,
                kept.copied_bytes.unwrap_or(0)
            );
            retries.remove(tree);
            // Forks that were made when the tree had more packages.
            let given_up = daemon.store.give_up_tree(
                from,
                path,
                &GenerationError::Partial.to_string(),
                |tree| !tree.is_whole_with(kept.packages),
            );
            if let Err(error) = given_up {
                log::warn!("{error}");
            }
            return;
        }
        Err(GenerationError::Ending) => return,
        Err(failed) => failed,
    };
    let retry = retries.entry(tree.clone()).or_insert(RetryState {
        count: 0,
        next: began,
    });
    retry.count += 1;
    let may_pass = matches!(
        failed,
        GenerationError::Changing | GenerationError::Missing | GenerationError::Partial
    );
    if may_pass && retry.count < MAX_TRIES {
        let doublings = retry.count.saturating_sub(1).min(5);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings);
        retry.next = Instant::now() + pause.min(MAX_PAUSE);
        return;
    }
    log::warn!("{path} is not kept: {failed}");
    match daemon
        .store
        .give_up_tree(from, path, &failed.to_string(), |_| true)
    {
        Ok(()) => drop(retries.remove(tree)),
        Err(error) => {
            log::warn!("{error}");
            retry.next = Instant::now() + MAX_PAUSE;
        }
    }
}

/// Returns the trees whose generations records wait for.
fn wanted(daemon: &Daemon) -> Vec<Tree> {
    let (records, _) = daemon.store.records();
    let mut trees: Vec<Tree> = records
        .iter()
        .filter_map(|record| record.carry.as_ref())
        .filter(|carry| daemon.store.is_carry_there(carry))
        .flat_map(|carry| {
            let wanted = carry.trees.iter().filter(|tree| tree.is_wanted());
            wanted.filter_map(|tree| Some((carry.from.clone(), tree.path()?)))
        })
        .collect();
    trees.sort();
    trees.dedup();
    trees
}
