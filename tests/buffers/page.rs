//! `docs/editors.md`: what it shows is what is said.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Agent, Editor};
use crate::support::{TestRepo, Tine};

/// The lines of the conversation on the page: who says it, and what.
fn conversation() -> Vec<(char, Value)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/editors.md");
    let page = fs::read_to_string(page).expect("docs/editors.md can be read");
    let (_, rest) = page
        .split_once("```text conversation\n")
        .expect("the page has a conversation");
    let (lines, _) = rest.split_once("```").expect("it ends");
    lines
        .lines()
        .map(|line| {
            let who = line.chars().next().expect("no line is empty");
            let said = serde_json::from_str(&line[2..])
                .unwrap_or_else(|error| panic!("{error} in {line}"));
            (who, said)
        })
        .collect()
}

/// With paths as they are here.
fn here(value: &Value, dir: &Path) -> Value {
    let text = value
        .to_string()
        .replace("/home/me/project", &dir.display().to_string());
    serde_json::from_str(&text).expect("it is still JSON")
}

#[test]
fn the_conversation_on_the_page_is_one_that_is_had() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mut editor = Editor::start(&tine);
    let mut heard = vec![json!({"event": "attached"})];
    let conversation = conversation();
    for (who, said) in &conversation {
        let said = here(said, repo.dir());
        match who {
            '>' => editor.lines.write(&said.to_string()),
            '<' => {
                // An answer and an event may overtake each other.
                while !heard.contains(&said) {
                    assert!(heard.len() < 2, "{said} is not said, but {heard:?}");
                    let line = editor.lines.output.recv_timeout(super::LIMIT);
                    let line = line.unwrap_or_else(|error| {
                        panic!("{error}: {said} is not said, but {heard:?}")
                    });
                    heard.push(serde_json::from_str(&line).expect("it is JSON"));
                }
                heard.retain(|heard| *heard != said);
            }
            // The agent's words are those of a tool.
            _ => {
                let text = said["text"].as_str().expect("a text");
                let mut agent = Agent::of(&repo, None);
                agent.read("notes.txt");
                agent.write("notes.txt", text);
            }
        }
    }
    assert_eq!(heard, Vec::<Value>::new(), "the page does not say all");
    for kind in [
        "open", "change", "applied", "save", "close", "merge", "show",
    ] {
        let says = |(who, said): &(char, Value)| *who == '>' && said["buffer"] == kind;
        assert!(conversation.iter().any(says), "the page shows no {kind}");
    }
}
