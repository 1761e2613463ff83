//! What the mounts do, seen: `tine stats`, `tine top`, `tine tree` as a picture, and the health
//! that `tine doctor` tells of.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::machines::{documented_of, keys};
use crate::support::{OutputExt, TestRepo, Tine, require_fuse};
use crate::{failure_of, refused};

#[test]
fn stats_tell_what_was_asked_and_written_and_how_long_it_took() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let none = tine.json(&["stats"]);
    assert_eq!(
        (&none["running"], &none["mounted"]),
        (&false.into(), &serde_json::json!([]))
    );
    assert_eq!(
        tine.ok(&["stats", "--prometheus"]).lines().last(),
        Some("tine_up 0")
    );
    assert_eq!(tine.daemon_pid(), None, "looking starts no daemon");

    let dir = tine.new_fork("demo");
    for number in 0..7 {
        fs::write(dir.join(format!("file-{number}")), vec![1; 1000]).unwrap();
    }
    let stats = tine.json(&["stats", "demo"]);
    assert_eq!(keys(&stats), documented_of("stats"));
    let fork = &stats["mounted"][0];
    assert_eq!(fork["fork"], "demo");
    assert_eq!(fork["written_bytes"], 7000, "{fork}");
    for (kind, count) in [("write", 7), ("mknod", 7)] {
        let operation = &fork["operations"][kind];
        assert_eq!(operation["count"], count, "{fork}");
        let classes = operation["latency"].as_array().unwrap();
        let timed: u64 = classes.iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(timed, count as u64, "each is in one class: {fork}");
        assert!(operation["mean_us"].as_f64().unwrap() > 0.0, "{fork}");
    }
    assert_eq!(fork["files"], serde_json::json!([]), "nobody watched");

    let said = tine.ok(&["stats"]);
    assert!(said.contains("6.8 KiB written"), "{said}");
    let row = said
        .lines()
        .find(|line| line.trim_start().starts_with("write "));
    assert!(
        row.is_some_and(|row| row.split_whitespace().nth(1) == Some("7")),
        "{said}"
    );
    let metrics = tine.ok(&["stats", "--prometheus"]);
    for line in [
        "tine_up 1",
        "tine_mounts 1",
        "tine_written_bytes_total{fork=\"demo\"} 7000",
        "tine_operations_total{fork=\"demo\",kind=\"write\"} 7",
        "tine_operation_seconds_count{fork=\"demo\",kind=\"write\"} 7",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} in\n{metrics}"
        );
    }
}

#[test]
fn what_is_not_mounted_has_no_stats_and_formats_exclude_each_other() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    refused(&repo, &tine, &["stats", "demo"], "not-mounted", 5);
    tine.new_fork("demo");
    refused(&repo, &tine, &["stats", "other"], "no-such-fork", 4);
    tine.ok(&["unmount", "demo", "--keep"]);
    for verb in ["stats", "top"] {
        let failure = refused(&repo, &tine, &[verb, "demo"], "not-mounted", 5);
        assert!(
            failure["hint"]
                .as_str()
                .unwrap()
                .contains("tine mount demo"),
            "{failure}"
        );
    }
    for args in [
        &["stats", "--prometheus", "--json"][..],
        &["tree", "--svg", "--json"],
    ] {
        let output = tine.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(failure_of(&output, &format!("{args:?}"))["code"], "usage");
    }
    let failure = refused(&repo, &tine, &["stats", "--serve", "0.0.0.0:0"], "usage", 2);
    assert!(
        failure["hint"].as_str().unwrap().contains("127.0.0.1"),
        "{failure}"
    );
}

/// A command that serves until it is killed.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Status line and body of the answer.
fn http(address: &str, request: &str) -> (String, String) {
    http_of(address, address, request)
}

/// As [`http`], of what calls the machine `host`.
fn http_of(address: &str, host: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn metrics_are_served_to_this_machine_and_follow_the_daemon() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let child = tine
        .command(&["stats", "--serve", "127.0.0.1:0", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut serving = Serving(child);
    let mut line = String::new();
    BufReader::new(serving.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url: Value = serde_json::from_str(&line).unwrap();
    let address = url["url"]
        .as_str()
        .unwrap()
        .strip_prefix("http://")
        .unwrap();
    let address = address.strip_suffix("/metrics").unwrap();

    fs::write(dir.join("file"), "12345").unwrap();
    let (head, body) = http(address, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(
        head.to_lowercase().contains("text/plain; version=0.0.4"),
        "{head}"
    );
    let written = "tine_written_bytes_total{fork=\"demo\"} 5\n";
    assert!(body.contains(written), "{body}");
    assert!(http(address, "GET /other").0.starts_with("HTTP/1.1 404"));
    assert!(http(address, "POST /metrics").0.starts_with("HTTP/1.1 405"));
    // One that says nothing keeps nobody waiting, and a page of elsewhere reads nothing.
    let _silent = TcpStream::connect(address).unwrap();
    let (head, body) = http_of(address, "evil.example:80", "GET /metrics");
    assert!(
        head.starts_with("HTTP/1.1 403") && !body.contains("demo"),
        "{head}"
    );
    assert!(
        http_of(address, "localhost:80", "GET /metrics")
            .1
            .contains(written)
    );

    tine.ok(&["daemon", "stop"]);
    assert_eq!(
        http(address, "GET /metrics").1.lines().last(),
        Some("tine_up 0")
    );
    assert!(tine.daemons().is_empty(), "being scraped starts no daemon");
}

#[test]
fn top_tells_which_files_are_busy_once_somebody_watches() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    fs::create_dir(dir.join("deep")).unwrap();
    fs::write(dir.join("before.txt"), "nobody watches").unwrap();
    let top = tine.json(&["top", "--once", "--interval", "0.1"]);
    assert_eq!(keys(&top), documented_of("top"));
    assert_eq!(top["mounted"][0]["files"], serde_json::json!([]));

    for _ in 0..5 {
        fs::write(dir.join("deep/busy.txt"), vec![1; 1000]).unwrap();
    }
    fs::write(dir.join("once.txt"), "1").unwrap();
    let stats = tine.json(&["stats", "demo"]);
    let files: Vec<(&str, u64, u64)> = stats["mounted"][0]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            let number = |key: &str| file[key].as_u64().unwrap();
            (
                file["path"].as_str().unwrap(),
                number("writes"),
                number("written_bytes"),
            )
        })
        .collect();
    assert_eq!(files, [("deep/busy.txt", 5, 5000), ("once.txt", 1, 1)]);

    let said = tine.ok(&["top", "--interval", "0.1", "--sort", "written"]);
    assert!(said.contains("deep/busy.txt"), "{said}");
    assert!(said.contains("> demo"), "{said}");
    let output = tine.run(&["top", "--interval", "0"]);
    assert_eq!(output.status.code(), Some(2), "{}", output.error_text());
}

#[test]
fn the_tree_is_drawn_as_a_picture_and_no_message_breaks_it() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("parent");
    tine.ok(&["snapshot", "parent", "point", "-m", "<b> \"&\" 'x'"]);
    tine.ok(&["new", "child", "--from-fork", "parent@point"]);
    tine.ok(&["unmount", "child", "--keep"]);

    let svg = tine.ok(&["tree", "--svg"]);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"), "{svg}");
    for text in [
        ">parent</text>",
        ">@point</text>",
        ">child</text>",
        "&lt;b&gt; &quot;&amp;&quot; &#39;x&#39;",
    ] {
        assert!(svg.contains(text), "{text} in\n{svg}");
    }
    assert!(
        svg.contains("stroke-dasharray"),
        "what is not mounted looks otherwise"
    );
    let dot = tine.ok(&["tree", "--dot"]);
    for line in [
        "  n0 [label=\"parent\\n[tine/parent]\"];",
        "  n1 [label=\"@point\\n<b> \\\"&\\\" 'x'\", shape=ellipse, style=\"\"];",
        "  n1 -> n2;",
        "  n0 -> n1;",
    ] {
        assert!(dot.lines().any(|found| found == line), "{line} in\n{dot}");
    }
}

#[test]
fn doctor_tells_of_what_the_store_lacks() {
    require_fuse!();
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let health = || {
        let report = tine.json(&["doctor"]);
        let checks = report["checks"].as_array().unwrap().clone();
        checks
            .into_iter()
            .find(|check| check["name"] == "health")
            .unwrap()
    };
    assert_eq!(health()["verdict"], "ok");
    repo.git(&["update-ref", "-d", "refs/tine/demo/base"]);
    let found = health();
    assert_eq!(found["verdict"], "warn", "{found}");
    assert!(
        found["detail"]
            .as_str()
            .unwrap()
            .contains("refs/tine/demo/base"),
        "{found}"
    );
    assert!(
        found["hint"].as_str().unwrap().contains("tine check"),
        "{found}"
    );
    let report = tine.json(&["check", "--repair"]);
    assert_eq!(keys(&report), documented_of("check"));
    assert_eq!(health()["verdict"], "ok");
}
