//! Commands and options that the documentation names are there.

use std::fs;
use std::path::Path;

use super::command;

/// What a page shows as commands: its number of the line, and the text.
fn shown(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut block: Option<&str> = None;
    for (number, line) in page.lines().enumerate() {
        let number = number + 1;
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = match block {
                None => Some(language.trim()),
                Some(_) => None,
            };
            continue;
        }
        match block {
            None => {
                let code = line.split('`').skip(1).step_by(2);
                found.extend(code.map(|code| (number, code.to_owned())));
            }
            Some("sh" | "") => found.push((number, line.to_owned())),
            Some("console") => found.extend(
                line.strip_prefix("$ ")
                    .map(|line| (number, line.to_owned())),
            ),
            Some(_) => {}
        }
    }
    found
}

/// The commands of tine's in a line of a shell, each without its name.
fn commands(line: &str) -> Vec<Vec<&str>> {
    let line = line.split(" #").next().unwrap_or_default();
    line.split("&&")
        .flat_map(|part| part.split("||"))
        .flat_map(|part| part.split(" | "))
        .flat_map(|part| part.split("; "))
        .flat_map(|part| part.split("$("))
        .flat_map(|part| part.split(" -- "))
        .filter_map(|part| {
            let mut words = part.split_whitespace();
            let name = words.next()?;
            (name == "tine" || name.ends_with("/tine")).then(|| words.collect())
        })
        .collect()
}

/// What is wrong with a command; `None` where clap knows all of it that is not a placeholder.
fn fault(words: &[&str]) -> Option<String> {
    let root = command();
    let mut path = vec![&root];
    let mut placed = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let current = path.last()?;
        let plain = word.starts_with(|c: char| c.is_ascii_lowercase());
        let word = word.trim_matches(['[', ']', '(', ')', '"', '\'', ',']);
        if word == "help" || matches!(word, "--" | ">" | "<") || word.starts_with("<<") {
            return None;
        }
        if word.starts_with('-') && word.len() > 1 {
            let name = word.split(['=', '[', '|']).next().unwrap_or_default();
            let option = path
                .iter()
                .flat_map(|verb| verb.get_arguments())
                .filter(|option| {
                    option.is_global_set() || current.get_arguments().any(|own| own == *option)
                })
                .find(|option| match name.strip_prefix("--") {
                    Some(long) => {
                        option.get_long() == Some(long)
                            || option
                                .get_all_aliases()
                                .is_some_and(|all| all.contains(&long))
                    }
                    None => option.get_short() == name.chars().nth(1),
                });
            let is_helps = matches!(name, "--help" | "-h" | "--version" | "-V");
            match option {
                None if !is_helps => {
                    return Some(format!("`{}` has no {name}", current.get_name()));
                }
                Some(option)
                    if option.get_action().takes_values() && name == word && name.len() > 1 =>
                {
                    words.next();
                }
                _ => {}
            }
        } else if let Some(verb) = current.find_subcommand(word).filter(|_| !placed) {
            path.push(verb);
        } else if current.has_subcommands() && plain && !placed {
            return Some(format!("`{}` has no command {word}", current.get_name()));
        } else {
            placed = true;
        }
    }
    None
}

#[test]
fn every_command_and_option_that_a_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).expect("docs can be read") {
        let path = entry.expect("docs can be read").path();
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        // The examples on this one are those of the help, which are looked at where the help is.
        if is_page && !path.ends_with("reference.md") {
            pages.push(path);
        }
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in pages {
        let page = fs::read_to_string(&path).expect("pages are UTF-8");
        for (number, line) in shown(&page) {
            for words in commands(&line) {
                count += 1;
                wrong.extend(
                    fault(&words)
                        .map(|fault| format!("{}:{number}: {fault}: {line}", path.display())),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 300, "only {count} commands were found");
}

#[test]
fn what_is_wrong_with_a_command_is_found() {
    for (line, is_wrong) in [
        ("tine new NAME", false),
        ("tine nwe NAME", true),
        ("tine new NAME --carry PATTERN", false),
        ("tine new NAME --cary PATTERN", true),
        ("tine -C DIR new NAME", false),
        ("tine cat --fork NAME src/main.rs", false),
        ("tine caat --fork NAME src/main.rs", true),
        ("tine unmount --merge[=TARGET]", false),
        ("tine exec demo -- ls --no-such", false),
        ("cd \"$(tine path NAME --no-such)\"", true),
        ("tine delete -f demo && tine delete -x demo", true),
    ] {
        let found: Vec<String> = commands(line)
            .iter()
            .filter_map(|words| fault(words))
            .collect();
        assert_eq!(!found.is_empty(), is_wrong, "{line}: {found:?}");
    }
}
