//! What a client is told before it calls anything, and what it can read without calling.

use rmcp::service::ServiceError;
use serde_json::{Value, json};

use super::agent::Agent;
use crate::support::{TestRepo, Tine, require_fuse};

/// No model or client has to follow a reference, or to know what `uint64` is.
fn assert_plain(schema: &Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            for key in ["$ref", "$defs", "format"] {
                assert!(!fields.contains_key(key), "{place} has {key}");
            }
            for (key, value) in fields {
                assert_plain(value, &format!("{place}/{key}"));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| assert_plain(item, place)),
        _ => {}
    }
}

#[test]
fn every_tool_explains_itself_and_its_arguments() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let agent = Agent::start(&tine, &[]);
    let server = agent.server();
    assert!(server.capabilities.tools.is_some() && server.capabilities.resources.is_some());
    let instructions = server.instructions.expect("a server tells how it is used");
    let tools = agent.tools();
    for tool in &tools {
        let name = &tool.name;
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.chars().all(is_plain), "{name}");
        let description = tool.description.as_deref().unwrap_or_default();
        assert!(description.len() > 30, "{name}: {description}");
        assert!(
            !description.lines().any(|line| line.ends_with(' ')),
            "{name}"
        );
        let hints = tool.annotations.as_ref().expect("hints");
        assert_eq!(hints.title, tool.title, "{name}");
        let told = [
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        ];
        assert!(told.iter().all(Option::is_some), "{name}");
        assert!(!(hints.read_only_hint == Some(true) && hints.destructive_hint == Some(true)));

        let arguments = Value::Object((*tool.input_schema).clone());
        assert_plain(&arguments, name);
        assert_eq!(arguments["type"], "object", "{name}");
        assert_eq!(arguments["additionalProperties"], false, "{name}");
        for (argument, schema) in arguments["properties"].as_object().expect("properties") {
            assert!(schema["description"].is_string(), "{name}: {argument}");
            assert!(
                schema["type"].is_string(),
                "{name}: {argument} has one type"
            );
        }
        let answer = Value::Object((**tool.output_schema.as_ref().expect("a schema")).clone());
        assert_plain(&answer, name);
        assert_eq!(answer["type"], "object", "{name}");
        assert_eq!(
            answer["properties"]["error"]["properties"]["code"]["type"],
            "string"
        );
    }
    let hinted = |is: fn(&rmcp::model::ToolAnnotations) -> Option<bool>| -> Vec<&str> {
        let mut names: Vec<&str> = tools
            .iter()
            .filter(|tool| tool.annotations.as_ref().and_then(is) == Some(true))
            .map(|tool| &*tool.name)
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(
        hinted(|hints| hints.read_only_hint),
        [
            "context",
            "diff",
            "list_directory",
            "list_forks",
            "list_snapshots",
            "log",
            "read_file",
            "search",
            "show_review",
            "status"
        ]
    );
    assert_eq!(hinted(|hints| hints.open_world_hint), ["run"]);
    for tool in hinted(|hints| hints.destructive_hint) {
        assert!(
            !tool.starts_with("list") && tool != "snapshot" && tool != "commit",
            "{tool}"
        );
    }
    // What the instructions speak of is there.
    for named in instructions.split('`').skip(1).step_by(2) {
        let is_tool = tools.iter().any(|tool| tool.name == named);
        assert!(
            is_tool || ["code", "hint", "src/main.rs"].contains(&named),
            "{named}"
        );
    }
}

#[test]
fn the_page_lists_every_tool_and_no_other() {
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let page = include_str!("../../docs/mcp.md");
    let (_, table) = page.split_once("## Tools").expect("a part on tools");
    let (table, _) = table.split_once("\n## ").expect("and others after it");
    let documented: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let tools = Agent::start(&tine, &[]).tools();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(documented, names);
}

#[test]
fn changesets_and_files_are_resources() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("elsewhere");
    let agent = Agent::start(&tine, &["--new", "mine"]);
    let mount = agent.ok("context", json!({}))["working_dir"]
        .as_str()
        .map(std::path::PathBuf::from);
    let mount = mount.expect("a path");
    std::fs::write(mount.join("a b#1.md"), "# One\n").unwrap();
    std::fs::write(mount.join("picture.png"), [0x89, b'P', 0xff]).unwrap();
    let listed = agent.resources();
    let uris: Vec<&str> = listed
        .iter()
        .map(|resource| resource.uri.as_str())
        .collect();
    assert_eq!(
        uris,
        [
            "tine://changeset",
            "tine://diff",
            "tine://file/a%20b%231.md",
            "tine://file/picture.png",
            "tine://changeset/elsewhere"
        ]
    );

    let text = agent.resource("tine://file/a%20b%231.md").unwrap();
    assert_eq!(text["text"], "# One\n");
    assert_eq!(text["mimeType"], "text/markdown");
    let picture = agent.resource("tine://file/picture.png").unwrap();
    assert_eq!(picture["blob"], "iVD/");
    assert_eq!(picture["mimeType"], "image/png");
    let changeset = agent.resource("tine://changeset").unwrap();
    let changeset: Value = serde_json::from_str(changeset["text"].as_str().unwrap()).unwrap();
    assert_eq!(changeset["changes"]["total"], 2);
    let other = agent.resource("tine://changeset/elsewhere").unwrap();
    let other: Value = serde_json::from_str(other["text"].as_str().unwrap()).unwrap();
    assert_eq!(other["changes"]["paths"], json!([]));
    let patch = agent.resource("tine://diff").unwrap();
    assert_eq!(patch["mimeType"], "text/x-diff");
    assert!(
        patch["text"].as_str().unwrap().contains("+# One"),
        "{patch}"
    );

    for (uri, code, error_code) in [
        ("tine://file/nowhere", -32002, "no-such-path"),
        ("tine://changeset/nobody", -32002, "no-such-fork"),
        ("tine://else", -32002, "no-such-path"),
        ("file:///etc/passwd", -32002, "no-such-path"),
        ("tine://file/../../etc/passwd", -32602, "path-refused"),
        ("tine://file//etc/passwd", -32602, "path-refused"),
        ("tine://file/%2e%2e/x", -32602, "path-refused"),
    ] {
        let Err(ServiceError::McpError(error)) = agent.resource(uri) else {
            panic!("{uri} was read");
        };
        let data = error.data.expect("a failure is told whole");
        assert_eq!(
            (error.code.0, &data["error"]["code"]),
            (code, &json!(error_code)),
            "{uri}"
        );
    }
}
