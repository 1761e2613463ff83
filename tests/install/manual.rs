//! The man pages and the reference.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use crate::file;
use crate::support::{OutputExt, Tine, require_program, run_with_timeout};

fn tine(args: &[&str]) -> String {
    run_with_timeout(Command::new(Tine::program()).args(args))
        .expect_success(&format!("tine {args:?}"))
        .text()
}

#[test]
fn the_reference_is_what_the_program_says() {
    let page =
        fs::read_to_string(file("docs/reference.md")).expect("docs/reference.md can be read");
    assert_eq!(
        page.trim_end_matches('\n'),
        tine(&["man", "--markdown"]),
        "run `cargo run -- man --markdown > docs/reference.md`"
    );
}

/// The commands of the reference, by the names of their pages.
fn commands() -> BTreeMap<String, String> {
    let reference = tine(&["man", "--markdown"]);
    let headings = reference
        .lines()
        .filter_map(|line| line.strip_prefix("## `"));
    headings
        .map(|heading| heading.trim_end_matches('`'))
        .chain(["tine"])
        .map(|command| (command.replace(' ', "-"), command.to_owned()))
        .collect()
}

#[test]
fn every_command_has_a_man_page() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("share/man/man1");
    tine(&["man", "--dir", dir.to_str().unwrap()]);
    let pages: BTreeSet<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".1")
                .expect("a page of section 1")
                .to_owned()
        })
        .collect();
    let commands = commands();
    assert_eq!(pages, commands.keys().cloned().collect());
    assert!(pages.contains("tine-round-start") && pages.contains("tine-cherry-pick"));
    for name in &pages {
        let page = fs::read_to_string(dir.join(format!("{name}.1"))).unwrap();
        for part in [
            ".SH NAME",
            ".SH SYNOPSIS",
            ".SH DESCRIPTION",
            ".SH EXAMPLES",
            ".SH \"SEE ALSO\"",
        ] {
            assert!(page.contains(part), "{name} has no {part}:\n{page}");
        }
        let words: Vec<&str> = commands[name].split(' ').skip(1).collect();
        assert_eq!(
            tine(&[&["man"][..], &words].concat()),
            page.trim_end_matches('\n'),
            "{name}"
        );
    }
}

#[test]
fn the_man_pages_render_without_a_warning() {
    require_program!("groff");
    let place = tempfile::tempdir().unwrap();
    tine(&["man", "--dir", place.path().to_str().unwrap()]);
    for name in commands().into_keys() {
        let mut groff = Command::new("groff");
        groff.args(["-k", "-man", "-Tutf8", "-ww", "-z"]);
        let rendered = run_with_timeout(groff.arg(place.path().join(format!("{name}.1"))));
        assert!(rendered.status.success(), "{name}");
        assert_eq!(rendered.error_text(), "", "{name}");
    }
}

#[test]
fn no_page_is_written_for_what_is_no_command() {
    for words in [
        &["nonsense"][..],
        &["round", "nonsense"],
        &["daemon", "run"],
    ] {
        let output = run_with_timeout(Command::new(Tine::program()).arg("man").args(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(output.text(), "");
        let said = output.error_text();
        assert!(
            said.contains("there is no command") && said.contains("hint: "),
            "{said}"
        );
    }
}
