//! Pages that a newcomer follows are run as they stand, and must print what they say.

mod support;

use std::fs;
use std::path::Path;

use support::{pages, require_fuse, require_namespace};

#[test]
fn the_tutorial_prints_what_it_says() {
    require_namespace!();
    let scratch = pages::assert_holds("docs/tutorial.md");
    // The picture in the README is the one that the tutorial draws.
    let drawn =
        fs::read_to_string(scratch.dir().join("forks.svg")).expect("the tutorial draws a picture");
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/forks.svg");
    if pages::updating() {
        fs::write(&place, &drawn).expect("the picture can be written");
    }
    assert_eq!(
        fs::read_to_string(place).ok().as_deref(),
        Some(drawn.as_str()),
        "docs/forks.svg is not what the tutorial draws"
    );
}

#[test]
fn the_session_in_the_readme_prints_what_it_says() {
    require_fuse!();
    pages::assert_holds("README.md");
}

#[test]
fn what_is_expected_of_a_page_is_understood() {
    let owned =
        |lines: &[&str]| -> Vec<String> { lines.iter().map(|&line| line.to_owned()).collect() };
    for (pattern, line, is) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("[..]", "", true),
        ("a[..]c", "abc", true),
        ("a[..]c", "ac", true),
        ("a[..]c", "acd", false),
        ("a[..]b[..]b", "ab", false),
        ("a[..]b[..]b", "abb", true),
    ] {
        assert_eq!(pages::line_fits(pattern, line), is, "{pattern} {line}");
    }
    for (expected, printed, is) in [
        (&["a"][..], &["a"][..], true),
        (&["a"], &["a", "b"], false),
        (&[], &["a"], false),
        (&["...", "b"], &["b"], true),
        (&["...", "b"], &["a", "b", "b"], true),
        (&["a", "..."], &["a"], true),
        (&["a", "...", "c"], &["a", "b"], false),
    ] {
        assert_eq!(
            pages::fits(&owned(expected), &owned(printed)),
            is,
            "{expected:?} {printed:?}"
        );
    }
}
