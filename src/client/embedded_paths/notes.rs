//! Notes for the user about embedded paths.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::EmbeddedPath;
use crate::origin::SeenPlaces;
use crate::place::Place;
use tine_ops::Failure;
use tine_ops::protocol::ForkInfo;
use tine_path::text::PathText;
use tine_render::text::{counted, quoted};
use tine_store::{ForkName, VisiblePath};

/// Returns notes for the user about embedded paths, with advice.
///
/// # Errors
/// The errors of [`Place::repository`].
pub fn notes(
    place: &Place,
    fork: &ForkInfo,
    found: &[EmbeddedPath],
) -> Result<Vec<String>, Failure> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    Ok(notes_at(&SeenPlaces::of(place, fork)?, &fork.name, found))
}

/// Returns the notes: for each other tree one, rewritten paths first.
fn notes_at(places: &SeenPlaces, name: &ForkName, found: &[EmbeddedPath]) -> Vec<String> {
    let mut notes = Vec::new();
    for (root, right) in by_root(found.iter().filter(|lead| lead.made_right)) {
        notes.push(format!(
            "{} led to {}: made to lead to the fork ({})",
            listed(&right),
            quoted(root),
            counted(right.len(), "place"),
        ));
    }
    for (root, left) in by_root(found.iter().filter(|lead| !lead.made_right)) {
        let is_at = |place: &Option<PathBuf>| {
            place
                .as_ref()
                .is_some_and(|place| place.as_os_str().as_bytes() == root.to_bytes())
        };
        let (is_origin, is_parent) = (is_at(&places.origin), is_at(&places.parent));
        let leads = format!("{} leads to {}", listed(&left), quoted(root));
        let wrong = "so programs may read other sources than the fork's";
        let by_default = places.by_default;
        notes.push(
            if by_default == VisiblePath::Origin && is_origin || by_default == VisiblePath::Parent && is_parent {
                format!("{leads}, where commands that tine runs in {name} see the fork")
            } else if is_origin {
                format!(
                    "{leads}, {wrong}: `tine exec {name} --at-origin -- CMD` runs CMD there, `git config tine.atOrigin true` does so always; or build it again in the fork"
                )
            } else if is_parent {
                format!(
                    "{leads}, {wrong}: `tine exec {name} --at-parent -- CMD` runs CMD there, `tine new --at-parent` has it so always; or build it again in the fork"
                )
            } else {
                format!("{leads}, {wrong}: build it again in the fork")
            },
        );
    }
    notes
}

/// Groups embedded paths by the other tree, in the order of discovery.
fn by_root<'f>(
    found: impl Iterator<Item = &'f EmbeddedPath>,
) -> Vec<(&'f PathText, Vec<&'f EmbeddedPath>)> {
    let mut roots: Vec<(&PathText, Vec<&EmbeddedPath>)> = Vec::new();
    for lead in found {
        match roots.iter_mut().find(|(root, _)| **root == lead.leads_to) {
            Some((_, leads)) => leads.push(lead),
            None => roots.push((&lead.leads_to, vec![lead])),
        }
    }
    roots
}

/// Formats the first three paths as a list.
fn listed(found: &[&EmbeddedPath]) -> String {
    const MOST: usize = 3;
    let mut text: Vec<String> = found
        .iter()
        .take(MOST)
        .map(|lead| quoted(&lead.path))
        .collect();
    if found.len() > MOST {
        text.push("…".to_owned());
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded_paths::EmbeddedPathKind;

    #[test]
    fn each_tree_has_a_note_with_the_advice_that_fits() {
        let lead = |path: &str, root: &str| EmbeddedPath {
            path: PathText::from(path.as_bytes()),
            kind: EmbeddedPathKind::CmakeCache,
            leads_to: PathText::from(root.as_bytes()),
            made_right: false,
        };
        let found = [
            lead("a", "/x/repo"),
            lead("b", "/x/repo.forks/parent"),
            lead("c", "/x/repo"),
            lead("d", "/x/repo.forks/other"),
        ];
        let name = ForkName::parse("work").unwrap();
        let said = |by_default| {
            let places = SeenPlaces {
                by_default,
                origin: Some("/x/repo".into()),
                parent: Some("/x/repo.forks/parent".into()),
            };
            notes_at(&places, &name, &found)
        };
        let own = said(VisiblePath::Own);
        assert_eq!(own.len(), 3, "{own:?}");
        assert!(own[0].starts_with("a, c leads to /x/repo,") && own[0].contains("--at-origin"));
        assert!(
            own[1].starts_with("b leads to /x/repo.forks/parent,")
                && own[1].contains("--at-parent")
        );
        assert!(own[2].starts_with("d leads to") && !own[2].contains("--at-"));
        let is_seen = |note: &String| note.contains("see the fork");
        let seen = |notes: Vec<String>| notes.iter().map(is_seen).collect::<Vec<_>>();
        assert_eq!(seen(said(VisiblePath::Origin)), [true, false, false]);
        assert_eq!(seen(said(VisiblePath::Parent)), [false, true, false]);
    }
}
