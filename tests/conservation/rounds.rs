//! Who has two agents work in rounds.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::marks::{Kind, word};
use crate::plan::Step;
use crate::world::{Answer, World};

const AGENTS: &str = "x,y";

pub struct Rounds<'w> {
    world: &'w World<'w>,
    number: usize,
}

impl<'w> Rounds<'w> {
    pub fn new(world: &'w World<'w>, number: usize) -> Rounds<'w> {
        Rounds { world, number }
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::RoundStart => drop(self.round(&["start", "--agents", AGENTS])),
            Step::RoundWork(agent) => self.write(agent, Kind::File),
            Step::RoundScratch(agent) => self.write(agent, Kind::Scratch),
            Step::RoundFinish(all) => {
                let args: &[&str] = if all {
                    &["finish"]
                } else {
                    &["finish", "--agent", "x"]
                };
                self.round(args);
            }
            Step::RoundPresent => drop(self.round(&["present", "--winner", "x"])),
            Step::RoundMerge => drop(self.round(&["merge", "--agents", AGENTS, "--into", "main"])),
            Step::RoundClean(force) => {
                let args: &[&str] = if force {
                    &["clean", "--force"]
                } else {
                    &["clean"]
                };
                if self.round(args).done.maybe() && force {
                    let own = self.number;
                    self.world.marks.change_where(
                        |mark| mark.actor == own,
                        |mark| match mark.kind {
                            Kind::Scratch => mark.released = true,
                            // `tine recover` has it.
                            _ => mark.taken_back = true,
                        },
                    );
                }
            }
            other => panic!("no step of rounds: {other:?}"),
        }
    }

    fn round(&self, args: &[&str]) -> Answer {
        let args = [&["round"], args].concat();
        self.world
            .tine(self.number, self.world.repo.dir(), &args, b"")
    }

    /// A program writes in an agent's seat.
    fn write(&self, agent: u8, kind: Kind) {
        let shown = self.round(&["show"]).value;
        let seat = &shown["agents"][usize::from(agent)]["seat"];
        let (Some(fork), true) = (seat["fork"].as_str(), seat["mounted"] == Value::Bool(true))
        else {
            return;
        };
        let id = self.world.mark(self.number, kind, Some(fork), "");
        let path = match kind {
            Kind::Scratch => PathBuf::from(".scratch").join(word(id)),
            _ => PathBuf::from("w-rounds").join(word(id)),
        };
        let written = self.world.entered(fork).and_then(|root| {
            let path = root.path().join(&path);
            fs::create_dir_all(path.parent().expect("it has one"))?;
            fs::write(path, format!("{}\n", word(id)))
        });
        self.world.marks.change(id, |mark| {
            mark.path = path.to_string_lossy().into_owned();
            mark.acknowledged = written.is_ok();
        });
        self.world.say(
            self.number,
            &format!("{} in {fork}:{}: {written:?}", word(id), path.display()),
        );
    }
}
