// Which page is shown, and that it stays true: the address behind # decides, and a new pulse has the page look again.

import { ask } from "./ask.js";
import { element, refill } from "./element.js";
import { showFork, showForks } from "./graph.js";
import { showHandoff, showHandoffs } from "./handoff.js";
import { showReview, showReviews } from "./review.js";
import { showSession, showSessions } from "./round.js";
import { failureOf, guardedLook, tell, tellLooked } from "./trouble.js";

const main = document.getElementById("main");
const live = document.getElementById("live");

/** Each page gets a place and the words of its address, and gives what looks again. */
const PAGES = { "": showForks, fork: showFork, reviews: showReviews, review: showReview, handoffs: showHandoffs,
  handoff: showHandoff, rounds: showSessions, round: showSession };

let look = null;
let shown = 0;

async function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, ...words] = path.split("/").map(decodeURIComponent);
  const number = ++shown;
  const place = element("div", { class: "page" });
  for (const link of document.querySelectorAll("nav[aria-label=Pages] a")) {
    const name = link.hash.replace(/^#\/?/, "");
    const isHere = name === page || (page !== "" && name === `${page}s`) || (page === "fork" && name === "");
    isHere ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  look = null;
  tell(null);
  await guardedLook(async () => {
    const show = PAGES[page];
    if (!show) {
      throw new Error(`there is no page ${page}`);
    }
    const again = await show(place, words, new URLSearchParams(query));
    // Another page may have been asked for meanwhile.
    if (number === shown) {
      look = again;
    }
  });
  if (number === shown) {
    refill(main, place);
    document.body.dataset.shown = location.hash || "#/";
  }
}

/** Follows the pulses for as long as the page is open. */
async function follow() {
  let known = "";
  for (;;) {
    try {
      const { pulse } = await ask("pulse", { known });
      const isNew = known !== "" && pulse !== known;
      known = pulse;
      if (live.dataset.pulse === "") {
        tellLooked();
      }
      live.textContent = pulse === "stopped" ? "the daemon is stopped" : "live";
      live.dataset.pulse = pulse;
      if (isNew) {
        look ? await guardedLook(look) : await route();
      }
    } catch (error) {
      live.textContent = "not live";
      live.dataset.pulse = "";
      tell(failureOf(error), true);
      await new Promise((resume) => setTimeout(resume, 2000));
    }
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", route);
await route();
follow();
