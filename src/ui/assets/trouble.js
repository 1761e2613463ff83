// What went wrong, told above the page until something goes well.

import { act } from "./ask.js";
import { element, failureBox, refill } from "./element.js";

const place = document.getElementById("trouble");

// Whether it went wrong while the page looked by itself: then it is over as soon as that goes well. What somebody did and what came
// of it stays until the next thing is done.
let isOfLook = false;

/** Tells what went wrong, or with nothing that all is well. */
export function tell(failure, ofLook = false) {
  const start = () => element("button", { id: "start", click: () => guarded(() => act("start", {})) }, "Start the daemon");
  refill(place, failure ? failureBox(failure, failure.code === "daemon-unreachable" && start()) : "");
  isOfLook = ofLook;
}

/** Tells that the page could look. */
export function tellLooked() {
  if (isOfLook) {
    tell(null);
  }
}

/** A failure as the server tells it, of anything that was thrown. */
export function failureOf(error) {
  return error.failure ?? { code: "internal", message: error.message, causes: [], hint: "reload the page" };
}

/** Does something, and tells if it fails; whether it did not. */
export async function guarded(work) {
  try {
    await work();
    tell(null);
    return true;
  } catch (error) {
    tell(failureOf(error));
    return false;
  }
}

/** The same of a look that the page takes by itself. */
export async function guardedLook(look) {
  try {
    await look();
    tellLooked();
  } catch (error) {
    tell(failureOf(error), true);
  }
}
