//! A person in the main checkout, with git.

use std::collections::BTreeSet;
use std::fs;

use crate::marks::{Kind, MarkId, word};
use crate::oracle::Failure;
use crate::plan::Step;
use crate::world::World;

pub struct User<'w> {
    world: &'w World<'w>,
    number: usize,
}

impl<'w> User<'w> {
    pub fn new(world: &'w World<'w>, number: usize) -> User<'w> {
        User { world, number }
    }

    pub fn step(&mut self, step: Step) {
        let dir = self.world.repo.dir();
        match step {
            Step::MainWrite => {
                let id = self.world.mark(self.number, Kind::File, None, "");
                let path = format!("u/{}", word(id));
                self.world
                    .marks
                    .change(id, |mark| mark.path.clone_from(&path));
                self.touches(&path);
                let written = fs::create_dir_all(dir.join("u"))
                    .and_then(|()| fs::write(dir.join(&path), format!("{}\n", word(id))));
                self.acknowledge(id, written.is_ok());
            }
            Step::MainLine(file) => {
                let path = format!("shared/f{file}");
                let id = self.world.mark(self.number, Kind::Line, None, &path);
                self.touches(&path);
                let line = format!("a{}: ", self.number);
                let Ok(text) = fs::read_to_string(dir.join(&path)) else {
                    return;
                };
                let text = text.replacen(&line, &format!("{line}{} ", word(id)), 1);
                self.acknowledge(
                    id,
                    fs::write(dir.join(&path), &text).is_ok() && text.contains(&word(id)),
                );
            }
            Step::MainRemove => {
                let own = |path: &str| dir.join(path).exists();
                let newest = self.world.marks.newest(|mark| {
                    mark.actor == self.number
                        && mark.kind == Kind::File
                        && !mark.released
                        && own(&mark.path)
                });
                if let Some(id) = newest {
                    let path = self.world.marks.get(id).path;
                    self.touches(&path);
                    self.world.marks.change(id, |mark| mark.released = true);
                    // Somebody else's merge may have it in hand.
                    let _ = fs::remove_file(dir.join(path));
                }
            }
            Step::MainCommit(all) => {
                let touched = self
                    .world
                    .touched_in_main
                    .lock()
                    .expect("no holder panics")
                    .clone();
                let staged = match all {
                    true => self.git(&["add", "-A"]),
                    false => self.git(&["add", "-A", "u", "shared"]),
                };
                if staged && self.git(&["commit", "-q", "-m", "the person's"]) && touched.is_some()
                {
                    self.settle(Some(BTreeSet::new()));
                }
            }
            Step::MainSwitch(away) => {
                let switched = match away {
                    true => {
                        self.git_alone(&["switch", "-q", "u0"])
                            || self.git_alone(&["switch", "-q", "-c", "u0"])
                    }
                    false => self.git_alone(&["switch", "-q", "main"]),
                };
                if !switched {
                    self.settle(None);
                }
            }
            Step::MainMerge => {
                if !self.git_alone(&["merge", "-q", "-m", "the person's merge", "u0"]) {
                    self.git_alone(&["merge", "--abort"]);
                    self.settle(None);
                }
            }
            Step::MainStash => drop(self.git_alone(&["stash", "push", "-q", "-u"])),
            Step::MainUnstash => {
                // What is restored is uncommitted again.
                self.settle(None);
                if !self.git_alone(&["stash", "pop", "-q"]) {
                    // Both sides of a conflict are in the file, between markers.
                    self.git(&["add", "-A"]);
                }
            }
            other => panic!("no step of a person's: {other:?}"),
        }
    }

    fn git(&self, args: &[&str]) -> bool {
        self.world.git(self.number, self.world.repo.dir(), args)
    }

    fn git_alone(&self, args: &[&str]) -> bool {
        self.world
            .git_alone(self.number, self.world.repo.dir(), args)
    }

    fn acknowledge(&self, id: MarkId, written: bool) {
        self.world
            .marks
            .change(id, |mark| mark.acknowledged = written);
        self.world
            .say(self.number, &format!("{} written: {written}", word(id)));
        if !written {
            self.world.fail(Failure::Strange(format!(
                "{} cannot be written in the main checkout",
                word(id)
            )));
        }
    }

    fn touches(&self, path: &str) {
        if let Some(touched) = &mut *self.world.touched_in_main.lock().expect("no holder panics") {
            touched.insert(path.to_owned());
        }
    }

    fn settle(&self, touched: Option<BTreeSet<String>>) {
        *self.world.touched_in_main.lock().expect("no holder panics") = touched;
    }
}
