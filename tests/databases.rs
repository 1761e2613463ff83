//! Databases in a mount while their writers and the daemon are killed: every transaction whose
//! commit returned is there, none is there in part.
//!
//! A failure prints the seed; `TINE_CRASH_SEED=n` uses it again. `TINE_SOAK=1` runs 100 rounds of
//! each.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use support::{
    OutputExt, Random, TestRepo, Tine, require_fuse, require_program, run_with_timeout,
    run_with_timeout_of, soaking,
};

const WRITERS: u32 = 3;
const LIMIT: Duration = Duration::from_secs(120);

fn rounds() -> u64 {
    if soaking() { 100 } else { 2 }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/databases")
        .join(name)
}

fn python(repo: &TestRepo, name: &str, args: &[&str]) -> Command {
    let mut command = repo.command("python3", repo.root());
    command.arg(script(name)).args(args);
    command
}

/// Lets a moment pass, for its own sake: it is when the kill comes.
fn let_pass(random: &mut Random, most_ms: u64) {
    thread::sleep(Duration::from_micros(random.below(most_ms * 1000)));
}

/// A writer in a process of its own, and the last transaction that it says is committed.
struct Writer {
    child: Child,
    acknowledged: thread::JoinHandle<u64>,
    beginning: mpsc::Receiver<()>,
}

impl Writer {
    fn start(mut command: Command) -> Writer {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the writer starts");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (began, beginning) = mpsc::channel();
        let acknowledged = thread::spawn(move || {
            let mut last = 0;
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8(line).expect("numbers are UTF-8");
                // The test harness of a writer in Rust prints lines of its own.
                let Ok(number) = line.parse() else {
                    continue;
                };
                last = number;
                // Received once.
                let _ = began.send(());
            }
            last
        });
        Writer {
            child,
            acknowledged,
            beginning,
        }
    }

    /// Waits for its first commit. Before that the database is being made, and redb writes the
    /// magic number of the file last: one that is killed earlier leaves a file that no redb opens,
    /// on any file system.
    fn wait_for_beginning(&self) {
        // One that ends before shows in what is found.
        let _ = self.beginning.recv_timeout(LIMIT);
    }

    /// Kills it; the last transaction that it acknowledged.
    fn kill(mut self) -> u64 {
        // It may have ended with the daemon.
        let _ = self.child.kill();
        self.child.wait().expect("it can be waited for");
        self.acknowledged.join().expect("its output was read")
    }
}

fn sqlite_survives(journal: &str) {
    let (mut random, seed) = Random::from_environment("TINE_CRASH_SEED");
    eprintln!("TINE_CRASH_SEED={seed}");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let database = mount.join("data.sqlite");
    let database = database.to_str().expect("test directories are UTF-8");
    run_with_timeout(&mut python(&repo, "check.py", &["make", database, journal]))
        .expect_success("make");
    for round in 0..rounds() {
        let writers: Vec<Writer> = (0..WRITERS)
            .map(|number| {
                let (number, seed) = (number.to_string(), random.next().to_string());
                Writer::start(python(
                    &repo,
                    "writer.py",
                    &[database, journal, &number, &seed],
                ))
            })
            .collect();
        // The others wait for their turn.
        writers[0].wait_for_beginning();
        let_pass(&mut random, 300);
        let kills_daemon = round % 2 == 0;
        if kills_daemon {
            tine.kill_daemon();
        }
        let acknowledged: Vec<u64> = writers.into_iter().map(Writer::kill).collect();
        if kills_daemon {
            tine.ok(&["list"]);
        }
        let checked = run_with_timeout_of(
            &mut python(&repo, "check.py", &["check", database]),
            LIMIT,
            b"",
        )
        .expect_success(&format!("round {round}"))
        .text();
        let found: BTreeMap<usize, u64> = checked
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(writer, last)| {
                (
                    writer.parse().expect("a number"),
                    last.parse().expect("a number"),
                )
            })
            .collect();
        for (writer, last) in acknowledged.iter().enumerate() {
            let found = found.get(&writer).copied().unwrap_or(0);
            // The one that was under way may have been committed.
            assert!(
                found >= *last && (*last == 0 || found <= last + 1),
                "round {round}: writer {writer} has {found} of {last} transactions"
            );
        }
    }
}

#[test]
fn sqlite_with_a_write_ahead_log_keeps_every_transaction() {
    require_fuse!();
    require_program!("python3");
    sqlite_survives("wal");
}

#[test]
fn sqlite_with_rollback_journals_keeps_every_transaction() {
    require_fuse!();
    require_program!("python3");
    let journals = ["delete", "truncate", "persist"];
    // One of them is enough for every day.
    let (mut random, _) = Random::from_environment("TINE_CRASH_SEED");
    let first = random.below(journals.len() as u64) as usize;
    let count = if soaking() { journals.len() } else { 1 };
    for journal in journals.iter().cycle().skip(first).take(count) {
        sqlite_survives(journal);
    }
}

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("entries");
/// Where the writer of [`redb_keeps_every_transaction`] finds its database: it is this very
/// program, run again.
const REDB_VARIABLE: &str = "TINE_TEST_REDB";

/// Writes transactions for ever, each of several entries, and says which are committed.
fn write_redb(path: &Path) -> Result<(), redb::Error> {
    let database = Database::create(path)?;
    let mut number = last_transaction(&database)?;
    loop {
        number += 1;
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for part in 0..10 {
                let value = vec![number as u8; (number * 37 + part * 501) as usize % 4000];
                table.insert(number * 10 + part, value.as_slice())?;
                if number > 50 {
                    table.remove((number - 50) * 10 + part)?;
                }
            }
        }
        transaction.commit()?;
        println!("\n{number}");
    }
}

/// The last transaction in the database, which must be whole, and so must be those before it.
fn last_transaction(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(TABLE) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(0),
        table => table?,
    };
    let mut parts: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in table.iter()? {
        let (key, value) = entry?;
        let (number, part) = (key.value() / 10, key.value() % 10);
        assert_eq!(
            value.value().len(),
            (number * 37 + part * 501) as usize % 4000,
            "{number}"
        );
        assert!(
            value.value().iter().all(|byte| *byte == number as u8),
            "{number}"
        );
        *parts.entry(number).or_default() += 1;
    }
    assert!(
        parts.values().all(|count| *count == 10),
        "half a transaction: {parts:?}"
    );
    let last = parts.keys().next_back().copied().unwrap_or(0);
    assert_eq!(
        parts.len() as u64,
        last.min(50),
        "transactions are missing: {parts:?}"
    );
    Ok(last)
}

#[test]
fn redb_keeps_every_transaction() {
    if let Some(path) = std::env::var_os(REDB_VARIABLE) {
        // The writer: it ends when it is killed, or the daemon is.
        write_redb(Path::new(&path)).expect("the database can be written");
        return;
    }
    require_fuse!();
    let (mut random, seed) = Random::from_environment("TINE_CRASH_SEED");
    eprintln!("TINE_CRASH_SEED={seed}");
    let repo = TestRepo::new();
    let tine = Tine::new(&repo);
    let mount = tine.new_fork("demo");
    let path = mount.join("data.redb");
    for round in 0..rounds() {
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command
            .args(["--exact", "redb_keeps_every_transaction", "--nocapture"])
            .env(REDB_VARIABLE, &path);
        let writer = Writer::start(command);
        writer.wait_for_beginning();
        let_pass(&mut random, 300);
        let kills_daemon = round % 2 == 0;
        if kills_daemon {
            tine.kill_daemon();
        }
        let acknowledged = writer.kill();
        if kills_daemon {
            tine.ok(&["list"]);
        }
        let mut database = Database::open(&path).expect("the database opens");
        assert!(
            database.check_integrity().expect("it can be checked"),
            "round {round}"
        );
        let found = last_transaction(&database).expect("the database can be read");
        assert!(acknowledged > 0, "round {round}: nothing was committed");
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "round {round}: {found} of {acknowledged} transactions"
        );
    }
    assert!(fs::metadata(&path).expect("the database is there").len() > 0);
}
