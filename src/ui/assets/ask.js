// Asks the server, which is found beneath the page's own address.

const API = new URL("api/", document.baseURI);

/** What a failure becomes here; `failure` has code, message, causes and hint. */
export class Failed extends Error {
  constructor(failure) {
    super(failure.message);
    this.failure = failure;
  }
}

async function answerOf(name, options, fields) {
  const url = new URL(name, API);
  for (const [field, value] of Object.entries(fields ?? {})) {
    if (value !== null && value !== undefined) {
      url.searchParams.set(field, value);
    }
  }
  let reply;
  try {
    reply = await fetch(url, { ...options, credentials: "omit", redirect: "error" });
  } catch (error) {
    throw new Failed({
      code: "unreachable",
      message: "the page's server does not answer",
      causes: [error.message],
      hint: "`tine ui` starts it again, at another address",
    });
  }
  const answer = await reply.json();
  if (!reply.ok) {
    throw new Failed(answer.error);
  }
  return answer;
}

/** Looks at something. */
export function ask(name, fields, signal) {
  return answerOf(name, { signal }, fields);
}

/** Has something done. */
export function act(name, wish) {
  return answerOf(name, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(wish),
  });
}

/** Gives what does one thing after the other, so that no older answer is shown over a newer one. */
export function oneByOne() {
  let last = Promise.resolve();
  return (work) => {
    const done = last.then(work);
    last = done.catch(() => {});
    return done;
  };
}
