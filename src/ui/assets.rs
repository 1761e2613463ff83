//! Files of the page, which are part of the program.

/// File of the page.
pub(crate) struct Asset {
    /// Path after the key. Empty for the page itself.
    pub name: &'static str,
    pub media_type: &'static str,
    pub content: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: [Asset; 12] = [
    Asset {
        name: "",
        media_type: "text/html; charset=utf-8",
        content: include_str!("assets/index.html"),
    },
    Asset {
        name: "style.css",
        media_type: "text/css; charset=utf-8",
        content: include_str!("assets/style.css"),
    },
    Asset {
        name: "icon.svg",
        media_type: "image/svg+xml",
        content: include_str!("assets/icon.svg"),
    },
    script("main.js", include_str!("assets/main.js")),
    script("ask.js", include_str!("assets/ask.js")),
    script("element.js", include_str!("assets/element.js")),
    script("graph.js", include_str!("assets/graph.js")),
    script("diff.js", include_str!("assets/diff.js")),
    script("review.js", include_str!("assets/review.js")),
    script("handoff.js", include_str!("assets/handoff.js")),
    script("round.js", include_str!("assets/round.js")),
    script("trouble.js", include_str!("assets/trouble.js")),
];

const fn script(name: &'static str, content: &'static str) -> Asset {
    Asset {
        name,
        media_type: SCRIPT,
        content,
    }
}

/// Returns the file of that name.
pub(crate) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}
