// Sessions of rounds, to be looked at.

import { ask } from "./ask.js";
import { counted, element, pathText, refill, short, table, visible } from "./element.js";

export async function showSessions(place) {
  const look = async () => {
    const { sessions } = await ask("sessions");
    refill(place, element("h2", {}, `Rounds: ${counted(sessions.length, "session")}`),
      sessions.length > 0 ? table("Sessions", ["session", "round", "stage", "agents", "finished", "attempts"], sessions.map((line) => [
        element("a", { href: `#/round/${encodeURIComponent(line.session)}` }, line.session), line.round, line.stage, line.agents,
        line.finished, line.attempts]))
        : element("p", {}, "There are none: ", element("code", {}, "tine round start"), " begins one."));
  };
  await look();
  return look;
}

function workText(seat) {
  return seat ? [`${counted(seat.files_changed, "file")} `, element("span", { class: "good" }, `+${seat.insertions}`), " ",
    element("span", { class: "bad" }, `−${seat.deletions}`), seat.uncommitted ? ", uncommitted" : ""] : "";
}

/** The seat's changes since it began, where its fork is there. */
function forkLink(seat) {
  return seat.mount_dir ? element("a", { href: `#/fork/${encodeURIComponent(seat.fork)}?against=pristine` }, seat.fork)
    : `${seat.fork} (gone)`;
}

export async function showSession(place, [session]) {
  const look = async () => {
    const told = await ask("session", { session });
    const row = (name, seat, budget) => seat ? [name, seat.label, forkLink(seat), visible(seat.branch ?? "none"), seat.state,
      `${seat.attempts}${budget === null || budget === undefined ? "" : ` of ${budget}`}`, workText(seat)] : [name, "", "no part in it", "", "", "", ""];
    const headings = ["agent", "label", "fork", "branch", "state", "attempts", "changed"];
    const before = told.agents.filter(({ before }) => before);
    refill(place,
      element("h2", {}, `Session ${told.session}, round ${told.round}`),
      element("p", { class: "faint" }, `${told.stage}; it began at ${short(told.base_commit)}${told.from_branch ? ` of ${visible(told.from_branch)}` : ""}`),
      table("Seats of this round", headings, told.agents.map(({ agent, seat, budget }) => row(agent, seat, budget))),
      before.length > 0 ? table("Seats of the round before", headings, before.map(({ agent, before }) => row(agent, before))) : "",
      told.presenter ? table("The presenter", headings, [row("presenter", told.presenter)]) : "",
      told.archives.length > 0 ? table("Archives", ["agent", "round", "place"],
        told.archives.map(({ agent, round, path }) => [agent, round, element("code", {}, pathText(path))])) : "");
  };
  await look();
  return look;
}
