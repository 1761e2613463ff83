use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::testing::TestRepository;

/// Rules that read `.gitignore` files from the checkout.
fn rules<'a>(repository: &'a TestRepository) -> IgnoreRules<'a> {
    IgnoreRules::new(&repository.open(), |dir| {
        Ok(std::fs::read(repository.dir().join(dir.as_path()).join(".gitignore")).ok())
    })
    .unwrap()
}

/// All nodes of the checkout but `.git`, directories with a slash at their end.
fn all_nodes(repository: &TestRepository) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut pending = vec![repository.dir().to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() == ".git" {
                continue;
            }
            let path = entry.path();
            let name = path
                .strip_prefix(repository.dir())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if entry.file_type().unwrap().is_dir() {
                found.insert(format!("{name}/"));
                pending.push(path);
            } else {
                found.insert(name);
            }
        }
    }
    found
}

/// Compares the rules' answer for every node with `git check-ignore`, and for every file with what
/// `git add -A` takes. On a difference: the node, our answer, git's.
fn compare(repository: &TestRepository) -> Result<(), String> {
    let nodes = all_nodes(repository);
    // git itself sees what is a directory; with a slash at the end it would look for rules inside
    // it.
    let bare = |node: &str| node.trim_end_matches('/').to_owned();
    let list: Vec<u8> = nodes
        .iter()
        .flat_map(|node| format!("{}\0", bare(node)).into_bytes())
        .collect();
    let finished = repository.try_git(&["check-ignore", "--no-index", "-z", "--stdin"], &list);
    let lines = |output: &[u8]| -> BTreeSet<String> {
        let output = String::from_utf8(output.to_vec()).unwrap();
        output
            .split('\0')
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let ignored_by_git = lines(&finished.stdout);
    let added_by_git =
        lines(&repository.git_bytes(&["ls-files", "-o", "-z", "--exclude-standard"], b""));
    let mut rules = rules(repository);
    for node in &nodes {
        let path = RepoPath::parse(node).unwrap();
        let is_dir = node.ends_with('/');
        let ours = rules.is_ignored(&path, is_dir).unwrap();
        if ours != ignored_by_git.contains(&bare(node)) {
            return Err(format!(
                "{node}: ignored here: {ours}, git check-ignore says otherwise"
            ));
        }
        if !is_dir && ours == added_by_git.contains(node) {
            return Err(format!(
                "{node}: ignored here: {ours}, git add -A does otherwise"
            ));
        }
    }
    Ok(())
}

#[test]
fn rules_of_all_kinds_as_git_reads_them() {
    let repository = TestRepository::new();
    repository.write(".git/info/exclude", "*.exclude\n!kept.global\n");
    repository.write("../excludes", "*.global\n*.both\n");
    repository.git(&[
        "config",
        "core.excludesFile",
        repository.dir().join("../excludes").to_str().unwrap(),
    ]);
    repository.write(
        ".gitignore",
        "\u{feff}*.o\n!keep.o\n/top\nbuild/\ndoc/*.txt\n**/deep/*.log\na/**/z\n#not\n\\#hash\n\\!bang\ntrail \n\
         space\\ \nfoo[0-9]\n[!a]x\nq?\ncr\r\n/sub/half\n/*.root\nnested/dir/\n$dollar\n*.no-newline",
    );
    repository.write("sub/.gitignore", "!*.o\nlocal\n/anchored\n!*.both\n");
    repository.write("build/.gitignore", "!*\n");
    for name in [
        "a.o",
        "keep.o",
        "top",
        "sub/top",
        "build/x",
        "build/deep/y",
        "sub/build",
        "doc/a.txt",
        "doc/more/b.txt",
        "x/deep/a.log",
        "deep/b.log",
        "x/deep/y/c.log",
        "a/z",
        "a/b/z",
        "a/b/c/z",
        "#not",
        "#hash",
        "!bang",
        "trail",
        "trail ",
        "space ",
        "foo1",
        "foox",
        "bx",
        "ax",
        "qq",
        "cr",
        "cr\r",
        "sub/a.o",
        "sub/local",
        "sub/more/local",
        "local",
        "sub/anchored",
        "sub/more/anchored",
        "sub/half/x",
        "x.root",
        "sub/x.root",
        "nested/dir/f",
        "x/nested/dir/f",
        "$dollar",
        "dollar",
        "f.no-newline",
        "f.exclude",
        "a.global",
        "kept.global",
        "a.both",
        "sub/a.both",
        "plain",
    ] {
        repository.write(name, "x");
    }
    compare(&repository).unwrap();
    let mut rules = rules(&repository);
    assert!(!rules.is_ignored(&RepoPath::root(), true).unwrap());
    assert!(
        rules
            .is_ignored(&RepoPath::parse("build").unwrap(), true)
            .unwrap()
    );
    assert!(
        !rules
            .is_ignored(&RepoPath::parse("build").unwrap(), false)
            .unwrap(),
        "a file of that name"
    );
}

#[test]
fn case_is_folded_where_the_repository_says_so() {
    let repository = TestRepository::new();
    repository.write(".gitignore", "Build/\n*.LOG\n");
    repository.write("BUILD/x", "x");
    repository.write("a.log", "x");
    compare(&repository).unwrap();
    repository.git(&["config", "core.ignoreCase", "true"]);
    compare(&repository).unwrap();
    assert!(
        rules(&repository)
            .is_ignored(&RepoPath::parse("a.log").unwrap(), false)
            .unwrap()
    );
}

#[test]
fn each_ignore_file_is_read_once_and_none_in_ignored_directories() {
    let repository = TestRepository::new();
    repository.write(".git/info/exclude", "gone/\n");
    let asked = RefCell::new(Vec::new());
    let opened = repository.open();
    let mut rules = IgnoreRules::new(&opened, |dir| {
        asked.borrow_mut().push(dir.to_string());
        Ok(None)
    })
    .unwrap();
    for path in ["a/b/x", "a/b/y", "a/z", "gone/deep/er/x", "gone/y"] {
        let ignored = rules
            .is_ignored(&RepoPath::parse(path).unwrap(), false)
            .unwrap();
        assert_eq!(ignored, path.starts_with("gone"), "{path}");
    }
    drop(rules);
    assert_eq!(asked.into_inner(), ["", "a", "a/b"]);
}

#[test]
fn an_error_of_the_reader_is_handed_on() {
    let repository = TestRepository::new();
    let mut rules = IgnoreRules::new(&repository.open(), |_| {
        Err(GitError::UnknownRevision("x".into()))
    })
    .unwrap();
    assert!(
        rules
            .is_ignored(&RepoPath::parse("a").unwrap(), false)
            .is_err()
    );
}

/// One line of an ignore file over the few names that the tree below has.
fn pattern() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "b", "c.o", "A", "*", "**", "?", "*.o", "[ab]", "[!a]", "a*", "\\a", "b ", "",
    ]);
    (
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.3),
        prop::collection::vec(piece, 1..4),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(negative, anchored, pieces, is_dir)| {
            let mark = |set, mark: &'static str| if set { mark } else { "" };
            let (start, root, end) = (mark(negative, "!"), mark(anchored, "/"), mark(is_dir, "/"));
            format!("{start}{root}{}{end}", pieces.join("/"))
        })
}

fn ignore_file() -> impl Strategy<Value = String> {
    prop::collection::vec(pattern(), 0..5).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_rules_decide_as_git_does(
        exclude in ignore_file(),
        excludes_file in ignore_file(),
        files in prop::collection::vec(
            (prop::sample::select(vec!["", "a/", "a/b/", "b/", "b/a/"]), ignore_file()), 0..4),
    ) {
        let repository = TestRepository::new();
        for dir in ["", "a/", "a/b/", "a/b/a/", "b/", "b/a/", "A/"] {
            for name in ["c.o", "x.o", "f"] {
                repository.write(&format!("{dir}{name}"), "x");
            }
        }
        repository.write("a/A", "x");
        repository.write("b/b", "x");
        repository.write(".git/info/exclude", exclude);
        repository.write("../excludes", excludes_file);
        let path = repository.dir().join("../excludes");
        repository.git(&["config", "core.excludesFile", path.to_str().unwrap()]);
        for (dir, content) in files {
            repository.write(&format!("{dir}.gitignore"), content);
        }
        prop_assert_eq!(compare(&repository), Ok(()));
    }
}
