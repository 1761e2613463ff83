//! One target directory of cargo's that several trees build into: told, and each fork given its own
//! where the user wants that.
//!
//! cargo compares times of files. What one tree built last is newer than the sources of another,
//! whatever times these have: with a shared directory a tree may run what was built of the other's
//! sources.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::place::Place;

/// Says what becomes of a shared directory: `own` or `shared`.
const CONFIG_KEY: &str = "tine.cargoTargetDir";

/// The variable by which cargo is told its target directory.
const VARIABLE: &str = "CARGO_TARGET_DIR";

/// The target directory that cargo in the fork at `root` shares with other trees, if there is one.
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

/// `target-dir` of the section `build`, if it is a plain string.
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

/// What a command in the fork, whose root is seen at `root`, has in its environment for cargo.
pub fn variable(place: &Place, root: &Path) -> Option<(&'static str, OsString)> {
    let is_own = setting(place).as_deref() == Some("own") && root.join("Cargo.toml").is_file();
    is_own.then(|| (VARIABLE, root.join("target").into_os_string()))
}

/// The note about a shared directory, where nothing is set.
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
