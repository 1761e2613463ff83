//! The tree of forks as a picture: in Graphviz's language, and as SVG.

use std::fmt::Write as _;

/// What is drawn as one box.
#[derive(Debug)]
pub(super) struct GraphNode {
    pub label: String,
    /// A few words beneath the label.
    pub about: String,
    pub kind: KnotKind,
    pub children: Vec<GraphNode>,
}

/// What a box stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnotKind {
    Mounted,
    Unmounted,
    Snapshot,
}

/// The language of Graphviz (<https://graphviz.org/doc/info/lang.html>).
pub(super) fn dot(roots: &[GraphNode]) -> String {
    let mut text = String::from(
        "digraph forks {\n  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n",
    );
    let mut number = 0;
    for root in roots {
        dot_of(root, &mut number, &mut text);
    }
    text.push_str("}\n");
    text
}

/// Draws a knot and all beneath it; its number.
fn dot_of(knot: &GraphNode, number: &mut usize, text: &mut String) -> usize {
    let own = *number;
    *number += 1;
    let style = match knot.kind {
        KnotKind::Mounted => "",
        KnotKind::Unmounted => ", style=\"rounded,dashed\"",
        KnotKind::Snapshot => ", shape=ellipse, style=\"\"",
    };
    let label = match knot.about.is_empty() {
        true => dot_escaped(&knot.label),
        false => format!(
            "{}\\n{}",
            dot_escaped(&knot.label),
            dot_escaped(&knot.about)
        ),
    };
    let _ = writeln!(text, "  n{own} [label=\"{label}\"{style}];");
    for child in &knot.children {
        let child = dot_of(child, number, text);
        let _ = writeln!(text, "  n{own} -> n{child};");
    }
    own
}

/// In a quoted string only quotes end it, and a backslash begins an escape.
fn dot_escaped(text: &str) -> String {
    visible(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Sizes in pixels.
const ROW: usize = 56;
const COLUMN: usize = 64;
const BOX_HEIGHT: usize = 40;
const MARGIN: usize = 16;
const PADDING: usize = 12;
/// Of a letter of the label, which is bold, and of one beneath it: wide fonts fit, too.
const LABEL_LETTER: usize = 10;
const ABOUT_LETTER: usize = 8;
/// Letters of a line that are drawn; the rest is in the tooltip.
const LETTERS: usize = 44;

/// A box and its place.
struct Placed<'a> {
    knot: &'a GraphNode,
    depth: usize,
    row: usize,
    /// Where the parent's box is.
    parent_row: Option<usize>,
}

impl Placed<'_> {
    fn left(&self) -> usize {
        MARGIN + self.depth * COLUMN
    }

    fn top(&self) -> usize {
        MARGIN + self.row * ROW
    }

    fn width(&self) -> usize {
        let label = LABEL_LETTER * cut(&self.knot.label).chars().count();
        let about = ABOUT_LETTER * cut(&self.knot.about).chars().count();
        2 * PADDING + label.max(about).max(6 * ABOUT_LETTER)
    }
}

/// A picture that stands by itself: each fork and snapshot has a row, and stands to the right of
/// what it began as.
pub(super) fn svg(roots: &[GraphNode]) -> String {
    let mut placed = Vec::new();
    for root in roots {
        place(root, 0, None, &mut placed);
    }
    let width = placed
        .iter()
        .map(|one| one.left() + one.width())
        .max()
        .unwrap_or(0)
        + MARGIN;
    let height = MARGIN + placed.len() * ROW;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n\
         <title>Forks</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for one in &placed {
        if let Some(parent_row) = one.parent_row {
            let x = one.left() - COLUMN / 2;
            let from = MARGIN + parent_row * ROW + BOX_HEIGHT;
            let to = one.top() + BOX_HEIGHT / 2;
            let _ = writeln!(
                text,
                "<path d=\"M{x} {from}V{to}H{}\" fill=\"none\" stroke=\"#8a8f98\"/>",
                one.left()
            );
        }
    }
    for one in &placed {
        let (fill, stroke, corner) = match one.knot.kind {
            KnotKind::Mounted => ("#e3f0ff", "stroke=\"#2f6fb3\"", 6),
            KnotKind::Unmounted => ("#f4f5f7", "stroke=\"#8a8f98\" stroke-dasharray=\"4 3\"", 6),
            KnotKind::Snapshot => ("#fff6dc", "stroke=\"#b38a2f\"", BOX_HEIGHT / 2),
        };
        let (left, top, width) = (one.left(), one.top(), one.width());
        let _ = writeln!(
            text,
            "<g><title>{}</title><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" rx=\"{corner}\" fill=\"{fill}\" {stroke}/>",
            xml_escaped(&format!("{} {}", one.knot.label, one.knot.about)),
        );
        let x = left + PADDING;
        let y = match one.knot.about.is_empty() {
            true => top + 25,
            false => top + 17,
        };
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"14\" font-weight=\"600\" fill=\"#1b1f24\">{}</text>",
            xml_escaped(&cut(&one.knot.label))
        );
        if !one.knot.about.is_empty() {
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"{}\" font-size=\"12\" fill=\"#57606a\">{}</text>",
                top + 33,
                xml_escaped(&cut(&one.knot.about))
            );
        }
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn place<'a>(
    knot: &'a GraphNode,
    depth: usize,
    parent_row: Option<usize>,
    placed: &mut Vec<Placed<'a>>,
) {
    let row = placed.len();
    placed.push(Placed {
        knot,
        depth,
        row,
        parent_row,
    });
    for child in &knot.children {
        place(child, depth + 1, Some(row), placed);
    }
}

fn cut(text: &str) -> String {
    match text.chars().count() > LETTERS {
        true => text.chars().take(LETTERS - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn xml_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in visible(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Without what no picture can show, and XML does not allow.
fn visible(text: &str) -> String {
    let shown = |character: char| match character {
        c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => ' ',
        c => c,
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knot(label: &str, about: &str, kind: KnotKind, children: Vec<GraphNode>) -> GraphNode {
        GraphNode {
            label: label.to_owned(),
            about: about.to_owned(),
            kind,
            children,
        }
    }

    fn tree() -> Vec<GraphNode> {
        let nasty = knot(
            "@snap",
            "say \"</text><script>\\\" & 'x'\n\u{1b}[2J",
            KnotKind::Snapshot,
            vec![knot("child", "[tine/child]", KnotKind::Mounted, Vec::new())],
        );
        vec![
            knot("parent", "[main]", KnotKind::Mounted, vec![nasty]),
            knot("alone", "", KnotKind::Unmounted, Vec::new()),
        ]
    }

    #[test]
    fn graphviz_gets_a_node_for_each_and_an_edge_for_each_child() {
        let text = dot(&tree());
        insta::assert_snapshot!(text, @r#"
        digraph forks {
          rankdir=LR;
          node [shape=box, style=rounded, fontname="sans-serif"];
          n0 [label="parent\n[main]"];
          n1 [label="@snap\nsay \"</text><script>\\\" & 'x'  [2J", shape=ellipse, style=""];
          n2 [label="child\n[tine/child]"];
          n1 -> n2;
          n0 -> n1;
          n3 [label="alone", style="rounded,dashed"];
        }
        "#);
    }

    #[test]
    fn a_long_name_fits_into_its_box() {
        let text = svg(&[knot("before-discard-1", "", KnotKind::Snapshot, Vec::new())]);
        let width = 2 * PADDING + 16 * 10;
        assert!(
            text.contains(&format!("width=\"{width}\" height=\"{BOX_HEIGHT}\"")),
            "{text}"
        );
    }

    #[test]
    fn no_name_or_message_breaks_out_of_the_picture() {
        let text = svg(&tree());
        assert!(!text.contains("<script"), "{text}");
        assert!(
            text.contains("say &quot;&lt;/text&gt;&lt;script&gt;"),
            "{text}"
        );
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
        let count = |what: &str| text.matches(what).count();
        assert_eq!((count("<g>"), count("</g>")), (4, 4));
        assert_eq!(count("<path "), 2, "an edge for each child");
        assert_eq!(count("<svg "), 1);
    }

    #[test]
    fn boxes_stand_in_rows_of_their_own_to_the_right_of_their_parents() {
        let tree = tree();
        let mut placed = Vec::new();
        for root in &tree {
            place(root, 0, None, &mut placed);
        }
        let places: Vec<(usize, usize, Option<usize>)> = placed
            .iter()
            .map(|one| (one.depth, one.row, one.parent_row))
            .collect();
        assert_eq!(
            places,
            [(0, 0, None), (1, 1, Some(0)), (2, 2, Some(1)), (0, 3, None)]
        );
        let long = "x".repeat(500);
        assert_eq!(cut(&long).chars().count(), LETTERS);
        assert!(svg(&[]).starts_with("<svg "));
    }
}
