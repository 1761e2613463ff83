//! Tools, the mount, commands and editors beside one model: never two answers for one path.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;

use tine::client::Client;
use tine::ops::ErrorCode;
use tine::ops::protocol::{BufferAnswer, BufferRequest, Route, ToolAnswer, ToolWritten};

use crate::support::{
    Random, SayWhich, TestRepo, Tine, require_fuse, run_with_timeout_of, soaking,
};
use crate::{Agent, files_beneath};

const SEED: &str = "TINE_TOOL_SEED";

/// What every path is to be.
#[derive(Default)]
struct Model {
    /// Saved contents.
    files: BTreeMap<String, String>,
    buffers: BTreeMap<String, OpenBuffer>,
}

/// A buffer that is open.
struct OpenBuffer {
    /// What an agent sees.
    text: String,
    /// What a file has of it: what was saved when it was opened, or what was brought into the file.
    saved: String,
    /// Whether there was a file when an agent first wrote more than that.
    has_file: bool,
}

impl Model {
    /// What an agent sees.
    fn seen(&self, path: &str) -> Option<&String> {
        let buffer = self.buffers.get(path).map(|buffer| &buffer.text);
        buffer.or_else(|| self.files.get(path))
    }

    /// Whether an agent wrote to the buffer what the file at its path cannot take unmerged.
    fn is_merged(&self, path: &str) -> bool {
        self.buffers.get(path).is_some_and(|buffer| {
            buffer.text != buffer.saved && self.files.get(path) != Some(&buffer.saved)
        })
    }

    /// Takes what an agent wrote to the buffer; says whether there is one.
    fn write_to_buffer(&mut self, path: &str, text: &str) -> bool {
        let has_file = self.files.contains_key(path);
        let Some(buffer) = self.buffers.get_mut(path) else {
            return false;
        };
        if buffer.text == buffer.saved {
            buffer.has_file = has_file;
        }
        text.clone_into(&mut buffer.text);
        true
    }

    /// What agents wrote to the buffer comes into the file.
    fn bring(&mut self, path: &str) {
        if let Some(buffer) = self.buffers.get_mut(path)
            && let Some(file) = self.files.get_mut(path)
        {
            file.clone_from(&buffer.text);
            buffer.saved.clone_from(&buffer.text);
        }
    }

    /// Whether a directory is at the path, or a file at one above.
    fn is_blocked(&self, path: &str) -> bool {
        let beneath = format!("{path}/");
        let mut files = self.files.keys();
        files.any(|file| file.starts_with(&beneath) || path.starts_with(&format!("{file}/")))
    }
}

/// Two levels of few names, so that they meet.
fn any_path(random: &mut Random, own: &str) -> String {
    let names = ["a", "b", "c"];
    let name = |random: &mut Random| names[random.below(3) as usize];
    match random.below(3) {
        0 => format!("{own}/{}.txt", name(random)),
        1 => format!("{own}/{}/{}.txt", name(random), name(random)),
        _ => format!(
            "{own}/deep/{}/{}/{}.txt",
            name(random),
            name(random),
            name(random)
        ),
    }
}

fn any_text(random: &mut Random) -> String {
    let lines = random.below(6);
    (0..lines)
        .map(|n| format!("line {n} is {}\n", random.below(1000)))
        .collect()
}

/// An editor with one connection.
struct Editor {
    client: Client,
    dir: PathBuf,
}

impl Editor {
    fn new(repo: &TestRepo, dir: &Path) -> Editor {
        let client = Client::connect(&repo.common_dir()).expect("the daemon answers");
        let mut editor = Editor {
            client: client.expect("the daemon runs"),
            dir: dir.to_owned(),
        };
        editor.ask(BufferRequest::Attach);
        editor
    }

    fn ask(&mut self, request: BufferRequest) -> BufferAnswer {
        self.client.call(&request).expect("it is as it should be")
    }

    fn open(&mut self, path: &str, text: &str) {
        self.ask(BufferRequest::Open {
            path: self.dir.join(path),
            text: text.to_owned(),
            saved: true,
            after: None,
        });
    }

    fn close(&mut self, path: &str) {
        self.ask(BufferRequest::Close {
            path: self.dir.join(path),
        });
    }
}

/// One who works in the fork, in a directory that nobody else changes.
struct Worker<'a> {
    own: String,
    random: Random,
    model: Model,
    agent: Agent,
    editor: Editor,
    tine: &'a Tine<'a>,
    dir: PathBuf,
}

impl Worker<'_> {
    fn step(&mut self) {
        let path = any_path(&mut self.random, &self.own);
        let text = any_text(&mut self.random);
        let in_mount = self.dir.join(&path);
        match self.random.below(16) {
            0..=2 => self.write_by_tool(&path, &text),
            3..=5 => self.edit_by_tool(&path),
            6 | 7 if !self.model.buffers.contains_key(&path) => {
                self.write_in_mount(&path, &text, &in_mount)
            }
            8 => self.delete_by_tool(&path),
            9 if !self.model.buffers.contains_key(&path) => {
                let removed = fs::remove_file(&in_mount).is_ok();
                assert_eq!(removed, self.model.files.remove(&path).is_some(), "{path}");
            }
            10 | 11 => self.move_one(&path),
            12 => self.command(&path, &text),
            13 => self.open_buffer(&path),
            _ => self.close_buffer(),
        }
        self.check(&path);
    }

    fn write_by_tool(&mut self, path: &str, text: &str) {
        let written = self.agent.write(path, text.as_bytes());
        if self.model.write_to_buffer(path, text) {
            assert!(matches!(
                written.unwrap(),
                ToolAnswer::Agents(ToolWritten {
                    route: Route::Buffer,
                    ..
                })
            ));
            return;
        }
        if self.model.is_blocked(path) {
            assert_eq!(written.unwrap_err().code, ErrorCode::WrongKind, "{path}");
            return;
        }
        let is_new = self
            .model
            .files
            .insert(path.to_owned(), text.to_owned())
            .is_none();
        assert!(
            matches!(written.unwrap(), ToolAnswer::Agents(ToolWritten { route: Route::Fork, created, .. }) if created == is_new),
            "{path}"
        );
    }

    fn edit_by_tool(&mut self, path: &str) {
        let seen = self.model.seen(path).cloned();
        let old = format!("line {} is", self.random.below(4));
        let new = format!("line {} was", self.random.below(4));
        let edited = self.agent.edit(path, &old, &new);
        match seen {
            None => assert!(
                matches!(
                    edited.unwrap_err().code,
                    ErrorCode::NoSuchPath | ErrorCode::WrongKind
                ),
                "{path}"
            ),
            Some(seen) => match seen.matches(&old).count() {
                0 => assert_eq!(edited.unwrap_err().code, ErrorCode::EditNotFound, "{path}"),
                1 => {
                    edited.unwrap();
                    let after = seen.replace(&old, &new);
                    if !self.model.write_to_buffer(path, &after) {
                        self.model.files.insert(path.to_owned(), after);
                    }
                }
                _ => assert_eq!(edited.unwrap_err().code, ErrorCode::EditAmbiguous, "{path}"),
            },
        }
    }

    fn write_in_mount(&mut self, path: &str, text: &str, in_mount: &Path) {
        if self.model.is_blocked(path) {
            return;
        }
        fs::create_dir_all(in_mount.parent().unwrap()).unwrap();
        fs::write(in_mount, text).unwrap();
        self.model.files.insert(path.to_owned(), text.to_owned());
    }

    fn delete_by_tool(&mut self, path: &str) {
        if self.model.files.contains_key(path) && self.model.is_merged(path) {
            return;
        }
        let deleted = self.agent.delete(path);
        self.model.bring(path);
        match self.model.files.remove(path) {
            Some(_) => drop(deleted.unwrap()),
            None => assert!(
                matches!(
                    deleted.unwrap_err().code,
                    ErrorCode::NoSuchPath | ErrorCode::WrongKind
                ),
                "{path}"
            ),
        }
    }

    fn move_one(&mut self, from: &str) {
        let to = any_path(&mut self.random, &self.own);
        let is_free = !self.model.files.contains_key(&to) && !self.model.is_blocked(&to);
        if !self.model.files.contains_key(from) || !is_free || from == to {
            return;
        }
        match self.random.below(2) {
            0 if !self.model.is_merged(from) => {
                self.agent.rename(from, &to).unwrap();
                self.model.bring(from);
            }
            _ => {
                let target = self.dir.join(&to);
                fs::create_dir_all(target.parent().unwrap()).unwrap();
                fs::rename(self.dir.join(from), target).unwrap();
            }
        }
        let content = self.model.files.remove(from).unwrap();
        self.model.files.insert(to.clone(), content);
        self.check(&to);
    }

    fn command(&mut self, path: &str, text: &str) {
        if self.model.buffers.contains_key(path) || self.model.is_blocked(path) {
            return;
        }
        let limit = std::time::Duration::from_secs(60);
        let mut command = self.tine.command(&["write", "--fork", "demo", "-p", path]);
        let output = run_with_timeout_of(&mut command, limit, text.as_bytes());
        assert!(output.status.success(), "{output:?}");
        self.model.files.insert(path.to_owned(), text.to_owned());
    }

    fn open_buffer(&mut self, path: &str) {
        if self.model.buffers.contains_key(path) {
            return;
        }
        if let Some(text) = self.model.files.get(path) {
            self.editor.open(path, text);
            let buffer = OpenBuffer {
                text: text.clone(),
                saved: text.clone(),
                has_file: true,
            };
            self.model.buffers.insert(path.to_owned(), buffer);
        }
    }

    /// Whoever wrote to a buffer that is closed unsaved has it in the file.
    fn close_buffer(&mut self) {
        let open: Vec<String> = self.model.buffers.keys().cloned().collect();
        if open.is_empty() {
            return;
        }
        let path = &open[self.random.below(open.len() as u64) as usize];
        // Nobody says what becomes of it where something else has taken its place.
        if self.model.is_blocked(path) {
            return;
        }
        self.editor.close(path);
        let is_merged = self.model.is_merged(path);
        let buffer = self.model.buffers.remove(path).unwrap();
        if is_merged {
            self.find_merged(path, &buffer);
        } else if buffer.text != buffer.saved {
            self.model.files.insert(path.clone(), buffer.text);
        }
        self.check(path);
    }

    /// Every line of an agent's is in the file that took the place of the buffer's, or beside it.
    fn find_merged(&mut self, path: &str, buffer: &OpenBuffer) {
        let in_mount = self.dir.join(path);
        let file = fs::read_to_string(&in_mount).ok();
        let beside = PathBuf::from(format!("{}.agent-text", in_mount.display()));
        let text = fs::read_to_string(&beside).ok();
        let both = [file.as_deref(), text.as_deref()];
        for line in buffer.text.lines() {
            let is_there = both.iter().flatten().any(|text| text.contains(line));
            assert!(
                is_there || buffer.saved.contains(line),
                "{path}: {line:?} is in none of {both:?}"
            );
        }
        assert_eq!(
            file.is_some(),
            self.model.files.contains_key(path) || !buffer.has_file,
            "{path}: a file that was removed since is not made again, and none goes"
        );
        if let Some(file) = file {
            self.model.files.insert(path.to_owned(), file);
        }
        if text.is_some() {
            fs::remove_file(beside).unwrap();
        }
    }

    /// All say the same of the path.
    fn check(&mut self, path: &str) {
        let saved = match fs::read_to_string(self.dir.join(path)) {
            Ok(text) => Some(text),
            Err(error) => {
                let kinds = [
                    ErrorKind::NotFound,
                    ErrorKind::NotADirectory,
                    ErrorKind::IsADirectory,
                ];
                assert!(kinds.contains(&error.kind()), "{path}: {error}");
                None
            }
        };
        assert_eq!(
            saved.as_ref(),
            self.model.files.get(path),
            "{path} in the mount"
        );
        let seen = self
            .agent
            .read(path)
            .ok()
            .map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(seen.as_ref(), self.model.seen(path), "{path} by a tool");
    }

    /// All say the same of everything.
    fn check_all(&mut self) {
        let in_mount = files_beneath(&self.dir.join(&self.own));
        let in_mount: Vec<(String, String)> = in_mount
            .into_iter()
            .map(|(name, content)| {
                let name = format!("{}/{}", self.own, String::from_utf8(name).unwrap());
                (name, String::from_utf8(content).unwrap())
            })
            .collect();
        let expected: Vec<(String, String)> = self.model.files.clone().into_iter().collect();
        assert_eq!(in_mount, expected, "the mount");
        let listed = self.agent.list(&self.own, true).unwrap();
        let listed = listed
            .into_iter()
            .map(|path| String::from_utf8(path).unwrap());
        let listed: Vec<String> = listed.filter(|path| path.ends_with(".txt")).collect();
        assert_eq!(
            listed,
            self.model.files.keys().cloned().collect::<Vec<_>>(),
            "a listing"
        );
        let mut matching: Vec<(Vec<u8>, u64)> = Vec::new();
        let paths = self.model.files.keys().chain(self.model.buffers.keys());
        let paths: std::collections::BTreeSet<&String> = paths.collect();
        for path in paths {
            let text = self.model.seen(path).unwrap();
            let lines = (1..)
                .zip(text.lines())
                .filter(|(_, line)| line.contains("line 2"));
            matching.extend(lines.map(|(number, _)| (path.clone().into_bytes(), number)));
        }
        let found = self
            .agent
            .search("line 2", Some(self.own.as_bytes()))
            .unwrap();
        assert_eq!(found, matching, "a search");
        for path in self.model.files.keys() {
            let shown = self.tine.run(&["cat", "--fork", "demo", path]);
            assert_eq!(
                shown.stdout,
                self.model.files[path].as_bytes(),
                "{path} by a command"
            );
        }
    }
}

#[test]
fn tools_the_mount_commands_and_editors_never_disagree() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _which = SayWhich(SEED, seed);
    let repo = TestRepo::new();
    for own in ["one", "two", "three"] {
        repo.write(&format!("{own}/a.txt"), "line 1 is base\nline 2 is base\n");
        repo.write(&format!("{own}/deep/a/b/c.txt"), "line 0 is base\n");
    }
    repo.commit_all("base");
    let tine = Tine::new(&repo);
    let dir = tine.new_fork("demo");
    let steps = if soaking() { 5_000 } else { 150 };
    thread::scope(|scope| {
        for own in ["one", "two", "three"] {
            let mut worker = Worker {
                own: own.to_owned(),
                random: Random::new(random.next()),
                model: Model::default(),
                agent: Agent::new(&repo, Some("demo")),
                editor: Editor::new(&repo, &dir),
                tine: &tine,
                dir: dir.clone(),
            };
            let base = files_beneath(&dir.join(own));
            worker.model.files = base
                .into_iter()
                .map(|(name, content)| {
                    let name = format!("{own}/{}", String::from_utf8(name).unwrap());
                    (name, String::from_utf8(content).unwrap())
                })
                .collect();
            scope.spawn(move || {
                for step in 1..=steps {
                    worker.step();
                    if step % (steps / 3) == 0 {
                        worker.check_all();
                    }
                }
            });
        }
    });
    let log = tine.json(&["op", "log", "demo", "-n", "1000"]);
    let commands = log["operations"].as_array().unwrap();
    assert!(
        commands
            .iter()
            .any(|operation| operation["command"] == "a tool"),
        "{log}"
    );
}
