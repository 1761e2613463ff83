//! Files of a store are cut off, changed, lost and mixed up: what is intact goes on, what is not is
//! refused by name, nothing is invented, and the daemon never panics.
//!
//! A failure prints the seed; `TINE_DAMAGE_SEED=n` uses it again. `TINE_SOAK=1` runs 300 rounds.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use support::{
    OutputExt, Random, TestRepo, Tine, force_unmount_beneath, require_fuse, run_with_timeout,
    soaking,
};

const FORKS: [&str; 3] = ["one", "two", "three"];

/// Codes that tell of damage, or of what follows from it.
const KNOWN_CODES: [&str; 20] = [
    "store-damaged",
    "newer-format",
    "corrupt-object",
    "ref-damaged",
    "git-failed",
    // git finds no configuration where `.git` is damaged.
    "no-identity",
    "io",
    "not-mounted",
    "no-such-fork",
    "fork-exists",
    "mount-failed",
    "nothing-to-commit",
    "uncommitted-changes",
    "operation-in-progress",
    "ref-moved",
    // The log of HEAD, by which it is known where the fork left its branch, is damaged.
    "moved-under",
    "index-locked",
    "ref-locked",
    "branch-exists",
    "branch-checked-out",
];

/// What each fork holds: contents by name.
type Files = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone, Copy)]
enum Harm {
    Cut,
    FlipBit,
    Zero,
    Delete,
    Double,
    Append,
    Empty,
    SwapWith,
}

const HARMS: [Harm; 8] = [
    Harm::Cut,
    Harm::FlipBit,
    Harm::Zero,
    Harm::Delete,
    Harm::Double,
    Harm::Append,
    Harm::Empty,
    Harm::SwapWith,
];

impl Harm {
    fn inflict(self, path: &Path, other: &Path, random: &mut Random) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        let at = random.below(len.max(1));
        match self {
            Harm::Cut => file.set_len(at),
            Harm::FlipBit => {
                let mut byte = [0];
                file.read_at(&mut byte, at)?;
                byte[0] ^= 1 << random.below(8);
                file.write_all_at(&byte, at)
            }
            Harm::Zero => {
                let count = (1 + random.below(5_000)).min(len - at.min(len));
                file.write_all_at(&vec![0; count as usize], at)
            }
            Harm::Delete => fs::remove_file(path),
            Harm::Double => {
                let content = fs::read(path)?;
                file.write_all_at(&content, len)
            }
            Harm::Append => {
                let count = 1 + random.below(300);
                file.write_all_at(&random.bytes(count as usize), len)
            }
            Harm::Empty => file.set_len(0),
            Harm::SwapWith => {
                let beside = path.with_extension("swapped");
                fs::rename(path, &beside)?;
                fs::rename(other, path)?;
                fs::rename(&beside, other)
            }
        }
    }
}

/// Files beneath `dir`, sorted.
fn files_beneath(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_beneath(&path)),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found.sort();
    found
}

/// Which parts of layers were harmed.
#[derive(Default)]
struct Harmed {
    contents: bool,
    log: bool,
}

struct Store<'r> {
    repo: &'r TestRepo,
    tine: Tine<'r>,
    contents: BTreeMap<&'static str, Files>,
    /// A copy of the git directory as it was when the daemon had ended.
    whole: PathBuf,
}

impl<'r> Store<'r> {
    fn new(repo: &'r TestRepo, random: &mut Random) -> Store<'r> {
        let tine = Tine::new(repo);
        let mut contents = BTreeMap::new();
        for name in FORKS {
            let dir = tine.new_fork(name).join("work");
            fs::create_dir(&dir).expect("the mount can be written");
            let mut files = Files::new();
            for (number, len) in [0, 10, 3_000, 5_000, 70_000, 200_000]
                .into_iter()
                .enumerate()
            {
                let content = random.bytes(len);
                fs::write(dir.join(format!("file-{number}")), &content)
                    .expect("the mount can be written");
                files.insert(format!("file-{number}"), content);
            }
            contents.insert(name, files);
        }
        tine.ok(&["commit", "two", "-m", "two"]);
        tine.ok(&["daemon", "stop"]);
        let whole = repo.root().join("whole");
        copy(&repo.common_dir(), &whole);
        Store {
            repo,
            tine,
            contents,
            whole,
        }
    }

    fn mount_dir(&self, name: &str) -> PathBuf {
        self.repo.root().join("repo.forks").join(name)
    }

    fn restore(&self) {
        self.tine.kill_daemon();
        force_unmount_beneath(self.repo.root());
        let git_dir = self.repo.dir().join(".git");
        fs::remove_dir_all(&git_dir).expect("nothing is mounted there");
        copy(&self.whole, &git_dir);
    }

    /// Runs a command that may be refused, and checks how; whether it succeeded.
    fn may_refuse(&self, args: &[&str], what: &str) -> bool {
        let output: Output =
            run_with_timeout(&mut self.tine.command(&[args, &["--json"]].concat()));
        let text = output.text();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!(
                "{what}: tine {args:?}: {error} in {text:?}: {}",
                output.error_text()
            )
        });
        if output.status.success() {
            return true;
        }
        let failure = &value["error"];
        let code = failure["code"].as_str().unwrap_or_default();
        assert!(
            KNOWN_CODES.contains(&code),
            "{what}: tine {args:?}: {failure}"
        );
        assert_eq!(
            failure["exit"].as_i64(),
            output.status.code().map(i64::from),
            "{what}: {failure}"
        );
        assert!(
            failure["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty()),
            "{failure}"
        );
        assert!(
            code == "io" || failure["hint"].is_string(),
            "{what}: no way on in {failure}"
        );
        false
    }

    /// Which fork owns a file; `None` where it is everybody's.
    fn owner(&self, path: &Path) -> Option<&'static str> {
        let within = path
            .strip_prefix(self.repo.common_dir())
            .expect("beneath the git directory");
        let mut parts = within.iter().filter_map(|part| part.to_str());
        match (parts.next(), parts.next(), parts.next()) {
            (Some("worktrees"), Some(fork), _) | (Some("tine"), Some("forks"), Some(fork)) => {
                FORKS.into_iter().find(|name| *name == fork)
            }
            // Made in this order.
            (Some("tine"), Some("layers"), Some(id)) => id
                .parse::<usize>()
                .ok()
                .and_then(|id| FORKS.get(id.checked_sub(1)?).copied()),
            _ => None,
        }
    }

    fn assert_log_is_calm(&self, what: &str) {
        let log = self.repo.common_dir().join("tine/daemon.log");
        let text = fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("panicked"), "{what}: {text}");
    }

    /// That a fork which nobody harmed is whole.
    fn assert_whole(&self, name: &str, what: &str) {
        let dir = self.mount_dir(name);
        for (file, content) in &self.contents[name] {
            let found = fs::read(dir.join("work").join(file));
            assert!(
                found.is_ok_and(|found| found == *content),
                "{what}: {file} of {name}"
            );
        }
        self.tine.ok(&["status", name]);
        self.repo.git_in(&dir, &["status"]);
        fs::write(dir.join("new"), "more")
            .unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
    }

    /// That a harmed fork shows nothing that was not written: where its contents themselves were
    /// harmed, nothing longer. What the end of a log let go of is zeroes once that end is cut off:
    /// nothing tells it from an end that was never written.
    fn assert_invents_nothing(&self, name: &str, harmed: &Harmed, what: &str) {
        let Ok(entries) = fs::read_dir(self.mount_dir(name).join("work")) else {
            return;
        };
        for entry in entries.flatten() {
            let mut found = Vec::new();
            let read =
                fs::File::open(entry.path()).and_then(|mut file| file.read_to_end(&mut found));
            if read.is_err() {
                continue;
            }
            let file = entry
                .file_name()
                .into_string()
                .expect("the names are UTF-8");
            let wanted = self.contents[name]
                .get(&file)
                .unwrap_or_else(|| panic!("{what}: {file} was never there"));
            // It was written at once, after it was made empty.
            let is_zeroes = found.iter().all(|byte| *byte == 0);
            let is_known = found.is_empty()
                || found == *wanted
                || found.len() == wanted.len() && (harmed.contents || harmed.log && is_zeroes);
            assert!(
                is_known,
                "{what}: {file} of {name} has {} bytes of {}",
                found.len(),
                wanted.len()
            );
        }
    }
}

fn copy(from: &Path, to: &Path) {
    run_with_timeout(std::process::Command::new("cp").arg("-a").arg(from).arg(to))
        .expect_success("cp");
}

#[test]
fn a_damaged_store_shows_what_is_intact_or_says_what_is_damaged() {
    require_fuse!();
    let (mut random, seed) = Random::from_environment("TINE_DAMAGE_SEED");
    eprintln!("TINE_DAMAGE_SEED={seed}");
    let repo = TestRepo::new();
    let store = Store::new(&repo, &mut random);
    let rounds = if soaking() { 300 } else { 10 };
    for round in 0..rounds {
        store.restore();
        let candidates: Vec<PathBuf> = ["tine", "worktrees"]
            .iter()
            .flat_map(|dir| files_beneath(&repo.common_dir().join(dir)))
            .collect();
        let pick = |random: &mut Random| {
            candidates[random.below(candidates.len() as u64) as usize].clone()
        };
        let path = pick(&mut random);
        let others: Vec<&PathBuf> = candidates.iter().filter(|other| **other != path).collect();
        let other = others[random.below(others.len() as u64) as usize].clone();
        let harm = HARMS[random.below(HARMS.len() as u64) as usize];
        let what = format!(
            "round {round}: {harm:?} {} (and {})",
            path.display(),
            other.display()
        );
        harm.inflict(&path, &other, &mut random)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let harmed: Vec<&Path> = match harm {
            Harm::SwapWith => vec![&path, &other],
            _ => vec![&path],
        };
        let owners: Vec<Option<&str>> = harmed.iter().map(|path| store.owner(path)).collect();
        let of_layers = harmed
            .iter()
            .map(|path| path.to_str().expect("the paths are UTF-8"))
            .filter(|text| text.contains("/layers/"));
        let parts = of_layers.fold(Harmed::default(), |parts, text| Harmed {
            contents: parts.contents || text.ends_with("/data") || text.contains("/files/"),
            log: parts.log || text.ends_with("/log"),
        });

        let opens = store.may_refuse(&["list"], &what);
        assert!(
            opens || owners.contains(&None),
            "{what}: one fork keeps the others from being listed"
        );
        for name in FORKS {
            match opens && !owners.contains(&Some(name)) {
                true => store.assert_whole(name, &what),
                false => store.assert_invents_nothing(name, &parts, &what),
            }
        }
        for name in FORKS
            .into_iter()
            .filter(|name| owners.contains(&Some(*name)))
        {
            for args in [
                &["path", name][..],
                &["status", name],
                &["log", name],
                &["mount", name],
                &["commit", name, "-m", "what is left"],
                &["unmount", name, "--keep"],
                &["mount", name],
                &["delete", name],
            ] {
                store.may_refuse(args, &what);
            }
            store.assert_invents_nothing(name, &parts, &what);
            // Whatever else is wrong with it, it can be got rid of.
            let delete = || run_with_timeout(&mut store.tine.command(&["delete", "--force", name]));
            let mut deleted = delete();
            // With two records damaged, nobody knows whose the layers are.
            if deleted
                .error_text()
                .contains("`tine check --repair` sets both aside")
            {
                store.may_refuse(&["check", "--repair"], &what);
                deleted = delete();
            }
            // A fork without a HEAD is not deleted: what is in its layer could not be kept.
            let told = deleted.error_text();
            let is_headless = told.contains(&format!("worktrees/{name}/HEAD is damaged"));
            let is_gone = deleted.status.success() || deleted.status.code() == Some(4);
            assert!(
                is_gone || is_headless || !opens,
                "{what}: {name} stays: {told}"
            );
        }
        store.may_refuse(&["daemon", "stop", "--force"], &what);
        store.assert_log_is_calm(&what);
    }
    store.restore();
}
