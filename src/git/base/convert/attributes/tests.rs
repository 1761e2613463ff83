use proptest::prelude::*;

use super::*;
use crate::base::{BaseCache, InoHasher};
use crate::testing::TestRepository;

/// One line of an attribute file over the few names that the tree below has.
fn line() -> impl Strategy<Value = String> {
    let pattern = prop::sample::select(vec![
        "*", "*.a", "f.*", "/f.a", "d/*", "d/**", "**/e", "d/e/*", "[fg].b", "e", "e/", "d/", "**",
        "\"f.a\"", "!f.a",
    ]);
    let assignment = prop::sample::select(vec![
        "text",
        "-text",
        "!text",
        "text=auto",
        "text=input",
        "text=odd",
        "crlf",
        "-crlf",
        "crlf=input",
        "eol=lf",
        "eol=crlf",
        "-eol",
        "!eol",
        "ident",
        "-ident",
        "!ident",
        "filter=x",
        "-filter",
        "filter",
        "!filter",
        "binary",
        "-binary",
        "win",
        "-win",
        "!win",
        "working-tree-encoding=UTF-16",
        "working-tree-encoding=utf-8",
        "!working-tree-encoding",
        "diff=other",
    ]);
    let rule = (pattern, prop::collection::vec(assignment, 1..4))
        .prop_map(|(pattern, assignments)| format!("{pattern} {}", assignments.join(" ")));
    let own = prop::sample::select(vec![
        "[attr]win text eol=crlf",
        "[attr]win binary ident",
        "# comment",
        "",
    ]);
    prop_oneof![6 => rule, 1 => own.prop_map(str::to_owned)]
}

fn file() -> impl Strategy<Value = String> {
    prop::collection::vec(line(), 0..6).prop_map(|lines| lines.join("\n"))
}

/// What `git check-attr` says of `path`, in the terms of this module.
fn by_git(answers: &[(String, String, String)], path: &str) -> FileAttributes {
    let value = |name: &str| {
        let answer = answers.iter().find(|(p, n, _)| p == path && n == name);
        answer
            .map(|(_, _, value)| value.as_str())
            .expect("git answers every question")
    };
    let kind = |name: &str| match value(name) {
        "set" => Some(TextKind::Always),
        "unset" => Some(TextKind::Binary),
        "input" => Some(TextKind::Input),
        "auto" => Some(TextKind::Auto),
        _ => None,
    };
    FileAttributes {
        text: kind("text").or(kind("crlf")),
        eol_is_crlf: match value("eol") {
            "crlf" => Some(true),
            "lf" => Some(false),
            _ => None,
        },
        ident: value("ident") == "set",
        filter: match value("filter") {
            "set" | "unset" | "unspecified" => None,
            name => Some(name.into()),
        },
        has_encoding: value("working-tree-encoding") == "UTF-16",
    }
}

/// Asks git and tine for the attributes of files in nested directories.
fn decide_alike(
    [root, inner, innermost]: [&str; 3],
    info: &str,
    global: &str,
) -> Result<(), TestCaseError> {
    let repository = TestRepository::new();
    let paths = [
        "f.a", "f.b", "g.b", "e", "d/f.a", "d/f.b", "d/e/f.a", "d/e/g.b", "d/x/e",
    ];
    let file = repository.write_object("blob", b"x");
    let mut listing: String = paths
        .iter()
        .map(|path| format!("100644 {file}\t{path}\n"))
        .collect();
    for (dir, rules) in [("", root), ("d/", inner), ("d/e/", innermost)] {
        let id = repository.write_object("blob", rules.as_bytes());
        listing.push_str(&format!("100644 {id}\t{dir}.gitattributes\n"));
    }
    repository.git_with_input(&["update-index", "--index-info"], listing.as_bytes());
    let tree = repository.git(&["write-tree"]);
    repository.write(".git/info/attributes", info);
    repository.write("../global", global);
    let global = repository.dir().join("../global");
    repository.git(&["config", "core.attributesFile", global.to_str().unwrap()]);

    let question: Vec<u8> = paths
        .iter()
        .flat_map(|path| format!("{path}\0").into_bytes())
        .collect();
    let arguments = [
        &["check-attr", "--source", &tree, "-z", "--stdin"][..],
        &NAMES,
    ]
    .concat();
    let answer = String::from_utf8(repository.git_bytes(&arguments, &question)).unwrap();
    let fields: Vec<&str> = answer.split('\0').collect();
    let answers: Vec<_> = fields
        .chunks_exact(3)
        .map(|f| (f[0].to_owned(), f[1].to_owned(), f[2].to_owned()))
        .collect();

    let spool = tempfile::tempdir().unwrap();
    let cache = BaseCache::new(spool.path(), 1 << 20).unwrap();
    let opened = repository.open();
    let base = Base::open(
        &opened,
        tree.parse().unwrap(),
        &cache,
        InoHasher::new([0; 16]),
    )
    .unwrap();
    let attributes = Attributes::new(&opened, &opened.local()).unwrap();
    for path in paths {
        let wanted = by_git(&answers, path);
        let path = RepoPath::parse(path).unwrap();
        let (parent, _) = path.split_last().unwrap();
        let found = attributes.of_file(&base, &parent, &path).unwrap();
        prop_assert_eq!(found, wanted, "{}", path);
    }
    Ok(())
}

#[test]
fn regression_a_macro_of_info_attributes_hides_that_of_the_tree() {
    decide_alike(
        ["[attr]win text eol=crlf", "* win", ""],
        "[attr]win binary ident",
        "",
    )
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_rules_decide_as_git_does(
        root in file(),
        inner in file(),
        innermost in file(),
        info in file(),
        global in file(),
    ) {
        decide_alike([&root, &inner, &innermost], &info, &global)?;
    }
}
