//! Random histories, written with `git fast-import`: one process for any number of commits.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

use tine::git::ObjectId;

use crate::listing::ParseId;
use crate::support::{Random, TestRepo};

/// Mode and content of each file, by path.
type Files = BTreeMap<Vec<u8>, (u32, Vec<u8>)>;

const PLACES: [&[u8]; 12] = [
    b"a",
    b"b",
    b"src/main",
    b"src/lib",
    b"src/deep/x",
    b"src/deep/y",
    b"docs/one",
    b"docs/two",
    b"docs",
    b"a/inner",
    b"n\xff\xfe",
    b"src/deep",
];

/// Two commits to be merged.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub ours: ObjectId,
    pub theirs: ObjectId,
    /// The one merge base, if there is only one.
    pub base: Option<ObjectId>,
}

/// Writes `count` histories of two branches; every fourth is a criss-cross, whose branches have
/// merged each other before.
pub fn write(repo: &TestRepo, random: &mut Random, count: usize) -> Vec<Pair> {
    let mut stream = Stream::default();
    let mut marks = Vec::new();
    for number in 0..count {
        let files = first_files(random);
        let base = stream.commit(&files, &[]);
        let side = |random: &mut Random, files: &Files| {
            let changes = 1 + random.below(4);
            changed(random, files, changes)
        };
        let (mut ours, mut theirs) = (side(random, &files), side(random, &files));
        let mut parents = [base, base];
        let is_crossed = number % 4 == 3;
        if is_crossed {
            let first = [
                stream.commit(&ours, &[base]),
                stream.commit(&theirs, &[base]),
            ];
            // Each settles it in its own way.
            parents = [
                stream.commit(&ours, &first),
                stream.commit(&theirs, &[first[1], first[0]]),
            ];
            (ours, theirs) = (side(random, &ours), side(random, &theirs));
        }
        let tips = [
            stream.commit(&ours, &parents[..1]),
            stream.commit(&theirs, &parents[1..]),
        ];
        marks.push((tips, (!is_crossed).then_some(base)));
    }
    let ids = stream.import(repo);
    marks
        .into_iter()
        .map(|([ours, theirs], base)| Pair {
            ours: ids[&ours],
            theirs: ids[&theirs],
            base: base.map(|base| ids[&base]),
        })
        .collect()
}

/// Writes `count` histories of two branches of `length` commits each, of which now and then one is
/// on both, or changes nothing.
pub fn write_lines(repo: &TestRepo, random: &mut Random, count: usize, length: usize) -> Vec<Pair> {
    let mut stream = Stream::default();
    let mut marks = Vec::new();
    for _ in 0..count {
        let files = first_files(random);
        let base = stream.commit(&files, &[]);
        let shared = changed(random, &files, 1);
        let tips = [(); 2].map(|()| {
            let (mut files, mut tip) = (files.clone(), base);
            for number in 0..length {
                files = match random.below(8) {
                    0 if number == 0 => shared.clone(),
                    1 => files,
                    _ => {
                        let changes = 1 + random.below(2);
                        changed(random, &files, changes)
                    }
                };
                tip = stream.commit(&files, &[tip]);
            }
            tip
        });
        marks.push((tips, base));
    }
    let ids = stream.import(repo);
    marks
        .into_iter()
        .map(|([ours, theirs], base)| Pair {
            ours: ids[&ours],
            theirs: ids[&theirs],
            base: Some(ids[&base]),
        })
        .collect()
}

fn first_files(random: &mut Random) -> Files {
    let mut files = Files::new();
    for _ in 0..4 + random.below(6) {
        let place = any_place(random);
        let content = new_content(random);
        put(&mut files, place, content);
    }
    files
}

fn any_place(random: &mut Random) -> Vec<u8> {
    PLACES[random.below(PLACES.len() as u64) as usize].to_vec()
}

/// Puts a file where nothing can be in its way any more.
fn put(files: &mut Files, place: Vec<u8>, content: (u32, Vec<u8>)) {
    let is_beneath = |inner: &[u8], outer: &[u8]| {
        inner.starts_with(outer) && inner.get(outer.len()) == Some(&b'/')
    };
    files.retain(|known, _| !is_beneath(known, &place) && !is_beneath(&place, known));
    files.insert(place, content);
}

fn new_content(random: &mut Random) -> (u32, Vec<u8>) {
    match random.below(12) {
        0 => (0o120000, format!("to/{}", random.below(4)).into_bytes()),
        1 => (0o100644, [b"\0binary".to_vec(), random.bytes(40)].concat()),
        kind => {
            let lines = 6 + random.below(20);
            let text: String = (0..lines)
                .map(|_| format!("line {}\n", random.below(60)))
                .collect();
            let mode = if kind == 2 { 0o100755 } else { 0o100644 };
            (mode, text.into_bytes())
        }
    }
}

/// `files` after some changes.
fn changed(random: &mut Random, files: &Files, changes: u64) -> Files {
    let mut files = files.clone();
    for _ in 0..changes {
        let known: Vec<Vec<u8>> = files.keys().cloned().collect();
        let Some(path) = known
            .get(random.below(known.len().max(1) as u64) as usize)
            .cloned()
        else {
            put(&mut files, any_place(random), new_content(random));
            continue;
        };
        match random.below(20) {
            0..=8 => edit(random, &mut files, &path),
            9 | 10 => {
                files.remove(&path);
            }
            11..=13 => {
                let content = files.remove(&path).expect("it is one of them");
                let to = match random.below(2) {
                    0 => any_place(random),
                    _ => [&path[..], b".moved"].concat(),
                };
                put(&mut files, to.clone(), content);
                if random.below(2) == 0 {
                    edit(random, &mut files, &to);
                }
            }
            14 => {
                let (mode, _) = files.get_mut(&path).expect("it is one of them");
                *mode = if *mode == 0o100644 {
                    0o100755
                } else {
                    0o100644
                };
            }
            15 => put(&mut files, path, (0o120000, b"elsewhere".to_vec())),
            16 => put(
                &mut files,
                [&path[..], b"/within"].concat(),
                new_content(random),
            ),
            17 => move_directory(random, &mut files, &path),
            _ => put(&mut files, any_place(random), new_content(random)),
        }
    }
    files
}

/// Changes some lines, or some bytes.
fn edit(random: &mut Random, files: &mut Files, path: &[u8]) {
    let Some((mode, content)) = files.get_mut(path) else {
        return;
    };
    if *mode == 0o120000 || content.contains(&0) {
        content.extend_from_slice(format!("{}", random.below(3)).as_bytes());
        return;
    }
    let mut lines: Vec<Vec<u8>> = content
        .split_inclusive(|&byte| byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    for _ in 0..1 + random.below(2) {
        let at = random.below(lines.len() as u64 + 1) as usize;
        let end = (at + random.below(2) as usize).min(lines.len());
        let new = format!("new {}\n", random.below(6)).into_bytes();
        lines.splice(at..end, [new]);
    }
    *content = lines.concat();
}

/// Renames the directory that a file is in.
fn move_directory(random: &mut Random, files: &mut Files, path: &[u8]) {
    let Some(slash) = path.iter().position(|&byte| byte == b'/') else {
        return;
    };
    let directory = path[..=slash].to_vec();
    let to = [&b"moved"[..], format!("{}/", random.below(2)).as_bytes()].concat();
    let moved: Vec<Vec<u8>> = files
        .keys()
        .filter(|known| known.starts_with(&directory))
        .cloned()
        .collect();
    for path in moved {
        let content = files.remove(&path).expect("it was listed");
        put(files, [&to[..], &path[directory.len()..]].concat(), content);
    }
}

/// What `git fast-import` reads.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    marks: u64,
}

impl Stream {
    /// The new commit's mark.
    fn commit(&mut self, files: &Files, parents: &[u64]) -> u64 {
        self.marks += 1;
        let time = 1_700_000_000 + self.marks;
        // A branch of its own each, so that no first parent is taken for granted.
        self.line(&format!("commit refs/heads/b{}", self.marks));
        self.line(&format!("mark :{}", self.marks));
        let message = format!("change {time}\n\nWhy it is.\n");
        self.line(&format!("author Ö <o@example.org> {} +0130", time - 5000));
        self.line(&format!(
            "committer T <t@example.org> {time} +0000\ndata {}\n{message}",
            message.len()
        ));
        for (index, parent) in parents.iter().enumerate() {
            let word = if index == 0 { "from" } else { "merge" };
            self.line(&format!("{word} :{parent}"));
        }
        self.line("deleteall");
        for (path, (mode, content)) in files {
            self.bytes
                .extend_from_slice(format!("M {mode:o} inline ").as_bytes());
            self.bytes.extend_from_slice(path);
            self.line(&format!("\ndata {}", content.len()));
            self.bytes.extend_from_slice(content);
            self.line("");
        }
        self.marks
    }

    fn line(&mut self, line: &str) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.push(b'\n');
    }

    fn import(self, repo: &TestRepo) -> BTreeMap<u64, ObjectId> {
        let marks = repo.root().join("marks");
        let mut command = repo.command("git", repo.dir());
        command
            .args(["fast-import", "--quiet"])
            .arg(format!("--export-marks={}", marks.display()))
            .stdin(Stdio::piped());
        let mut child = command.spawn().expect("git runs");
        child
            .stdin
            .take()
            .expect("it was piped")
            .write_all(&self.bytes)
            .expect("git reads it");
        assert!(child.wait().expect("git ends").success());
        std::fs::read_to_string(marks)
            .expect("git wrote it")
            .lines()
            .map(|line| {
                let (mark, id) = line.split_once(' ').expect("a mark and an id");
                (mark[1..].parse().expect("a number"), id.parse_id())
            })
            .collect()
    }
}
