// Reviews: their conflicts with base, ours, theirs and the result beside each other, resolved, committed and let go.

import { act, ask, oneByOne } from "./ask.js";
import { changesList, otherText } from "./diff.js";
import { ago, counted, element, pathText, refill, renew, short, table, visible } from "./element.js";
import { guarded, tell } from "./trouble.js";

const KINDS = {
  both_modified: "both modified", both_added: "both added", rename_rename: "both renamed", type_changed: "file types differ",
  mode_changed: "executable on one side", binary: "both modified, binary", directory_renamed: "in a directory that was renamed",
  submodule: "submodule moved on both sides", rejected: "the patch does not fit",
};

const BY_SIDE = {
  modify_delete: ["modified here, deleted there", "deleted here, modified there"],
  rename_delete: ["renamed here, deleted there", "deleted here, renamed there"],
  directory_file: ["file here, directory there", "directory here, file there"],
};

const HOWS = { base: "base", ours: "ours", theirs: "theirs", union: "both", "base-file": "base's file", "ours-file": "our file",
  "theirs-file": "their file", content: "written by hand", delete: "no file" };

function kindText({ kind, ours }) {
  return KINDS[kind] ?? BY_SIDE[kind]?.[ours.length === 0 ? 1 : 0] ?? kind;
}

/** How a review stands, in a few words. */
function stands(review) {
  if (review.state === "committed") {
    return review.commit ? `committed as ${short(review.commit)}` : "committed";
  }
  if (review.state === "aborted") {
    return "aborted";
  }
  if (review.gone.includes("ours")) {
    return "its target is gone";
  }
  if (review.moved.length > 0) {
    return "outdated";
  }
  return review.open === 0 ? "resolved" : `${review.open} of ${counted(review.conflicts.length, "conflict")} open`;
}

const title = (review) => `${visible(review.merge.source)} into ${visible(review.merge.into)}`;

export async function showReviews(place) {
  const look = async () => {
    const { reviews } = await ask("reviews");
    const rows = reviews.toSorted((a, b) => b.id - a.id).map((review) => [
      element("a", { href: `#/review/${review.id}` }, `review ${review.id}`), title(review), stands(review), ago(review.created_secs)]);
    refill(place, element("h2", {}, counted(reviews.length, "review")),
      reviews.length > 0 ? table("Reviews", ["review", "of", "how it stands", "made"], rows)
        : element("p", {}, "There are none: ", element("code", {}, "tine merge --review"), " keeps a merge with conflicts as one."));
  };
  await look();
  return look;
}

export async function showReview(place, [id, at]) {
  const review = Number(id);
  const head = element("div", {});
  const came = element("div", { role: "status" });
  const list = element("nav", { "aria-label": "Conflicts", class: "conflicts" });
  const conflict = element("div", { class: "conflict" });
  const end = element("div", { class: "end" });
  const changes = changesList();
  const missing = element("p", { class: "faint" });
  place.append(head, came, list, conflict, end, element("h3", {}, "What it changes in the target"), missing, changes.place);
  let shownConflict = null;
  const message = element("textarea", { id: "message", rows: 2 });
  const inTurn = oneByOne();

  const show = async (told) => {
    const isOpen = told.state === "open";
    const number = Math.min(at === undefined ? Math.max(0, told.conflicts.findIndex(({ resolution }) => !resolution)) : Number(at),
      told.conflicts.length - 1);
    refill(head, element("h2", {}, `Review ${told.id}: ${title(told)}`),
      element("p", { id: "stands", "data-open": told.open, "data-state": told.state }, stands(told)),
      isOpen ? told.moved.map((side) => element("p", { class: "careful" },
        `${visible(side === "ours" ? told.merge.into : told.merge.source)} has moved on since: plan it again.`)) : "");
    refill(list, element("ol", {}, told.conflicts.map((one, index) => element("li", {},
      element("a", { href: `#/review/${told.id}/${index}`, "aria-current": index === number ? "true" : null, class: one.resolution ? "good" : "bad" },
        pathText(one.path)), " ",
      element("span", { class: "faint" }, kindText(one)), " ",
      element("strong", { class: one.resolution ? "good" : "bad" },
        one.resolution ? `${HOWS[one.resolution.how]} by ${visible(one.resolution.by)}` : "open")))));
    if (number >= 0) {
      const key = JSON.stringify([told.conflicts[number], isOpen]);
      if (key !== shownConflict) {
        const contents = await ask("conflict", { review, conflict: number });
        showConflict(conflict, told, contents, resolve);
        shownConflict = key;
      }
    }
    const isReady = told.open === 0 && told.moved.length === 0 && !told.gone.includes("ours");
    renew(end, [isOpen, isReady, told.verdict], () => isOpen ? [
      element("h3", {}, "The review as a whole"),
      told.verdict ? element("p", {}, `${told.verdict.kind} by ${visible(told.verdict.by)}: ${visible(told.verdict.reasoning ?? "")}`) : "",
      element("label", { for: "message" }, "Message of the merge commit (default: that of the merge)"), message,
      element("p", { class: "buttons" },
        element("button", { id: "commit", disabled: !isReady, click: commit }, "Commit the review"),
        element("button", { id: "refresh", click: () => guarded(() => inTurn(async () => show(await act("refresh", { review })))) }, "Plan it again"),
        element("button", { id: "abort", click: abort }, "Let it go")),
    ] : []);
    missing.textContent = told.open > 0 ? "Open conflicts are left out: their paths appear as deleted." : "";
    changes.show(told.changes);
  };
  const look = () => inTurn(async () => show(await ask("review", { review })));
  const resolve = (wish) => guarded(() => inTurn(async () => show(await act("resolve", { review, ...wish }))));
  const abort = () => window.confirm("Let the review go? Neither side is changed, and its resolutions are not used.")
    && guarded(() => inTurn(async () => show(await act("abort", { review }))));
  const commit = () => guarded(async () => {
    const done = await inTurn(() => act("commit", { review, message: message.value }));
    await look();
    refill(came, element("p", { id: "done" }, doneText(done)));
  });
  await look();
  return look;
}

/** What came of a merge or a sequence. */
export function doneText(done) {
  const target = done.target.branch ?? done.target.fork ?? "HEAD";
  const back = done.target.fork ? ` \`tine undo ${done.target.fork}\` takes that back.` : "";
  switch (done.status) {
    case "merged": return done.before === done.after ? `Done: ${counted(done.changes.length, "path")} changed in ${target}.${back}`
      : `Done: ${visible(target)} is at ${short(done.after)}, was at ${short(done.before)}.${back}`;
    case "nothing-to-merge": return `There was nothing to do: ${visible(target)} has all of it.`;
    default: return `Nothing was changed: there are ${counted(done.conflicts.length, "conflict")}.`;
  }
}

const SIDES = [["base", "Base: what both began as"], ["ours", "Ours: the target's"], ["theirs", "Theirs: the source's"]];

/** One conflict: all contents, and what can be made of it. */
function showConflict(place, review, conflict, resolve) {
  const isOpen = review.state === "open";
  const reason = element("input", { id: "reason", type: "text", autocomplete: "off" });
  const wish = (how, more) => resolve({ path: conflict.path, how, reason: reason.value, ...more });
  const button = (how, text, more) => element("button", { "data-how": how, click: () => wish(how, more) }, text);
  const panes = SIDES.map(([side, heading]) => element("section", { class: `pane ${side}` },
    element("h4", {}, heading),
    conflict[side].length === 0 ? element("p", { class: "faint" }, "no file")
      : conflict[side].map((version, index) => versionBox(conflict, version, conflict[`${side}_contents`][index],
        conflict.hunks.map((hunk) => hunk[side]))),
    isOpen && button(side, conflict[side].length === 0 ? "Take this: no file" : `Take ${side}`),
    // What else the sides changed stays merged with the one, and is lost with the other.
    isOpen && conflict.has_both && side !== "base" && button(`${side}-file`, "Take this whole file")));
  refill(place,
    element("h3", {}, pathText(conflict.path), " ", element("span", { class: "faint" }, kindText(conflict),
      conflict.of ? `, in ${visible(conflict.of)}` : "")),
    conflict.rejected ? element("div", {}, element("p", { class: "careful" }, visible(conflict.rejected.reason)),
      conflict.rejected.hunks?.text ? element("pre", {}, visible(conflict.rejected.hunks.text)) : "") : "",
    element("div", { class: "panes" }, panes, resultPane(conflict, isOpen, wish)),
    isOpen ? element("p", { class: "buttons" },
      element("label", { for: "reason" }, "Why (goes into the merge commit)"), reason,
      conflict.has_both && button("both", "Take both: ours, then theirs"),
      button("delete", "Take no file"),
      conflict.resolution && button("open", "Leave it open again")) : "");
}

function versionBox(conflict, version, shown, hunks) {
  const isElsewhere = JSON.stringify(version.path) !== JSON.stringify(conflict.path);
  const about = [isElsewhere && pathText(version.path), version.mode !== "100644" && `mode ${version.mode}`].filter(Boolean).join(", ");
  return element("div", {}, about ? element("p", { class: "careful" }, about) : "", contentBox(shown, hunks, version.id));
}

/** A content with its lines numbered, and those marked that conflict. */
function contentBox(shown, hunks, id) {
  if (shown?.form !== "text") {
    return element("p", { class: "other" }, otherText(shown, id));
  }
  const lines = shown.text.split("\n");
  if (lines.at(-1) === "") {
    lines.pop();
  }
  const box = element("div", { class: "content", tabindex: "0" },
    !shown.exact ? element("p", { class: "careful" }, "This is no UTF-8: ⟨�⟩ stands for what is none.") : "",
    element("ol", { class: "lines" }, lines.map((line, index) => element("li", {
      class: hunks.some(([start, end]) => index + 1 >= start && index + 1 < end) ? "conflicting" : null }, visible(line)))));
  // Where it conflicts is seen at once, as soon as it stands on the page.
  requestAnimationFrame(() => {
    const first = box.querySelector(".conflicting");
    if (first) {
      box.scrollTop = first.offsetTop - box.offsetTop - 40;
    }
  });
  return box;
}

/** How the lines of a text end, if all end alike: an editor in a page knows one end only. */
function lineEnd(text) {
  const withReturn = (text.match(/\r\n/g) ?? []).length;
  const all = (text.match(/\n/g) ?? []).length;
  const returns = (text.match(/\r/g) ?? []).length;
  if (returns === 0) {
    return "\n";
  }
  return withReturn === all && returns === withReturn ? "\r\n" : null;
}

function resultPane(conflict, isOpen, wish) {
  const { resolution } = conflict;
  const written = conflict.result_contents.map((shown, index) => contentBox(shown, [], resolution.versions[index].id));
  const begin = resolution ? conflict.result_contents[0]?.exact && conflict.result_contents[0].text : conflict.draft;
  const pane = element("section", { class: "pane result" }, element("h4", {}, "Result"));
  const told = () => refill(pane, element("h4", {}, "Result"),
    resolution ? element("p", { class: "good", id: "resolution", "data-how": resolution.how },
      `${HOWS[resolution.how]} by ${visible(resolution.by)}${resolution.reasoning ? `: ${visible(resolution.reasoning)}` : ""}`)
      : element("p", { class: "bad", id: "resolution", "data-how": "open" }, "open"),
    resolution ? written : conflict.draft !== null ? contentBox({ form: "text", text: conflict.draft, exact: true }, [], null) : "",
    isOpen ? edit() : "");
  const edit = () => {
    if (typeof begin !== "string") {
      return element("p", { class: "faint" }, "There is no text to edit: ", element("code", {}, "tine resolve --file"), " takes any content.");
    }
    if (lineEnd(begin) === null) {
      return element("p", { class: "faint" }, "Its lines end in different ways, which a page cannot keep: ",
        element("code", {}, "tine resolve --file"), " takes any content.");
    }
    return element("button", { id: "edit", click: editor }, "Edit by hand");
  };
  const editor = () => {
    const text = element("textarea", { id: "editor", rows: Math.min(40, begin.split("\n").length + 2), spellcheck: "false",
      "aria-label": "The result" });
    text.value = begin;
    const save = () => {
      if (/^(<{7} ours|\|{7} base|>{7} theirs)$/m.test(text.value)) {
        tell({ code: "usage", message: "the markers of the conflict are still in the text", causes: [], hint: "choose lines, and remove <<<<<<<, |||||||, ======= and >>>>>>>" });
        return;
      }
      wish("content", { content: text.value.replaceAll("\n", lineEnd(begin)) });
    };
    refill(pane, element("h4", {}, "Result"), text, element("p", { class: "buttons" },
      element("button", { id: "save", click: save }, "Take this text"),
      element("button", { id: "cancel", click: told }, "Cancel")));
    text.focus();
  };
  told();
  return pane;
}
