// What went wrong, told above the page until something goes well.

import { act } from "./ask.js";
import { element, failureBox } from "./element.js";

const place = document.getElementById("trouble");

/** Tells what went wrong, or with nothing that all is well. */
export function tell(failure) {
  const start = () => element("button", { id: "start", click: () => guarded(() => act("start", {})) }, "Start the daemon");
  place.replaceChildren(failure ? failureBox(failure, failure.code === "daemon-unreachable" && start()) : "");
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
