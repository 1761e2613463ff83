//! `scripts/editors/tine.lua` in a real Neovim.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::{Agent, LIMIT};
use crate::support::{
    OutputExt, Random, SayWhich, TestRepo, Tine, require_fuse, require_program, run_with_timeout,
    wait_until,
};

/// A Neovim without a terminal, with the plugin.
struct Neovim<'r> {
    repo: &'r TestRepo,
    child: Child,
    socket: PathBuf,
    /// What the plugin says to `tine buffer serve`, a line each.
    said: PathBuf,
}

impl Neovim<'_> {
    fn start<'r>(repo: &'r TestRepo, file: &Path) -> Neovim<'r> {
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/editors/tine.lua");
        let socket = repo.root().join("nvim.sock");
        let said = repo.root().join("nvim.to-tine");
        // A path of a test has no quote and no space.
        let command = format!(
            "let g:tine_command = ['sh', '-c', 'tee {} | {} \"$@\"', 'tine']",
            said.display(),
            Tine::program().display()
        );
        let child = repo
            .command("nvim", repo.dir())
            .args(["--clean", "--headless", "--listen"])
            .arg(&socket)
            .args(["--cmd", &command, "--cmd"])
            .arg(format!("luafile {}", plugin.display()))
            .args(["--cmd", "set noswapfile"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be started");
        let neovim = Neovim {
            repo,
            child,
            socket,
            said,
        };
        wait_until("Neovim listens", LIMIT, || neovim.socket.exists());
        neovim
    }

    /// What an expression of Vim script is there.
    #[track_caller]
    fn asks(&self, expression: &str) -> Value {
        // By a file: what is printed is cut where it is long.
        let said = self.repo.root().join("nvim.said");
        let write = format!(
            "writefile([json_encode({expression})], '{}')",
            said.display()
        );
        let mut command = self.repo.command("nvim", self.repo.dir());
        command
            .args(["--clean", "--headless", "--server"])
            .arg(&self.socket)
            .args(["--remote-expr", &write]);
        let output = run_with_timeout(&mut command).expect_success(expression);
        let said = fs::read_to_string(&said).unwrap_or_else(|error| {
            panic!(
                "{expression}: {error}: {}{}",
                output.text(),
                output.error_text()
            );
        });
        serde_json::from_str(said.trim())
            .unwrap_or_else(|error| panic!("{expression}: {error} in {said:?}"))
    }

    /// How many messages of this kind the plugin has sent.
    fn sent(&self, kind: &str) -> usize {
        let said = fs::read_to_string(&self.said).expect("the plugin said something");
        let messages = said
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        messages.filter(|message| message["buffer"] == kind).count()
    }

    /// Runs an Ex command, as a person would type it.
    #[track_caller]
    fn runs(&self, command: &str) {
        self.asks(&format!("execute({})", json!(command)));
    }

    #[track_caller]
    fn text(&self) -> String {
        let lines = self.asks("getline(1, '$')");
        let lines: Vec<&str> = lines
            .as_array()
            .expect("lines")
            .iter()
            .map(|line| line.as_str().expect("a text"))
            .collect();
        let end = if self.asks("&endofline") == 1 {
            "\n"
        } else {
            ""
        };
        lines.join("\n") + end
    }
}

impl Drop for Neovim<'_> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the daemon says of the only open buffer.
fn buffer(tine: &Tine<'_>) -> Value {
    tine.json(&["buffer", "list"])["buffers"][0].clone()
}

fn wait_for_text(neovim: &Neovim<'_>, text: &str) {
    let mut last = String::new();
    wait_until(&format!("the buffer is {text:?}"), LIMIT, || {
        last = neovim.text();
        last == text
    });
}

#[test]
fn an_agents_edits_come_into_neovim_and_leave_cursor_undo_and_the_persons_text() {
    require_fuse!();
    require_program!("nvim");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let file = dir.join("notes.txt");
    let text: String = (1..=9).map(|line| format!("line {line}\n")).collect();
    fs::write(&file, &text).expect("the mount takes it");
    let neovim = Neovim::start(&repo, &file);
    wait_until("the buffer is open", LIMIT, || {
        buffer(&tine)["saved"] == true
    });
    let mut agent = Agent::of(&repo, Some("demo"));

    // One that was saved is saved again: programs see what the agent wrote.
    neovim.runs("call cursor(8, 3)");
    agent.edit("notes.txt", "line 2\n", "line 2\nnew\n");
    let with_new = text.replace("line 2\n", "line 2\nnew\n");
    wait_for_text(&neovim, &with_new);
    assert_eq!(
        neovim.asks("getcurpos()[1:2]"),
        json!([9, 3]),
        "it is at the same text"
    );
    wait_until("it is saved", LIMIT, || buffer(&tine)["saved"] == true);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), with_new);

    // One with changes is the person's to save; one undo takes the agent's edit back, and nothing
    // else.
    neovim.runs("call setline(9, 'typed')");
    wait_until("the agent sees it", LIMIT, || {
        agent.read("notes.txt").contains("typed\n")
    });
    agent.edit("notes.txt", "line 1\n", "first\n");
    agent.edit("notes.txt", "line 9\n", "last");
    let typed = with_new.replace("line 8", "typed");
    let both = typed
        .replace("line 1\n", "first\n")
        .replace("line 9\n", "last");
    wait_for_text(&neovim, &both);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), with_new);
    wait_until("nothing is left to be merged", LIMIT, || {
        buffer(&tine)["forked"] == false
    });
    neovim.runs("undo");
    assert!(neovim.text().contains("typed\n"));
    neovim.runs("redo");
    wait_for_text(&neovim, &both);
    wait_until("the agent sees it", LIMIT, || {
        agent.read("notes.txt") == both
    });
    neovim.runs("write");
    wait_until("it is saved", LIMIT, || buffer(&tine)["saved"] == true);
    // As Vim does, it ends the last line when it writes.
    let written = both + "\n";
    assert_eq!(fs::read_to_string(&file).expect("it is there"), written);
    assert_eq!(agent.read("notes.txt"), written);
    neovim.runs("bwipeout");
    wait_until("it is closed", LIMIT, || {
        tine.json(&["buffer", "list"]) == json!({"buffers": []})
    });
}

/// On a mount that shows it: otherwise Neovim would take its own text for somebody else's change.
#[test]
fn programs_read_what_is_typed_and_neovim_what_is_saved() {
    require_fuse!();
    require_program!("nvim");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = PathBuf::from(tine.ok(&["new", "demo", "--overlay-buffers"]));
    let file = dir.join("notes.txt");
    fs::write(&file, "saved\n").expect("the mount takes it");
    let neovim = Neovim::start(&repo, &file);
    wait_until("the buffer is open", LIMIT, || {
        buffer(&tine)["saved"] == true
    });
    let program_reads = || repo.sh_in(&dir, "cat notes.txt");
    neovim.runs("call setline(1, 'typed')");
    wait_until("a program reads it", LIMIT, || program_reads() == "typed");
    assert_eq!(
        repo.git_in(&dir, &["hash-object", "notes.txt"]),
        repo.sh_in(&dir, "echo saved | git hash-object --stdin")
    );
    neovim.runs("checktime");
    assert_eq!(neovim.asks("v:warningmsg"), json!(""));
    assert_eq!(neovim.text(), "typed\n");
    neovim.runs("write");
    wait_until("it is saved", LIMIT, || buffer(&tine)["saved"] == true);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "typed\n");
    assert_eq!(program_reads(), "typed");
    neovim.runs("call setline(1, 'typed again')");
    wait_until("a program reads it", LIMIT, || {
        program_reads() == "typed again"
    });
    drop(neovim);
    wait_until("a program reads the file", LIMIT, || {
        program_reads() == "typed"
    });
}

#[test]
fn a_conflict_is_shown_in_neovim_and_settled_there() {
    require_fuse!();
    require_program!("nvim");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let file = dir.join("notes.txt");
    fs::write(&file, "a\nb\nc\n").expect("the mount takes it");
    let neovim = Neovim::start(&repo, &file);
    wait_until("the buffer is open", LIMIT, || {
        buffer(&tine)["saved"] == true
    });
    let mut agent = Agent::of(&repo, Some("demo"));
    // An edit is not made where the buffer cannot be changed, and is kept.
    neovim.runs("set nomodifiable");
    agent.read("notes.txt");
    agent.write("notes.txt", "a\nagent\nc\n");
    wait_until("it is on offer", LIMIT, || buffer(&tine)["forked"] == true);
    neovim.runs("set modifiable | call setline(2, 'person')");
    wait_until("it conflicts", LIMIT, || {
        buffer(&tine)["conflicted"] == true
    });
    neovim.runs("TineConflicts");
    wait_until("the conflicts are listed", LIMIT, || {
        neovim.asks("len(getloclist(0))") == 1
    });
    assert_eq!(neovim.asks("getloclist(0)[0].lnum"), 2);
    assert_eq!(
        neovim.asks("winnr('$')"),
        2,
        "the agent's text is beside it"
    );
    assert_eq!(neovim.text(), "a\nperson\nc\n");
    neovim.runs("TineMerge both");
    wait_for_text(&neovim, "a\nperson\nagent\nc\n");
    wait_until("it is merged", LIMIT, || buffer(&tine)["forked"] == false);
    assert_eq!(agent.read("notes.txt"), "a\nperson\nagent\nc\n");
}

#[test]
fn texts_without_a_last_line_end_with_carriage_returns_or_without_anything_stay_so() {
    require_fuse!();
    require_program!("nvim");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    for (text, edited) in [
        ("", "a\n"),
        ("a", "b\na"),
        ("a\nb", "a\nb\nc"),
        ("a\r\nb\r\n", "a\r\nb\r\nc\r\n"),
        ("\n", "x\n\n"),
        ("a\nb\n", ""),
    ] {
        let file = dir.join("notes.txt");
        fs::write(&file, text).expect("the mount takes it");
        let neovim = Neovim::start(&repo, &file);
        wait_until("the buffer is open", LIMIT, || {
            buffer(&tine)["saved"] == true
        });
        let mut agent = Agent::of(&repo, Some("demo"));
        assert_eq!(agent.read("notes.txt"), text);
        agent.write("notes.txt", edited);
        wait_until("it is merged and saved", LIMIT, || {
            let buffer = buffer(&tine);
            buffer["forked"] == false && buffer["saved"] == true
        });
        assert_eq!(agent.read("notes.txt"), edited, "of {text:?}");
        let in_file = fs::read_to_string(&file).expect("it is there");
        assert_eq!(in_file, edited, "of {text:?}");
        // Opened twice, an edit that came between could be applied twice.
        assert_eq!(neovim.sent("open"), 1, "of {text:?}");
        drop(neovim);
        wait_until("it is closed", LIMIT, || {
            tine.json(&["buffer", "list"]) == json!({"buffers": []})
        });
        fs::remove_file(repo.root().join("nvim.sock")).expect("it was left");
    }
}

#[test]
fn what_neovim_does_to_a_text_the_daemon_has_too() {
    const VARIABLE: &str = "TINE_NEOVIM_SEED";
    require_fuse!();
    require_program!("nvim");
    let (mut random, seed) = Random::from_environment(VARIABLE);
    let _say = SayWhich(VARIABLE, seed);
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let file = dir.join("notes.txt");
    let text: String = (1..=20).map(|line| format!("line {line}\n")).collect();
    fs::write(&file, &text).expect("the mount takes it");
    let neovim = Neovim::start(&repo, &file);
    wait_until("the buffer is open", LIMIT, || {
        buffer(&tine)["saved"] == true
    });
    let mut agent = Agent::of(&repo, Some("demo"));
    let acts = [
        "normal! ggOabove",
        "normal! Gobelow",
        "normal! ddp",
        "normal! 3dd",
        "undo",
        "redo",
        "%s/line/LINE/e",
        "g/3/d",
        "normal! J",
        "normal! >>",
        "1,3move $",
        "sort",
        "normal! ggyGP",
        "$d",
        "earlier 3",
        "later 2",
        "%d",
        "normal! ixyz",
        "silent! normal! 5Gp",
        "set noendofline",
        "2,4join",
        "write",
    ];
    for step in 0..40 {
        let act = acts[random.below(acts.len() as u64) as usize];
        let line = random.below(20) + 1;
        neovim.runs(&format!("silent! {line} | silent! {act}"));
        if random.below(3) == 0 {
            let seen = agent.read("notes.txt");
            agent.write("notes.txt", &format!("agent {step}\n{seen}"));
        }
        wait_until(
            &format!("both have the same after step {step}, {act}"),
            LIMIT,
            || {
                let there = neovim.text();
                let there = if there == "\n" && neovim.asks("line2byte(2)") == -1 {
                    String::new()
                } else {
                    there
                };
                let buffer = buffer(&tine);
                buffer["conflicted"] == true
                    || buffer["forked"] == false && agent.read("notes.txt") == there
            },
        );
        if buffer(&tine)["conflicted"] == true {
            neovim.runs("TineMerge both");
        }
    }
}
