//! Random typing, saving, writing and renaming against a model.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use super::support::{Random, SayWhich, TestFork, require_fuse, soaking};
use super::{end, overlaid, path, repo, type_text};

const SEED: &str = "TINE_OVERLAY_SEED";
const PATHS: [&str; 5] = [
    "notes.txt",
    "src/deep/code.txt",
    "src/other.txt",
    "lib/code.txt",
    "src/notes.txt",
];

/// What is saved, by file, and which path leads to which file; what is shown, by path.
#[derive(Default)]
struct Model {
    files: Vec<String>,
    names: BTreeMap<&'static str, usize>,
    texts: BTreeMap<&'static str, String>,
}

impl Model {
    fn saved(&self, at: &str) -> Option<&String> {
        self.files.get(*self.names.get(at)?)
    }

    fn read(&self, at: &str) -> Option<&String> {
        let saved = self.saved(at)?;
        Some(self.texts.get(at).unwrap_or(saved))
    }

    fn save(&mut self, at: &'static str, text: String) {
        match self.names.get(at) {
            Some(file) => self.files[*file] = text,
            None => self.replace(at, text),
        }
    }

    fn replace(&mut self, at: &'static str, text: String) {
        self.files.push(text);
        self.names.insert(at, self.files.len() - 1);
    }
}

fn any_text(random: &mut Random) -> String {
    let len = match random.below(10) {
        0 => 0,
        1 => random.below(300_000),
        _ => random.below(200),
    };
    let letter = char::from(b'a' + random.below(26) as u8);
    letter.to_string().repeat(len as usize)
}

fn any_path(random: &mut Random) -> &'static str {
    PATHS[random.below(PATHS.len() as u64) as usize]
}

fn step(random: &mut Random, fork: &TestFork, model: &mut Model) -> String {
    let at = any_path(random);
    let file = |at: &str| -> PathBuf { fork.path().join(at) };
    let text = any_text(random);
    let is_there = model.names.contains_key(at);
    match random.below(12) {
        0..4 => {
            type_text(fork, at, &text);
            let said = format!("type {} bytes at {at}", text.len());
            model.texts.insert(at, text);
            said
        }
        4 => {
            end(fork, at);
            model.texts.remove(at);
            format!("end {at}")
        }
        5 => {
            // As an editor that saves.
            let Some(text) = model.texts.get(at).cloned() else {
                return "nothing".into();
            };
            fs::write(file(at), &text).unwrap();
            end(fork, at);
            model.texts.remove(at);
            model.save(at, text);
            format!("save {at}")
        }
        6 => {
            fs::write(file(at), &text).unwrap();
            let said = format!("write {} bytes to {at}", text.len());
            model.save(at, text);
            said
        }
        7 if is_there => {
            let mut open = OpenOptions::new().append(true).open(file(at)).unwrap();
            open.write_all(text.as_bytes()).unwrap();
            let longer = model.saved(at).unwrap().clone() + &text;
            model.save(at, longer);
            format!("append to {at}")
        }
        8 => {
            let temporary = file("temporary");
            fs::write(&temporary, &text).unwrap();
            fs::rename(&temporary, file(at)).unwrap();
            model.replace(at, text);
            format!("replace {at}")
        }
        9 if is_there => {
            let to = any_path(random);
            fs::rename(file(at), file(to)).unwrap();
            if model.names[at] != model.names.get(to).copied().unwrap_or(usize::MAX) {
                let moved = model.names.remove(at).unwrap();
                model.names.insert(to, moved);
            }
            format!("rename {at} to {to}")
        }
        10 if is_there => {
            fs::remove_file(file(at)).unwrap();
            model.names.remove(at);
            format!("remove {at}")
        }
        11 => {
            let put = tine::workspace::Caller::ROOT;
            fork.workspace()
                .write_path(put, &path(at), text.as_bytes())
                .unwrap();
            model.save(at, text);
            format!("a tool writes {at}")
        }
        _ => "nothing".into(),
    }
}

#[test]
fn readers_see_the_text_and_git_what_is_saved_after_every_step() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment(SEED);
    let _say = SayWhich(SEED, seed);
    let repo = repo();
    let fork = overlaid(&repo, "one");
    fs::create_dir(fork.path().join("lib")).unwrap();
    let mut model = Model::default();
    for at in ["notes.txt", "src/deep/code.txt"] {
        model.replace(at, super::SAVED.to_owned());
    }
    let steps = if soaking() { 20_000 } else { 600 };
    let mut log = Vec::new();
    for number in 0..steps {
        log.push(step(&mut random, &fork, &mut model));
        let recent = || log[log.len().saturating_sub(8)..].join(", ");
        for at in PATHS {
            let file = fork.path().join(at);
            let read = fs::read_to_string(&file).ok();
            assert!(
                read.as_ref() == model.read(at),
                "{at} is read otherwise after {}",
                recent()
            );
            let size = file.metadata().ok().map(|meta| meta.len());
            assert_eq!(
                size,
                read.map(|text| text.len() as u64),
                "{at} after {}",
                recent()
            );
            let saved = fork.workspace().read_path(&path(at)).ok();
            assert!(
                saved.as_deref() == model.saved(at).map(String::as_bytes),
                "{at} holds something else after {}",
                recent()
            );
        }
        if number % 10 == 0 {
            let at = any_path(&mut random);
            let added = repo.try_git_in(fork.path(), &["add", "-A"]);
            assert!(added.status.success(), "{added:?} after {}", recent());
            let found = repo.try_git_in(fork.path(), &["show", &format!(":{at}")]);
            let recorded = found.status.success().then_some(found.stdout);
            assert!(
                recorded.as_deref() == model.saved(at).map(String::as_bytes),
                "git recorded something else of {at} after {}",
                recent()
            );
        }
    }
}
