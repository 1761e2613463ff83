//! Hints with names similar to a mistyped one.

use std::collections::BTreeSet;
use std::path::Path;

use super::names::Names;
use crate::change::handoff::HandoffState;
use crate::change::review::ReviewState;
use crate::ops::{ErrorCode, Failure};
use crate::store::ForkName;

/// Most names that a hint offers.
const OFFERED: usize = 3;

/// Adds a hint with similar names to `failure`.
///
/// `words` is the command line, which ran in `dir`.
pub(super) fn with_suggestion(failure: Failure, words: &[String], dir: &Path) -> Failure {
    let names = || Names::around(dir);
    let suggestion = match failure.code {
        ErrorCode::NoSuchReview => names().and_then(|names| open_reviews(&names)),
        ErrorCode::NoSuchHandoff => names().and_then(|names| ready_handoffs(&names)),
        ErrorCode::NoSuchFork
        | ErrorCode::NoSuchSnapshot
        | ErrorCode::NoSuchPoint
        | ErrorCode::NoSuchBranch
        | ErrorCode::UnknownRevision
        | ErrorCode::NoSuchSession
        | ErrorCode::NoSuchAgent
        | ErrorCode::NoSuchRemote
        | ErrorCode::NoSuchState => names().and_then(|names| similar(&failure, words, &names)),
        _ => None,
    };
    let Some(suggestion) = suggestion else {
        return failure;
    };
    let hint = match &failure.hint {
        Some(hint) => format!("{suggestion} {hint}"),
        None => suggestion,
    };
    failure.hint(hint)
}

fn open_reviews(names: &Names) -> Option<String> {
    let reviews = names.reviews().into_iter();
    let open = reviews.filter(|review| review.state == ReviewState::Open);
    numbers(open.map(|review| review.id), "open")
}

fn ready_handoffs(names: &Names) -> Option<String> {
    let handoffs = names.handoffs().into_iter();
    let ready = handoffs
        .filter(|handoff| handoff.state == HandoffState::Ready && handoff.applied_secs.is_none());
    numbers(ready.map(|handoff| handoff.id), "ready")
}

/// Lists the newest ids, which are in `state`. Numbers have no similar names.
fn numbers(ids: impl Iterator<Item = u64>, state: &str) -> Option<String> {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    let newest = ids.get(ids.len().saturating_sub(OFFERED)..)?;
    match newest {
        [] => None,
        [one] => Some(format!("{one} is {state};")),
        several => Some(format!("{} are {state};", several.join(", "))),
    }
}

fn similar(failure: &Failure, words: &[String], names: &Names) -> Option<String> {
    let mentioned: BTreeSet<&str> = failure.message.split(|c| !is_in_name(c)).collect();
    let mut parts: Vec<&str> = Vec::new();
    for word in words {
        parts.extend(word.split(['@', ':', '=', ',']));
        parts.push(word);
    }
    let there = candidates(failure.code, &parts, names);
    // The mistyped part is in the message and does not exist.
    let mut wrong = parts
        .iter()
        .filter(|part| mentioned.contains(**part) && !there.iter().any(|name| name == *part));
    let nearest = wrong.find_map(|wrong| {
        let found = nearest(wrong, &there);
        (!found.is_empty()).then_some(found)
    })?;
    Some(format!("did you mean {}?", nearest.join(" or ")))
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/')
}

/// Returns the existing names of the kind that `code` is about.
fn candidates(code: ErrorCode, parts: &[&str], names: &Names) -> Vec<String> {
    let forks = || names.forks().into_iter().map(|fork| fork.name.to_string());
    let branches = || {
        let tips = names.branches().into_iter();
        tips.filter_map(|tip| String::from_utf8(tip.name).ok())
    };
    let snapshots = || {
        let forks = parts.iter().filter_map(|part| ForkName::parse(part).ok());
        let snapshots = forks.flat_map(|fork| names.snapshots(&fork));
        snapshots.map(|snapshot| snapshot.name.to_string())
    };
    match code {
        ErrorCode::NoSuchFork => forks().collect(),
        ErrorCode::NoSuchSnapshot => snapshots().collect(),
        ErrorCode::NoSuchPoint => {
            let pristine = std::iter::once("pristine".to_owned());
            snapshots()
                .chain(forks())
                .chain(branches())
                .chain(pristine)
                .collect()
        }
        ErrorCode::NoSuchSession => {
            let sessions = names.sessions().into_iter();
            sessions
                .map(|session| session.session.to_string())
                .collect()
        }
        ErrorCode::NoSuchAgent => {
            let sessions = names.sessions().into_iter();
            let agents = sessions.flat_map(|session| session.agents);
            agents.map(|agent| agent.name.to_string()).collect()
        }
        ErrorCode::NoSuchRemote => names.remotes(),
        ErrorCode::NoSuchState => names
            .remote_forks()
            .into_iter()
            .map(|(_, name)| name)
            .collect(),
        _ => branches().collect(),
    }
}

/// Returns the names that differ least from `word`.
///
/// The difference may be a typing error or two: a third of the word's length.
fn nearest(word: &str, names: &[String]) -> Vec<String> {
    let tolerance = (word.chars().count() / 3).max(1);
    let mut found: BTreeSet<(usize, &String)> = BTreeSet::new();
    for name in names {
        let distance = strsim::damerau_levenshtein(word, name);
        if distance <= tolerance {
            found.insert((distance, name));
        }
    }
    let least = found.first().map(|(distance, _)| *distance);
    found
        .into_iter()
        .take_while(|(distance, _)| Some(*distance) == least)
        .map(|(_, name)| name.clone())
        .take(OFFERED)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_typing_error_away_is_offered() {
        let names = ["fix-parser", "fix-lexer", "a", "try-1", "try-2"].map(str::to_owned);
        assert_eq!(nearest("fix-praser", &names), ["fix-parser"]);
        assert_eq!(nearest("fixparser", &names), ["fix-parser"]);
        assert_eq!(nearest("try-3", &names), ["try-1", "try-2"]);
        assert_eq!(nearest("b", &names), ["a"]);
        assert!(nearest("something-else", &names).is_empty());
        assert!(nearest("main", &names).is_empty());
    }
}
