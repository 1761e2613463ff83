// Changed paths, each with both sides beside each other.

import { ask } from "./ask.js";
import { bytes, counted, element, failureBox, pathText, refill, short, visible } from "./element.js";

/** Paths that are listed at once, and of those how many are opened by themselves. */
const LISTED = 100;
const OPENED = 12;

/** Lines in which a file that is opened by itself may differ. */
const OPENED_LINES = 400;

const ROWS = 400;
const WHOLE = 1e9;

/** A list of changed paths that can be shown anew: what is the same stays as it is. */
export function changesList() {
  const place = element("div", { class: "changes" });
  let files = new Map();
  let listed = LISTED;
  const show = (changes) => {
    const sum = (field) => changes.reduce((sum, change) => sum + (change[field] ?? 0), 0);
    const shown = changes.slice(0, listed);
    const known = files;
    files = new Map(shown.map((change, index) => {
      const key = JSON.stringify([change.path, change.kind, change.old_id, change.new_id, change.old_mode, change.new_mode]);
      return [key, known.get(key) ?? fileBox(change, index < OPENED)];
    }));
    const more = changes.length - shown.length;
    refill(place,
      element("p", { class: "summary" }, changes.length === 0 ? "Nothing differs." : `${counted(changes.length, "path")}, `,
        changes.length > 0 && [element("span", { class: "good" }, `+${sum("added_lines")}`), " ",
          element("span", { class: "bad" }, `−${sum("removed_lines")}`)]),
      ...files.values(),
      more > 0 ? element("button", { click: () => { listed *= 2; show(changes); } }, `Show more: ${counted(more, "path")}`) : "");
  };
  return { place, show };
}

const KINDS = { added: "added", modified: "modified", deleted: "deleted", type_changed: "another type" };

function fileBox(change, mayOpen) {
  const lines = (change.added_lines ?? 0) + (change.removed_lines ?? 0);
  const body = element("div", { class: "body" });
  let isLoaded = false;
  const load = async () => {
    if (!isLoaded) {
      isLoaded = true;
      await fill(body, change, {});
    }
  };
  const box = element("details", { class: "file", "data-path": pathText(change.path), toggle: () => box.open && load() },
    element("summary", {}, element("span", { class: `kind ${change.kind}` }, KINDS[change.kind] ?? change.kind), " ",
      element("span", { class: "path" }, pathText(change.path)), " ",
      change.added_lines === null ? element("span", { class: "faint" }, "no text")
        : [element("span", { class: "good" }, `+${change.added_lines}`), " ", element("span", { class: "bad" }, `−${change.removed_lines}`)],
      change.old_mode !== change.new_mode && change.old_mode && change.new_mode
        ? element("span", { class: "careful" }, ` mode ${change.old_mode} → ${change.new_mode}`) : ""),
    body);
  if (mayOpen && lines <= OPENED_LINES) {
    box.open = true;
  }
  return box;
}

async function fill(body, change, { context, rows = ROWS }) {
  const { old_id, old_mode, new_id, new_mode } = change;
  try {
    const compared = await ask("sides", { old_id, old_mode, new_id, new_mode, context, rows });
    if (!compared.sides) {
      refill(body, element("p", { class: "other" }, `${otherText(compared.old, change.old_id)} → ${otherText(compared.new, change.new_id)}`));
      return;
    }
    const { hunks, rows: total } = compared.sides;
    const shown = hunks.reduce((sum, hunk) => sum + hunk.rows.length, 0);
    const again = (wish) => () => fill(body, change, { context, rows, ...wish });
    refill(body,
      hunks.length > 0 ? sidesTable(change, hunks) : element("p", { class: "other" }, "The text is the same."),
      element("p", { class: "more" },
        shown < total ? element("button", { class: "show-more", click: again({ rows: rows * 8 }) }, `Show more: ${counted(total - shown, "row")}`) : "",
        context === undefined && hunks.length > 0 && old_id && new_id
          ? element("button", { class: "show-whole", click: again({ context: WHOLE }) }, "Show the whole file") : ""));
  } catch (error) {
    refill(body, failureBox(error.failure ?? { message: error.message }));
  }
}

/** What is there instead of a text. */
export function otherText(shown, id) {
  switch (shown?.form) {
    case "binary": return `no text, ${bytes(shown.bytes)}`;
    case "large": return `too large to be shown, ${bytes(shown.bytes)}`;
    case "submodule": return `submodule at ${short(shown.commit)}`;
    default: return id ? "a text" : "nothing";
  }
}

function pieces(list) {
  return list.map(([mark, text]) => {
    switch (mark) {
      case "changed": return element("mark", {}, visible(text));
      case "note": return element("span", { class: "note" }, ` ⟨${text}⟩`);
      default: return visible(text);
    }
  });
}

function sidesTable(change, hunks) {
  const body = element("tbody", {});
  for (const hunk of hunks) {
    let [old, now] = [hunk.old_line, hunk.new_line];
    body.append(element("tr", { class: "hunk" }, element("td", { colspan: 6 }, `line ${old} → ${now}`)));
    for (const row of hunk.rows) {
      const [left, right] = [row.same ?? row.old, row.same ?? row.new];
      const looks = row.same ? "same" : "changed";
      body.append(element("tr", { class: looks },
        element("td", { class: "number" }, left ? old : ""),
        element("td", { class: "sign" }, !row.same && left ? "−" : ""),
        element("td", { class: left ? `text old ${looks}` : "text none" }, left ? pieces(left) : ""),
        element("td", { class: "number" }, right ? now : ""),
        element("td", { class: "sign" }, !row.same && right ? "+" : ""),
        element("td", { class: right ? `text new ${looks}` : "text none" }, right ? pieces(right) : "")));
      old += left ? 1 : 0;
      now += right ? 1 : 0;
    }
  }
  return element("table", { class: "sides" },
    element("caption", { class: "hidden" }, `${pathText(change.path)}, before and after`),
    element("colgroup", {}, ["number", "sign", "text", "number", "sign", "text"].map((of) => element("col", { class: of }))),
    body);
}
