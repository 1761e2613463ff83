//! Target directories of cargo that several trees share.
//!
//! cargo compares file times. A build of one tree is newer than the sources of another tree. In a
//! shared target directory, cargo may therefore run a program built from another tree's sources.
//! tine notes a shared directory, and gives each fork its own if `tine.cargoTargetDir` is `own`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::place::Place;

/// Configuration key of the treatment of shared directories: `own` or `shared`.
const CONFIG_KEY: &str = "tine.cargoTargetDir";

/// Environment variable with cargo's target directory.
const VARIABLE: &str = "CARGO_TARGET_DIR";

/// Returns the target directory that the tree at `root` shares with others.
///
/// It comes from the environment or from cargo's configuration. `None` if the tree has no
/// `Cargo.toml` or its target directory is inside it.
pub fn shared(root: &Path) -> Option<PathBuf> {
    if !root.join("Cargo.toml").is_file() {
        return None;
    }
    let given = env::var_os(VARIABLE).filter(|dir| !dir.is_empty());
    let dir = match given {
        Some(dir) => PathBuf::from(dir),
        None => {
            let home = env::var_os("CARGO_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
            let places = [Some(root.join(".cargo")), home].into_iter().flatten();
            let mut files = places.flat_map(|dir| [dir.join("config.toml"), dir.join("config")]);
            files.find_map(|file| target_dir_in(&fs::read_to_string(file).ok()?))?
        }
    };
    (dir.is_absolute() && !dir.starts_with(root)).then_some(dir)
}

/// Returns `build.target-dir` of a `config.toml`, if it is a string.
fn target_dir_in(text: &str) -> Option<PathBuf> {
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.split(']').next().unwrap_or_default().trim();
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let key = key.trim();
        if (section == "build" && key == "target-dir")
            || (section.is_empty() && key == "build.target-dir")
        {
            let value = value.trim();
            let quote = value
                .chars()
                .next()
                .filter(|quote| matches!(quote, '"' | '\''))?;
            return Some(PathBuf::from(value[1..].split(quote).next()?));
        }
    }
    None
}

/// Returns the environment variable that gives a fork its own target directory.
///
/// `root` is the path at which the command sees the fork's root. `None` if `tine.cargoTargetDir` is
/// not `own` or the fork has no `Cargo.toml`.
pub fn variable(place: &Place, root: &Path) -> Option<(&'static str, OsString)> {
    let is_own = setting(place).as_deref() == Some("own") && root.join("Cargo.toml").is_file();
    is_own.then(|| (VARIABLE, root.join("target").into_os_string()))
}

/// Returns a note about a shared directory, unless `tine.cargoTargetDir` is set.
pub fn note(place: &Place, root: &Path) -> Option<String> {
    let dir = shared(root)?;
    if setting(place).is_some() {
        return None;
    }
    Some(format!(
        "cargo builds into {} here, as in other trees: what one built last may run in another; `git config {CONFIG_KEY} own` gives each fork its own, `{CONFIG_KEY} shared` ends this note",
        dir.display()
    ))
}

fn setting(place: &Place) -> Option<String> {
    place.repository().ok()?.config_string(CONFIG_KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_directory_is_read_from_the_section_build() {
        let dir = |text| target_dir_in(text).map(|dir| dir.display().to_string());
        assert_eq!(
            dir("[net]\ntarget-dir = \"/a\"\n[build]\njobs = 1\ntarget-dir = \"/b\" # all\n"),
            Some("/b".to_owned())
        );
        assert_eq!(dir("build.target-dir = '/c'\n"), Some("/c".to_owned()));
        assert_eq!(dir("[build]\ntarget-dir = 3\n"), None);
    }
}
