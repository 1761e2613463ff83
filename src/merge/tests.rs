//! Merges in real repositories, one by one. Random ones are in `tests/merge.rs`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use tine_git::testing::TestRepository;
use tine_git::{GitError, ObjectId, Repository, TreeEntryKind};
use tine_path::RepoPath;

/// Two branches of a repository that begin at one commit.
struct Sides {
    test: TestRepository,
    base: ObjectId,
    ours: ObjectId,
    theirs: ObjectId,
}

impl Sides {
    fn new(
        base: impl Fn(&TestRepository),
        ours: impl Fn(&TestRepository),
        theirs: impl Fn(&TestRepository),
    ) -> Sides {
        let test = TestRepository::new();
        base(&test);
        let base = test.commit("base");
        test.git(&["switch", "-q", "-c", "theirs"]);
        theirs(&test);
        let theirs = test.commit("theirs");
        test.git(&["switch", "-q", "-c", "ours", "main"]);
        ours(&test);
        let ours = test.commit("ours");
        Sides {
            test,
            base,
            ours,
            theirs,
        }
    }

    fn input(&self) -> MergeInput {
        MergeInput {
            base: None,
            ours: self.ours,
            theirs: self.theirs,
            allow_unrelated: false,
        }
    }

    fn merge(&self, level: Level, strategy: Strategy) -> (Repository, MergeOutcome) {
        let repository = self.test.open();
        let outcome = merge(
            &repository,
            &self.input(),
            &MergeOptions {
                level,
                strategy,
                ..MergeOptions::default()
            },
        )
        .unwrap();
        (repository, outcome)
    }

    /// The merged tree: `<path>=<content>` for each file, a symlink with `->`, an executable with
    /// `*`.
    fn tree(&self, level: Level, strategy: Strategy) -> String {
        let (_, outcome) = self.merge(level, strategy);
        let listed = self
            .test
            .git(&["ls-tree", "-r", &outcome.tree_id.to_string()]);
        let line = |line: &str| {
            let (head, path) = line.split_once('\t').unwrap();
            let words: Vec<&str> = head.split(' ').collect();
            let sign = match words[0] {
                "120000" => "->",
                "100755" => "*=",
                _ => "=",
            };
            let content = self.test.git(&["cat-file", "blob", words[2]]);
            format!("{path}{sign}{}", content.replace('\n', ","))
        };
        listed.lines().map(line).collect::<Vec<_>>().join(" ")
    }

    /// `<kind> <path>` of each open conflict.
    fn open(&self, level: Level, strategy: Strategy) -> Vec<String> {
        let (_, outcome) = self.merge(level, strategy);
        let said = |conflict: &Conflict| format!("{:?} {}", conflict.kind, conflict.path);
        outcome.conflicts.iter().map(said).collect()
    }
}

fn write(files: &'static [(&'static str, &'static str)]) -> impl Fn(&TestRepository) {
    move |test| {
        files
            .iter()
            .for_each(|(path, content)| test.write(path, content))
    }
}

fn remove(test: &TestRepository, path: &str) {
    fs::remove_file(test.dir().join(path)).unwrap();
}

fn link(test: &TestRepository, path: &str, to: &str) {
    let _ = fs::remove_file(test.dir().join(path));
    symlink(to, test.dir().join(path)).unwrap();
}

fn make_executable(test: &TestRepository, path: &str) {
    fs::set_permissions(test.dir().join(path), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn texts_are_settled_line_by_line_and_clean_changes_stay() {
    let sides = Sides::new(
        write(&[("a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"), ("b", "b\n")]),
        write(&[("a", "ours\n2\n3\n4\n5\n6\n7\n8\nclean\n"), ("c", "c\n")]),
        write(&[
            ("a", "theirs\n2\n3\n4\nclean too\n6\n7\n8\n9\n"),
            ("d", "d\n"),
        ]),
    );
    assert_eq!(sides.open(Level::Text, Strategy::Abort), ["BothModified a"]);
    assert_eq!(sides.tree(Level::Text, Strategy::Abort), "b=b c=c d=d");
    let rest = "2,3,4,clean too,6,7,8,clean b=b c=c d=d";
    assert_eq!(
        sides.tree(Level::Text, Strategy::Ours),
        format!("a=ours,{rest}")
    );
    assert_eq!(
        sides.tree(Level::Text, Strategy::Theirs),
        format!("a=theirs,{rest}")
    );
    assert_eq!(
        sides.tree(Level::Text, Strategy::Union),
        format!("a=ours,theirs,{rest}")
    );
    // Whole files.
    assert_eq!(
        sides.tree(Level::Path, Strategy::Theirs),
        "a=theirs,2,3,4,clean too,6,7,8,9 b=b c=c d=d"
    );
    assert_eq!(
        sides.tree(Level::Path, Strategy::Union),
        format!("a=ours,theirs,{rest}")
    );
}

#[test]
fn a_text_conflict_shows_its_hunks_also_where_it_was_renamed() {
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    let sides = Sides::new(
        |test| test.write("old", text),
        |test| {
            remove(test, "old");
            test.write("new", text.replace('5', "ours"));
        },
        |test| {
            test.write("old", text.replace('5', "theirs"));
            make_executable(test, "old");
        },
    );
    let (repository, outcome) = sides.merge(Level::Text, Strategy::Abort);
    let [conflict] = &outcome.conflicts[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        (conflict.kind, conflict.path.as_bytes()),
        (ConflictKind::BothModified, &b"new"[..])
    );
    let merged = text_of(&repository, conflict).unwrap().unwrap();
    let [hunk] = merged.hunks().try_into().unwrap();
    assert_eq!(
        (hunk.base, hunk.ours, hunk.theirs),
        (&b"5\n"[..], &b"ours\n"[..], &b"theirs\n"[..])
    );
    // Theirs made it executable, which stays.
    assert_eq!(
        sides.tree(Level::Text, Strategy::Ours),
        "new*=1,2,3,4,ours,6,7,8,9"
    );
}

#[test]
fn additions_are_settled_as_texts_too() {
    let sides = Sides::new(
        write(&[("z", "z\n")]),
        |test| {
            test.write("a", "ours\n");
            make_executable(test, "a");
        },
        write(&[("a", "theirs\n")]),
    );
    assert_eq!(sides.open(Level::Text, Strategy::Abort), ["BothAdded a"]);
    assert_eq!(sides.tree(Level::Text, Strategy::Ours), "a*=ours z=z");
    assert_eq!(sides.tree(Level::Text, Strategy::Theirs), "a=theirs z=z");
    assert_eq!(
        sides.tree(Level::Text, Strategy::Union),
        "a*=ours,theirs z=z"
    );
}

#[test]
fn what_is_no_text_is_settled_by_whole_versions() {
    let sides = Sides::new(
        |test| {
            write(&[
                ("binary", "\0base"),
                ("gone", "1\n2\n3\n4\n5\n"),
                ("kind", "1\n2\n3\n4\n"),
            ])(test);
            link(test, "link", "base");
        },
        |test| {
            write(&[
                ("binary", "\0ours"),
                ("gone", "1\n2\n3\n4\nours\n"),
                ("mode", "m\n"),
            ])(test);
            link(test, "link", "ours");
            link(test, "kind", "elsewhere");
        },
        |test| {
            write(&[
                ("binary", "\0theirs"),
                ("kind", "1\n2\n3\n4\ntheirs\n"),
                ("mode", "m\n"),
            ])(test);
            make_executable(test, "mode");
            link(test, "link", "theirs");
            remove(test, "gone");
        },
    );
    for level in [Level::Text, Level::Path] {
        let all = [
            "Binary binary",
            "ModifyDelete gone",
            "TypeChanged kind",
            "BothModified link",
            "ModeChanged mode",
        ];
        assert_eq!(sides.open(level, Strategy::Abort), all);
        assert_eq!(sides.tree(level, Strategy::Abort), "");
        assert_eq!(
            sides.tree(level, Strategy::Ours),
            "binary=\0ours gone=1,2,3,4,ours kind->elsewhere link->ours mode=m"
        );
        assert_eq!(
            sides.tree(level, Strategy::Theirs),
            "binary=\0theirs kind=1,2,3,4,theirs link->theirs mode*=m"
        );
        assert_eq!(
            sides.open(level, Strategy::Union),
            ["Binary binary", "TypeChanged kind", "BothModified link"]
        );
        assert_eq!(
            sides.tree(level, Strategy::Union),
            "gone=1,2,3,4,ours mode*=m"
        );
    }
}

#[test]
fn a_file_and_a_directory_want_one_name() {
    let sides = Sides::new(
        write(&[("z", "z\n")]),
        write(&[("a", "file\n")]),
        write(&[("a/b", "beneath\n")]),
    );
    for level in [Level::Text, Level::Path] {
        assert_eq!(sides.open(level, Strategy::Abort), ["DirectoryFile a"]);
        // Nothing is at a name of git's making.
        assert_eq!(sides.tree(level, Strategy::Abort), "a/b=beneath z=z");
        assert_eq!(sides.tree(level, Strategy::Ours), "a=file z=z");
        assert_eq!(sides.tree(level, Strategy::Theirs), "a/b=beneath z=z");
    }
}

#[test]
fn names_that_a_rename_left_may_be_taken_again() {
    let text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    let sides = Sides::new(
        |test| test.write("old", text),
        |test| {
            test.git(&["mv", "old", "one"]);
            test.write("old/inner", "ours\n");
        },
        |test| {
            test.git(&["mv", "old", "two"]);
            test.write("old/other", "theirs\n");
        },
    );
    let (_, outcome) = sides.merge(Level::Text, Strategy::Abort);
    let [conflict] = &outcome.conflicts[..] else {
        panic!("{outcome:?}");
    };
    let paths: Vec<String> = conflict.paths.iter().map(RepoPath::to_string).collect();
    assert_eq!(
        (conflict.kind, paths.join(" ")),
        (ConflictKind::RenameRename, "one two".to_owned())
    );
    assert_eq!(
        sides.tree(Level::Text, Strategy::Abort),
        "old/inner=ours old/other=theirs"
    );
    let all = text.trim().replace('\n', ",");
    assert_eq!(
        sides.tree(Level::Text, Strategy::Theirs),
        format!("old/inner=ours old/other=theirs two={all}")
    );
}

#[test]
fn a_directory_that_went_to_several_places_is_told_and_loses_nothing() {
    let numbered = |number: usize| format!("{number}\n").repeat(10);
    let sides = Sides::new(
        |test| (0..4).for_each(|n| test.write(&format!("dir/{n}"), numbered(n))),
        |test| {
            (0..4).for_each(|n| {
                remove(test, &format!("dir/{n}"));
                test.write(&format!("to{}/{n}", n % 2), numbered(n));
            })
        },
        write(&[("dir/new", "new\n")]),
    );
    let (_, outcome) = sides.merge(Level::Text, Strategy::Abort);
    assert_eq!(
        sides.open(Level::Text, Strategy::Abort),
        ["DirectoryRenamed dir"]
    );
    assert!(outcome.conflicts[0].ours.is_empty() && outcome.conflicts[0].theirs.is_empty());
    assert!(
        sides
            .tree(Level::Text, Strategy::Abort)
            .contains("dir/new=new")
    );
    assert!(sides.open(Level::Text, Strategy::Ours).is_empty());
    assert!(
        sides
            .tree(Level::Text, Strategy::Ours)
            .contains("dir/new=new")
    );
}

#[test]
fn a_file_that_may_belong_to_a_renamed_directory_is_in_conflict() {
    let numbered = |number: usize| format!("{number}\n").repeat(10);
    let sides = Sides::new(
        |test| (0..4).for_each(|n| test.write(&format!("dir/{n}"), numbered(n))),
        |test| drop(test.git(&["mv", "dir", "moved"])),
        write(&[("dir/new", "new\n")]),
    );
    let (_, outcome) = sides.merge(Level::Text, Strategy::Abort);
    let [conflict] = &outcome.conflicts[..] else {
        panic!("{outcome:?}");
    };
    let paths: Vec<String> = conflict.paths.iter().map(RepoPath::to_string).collect();
    assert_eq!(paths, ["dir/new", "moved/new"]);
    assert_eq!(
        (conflict.kind, conflict.path.as_bytes()),
        (ConflictKind::DirectoryRenamed, &b"moved/new"[..])
    );
    assert!(conflict.ours.is_empty() && conflict.theirs.len() == 1);
}

#[test]
fn submodules_that_both_moved_are_in_conflict() {
    let test = TestRepository::new();
    let gitlink = |number: u8| {
        let id = format!("{number:040}");
        test.git(&[
            "update-index",
            "--add",
            "--cacheinfo",
            &format!("160000,{id},sub"),
        ]);
        let tree = test.git(&["write-tree"]);
        tree.parse::<ObjectId>().unwrap()
    };
    let trees = [gitlink(1), gitlink(2), gitlink(3)];
    let input = MergeInput {
        base: Some(trees[0]),
        ours: trees[1],
        theirs: trees[2],
        allow_unrelated: false,
    };
    for level in [Level::Text, Level::Path] {
        let options = |strategy| MergeOptions {
            level,
            strategy,
            ..MergeOptions::default()
        };
        let repository = test.open();
        let open = merge(&repository, &input, &options(Strategy::Abort)).unwrap();
        assert_eq!(open.conflicts[0].kind, ConflictKind::Submodule);
        assert_eq!(open.conflicts[0].theirs[0].kind, TreeEntryKind::Submodule);
        assert_eq!(open.tree_id, repository.empty_tree_id());
        let theirs = merge(&repository, &input, &options(Strategy::Theirs)).unwrap();
        assert_eq!(theirs.tree_id, trees[2]);
        assert!(text_of(&repository, &open.conflicts[0]).unwrap().is_none());
    }
}

#[test]
fn whole_files_of_histories_that_crossed_are_merged_over_the_first_base() {
    let test = TestRepository::new();
    test.write("a", "a\n");
    test.write("b", "b\n");
    test.commit("root");
    test.git(&["branch", "other"]);
    test.write("a", "main\n");
    let main = test.commit("main");
    test.git(&["switch", "-q", "other"]);
    test.write("b", "other\n");
    let other = test.commit("other");
    for (branch, merged) in [("other", main), ("main", other)] {
        test.git(&["switch", "-q", branch]);
        test.git(&["merge", "-q", "--no-edit", &merged.to_string()]);
        test.write(&format!("by-{branch}"), "new\n");
        test.commit("after");
    }
    let repository = test.open();
    let input = MergeInput {
        base: None,
        ours: test.id_of("main"),
        theirs: test.id_of("other"),
        allow_unrelated: false,
    };
    assert_eq!(
        repository
            .merge_bases(input.ours, input.theirs)
            .unwrap()
            .len(),
        2
    );
    for level in [Level::Text, Level::Path] {
        let options = MergeOptions {
            level,
            ..MergeOptions::default()
        };
        let outcome = merge(&repository, &input, &options).unwrap();
        assert!(outcome.conflicts.is_empty(), "{outcome:?}");
        let names = test.git(&["ls-tree", "--name-only", &outcome.tree_id.to_string()]);
        assert_eq!(names, "a\nb\nby-main\nby-other");
    }
}

#[test]
fn unrelated_histories_are_merged_only_when_asked_for() {
    let test = TestRepository::new();
    test.write("a", "a\n");
    let ours = test.commit("ours");
    test.git(&["switch", "-q", "--orphan", "other"]);
    test.write("b", "b\n");
    let theirs = test.commit("theirs");
    let repository = test.open();
    for level in [Level::Text, Level::Path] {
        let merged = |allow_unrelated| {
            let input = MergeInput {
                base: None,
                ours,
                theirs,
                allow_unrelated,
            };
            let options = MergeOptions {
                level,
                ..MergeOptions::default()
            };
            merge(&repository, &input, &options)
        };
        assert!(matches!(merged(false), Err(GitError::UnrelatedHistories)));
        let tree_id = merged(true).unwrap().tree_id.to_string();
        assert_eq!(test.git(&["ls-tree", "--name-only", &tree_id]), "a\nb");
    }
}

#[test]
fn texts_past_a_limit_are_taken_whole() {
    let large = |first: &str| format!("{first}\n{}", "0123456789abcde\n".repeat(2 << 20));
    let sides = Sides::new(
        |test| test.write("a", large("base")),
        |test| test.write("a", large("ours")),
        |test| test.write("a", large("theirs")),
    );
    let (repository, outcome) = sides.merge(Level::Text, Strategy::Abort);
    assert_eq!(outcome.conflicts[0].kind, ConflictKind::BothModified);
    assert!(
        text_of(&repository, &outcome.conflicts[0])
            .unwrap()
            .is_none()
    );
    assert_eq!(sides.open(Level::Text, Strategy::Union), ["BothModified a"]);
    assert_eq!(sides.open(Level::Path, Strategy::Abort), ["Binary a"]);
    let (_, ours) = sides.merge(Level::Text, Strategy::Ours);
    assert_eq!(ours.tree_id, repository.peel_to_tree(sides.ours).unwrap());
    assert_ne!(sides.base, sides.ours);
}
