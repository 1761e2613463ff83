//! Merging beside git: random histories, and real ones (`scripts/merge-parity`).

mod support;

#[path = "merge/against_git.rs"]
mod against_git;
#[path = "merge/histories.rs"]
mod histories;
#[path = "merge/invariants.rs"]
mod invariants;
#[path = "merge/listing.rs"]
mod listing;
#[path = "merge/random.rs"]
mod random;
#[path = "merge/real.rs"]
mod real;
#[path = "merge/sequences.rs"]
mod sequences;
