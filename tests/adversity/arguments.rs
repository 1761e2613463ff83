//! Wrong arguments.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::ArgAction;

use crate::commands::{self, Subject};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse, soaking};
use crate::{Tried, World};
use tine::ops::ExitCode;

/// Values that nobody means.
fn absurd() -> [OsString; 9] {
    [
        "".into(),
        "-1".into(),
        "99999999999999999999999".into(),
        "../x".into(),
        "/".into(),
        "a\x07b\x1b[2J".into(),
        OsString::from_vec(b"a\xffb".to_vec()),
        "{}".into(),
        "x".repeat(5000).into(),
    ]
}

#[test]
fn what_is_not_understood_is_refused_before_anything_is_done() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let world = World::new(&repo);
    for subject in commands::all() {
        let takes_any_word = subject
            .definition
            .get_positionals()
            .any(clap::Arg::is_allow_hyphen_values_set);
        if !takes_any_word {
            let unknown = world.attempt(&subject, &subject.with(&["--no-such-option"]));
            assert_eq!(unknown.code(), "usage", "{}", subject.name());
        }
        let has_required = subject
            .definition
            .get_arguments()
            .any(|argument| argument.is_required_set());
        if has_required {
            let missing = world.attempt(&subject, &subject.bare());
            assert_eq!(missing.code(), "usage", "{}", subject.name());
        }
        let takes_many = subject.definition.get_positionals().any(|argument| {
            matches!(argument.get_action(), ArgAction::Append)
                || argument
                    .get_num_args()
                    .is_some_and(|count| count.max_values() > 1)
        });
        if !takes_many {
            let surplus: Vec<&str> = vec!["surplus"; 8];
            let surplus = world.attempt(&subject, &subject.with(&surplus));
            assert_eq!(surplus.code(), "usage", "{}", subject.name());
        }
    }
    assert_eq!(tine.daemon_pid(), None, "no daemon was started for that");
    assert!(!world.common_dir.join("tine").exists(), "no store was made");
}

#[test]
fn the_same_is_told_in_words() {
    let repo = TestRepo::new();
    let _tine = Tine::new(&repo);
    let world = World::new(&repo);
    for subject in commands::all().iter().filter(|subject| !subject.serves()) {
        let output = world.run(&subject.plain());
        // That there was nothing to do is an answer.
        let is_answer = output.status.code() == Some(ExitCode::Nothing.code().into());
        if output.status.success() || is_answer && output.stdout.len() + output.stderr.len() > 0 {
            continue;
        }
        let said = output.error_text();
        let is_failure = said.lines().any(|line| line.starts_with("error: "));
        let is_report = ["doctor", "check"].contains(&subject.name().as_str());
        assert!(is_failure || is_report, "{}: {output:?}", subject.name());
        assert!(
            is_report || said.contains("\nhint: "),
            "{}: {said}",
            subject.name()
        );
    }
}

#[test]
fn absurd_values_are_refused_or_taken_as_they_are() {
    require_fuse!();
    let repo = TestRepo::new();
    repo.write("a.txt", "a\n");
    repo.commit_all("a");
    let tine = Tine::new(&repo);
    let world = World::new(&repo);
    tine.new_fork("demo");
    for (number, subject) in commands::all().iter().enumerate() {
        for (of, value) in absurd().iter().enumerate() {
            let takers = match soaking() {
                true => (0..subject.takers()).collect(),
                // Each argument comes in turn, with another value.
                false if of.is_multiple_of(2) == number.is_multiple_of(2) => vec![number + of],
                false => Vec::new(),
            };
            for taker in takers {
                let words = subject.with_value(taker, value);
                let words = words.filter(|_| !subject.serves());
                if let Some(words) = words {
                    restore(&tine);
                    let tried = world.attempt(subject, &words);
                    assert_not_taken_for_a_program(subject, &tried);
                }
            }
        }
    }
    world.assert_no_panic_in_log();
}

/// What an earlier value let somebody do is undone.
fn restore(tine: &Tine<'_>) {
    if tine.run(&["path", "demo"]).status.code() != Some(0) {
        tine.new_fork("demo");
    }
}

fn assert_not_taken_for_a_program(subject: &Subject, tried: &Tried) {
    if !["exec", "run"].contains(&subject.name().as_str()) {
        assert_ne!(tried.code(), "command-not-found", "{}", subject.name());
    }
}
