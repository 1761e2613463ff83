//! Resolvers: commands that are asked about conflicts, and about whole merges. Whatever they do, a
//! conflict is resolved as they said or open.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::merging::{
    conflicting, content_at, each, everything, merge_refused, parents, repo_with_list, told,
};
use crate::reviews::many_conflicts;
use crate::support::{OutputExt, TestRepo, Tine, path_text, require_fuse, require_program};

/// Writes the resolver `script`, in Python, with the question as `ask`; the command that runs it.
/// Each question is appended to `<home>/asked`.
pub fn resolver(repo: &TestRepo, script: &str) -> String {
    let path = repo.home().join("resolver");
    let asked = repo.home().join("asked");
    let text = format!(
        "#!/usr/bin/env python3\n\
         import json, os, sys, time\n\
         line = sys.stdin.read()\n\
         ask = json.loads(line)\n\
         open('{}', 'a').write(line + '\\n')\n\
         def answer(**fields): print(json.dumps(fields))\n\
         {script}\n",
        asked.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path_text(&path).to_owned()
}

/// The questions so far.
fn questions(repo: &TestRepo) -> Vec<Value> {
    let asked = fs::read_to_string(repo.home().join("asked")).unwrap_or_default();
    asked
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What is open in a review.
fn open_in(tine: &Tine, review: &str) -> Vec<String> {
    let shown = tine.json(&["review", "show", review]);
    let conflicts = shown["conflicts"].as_array().unwrap().iter();
    conflicts
        .filter(|conflict| conflict["resolution"].is_null())
        .map(|conflict| conflict["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_resolver_is_told_all_of_a_conflict_and_its_answers_are_merged() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    many_conflicts(&repo, &tine);
    tine.ok(&["commit", "work", "-m", "What the work is", "--json"]);
    let main = repo.head();
    let command = resolver(
        &repo,
        "answer(**{\n\
         'list.txt': {'content': 'merged\\n', 'reasoning': 'both\\nare needed', 'metadata': {'cost': 1}},\n\
         'new.txt': {'resolution': 'theirs'},\n\
         'docs/guide.md': {'resolution': 'delete', 'reasoning': 'gone'},\n\
         'data/large.bin': {'content_base64': 'AP8=', 'executable': True}}[ask['path']])",
    );
    let merged = told(
        &tine,
        0,
        &["merge", "work", "--resolver", &command, "--auto-commit"],
    );
    assert_eq!(merged["status"], "merged");
    assert_eq!(
        parents(&repo, "main"),
        [main.clone(), repo.git(&["rev-parse", "tine/work"])]
    );
    assert_eq!(content_at(&repo, "main", "list.txt"), "merged");
    assert_eq!(content_at(&repo, "main", "new.txt"), "theirs");
    assert_eq!(
        repo.git(&[
            "ls-tree",
            "--format=%(objectmode) %(objectsize) %(path)",
            "main",
            "data/",
            "docs/guide.md"
        ]),
        "100755 2 data/large.bin"
    );
    assert_eq!(repo.status(repo.dir()), "");
    let trailers = repo.git(&["show", "-s", "--format=%(trailers:unfold)", "main"]);
    for line in [
        &format!("Resolved: list.txt by {command}"),
        "Resolution-reasoning: list.txt: both are needed",
        "Resolution-metadata: list.txt: {\"cost\":1}",
        "Resolution-reasoning: docs/guide.md: gone",
    ] {
        assert!(
            trailers.lines().any(|trailer| trailer == line),
            "{line} in {trailers}"
        );
    }

    let asked = questions(&repo);
    let paths: Vec<&str> = asked
        .iter()
        .map(|question| question["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        ["data/large.bin", "docs/guide.md", "list.txt", "new.txt"]
    );
    let question = &asked[2];
    assert_eq!(
        (&question["ask"], &question["kind"]),
        (&json!("resolve"), &json!("both_modified"))
    );
    for (side, line) in [("base", "2\n"), ("ours", "zwei\n"), ("theirs", "two\n")] {
        assert!(
            question[side][0]["content"]["text"]
                .as_str()
                .unwrap()
                .contains(line)
        );
        assert_eq!(question["hunks"][0][side], json!({"text": line}));
    }
    assert_eq!(question["hunks"][0]["ours_line"], 2);
    assert_eq!(
        each(&question["theirs_commits"], "message"),
        ["What the work is\n"]
    );
    assert_eq!(
        each(&question["ours_commits"], "message"),
        ["more\n", "main says acht\n"]
    );
    assert_eq!(question["ours_commits"][0]["id"], json!(main));
    assert_eq!(
        question["ours_commits"][0]["author"],
        "Ada Author <ada@example.org>"
    );
    assert!(
        question["other_paths"]
            .as_array()
            .unwrap()
            .contains(&json!("work.txt"))
    );
    assert_eq!(asked[0]["ours"][0]["content"], json!({"text": "\0ours"}));
    assert_eq!(asked[1]["ours"], json!([]));
}

#[test]
fn whatever_goes_wrong_with_a_resolver_leaves_the_conflict_open() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    many_conflicts(&repo, &tine);
    let before = everything(&repo, &tine);
    for (number, (script, said)) in [
        ("os.kill(os.getpid(), 9)", "Killed"),
        (
            "print('{\"content\": \"half'); sys.exit(0)",
            "not understood",
        ),
        ("answer(content='all of it'); sys.exit(1)", "exit code 1"),
        (
            "answer(content='all of it'); sys.stdout.flush(); time.sleep(60)",
            "did not answer within 3 s",
        ),
        ("pass", "not understood"),
        ("answer(resolution='guess')", "not understood"),
        ("answer(content='a', content_base64='YQ==')", "two contents"),
        ("answer(content_base64='%')", "not understood"),
        ("answer(resolution='content')", "no content"),
        (
            "sys.stderr.write('out of luck'); sys.exit(7)",
            "out of luck",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        // One is answered rightly.
        let command = resolver(
            &repo,
            &format!(
                "if ask['path'] == 'new.txt': answer(resolution='ours'); sys.exit(0)\n{script}"
            ),
        );
        // Python starts slowly on a busy machine.
        let timeout = match said.starts_with("did not answer") {
            true => "3",
            false => "60",
        };
        let args = [
            "merge",
            "work",
            "--resolver",
            &command,
            "--auto-commit",
            "--resolver-timeout",
            timeout,
        ];
        let output = tine.run(&args);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{script}: {}",
            output.error_text()
        );
        let told = output.error_text();
        assert!(
            told.contains("list.txt stays open") && told.contains(said),
            "{script}: {told}"
        );
        let review = (number + 1).to_string();
        assert_eq!(
            open_in(&tine, &review),
            ["data/large.bin", "docs/guide.md", "list.txt"],
            "{script}"
        );
        merge_refused(
            &repo,
            &tine,
            &["review", "commit", &review],
            "review-state",
            3,
        );
        tine.ok(&["review", "abort", &review]);
        tine.ok(&["recover", "purge", "--all"]);
        assert_eq!(everything(&repo, &tine), before, "{script}");
    }
    // One that is not there, and one that reads nothing and answers.
    let output = tine.run(&["merge", "work", "--resolver", "/nonexistent/resolver"]);
    assert_eq!(output.status.code(), Some(3), "{}", output.error_text());
    let output = tine.run(&[
        "merge",
        "work",
        "--resolver",
        "echo '{\"resolution\":\"ours\"}' <&-",
        "--auto-commit",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", output.error_text());
}

#[test]
fn what_a_resolver_skips_a_person_resolves() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    many_conflicts(&repo, &tine);
    let command = resolver(
        &repo,
        "answer(resolution='skip' if ask['path'] == 'list.txt' else 'ours', reasoning='no idea')",
    );
    let shown = told(
        &tine,
        3,
        &["merge", "work", "--resolver", &command, "--auto-commit"],
    );
    assert_eq!(shown["review"], 1);
    assert_eq!(open_in(&tine, "1"), ["list.txt"]);
    tine.ok(&["resolve", "1", "list.txt", "--theirs"]);
    tine.ok(&["review", "commit", "1"]);
    assert_eq!(content_at(&repo, "main", "new.txt"), "ours");
    // Without --auto-commit a person looks at it in any case; without conflicts nobody is asked.
    let asked = questions(&repo).len();
    repo.git(&["branch", "before", "main^1"]);
    let shown = told(
        &tine,
        3,
        &[
            "merge",
            "work",
            "--into",
            "before",
            "--resolver",
            &resolver(&repo, "answer(resolution='theirs')"),
        ],
    );
    assert_eq!(
        (&shown["review"], &shown["status"]),
        (&json!(2), &json!("conflicts"))
    );
    assert_eq!(open_in(&tine, "2"), [""; 0]);
    assert_eq!(
        repo.git(&["rev-parse", "before"]),
        repo.git(&["rev-parse", "main^1"])
    );
    tine.ok(&["review", "commit", "2"]);
    assert_eq!(questions(&repo).len(), asked + 4);
    repo.git(&["branch", "clean", "main^1~2"]);
    told(
        &tine,
        0,
        &["merge", "work", "--into", "clean", "--resolver", &command],
    );
    assert_eq!(questions(&repo).len(), asked + 4);
}

/// Resolves for the source, and judges as `verdict` says.
fn judge(repo: &TestRepo, verdict: &str) -> String {
    resolver(
        repo,
        &format!("answer(resolution='theirs') if ask['ask'] == 'resolve' else answer({verdict})"),
    )
}

#[test]
fn a_resolver_accepts_vetoes_or_amends_the_whole() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let before = everything(&repo, &tine);
    let merge = |verdict: &str, exit: i32, into: &str| {
        let command = judge(&repo, verdict);
        told(
            &tine,
            exit,
            &[
                "merge",
                "work",
                "--into",
                into,
                "--resolver",
                &command,
                "--semantic",
                "--auto-commit",
            ],
        )
    };
    // A veto, and what is no verdict.
    for (verdict, review) in [
        ("verdict='veto', reasoning='the limit is wrong'", "1"),
        (
            "verdict='accept', changes=[{'path': 'x', 'content': 'x'}]",
            "2",
        ),
        ("verdict='amend'", "3"),
        (
            "verdict='amend', changes=[{'path': '../x', 'content': 'x'}]",
            "4",
        ),
    ] {
        let command = judge(&repo, verdict);
        let args = [
            "merge",
            "work",
            "--resolver",
            &command,
            "--semantic",
            "--auto-commit",
        ];
        let output = tine.run(&args);
        let expected = if review == "4" { Some(2) } else { Some(3) };
        assert_eq!(
            output.status.code(),
            expected,
            "{verdict}: {}{}",
            output.text(),
            output.error_text()
        );
        if review == "1" {
            assert!(
                output.error_text().contains("the limit is wrong"),
                "{}",
                output.error_text()
            );
            assert_eq!(
                tine.json(&["review", "show", review])["verdict"]["kind"],
                "veto"
            );
        }
        assert_eq!(open_in(&tine, review), [""; 0]);
        tine.ok(&["review", "abort", review]);
        tine.ok(&["recover", "purge", "--all"]);
        assert_eq!(everything(&repo, &tine), before, "{verdict}");
    }
    for into in ["accepted", "amended"] {
        repo.git(&["branch", into]);
    }
    merge("verdict='accept', reasoning='fine'", 0, "accepted");
    assert_eq!(
        content_at(&repo, "accepted", "list.txt"),
        "1\ntwo\n3\n4\n5\n6\n7\nacht\n9",
        "what the source has where both conflict"
    );
    let trailers = repo.git(&["show", "-s", "--format=%(trailers:unfold)", "accepted"]);
    assert!(
        trailers.contains("Reviewed: accepted by ") && trailers.contains("Review-reasoning: fine"),
        "{trailers}"
    );
    let asked = questions(&repo).pop().unwrap();
    assert_eq!(
        (&asked["ask"], &asked["target"]),
        (&json!("judge"), &json!("branch:accepted"))
    );
    assert!(
        asked["patch"]["text"].as_str().unwrap().contains("+work"),
        "{asked}"
    );
    assert_eq!(asked["changed_paths"], json!(["list.txt", "work.txt"]));
    assert_eq!(asked["resolutions"][0]["how"], "theirs");

    merge(
        "verdict='amend', changes=[{'path': 'main.txt', 'content': 'amended\\n'}, {'path': 'made/new', 'content_base64': 'AP8='}, {'path': 'work.txt', 'delete': True}]",
        0,
        "amended",
    );
    assert_eq!(content_at(&repo, "amended", "main.txt"), "amended");
    assert_eq!(repo.git(&["cat-file", "-s", "amended:made/new"]), "2");
    assert_eq!(repo.git(&["ls-tree", "amended", "work.txt"]), "");
    assert_eq!(parents(&repo, "amended").len(), 2);
}

#[test]
fn a_merge_without_conflicts_is_looked_at_as_a_whole_when_that_is_asked_for() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("work");
    repo.sh_in(&dir, "echo work > work.txt");
    let before = everything(&repo, &tine);
    let command = judge(&repo, "verdict='veto', reasoning='no'");
    let args = [
        "merge",
        "work",
        "--resolver",
        &command,
        "--semantic",
        "--auto-commit",
    ];
    told(&tine, 3, &args);
    tine.ok(&["review", "abort", "1"]);
    assert_eq!(everything(&repo, &tine), before);
    judge(&repo, "verdict='accept'");
    told(&tine, 0, &args);
    assert_eq!(parents(&repo, "main").len(), 2);
    assert_eq!(content_at(&repo, "main", "work.txt"), "work");
    assert!(
        questions(&repo)
            .iter()
            .all(|question| question["ask"] == "judge")
    );
}

/// The command of a resolver that is shipped.
fn shipped(name: &str) -> String {
    format!("{}/scripts/resolvers/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_command_line_model_resolves_and_judges() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    conflicting(&repo, &tine);
    let model = repo.home().join("model");
    fs::write(
        &model,
        "#!/bin/sh\n\
         prompt=$(cat)\n\
         case \"$prompt\" in\n\
         *'still work together'*) echo OK, they do ;;\n\
         *zwei*) printf 'Two, in both languages.\\n```\\n1\\ntwo zwei\\n3\\n```\\n' ;;\n\
         esac\n",
    )
    .unwrap();
    fs::set_permissions(&model, fs::Permissions::from_mode(0o755)).unwrap();
    let command = format!("{} {}", shipped("model"), path_text(&model));
    told(
        &tine,
        0,
        &[
            "merge",
            "work",
            "--resolver",
            &command,
            "--semantic",
            "--auto-commit",
        ],
    );
    assert_eq!(content_at(&repo, "main", "list.txt"), "1\ntwo zwei\n3");
    let message = repo.git(&["show", "-s", "--format=%B", "main"]);
    assert!(
        message.contains("Resolution-reasoning: list.txt: Two, in both languages."),
        "{message}"
    );
    assert!(
        message.contains("Review-reasoning: OK, they do"),
        "{message}"
    );
}

#[test]
fn a_merge_tool_of_gits_resolves() {
    require_fuse!();
    require_program!("python3");
    let repo = repo_with_list();
    let tine = Tine::new(&repo);
    many_conflicts(&repo, &tine);
    // It takes ours of a text, and gives up on another.
    let tool = "test \"$MERGED\" = list.txt && cp \"$LOCAL\" \"$MERGED\"";
    let config = repo.home().join("tools");
    for (key, value) in [("cmd", tool), ("trustExitCode", "true")] {
        let key = format!("mergetool.mine.{key}");
        repo.git(&["config", "--file", path_text(&config), &key, value]);
    }
    let command = format!(
        "GIT_CONFIG_GLOBAL={} {} mine",
        config.display(),
        shipped("mergetool")
    );
    let output = tine.run(&["merge", "work", "--resolver", &command]);
    assert_eq!(output.status.code(), Some(3), "{}", output.error_text());
    assert_eq!(
        open_in(&tine, "1"),
        ["data/large.bin", "docs/guide.md", "new.txt"]
    );
    let shown = tine.json(&["review", "show", "1"]);
    let resolution = &shown["conflicts"][2]["resolution"];
    assert_eq!(
        resolution["contents"][0]["text"],
        "1\nzwei\n3\n4\n5\n6\n7\nacht\n9\n"
    );
    assert_eq!(resolution["metadata"], json!({"tool": "mine"}));
}
