//! The page in headless Chromium, driven by chromedriver with plain WebDriver requests: what a
//! person sees and clicks.
//!
//! With `TINE_UI_SCREENSHOTS=1` the pictures of `docs/ui.md` are taken.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::http::Sent;
use crate::support::{
    TestRepo, Tine, path_text, process, require_fuse, require_program, wait_until,
};
use crate::{HOSTILE_CONTENT, HOSTILE_NAME, Ui, fork_with_changes, repo, review};

/// How long the page may take for anything.
const LIMIT: Duration = Duration::from_secs(60);

/// A picture in the documentation may take so many bytes.
const PICTURE_MAX: usize = 150_000;

/// How WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. Dropping it ends both programs.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Where the test's repository is.
    root: String,
}

impl Browser {
    fn start(repo: &TestRepo) -> Browser {
        let mut driver = repo
            .command(Path::new("chromedriver"), repo.root())
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("chromedriver can be run");
        let mut lines = BufReader::new(driver.stdout.take().expect("stdout is piped")).lines();
        let port = lines
            .find_map(|line| {
                let line = line.expect("a line");
                let (_, after) = line.split_once("started successfully on port ")?;
                after.trim_end_matches('.').parse().ok()
            })
            .expect("chromedriver says where it listens");
        // Whoever prints into a closed pipe is killed.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Browser {
            driver,
            port,
            session: String::new(),
            root: path_text(repo.root()).to_owned(),
        };
        let profile = repo.root().join("browser");
        let flags = [
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1280,1000",
            // Its sandbox is for neither root nor every machine; the page is our own.
            "--no-sandbox",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let wish = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": flags},
        }}});
        let session = browser.send("POST", "/session", Some(&wish));
        let id = session["sessionId"].as_str();
        browser.session = id
            .unwrap_or_else(|| panic!("no browser: {session}"))
            .to_owned();
        browser
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let mut sent = Sent::new(self.port, method, path).http_1_1();
        if let Some(body) = body {
            sent = sent
                .header("Content-Type", "application/json")
                .body(body.to_string());
        }
        sent.reply().json()["value"].clone()
    }

    fn ask(&self, method: &str, what: &str, body: Option<&Value>) -> Value {
        self.send(method, &format!("/session/{}/{what}", self.session), body)
    }

    /// What a script gives that runs in the page.
    fn script(&self, script: &str) -> Value {
        self.ask(
            "POST",
            "execute/sync",
            Some(&json!({"script": script, "args": []})),
        )
    }

    fn go(&self, address: &str) {
        self.ask("POST", "url", Some(&json!({"url": address})));
    }

    /// The element that a CSS selector finds first, when it is there.
    #[track_caller]
    fn find(&self, css: &str) -> String {
        let wish = json!({"using": "css selector", "value": css});
        let mut found = None;
        wait_until(css, LIMIT, || {
            let element = self.ask("POST", "element", Some(&wish));
            found = element[ELEMENT].as_str().map(str::to_owned);
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// Clicks as a person does: an element that is covered or cannot be reached is not clicked.
    #[track_caller]
    fn click(&self, css: &str) {
        wait_until(&format!("{css} is clicked"), LIMIT, || {
            let element = self.find(css);
            // It may have been drawn anew between.
            self.ask(
                "POST",
                &format!("element/{element}/click"),
                Some(&json!({})),
            )
            .is_null()
        });
    }

    #[track_caller]
    fn type_into(&self, css: &str, text: &str) {
        let element = self.find(css);
        self.ask(
            "POST",
            &format!("element/{element}/clear"),
            Some(&json!({})),
        );
        let typed = self.ask(
            "POST",
            &format!("element/{element}/value"),
            Some(&json!({"text": text})),
        );
        assert!(typed.is_null(), "{css}: {typed}");
    }

    /// The text of the first element, as it is in the page.
    fn text(&self, css: &str) -> String {
        let found = self.script(&format!(
            "return document.querySelector({})?.textContent ?? ''",
            json!(css)
        ));
        found.as_str().expect("text").to_owned()
    }

    /// Clicks a link to `page`, what stands behind the `#`, and waits until that is what is shown.
    #[track_caller]
    fn follow(&self, css: &str, page: &str) {
        self.click(&format!("{css} a[href='{page}']"));
        wait_until(&format!("{page} is shown"), LIMIT, || {
            self.script("return document.body.dataset.shown") == page
        });
    }

    #[track_caller]
    fn wait_for(&self, css: &str, text: &str) {
        let mut seen = String::new();
        let deadline = std::time::Instant::now() + LIMIT;
        while std::time::Instant::now() < deadline {
            seen = self.text(css);
            if seen.contains(text) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!(
            "{css} does not say {text:?}, but {seen:?}; trouble: {:?}",
            self.text("#trouble")
        );
    }

    #[track_caller]
    fn wait_for_no_trouble(&self) {
        wait_until("no trouble is told", LIMIT, || {
            self.text("#trouble").is_empty()
        });
    }

    /// What the browser complained about.
    fn complaints(&self) -> Value {
        self.ask("POST", "se/log", Some(&json!({"type": "browser"})))
    }

    /// Takes a picture for the documentation, if that is wanted.
    fn picture(&self, name: &str) {
        if std::env::var_os("TINE_UI_SCREENSHOTS").is_none_or(|value| value != "1") {
            return;
        }
        // Where the test happens to run is of no interest.
        self.script(&format!(
            "for (const code of document.querySelectorAll('code')) code.textContent = code.textContent.replace({}, '/home/ann')",
            json!(self.root)
        ));
        let taken = self.ask("GET", "screenshot", None);
        let bytes = STANDARD
            .decode(taken.as_str().expect("a picture"))
            .expect("base64");
        assert!(
            bytes.len() < PICTURE_MAX,
            "{name} takes {} bytes",
            bytes.len()
        );
        let place = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("docs/ui")
            .join(name);
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("docs can be written");
        std::fs::write(place, bytes).expect("docs can be written");
    }

    /// That nothing of a file or its name ran, or became an element.
    #[track_caller]
    fn assert_untouched(&self) {
        let seen = self.script(
            "return [document.title, document.querySelectorAll('img').length, document.scripts.length]",
        );
        assert_eq!(seen, json!(["tine", 0, 1]));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.send("DELETE", &format!("/session/{}", self.session), None);
        }
        process::kill_group(self.driver.id());
        // It was killed.
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Nothing is shown as what a program calls it.
    #[track_caller]
    fn assert_no_objects(&self) {
        let shown = self.script("return document.body.innerText");
        assert!(
            !shown.as_str().expect("text").contains("[object"),
            "{shown}"
        );
    }
}

/// Returns from the test where the browser is missing.
macro_rules! require_browser {
    () => {
        require_program!("chromedriver");
        require_program!("chromium");
    };
}

#[test]
fn forks_are_seen_and_followed_and_hostile_files_are_text() {
    require_fuse!();
    require_browser!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = fork_with_changes(&repo, &tine);
    tine.ok(&["snapshot", "parser", "first-draft"]);
    tine.ok(&["new", "tests", "--from-fork", "parser@first-draft"]);
    tine.ok(&["new", "docs", "--from-fork", "parser"]);
    tine.ok(&["new", "lexer"]);
    tine.ok(&["unmount", "docs", "--keep"]);
    let ui = Ui::start(&tine);
    let browser = Browser::start(&repo);
    browser.go(&ui.address);
    browser.wait_for(".graph", "first-draft");
    for text in [
        "main",
        "parser",
        "tests",
        "lexer",
        "4 paths uncommitted",
        "not mounted",
    ] {
        browser.wait_for(".graph", text);
    }
    browser.picture("forks.png");

    browser.click(".graph [data-fork=parser] .name");
    browser.wait_for("h2", "Fork parser");
    browser.wait_for(".changes", "two of the parser");
    browser.wait_for(".changes", HOSTILE_NAME);
    browser.wait_for(".changes", HOSTILE_CONTENT.trim_end());
    browser.wait_for("[data-path='main.rs'] .old mark", "10");
    browser.wait_for("[data-path='main.rs'] .new mark", "20");
    browser.assert_untouched();
    browser.picture("diff.png");
    // Even a script of the page's own could not make markup of a text.
    let tried = browser.script(
        "try { document.body.innerHTML = '<img src=x>'; return 'done' } catch (error) { return error.name }",
    );
    assert_eq!(tried, "TypeError");

    // What happens is seen without anybody's doing.
    repo.sh_in(&dir, "sed -i '9s/.*/nine by now/' list.txt");
    browser.wait_for("[data-path='list.txt']", "nine by now");
    tine.ok(&["commit", "parser", "-m", "The parser's work"]);
    browser.wait_for(".changes .summary", "Nothing differs.");

    tine.ok(&["daemon", "stop"]);
    browser.wait_for("#trouble", "the daemon is stopped");
    browser.click("#start");
    browser.wait_for("#live", "live");
    browser.follow("nav", "#/");
    browser.wait_for(".graph", "lexer");
    browser.wait_for_no_trouble();

    // Of complaints only those are expected that come of the stopped daemon and of what was tried
    // above.
    let complaints = browser.complaints();
    for complaint in complaints.as_array().expect("a list") {
        let text = complaint["message"].as_str().expect("text");
        assert!(
            text.contains("500") || text.contains("TrustedHTML"),
            "{text}"
        );
    }
}

#[test]
fn a_conflict_is_resolved_by_clicking_and_git_sees_the_merge() {
    require_fuse!();
    require_browser!();
    let repo = repo();
    let tine = Tine::new(&repo);
    fork_with_changes(&repo, &tine);
    review(&repo, &tine);
    let ui = Ui::start(&tine);
    let browser = Browser::start(&repo);
    browser.go(&format!("{}#/reviews", ui.address));
    browser.follow("main", "#/review/1");
    browser.wait_for("#stands", "2 of 2 conflicts open");
    browser.wait_for(".pane.base", "20");
    browser.wait_for(".pane.ours .conflicting", "two of main");
    browser.wait_for(".pane.theirs .conflicting", "two of the parser");
    browser.wait_for(".pane.result", "<<<<<<< ours");
    browser.picture("review.png");
    assert_eq!(
        browser.script("return document.getElementById('commit').disabled"),
        true
    );

    browser.type_into("#reason", "The parser counts from two.");
    browser.click(".pane.theirs [data-how=theirs]");
    browser.wait_for("#stands", "1 of 2 conflicts open");
    // What it is resolved with is shown as a text, and not as an object.
    browser.follow("nav.conflicts", "#/review/1/0");
    browser.wait_for(".pane.result", "two of the parser");
    browser.assert_no_objects();
    browser.follow("nav.conflicts", "#/review/1/1");
    // The next open one is shown; markers that are left in it are refused.
    browser.wait_for(".conflict h3", "notes.md");
    browser.click("#edit");
    browser.click("#save");
    browser.wait_for(
        "#trouble",
        "the markers of the conflict are still in the text",
    );
    // What is told stays, and so does what is typed, whatever happens elsewhere meanwhile.
    let pulse = browser.script("return document.getElementById('live').dataset.pulse");
    tine.ok(&["new", "another"]);
    wait_until("the page has looked", LIMIT, || {
        browser.script("return document.getElementById('live').dataset.pulse") != pulse
    });
    browser.wait_for(
        "#trouble",
        "the markers of the conflict are still in the text",
    );
    browser.find("#editor");
    browser.type_into("#editor", "notes of both\nwith <b>no</b> markup\n");
    browser.click("#save");
    browser.wait_for("#stands", "resolved");
    browser.wait_for_no_trouble();
    browser.wait_for(".changes", "with <b>no</b> markup");
    let before = repo.head();
    browser.click("#commit");
    browser.wait_for("#done", "Done: main is at");
    browser.wait_for("#stands", "committed as");
    browser.assert_untouched();

    assert_eq!(
        repo.git(&["show", "main:notes.md"]),
        "notes of both\nwith <b>no</b> markup"
    );
    assert!(
        repo.git(&["show", "main:list.txt"])
            .starts_with("1\ntwo of the parser\n3")
    );
    let parents = repo.git(&["show", "-s", "--format=%P", "main"]);
    assert!(
        parents.starts_with(&before) && parents.contains(' '),
        "{parents}"
    );
    assert!(
        repo.git(&["log", "-1", "--format=%B"])
            .contains("The parser counts from two.")
    );
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn a_handoff_is_applied_and_a_review_let_go_by_clicking() {
    require_fuse!();
    require_browser!();
    let repo = repo();
    let tine = Tine::new(&repo);
    fork_with_changes(&repo, &tine);
    review(&repo, &tine);
    tine.ok(&["commit", "parser", "-m", "The parser's work"]);
    tine.ok(&["handoff", "create", "parser"]);
    tine.ok(&["new", "target", "--from", "main~1"]);
    tine.ok(&["round", "start", "--agents", "ann,ben", "--budget", "3"]);
    let ui = Ui::start(&tine);
    let browser = Browser::start(&repo);
    browser.go(&format!("{}#/handoffs", ui.address));
    browser.follow("main", "#/handoff/1");
    browser.wait_for("main", "The parser's work");
    browser.wait_for(".changes", "two of the parser");
    browser.type_into("#into", "fork:target");
    browser.click("#apply");
    browser.wait_for("#done", "`tine undo target` takes that back.");
    browser.wait_for("#stands", "applied to");
    assert_eq!(tine.ok(&["cat", "--fork", "target", "notes.md"]), "notes");

    browser.follow("nav", "#/reviews");
    browser.follow("main", "#/review/1");
    browser.click("#abort");
    browser.ask("POST", "alert/accept", Some(&json!({})));
    browser.wait_for("#stands", "aborted");
    browser.assert_no_objects();
    assert_eq!(tine.json(&["review", "show", "1"])["state"], "aborted");

    browser.follow("nav", "#/rounds");
    browser.click("main td a");
    browser.wait_for("main", "ben");
    browser.wait_for("main", "0 of 3");
    assert_eq!(browser.complaints(), json!([]));
}

#[test]
fn outdated_reviews_and_damaged_forks_are_told_in_words() {
    require_fuse!();
    require_browser!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let dir = fork_with_changes(&repo, &tine);
    review(&repo, &tine);
    repo.sh_in(&dir, "echo other notes > notes.md");
    tine.ok(&["new", "broken", "--no-mount"]);
    tine.ok(&["daemon", "stop"]);
    std::fs::write(
        repo.git_dir().join("tine/forks/broken/fork.json"),
        "no record",
    )
    .expect("a record");
    let ui = Ui::start(&tine);
    let browser = Browser::start(&repo);
    browser.go(&ui.address);
    browser.wait_for(".failure", "broken");
    browser.assert_no_objects();
    browser.go(&format!("{}#/review/1", ui.address));
    browser.wait_for("#stands", "outdated");
    browser.wait_for("main .careful", "has moved on since");
    browser.assert_no_objects();
}
