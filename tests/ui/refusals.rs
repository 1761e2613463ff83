//! What the server refuses: whoever does not know the key, another host's name, other pages, and
//! what cannot be understood.

use serde_json::json;

use crate::http::{Reply, Sent};
use crate::support::{Tine, require_fuse};
use crate::{Ui, repo};

/// That nothing is told, and what to do is.
#[track_caller]
fn assert_refused(reply: &Reply, status: u16, what: &str) {
    assert_eq!(reply.status, status, "{what}: {}", reply.text());
    let text = reply.text();
    assert!(
        text.contains("open the address that `tine ui` printed"),
        "{what}: {text}"
    );
    assert!(!text.contains("demo"), "{what}: {text}");
    assert_headers(reply, what);
}

/// What every reply says, refused or not.
#[track_caller]
fn assert_headers(reply: &Reply, what: &str) {
    let policy = reply.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{what}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{what}: {policy}");
    assert_eq!(reply.header("x-content-type-options"), "nosniff", "{what}");
    assert_eq!(reply.header("referrer-policy"), "no-referrer", "{what}");
    assert_eq!(reply.header("cache-control"), "no-store", "{what}");
    assert_eq!(reply.header("connection"), "close", "{what}");
    for (name, _) in &reply.headers {
        assert!(
            !name.starts_with("access-control-") && name != "set-cookie",
            "{what}: {name}"
        );
    }
}

#[test]
fn who_does_not_know_the_key_is_told_nothing() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let ui = Ui::start(&tine);
    let key = ui.root().to_owned();
    assert_eq!(key.len(), 64);
    let mut wrong: Vec<String> = ["/", "//", "/api/forks", "/favicon.ico", "/main.js"]
        .map(str::to_owned)
        .to_vec();
    wrong.extend([
        format!("/{}/api/forks", &key[1..]),
        format!("/{key}0/api/forks"),
        format!("/{}/api/forks", "0".repeat(64)),
        format!("/x/{key}/api/forks"),
        format!("/?key={key}"),
        format!("/{key}"),
    ]);
    for path in &wrong {
        assert_refused(&Sent::new(ui.port, "GET", path).reply(), 403, path);
    }
    let bearer =
        Sent::new(ui.port, "GET", "/api/forks").header("Authorization", &format!("Bearer {key}"));
    assert_refused(&bearer.reply(), 403, "the key elsewhere");
    let begin = Sent::new(ui.port, "POST", "/api/start")
        .header("Content-Type", "application/json")
        .body("{}".to_owned());
    assert_refused(&begin.reply(), 403, "POST");
    assert!(ui.ask("forks").to_string().contains("demo"));
    // Another one has another key.
    assert_ne!(Ui::start(&tine).root(), key);
}

#[test]
fn another_host_s_name_and_another_page_are_refused() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let ui = Ui::start(&tine);
    let path = format!("/{}/api/forks", ui.root());
    let other_port = format!("127.0.0.1:{}", ui.port ^ 1);
    let suffix = format!("127.0.0.1:{}.evil.example", ui.port);
    for host in ["evil.example", "127.0.0.1", "", &other_port, &suffix] {
        let sent = Sent::without_host(ui.port, "GET", &path).header("Host", host);
        assert_refused(&sent.reply(), 403, host);
    }
    assert_refused(
        &Sent::without_host(ui.port, "GET", &path).reply(),
        403,
        "no host",
    );
    let twice = Sent::new(ui.port, "GET", &path).header("Host", "evil.example");
    assert_refused(&twice.reply(), 403, "two hosts");
    let localhost =
        Sent::without_host(ui.port, "GET", &path).header("Host", &format!("LocalHost:{}", ui.port));
    assert_eq!(localhost.reply().status, 200);

    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", &format!("https://127.0.0.1:{}", ui.port)),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        assert_refused(
            &Sent::new(ui.port, "GET", &path).header(name, value).reply(),
            403,
            value,
        );
    }
    let own = Sent::new(ui.port, "GET", &path)
        .header("Origin", &format!("http://127.0.0.1:{}", ui.port))
        .header("Sec-Fetch-Site", "same-origin");
    assert_eq!(own.reply().status, 200);
    // A link in a chat may lead to the page itself.
    let page = format!("/{}/", ui.root());
    let link = Sent::new(ui.port, "GET", &page).header("Sec-Fetch-Site", "cross-site");
    assert_eq!(link.reply().status, 200);
}

#[test]
fn only_what_is_there_can_be_asked_and_only_in_its_manner() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let ui = Ui::start(&tine);
    for beneath in [
        "api/",
        "api/nothing",
        "api/forks/",
        "nothing.js",
        "../list.txt",
        "%2e%2e/list.txt",
        "api/../forks",
    ] {
        assert_refused(&ui.send("GET", beneath, None), 404, beneath);
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "BREW"] {
        let reply = ui.send(method, "api/forks", Some(&json!({})));
        assert_eq!(reply.status, 405, "{method}: {}", reply.text());
        assert_headers(&reply, method);
    }
    assert_refused(&ui.send("GET", "api/start", None), 405, "GET");
    assert_refused(
        &ui.send("POST", "", Some(&json!({}))),
        405,
        "POST of the page",
    );
    let path = format!("/{}/api/start", ui.root());
    for media_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let form = Sent::new(ui.port, "POST", &path)
            .header("Content-Type", media_type)
            .body("{}".to_owned());
        assert_refused(&form.reply(), 415, media_type);
    }
    assert_refused(&Sent::new(ui.port, "POST", &path).reply(), 415, "no type");
}

#[test]
fn what_cannot_be_understood_or_found_is_told_with_cause_and_hint() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    tine.new_fork("demo");
    let ui = Ui::start(&tine);
    let zeros = "0".repeat(40);
    for (route, status, code) in [
        ("diff", 400, "usage"),
        ("diff?fork=..", 400, "invalid-fork-name"),
        ("diff?fork=gone", 404, "no-such-fork"),
        ("diff?fork=demo&against=gone", 404, "no-such-point"),
        ("review", 400, "usage"),
        ("review?review=x", 400, "usage"),
        ("review?review=7", 404, "no-such-review"),
        ("conflict?review=7&conflict=0", 404, "no-such-review"),
        ("handoff?handoff=7", 404, "no-such-handoff"),
        ("session?session=gone", 404, "no-such-session"),
        ("sides?new_mode=100644&new_id=x", 400, "usage"),
        (
            &format!("sides?new_mode=100644&new_id={zeros}"),
            500,
            "corrupt-object",
        ),
        ("sides?rows=-1", 400, "usage"),
    ] {
        let reply = ui.send("GET", &format!("api/{route}"), None);
        assert_failure(&reply, status, code, route);
    }
    for (route, wish, status, code) in [
        ("resolve", json!({}), 400, "usage"),
        (
            "resolve",
            json!({"review": 1, "path": "p", "how": "nobody"}),
            400,
            "usage",
        ),
        (
            "resolve",
            json!({"review": 1, "path": "p", "how": "ours", "more": 1}),
            400,
            "usage",
        ),
        (
            "resolve",
            json!({"review": 1, "path": "p", "how": "content"}),
            400,
            "usage",
        ),
        (
            "resolve",
            json!({"review": 1, "path": "p", "how": "both"}),
            404,
            "no-such-review",
        ),
        (
            "resolve",
            json!({"review": 1, "path": "p", "how": "ours"}),
            404,
            "no-such-review",
        ),
        ("commit", json!({"review": 1}), 404, "no-such-review"),
        ("abort", json!([]), 400, "usage"),
        ("refresh", json!({"review": 1}), 404, "no-such-review"),
        ("apply", json!({"handoff": 1}), 404, "no-such-handoff"),
    ] {
        let reply = ui.send("POST", &format!("api/{route}"), Some(&wish));
        assert_failure(&reply, status, code, &format!("{route} {wish}"));
    }
}

#[track_caller]
fn assert_failure(reply: &Reply, status: u16, code: &str, what: &str) {
    let text = reply.text();
    assert_eq!(reply.status, status, "{what}: {text}");
    let told = reply.json();
    let error = &told["error"];
    assert_eq!(error["code"], code, "{what}: {text}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty()),
        "{what}: {text}"
    );
    assert!(
        error["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
        "{what}: {text}"
    );
    assert_headers(reply, what);
}

#[test]
fn it_listens_on_the_loopback_alone_and_ctrl_c_ends_it() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let mut ui = Ui::start(&tine);
    let port = format!(":{:04X}", ui.port);
    let table =
        |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    let listening: Vec<String> = [table("tcp"), table("tcp6")]
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // State 0A listens.
            (fields.get(3) == Some(&"0A")).then(|| fields[1].to_owned())
        })
        .filter(|address| address.ends_with(&port))
        .collect();
    assert_eq!(listening, [format!("0100007F{port}")]);

    let taken = ui.port.to_string();
    let said = tine.fails(1, &["ui", "--no-open", "--port", &taken]);
    assert!(
        said.contains(&format!("port {taken} of 127.0.0.1 cannot be had")),
        "{said}"
    );
    assert!(said.contains("hint: without `--port`"), "{said}");
    assert_eq!(ui.interrupt().code(), Some(0));
}
