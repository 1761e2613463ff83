//! The documentation as a whole: its links lead somewhere, every page can be reached, and tests
//! that it names are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files beneath `dir` whose names end so, from the root.
fn files(dir: &str, ending: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("the directory can be read") {
            let path = entry.expect("the directory can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.insert(path.strip_prefix(root()).expect("it is beneath").to_owned());
            }
        }
    }
    found
}

/// README and all of docs, by their paths from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut paths = files("docs", ".md");
    paths.insert("README.md".into());
    assert!(paths.len() > 20, "the pages were not found");
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(root().join(&path)).expect("pages are UTF-8");
            (path, text)
        })
        .collect()
}

/// The lines of a page that are no code, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    page.lines().enumerate().filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((number + 1, line))
    })
}

/// Where the links of a line lead: `[text](target)`.
fn links(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in line.split("](").skip(1) {
        if let Some((target, _)) = part.split_once(')') {
            found.push(target.to_owned());
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(page) {
        let text = line.trim_start_matches('#');
        if text.len() == line.len() || !text.starts_with(' ') {
            continue;
        }
        let anchor: String = text
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let mut name = anchor.clone();
        let mut again = 0;
        while !anchors.insert(name) {
            again += 1;
            name = format!("{anchor}-{again}");
        }
    }
    anchors
}

/// `dir/../other` without the way back.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Calls `found` with each relative link: the page it is on, the line, the file it leads to, the
/// anchor.
fn each_link(
    pages: &BTreeMap<PathBuf, String>,
    mut found: impl FnMut(&Path, usize, PathBuf, Option<String>),
) {
    for (path, text) in pages {
        for (number, line) in prose(text) {
            for link in links(line) {
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let (file, anchor) = match link.split_once('#') {
                    Some((file, anchor)) => (file, Some(anchor.to_owned())),
                    None => (link.as_str(), None),
                };
                let target = if file.is_empty() {
                    path.clone()
                } else {
                    plain(&path.parent().expect("a page is in a directory").join(file))
                };
                found(path, number, target, anchor);
            }
        }
    }
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let mut wrong = Vec::new();
    let mut count = 0;
    each_link(&pages, |page, line, target, anchor| {
        count += 1;
        let place = format!("{}:{line}", page.display());
        if !root().join(&target).exists() {
            wrong.push(format!("{place}: there is no {}", target.display()));
        } else if let Some(anchor) = anchor {
            let known = pages
                .get(&target)
                .is_some_and(|text| anchors(text).contains(&anchor));
            if !known {
                wrong.push(format!("{place}: {} has no #{anchor}", target.display()));
            }
        }
    });
    assert!(count > 100, "the links were not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_reached_from_the_readme_and_listed_in_the_index() {
    let pages = pages();
    let mut leads_to: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
    each_link(&pages, |page, _, target, _| {
        leads_to.entry(page.to_owned()).or_default().insert(target);
    });
    let mut reached = BTreeSet::new();
    let mut open = vec![PathBuf::from("README.md")];
    while let Some(page) = open.pop() {
        if reached.insert(page.clone()) {
            open.extend(leads_to.get(&page).into_iter().flatten().cloned());
        }
    }
    let index = &leads_to[Path::new("docs/README.md")];
    for page in pages.keys() {
        assert!(
            reached.contains(page),
            "nothing leads to {}",
            page.display()
        );
        assert!(
            index.contains(page) || page.ends_with("README.md"),
            "docs/README.md does not list {}",
            page.display()
        );
    }
}

/// Tables of these pages end with a column of tests.
const WITH_TESTS: [&str; 2] = ["docs/semantics.md", "docs/git.md"];

#[test]
fn every_row_names_a_test_that_is_there_or_says_that_it_has_none() {
    let mut tests: BTreeMap<String, String> = BTreeMap::new();
    for path in files("tests", ".rs").into_iter().chain(files("src", ".rs")) {
        let module = path
            .file_stem()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(root().join(path)).expect("source is UTF-8");
        // Of modules with one name, and of files and folders of tests with the same.
        tests.entry(module).or_default().push_str(&text);
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for (path, text) in pages() {
        let mut has_tests = false;
        for (number, line) in prose(&text) {
            let cells: Vec<&str> = line
                .trim()
                .trim_matches('|')
                .split(" | ")
                .map(str::trim)
                .collect();
            let Some(last) = cells.last().filter(|_| line.starts_with('|')) else {
                has_tests = false;
                continue;
            };
            if *last == "test" {
                assert!(
                    WITH_TESTS.iter().any(|page| path == Path::new(page)),
                    "{}: a column of tests",
                    path.display()
                );
                has_tests = true;
            } else if has_tests && !line.starts_with("|---") {
                count += 1;
                let named: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
                let place = format!("{}:{number}", path.display());
                if named.is_empty() && *last != "not tested" {
                    wrong.push(format!("{place}: names no test"));
                }
                for name in named {
                    if !is_test(&tests, name) {
                        wrong.push(format!("{place}: there is no test {name}"));
                    }
                }
            }
        }
    }
    assert!(count > 60, "the tables were not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether `file::function` is a test in a file of that name.
fn is_test(tests: &BTreeMap<String, String>, name: &str) -> bool {
    let Some((module, function)) = name.split_once("::") else {
        return false;
    };
    // Tests of a module may stand beside it, in `module/tests.rs`.
    [module, "tests"]
        .iter()
        .filter_map(|module| tests.get(*module))
        .any(|text| {
            text.match_indices(&format!("fn {function}("))
                .any(|(at, _)| text[..at].trim_end().ends_with(']'))
        })
}

#[test]
fn the_reading_of_pages_is_right() {
    let page = "# A `b` c!\n```\n# no\n```\n## A b c\ntext\n## É, d-e_f\n";
    let found: Vec<String> = anchors(page).into_iter().collect();
    assert_eq!(found, ["a-b-c", "a-b-c-1", "é-d-e_f"]);
    assert_eq!(links("[a](b.md#c) and [`d`](e)"), ["b.md#c", "e"]);
    assert_eq!(
        plain(Path::new("docs/../scripts/test")),
        Path::new("scripts/test")
    );
}
