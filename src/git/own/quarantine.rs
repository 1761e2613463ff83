//! Quarantine of the objects that are being taken over.
//!
//! ```text
//! <main>/objects/tine-incoming-<fork>/
//!   objects/   pack that git checks, with the main repository's objects as alternates
//!   loose/     the same objects as files, if they are few; then they are taken, not the pack
//!   stage/     private copies of loose objects and packs, if they do not fit into memory
//!   taken      ids that are in the main repository, and may leave the own git directory
//! ```
//!
//! git programs see these directories, never the own git directory. What a process that died left
//! here is removed by the next one.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use gix::ObjectId;
use gix::zlib::Compression;

use super::held::HeldSet;
use super::object::{Content, encode_pack};
use super::tips::loose_file;
use crate::refs::sync_if_there;
use crate::{GitError, Repository, program};
use tine_sys::file;
use tine_sys::parallel::disk_work;

/// Minimum number of objects that are added as a pack.
///
/// git's `transfer.unpackLimit` is 100, but each file here is synced.
pub(super) const PACK_LIMIT: usize = 50;

/// Faults that git's rules name, and that do no harm.
///
/// Old tools wrote such commits and trees, and a fork that fetches their histories is taken over as
/// `git fetch` takes them.
const HARMLESS_FAULTS: &[&str] = &[
    "badTimezone",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "zeroPaddedFilemode",
];

/// Number of attempts to move a file while directories go missing.
const MOVE_ATTEMPTS: usize = 8;

/// Directory for incoming objects beside those of the main repository.
pub(super) struct Quarantine<'r> {
    main: &'r Repository,
    fork: &'r str,
    dir: PathBuf,
}

/// Result of a check by git: the inner error is git's reason in one line.
pub(super) type Checked<T> = Result<Result<T, String>, GitError>;

impl<'r> Quarantine<'r> {
    /// Returns the fork's quarantine, which need not exist.
    pub(super) fn of(main: &'r Repository, fork: &'r str) -> Quarantine<'r> {
        let name = format!("objects/tine-incoming-{fork}");
        Quarantine {
            main,
            fork,
            dir: main.common_dir().join(name),
        }
    }

    pub(super) fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// Creates it empty, without what an earlier process left.
    pub(super) fn create(&self) -> Result<(), GitError> {
        self.remove()?;
        for part in ["objects/info", "objects/pack", "loose"] {
            let part = self.dir.join(part);
            fs::create_dir_all(&part).map_err(GitError::io("create", &part))?;
        }
        let alternates = self.dir.join("objects/info/alternates");
        fs::write(&alternates, "../..\n").map_err(GitError::io("write", &alternates))
    }

    /// Removes it with all its content.
    pub(super) fn remove(&self) -> Result<(), GitError> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(GitError::io("remove", &self.dir)(error))
            }
            _ => Ok(()),
        }
    }

    /// Returns the directory of private copies, which it creates.
    pub(super) fn stage(&self) -> Result<PathBuf, GitError> {
        let stage = self.dir.join("stage");
        let pack = stage.join("pack");
        fs::create_dir_all(&pack).map_err(GitError::io("create", &pack))?;
        Ok(stage)
    }

    /// Returns a git command for the objects in `part`.
    fn git(&self, part: &str) -> Command {
        let mut command = program::command(self.main.common_dir());
        command
            .env("GIT_DIR", self.main.common_dir())
            .env("GIT_OBJECT_DIRECTORY", self.dir.join(part))
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            // Everything is synced together at the end.
            .args(["-c", "core.fsync=none", "-c", "gc.auto=0"]);
        command
    }

    /// Writes `files` as loose objects, whose contents `objects` git checks.
    pub(super) fn check_loose(
        &self,
        objects: &[Content],
        files: &[(ObjectId, Vec<u8>)],
    ) -> Checked<()> {
        let pack = encode_pack(self.main.hash_kind(), objects, Compression::NONE)?;
        if let Err(reason) = run(&mut self.index_pack()?, &pack)? {
            return Ok(Err(reason));
        }
        let objects = self.main.common_dir().join("objects");
        let mode = fs::metadata(&objects)
            .map_err(GitError::io("read", &objects))?
            .mode();
        // Objects are read-only, for those who may see the directory.
        let permissions = Permissions::from_mode(mode & 0o444);
        for (id, raw) in files {
            let path = self.dir.join("loose").join(id.to_string());
            let written = fs::File::create(&path).and_then(|mut file| {
                file.write_all(raw)?;
                file.set_permissions(permissions.clone())
            });
            written.map_err(GitError::io("write", &path))?;
        }
        Ok(Ok(()))
    }

    /// Writes `objects` as a pack, which git checks.
    pub(super) fn check_pack(&self, objects: &[Content]) -> Checked<()> {
        let pack = encode_pack(self.main.hash_kind(), objects, Compression::DEFAULT)?;
        run(&mut self.index_pack()?, &pack).map(|done| done.map(drop))
    }

    /// Returns the git command that checks a pack from its standard input.
    ///
    /// # Errors
    /// If the configuration cannot be read.
    fn index_pack(&self) -> Result<Command, GitError> {
        let mut index = self.git("objects");
        index.args(["index-pack", "--stdin"]);
        // `--strict` refuses objects that need others which a partial clone's remote has.
        let check = if self.main.promisor_remote().is_none() {
            "--strict"
        } else {
            "--fsck-objects"
        };
        index.arg(format!("{check}={}", self.severities()?));
        Ok(index)
    }

    /// Returns the severity of each fault, for `git index-pack --strict=`.
    ///
    /// The main repository's `receive.fsck.*` decides, as for a push.
    fn severities(&self) -> Result<String, GitError> {
        let mut severities: Vec<String> = HARMLESS_FAULTS
            .iter()
            .map(|fault| format!("{fault}=ignore"))
            .collect();
        for (name, value) in self.main.settings_below("receive", "fsck")? {
            severities.push(format!("{name}={value}"));
        }
        Ok(severities.join(","))
    }

    /// Copies the pack that `pack` reads, and indexes the copy.
    ///
    /// Returns the path of the index.
    pub(super) fn stage_pack(&self, pack: fs::File) -> Checked<PathBuf> {
        let mut index = self.git("stage");
        index.args(["index-pack", "--stdin"]);
        let finished = program::finish_reading(&mut index, Stdio::from(pack))?;
        let indexed = checked(&index, finished)?;
        Ok(indexed.map(|output| {
            let output = String::from_utf8_lossy(&output);
            let hash = output.split_whitespace().next_back().unwrap_or_default();
            self.dir.join(format!("stage/pack/pack-{hash}.idx"))
        }))
    }

    /// Packs staged objects, each with its name, and checks the pack.
    pub(super) fn pack(&self, objects: &[(ObjectId, Vec<u8>)]) -> Checked<()> {
        let mut pack = self.git("stage");
        pack.args(["pack-objects", "-q", "--stdout", "--delta-base-offset"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut index = self.index_pack()?;
        let mut packing = program::spawn(&mut pack)?;
        let (stdin, stdout) = (packing.stdin.take(), packing.stdout.take());
        let indexed = thread::scope(|scope| {
            scope.spawn(move || {
                let mut stdin = io::BufWriter::new(stdin?);
                for (id, name) in objects {
                    let name: Vec<u8> =
                        name.iter().copied().filter(|byte| *byte != b'\n').collect();
                    let line = [id.to_string().as_bytes(), b" ", &name, b"\n"].concat();
                    stdin.write_all(&line).ok()?;
                }
                stdin.flush().ok()
            });
            let input = stdout.map_or_else(Stdio::null, Stdio::from);
            program::finish_reading(&mut index, input)
        });
        let output = packing.wait_with_output().map_err(GitError::GitMissing)?;
        let packed = program::Finished {
            status: output.status,
            stdout: Vec::new(),
            stderr: output.stderr,
        };
        if let Err(reason) = checked(&pack, packed)? {
            return Ok(Err(reason));
        }
        checked(&index, indexed?).map(|done| done.map(drop))
    }

    /// Checks that nothing is missing that `tips` need.
    ///
    /// `known` are objects whose needs it is known to have.
    pub(super) fn check_connected(&self, tips: &[ObjectId], known: &[ObjectId]) -> Checked<()> {
        let mut list = self.git("objects");
        list.args(["rev-list", "--objects", "--quiet", "--stdin"]);
        if self.main.promisor_remote().is_some() {
            list.arg("--missing=allow-promisor");
        }
        let mut input = String::new();
        for id in tips {
            input.push_str(&format!("{id}\n"));
        }
        for id in known {
            input.push_str(&format!("^{id}\n"));
        }
        run(&mut list, input.as_bytes()).map(|done| done.map(drop))
    }

    /// Lists the files of the checked objects, with their future places.
    fn files(&self) -> Result<Vec<(PathBuf, PathBuf)>, GitError> {
        let objects = self.main.common_dir().join("objects");
        let mut files = Vec::new();
        for from in list(&self.dir.join("loose"))? {
            let name = from.file_name().unwrap_or_default().as_bytes();
            let id = ObjectId::from_hex(name).map_err(GitError::library("name an object"))?;
            let place = loose_file(&id);
            let to = objects.join(place.strip_prefix("objects").unwrap_or(&place));
            files.push((from, to));
        }
        if files.is_empty() {
            for from in list(&self.dir.join("objects/pack"))? {
                let name = from.file_name().unwrap_or_default();
                let to = objects.join("pack").join(name);
                files.push((from, to));
            }
        }
        // As in git: an index makes its pack visible, and comes last.
        files.sort_by_key(|(_, to)| to.extension().is_some_and(|extension| extension == "idx"));
        Ok(files)
    }

    /// Syncs the checked objects.
    pub(super) fn sync(&self) -> Result<(), GitError> {
        disk_work(&self.files()?, |(from, _)| sync_if_there(from))
    }

    /// Moves the checked objects into the main repository. They must be synced.
    ///
    /// They are held for a while, as [`Repository::restore_held`] says.
    pub(super) fn migrate(&self) -> Result<(), GitError> {
        let files = self.files()?;
        let mut dirs = vec![self.main.common_dir().join("objects")];
        let held = HeldSet::create(self.main, self.fork)?;
        for (from, to) in &files {
            held.hold(from);
            move_into(from, to, &dirs[0]).map_err(GitError::io("write", to))?;
            dirs.extend(to.parent().map(Path::to_owned));
        }
        dirs.sort();
        dirs.dedup();
        disk_work(&dirs, |dir| sync_if_there(dir))
    }

    /// Records what may leave the own git directory.
    pub(super) fn note_taken(&self, taken: &Taken) -> Result<(), GitError> {
        self.remove()?;
        if taken.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&self.dir).map_err(GitError::io("create", &self.dir))?;
        let lines: Vec<String> = taken.loose.iter().map(|id| format!("{id}\n")).collect();
        let path = self.dir.join("taken");
        fs::write(&path, lines.concat()).map_err(GitError::io("write", &path))
    }

    /// Returns what [`Quarantine::note_taken`] recorded: the loose objects.
    pub(super) fn taken(&self) -> Taken {
        let content = file::read(&self.dir.join("taken")).unwrap_or_default();
        let lines = content.split(|&byte| byte == b'\n');
        Taken {
            // The last line may be cut off.
            loose: lines
                .filter_map(|line| ObjectId::from_hex(line).ok())
                .collect(),
            ..Taken::default()
        }
    }
}

/// Objects of the own git directory that the main repository has.
#[derive(Debug, Default, Clone)]
pub(super) struct Taken {
    /// Ids of loose objects.
    pub(super) loose: Vec<ObjectId>,
    /// Names of packs (`pack-….pack`) with nothing else.
    pub(super) packs: Vec<String>,
    /// Ids of objects in packs.
    pub(super) packed: Vec<ObjectId>,
}

impl Taken {
    pub(super) fn is_empty(&self) -> bool {
        self.loose.is_empty() && self.packs.is_empty()
    }

    pub(super) fn extend(&mut self, other: Taken) {
        self.loose.extend(other.loose);
        self.packs.extend(other.packs);
        self.packed.extend(other.packed);
    }
}

/// Moves an object's file below `objects`, into a new directory if necessary.
pub(super) fn move_into(from: &Path, to: &Path, objects: &Path) -> io::Result<()> {
    let dir = to.parent().unwrap_or(to);
    let mut moved = fs::rename(from, to);
    for _ in 0..MOVE_ATTEMPTS {
        match &moved {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Ok(()) = fs::create_dir(dir) {
                    // A shared repository gives its group access.
                    fs::set_permissions(dir, fs::metadata(objects)?.permissions())?;
                }
                moved = fs::rename(from, to);
            }
            _ => break,
        }
    }
    moved
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let entries = fs::read_dir(dir).map_err(GitError::io("list", dir))?;
    entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()
        .map_err(GitError::io("list", dir))
}

fn run(command: &mut Command, input: &[u8]) -> Checked<Vec<u8>> {
    let finished = program::finish(command, input)?;
    checked(command, finished)
}

/// Separates what git says about objects from failures of the machine.
fn checked(command: &Command, finished: program::Finished) -> Checked<Vec<u8>> {
    if finished.status.success() {
        return Ok(Ok(finished.stdout));
    }
    let said = String::from_utf8_lossy(&finished.stderr).into_owned();
    if finished.status.code().is_none() || program::format_io_error(&said).is_some() {
        return Err(program::failed(command, &finished));
    }
    Ok(Err(reason(&said)))
}

/// Returns the line of git's error output that says most.
fn reason(said: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let after = |prefix: &'static str| lines().find_map(move |line| line.strip_prefix(prefix));
    after("error: ")
        .or_else(|| after("fatal: "))
        .or_else(|| lines().next())
        .unwrap_or("git gives no reason")
        .to_owned()
}
