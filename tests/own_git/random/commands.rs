//! The commands that are chosen from, and what each makes of the refs.

use std::path::{Path, PathBuf};

use super::model::{Change, Expected, FORKS, MAIN, Model};
use crate::support::Random;

/// A shell script at a place.
pub struct Command {
    pub place: usize,
    pub script: String,
    pub change: Change,
    pub may_fail: bool,
    /// True if it runs `tine` in the main checkout.
    pub is_tine: bool,
}

impl Command {
    fn new(place: usize, script: impl Into<String>) -> Command {
        Command {
            place,
            script: script.into(),
            change: Change::nothing(place),
            may_fail: false,
            is_tine: false,
        }
    }

    fn tine(script: impl Into<String>) -> Command {
        Command {
            is_tine: true,
            ..Command::new(MAIN, script)
        }
    }

    fn sets(mut self, name: &str, id: Option<&String>) -> Command {
        let expected = Expected::Exactly(id.cloned());
        self.change.refs.insert(name.to_owned(), expected);
        self
    }

    fn moves(mut self, name: &str) -> Command {
        // Nothing moves but HEAD itself where that is detached.
        if !name.is_empty() {
            let refs = &mut self.change.refs;
            refs.insert(name.to_owned(), Expected::Anything);
        }
        self
    }

    fn sets_in_main(mut self, name: &str, id: &str) -> Command {
        let expected = Expected::Exactly(Some(id.to_owned()));
        self.change.in_main.insert(name.to_owned(), expected);
        self
    }

    fn goes_to(mut self, head: &str) -> Command {
        self.change.head = Some(head.to_owned());
        self
    }

    fn may_fail(mut self) -> Command {
        self.may_fail = true;
        self
    }
}

/// Names for branches, of which some are the main repository's, too.
const BRANCHES: [&str; 6] = ["topic", "x/y", "d", "d/e", "tine/one", "tine/two"];
const TAGS: [&str; 3] = ["v1", "v2", "w/v3"];

fn choose<'a>(random: &mut Random, names: &[&'a str]) -> &'a str {
    names[random.below(names.len() as u64) as usize]
}

/// A commit, or another command that moves the branch of a fork.
pub fn that_moves(random: &mut Random, model: &Model, main: &Path) -> Command {
    let place = random.below(FORKS.len() as u64) as usize;
    let number = [0, 0, 1, 12, 14, 19][random.below(6) as usize];
    numbered(number, random, model, place, main)
}

pub fn in_fork(random: &mut Random, model: &Model, place: usize, main: &Path) -> Command {
    let number = random.below(34);
    numbered(number, random, model, place, main)
}

fn numbered(number: u64, random: &mut Random, model: &Model, place: usize, main: &Path) -> Command {
    let fork = &model.forks[place];
    let seen = model.seen(place);
    let n = random.below(1_000_000);
    let file = random.below(8);
    let write = format!("git reset -q --hard; echo {n} > f{file}");
    let branch = choose(random, &BRANCHES);
    let full = format!("refs/heads/{branch}");
    let tag = choose(random, &TAGS);
    let full_tag = format!("refs/tags/{tag}");
    let head = fork.head.clone();
    let head_id = fork.head_id.clone();
    let main = main.display();
    let new = |script: String| Command::new(place, script);
    match number {
        0 => new(format!("{write}; git add -A; git commit -qm c{n}")).moves(&head),
        1 => new(format!("git commit -q --amend --allow-empty -m a{n}")).moves(&head),
        2 => new(format!("git branch -f {branch} HEAD"))
            .sets(&full, Some(&head_id))
            .may_fail(),
        3 => new(format!("git branch -D {branch}"))
            .sets(&full, None)
            .may_fail(),
        4 => {
            let renamed = format!("renamed-{n}");
            let command = new(format!("git branch -m {branch} {renamed}"))
                .sets(&full, None)
                .sets(&format!("refs/heads/{renamed}"), seen.get(&full))
                .may_fail();
            if head == full {
                command.goes_to(&format!("refs/heads/{renamed}"))
            } else {
                command
            }
        }
        5 => new(format!("git tag -f {tag} HEAD")).sets(&full_tag, Some(&head_id)),
        6 => new(format!("git tag -f -a -m t{n} {tag} HEAD")).moves(&full_tag),
        7 => new(format!("git tag -d {tag}"))
            .sets(&full_tag, None)
            .may_fail(),
        8 | 9 => new(format!("git reset -q --hard; git switch -q --no-guess {branch}"))
            .goes_to(&full)
            .may_fail(),
        10 => {
            let made = format!("refs/heads/made-{n}");
            new(format!("git switch -q -c made-{n}"))
                .sets(&made, Some(&head_id))
                .goes_to(&made)
        }
        11 => new("git switch -q --detach".to_owned()).goes_to(""),
        12 => new("git reset -q --hard HEAD~1".to_owned())
            .moves(&head)
            .may_fail(),
        13 => new("git reset -q --soft HEAD~1".to_owned())
            .moves(&head)
            .may_fail(),
        14 => new(format!("{write}; echo {n} > untracked; git stash -q -u")).moves("refs/stash"),
        15 => new("git reset -q --hard; rm -f untracked; git stash pop -q".to_owned())
            .moves("refs/stash")
            .may_fail(),
        16 => {
            let entry = random.below(2);
            new(format!("git stash drop -q stash@{{{entry}}}"))
                .moves("refs/stash")
                .may_fail()
        }
        17 => new(format!(
            "git reset -q --hard; git merge -q -X theirs -m m{n} {branch} || {{ git merge --abort; exit 1; }}"
        ))
        .moves(&head)
        .may_fail(),
        18 => new(format!(
            "git reset -q --hard; git rebase -q -X theirs {branch} || {{ git rebase --abort; exit 1; }}"
        ))
        .moves(&head)
        .may_fail(),
        19 => {
            let id = Some(&head_id);
            new("printf 'update refs/heads/u1 %s\\nupdate refs/custom/u2 %s\\nupdate refs/tags/u3 %s\\n' $(git rev-parse HEAD HEAD HEAD) | git update-ref --stdin".to_owned())
                .sets("refs/heads/u1", id)
                .sets("refs/custom/u2", id)
                .sets("refs/tags/u3", id)
                .may_fail()
        }
        20 => new("printf 'delete refs/heads/u1\\ndelete refs/custom/u2\\n' | git update-ref --stdin".to_owned())
            .sets("refs/heads/u1", None)
            .sets("refs/custom/u2", None)
            .may_fail(),
        21 => new("git pack-refs --all --prune".to_owned()),
        22 => new("git gc -q".to_owned()),
        23 => new("git gc -q --prune=now".to_owned()),
        24 => new("git repack -adq".to_owned()),
        25 => new(format!("git notes add -f -m n{n}")).moves("refs/notes/commits"),
        26 => {
            let to = format!("refs/heads/from-{}", FORKS[place]);
            new(format!("git push -q -f '{main}' HEAD:{to}")).sets_in_main(&to, &head_id)
        }
        27 => new(format!(
            "git fetch -q --no-tags '{main}' +refs/heads/main:refs/remotes/up/main"
        ))
        .sets("refs/remotes/up/main", model.main.get("refs/heads/main")),
        28 => {
            let name = format!("wt-{n}");
            new(format!(
                "git worktree add -q -b {name} ../../{name}-{} HEAD; cd ../../{name}-*; echo {n} > f1; git add -A; git commit -qm {name}; cd - > /dev/null; git worktree remove --force ../../{name}-*",
                FORKS[place]
            ))
            .moves(&format!("refs/heads/{name}"))
        }
        29 => new(format!("echo {n} > staged; git add staged")),
        // What only the main repository has is kept within a second.
        30 => new(format!(
            "id=$(echo {n} | git -C '{main}' hash-object -w --stdin); git update-index --add --cacheinfo 100644,$id,given; sleep 1"
        )),
        31 => new(format!(
            "id=$(git -C '{main}' commit-tree -p main -m dangling-{n} main^{{tree}}); git update-ref refs/custom/given $id"
        ))
        .moves("refs/custom/given"),
        32 => new(format!(
            "git reset -q --hard; git cherry-pick --allow-empty --keep-redundant-commits -X theirs {branch} > /dev/null || {{ git cherry-pick --abort; exit 1; }}"
        ))
        .moves(&head)
        .may_fail(),
        _ => new("git reset -q --hard; git revert --no-edit HEAD > /dev/null || { git revert --abort; exit 1; }".to_owned())
            .moves(&head)
            .may_fail(),
    }
}

/// A command in the main checkout.
pub fn in_main(random: &mut Random, model: &Model, dirs: &[PathBuf; 2]) -> Command {
    let n = random.below(1_000_000);
    let branch = choose(random, &["topic", "x/y", "main-only"]);
    let full = format!("refs/heads/{branch}");
    let head = model.main_head.clone();
    let head_id = model.main.get(&head).cloned();
    let tag = choose(random, &TAGS);
    let place = random.below(2) as usize;
    let fork = FORKS[place];
    let new = |script: String| Command::new(MAIN, script);
    match random.below(16) {
        0 | 1 => new(format!(
            "echo {n} > m{}; git add -A; git commit -qm m{n}",
            n % 5
        ))
        .moves(&head),
        2 => new(format!("git branch -f {branch} HEAD"))
            .sets(&full, head_id.as_ref())
            .may_fail(),
        3 => new(format!("git branch -D {branch}"))
            .sets(&full, None)
            .may_fail(),
        4 => new(format!("git branch -D tine/{fork}"))
            .sets(&format!("refs/heads/tine/{fork}"), None)
            .may_fail(),
        5 => new(format!("git tag -f {tag} HEAD"))
            .sets(&format!("refs/tags/{tag}"), head_id.as_ref()),
        6 => new(format!("git switch -q tine/{fork}"))
            .goes_to(&format!("refs/heads/tine/{fork}"))
            .may_fail(),
        7 | 8 => new("git switch -q main".to_owned()).goes_to("refs/heads/main"),
        9 => new("git gc -q --prune=now".to_owned()),
        10 => new("git pack-refs --all --prune".to_owned()),
        11 => new("git repack -adfq".to_owned()),
        12 => new("git prune --expire=now".to_owned()),
        13 => {
            let from = dirs[place].display();
            let mut command = new(format!(
                "git fetch -q --no-tags '{from}' '+refs/heads/*:refs/remotes/{fork}/*'"
            ));
            // A name may have become a directory, or the reverse.
            command.may_fail = true;
            for (name, id) in model.seen(place) {
                if let Some(name) = name.strip_prefix("refs/heads/") {
                    command = command.sets(&format!("refs/remotes/{fork}/{name}"), Some(&id));
                }
            }
            command
        }
        14 => new(format!("git update-ref refs/heads/tine/{fork} HEAD"))
            .sets(&format!("refs/heads/tine/{fork}"), head_id.as_ref()),
        _ => new("git reflog expire --expire=now --all".to_owned()),
    }
}

/// Commands of both forks and of the main repository, for the same time.
pub fn together(random: &mut Random, model: &Model, main: &Path) -> Vec<Command> {
    let mut commands: Vec<Command> = (0..FORKS.len())
        .map(|place| {
            let number = [0, 0, 1, 14, 19, 21, 23, 24, 25][random.below(9) as usize];
            numbered(number, random, model, place, main)
        })
        .collect();
    let script = choose(
        random,
        &[
            "git gc -q --prune=now",
            "git pack-refs --all --prune",
            "git repack -adfq",
            "git repack -adq; git prune --expire=now",
            "git prune --expire=now",
        ],
    );
    commands.push(Command::new(MAIN, script));
    commands
}

/// A command of tine.
pub fn of_tine(random: &mut Random, model: &Model) -> Command {
    let place = random.below(2) as usize;
    let (fork, other) = (FORKS[place], FORKS[1 - place]);
    let n = random.below(1_000_000);
    let head = model.forks[place].head.clone();
    let moving = |script: String| {
        let mut command = Command::tine(script).may_fail();
        command.change = Change::nothing(place);
        command.moves(&head)
    };
    let branch_left = |name: String, script: String| {
        let mut command = Command::tine(script);
        let in_main = &mut command.change.in_main;
        in_main.insert(name, Expected::Anything);
        command
    };
    match random.below(8) {
        0 | 1 => moving(format!(
            "echo {n} > $(tine list --json > /dev/null; echo ../repo.forks/{fork})/f2; tine commit {fork} -m t{n}"
        )),
        2 => Command::tine(format!(
            "tine snapshot {fork} s{n}; tine restore {fork} s{n}"
        ))
        .may_fail(),
        3 => moving(format!("tine merge {other} --into {fork}")),
        4 => moving(format!("tine update {fork}")),
        5 => Command::tine(format!("tine unmount {fork}; tine mount {fork}")),
        6 => branch_left(
            format!("refs/heads/tine/sub-{n}"),
            format!(
                "tine new sub-{n} --from-fork {fork} --git own; tine delete --force sub-{n}; tine recover > /dev/null"
            ),
        ),
        _ => Command::tine(format!("tine status {fork}; tine log {fork}")),
    }
}
