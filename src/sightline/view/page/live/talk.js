// Speaking with the server that this page comes from. Whatever goes wrong becomes one sentence that says what to do.

/** Something was not answered: one kind sentence, and the status (0: the server was not reached). */
export class Refusal extends Error {
  constructor(status, sentence, why = "") {
    super(sentence);
    this.status = status;
    this.why = why;
  }
}

const SAYS = {
  0: "The server does not answer. Is it still running? Start it again, then try again here.",
  401: "This server requires a token. Enter it above.",
  403: "The server refuses requests from here.",
  408: "The request took too long to reach the server. Try again.",
  413: "That is too large for this server.",
  422: "The server cannot process this request.",
  500: "The server failed. Its log has the details.",
  503: "The server is busy. Wait a moment, then try again.",
  504: "That took too long. Try a shorter text, or try again when the server is less busy.",
};

const KEY = "sightline-token";
let token = stored();

function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // storage is switched off: the token lasts as long as the page
  }
}

export function setToken(value) {
  token = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // as above
  }
}

/** The answer of an address as text with its status. No body: it is only read. */
export async function send(path, body = null, signal = undefined) {
  const headers = {};
  // Header values are bytes; what else was typed cannot be the token, and must not stop the request.
  if (token) headers.authorization = `Bearer ${/^[\x21-\x7e]+$/.test(token) ? token : "?"}`;
  if (body !== null) headers["content-type"] = "application/json";
  const options = { method: body === null ? "GET" : "POST", headers, body, signal, cache: "no-store", redirect: "error" };
  try {
    const response = await fetch(path, options);
    return { status: response.status, text: await response.text() };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, SAYS[0]);
  }
}

/** The answer of an address, parsed. */
export async function ask(path, data = null, signal = undefined) {
  const { status, text } = await send(path, data === null ? null : JSON.stringify(data), signal);
  let found = null;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Refusal(status, SAYS[status] ?? SAYS[500]);
  }
  if (status >= 400) throw new Refusal(status, SAYS[status] ?? SAYS[422], String(found.error ?? ""));
  return found;
}
