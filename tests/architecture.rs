//! The house rules that can be checked by reading the source: which part may name which, and what
//! stands where.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, LineColumn, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};

/// The parts from the outside in; each may name itself and those after it. The last ones are
/// foundations, which may name each other.
const PARTS: [&[&str]; 14] = [
    &["cli"],
    &["mcp", "ui"],
    &["client"],
    &["render"],
    &["daemon"],
    &["ops"],
    &["fuse", "tools"],
    &["change"],
    &["store", "dotgit"],
    &["workspace"],
    &["layer", "merge"],
    &["git"],
    &["failure"],
    &["path", "attr", "sys"],
];

/// One source file.
struct Source {
    /// Relative to the repository's root.
    path: PathBuf,
    /// Without comments, strings and characters, with lines kept.
    code: String,
    /// As `code`, without `#[cfg(test)]` modules; empty for a file of tests.
    serving: String,
}

impl Source {
    /// The part it belongs to: its folder beneath `src`, or its name.
    fn part(&self) -> &str {
        let below = self.path.strip_prefix("src").expect("only src is read");
        let first = below.iter().next().expect("a file has a name");
        first
            .to_str()
            .expect("source names are UTF-8")
            .trim_end_matches(".rs")
    }

    fn is_in(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    /// `src/a.rs:12: line` for each line of `code` in which `found` holds.
    fn lines_where(&self, code: &str, found: impl Fn(&str) -> bool) -> Vec<String> {
        code.lines()
            .enumerate()
            .filter(|(_, line)| found(line))
            .map(|(number, line)| {
                format!("{}:{}: {}", self.path.display(), number + 1, line.trim())
            })
            .collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("the source can be read") {
            let path = entry.expect("the source can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<Source> {
    let mut sources: Vec<Source> = rust_files("src")
        .into_iter()
        // Programs of their own.
        .filter(|path| !path.parent().is_some_and(|dir| dir.ends_with("examples")))
        .map(|path| {
            let code = without_text(&fs::read_to_string(&path).expect("source is UTF-8"));
            // What fuzzers drive serves nobody either.
            let code = code.replace("#[cfg(any(test, fuzzing))]", "#[cfg(test)]");
            let path = path
                .strip_prefix(root())
                .expect("it is beneath the root")
                .to_owned();
            let serving = without_tests(&code);
            Source {
                path,
                code,
                serving,
            }
        })
        .collect();
    assert!(sources.len() > 30, "the source was not found");
    let test_files: BTreeSet<PathBuf> = sources.iter().flat_map(test_files).collect();
    for source in &mut sources {
        if test_files.iter().any(|file| source.path.starts_with(file)) {
            source.serving.clear();
        }
    }
    sources
}

/// The files of modules that `source` declares with `#[cfg(test)] mod name;`, and the folders of
/// those modules.
fn test_files(source: &Source) -> Vec<PathBuf> {
    let is_mod = source.path.ends_with("mod.rs") || source.path.ends_with("lib.rs");
    let dir = if is_mod {
        source
            .path
            .parent()
            .expect("a file has a folder")
            .to_owned()
    } else {
        source.path.with_extension("")
    };
    let declarations = source.code.split("#[cfg(test)]").skip(1);
    declarations
        .filter_map(|rest| {
            let declaration = &rest[..rest.find([';', '{', '='])?];
            let is_file = rest[declaration.len()..].starts_with(';');
            let (_, name) = declaration.rsplit_once("mod ").filter(|_| is_file)?;
            Some([
                dir.join(format!("{}.rs", name.trim())),
                dir.join(name.trim()),
            ])
        })
        .flatten()
        .collect()
}

/// Blanks comments, string and character literals, keeping every newline.
fn without_text(source: &str) -> String {
    let tokens: TokenStream = source.parse().expect("the source is Rust");
    let mut lines: Vec<Vec<char>> = vec![Vec::new(); source.lines().count() + 1];
    place(tokens, &mut lines);
    let lines = lines.into_iter().map(String::from_iter);
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes tokens at their place in the source.
fn place(tokens: TokenStream, lines: &mut [Vec<char>]) {
    for token in tokens {
        match token {
            // To the lexer a doc comment is an attribute.
            TokenTree::Group(group) if is_doc(&group) => {}
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                put(open, group.span_open().start(), lines);
                place(group.stream(), lines);
                put(close, group.span_close().start(), lines);
            }
            TokenTree::Literal(literal) if literal.to_string().contains(['"', '\'']) => {}
            token => put(&token.to_string(), token.span().start(), lines),
        }
    }
}

/// Whether these are the brackets of a `doc` attribute.
fn is_doc(group: &Group) -> bool {
    let is_word = |token: TokenTree| matches!(token, TokenTree::Ident(word) if word == "doc");
    group.delimiter() == Delimiter::Bracket
        && group.stream().into_iter().next().is_some_and(is_word)
}

fn put(text: &str, at: LineColumn, lines: &mut [Vec<char>]) {
    let line = &mut lines[at.line - 1];
    if line.len() < at.column {
        line.resize(at.column, ' ');
    }
    line.extend(text.chars());
}

/// Blanks `#[cfg(test)]` modules and functions.
fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    while let Some(start) = kept.find("#[cfg(test)]") {
        let rest = &kept[start..];
        let end = match (rest.find('{'), rest.find(';')) {
            // A declaration: its file is left out by its name.
            (Some(brace), Some(semicolon)) if semicolon < brace => semicolon + 1,
            (None, Some(semicolon)) => semicolon + 1,
            (Some(brace), _) => brace + block_end(&rest[brace..]),
            (None, None) => rest.len(),
        };
        let blank: String = rest[..end].chars().filter(|&c| c == '\n').collect();
        kept.replace_range(start..start + end, &blank);
    }
    kept
}

/// The end of the block that begins with the `{` at the beginning.
fn block_end(rest: &str) -> usize {
    let mut depth = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    rest.len()
}

/// The identifiers of a line.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// What follows `prefix` in `code`: the first names in `crate::a` and `crate::{a, b::c}`.
fn named_after(prefix: &str, code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        let is_tail = before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
        if !is_tail {
            named.extend(heads(&code[at + prefix.len()..]));
        }
    }
    named
}

/// The first names of what may follow `crate::`: a path, or a group of paths.
fn heads(rest: &str) -> Vec<String> {
    let first = |text: &str| words(text).next().unwrap_or("").to_owned();
    if !rest.starts_with('{') {
        return vec![first(rest)];
    }
    let group = &rest[1..block_end(rest) - 1];
    let mut heads = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.push(first(&group[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

fn rank(part: &str) -> Option<usize> {
    PARTS.iter().position(|parts| parts.contains(&part))
}

/// Those of its own crates that a crate's manifest names, tests aside.
fn own_dependencies(manifest: &str) -> Vec<String> {
    let dependencies = manifest
        .split_once("\n[dependencies]\n")
        .map_or("", |(_, rest)| rest.split("\n[").next().unwrap_or(""));
    let names = dependencies
        .lines()
        .filter_map(|line| line.strip_prefix("tine-"));
    names
        .map(|name| words(name).next().unwrap_or("").to_owned())
        .collect()
}

/// A part is a crate of its own, and names those of parts after it; of the front ends the root
/// package holds all.
#[test]
fn imports_run_downwards_only() {
    let mut wrong = Vec::new();
    let (fronts, rooms) = PARTS.split_first().expect("there are parts");
    let mut crates: Vec<&str> = Vec::new();
    for part in rooms.iter().copied().flatten() {
        let manifest = root().join("src").join(part).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("each part is a crate");
        let own = rank(part).expect("it is listed");
        for named in own_dependencies(&manifest) {
            match rank(&named) {
                Some(theirs) if theirs >= own => {}
                _ => wrong.push(format!("{part} names {named}")),
            }
        }
        crates.push(part);
    }
    for source in sources() {
        let part = source.part();
        if crates.contains(&part) || part == "lib" {
            continue;
        }
        if part == "main" {
            let named: Vec<_> = source.code.matches("tine::").collect();
            assert_eq!(
                named.len(),
                source.code.matches("tine::cli::").count(),
                "main only calls cli"
            );
            continue;
        }
        assert!(fronts.contains(&part), "{part} has no place in the house");
        for named in named_after("crate::", &source.code) {
            if rank(&named).is_none() {
                wrong.push(format!(
                    "{}: crate::{named} is no part",
                    source.path.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_kernel_adapter_knows_fuser() {
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|source| !source.is_in("src/fuse"))
        .flat_map(|source| {
            source.lines_where(&source.code, |line| words(line).any(|word| word == "fuser"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_request_does_knows_no_transport() {
    const NEUTRAL: [&str; 14] = [
        "operations",
        "operations/attributes",
        "operations/contents",
        "operations/names",
        "overlay",
        "askers",
        "entries",
        "convert",
        "counters",
        "errno",
        "generations",
        "ioctl",
        "priming",
        "replay",
    ];
    let files: Vec<PathBuf> = NEUTRAL
        .iter()
        .map(|name| format!("src/fuse/{name}.rs").into())
        .collect();
    let sources = sources();
    let neutral = sources.iter().filter(|source| files.contains(&source.path));
    assert_eq!(neutral.clone().count(), NEUTRAL.len());
    let wrong: Vec<String> = neutral
        .flat_map(|source| {
            source.lines_where(&source.code, |line| words(line).any(|word| word == "fuser"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_and_system_calls_stand_in_sys() {
    let calls = |line: &str| {
        line.match_indices("libc::").any(|(at, prefix)| {
            let rest = &line[at + prefix.len()..];
            let name = words(rest).next().unwrap_or("");
            rest.starts_with(name)
                && name.starts_with(|c: char| c.is_ascii_lowercase())
                && rest[name.len()..].starts_with('(')
        })
    };
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|source| !source.is_in("src/sys"))
        .flat_map(|source| {
            source.lines_where(&source.serving, |line| {
                calls(line) || words(line).any(|word| word == "unsafe")
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_unsafe_block_says_why_it_is_safe() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| source.is_in("src/sys")) {
        let text = fs::read_to_string(root().join(&source.path)).expect("source is UTF-8");
        let text: Vec<&str> = text.lines().collect();
        for (number, line) in source.serving.lines().enumerate() {
            if !line.contains("unsafe {") && !line.contains("unsafe impl") {
                continue;
            }
            let above = text[number.saturating_sub(8)..=number].iter();
            if !above.clone().any(|line| line.contains("SAFETY:")) {
                wrong.push(format!("{}:{}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "no SAFETY: line at\n{}", wrong.join("\n"));
}

#[test]
fn only_the_command_line_prints_and_ends_the_process() {
    const SPEAKING: [&str; 5] = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];
    let ends = |line: &str| line.contains("process::exit(") || line.contains("process::abort(");
    let wrong: Vec<String> = sources()
        .iter()
        .filter(|source| !source.is_in("src/cli"))
        .flat_map(|source| {
            source.lines_where(&source.serving, |line| {
                ends(line) || SPEAKING.iter().any(|speaking| line.contains(speaking))
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn serving_code_neither_unwraps_nor_leaves_things_to_do() {
    const FORBIDDEN: [&str; 4] = [".unwrap()", "todo!(", "unimplemented!(", "panic!("];
    let wrong: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            source.lines_where(&source.serving, |line| {
                FORBIDDEN.iter().any(|word| line.contains(word))
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_is_a_drawer_for_everything() {
    let wrong: Vec<PathBuf> = sources()
        .into_iter()
        .map(|source| source.path)
        .filter(|path| {
            path.iter().any(|part| {
                ["utils", "util", "helpers", "common"]
                    .contains(&part.to_string_lossy().trim_end_matches(".rs"))
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn no_two_public_types_have_one_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for (number, line) in source.serving.lines().enumerate() {
            let mut words = line
                .trim_start()
                .split_inclusive(|c: char| !c.is_alphanumeric());
            if words.next() != Some("pub ") {
                continue;
            }
            if !matches!(
                words.next(),
                Some("struct " | "enum " | "trait " | "type " | "union ")
            ) {
                continue;
            }
            let name = words.next().expect("a type has a name");
            let name = name.trim_end_matches(|c: char| !c.is_alphanumeric());
            let place = format!("{}:{}", source.path.display(), number + 1);
            places.entry(name.to_owned()).or_default().push(place);
        }
    }
    assert!(places.len() > 300, "the types are found");
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

/// Words with which no summary begins.
const NO_BEGINNINGS: [&str; 10] = [
    "What", "Who", "Whose", "Whoever", "Whether", "Which", "Where", "How", "Of", "As",
];

/// The most words of a summary.
const SUMMARY_WORDS: usize = 12;

/// Words for which there are plainer ones.
const NO_WORDS: [&str; 9] = [
    "nevertheless",
    "somebody",
    "whoever",
    "beneath",
    "anew",
    "haste",
    "is to be",
    "is told",
    "are told",
];

/// The doc comments of a file, without those of tests and those that are help texts or schemas.
#[derive(Default)]
struct DocComments {
    /// The line, and the text.
    found: Vec<(usize, String)>,
}

impl DocComments {
    fn note(&mut self, attributes: &[syn::Attribute]) {
        let docs = attributes.iter().filter_map(|attribute| {
            let syn::Meta::NameValue(pair) = &attribute.meta else {
                return None;
            };
            let syn::Expr::Lit(value) = &pair.value else {
                return None;
            };
            match &value.lit {
                syn::Lit::Str(text) if pair.path.is_ident("doc") => {
                    Some((text.span().start().line, text.value()))
                }
                _ => None,
            }
        });
        let (lines, texts): (Vec<usize>, Vec<String>) = docs.unzip();
        if let Some(line) = lines.first() {
            self.found.push((*line, texts.join("\n")));
        }
    }
}

/// Whether it is for tests, or its doc comments are what a user reads.
fn is_passed_over(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        let is_derive = attribute.path().is_ident("derive");
        let is_test = attribute.path().is_ident("cfg") && text.contains("test");
        is_test || is_derive && (text.contains("clap") || text.contains("JsonSchema"))
    })
}

macro_rules! note_docs {
    ($($method:ident $node:ident;)*) => {
        impl<'ast> Visit<'ast> for DocComments {
            $(fn $method(&mut self, node: &'ast syn::$node) {
                if !is_passed_over(&node.attrs) {
                    self.note(&node.attrs);
                    visit::$method(self, node);
                }
            })*
        }
    };
}

note_docs! {
    visit_file File;
    visit_item_const ItemConst;
    visit_item_enum ItemEnum;
    visit_item_fn ItemFn;
    visit_item_impl ItemImpl;
    visit_item_mod ItemMod;
    visit_item_static ItemStatic;
    visit_item_struct ItemStruct;
    visit_item_trait ItemTrait;
    visit_item_type ItemType;
    visit_item_union ItemUnion;
    visit_field Field;
    visit_variant Variant;
    visit_impl_item_const ImplItemConst;
    visit_impl_item_fn ImplItemFn;
    visit_impl_item_type ImplItemType;
    visit_trait_item_const TraitItemConst;
    visit_trait_item_fn TraitItemFn;
    visit_trait_item_type TraitItemType;
}

/// The doc comments of all files of the parts, with the files' paths.
fn doc_comments() -> Vec<(PathBuf, usize, String)> {
    let serving = sources()
        .into_iter()
        .filter(|source| !source.serving.is_empty());
    let comments = serving.flat_map(|source| {
        let text = fs::read_to_string(root().join(&source.path)).expect("source is UTF-8");
        let mut comments = DocComments::default();
        comments.visit_file(&syn::parse_file(&text).expect("the source is Rust"));
        let found = comments.found.into_iter();
        found.map(move |(line, text)| (source.path.clone(), line, text))
    });
    comments.collect()
}

/// The first sentence, or what comes before a list.
fn summary(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or("").trim();
    let first = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = [". ", ": "].iter().filter_map(|end| first.find(end)).min();
    first[..end.unwrap_or(first.len())].to_owned()
}

#[test]
fn summaries_are_short_and_begin_with_a_verb_or_a_noun() {
    let comments = doc_comments();
    assert!(comments.len() > 3000, "the comments are found");
    let wrong = comments.iter().filter_map(|(path, line, text)| {
        let summary = summary(text);
        let first = summary.split(' ').next().unwrap_or("");
        let is_wrong = NO_BEGINNINGS.contains(&first) || summary.split(' ').count() > SUMMARY_WORDS;
        is_wrong.then(|| format!("{}:{line}: {summary}", path.display()))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "{} summaries:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn comments_use_plain_words() {
    let has_word = |text: &str| {
        let text = text.to_lowercase();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        NO_WORDS.into_iter().find(|word| {
            let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
            text.match_indices(word).any(|(at, _)| {
                !is_letter(text[..at].chars().next_back())
                    && !is_letter(text[at + word.len()..].chars().next())
            })
        })
    };
    let mut wrong: Vec<String> = doc_comments()
        .into_iter()
        .filter_map(|(path, line, text)| {
            has_word(&text).map(|word| format!("{}:{line}: {word}", path.display()))
        })
        .collect();
    for source in sources() {
        let text = fs::read_to_string(root().join(&source.path)).expect("source is UTF-8");
        let serving = source.serving.lines().count();
        for (number, line) in text.lines().enumerate().take(serving) {
            let comment = line.trim_start().strip_prefix("// ");
            if let Some(word) = comment.and_then(has_word) {
                wrong.push(format!("{}:{}: {word}", source.path.display(), number + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} words:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// rustfmt does not wrap prose. Tables and diagrams may be wider.
#[test]
fn comments_keep_to_the_line_width() {
    const WIDTH: usize = 100;
    let is_drawn = |line: &str| line.contains(['|', '─', '│', '┐', '┘', '…', '►']);
    let mut wide = Vec::new();
    for path in ["src", "tests"].into_iter().flat_map(rust_files) {
        let text = fs::read_to_string(&path).expect("source is UTF-8");
        for (number, line) in text.lines().enumerate() {
            let is_prose =
                line.trim_start().starts_with("//") && !is_drawn(line) && !line.contains("  ");
            if is_prose && line.trim_start().chars().count() > WIDTH {
                wide.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

/// The numbers of the invariants that are kept; the design has more.
const INVARIANTS: [usize; 18] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19,
];

#[test]
fn every_invariant_has_a_test_that_names_it() {
    let page =
        fs::read_to_string(root().join("docs/invariants.md")).expect("docs/invariants.md is there");
    let tests: Vec<String> = ["src", "tests"]
        .into_iter()
        .flat_map(rust_files)
        .map(|path| fs::read_to_string(path).expect("source is UTF-8"))
        .collect();
    for number in INVARIANTS {
        let heading = format!("## {number}. ");
        let start = page
            .find(&heading)
            .unwrap_or_else(|| panic!("the page has no {heading:?}"));
        let section = &page[start + heading.len()..];
        let section = &section[..section.find("\n## ").unwrap_or(section.len())];
        let named: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("- test: `"))
            .map(|line| line.split('`').next().expect("split gives at least one"))
            .collect();
        if named.is_empty() {
            assert!(
                section.contains("Not built yet:"),
                "invariant {number} has no test"
            );
        }
        for name in named {
            let function = name.rsplit("::").next().expect("rsplit gives at least one");
            assert!(
                tests
                    .iter()
                    .any(|text| names_invariant(text, function, number)),
                "invariant {number}: there is no test {name} that names it"
            );
        }
    }
}

/// Whether `text` has the function, and its name or the comment above it says `Invariant <number>`.
fn names_invariant(text: &str, function: &str, number: usize) -> bool {
    let Some(at) = text.find(&format!("fn {function}(")) else {
        return false;
    };
    let in_name = function.starts_with("invariant_")
        && function
            .split('_')
            .skip(1)
            .take_while(|word| *word == "and" || word.parse::<usize>().is_ok())
            .any(|word| word.parse() == Ok(number));
    let above: Vec<&str> = text[..at]
        .lines()
        .rev()
        .skip_while(|line| line.trim_start().starts_with("fn ") || line.trim().is_empty())
        .take_while(|line| line.trim_start().starts_with(['#', '/']))
        .collect();
    in_name
        || above.iter().any(|line| {
            line.to_lowercase().split("invariant").skip(1).any(|rest| {
                words(rest)
                    .take_while(|word| {
                        *word == "s" || *word == "and" || word.parse::<usize>().is_ok()
                    })
                    .any(|word| word.parse() == Ok(number))
            })
        })
}

#[test]
fn the_reading_of_source_is_right() {
    let code = without_text("a // b\n\"c\\\"d\" r#\"e\"# 'f' '\\'' &'g h /* i /* j */ k */ l");
    let found: Vec<&str> = words(&code).collect();
    assert_eq!(found, ["a", "g", "h", "l"]);
    let code = without_text("/// a\nf(documents) { document } [doctor]");
    let found: Vec<&str> = words(&code).collect();
    assert_eq!(found, ["f", "documents", "document", "doctor"]);
    let tested = without_tests("a #[cfg(test)] mod t { b { } } c #[cfg(test)] mod u; d");
    assert_eq!(words(&tested).collect::<Vec<_>>(), ["a", "c", "d"]);
    let named = named_after(
        "crate::",
        "use crate::{a, b::{c, d}}; crate::e::f(); x::crate::g",
    );
    assert_eq!(named.into_iter().collect::<Vec<_>>(), ["a", "b", "e"]);
    assert!(names_invariant(
        "#[test]\nfn invariant_07_and_13_x() {}",
        "invariant_07_and_13_x",
        13
    ));
    assert!(names_invariant(
        "/// Invariants 3 and 4.\n#[test]\nfn x() {}",
        "x",
        4
    ));
    assert!(!names_invariant(
        "/// Invariant 3.\n#[test]\nfn x() {}",
        "x",
        4
    ));
}
