//! The page's files: all there, and nothing in them that would let a content become markup or a
//! script.

use crate::support::{Tine, require_fuse};
use crate::{Ui, repo};

/// What would read text as markup or as a program, or ask somebody else.
const FORBIDDEN: [&str; 14] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "DOMParser",
    "createContextualFragment",
    "srcdoc",
    "eval(",
    "new Function",
    "javascript:",
    "style=",
    "onclick=",
    "https://",
    "//cdn",
];

#[test]
fn every_file_is_served_and_none_makes_markup_of_text() {
    require_fuse!();
    let repo = repo();
    let tine = Tine::new(&repo);
    let ui = Ui::start(&tine);
    let mut open = vec![String::new()];
    let mut seen: Vec<String> = Vec::new();
    while let Some(name) = open.pop() {
        if seen.contains(&name) {
            continue;
        }
        let reply = ui.send("GET", &name, None);
        assert_eq!(reply.status, 200, "{name}");
        let media_type = match name.rsplit_once('.') {
            None => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            Some(_) => "text/javascript; charset=utf-8",
        };
        assert_eq!(reply.header("content-type"), media_type, "{name}");
        let text = reply.text();
        for forbidden in FORBIDDEN {
            assert!(!text.contains(forbidden), "{name} has {forbidden}");
        }
        // Lists would be shown as `[object …]`: one function fills places, and takes them.
        let fills = text.matches("replaceChildren(").count();
        assert_eq!(
            fills,
            usize::from(name == "element.js"),
            "{name} fills a place by itself"
        );
        let ours = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!ours.contains("http://"), "{name} names another host");
        assert!(
            !text.contains("<script>") && !text.contains("<style"),
            "{name} has something inline"
        );
        for mark in ["src=\"", "href=\"", "from \"./"] {
            open.extend(
                text.split(mark)
                    .skip(1)
                    .filter_map(|rest| rest.split('"').next())
                    .filter(|found| !found.starts_with('#'))
                    .map(str::to_owned),
            );
        }
        seen.push(name);
    }
    assert_eq!(seen.len(), 12, "{seen:?}");
}
