//! What failures say: every text in the source is in `docs/messages.md`, says what to do next, and
//! is written like the others.

#[path = "errors/reading.rs"]
mod reading;
#[path = "errors/texts.rs"]
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use reading::Said;
use tine::ops::ErrorCode;

/// What cannot be read from the source: file, and why.
const UNREAD: [(&str, &str); 1] = [(
    "cli/usage.rs",
    "clap says what is wrong with a command line",
)];

fn src() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// All that the source says; read once.
fn said() -> Vec<Said> {
    static SAID: LazyLock<Vec<Said>> = LazyLock::new(|| reading::read(src()));
    SAID.clone()
}

fn code_of(said: &Said) -> ErrorCode {
    let code = ErrorCode::ALL
        .iter()
        .find(|code| format!("{code:?}") == said.code);
    *code.unwrap_or_else(|| panic!("{} has the code {:?}, which is none", said.file, said.code))
}

/// Messages and their hints, of each code.
fn book() -> BTreeMap<&'static str, BTreeMap<String, BTreeSet<String>>> {
    let mut book: BTreeMap<_, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for said in said().into_iter().filter(|said| said.unread.is_none()) {
        let code = code_of(&said);
        let page = book.entry(code.as_str()).or_default();
        let hints = page.entry(said.message.clone()).or_default();
        match (said.hints.is_empty(), code.hint()) {
            (true, Some(hint)) => drop(hints.insert(hint.to_owned())),
            _ => hints.extend(said.hints),
        }
    }
    book
}

fn page() -> String {
    let mut page = String::from(
        "# What failures say\n\n\
         Every message and its hint, by code ([errors.md](errors.md) has their causes). What stands in braces is filled in. Below a\n\
         message stand the causes that the system, git or the disk gave. This page is made from the source: \
         `TINE_UPDATE_DOCS=1 cargo test --test errors`.\n",
    );
    let mut book = book();
    for code in ErrorCode::ALL {
        let told = book.remove(code.as_str()).unwrap_or_default();
        write!(page, "\n## `{code}`\n\n").expect("a string takes it");
        if *code == ErrorCode::Usage {
            page.push_str("What is wrong with a command line is told in the words of its parser, with a hint about what may be meant.\n\n");
        }
        for (message, hints) in told {
            writeln!(page, "- {}", plain(&message)).expect("a string takes it");
            for hint in hints {
                writeln!(page, "  - hint: {}", plain(&hint)).expect("a string takes it");
            }
        }
    }
    page.push_str("\n## Actions\n\nWhat `{action}` stands for:\n\n");
    for action in reading::actions(src()) {
        writeln!(page, "- {action}").expect("a string takes it");
    }
    page
}

/// The text as Markdown shows it; what is in backticks stays as it is.
fn plain(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts: Vec<String> = parts
        .map(|(number, part)| match number % 2 {
            0 => part.replace('<', "\\<").replace('*', "\\*"),
            _ => part.to_owned(),
        })
        .collect();
    parts.join("`")
}

#[test]
fn every_text_can_be_read_from_the_source() {
    let unread: Vec<String> = said()
        .into_iter()
        .filter(|said| !UNREAD.iter().any(|(file, _)| *file == said.file))
        .filter_map(|said| {
            Some(format!(
                "{}: {} in {:?}",
                said.file, said.unread?, said.message
            ))
        })
        .collect();
    assert!(
        unread.is_empty(),
        "put the text beside its code:\n{}",
        unread.join("\n")
    );
}

#[test]
fn the_page_of_messages_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/messages.md");
    let page = page();
    if std::env::var_os("TINE_UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(&path, &page).expect("docs can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let missing: Vec<&str> = page.lines().filter(|line| !there.contains(line)).collect();
    assert!(
        there == page,
        "docs/messages.md is not current: `TINE_UPDATE_DOCS=1 cargo test --test errors`\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_message_says_what_to_do_next() {
    let all = said();
    // What a function makes without a hint, its callers give one.
    let is_hinted = |said: &Said| {
        !said.hints.is_empty()
            || code_of(said).hint().is_some()
            || said.leaves_hint
                && all
                    .iter()
                    .any(|other| other.message == said.message && !other.hints.is_empty())
    };
    let silent: Vec<String> = all
        .iter()
        .filter(|said| said.unread.is_none() && !is_hinted(said))
        .map(|said| format!("{}: {}", said.file, said.message))
        .collect();
    assert!(silent.is_empty(), "without a hint:\n{}", silent.join("\n"));
}

#[test]
fn every_code_is_said_somewhere() {
    let book = book();
    let unsaid: Vec<&ErrorCode> = ErrorCode::ALL
        .iter()
        .filter(|code| !book.contains_key(code.as_str()))
        .collect();
    assert!(unsaid.is_empty(), "{unsaid:?}");
}

/// Words with which a text may begin although they are written with a capital.
const NAMES: [&str; 5] = ["HEAD", "Linux", "AppArmor", "GIT_AUTHOR_DATE", "UTF-8"];

#[test]
fn messages_and_hints_are_written_alike() {
    let mut wrong = Vec::new();
    for (code, page) in book() {
        for (message, hints) in page {
            for text in std::iter::once(&message).chain(&hints) {
                let first = text.split_whitespace().next().unwrap_or_default();
                let is_name = NAMES.contains(&first.trim_end_matches([',', ':']));
                if first.starts_with(char::is_uppercase) && !is_name {
                    wrong.push(format!("{code}: begins with a capital: {text}"));
                }
                if text.ends_with(['.', '!', ' ', ':']) {
                    wrong.push(format!("{code}: ends with a stop: {text}"));
                }
                if text.matches('`').count() % 2 != 0 {
                    wrong.push(format!("{code}: a backtick without its other: {text}"));
                }
                if text.contains('\n') || text.contains("  ") {
                    wrong.push(format!("{code}: more than one line: {text:?}"));
                }
                let bare = text.split('`').step_by(2);
                if bare.flat_map(str::split_whitespace).any(|word| {
                    word.strip_prefix("--")
                        .is_some_and(|rest| rest.starts_with(char::is_alphabetic))
                }) {
                    wrong.push(format!("{code}: an option outside of backticks: {text}"));
                }
            }
            if hints.contains(&message) {
                wrong.push(format!("{code}: the hint says the same: {message}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A command line in a hint, its places filled: `tine branch switch x x --create`.
fn commands_in(hint: &str, program: &str) -> Vec<Vec<String>> {
    let spans = hint.split('`').skip(1).step_by(2);
    let of_program = spans.filter_map(|span| span.strip_prefix(program)?.strip_prefix(' '));
    of_program
        .map(|rest| rest.split_whitespace().map(str::to_owned).collect())
        .collect()
}

fn hints() -> BTreeSet<String> {
    let all = book().into_values().flat_map(BTreeMap::into_values);
    all.flatten().collect()
}

/// The help of the deepest command that `words` name.
fn help_of(words: &[String]) -> Option<String> {
    let mut path: Vec<&str> = Vec::new();
    let mut help = None;
    for word in words.iter().take_while(|word| !word.starts_with('{')) {
        path.push(word);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tine"))
            .args(&path)
            .arg("--help")
            .output()
            .expect("tine can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || !text.contains(&format!("Usage: tine {}", path.join(" "))) {
            break;
        }
        help = Some(text);
    }
    help
}

/// Whether a text names an option.
fn names(text: &str, option: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '-')
        .any(|word| word == option)
}

#[test]
fn every_command_of_tine_s_in_a_hint_has_the_options_that_it_names() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for hint in hints() {
        for words in commands_in(&hint, "tine") {
            // What comes after is another program's.
            let words: Vec<String> = words.into_iter().take_while(|word| word != "--").collect();
            let first = words
                .iter()
                .position(|word| !word.starts_with('-'))
                .unwrap_or(0);
            // `-C DIR` stands before the command.
            let first = first + usize::from(words.first().is_some_and(|word| word == "-C"));
            let words = words.get(first..).unwrap_or_default();
            if words
                .first()
                .is_none_or(|word| word.starts_with(['{', '…', '-']))
            {
                continue;
            }
            let Some(help) = help_of(words) else {
                wrong.push(format!("no such command: {hint}"));
                continue;
            };
            seen += 1;
            for word in words
                .iter()
                .filter(|word| word.starts_with('-') && word.len() > 1)
            {
                let name = word.split(['=', '[']).next().unwrap_or(word);
                if !names(&help, name) {
                    wrong.push(format!("{name} is no option there: {hint}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "{seen}");
}

#[test]
fn every_command_of_git_s_in_a_hint_is_one() {
    let listed = std::process::Command::new("git")
        .arg("--list-cmds=main,others")
        .output()
        .expect("git can be run");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let known: BTreeSet<&str> = listed.lines().collect();
    let mut wrong = Vec::new();
    for hint in hints() {
        for words in commands_in(&hint, "git") {
            let mut words = words.iter();
            let mut command = words.next();
            while command.is_some_and(|word| word == "-C") {
                words.next();
                command = words.next();
            }
            if command.is_none_or(|word| !word.starts_with('{') && !known.contains(word.as_str())) {
                wrong.push(hint.clone());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Options of programs that start containers.
const OF_OTHERS: [&str; 2] = ["--device", "--cap-add"];

#[test]
fn an_option_that_a_hint_names_alone_is_one_of_some_command() {
    let reference =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference.md"))
            .expect("the reference is there");
    // A command of several has no page of its own there.
    let rounds =
        help_of(&["round".to_owned(), "start".to_owned()]).expect("there is such a command");
    let reference = reference + &rounds;
    let mut wrong = Vec::new();
    for hint in hints() {
        let spans = hint
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|span| span.starts_with("--"));
        for span in spans {
            let name = span.split([' ', '=', '[']).next().unwrap_or(span);
            if !OF_OTHERS.contains(&name) && !names(&reference, name) {
                wrong.push(format!("{name}: {hint}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
