//! The tree of forks as a picture: in Graphviz's language, and as SVG.

use std::fmt::Write as _;

/// Fork or snapshot that is drawn as one box.
#[derive(Debug)]
pub(super) struct GraphNode {
    pub label: String,
    /// A few words below the label.
    pub about: String,
    pub kind: NodeKind,
    pub children: Vec<GraphNode>,
}

/// Kind of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    Mounted,
    Unmounted,
    Snapshot,
}

/// Writes the graph in Graphviz's language (<https://graphviz.org/doc/info/lang.html>).
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

/// Draws a node and all nodes below it. Returns the node's number.
fn dot_of(node: &GraphNode, number: &mut usize, text: &mut String) -> usize {
    let own = *number;
    *number += 1;
    let style = match node.kind {
        NodeKind::Mounted => "",
        NodeKind::Unmounted => ", style=\"rounded,dashed\"",
        NodeKind::Snapshot => ", shape=ellipse, style=\"\"",
    };
    let label = if node.about.is_empty() {
        dot_escaped(&node.label)
    } else {
        format!(
            "{}\\n{}",
            dot_escaped(&node.label),
            dot_escaped(&node.about)
        )
    };
    let _ = writeln!(text, "  n{own} [label=\"{label}\"{style}];");
    for child in &node.children {
        let child = dot_of(child, number, text);
        let _ = writeln!(text, "  n{own} -> n{child};");
    }
    own
}

/// Escapes text for a quoted string: a quote ends it, a backslash begins an escape.
fn dot_escaped(text: &str) -> String {
    visible(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// Sizes in pixels.
const ROW: usize = 56;
const COLUMN: usize = 64;
const BOX_HEIGHT: usize = 40;
const MARGIN: usize = 16;
const PADDING: usize = 12;
/// Width of a letter of the bold label. Wide fonts fit.
const LABEL_LETTER: usize = 10;
/// Width of a letter of the text below the label.
const ABOUT_LETTER: usize = 8;
/// Letters of a line that are drawn. The tooltip has the rest.
const LETTERS: usize = 44;

/// Box with its position.
struct Placed<'a> {
    node: &'a GraphNode,
    depth: usize,
    row: usize,
    /// Row of the parent's box.
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
        let label = LABEL_LETTER * cut(&self.node.label).chars().count();
        let about = ABOUT_LETTER * cut(&self.node.about).chars().count();
        2 * PADDING + label.max(about).max(6 * ABOUT_LETTER)
    }
}

/// Draws a complete SVG picture.
///
/// Each fork and snapshot has a row, to the right of what it was made from.
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
        let (fill, stroke, corner) = match one.node.kind {
            NodeKind::Mounted => ("#e3f0ff", "stroke=\"#2f6fb3\"", 6),
            NodeKind::Unmounted => ("#f4f5f7", "stroke=\"#8a8f98\" stroke-dasharray=\"4 3\"", 6),
            NodeKind::Snapshot => ("#fff6dc", "stroke=\"#b38a2f\"", BOX_HEIGHT / 2),
        };
        let (left, top, width) = (one.left(), one.top(), one.width());
        let _ = writeln!(
            text,
            "<g><title>{}</title><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" rx=\"{corner}\" fill=\"{fill}\" {stroke}/>",
            xml_escaped(&format!("{} {}", one.node.label, one.node.about)),
        );
        let x = left + PADDING;
        let y = if one.node.about.is_empty() {
            top + 25
        } else {
            top + 17
        };
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"14\" font-weight=\"600\" fill=\"#1b1f24\">{}</text>",
            xml_escaped(&cut(&one.node.label))
        );
        if !one.node.about.is_empty() {
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"{}\" font-size=\"12\" fill=\"#57606a\">{}</text>",
                top + 33,
                xml_escaped(&cut(&one.node.about))
            );
        }
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn place<'a>(
    node: &'a GraphNode,
    depth: usize,
    parent_row: Option<usize>,
    placed: &mut Vec<Placed<'a>>,
) {
    let row = placed.len();
    placed.push(Placed {
        node,
        depth,
        row,
        parent_row,
    });
    for child in &node.children {
        place(child, depth + 1, Some(row), placed);
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() > LETTERS {
        text.chars().take(LETTERS - 1).chain(['…']).collect()
    } else {
        text.to_owned()
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

/// Replaces characters that a picture cannot show and XML does not allow.
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

    fn node(label: &str, about: &str, kind: NodeKind, children: Vec<GraphNode>) -> GraphNode {
        GraphNode {
            label: label.to_owned(),
            about: about.to_owned(),
            kind,
            children,
        }
    }

    fn tree() -> Vec<GraphNode> {
        let nasty = node(
            "@snap",
            "say \"</text><script>\\\" & 'x'\n\u{1b}[2J",
            NodeKind::Snapshot,
            vec![node("child", "[tine/child]", NodeKind::Mounted, Vec::new())],
        );
        vec![
            node("parent", "[main]", NodeKind::Mounted, vec![nasty]),
            node("alone", "", NodeKind::Unmounted, Vec::new()),
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
        let text = svg(&[node("before-discard-1", "", NodeKind::Snapshot, Vec::new())]);
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
