//! Converts the errors of lower crates to failures.
//!
//! There is one exhaustive match for each type, so that a new kind of error cannot be forgotten.

mod tools;

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::failure::{self, ErrorCode, Failure};
use tine_change::ChangeError;
use tine_change::branches::Holder;
use tine_fuse::{MountError, RINGS_PARAMETER};
use tine_git::GitError;
use tine_layer::LayerError;
use tine_path::PathError;
use tine_path::shell::shell_word;
use tine_tools::buffers::BufferError;
use tine_workspace::{FsError, OperationError, StoreError};

/// Maximum number of paths in the way that a message names.
const MAX_PATHS_SHOWN: usize = 5;

impl From<GitError> for Failure {
    fn from(error: GitError) -> Failure {
        let message = error.to_string();
        match error {
            GitError::NotARepository(_) => Failure::new(ErrorCode::NotARepository, message)
                .hint("go into a git repository, or name one: `tine -C DIR …`; `git init` makes a new one"),
            GitError::UnsupportedRepository { dir, reason } => Failure::new(
                ErrorCode::UnsupportedRepository,
                format!("the repository at {} cannot be used", dir.display()),
            )
            .cause(reason)
            .hint("`git status` in it says what git thinks of it, `tine doctor` what tine needs"),
            GitError::UntrustedRepository { dir } => Failure::new(
                ErrorCode::UnsupportedRepository,
                format!("the repository at {} belongs to another user", dir.display()),
            )
            .cause("git and tine run nothing that another user has configured there")
            .hint(format!(
                "if you trust it: `git config --global --add safe.directory {}`",
                shell_word(dir.as_os_str().as_bytes())
            )),
            GitError::UnknownRevision(_) => Failure::new(ErrorCode::UnknownRevision, message)
                .hint("`git log --all --oneline` lists commits, `git branch -a` branches; fetch what is missing first"),
            GitError::NestedRepository(_) => Failure::new(ErrorCode::Usage, message)
                .hint("a directory without git must be so with all that is in it: move the repository away"),
            GitError::BranchCheckedOut { at, .. } if !at.exists() => {
                Failure::new(ErrorCode::BranchCheckedOut, message)
                    .hint("its directory is gone: `git worktree prune` forgets that worktree, then try again")
            }
            GitError::BranchCheckedOut { .. } => Failure::new(ErrorCode::BranchCheckedOut, message)
                .hint("`git -C DIR switch --detach` takes that checkout off the branch; `tine new` takes another one with `--branch NAME`"),
            GitError::BranchExists(branch) => Failure::new(ErrorCode::BranchExists, message).hint(format!(
                "choose another name; `tine new NAME --branch {}`, without `--from`, makes a fork that goes on with it",
                shell_word(branch)
            )),
            GitError::DanglingAlias { alias, .. } | GitError::AliasLoop { alias } => {
                Failure::new(ErrorCode::NoSuchBranch, message).hint(format!(
                    "`git symbolic-ref --delete refs/heads/{}` removes the alias",
                    shell_word(alias)
                ))
            }
            GitError::IsAlias { alias, branch } => Failure::new(ErrorCode::BranchExists, message).hint(format!(
                "`tine branch rename {} NEW` renames the branch, once `tine branch delete {}` has removed the alias",
                shell_word(branch),
                shell_word(alias)
            )),
            GitError::HasAlias { alias, .. } => Failure::new(ErrorCode::BranchExists, message).hint(format!(
                "`tine branch delete {}` removes the alias alone; then try again",
                shell_word(alias)
            )),
            GitError::InvalidBranchName(_) => Failure::new(ErrorCode::InvalidBranch, message)
                .hint("`git help check-ref-format` says what a branch may be called"),
            GitError::MissingObject { .. } => Failure::new(ErrorCode::CorruptObject, message).hint(
                "`git fsck` shows what is missing; in a shallow or partial clone `git fetch` brings it back",
            ),
            GitError::CorruptObject { id, reason } => {
                Failure::new(ErrorCode::CorruptObject, format!("the object {id} cannot be read"))
                    .cause(reason)
                    .hint("`git fsck` shows what is damaged; `git fetch --refetch` brings it from a remote")
            }
            GitError::HostileTree { tree_id, source } => Failure::new(
                ErrorCode::HostileTree,
                format!("the tree {tree_id} holds an entry that no checkout may have"),
            )
            .cause(source.to_string())
            .hint("choose another revision with `--from REV`; `git fsck` names the commits"),
            GitError::TooManyFiles { .. } => Failure::new(ErrorCode::HostileTree, message)
                .hint("no checkout of it is possible: choose another revision with `--from REV`"),
            GitError::HostilePath { .. } => Failure::new(ErrorCode::HostileTree, message)
                .hint("choose another revision with `--from REV`; `git fsck` names the commits"),
            GitError::CheckoutInTheWay { dir, reason } => Failure::new(
                ErrorCode::LocalChanges,
                format!("the checkout at {} cannot follow", dir.display()),
            )
            .cause(reason)
            .hint("commit or stash what is uncommitted there (`git status` shows it), then merge again; nothing was changed"),
            GitError::CheckoutHalfMoved { dir, reason, cause } => {
                let half_moved = Failure::new(
                    ErrorCode::LocalChanges,
                    format!("the checkout at {} is half way to another commit", dir.display()),
                )
                .cause(reason)
                .hint("commit nothing there: make room (`tine recover purge --all` lets kept work go), then merge again, which takes the files back first");
                // A full disk is the cause, not a user's changes.
                let Failure { code, exit, .. } = Failure::from(*cause);
                match code {
                    ErrorCode::NoSpace => Failure { code, exit, ..half_moved },
                    _ => half_moved,
                }
            }
            GitError::UntrackedInTheWay { paths, .. } => paths
                .iter()
                .take(MAX_PATHS_SHOWN)
                .fold(Failure::new(ErrorCode::InTheWay, message), |failure, path| {
                    failure.cause(path.to_string())
                })
                .hint("move it elsewhere there, then merge again; nothing was changed")
                .paths(&paths),
            GitError::RefMoved { .. } => {
                Failure::new(ErrorCode::RefMoved, message).hint("another process was faster: try again")
            }
            GitError::IndexLocked { lock } => Failure::new(ErrorCode::IndexLocked, message).hint(held_lock(&lock)),
            GitError::RefLocked { lock, .. } => Failure::new(ErrorCode::RefLocked, message).hint(held_lock(&lock)),
            GitError::UnrelatedHistories => Failure::new(ErrorCode::UnrelatedHistories, message)
                .hint("`--allow-unrelated` merges them even so, `--base REV` names a base"),
            GitError::NoSuchRemote { .. } => Failure::new(ErrorCode::NoSuchRemote, message)
                .hint("`git remote -v` lists the remotes, `git remote add NAME URL` makes one"),
            GitError::NoSuchState { remote, .. } => Failure::new(ErrorCode::NoSuchState, message)
                .hint(format!("`tine fetch {remote}` shows the forks that it has, `tine push` sends one")),
            GitError::RemoteMoved { remote, name, .. } => Failure::new(ErrorCode::RemoteMoved, message).hint(format!(
                "`tine fetch {remote}`, then `tine new OTHER --from-remote {name}` takes it up; `--as NAME` pushes as another; `--force` overwrites it"
            )),
            GitError::RemoteRefused { said, .. } => said
                .into_iter()
                .fold(Failure::new(ErrorCode::RemoteRefused, message), Failure::cause)
                .hint("do what the remote says; nothing was changed there"),
            GitError::RemoteDenied { remote, said } => said
                .into_iter()
                .fold(Failure::new(ErrorCode::RemoteDenied, message), Failure::cause)
                .hint(format!("see that `git ls-remote {remote}` works, and that you may push there")),
            GitError::RemoteUnreachable { remote, said } => said
                .into_iter()
                .fold(Failure::new(ErrorCode::RemoteUnreachable, message), Failure::cause)
                .hint(format!("`git ls-remote {remote}` shows whether git reaches it, `git remote -v` where it is")),
            GitError::PushHook { said, .. } => said
                .into_iter()
                .fold(Failure::new(ErrorCode::HookRefused, message), Failure::cause)
                .hint("do what the hook `pre-push` says; nothing was sent"),
            GitError::BadPatch { reason } => Failure::new(ErrorCode::BadPatch, "git cannot read this as a patch")
                .cause(reason)
                .hint("a patch is what `git diff --binary` or `diff -u` prints; `-p0` is for one whose paths have no `a/` and `b/`"),
            GitError::NotAMailbox { reason } => {
                Failure::new(ErrorCode::NotAMailbox, "it is not a mailbox of patches")
                    .cause(reason)
                    .hint("`git format-patch --stdout BASE..HEAD` makes one")
            }
            GitError::NoIdentity(reason) => {
                Failure::new(ErrorCode::NoIdentity, "git does not know who commits")
                    .cause(reason)
                    .hint("`git config user.name NAME` and `git config user.email ADDRESS`")
            }
            GitError::GitTooOld { .. } => {
                Failure::new(ErrorCode::GitTooOld, message).hint("install a newer git (on Debian: `apt install git`)")
            }
            GitError::GitMissing(source) if failure::is_out_of_files(&source) => {
                failure::out_of_files("the git program cannot be run".to_owned()).cause(source.to_string())
            }
            GitError::GitMissing(source) => {
                Failure::new(ErrorCode::GitMissing, "the git program cannot be run")
                    .cause(source.to_string())
                    .hint("install git (on Debian: `apt install git`)")
            }
            GitError::GitFailed { stderr, .. } if says_full(&stderr) => {
                failure::no_space("git could not write").cause(stderr)
            }
            GitError::GitFailed { command, stderr } => {
                Failure::new(ErrorCode::GitFailed, format!("`git {command}` failed")).cause(stderr)
            }
            // Only a mount's threads are nonblocking, and they retry.
            GitError::TakesLong => Failure::new(ErrorCode::GitFailed, message).hint("try again"),
            GitError::Io { action, path, source } => Failure::io(action, &path, &source),
            GitError::DamagedHead { path, reason } => {
                Failure::new(ErrorCode::GitFailed, format!("{} is damaged", path.display()))
                    .cause(reason)
                    .hint(format!(
                        "`echo 'ref: refs/heads/BRANCH' > {}` puts it on a branch again",
                        shell_word(path.as_os_str().as_bytes())
                    ))
            }
            GitError::DamagedRef { name, reason } => {
                Failure::new(ErrorCode::RefDamaged, format!("{name} is damaged")).cause(reason)
            }
            GitError::UnreadableContent { reason } => {
                Failure::new(ErrorCode::StoreDamaged, "the content of a file cannot be read")
                    .cause(reason)
                    .hint("`tine check` names what is damaged and what to do about it")
            }
            GitError::Library { action, reason } if says_full(&reason) => {
                failure::no_space(&format!("could not {action} in the repository")).cause(reason)
            }
            GitError::Library { action, reason } => Failure::new(
                ErrorCode::GitFailed,
                format!("could not {action} in the repository"),
            )
            .cause(reason),
        }
    }
}

/// Returns whether git or its library reports a full disk.
fn says_full(said: &str) -> bool {
    ["No space left on device", "Disk quota exceeded"]
        .iter()
        .any(|full| said.contains(full))
}

/// Returns the hint for a lock file of git.
fn held_lock(lock: &Path) -> String {
    format!(
        "another git command is at work: try again when it has ended; if there is none, one crashed: remove {}",
        lock.display()
    )
}

impl From<LayerError> for Failure {
    fn from(error: LayerError) -> Failure {
        let message = error.to_string();
        match error {
            LayerError::Io { path, source, .. } if source.kind() == ErrorKind::NotFound => {
                Failure::new(ErrorCode::StoreDamaged, format!("{} is missing", path.display()))
            }
            LayerError::Io { path, source, .. }
                if matches!(source.kind(), ErrorKind::NotADirectory | ErrorKind::IsADirectory) =>
            {
                Failure::new(ErrorCode::StoreDamaged, format!("{} is damaged", path.display()))
                    .cause(source.to_string())
            }
            LayerError::Io { action, path, source } => Failure::io(action, &path, &source),
            LayerError::Corrupt { path, offset, reason } => {
                Failure::new(ErrorCode::StoreDamaged, format!("{} is damaged", path.display()))
                    .cause(format!("at byte {offset}: {reason}"))
            }
            LayerError::NewerFormat { .. } => newer_format(message),
            LayerError::Locked { .. } => locked(message),
            LayerError::Unsealed { .. } | LayerError::Frozen { .. } => {
                Failure::new(ErrorCode::Internal, message)
            }
            LayerError::Interrupted { .. } => Failure::new(ErrorCode::ForkInterrupted, message),
            LayerError::Poisoned { .. } => Failure::new(ErrorCode::Io, message).hint(
                "see that the disk is well and has space, then `tine unmount FORK` and `tine mount FORK`",
            ),
        }
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        let message = error.to_string();
        match error {
            FsError::NoSpace(source) | FsError::Layer(source) => source.into(),
            FsError::Base(source) => source.into(),
            FsError::Carried(source) => Failure::new(ErrorCode::Io, "a carried file cannot be read")
                .cause(source.to_string())
                .hint("see to it in the main checkout, which it is read from"),
            FsError::NotPermitted | FsError::AccessDenied => {
                Failure::new(ErrorCode::PermissionDenied, format!("in the fork: {message}"))
                    .hint("`ls -l` in the mount shows who may; `chmod` changes it")
            }
            FsError::NotFound
            | FsError::Exists
            | FsError::NotADirectory
            | FsError::IsADirectory
            | FsError::NotEmpty
            | FsError::Stale => Failure::new(ErrorCode::Io, format!("in the fork: {message}"))
                .hint("the fork changed meanwhile: try again"),
            FsError::NameTooLong
            | FsError::TooLarge
            | FsError::TooManyLinks
            | FsError::SymlinkLoop
            | FsError::Range
            | FsError::ValueTooLong
            | FsError::AttributesFull => Failure::new(ErrorCode::Io, format!("in the fork: {message}"))
                .hint("a fork takes what Linux takes: choose a shorter name, or leave the file out"),
            FsError::Invalid | FsError::NoAttribute | FsError::NoSuchOffset | FsError::Unsupported => {
                Failure::new(ErrorCode::Io, format!("in the fork: {message}")).hint(
                    "try again; if it stays so, please report it, with the end of `daemon.log` in the store",
                )
            }
        }
    }
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Failure {
        let message = error.to_string();
        match error {
            OperationError::NotFound(_) => {
                Failure::new(ErrorCode::NoSuchPath, message).hint("`tine ls FORK` and `tine walk FORK` show what there is")
            }
            OperationError::Exists(_) => {
                Failure::new(ErrorCode::PathExists, message).hint("`--force` replaces a file")
            }
            OperationError::IsADirectory(_) => Failure::new(ErrorCode::WrongKind, message)
                .hint("`tine ls FORK PATH` lists it, `tine rm -r FORK PATH` removes it with all in it; nothing is replaced"),
            OperationError::NotADirectory(_) => {
                Failure::new(ErrorCode::WrongKind, message).hint("`tine stat FORK PATH` shows what it is")
            }
            OperationError::NotAFile(_) => Failure::new(ErrorCode::WrongKind, message)
                .hint("`tine stat FORK PATH` shows what it is, and where a symlink leads"),
            OperationError::Root => Failure::new(ErrorCode::PathRefused, message)
                .hint("name a path in it; `tine delete FORK` removes the fork"),
            OperationError::DotGit(_) => {
                Failure::new(ErrorCode::PathRefused, message).hint("without it the mount would be no worktree of git's")
            }
            OperationError::LeadsOut(_) => Failure::new(ErrorCode::PathRefused, message)
                .hint("`tine stat FORK PATH` shows where a symlink leads; name what it leads to in the fork"),
            OperationError::SymlinkLoop(_) => Failure::new(ErrorCode::PathRefused, message)
                .hint("`tine stat FORK PATH` shows where a symlink leads"),
            OperationError::IntoItself(_) | OperationError::SameFile(..) => {
                Failure::new(ErrorCode::PathRefused, message).hint("name another destination")
            }
            OperationError::Pinned(_) => Failure::new(ErrorCode::Busy, message)
                .hint("end that program, or write the file in the mount: its profile is large-files"),
            OperationError::InTheWay(_) => Failure::new(ErrorCode::InTheWay, message)
                .hint("it is ignored, or git cannot hold it: move it elsewhere; `tine revert` and `tine restore` let ignored files go with `--force`; nothing was changed"),
            OperationError::Gone(_) => Failure::new(ErrorCode::CannotUndo, message).hint(
                "it was moved or removed since, and not by tine: put it there again, or take back something else: `tine undo FORK PATH`",
            ),
            OperationError::NothingToTakeBack { above: Some(above), .. } => {
                Failure::new(ErrorCode::NothingToUndo, message)
                    .hint(format!("it went, or came, with {above}: name that"))
            }
            OperationError::NothingToTakeBack { above: None, .. } => Failure::new(ErrorCode::NothingToUndo, message)
                .hint("`tine op log FORK` shows what was done by commands, and what can be taken back"),
            OperationError::IsAdvance { .. } => Failure::new(ErrorCode::CannotUndo, message)
                .hint("without a path `tine undo` takes back all of it; `tine revert FORK PATH --to SNAPSHOT` one path"),
            OperationError::IsSwitch { .. } => Failure::new(ErrorCode::CannotUndo, message)
                .hint("`tine restore` brings that snapshot back"),
            OperationError::Source { source, .. } => match source.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT) => failure::no_space(&message),
                _ => Failure::new(ErrorCode::Io, message)
                    .cause(source.to_string())
                    .hint("try again"),
            },
            OperationError::Fs { path, source } => {
                let failure = Failure::from(*source);
                let message = format!("{path}: {}", failure.message);
                Failure { message, ..failure }
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let message = error.to_string();
        match error {
            StoreError::NoSuchSnapshot { fork, .. } => Failure::new(ErrorCode::NoSuchSnapshot, message)
                .hint(format!("`tine snapshots {fork}` lists them")),
            StoreError::SnapshotExists(_) => Failure::new(ErrorCode::SnapshotExists, message)
                .hint("choose another name, or none"),
            StoreError::NoSuchFork(_) => {
                Failure::new(ErrorCode::NoSuchFork, message).hint("`tine list` shows the forks")
            }
            StoreError::ForkExists(name) => Failure::new(ErrorCode::ForkExists, message).hint(format!(
                "`tine path {name}` shows where it is, `tine delete {name}` removes it; or choose another name"
            )),
            StoreError::InvalidName { name, reason } => {
                Failure::new(ErrorCode::InvalidForkName, format!("{name:?} is not a valid fork name"))
                    .cause(reason)
                    .hint("take letters, digits, '.', '_' and '-', beginning with a letter or digit")
            }
            StoreError::NewerFormat { .. } => newer_format(message),
            StoreError::Locked { .. } => locked(message),
            StoreError::Damaged { path, reason } if path.ends_with("tine/format") => {
                Failure::new(ErrorCode::StoreDamaged, format!("{} is damaged", path.display()))
                    .cause(reason)
                    .hint("put it, or `format.copy` beside it, back from a backup: no layer can be read without the key in it; what was committed is safe in git")
            }
            StoreError::Damaged { path, reason } => {
                Failure::new(ErrorCode::StoreDamaged, format!("{} is damaged", path.display()))
                    .cause(reason)
            }
            StoreError::NotAside(_) => Failure::new(ErrorCode::Usage, message)
                .hint("`tine check --set-aside` lists what repairs moved aside"),
            StoreError::InTheWay(path) => Failure::new(ErrorCode::ForkExists, message).hint(format!(
                "see what it is, and move it away: {}",
                path.display()
            )),
            StoreError::AsideOfGone(path) => Failure::new(ErrorCode::NoSuchFork, message).hint(format!(
                "`tine recover` lists what brings a deleted fork back; what was set aside stays in {}",
                path.display()
            )),
            StoreError::NotRoots { owner } => Failure::new(ErrorCode::PermissionDenied, message).hint(format!(
                "run it without sudo, or as that user: `sudo -u '#{owner}' tine …`; where only root can work, `git config tine.asRoot true`"
            )),
            StoreError::Foreign { path, reason } => Failure::new(
                ErrorCode::PermissionDenied,
                format!("{} is not your store", path.display()),
            )
            .cause(reason)
            .hint("another user may have put it there: see what it is, and move it away or correct its owner and mode (0700)"),
            StoreError::SparseCheckout(name) => Failure::new(ErrorCode::SparseCheckout, message).hint(format!(
                "`git sparse-checkout disable` in {name}'s mount shows all files; `tine new` makes a fork that has them; nothing was changed"
            )),
            StoreError::Busy(name) => Failure::new(ErrorCode::Busy, message)
                .hint(format!("`tine unmount {name}` if it is mounted, or wait until other commands on it have ended, then try again")),
            StoreError::LeaseHeld { .. } => Failure::new(ErrorCode::LeaseHeld, message)
                .hint("wait until that command has ended, then try again; nothing was changed"),
            StoreError::Git(source) => source.into(),
            StoreError::Layer(source) => source.into(),
            StoreError::Fs(source) => source.into(),
            StoreError::Path(source) => source.into(),
            StoreError::Io { action, path, source } => Failure::io(action, &path, &source),
        }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Failure {
        let message = error.to_string();
        match error {
            PathError::Empty
            | PathError::TooLong
            | PathError::Reserved(_)
            | PathError::ForbiddenByte(_)
            | PathError::Outside(_) => Failure::new(ErrorCode::Usage, message)
                .hint("name a path inside the fork, from its root"),
        }
    }
}

/// Maximum number of paths in a command that a hint names.
///
/// If there are more, the next run is refused with the rest.
const MAX_NAMED_PATHS: usize = 20;

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Failure {
        let message = error.to_string();
        match error {
            ChangeError::NothingToCommit => Failure::new(ErrorCode::NothingToCommit, message)
                .hint("`tine status` shows what differs; ignored files do not count"),
            ChangeError::EmptyMessage => Failure::new(ErrorCode::EmptyMessage, message)
                .hint("say what was done: `tine commit -m MESSAGE`"),
            ChangeError::MovedUnder { fork, moved, free, is_rewritten } => {
                let failure = Failure::new(ErrorCode::MovedUnder, message);
                let failure = match &moved.by {
                    Some(by) => failure.cause(format!("it was moved by {by}")),
                    None => failure,
                };
                let (free, branch) = (shell_word(free), shell_word(&moved.branch));
                if is_rewritten {
                    // A merge with the old history would bring back commits that were removed.
                    failure.hint(format!(
                        "`tine branch switch {fork} {free} --create` puts the fork on a branch of its own, where it was; then `tine branch switch {fork} {branch}` \
                         goes on with the rewritten history and what is uncommitted, or `tine merge {branch} --into {fork}` joins it with the old one; nothing was changed"
                    ))
                } else {
                    failure.hint(format!(
                        "`tine branch switch {fork} {free} --create` puts the fork on a branch of its own, where it was; then `tine merge {branch} --into {fork}` \
                         joins both; nothing was changed"
                    ))
                }
            }
            ChangeError::TakesBack { paths, way_out, .. } => {
                let named = paths.iter().take(MAX_NAMED_PATHS);
                let named: Vec<String> = named.map(|path| shell_word(path.as_bytes())).collect();
                let named = named.join(" ");
                let taking = Failure::new(ErrorCode::TakesBack, message);
                match way_out.as_deref() {
                    Some((fork, to)) if to == "HEAD" => taking.hint(format!(
                        "`--allow-revert` means that; `tine revert {fork} {named} --to HEAD` has it as HEAD has it"
                    )),
                    Some((fork, to)) => taking.hint(format!(
                        "`--allow-revert` means that; `tine revert {fork} {named} --to {to}` and a commit have it as it was"
                    )),
                    None => taking.hint("`--allow-revert` means that"),
                }
            }
            ChangeError::MayTakeBack { .. } => Failure::new(ErrorCode::TakesBack, message).hint(
                "look at what changes (`tine diff`); `--allow-revert` means it, and `tine check --repair` sets the record aside",
            ),
            ChangeError::BranchGone(gone) => Failure::new(ErrorCode::BranchGone, message).hint(format!(
                "`git branch {} {}` brings the branch back; nothing was changed",
                shell_word(&gone.branch),
                gone.left_at
            )),
            ChangeError::BranchHeldTwice { holders, .. }
                if holders
                    .iter()
                    .any(|holder| matches!(holder, Holder::Worktree(dir) if !dir.exists())) =>
            {
                Failure::new(ErrorCode::BranchCheckedOut, message).hint(
                    "the directory of one of them is gone: `git worktree prune` forgets that worktree; nothing was changed",
                )
            }
            ChangeError::BranchHeldTwice { .. } => Failure::new(ErrorCode::BranchCheckedOut, message).hint(
                "`git -C DIR switch --detach` takes one of them off the branch; nothing was changed",
            ),
            ChangeError::OperationInProgress("bisect") => {
                Failure::new(ErrorCode::OperationInProgress, message)
                    .hint("end it in the mount first: `git bisect reset`")
            }
            ChangeError::OperationInProgress(operation) => {
                Failure::new(ErrorCode::OperationInProgress, message).hint(format!(
                    "end it in the mount first: `git {operation} --continue` or `git {operation} --abort`"
                ))
            }
            ChangeError::Unstable(_) => {
                Failure::new(ErrorCode::Busy, message).hint("stop the program that writes it, then try again")
            }
            ChangeError::NotLanded(_) => Failure::new(ErrorCode::Internal, message)
                .cause("HEAD did not move and the fork is as it was"),
            ChangeError::LocalChanges(paths) => Failure::new(ErrorCode::LocalChanges, message)
                .hint("commit them (`tine commit -m MESSAGE`), or take them back (`tine revert`); nothing was changed")
                .paths(&paths),
            ChangeError::StagedInTheWay(paths) => Failure::new(ErrorCode::LocalChanges, message)
                .hint(
                    "`git add PATH` in the mount stages the file as it is, `git restore --staged PATH` unstages it; nothing was changed",
                )
                .paths(&paths),
            ChangeError::NoMergeBase => Failure::new(ErrorCode::NoMergeBase, message)
                .hint("name what both sides began as: `--base REV`"),
            ChangeError::EmptyPick { .. } => Failure::new(ErrorCode::EmptyPick, message)
                .hint("`--empty drop` leaves out what became empty, `--empty keep` makes such commits; nothing was changed"),
            ChangeError::NotFastForward => Failure::new(ErrorCode::NotFastForward, message)
                .hint("without `--ff-only` a merge commit is made"),
            ChangeError::NoSuchPoint { fork, .. } => Failure::new(ErrorCode::NoSuchPoint, message).hint(format!(
                "`tine list` shows the forks, `tine exec {fork} -- git log --all --oneline` the revisions; `pristine` is \
                 the fork point of {fork}"
            )),
            ChangeError::NoSuchReview(_) => {
                Failure::new(ErrorCode::NoSuchReview, message).hint("`tine review list --all` shows the reviews")
            }
            ChangeError::NotAState { .. } => Failure::new(ErrorCode::NoSuchState, message)
                .hint("`tine push` makes states; what else is there may have been put there by another program"),
            ChangeError::NewerState { .. } => newer_format(message),
            ChangeError::NoSuchHandoff(_) => Failure::new(ErrorCode::NoSuchHandoff, message)
                .hint("`tine handoff list --all` shows the handoffs"),
            ChangeError::DamagedHandoff { id, reason } => {
                Failure::new(ErrorCode::StoreDamaged, format!("the handoff {id} is damaged"))
                    .cause(reason)
                    .hint(format!(
                        "`tine handoff delete {id} --force` lets it go; `tine handoff create FORK` makes another"
                    ))
            }
            ChangeError::NoSuchSession(_) => Failure::new(ErrorCode::NoSuchSession, message)
                .hint("`tine round start --agents A,B` begins one; `--session` names another"),
            ChangeError::DirectoryChanged(paths) => {
                let failure = Failure::new(ErrorCode::DirectoryChanged, message)
                    .hint("move them away, or bring them into the result; nothing was written");
                paths.iter().map(ToString::to_string).fold(failure, Failure::cause)
            }
            ChangeError::NoSuchAgent { .. } => {
                Failure::new(ErrorCode::NoSuchAgent, message).hint("`tine round show` lists the agents")
            }
            ChangeError::NothingCalled(_) => Failure::new(ErrorCode::NoSuchPoint, message)
                .hint("`tine list` shows the forks, `git log --all --oneline` the revisions; a snapshot is `fork@snapshot`"),
            ChangeError::NoSuchBranch(branch) => Failure::new(ErrorCode::NoSuchBranch, message).hint(format!(
                "`tine branch list --all` shows the branches, `tine branch create {} --at POINT` makes this one",
                shell_word(branch)
            )),
            ChangeError::BranchHeld {
                branch,
                holder: Holder::Fork(fork, _),
            } => Failure::new(ErrorCode::BranchCheckedOut, message).hint(format!(
                "`tine branch switch {fork} OTHER` puts that fork on another branch, `tine delete {fork}` removes it; a rebase or \
                 bisection of {branch} there must end first"
            )),
            ChangeError::BranchHeld {
                holder: Holder::Worktree(dir),
                ..
            } if !dir.exists() => Failure::new(ErrorCode::BranchCheckedOut, message)
                .hint("its directory is gone: `git worktree prune` forgets that worktree, then try again"),
            ChangeError::BranchHeld { holder, .. } => {
                let (Holder::Main(dir) | Holder::Worktree(dir) | Holder::Fork(_, dir)) = holder;
                Failure::new(ErrorCode::BranchCheckedOut, message).hint(format!(
                    "`git -C {} switch OTHER` puts that checkout on another branch; a rebase or bisection there must end first",
                    shell_word(dir.as_os_str().as_bytes())
                ))
            }
            ChangeError::BranchNotMerged { commit_id, .. } => {
                Failure::new(ErrorCode::BranchNotMerged, message).hint(format!(
                    "`tine merge` brings {commit_id} elsewhere; `--force` deletes it, and `tine recover` brings it back"
                ))
            }
            ChangeError::NothingToRecover(_) => Failure::new(ErrorCode::NothingToRecover, message)
                .hint("`tine recover` lists what there is; it expires by age and size"),
            ChangeError::HistoryGone { id, tree_id, .. } => {
                let failure = Failure::new(ErrorCode::HistoryGone, message);
                match tree_id {
                    Some(tree_id) => failure.hint(format!(
                        "its files are there: `git archive -o recovered.tar refs/tine/+recover/{id}:trees/{tree_id}`"
                    )),
                    None => failure.hint(format!("`git ls-tree -r refs/tine/+recover/{id}` shows what is there")),
                }
            }
            ChangeError::NoCommit(_) => Failure::new(ErrorCode::UnknownRevision, message)
                .hint("a branch begins at a commit: a tree has none, and neither has a fork or snapshot on an unborn branch"),
            ChangeError::Git(source) => source.into(),
            ChangeError::Fs(source) => source.into(),
            ChangeError::Operation(source) => source.into(),
            ChangeError::Store(source) => source.into(),
        }
    }
}

impl From<BufferError> for Failure {
    fn from(error: BufferError) -> Failure {
        let message = error.to_string();
        match error {
            BufferError::NoBuffer(_) => Failure::new(ErrorCode::NoSuchBuffer, message)
                .hint("`tine buffer list` shows the buffers that are open"),
            BufferError::NoSession(_) => Failure::new(ErrorCode::NoSuchBuffer, message)
                .hint("its connection has ended: attach again, and open the buffers again"),
            BufferError::Taken(_) => Failure::new(ErrorCode::BufferTaken, message)
                .hint("close it there; one editor at a time has a file's buffer"),
            BufferError::Stale { .. } => Failure::new(ErrorCode::BufferStale, message)
                .hint("send all of the text, without `base`; nothing was changed"),
            BufferError::NotOffered(_) => Failure::new(ErrorCode::BufferStale, message)
                .hint("apply what an event `edit` names, once; nothing was changed"),
            BufferError::BadPatch { .. } => Failure::new(ErrorCode::Usage, message)
                .hint("patches are of whole lines, in their order; nothing was changed"),
            BufferError::TooLarge(_) => Failure::new(ErrorCode::Usage, message)
                .hint("leave such a file to the editor alone"),
            BufferError::Store(source) => source.into(),
        }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Failure {
        let message = error.to_string();
        match error {
            MountError::NoFuseDevice => Failure::new(ErrorCode::NoFuse, message).hint(
                "`modprobe fuse` as root; in a container start it with `--device /dev/fuse --cap-add SYS_ADMIN`",
            ),
            MountError::NotPermitted(source) => not_permitted(source.to_string()),
            MountError::NoFusermount => {
                Failure::new(ErrorCode::NoFusermount, message).hint("install fuse3 (on Debian: `apt install fuse3`)")
            }
            MountError::NoRings(source) => Failure::new(ErrorCode::MountFailed, message)
                .cause(source.to_string())
                .hint(format!(
                    "Linux 6.14 or newer has it once root wrote Y to {RINGS_PARAMETER}; or `git config tine.transport auto`"
                )),
            MountError::OnlyRoot => Failure::new(ErrorCode::FuseNotPermitted, message)
                .hint("leave `--suid`, `--dev` and `--profile large-files` out, or run tine as root"),
            // fusermount3 has one exit code for all errors; only its words differ.
            MountError::Fusermount(reason) if reason.contains("user_allow_other") => {
                Failure::new(ErrorCode::FuseNotPermitted, "other users may not be let into a mount")
                    .cause(reason)
                    .hint("write `user_allow_other` into /etc/fuse.conf as root, or leave `--allow-other` out")
            }
            MountError::Fusermount(reason)
                if reason.contains("Permission denied") || reason.contains("not permitted") =>
            {
                not_permitted(reason)
            }
            MountError::Fusermount(reason) => Failure::new(ErrorCode::MountFailed, "fusermount3 failed")
                .cause(reason)
                .hint("`tine doctor` checks what mounting needs"),
            MountError::NotEmpty(_) => Failure::new(ErrorCode::MountDirNotEmpty, message)
                .hint("empty or remove it, or choose another place with `--at DIR`"),
            MountError::AlreadyMounted(dir) => Failure::new(ErrorCode::MountDirNotEmpty, message).hint(format!(
                "`umount {}` frees it, or choose another place with `--at DIR`",
                shell_word(dir.as_os_str().as_bytes())
            )),
            MountError::Detached(_) => Failure::new(ErrorCode::Busy, message).hint(
                "end that program, and the fork's policy is applied; `--force` cuts it off where root has run \
                 `mount -t fusectl none /sys/fs/fuse/connections`",
            ),
            MountError::Busy(_) => Failure::new(ErrorCode::Busy, message)
                .hint("end the programs that use it, or add `--force`"),
            MountError::Io { action, path, source } => {
                let failure = Failure::io(action, &path, &source);
                match failure.code {
                    ErrorCode::Io => Failure {
                        code: ErrorCode::MountFailed,
                        exit: ErrorCode::MountFailed.exit(),
                        ..failure
                    }
                    .hint("`tine doctor` checks what mounting needs"),
                    _ => failure,
                }
            }
        }
    }
}

fn not_permitted(reason: String) -> Failure {
    Failure::new(ErrorCode::FuseNotPermitted, "mounting with FUSE is not permitted")
        .cause(reason)
        .hint(
            "let this user open /dev/fuse; in a container start it with `--device /dev/fuse --cap-add SYS_ADMIN`",
        )
}

fn newer_format(message: String) -> Failure {
    Failure::new(ErrorCode::NewerFormat, message).hint("use the tine that made it, or a newer one")
}

fn locked(message: String) -> Failure {
    Failure::new(ErrorCode::StoreLocked, message)
        .hint("`tine daemon status` shows who has it; another program that uses the library must end first")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;
    use crate::failure::ExitCode;
    use tine_workspace::ForkName;

    fn full_disk() -> LayerError {
        LayerError::Io {
            action: "append to",
            path: PathBuf::from("/s/layers/1/log"),
            source: io::Error::from_raw_os_error(libc::ENOSPC),
        }
    }

    #[test]
    fn a_full_disk_is_one_code_from_whatever_depth() {
        for failure in [
            Failure::from(full_disk()),
            FsError::from(full_disk()).into(),
            StoreError::from(full_disk()).into(),
            StoreError::from(FsError::from(full_disk())).into(),
            ChangeError::from(StoreError::from(full_disk())).into(),
            GitError::Io {
                action: "write",
                path: PathBuf::from("/r/.git/objects/x"),
                source: io::Error::from_raw_os_error(libc::ENOSPC),
            }
            .into(),
        ] {
            assert_eq!(failure.code, ErrorCode::NoSpace, "{failure}");
            assert_eq!(failure.exit, ExitCode::Failure);
            assert!(failure.hint.is_some());
        }
    }

    #[test]
    fn a_full_disk_that_git_tells_of_is_no_space() {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        for error in [
            GitError::GitFailed {
                command: "commit-tree".into(),
                stderr: "error: unable to write file: No space left on device\n".into(),
            },
            GitError::GitFailed {
                command: "commit-tree".into(),
                stderr: "error: unable to write file: Disk quota exceeded\n".into(),
            },
            GitError::library("write a blob")(full()),
            GitError::CheckoutHalfMoved {
                dir: PathBuf::from("/r"),
                reason: "a file could not be put back".into(),
                cause: Box::new(GitError::io("move the checkout at", "/r")(full())),
            },
        ] {
            let failure = Failure::from(error);
            assert_eq!(failure.code, ErrorCode::NoSpace, "{failure}");
            assert_eq!(failure.exit, ExitCode::Failure);
        }
    }

    #[test]
    fn what_lies_beneath_decides_the_code() {
        let newer = || LayerError::NewerFormat {
            path: PathBuf::from("/s/layers/1/log"),
            found: 9,
            known: 1,
        };
        assert_eq!(
            Failure::from(ChangeError::from(FsError::from(newer()))).code,
            ErrorCode::NewerFormat
        );
        let git = GitError::BranchCheckedOut {
            branch: "main".into(),
            at: PathBuf::from("/r"),
        };
        let failure = Failure::from(StoreError::from(git));
        assert_eq!(
            (failure.code, failure.exit),
            (ErrorCode::BranchCheckedOut, ExitCode::Conflict)
        );
    }

    #[test]
    fn hints_name_the_command_to_type() {
        let name = ForkName::parse("demo").unwrap();
        let hint = |failure: Failure| failure.hint.unwrap_or_default();
        assert!(hint(StoreError::ForkExists(name).into()).contains("tine path demo"));
        assert!(
            hint(ChangeError::OperationInProgress("rebase").into()).contains("git rebase --abort")
        );
        assert!(
            hint(ChangeError::OperationInProgress("bisect").into()).contains("git bisect reset")
        );
        assert!(hint(GitError::NotARepository(PathBuf::from("/x")).into()).contains("tine -C DIR"));
        assert!(hint(MountError::NoFusermount.into()).contains("apt install fuse3"));
    }

    #[test]
    fn the_reasons_of_fusermount_are_told_apart() {
        let failure = |reason: &str| Failure::from(MountError::Fusermount(reason.into()));
        let device = failure("fusermount3: failed to open /dev/fuse: Permission denied");
        assert_eq!(device.code, ErrorCode::FuseNotPermitted);
        let others = failure(
            "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
        );
        assert_eq!(others.code, ErrorCode::FuseNotPermitted);
        assert!(
            others
                .hint
                .is_some_and(|hint| hint.contains("/etc/fuse.conf"))
        );
        assert_eq!(
            failure("fusermount3: something else").code,
            ErrorCode::MountFailed
        );
    }

    #[test]
    fn long_output_of_git_stays_one_line() {
        let failure = Failure::from(GitError::GitFailed {
            command: "commit".into(),
            stderr: "fatal: one\nfatal: two\n".into(),
        });
        assert_eq!(failure.causes, ["fatal: one; fatal: two"]);
        assert_eq!(failure.message.lines().count(), 1);
    }
}
