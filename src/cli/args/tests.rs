mod docs;

use super::super::usage;
use super::*;
use crate::ops::ErrorCode;
use std::path::PathBuf;

fn words(line: &str) -> Vec<OsString> {
    std::iter::once("tine")
        .chain(line.split_whitespace())
        .map(OsString::from)
        .collect()
}

fn parsed(line: &str) -> Cli {
    parse(&words(line), Color::Never).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Message and hint of a refused command line.
fn refused(line: &str) -> (String, String) {
    let error = parse(&words(line), Color::Never).expect_err(line);
    let failure = usage::explain(&error, &words(line));
    assert_eq!(failure.code, ErrorCode::Usage, "{line}");
    assert_eq!(failure.exit.code(), 2, "{line}");
    (
        failure.message,
        failure.hint.expect("every refusal has a hint"),
    )
}

/// Calls `check` with every command and its full name.
fn walk(command: &clap::Command, name: &str, check: &mut dyn FnMut(&clap::Command, &str)) {
    for verb in command.get_subcommands() {
        if verb.get_name() == "help" {
            continue;
        }
        let name = format!("{name} {}", verb.get_name());
        check(verb, &name);
        walk(verb, &name, check);
    }
}

#[test]
fn every_command_stands_in_one_group_of_the_help() {
    let grouped = groups::GROUPS
        .iter()
        .flat_map(|(_, names)| names.iter().copied());
    let mut grouped: Vec<&str> = grouped.filter(|name| *name != "help").collect();
    grouped.sort_unstable();
    let command = command();
    let mut known: Vec<&str> = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    known.sort_unstable();
    assert_eq!(grouped, known);
    let help = command.clone().render_help().to_string();
    for line in help.lines().filter(|line| line.starts_with("  ")) {
        assert!(line.len() <= 100, "{line}");
    }
}

#[test]
fn clap_finds_no_fault_with_the_definitions() {
    command().debug_assert();
}

#[test]
fn every_command_has_an_imperative_first_line_and_an_example_that_parses() {
    let mut count = 0;
    walk(&command(), "tine", &mut |verb, name| {
        count += 1;
        let about = verb
            .get_about()
            .unwrap_or_else(|| panic!("{name} has no help"))
            .to_string();
        let first = about.split(' ').next().unwrap_or_default();
        assert!(
            !about.ends_with('.') && !about.contains('\n'),
            "{name}: {about}"
        );
        assert!(
            first.starts_with(char::is_uppercase) && !first.ends_with('s'),
            "{name}: {about}"
        );
        assert!(about.len() <= 70, "{name}: {about}");
        let after = verb
            .get_after_long_help()
            .unwrap_or_else(|| panic!("{name} has no example"))
            .to_string();
        let (label, examples) = after.split_once(":\n").expect("a label and lines");
        assert!(matches!(label, "Example" | "Examples"), "{name}: {label}");
        let mut own = 0;
        for example in examples.lines().map(str::trim) {
            let Some(start) = example.find("tine ") else {
                continue;
            };
            // What follows two spaces is a remark, what follows a pipe or an arrow is the shell's.
            let line = example[start..]
                .split(['|', '>', '<'])
                .next()
                .unwrap_or_default();
            let line = line.split("   ").next().unwrap_or_default();
            let line = line.split(")\"").next().unwrap_or_default();
            let words = shell_words(line);
            own += usize::from(line.starts_with(name));
            parse(&words, Color::Never).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert!(
            own > 0 || verb.has_subcommands(),
            "no example of {name} in: {examples}"
        );
        for argument in verb.get_arguments() {
            let help = argument.get_help().map(ToString::to_string);
            let help = help.unwrap_or_else(|| panic!("{name}: {} has no help", argument.get_id()));
            assert!(!help.ends_with('.'), "{name}: {help}");
        }
    });
    assert!(count >= 18, "only {count} commands were seen");
}

/// Splits as a shell does, as far as the examples need it.
fn shell_words(line: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from).collect()
}

#[test]
fn every_command_takes_the_global_flags_after_its_name() {
    for line in [
        "list",
        "status x",
        "daemon status",
        "doctor",
        "log",
        "commit -m x",
    ] {
        let cli = parsed(&format!(
            "{line} --json -C /tmp --color=never -vv -q --no-pager"
        ));
        assert!(cli.global.json, "{line}");
        assert!(cli.global.quiet && cli.global.no_pager, "{line}");
        assert_eq!(cli.global.dirs, [PathBuf::from("/tmp")], "{line}");
        assert_eq!(cli.global.verbose, 2, "{line}");
    }
}

#[test]
fn what_follows_the_dashes_belongs_to_the_command() {
    let cli = parsed("exec demo --new -- ls --json -C x --help");
    assert!(!cli.global.json);
    let Some(Verb::Exec(exec)) = cli.verb else {
        panic!("no exec")
    };
    assert_eq!(exec.command, ["ls", "--json", "-C", "x", "--help"]);
    assert_eq!(exec.name.as_deref(), Some("demo"));
    assert!(exec.new);
    assert!(!usage::asks_for_json(&words("exec demo -- ls --json")));
    assert!(usage::asks_for_json(&words("exec demo --json -- ls")));
}

#[test]
fn without_a_command_there_is_an_overview() {
    assert!(parsed("").verb.is_none());
    let cli = parsed("--json -C /tmp");
    assert!(cli.verb.is_none() && cli.global.json);
}

#[test]
fn names_of_other_tools_verbs_work() {
    assert!(matches!(parsed("remove x").verb, Some(Verb::Delete(_))));
    assert!(matches!(parsed("create x").verb, Some(Verb::New(_))));
    assert!(matches!(parsed("umount x").verb, Some(Verb::Unmount(_))));
}

#[test]
fn a_wrong_flag_or_verb_gets_a_hint_that_fits() {
    let cases = [
        (
            "new --name x",
            "unexpected argument '--name' found",
            "the name stands alone",
        ),
        (
            "new x --path /y",
            "unexpected argument '--path' found",
            "--at DIR",
        ),
        (
            "new x --form HEAD",
            "unexpected argument '--form' found",
            "'--from'",
        ),
        (
            "commit x -am y",
            "unexpected argument '-a' found",
            "leave the flag out",
        ),
        (
            "commit x --amend",
            "unexpected argument '--amend' found",
            "git commit --amend",
        ),
        (
            "commit x",
            "required arguments were not provided",
            "tine commit -m MSG",
        ),
        (
            "unmount x --commit",
            "required arguments were not provided",
            "--commit -m MSG",
        ),
        (
            "exec x ls",
            "unexpected argument 'ls' found",
            "tine exec NAME -- CMD",
        ),
        (
            "diff x src",
            "unexpected argument 'src' found",
            "tine diff NAME -- PATH",
        ),
        (
            "exec x",
            "required arguments were not provided",
            "`tine shell NAME`; `tine exec --help`",
        ),
        (
            "new",
            "required arguments were not provided: <NAME>",
            "`tine new NAME`; `tine new --help`",
        ),
        (
            "unmount x -m done",
            "required arguments were not provided: <--keep|--commit|",
            "--commit -m MSG",
        ),
        ("lst", "unrecognized subcommand 'lst'", "`tine list`;"),
        ("cd x", "unrecognized subcommand 'cd'", "tine path NAME"),
        ("stop", "unrecognized subcommand 'stop'", "tine daemon stop"),
        (
            "daemon halt",
            "unrecognized subcommand 'halt'",
            "`tine daemon --help`",
        ),
        (
            "unmount x --keep --discard",
            "cannot be used with",
            "`tine unmount --help`",
        ),
        (
            "new x --on-unmount push",
            "invalid value 'push'",
            "`tine new --help`",
        ),
        (
            "rm",
            "required arguments were not provided: <PATH>",
            "`tine delete NAME` removes a fork",
        ),
        (
            "mv x a b",
            "unexpected argument 'b' found",
            "`tine mv --fork FORK SRC DST`",
        ),
        (
            "write x p",
            "unexpected argument 'p' found",
            "`tine write --fork FORK PATH`",
        ),
        (
            "write --agent ada p",
            "unexpected argument 'p' found",
            "an agent's name follows `=`: `--agent=NAME`",
        ),
        (
            "context x",
            "unexpected argument 'x' found",
            "`tine context --fork FORK`",
        ),
        (
            "run x -- make",
            "unexpected argument 'x' found",
            "`tine exec NAME -- CMD…`",
        ),
        (
            "walk x src",
            "unrecognized subcommand 'walk'",
            "it is `tine ls --deep --fork x src` now",
        ),
        (
            "tool read x",
            "unrecognized subcommand 'tool'",
            "it is `tine cat --agent x` now",
        ),
        (
            "--json tool --fork f --agent a list src --deep",
            "unrecognized subcommand 'tool'",
            "it is `tine --json ls --agent=a --fork f src --deep` now",
        ),
        (
            "tools --no-buffers run --fork f -- make -j 2",
            "unrecognized subcommand 'tools'",
            "it is `tine run --fork f -- make -j 2` now",
        ),
        (
            "diff x --stat --name-only",
            "cannot be used with",
            "`tine diff --help`",
        ),
    ];
    for (line, message, hint) in cases {
        let (said, hinted) = refused(line);
        assert!(said.contains(message), "{line}: {said}");
        assert!(hinted.contains(hint), "{line}: {hinted}");
        assert!(
            !said.contains('\n') && !said.starts_with("error"),
            "{line}: {said}"
        );
    }
}

#[test]
fn every_wrong_flag_of_the_list_is_one_that_clap_refuses() {
    for (verb, flag, hint) in usage::WRONG_FLAGS {
        let name = if matches!(*verb, "list" | "branch") {
            ""
        } else {
            "x"
        };
        let (_, hinted) = refused(&format!("{verb} {name} {flag}"));
        assert!(hinted.contains(hint), "{verb} {flag}: {hinted}");
    }
    for (verb, hint) in usage::WRONG_VERBS {
        let (_, hinted) = refused(verb);
        assert!(hinted.contains(hint), "{verb}: {hinted}");
    }
}

#[test]
fn flags_of_new_need_new_on_exec() {
    let cli = parsed("exec x --new --from HEAD~1 -b work -- true");
    let Some(Verb::Exec(exec)) = cli.verb else {
        panic!("no exec")
    };
    assert_eq!(exec.options.from.as_deref(), Some("HEAD~1"));
    assert_eq!(exec.options.branch.as_deref(), Some("work"));
    let (said, _) = refused("exec --new -- true");
    assert!(said.contains("<NAME>"), "{said}");
    let (_, hinted) = refused("exec x --from HEAD -- true");
    assert!(hinted.contains("add `--new`"), "{hinted}");
}

#[test]
fn colour_is_known_before_parsing() {
    assert_eq!(usage::color_of(&words("list --color=never")), Color::Never);
    assert_eq!(
        usage::color_of(&words("--color always list")),
        Color::Always
    );
    assert_eq!(
        usage::color_of(&words("exec x -- ls --color=always")),
        Color::Auto
    );
}

#[test]
fn help_reads_well() {
    for (name, line) in [
        ("help", "--help"),
        ("help_new", "new --help"),
        ("help_exec_short", "exec -h"),
        ("help_unmount_short", "unmount -h"),
    ] {
        let help = parse(&words(line), Color::Never).unwrap_err().to_string();
        insta::assert_snapshot!(name, help);
    }
}

#[test]
fn every_command_is_on_the_page() {
    let page = include_str!("../../../docs/cli.md");
    for verb in command().get_subcommands() {
        let shown = format!("`tine {}", verb.get_name());
        assert!(page.contains(&shown), "docs/cli.md does not show {shown}`");
    }
}

/// What messages, hints and the lists of wrong words have in backticks.
fn quoted_texts() -> Vec<&'static str> {
    let page = include_str!("../../../docs/messages.md");
    let flags = usage::WRONG_FLAGS.iter().map(|(.., hint)| *hint);
    let verbs = usage::WRONG_VERBS.iter().map(|(_, hint)| *hint);
    page.lines()
        .chain(flags)
        .chain(verbs)
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

#[test]
fn every_command_that_a_message_names_is_understood() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for text in quoted_texts() {
        if !text.starts_with("tine ") {
            continue;
        }
        seen += 1;
        let words: Vec<OsString> = shell_words(text)
            .into_iter()
            .map(|word| word.into_string().expect("the page is UTF-8"))
            .filter(|word| word != "…")
            .map(|word| match word.rsplit('|').next().unwrap_or_default() {
                "N" | "REVIEW" => "1".to_owned(),
                "VERB" | "{verb}" => "new".to_owned(),
                word if word.contains('{') => "1".to_owned(),
                word => word.to_owned(),
            })
            .map(OsString::from)
            .collect();
        if let Err(error) = parse(&words, Color::Never)
            && !matches!(
                error.kind(),
                clap::error::ErrorKind::MissingRequiredArgument
                    | clap::error::ErrorKind::MissingSubcommand
                    | clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    | clap::error::ErrorKind::DisplayHelp
                    | clap::error::ErrorKind::DisplayVersion
            )
        {
            wrong.push(format!("`{text}`: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "only {seen} commands were seen");
}

#[test]
fn every_option_that_a_message_names_is_one() {
    /// Those of programs that start containers, and what ends our own.
    const OTHERS: [&str; 3] = ["--device", "--cap-add", "--"];
    let mut options = std::collections::BTreeSet::new();
    walk(&command(), "tine", &mut |verb, _| {
        for argument in verb.get_arguments().chain(command().get_arguments()) {
            options.extend(argument.get_long().map(|long| format!("--{long}")));
            options.extend(argument.get_short().map(|short| format!("-{short}")));
        }
    });
    let wrong: Vec<&str> = quoted_texts()
        .into_iter()
        .filter(|text| text.starts_with('-'))
        .filter(|text| {
            let first = text.split([' ', '=']).next().unwrap_or_default();
            let short = text.get(..2).filter(|_| !text.starts_with("--"));
            !OTHERS.contains(&first)
                && !options.contains(first)
                && !short.is_some_and(|it| options.contains(it))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
