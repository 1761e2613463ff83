// The forks: which began as which, drawn and in a table; and one of them with what it has changed.

import { ask } from "./ask.js";
import { changesList } from "./diff.js";
import { ago, bytes, counted, drawn, element, failureBox, refill, short, table, visible } from "./element.js";

const ROW = 34;
const STEP = 26;

/** More snapshots of a fork than these are only counted, unless a fork began as one of them. */
const SNAPSHOTS_SHOWN = 6;

const branchOf = (fork) => fork.branch ?? `detached at ${short(fork.head_commit)}`;
const linkTo = (fork) => `#/fork/${encodeURIComponent(fork.name)}`;

/** The rows of the drawing: each with its depth, and the row that it hangs on. */
function rowsOf({ forks, snapshots }) {
  const rows = [];
  const named = new Map(forks.map((fork) => [fork.name, fork]));
  const snapshotsOf = (fork) => snapshots[fork.name] ?? [];
  const snapshotOf = (child, parent) => snapshotsOf(parent).find(({ name }) => name === child.parent.snapshot);
  const children = (parent, snapshot) => forks.filter((child) => child.parent?.fork === parent.name
    && child.name !== parent.name && snapshotOf(child, parent)?.name === snapshot);
  const push = (row) => rows.push(row) - 1;
  const hang = (fork, depth, from) => {
    const at = push({ kind: "fork", fork, depth, from });
    const all = snapshotsOf(fork);
    const kept = all.filter(({ name }, index) => index >= all.length - SNAPSHOTS_SHOWN || children(fork, name).length > 0);
    for (const snapshot of kept) {
      const beneath = push({ kind: "snapshot", fork, snapshot, depth: depth + 1, from: at });
      children(fork, snapshot.name).forEach((child) => hang(child, depth + 2, beneath));
    }
    if (kept.length < all.length) {
      push({ kind: "more", count: all.length - kept.length, depth: depth + 1, from: at });
    }
    children(fork, undefined).forEach((child) => hang(child, depth + 1, at));
  };
  const roots = forks.filter(({ parent }) => !parent || !named.has(parent.fork));
  const beginnings = [...new Set(roots.map(({ from_branch }) => from_branch))];
  for (const branch of beginnings) {
    const at = push({ kind: "branch", branch, depth: 0 });
    roots.filter(({ from_branch }) => from_branch === branch).forEach((fork) => hang(fork, 1, at));
  }
  return rows;
}

/** What is to be said of a fork beside its name, with a word for its looks. */
function badges(fork, uncommitted, forks) {
  const told = [];
  const state = uncommitted?.[fork.name];
  if (state?.trouble) {
    told.push(["bad", "trouble"]);
  } else if (state?.paths) {
    told.push(["careful", `${counted(state.paths, "path")} uncommitted`]);
  }
  if (!fork.mounted) {
    told.push(["faint", "not mounted"]);
  }
  if (fork.parent && forks.every(({ name }) => name !== fork.parent.fork)) {
    told.push(["faint", `began as ${fork.parent.fork}, which is deleted`]);
  }
  return told;
}

function drawing(told, uncommitted) {
  const rows = rowsOf(told);
  const x = (row) => 14 + row.depth * STEP;
  const y = (at) => ROW / 2 + at * ROW;
  const edges = rows.map((row, at) => row.from === undefined ? null : drawn("path", {
    class: "edge", d: `M${x(rows[row.from])} ${y(row.from)}V${y(at)}H${x(row)}`,
  }));
  const nodes = rows.map((row, at) => {
    const place = { class: `node ${row.kind}`, transform: `translate(${x(row)} ${y(at)})` };
    const label = (...parts) => drawn("text", { x: 14, y: 5 }, parts);
    const part = (looks, text) => drawn("tspan", { class: looks, dx: 8 }, visible(text));
    switch (row.kind) {
      case "branch":
        return drawn("g", place, drawn("rect", { x: -6, y: -6, width: 12, height: 12 }), label(row.branch ?? "no branch"));
      case "snapshot":
        return drawn("g", place, drawn("path", { d: "M-5 0L0-5L5 0L0 5Z" }),
          drawn("a", { href: `${linkTo(row.fork)}?against=${encodeURIComponent(`snapshot:${row.snapshot.name}`)}` },
            label(`@${row.snapshot.name}`, row.snapshot.message && part("faint", row.snapshot.message))));
      case "more":
        return drawn("g", place, label(part("faint", `and ${counted(row.count, "older snapshot")}`)));
      default:
        return drawn("g", { ...place, class: `node fork ${row.fork.mounted ? "mounted" : ""}` },
          drawn("circle", { r: 7 }),
          drawn("a", { href: linkTo(row.fork), "data-fork": row.fork.name },
            label(drawn("tspan", { class: "name" }, row.fork.name), part("faint", `[${branchOf(row.fork)}]`),
              badges(row.fork, uncommitted, told.forks).map(([looks, text]) => part(looks, text)))));
    }
  });
  const height = rows.length * ROW;
  const width = 720 + STEP * Math.max(0, ...rows.map(({ depth }) => depth));
  return drawn("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": "Which fork began as which" }, edges, nodes);
}

function forksTable(told, uncommitted) {
  return table("Forks", ["name", "began as", "branch", "uncommitted", "mounted", "layer", "made", "place"],
    told.forks.map((fork) => {
      const state = uncommitted?.[fork.name];
      const parent = fork.parent;
      return [
        element("a", { href: linkTo(fork) }, fork.name),
        parent ? `${parent.fork}${parent.snapshot ? `@${parent.snapshot}` : ""}` : (fork.from_branch ?? short(fork.base_commit)),
        visible(branchOf(fork)),
        state?.trouble ? failureBox(state.trouble) : state ? (state.paths ?? "") : "…",
        fork.mounted ? "yes" : "no",
        bytes(fork.layer_bytes),
        ago(fork.created_secs),
        element("code", {}, placeText(fork.mount_dir)),
      ];
    }));
}

const placeText = (dir) => typeof dir === "string" ? visible(dir) : "(no text)";

export async function showForks(place) {
  let known = null;
  const look = async () => {
    const told = await ask("forks");
    const draw = (uncommitted) => {
      const focused = document.activeElement?.dataset?.fork;
      refill(place,
        element("h2", {}, counted(told.forks.length, "fork")),
        told.damaged.map((failure) => failureBox(failure)),
        ...(told.forks.length > 0 ? [element("div", { class: "scroll" }, drawing(told, uncommitted)),
          element("div", { class: "scroll" }, forksTable(told, uncommitted))]
          : [element("p", {}, "There are no forks yet: ", element("code", {}, "tine new NAME"), " makes one.")]));
      if (focused) {
        place.querySelector(`[data-fork="${CSS.escape(focused)}"]`)?.focus();
      }
    };
    draw(known);
    // Takes longer: each fork is looked at.
    known = await ask("uncommitted");
    draw(known);
  };
  await look();
  return look;
}

export async function showFork(place, [name], query) {
  const against = query.get("against");
  const list = changesList();
  const head = element("div", {});
  place.append(head, list.place);
  const look = async () => {
    const [{ forks, snapshots }, difference] = await Promise.all([ask("forks"), ask("diff", { fork: name, against })]);
    const fork = forks.find((fork) => fork.name === name);
    const choose = (event) => {
      const point = event.target.value;
      location.hash = `${linkTo({ name })}${point ? `?against=${encodeURIComponent(point)}` : ""}`;
    };
    const points = [["", "HEAD: what is not committed"], ["pristine", "pristine: all since the fork point"],
      ...(snapshots[name] ?? []).map((snapshot) => [`snapshot:${snapshot.name}`, `@${snapshot.name}`]),
      ...forks.filter((other) => other.name !== name).map((other) => [`fork:${other.name}`, `the fork ${other.name}`])];
    if (against && points.every(([point]) => point !== against)) {
      points.push([against, against]);
    }
    refill(head,
      element("h2", {}, "Fork ", element("span", { class: "name" }, name)),
      element("p", { class: "faint" }, `on ${visible(fork ? branchOf(fork) : "")}, ${fork?.mounted ? "mounted at " : "not mounted, "}`,
        element("code", {}, fork ? placeText(fork.mount_dir) : "")),
      element("p", {}, element("label", {}, "Changes against ",
        element("select", { id: "against", change: choose }, points.map(([point, text]) =>
          element("option", { value: point, selected: point === (against ?? "") }, visible(text)))))),
      difference.left_out.length > 0 ? element("p", { class: "careful" },
        `${counted(difference.left_out.length, "path")} left out: git cannot hold them`) : "");
    list.show(difference.changes);
  };
  await look();
  return look;
}
