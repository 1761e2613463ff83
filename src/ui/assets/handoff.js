// Handoffs: finished work of forks, shown and applied.

import { act, ask } from "./ask.js";
import { changesList } from "./diff.js";
import { ago, bytes, counted, element, failureBox, refill, renew, short, table, visible } from "./element.js";
import { doneText } from "./review.js";
import { guarded } from "./trouble.js";

const from = ({ fork, imported_from }) => visible(fork ?? `imported from ${imported_from ?? "somewhere"}`);

function stateText(handoff) {
  const applied = handoff.applied_secs ? `, applied to ${visible(handoff.applied_to ?? "")} ${ago(handoff.applied_secs)}` : "";
  return `${handoff.state}${handoff.reason ? `: ${visible(handoff.reason)}` : ""}${applied}`;
}

export async function showHandoffs(place) {
  const look = async () => {
    const { handoffs, damaged } = await ask("handoffs");
    const rows = handoffs.toSorted((a, b) => b.id - a.id).map((handoff) => [
      element("a", { href: `#/handoff/${handoff.id}` }, `handoff ${handoff.id}`), from(handoff), visible(handoff.to ?? ""),
      stateText(handoff), handoff.commits, ago(handoff.created_secs)]);
    refill(place, element("h2", {}, counted(handoffs.length, "handoff")), ...damaged.map((failure) => failureBox(failure)),
      handoffs.length > 0 ? table("Handoffs", ["handoff", "of", "for", "how it stands", "patches", "made"], rows)
        : element("p", {}, "There are none: ", element("code", {}, "tine handoff create"), " makes a file of a fork's commits."));
  };
  await look();
  return look;
}

export async function showHandoff(place, [id]) {
  const handoff = Number(id);
  const head = element("div", {});
  const done = element("div", {});
  const changes = changesList();
  const into = element("input", { id: "into", type: "text", autocomplete: "off" });
  const doing = element("div", {});
  place.append(head, doing, done, element("h3", {}, "What its commits change"), changes.place);
  const apply = () => guarded(async () => {
    const told = await act("apply", { handoff, into: into.value });
    await look();
    refill(done, element("p", { id: "done", role: "status" }, doneText(told),
      told.review ? element("span", {}, " ", element("a", { href: `#/review/${told.review}` }, `Review ${told.review}`), " keeps them.") : ""));
  });
  const look = async () => {
    const told = await ask("handoff", { handoff });
    into.placeholder = told.to ?? "";
    refill(head, element("h2", {}, `Handoff ${told.id} of ${from(told)}`),
      element("p", { id: "stands" }, stateText(told)),
      element("p", { class: "faint" }, `${told.commits} ${told.commits === 1 ? "patch" : "patches"}, ${bytes(told.mailbox_bytes)}`,
        told.uncommitted ? "; the fork had changes that were not committed, which are no part of it" : ""),
      table("Patches, the oldest first", ["commit", "subject", "author"], told.patches.map((patch) => [
        element("code", {}, short(patch.commit)), visible(patch.summary), visible(`${patch.author_name} <${patch.author_email}>`)])));
    renew(doing, told.state, () => told.state === "ready" ? [element("p", { class: "buttons" },
      element("label", { for: "into" }, "Apply it to (a fork or branch)"), into, element("button", { id: "apply", click: apply }, "Apply"))] : []);
    changes.show(told.changes);
  };
  await look();
  return look;
}
