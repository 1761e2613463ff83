use std::fs;

use proptest::prelude::*;

use super::*;
use tine_git::program;

/// Three files that `git merge-file` reads.
struct GitMergeFile {
    dir: tempfile::TempDir,
}

impl GitMergeFile {
    fn new() -> GitMergeFile {
        GitMergeFile {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// What it prints, and whether that is clean.
    fn run(&self, [base, ours, theirs]: [&[u8]; 3], arguments: &[&str]) -> (Vec<u8>, bool) {
        for (name, content) in [("base", base), ("ours", ours), ("theirs", theirs)] {
            fs::write(self.dir.path().join(name), content).unwrap();
        }
        let mut command = program::command(self.dir.path());
        command
            .args(["merge-file", "-p", "--diff-algorithm=histogram"])
            .args(arguments)
            .args(["ours", "base", "theirs"]);
        let finished = program::finish(&mut command, b"").unwrap();
        let code = finished.status.code().unwrap();
        assert!(code < 128, "{}", String::from_utf8_lossy(&finished.stderr));
        (finished.stdout, code == 0)
    }
}

fn options(style: Style) -> MarkerOptions {
    let label = |text: &str| Some(text.to_owned());
    MarkerOptions {
        style,
        base_label: label("base"),
        ours_label: label("ours"),
        theirs_label: label("theirs"),
        ..MarkerOptions::default()
    }
}

/// Where git shows a conflict whose two sides are the same (only where it shows the base), there is
/// none here.
fn without_equal_sides(text: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut conflict: Option<[Vec<u8>; 4]> = None;
    let mut part = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        match (&mut conflict, line.get(..7)) {
            (None, Some(b"<<<<<<<")) => {
                conflict = Some([line.to_vec(), Vec::new(), Vec::new(), Vec::new()]);
                part = 1;
            }
            (None, _) => kept.extend_from_slice(line),
            (Some(parts), mark) => {
                match mark {
                    Some(b"|||||||") => part = 2,
                    Some(b"=======") => part = 3,
                    _ if mark != Some(b">>>>>>>") => parts[part].extend_from_slice(line),
                    _ => {}
                }
                parts[0].extend_from_slice(line);
                if mark == Some(b">>>>>>>") {
                    let [whole, ours, _, theirs] = conflict.take().unwrap();
                    kept.extend_from_slice(if ours == theirs { &ours } else { &whole });
                }
            }
        }
    }
    kept
}

#[derive(Debug, Clone)]
struct Texts {
    base: Vec<u8>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Texts {
    fn three(&self) -> [&[u8]; 3] {
        [&self.base, &self.ours, &self.theirs]
    }

    fn merge(&self) -> TextMerge {
        merge_text(&self.base, &self.ours, &self.theirs)
    }
}

fn text(lines: &[u8], line_end: &str, is_ended: bool) -> Vec<u8> {
    let mut text: Vec<u8> = lines
        .iter()
        .flat_map(|line| format!("line {line}{line_end}").into_bytes())
        .collect();
    if !is_ended {
        text.truncate(text.len().saturating_sub(line_end.len()));
    }
    text
}

/// Edits of a list of lines: take so many out at a place, put others in.
fn any_side(distinct: u8) -> impl Strategy<Value = Vec<(prop::sample::Index, usize, Vec<u8>)>> {
    let lines = prop::collection::vec(0..distinct, 0..4);
    prop::collection::vec((any::<prop::sample::Index>(), 0_usize..4, lines), 0..4)
}

fn any_texts() -> impl Strategy<Value = Texts> {
    (2_u8..40).prop_flat_map(|distinct| {
        let base = prop::collection::vec(0..distinct, 0..30);
        let ends = prop::collection::vec((prop::bool::weighted(0.2), prop::bool::weighted(0.9)), 3);
        (
            base,
            any_side(distinct),
            any_side(distinct),
            ends,
            any::<bool>(),
        )
            .prop_map(|(base, ours, theirs, ends, all_crlf)| {
                let edited = |edits: Vec<(prop::sample::Index, usize, Vec<u8>)>| {
                    let mut lines = base.clone();
                    for (at, removed, added) in edits {
                        let at = at.index(lines.len() + 1);
                        let end = (at + removed).min(lines.len());
                        lines.splice(at..end, added);
                    }
                    lines
                };
                let all_crlf = all_crlf && ends[0].0;
                let written = |lines: &[u8], side: usize| {
                    let is_crlf = all_crlf || (ends[side].0 && ends[1].0 && ends[2].0);
                    text(lines, if is_crlf { "\r\n" } else { "\n" }, ends[side].1)
                };
                Texts {
                    ours: written(&edited(ours), 1),
                    theirs: written(&edited(theirs), 2),
                    base: written(&base, 0),
                }
            })
    })
}

/// The hunks between two texts as git finds them.
fn git_differences(git: &GitMergeFile, before: &[u8], after: &[u8]) -> Vec<Difference> {
    for (name, content) in [("before", before), ("after", after)] {
        fs::write(git.dir.path().join(name), content).unwrap();
    }
    let mut command = program::command(git.dir.path());
    command
        .args([
            "diff",
            "--no-index",
            "-U0",
            "--no-indent-heuristic",
            "--no-ext-diff",
            "--text",
        ])
        .args(["--diff-algorithm=histogram", "before", "after"]);
    let finished = program::finish(&mut command, b"").unwrap();
    let printed = String::from_utf8(finished.stdout).unwrap();
    // `@@ -start[,count] +start[,count] @@`; an empty range names the line before it.
    let range = |text: &str| {
        let (start, count) = text[1..].split_once(',').unwrap_or((&text[1..], "1"));
        let (start, count): (usize, usize) = (start.parse().unwrap(), count.parse().unwrap());
        let start = if count == 0 { start } else { start - 1 };
        start..start + count
    };
    let headers = printed.lines().filter(|line| line.starts_with("@@ "));
    headers
        .map(|line| {
            let mut words = line.split(' ').skip(1);
            Difference {
                before: range(words.next().unwrap()),
                after: range(words.next().unwrap()),
            }
        })
        .collect()
}

/// Whether git and the library see the same differences between these texts, wherever merging
/// looks.
fn is_seen_alike(git: &GitMergeFile, texts: &Texts, merge: &TextMerge) -> bool {
    let tokens = [&merge.base, &merge.ours, &merge.theirs]
        .into_iter()
        .flat_map(|lines| &lines.tokens);
    let count = tokens.map(|token| token.0 + 1).max().unwrap_or(0);
    let own = |before: &Lines, after: &Lines| differences(&before.tokens, &after.tokens, count);
    own(&merge.base, &merge.ours) == git_differences(git, &texts.base, &texts.ours)
        && own(&merge.base, &merge.theirs) == git_differences(git, &texts.base, &texts.theirs)
        && merge.regions.iter().all(|region| {
            let Outcome::Conflict(found) = &region.outcome else {
                return true;
            };
            let (ours, theirs) = (
                merge.ours.bytes(&region.ours),
                merge.theirs.bytes(&region.theirs),
            );
            let shifted = git_differences(git, ours, theirs)
                .into_iter()
                .map(|difference| Difference {
                    before: difference.before.start + region.ours.start
                        ..difference.before.end + region.ours.start,
                    after: difference.after.start + region.theirs.start
                        ..difference.after.end + region.theirs.start,
                });
            shifted.eq(found.iter().cloned())
        })
}

/// Merges with git, in every style and with every favour, and says what differs.
fn differences_from_git(git: &GitMergeFile, texts: &Texts) -> Vec<String> {
    const LABELS: [&str; 6] = ["-L", "ours", "-L", "base", "-L", "theirs"];
    let merge = texts.merge();
    let mut wrong = Vec::new();
    let mut compare = |what: &str, own: Vec<u8>, by_git: Vec<u8>| {
        if own != by_git {
            let [own, by_git] =
                [own, by_git].map(|text| String::from_utf8_lossy(&text).into_owned());
            wrong.push(format!("{what}: {own:?}, by git: {by_git:?}"));
        }
    };
    let (marked, is_clean) = git.run(texts.three(), &LABELS);
    compare("merge", merge.render(&options(Style::Merge)), marked);
    for (style, argument) in [(Style::Diff3, "--diff3"), (Style::Zdiff3, "--zdiff3")] {
        let (marked, _) = git.run(texts.three(), &[&LABELS[..], &[argument]].concat());
        compare(
            argument,
            merge.render(&options(style)),
            without_equal_sides(&marked),
        );
    }
    for (favor, argument) in [
        (Favor::Ours, "--ours"),
        (Favor::Theirs, "--theirs"),
        (Favor::Union, "--union"),
    ] {
        compare(
            argument,
            merge.settle(favor),
            git.run(texts.three(), &[argument]).0,
        );
    }
    if is_clean != merge.is_clean() {
        wrong.push(format!("git: clean is {is_clean}"));
    }
    wrong
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        // Each takes several calls of git.
        cases: ProptestConfig::default().cases.div_ceil(4),
        ..ProptestConfig::default()
    })]

    /// The one class that differs: lines that occur several times can be matched in several ways,
    /// and the histogram diff of the library is not git's there. It is asserted to be that and
    /// nothing else.
    #[test]
    fn any_texts_merge_as_git_merges_them(texts in any_texts()) {
        let git = GitMergeFile::new();
        let wrong = differences_from_git(&git, &texts);
        if !wrong.is_empty() {
            prop_assert!(!is_seen_alike(&git, &texts, &texts.merge()), "{}", wrong.join("\n"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariant_10_a_text_that_one_side_changed_comes_unchanged(texts in any_texts()) {
        let (base, side) = (&texts.base, &texts.ours);
        for merge in [merge_text(base, base, side), merge_text(base, side, base), merge_text(base, side, side)] {
            prop_assert!(merge.is_clean());
            prop_assert_eq!(&merge.render(&MarkerOptions::default()), side);
        }
    }

    #[test]
    fn invariant_10_swapped_sides_mirror_the_conflicts_of_texts(texts in any_texts()) {
        let merge = texts.merge();
        let swapped = merge_text(&texts.base, &texts.theirs, &texts.ours);
        prop_assert_eq!(merge.is_clean(), swapped.is_clean());
        let mirrored: Vec<TextHunk> = swapped
            .hunks()
            .into_iter()
            .map(|hunk| TextHunk {
                ours: hunk.theirs,
                theirs: hunk.ours,
                ours_lines: hunk.theirs_lines,
                theirs_lines: hunk.ours_lines,
                ..hunk
            })
            .collect();
        prop_assert_eq!(merge.hunks(), mirrored);
        prop_assert_eq!(merge.settle(Favor::Ours), swapped.settle(Favor::Theirs));
        if merge.is_clean() {
            prop_assert_eq!(merge.settle(Favor::Union), swapped.settle(Favor::Union));
        }
    }
}

#[test]
fn the_class_that_differs_from_git_is_rare() {
    use proptest::strategy::ValueTree;
    let git = GitMergeFile::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut differing = 0;
    for _ in 0..120 {
        let texts = any_texts().new_tree(&mut runner).unwrap().current();
        differing += usize::from(!differences_from_git(&git, &texts).is_empty());
    }
    assert!(differing <= 6, "{differing} of 120 differ");
}

fn marked(base: &str, ours: &str, theirs: &str) -> String {
    let merge = merge_text(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    String::from_utf8(merge.render(&options(Style::Merge))).unwrap()
}

#[test]
fn changes_that_touch_conflict_and_others_do_not() {
    assert_eq!(marked("1\n2\n3\n", "0\n2\n3\n", "1\n2\n4\n"), "0\n2\n4\n");
    assert_eq!(
        marked("1\n2\n", "0\n2\n", "1\n4\n"),
        "<<<<<<< ours\n0\n2\n=======\n1\n4\n>>>>>>> theirs\n"
    );
    assert_eq!(marked("1\n2\n", "1\n3\n2\n", "1\n3\n2\n"), "1\n3\n2\n");
}

#[test]
fn a_last_line_without_an_end_and_carriage_returns_stay_readable() {
    assert_eq!(
        marked("1", "2", "3"),
        "<<<<<<< ours\n2\n=======\n3\n>>>>>>> theirs\n"
    );
    assert_eq!(
        marked("1\r\n2\r\n", "1\r\n3\r\n", "1\r\n4\r\n"),
        "1\r\n<<<<<<< ours\r\n3\r\n=======\r\n4\r\n>>>>>>> theirs\r\n"
    );
}

#[test]
fn a_hunk_says_where_it_is() {
    let merge = merge_text(b"1\n2\n3\n", b"0\n1\nours\n3\n", b"1\ntheirs\ntoo\n3\n");
    let [hunk] = merge.hunks().try_into().unwrap();
    assert_eq!(
        hunk,
        TextHunk {
            base: b"2\n",
            ours: b"ours\n",
            theirs: b"theirs\ntoo\n",
            base_lines: 2..3,
            ours_lines: 3..4,
            theirs_lines: 2..4,
        }
    );
    assert_eq!(merge.settle(Favor::Union), b"0\n1\nours\ntheirs\ntoo\n3\n");
}

#[test]
fn markers_are_as_long_as_asked_for_and_need_no_labels() {
    let merge = merge_text(b"1\n", b"2\n", b"3\n");
    let rendered = merge.render(&MarkerOptions {
        style: Style::Diff3,
        size: 3,
        ..MarkerOptions::default()
    });
    assert_eq!(rendered, b"<<<\n2\n|||\n1\n===\n3\n>>>\n");
    let git = GitMergeFile::new();
    let sized = MarkerOptions {
        size: 12,
        ..options(Style::Merge)
    };
    let arguments = [
        "-L",
        "ours",
        "-L",
        "base",
        "-L",
        "theirs",
        "--marker-size=12",
    ];
    assert_eq!(
        merge.render(&sized),
        git.run([b"1\n", b"2\n", b"3\n"], &arguments).0
    );
}

#[test]
fn what_is_no_text_is_seen_by_its_first_bytes() {
    assert!(is_binary(b"a\0b"));
    assert!(!is_binary(b""));
    let mut late = vec![b'a'; 8000];
    late.push(0);
    assert!(!is_binary(&late));
}

#[test]
fn large_texts_are_merged_in_good_time() {
    let line = |n: usize| format!("line {n}\n");
    let base: String = (0..200_000).map(line).collect();
    let ours = base.replace("line 77777\n", "ours\n");
    let theirs = base.replace("line 177777\n", "");
    let started = std::time::Instant::now();
    let merge = merge_text(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    assert!(merge.is_clean());
    assert!(started.elapsed().as_secs() < 20);
}
