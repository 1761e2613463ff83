//! `tine ui`: what its server answers and what it refuses, and the page in a real browser.

mod support;

#[path = "ui/browser.rs"]
mod browser;
#[path = "ui/http.rs"]
mod http;
#[path = "ui/page.rs"]
mod page;
#[path = "ui/refusals.rs"]
mod refusals;
#[path = "ui/routes.rs"]
mod routes;

use std::io::{BufRead, BufReader};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use http::{Reply, Sent};
use support::{TestRepo, Tine};

/// How long the server may take to begin, and to end.
const LIMIT: Duration = Duration::from_secs(60);

/// A name that would be markup, and is a file's.
pub const HOSTILE_NAME: &str = "<img src=x onerror=\"document.title='taken'\">.txt";

/// A content that would be markup.
pub const HOSTILE_CONTENT: &str =
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\n";

/// `tine ui`, running. Dropping it ends it.
pub struct Ui {
    child: Child,
    /// With the key, and a slash at the end.
    pub address: String,
    pub port: u16,
}

impl Ui {
    /// Starts it on a free port.
    pub fn start(tine: &Tine) -> Ui {
        let mut command = tine.command(&["ui", "--no-open", "--json"]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tine ui can be run");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("stdout can be read");
        let told: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        Ui {
            child,
            address: told["address"].as_str().expect("an address").to_owned(),
            port: u16::try_from(told["port"].as_u64().expect("a port")).expect("a port"),
        }
    }

    /// The path of the address: the key between slashes.
    pub fn root(&self) -> &str {
        let at = self.address.rfind(':').expect("a port");
        let (_, path) = self.address[at..].split_once('/').expect("a path");
        path.trim_end_matches('/')
    }

    /// Sends a request as the page would, to what is beneath the key.
    pub fn send(&self, method: &str, beneath: &str, body: Option<&Value>) -> Reply {
        let path = format!("/{}/{beneath}", self.root());
        let mut sent = Sent::new(self.port, method, &path);
        if let Some(body) = body {
            sent = sent
                .header("Content-Type", "application/json")
                .body(body.to_string());
        }
        sent.reply()
    }

    /// What is told of `route`; panics where that is a failure.
    #[track_caller]
    pub fn ask(&self, route: &str) -> Value {
        let reply = self.send("GET", &format!("api/{route}"), None);
        assert_eq!(reply.status, 200, "{route}: {}", reply.text());
        reply.json()
    }

    /// What comes of `wish`; panics where that is a failure.
    #[track_caller]
    pub fn act(&self, route: &str, wish: &Value) -> Value {
        let reply = self.send("POST", &format!("api/{route}"), Some(wish));
        assert_eq!(reply.status, 200, "{route} {wish}: {}", reply.text());
        reply.json()
    }

    /// Ends it as Ctrl-C does.
    pub fn interrupt(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, Signal::SIGINT).expect("it runs");
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "tine ui goes on");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A repository with a list, a program and no commit that would be told apart from others.
pub fn repo() -> TestRepo {
    let repo = TestRepo::new().without_maintenance();
    repo.git(&["config", "tine.mergeUncommitted", "true"]);
    let list: String = (1..=20).map(|line| format!("{line}\n")).collect();
    let program = "fn main() {\n    let limit = read_limit(10);\n    println!(\"{limit}\");\n}\n";
    repo.commit_files(
        &[
            ("list.txt", list.as_bytes()),
            ("main.rs", program.as_bytes()),
        ],
        "list",
    );
    repo
}

/// A mounted fork `parser` with changes: a line, a word, a file with hostile name and content.
pub fn fork_with_changes(repo: &TestRepo, tine: &Tine) -> std::path::PathBuf {
    let dir = tine.new_fork("parser");
    repo.sh_in(
        &dir,
        "sed -i '2s/.*/two of the parser/' list.txt; sed -i 's/read_limit(10)/read_limit(20)/' main.rs; echo notes > notes.md",
    );
    std::fs::write(dir.join(HOSTILE_NAME), HOSTILE_CONTENT).expect("the mount can be written");
    dir
}

/// Two conflicts between `parser` and `main`, in `list.txt` and `notes.md`, kept as review 1.
pub fn review(repo: &TestRepo, tine: &Tine) {
    repo.sh_in(
        repo.dir(),
        "sed -i '2s/.*/two of main/' list.txt; echo notes of main > notes.md; git add -A; git commit -qm 'main goes on'",
    );
    tine.fails(
        3,
        &["merge", "parser", "--review", "-m", "Merge the parser"],
    );
}
