//! Merges forks into a branch, one after another.
//!
//! A fork that conflicts becomes a review, and the next fork is merged.
//!
//! ```sh
//! cargo run -p tine-client --example gather -- path/to/repository main one two three
//! ```

use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;

use tine_client::hooks::HookOutput;
use tine_client::merging::{self, HookOptions};
use tine_client::ops::Failure;
use tine_client::ops::protocol::{MergeStatus, ReviewPolicy};
use tine_client::place::{Place, Silent};
use tine_client::{identity, ops};

/// Merges the forks and returns whether all of them are merged.
fn gather(repository: PathBuf, into: &str, forks: &[String]) -> Result<bool, Failure> {
    let place = Place::find(&repository, Arc::new(Silent))?;
    let mut client = place.connect()?;
    let signers = identity::signers(place.repository()?.common_dir())?;
    let hooks = HookOptions {
        output: HookOutput::Kept,
        no_verify: false,
    };
    let mut all_merged = true;
    for fork in forks {
        let request = ops::Merge {
            into: Some(format!("branch:{into}")),
            review: ReviewPolicy::OnConflict,
            with_uncommitted: true,
            ..ops::Merge::of(format!("fork:{fork}"))
        };
        let merged = merging::merged(&place, &mut client, request, &signers, hooks)?;
        match (merged.status, merged.review) {
            (MergeStatus::Merged, _) => println!("{fork}\t{}", merged.after.unwrap_or_default()),
            (MergeStatus::NothingToMerge, _) => println!("{fork}\tnothing to merge"),
            (_, review) => {
                all_merged = false;
                let review = review.map_or_else(String::new, |review| format!(": review {review}"));
                println!("{fork}\tconflicts{review}");
            }
        }
    }
    Ok(all_merged)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [repository, into, forks @ ..] = words.as_slice() else {
        eprintln!("usage: gather REPOSITORY BRANCH FORK…");
        exit(2);
    };
    match gather(PathBuf::from(repository), into, forks) {
        Ok(all_merged) => exit(if all_merged { 0 } else { 3 }),
        Err(failure) => {
            eprintln!("{failure}");
            exit(1);
        }
    }
}
