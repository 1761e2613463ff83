//! Makes generations of dependency trees in the background: of those that new forks carry, and of
//! those that a daemon which died did not come to.
//!
//! One thread does it, while there is something to do, and lets all others go first. A tree that
//! the main checkout is changing is tried again after a pause.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::slots::Daemon;
use tine_path::RepoPath;
use tine_sys::cpu::let_others_go_first;
use tine_workspace::DependencyTree;
use tine_workspace::store::{Depth, KeepError};

/// The pause before a tree is tried again, which doubles, and how often that is done: for about
/// five minutes.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(32);
const MAX_TRIES: u32 = 14;

/// What the thread is told. Nothing is locked while it is held.
#[derive(Default)]
pub struct GenerationMaker {
    state: Mutex<MakerState>,
    changed: Condvar,
}

#[derive(Default)]
struct MakerState {
    /// Whether there is a thread.
    is_running: bool,
    /// Records may name trees that the thread has not seen.
    is_new: bool,
}

impl GenerationMaker {
    /// Lets the thread see that the daemon ends.
    pub fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }
}

/// A tree of a main checkout.
type Tree = (PathBuf, RepoPath);

/// How often a tree was tried, and when it is next.
struct Tries {
    count: u32,
    next: Instant,
}

/// Makes the generations for which records wait, without blocking.
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
    let mut tried: BTreeMap<Tree, Tries> = BTreeMap::new();
    loop {
        daemon.generations.state.lock().is_new = false;
        let now = Instant::now();
        let wanted = wanted(daemon);
        tried.retain(|tree, _| wanted.contains(tree));
        for tree in &wanted {
            let is_due = tried.get(tree).is_none_or(|tries| tries.next <= now);
            if is_due && daemon.refuse_if_stopping().is_ok() {
                attempt(daemon, tree, &mut tried);
            }
        }
        let mut state = daemon.generations.state.lock();
        let next = tried.values().map(|tries| tries.next).min();
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

fn attempt(daemon: &Daemon, tree: &Tree, tried: &mut BTreeMap<Tree, Tries>) {
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
            tried.remove(tree);
            // Forks that were made when there was more of it.
            let given_up =
                daemon
                    .store
                    .give_up_tree(from, path, &KeepError::Partial.to_string(), |tree| {
                        !tree.is_whole_with(kept.packages)
                    });
            if let Err(error) = given_up {
                log::warn!("{error}");
            }
            return;
        }
        Err(KeepError::Ending) => return,
        Err(failed) => failed,
    };
    let tries = tried.entry(tree.clone()).or_insert(Tries {
        count: 0,
        next: began,
    });
    tries.count += 1;
    let may_pass = matches!(
        failed,
        KeepError::Changing | KeepError::Missing | KeepError::Partial
    );
    if may_pass && tries.count < MAX_TRIES {
        let doublings = tries.count.saturating_sub(1).min(5);
        let pause = FIRST_PAUSE.saturating_mul(1 << doublings);
        tries.next = Instant::now() + pause.min(MAX_PAUSE);
        return;
    }
    log::warn!("{path} is not kept: {failed}");
    match daemon
        .store
        .give_up_tree(from, path, &failed.to_string(), |_| true)
    {
        Ok(()) => drop(tried.remove(tree)),
        Err(error) => {
            log::warn!("{error}");
            tries.next = Instant::now() + MAX_PAUSE;
        }
    }
}

/// The trees for whose generations records wait.
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
