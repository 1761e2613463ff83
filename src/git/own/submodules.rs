//! Repositories of submodules in a worktree's git directory.

use std::fs;
use std::path::{Path, PathBuf};

use super::tips::{OwnTipKind, own_tips};
use crate::{GitError, ObjectId, Repository, Worktree, program};

/// Directory of the repositories in a git directory.
const MODULES: &str = "modules";

/// Lists submodules with commits that no remote branch has.
///
/// Branches, HEAD and the stash count. One that cannot be read counts as well. git is asked, with
/// the main repository's configuration.
pub fn unpushed_submodules(main: &Repository, worktree: &Worktree) -> Vec<String> {
    let modules_dir = worktree.git_dir().join(MODULES);
    let mut found = Vec::new();
    collect(&modules_dir, &mut found);
    found.sort();
    let is_unpushed = |dir: &PathBuf| {
        has_own_commits(main, dir).unwrap_or_else(|error| {
            log::warn!("{}: {error}", dir.display());
            true
        })
    };
    found.retain(is_unpushed);
    let name = |dir: &PathBuf| {
        let name = dir.strip_prefix(&modules_dir).unwrap_or(dir);
        name.display().to_string()
    };
    found.iter().map(name).collect()
}

/// Collects the git directories below a directory, with those of nested submodules.
fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        if path.join("HEAD").symlink_metadata().is_ok() {
            collect(&path.join(MODULES), found);
            found.push(path);
        } else {
            // A name may have slashes.
            collect(&path, found);
        }
    }
}

fn has_own_commits(main: &Repository, git_dir: &Path) -> Result<bool, GitError> {
    let is_remote = |name: &str| name.starts_with("refs/remotes/");
    let is_tag = |name: &str| name.starts_with("refs/tags/");
    let (mut wanted, mut pushed): (Vec<ObjectId>, Vec<ObjectId>) = (Vec::new(), Vec::new());
    for tip in own_tips(main, git_dir)? {
        match tip.kind {
            OwnTipKind::Ref if is_remote(&tip.name) => pushed.push(tip.id),
            OwnTipKind::Ref if is_tag(&tip.name) => {}
            OwnTipKind::Ref | OwnTipKind::Head | OwnTipKind::Stash { .. } => wanted.push(tip.id),
            OwnTipKind::Pseudo | OwnTipKind::Logged { .. } => {}
        }
    }
    let wanted = wanted.iter().map(|id| format!("{id}\n"));
    let input: String = wanted
        .chain(pushed.iter().map(|id| format!("^{id}\n")))
        .collect();
    let mut command = program::command(main.common_dir());
    command
        .env("GIT_DIR", main.common_dir())
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", git_dir.join("objects"))
        .args(["rev-list", "--max-count=1", "--stdin"]);
    let shallow = git_dir.join("shallow");
    if shallow.symlink_metadata().is_ok() {
        command.env("GIT_SHALLOW_FILE", shallow);
    }
    Ok(!program::run(&mut command, input.as_bytes())?.is_empty())
}
