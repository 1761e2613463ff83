use super::*;
use tine_git::ObjectId;

fn path(path: &str) -> RepoPath {
    RepoPath::parse(path).unwrap()
}

fn id(number: u8) -> ObjectId {
    ObjectId::from_hex(format!("{number:040}").as_bytes()).unwrap()
}

/// `"<mode> <number of the object> <stage> <path>"`
fn stages(lines: &[&str]) -> Vec<IndexStage> {
    lines
        .iter()
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            IndexStage {
                path: path(fields[3]),
                stage: [StageSide::Base, StageSide::Ours, StageSide::Theirs]
                    [fields[2].parse::<usize>().unwrap() - 1],
                kind: match fields[0] {
                    "644" => TreeEntryKind::File,
                    "755" => TreeEntryKind::Executable,
                    "link" => TreeEntryKind::Symlink,
                    _ => TreeEntryKind::Submodule,
                },
                id: id(fields[1].parse().unwrap()),
            }
        })
        .collect()
}

/// The kind of message, then paths.
fn messages(messages: &[(&str, &[&str])]) -> Vec<MergeMessage> {
    messages
        .iter()
        .map(|(kind, paths)| MergeMessage {
            paths: paths.iter().map(|named| path(named)).collect(),
            kind: (*kind).to_owned(),
            text: String::new(),
        })
        .collect()
}

/// `Kind path [paths] base|ours|theirs`, each version as `path=number`.
fn told(conflict: &Conflict) -> String {
    let versions = |versions: &[Version]| {
        let each: Vec<String> = versions
            .iter()
            .map(|v| format!("{}={}", v.path, v.id.to_string().trim_start_matches('0')))
            .collect();
        each.join(",")
    };
    let paths: Vec<String> = conflict.paths.iter().map(RepoPath::to_string).collect();
    format!(
        "{:?} {} [{}] {}|{}|{}",
        conflict.kind,
        conflict.path,
        paths.join(" "),
        versions(&conflict.base),
        versions(&conflict.ours),
        versions(&conflict.theirs)
    )
}

struct Case {
    name: &'static str,
    stages: &'static [&'static str],
    messages: &'static [(&'static str, &'static [&'static str])],
    expected: &'static [&'static str],
}

const CONTENTS: &str = "CONFLICT (contents)";

/// What git 2.47 really says, with shorter ids.
const CASES: [Case; 22] = [
    Case {
        name: "notes are no conflicts",
        stages: &[],
        messages: &[
            ("Auto-merging", &["a"]),
            ("Path updated due to directory rename", &["n/a", "o/a"]),
        ],
        expected: &[],
    },
    Case {
        name: "texts",
        stages: &["644 1 1 a", "644 2 2 a", "644 3 3 a"],
        messages: &[("Auto-merging", &["a"]), (CONTENTS, &["a"])],
        expected: &["BothModified a [a] a=1|a=2|a=3"],
    },
    Case {
        name: "additions",
        stages: &["644 2 2 a", "644 3 3 a"],
        messages: &[(CONTENTS, &["a"])],
        expected: &["BothAdded a [a] |a=2|a=3"],
    },
    Case {
        name: "additions that differ in the executable bit",
        stages: &["644 2 2 a", "755 2 3 a"],
        messages: &[(CONTENTS, &["a"])],
        expected: &["ModeChanged a [a] |a=2|a=2"],
    },
    Case {
        name: "symlinks",
        stages: &["link 1 1 a", "link 2 2 a", "link 3 3 a"],
        messages: &[(CONTENTS, &["a"])],
        expected: &["BothModified a [a] a=1|a=2|a=3"],
    },
    Case {
        name: "no text",
        stages: &["644 1 1 a", "644 2 2 a", "644 3 3 a"],
        messages: &[("CONFLICT (binary)", &["a"]), (CONTENTS, &["a"])],
        expected: &["Binary a [a] a=1|a=2|a=3"],
    },
    Case {
        name: "modified and deleted",
        stages: &["644 1 1 a", "644 3 3 a"],
        messages: &[("CONFLICT (modify/delete)", &["a"])],
        expected: &["ModifyDelete a [a] a=1||a=3"],
    },
    Case {
        name: "one file with two new names",
        stages: &["644 1 1 old", "644 2 2 one", "644 3 3 two"],
        messages: &[("CONFLICT (rename/rename)", &["old", "one", "two"])],
        expected: &["RenameRename old [old one two] old=1|one=2|two=3"],
    },
    Case {
        name: "two files with one new name",
        stages: &["644 2 2 new", "644 3 3 new"],
        messages: &[
            ("CONFLICT (rename involved in collision)", &["new", "old"]),
            (CONTENTS, &["new"]),
        ],
        expected: &["RenameRename new [new old] |new=2|new=3"],
    },
    Case {
        name: "a chain of renames is one conflict",
        stages: &[
            "644 1 1 a",
            "644 2 2 b",
            "644 3 3 b",
            "644 1 1 c",
            "644 2 2 d",
            "644 3 3 b",
        ],
        messages: &[
            ("CONFLICT (rename/rename)", &["a", "b", "b"]),
            ("CONFLICT (rename/rename)", &["c", "d", "b"]),
        ],
        expected: &["RenameRename a [a b c d] a=1,c=1|b=2,d=2|b=3"],
    },
    Case {
        name: "renamed and deleted",
        stages: &["644 1 1 new", "644 2 2 new"],
        messages: &[("CONFLICT (rename/delete)", &["new", "old"])],
        expected: &["RenameDelete new [new old] new=1|new=2|"],
    },
    Case {
        name: "renamed, modified and deleted",
        stages: &["644 1 1 new", "644 2 2 new"],
        messages: &[
            ("CONFLICT (rename/delete)", &["new", "old"]),
            ("CONFLICT (modify/delete)", &["new"]),
        ],
        expected: &["RenameDelete new [new old] new=1|new=2|"],
    },
    Case {
        name: "a file in the place of a directory",
        stages: &["644 2 2 a~0123"],
        messages: &[("CONFLICT (file/directory)", &["a~0123", "a"])],
        expected: &["DirectoryFile a [a] |a=2|"],
    },
    Case {
        name: "a changed file whose place a directory has taken",
        stages: &["644 1 1 a~0123_0", "644 2 2 a~0123_0"],
        messages: &[
            ("CONFLICT (file/directory)", &["a~0123_0", "a"]),
            ("CONFLICT (modify/delete)", &["a~0123_0"]),
        ],
        expected: &["DirectoryFile a [a] a=1|a=2|"],
    },
    Case {
        name: "a file and a symlink",
        stages: &["link 3 3 a", "644 1 1 a~0123", "644 2 2 a~0123"],
        messages: &[("CONFLICT (distinct modes)", &["a", "a~0123"])],
        expected: &["TypeChanged a [a] a=1|a=2|a=3"],
    },
    Case {
        name: "a symlink and a submodule",
        stages: &["link 2 2 a~0123", "module 3 3 a~4567"],
        messages: &[("CONFLICT (distinct modes)", &["a", "a~0123", "a~4567"])],
        expected: &["TypeChanged a [a] |a=2|a=3"],
    },
    Case {
        name: "a file that only looks as if git had named it",
        stages: &["644 1 1 a~0123", "644 2 2 a~0123", "644 3 3 a~0123"],
        messages: &[(CONTENTS, &["a~0123"])],
        expected: &["BothModified a~0123 [a~0123] a~0123=1|a~0123=2|a~0123=3"],
    },
    Case {
        name: "submodules",
        stages: &["module 1 1 sub", "module 2 2 sub", "module 3 3 sub"],
        messages: &[
            ("CONFLICT (submodule not initialized)", &["sub"]),
            (CONTENTS, &["sub"]),
        ],
        expected: &["Submodule sub [sub] sub=1|sub=2|sub=3"],
    },
    Case {
        name: "a file added to a directory that was renamed",
        stages: &["644 3 3 new/a"],
        messages: &[("CONFLICT (directory rename suggested)", &["new/a", "old/a"])],
        expected: &["DirectoryRenamed new/a [new/a old/a] ||new/a=3"],
    },
    Case {
        name: "nobody knows where a directory went",
        stages: &[],
        messages: &[("CONFLICT(directory rename unclear split)", &["old"])],
        expected: &["DirectoryRenamed old [old] ||"],
    },
    Case {
        name: "a kind that a newer git may know",
        stages: &["644 1 1 a", "644 2 2 a"],
        messages: &[("CONFLICT (phase of the moon)", &["a", "b"])],
        expected: &["ModifyDelete a [a b] a=1|a=2|"],
    },
    Case {
        name: "each its own",
        stages: &["644 1 1 b", "644 3 3 b", "644 2 2 a/x", "644 3 3 a/x"],
        messages: &[("CONFLICT (modify/delete)", &["b"]), (CONTENTS, &["a/x"])],
        expected: &[
            "BothAdded a/x [a/x] |a/x=2|a/x=3",
            "ModifyDelete b [b] b=1||b=3",
        ],
    },
];

#[test]
fn what_git_says_becomes_conflicts() {
    for case in &CASES {
        let classified = classify(&stages(case.stages), &messages(case.messages));
        let found: Vec<String> = classified.conflicts.iter().map(told).collect();
        assert_eq!(found, case.expected, "{}", case.name);
    }
}

#[test]
fn the_order_of_what_git_says_does_not_matter() {
    for case in &CASES {
        let (mut stages, mut messages) = (stages(case.stages), messages(case.messages));
        stages.reverse();
        messages.reverse();
        let found: Vec<String> = classify(&stages, &messages)
            .conflicts
            .iter()
            .map(told)
            .collect();
        assert_eq!(found, case.expected, "{}", case.name);
    }
}

#[test]
fn the_tree_is_left_what_is_in_no_conflict() {
    let classified = classify(
        &stages(&["644 2 2 a~0123", "644 1 1 new", "644 2 2 new"]),
        &messages(&[
            ("CONFLICT (file/directory)", &["a~0123", "a"]),
            ("CONFLICT (rename/delete)", &["new", "old"]),
        ]),
    );
    assert_eq!(
        classified.left_out,
        BTreeSet::from([path("a~0123"), path("new")])
    );
    assert_eq!(classified.named_only, BTreeSet::from([path("old")]));
}
