// Makes elements. What is shown becomes text nodes and attributes, never markup, whatever a file or its name holds.

const SVG = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") {
      made.addEventListener(name, value);
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value);
    }
  }
  made.append(...shownOf(children));
  return made;
}

/** The children without their lists, and without what is not there: the DOM would show either as text. */
function shownOf(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Puts children into a place instead of what is there. Takes what `element` takes; nothing else fills a place. */
export function refill(place, ...children) {
  place.replaceChildren(...shownOf(children));
}

/** An HTML element. Functions among the attributes listen to the event of that name. */
export function element(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for a drawing. */
export function drawn(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Control characters, and those that turn the order of text around, would hide what is really there.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Text whose invisible characters can be seen. */
export function visible(text) {
  return text.replace(HIDDEN, (c) => `⟨${c.codePointAt(0).toString(16).padStart(2, "0")}⟩`);
}

/** A path as the daemon tells it: text, or bytes that are none. */
export function pathText(path) {
  if (typeof path === "string") {
    return visible(path).replaceAll("\n", "⟨0a⟩").replaceAll("\t", "⟨09⟩");
  }
  const bytes = Uint8Array.from(atob(path.base64), (c) => c.charCodeAt(0));
  return visible(new TextDecoder().decode(bytes));
}

/** What happened, what lay beneath it, and what to do next. */
export function failureBox(failure, ...more) {
  return element("div", { class: "failure", "data-code": failure.code },
    element("p", {}, element("strong", {}, "error: "), visible(failure.message)),
    (failure.causes ?? []).map((cause) => element("p", {}, element("strong", {}, "cause: "), visible(cause))),
    failure.hint && element("p", {}, element("strong", {}, "hint: "), visible(failure.hint)),
    more);
}

const MADE = new WeakMap();

/** Fills a place anew if its key is another: what somebody types or has chosen there stays otherwise. */
export function renew(place, key, make) {
  const text = JSON.stringify(key);
  if (MADE.get(place) !== text) {
    MADE.set(place, text);
    refill(place, make());
  }
}

/** A number of things. */
export function counted(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < 4) {
    count /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? count : count.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export function ago(secs) {
  const age = Math.max(0, Math.floor(Date.now() / 1000) - secs);
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [length, word] = units.find(([length]) => age >= length) ?? [1, "second"];
  return `${counted(Math.floor(age / length), word)} ago`;
}

export function short(id) {
  return id ? id.slice(0, 10) : "";
}

/** A table with a row of headings. */
export function table(caption, headings, rows) {
  return element("table", { class: "list" },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, headings.map((heading) => element("th", { scope: "col" }, heading)))),
    element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map((cell) => element("td", {}, cell))))));
}
