// The documentation, drawn from the server's own schema, with a way to try each address.

import { make, newId, setText } from "../dom.js";
import { exampleOf, kindOf, resolved } from "./schema.js";
import { Refusal, ask, send } from "./talk.js";
import { askForToken, showProblem } from "./token.js";

const SHOWN = 20000; // characters of an answer: the browser can show more, a reader cannot

function table(caption, heads, rows) {
  return make(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    make(
      "table",
      {},
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))))),
    ),
  );
}

function fieldsOf(schema, all) {
  const one = resolved(schema, all);
  const required = one.required ?? [];
  const rows = Object.entries(one.properties ?? {}).map(([name, field]) => {
    const given = required.includes(name) ? "required" : field.default === undefined ? "" : JSON.stringify(field.default);
    return [make("code", {}, name), given, kindOf(field, all), field.description ?? ""];
  });
  return table("The body, as JSON", ["field", "unless given", "what it may be", "what it does"], rows);
}

function answersOf(operation) {
  const rows = Object.entries(operation.responses).map(([status, one]) => [make("code", {}, status), one.description]);
  return table("Answers", ["status", "when"], rows);
}

function tryIt(path, method, body, all) {
  const answer = make("pre", { hidden: true, tabindex: 0, "aria-label": "The answer" });
  const status = make("p", { class: "hint", role: "status" });
  const id = newId("body");
  const example = body ? JSON.stringify(exampleOf(body, all), null, 2) : null;
  const field = body ? make("textarea", { id, rows: example.split("\n").length + 1, spellcheck: "false" }) : null;
  if (field) field.value = example;
  const go = async (event) => {
    event.preventDefault();
    showProblem(null);
    setText(status, "Waiting…");
    try {
      const begun = performance.now();
      const found = await send(path, field ? field.value : null);
      setText(status, `Status ${found.status}, after ${Math.round(performance.now() - begun)} ms`);
      answer.textContent = laidOut(found.text);
      answer.hidden = false;
      if (found.status === 401) askForToken(() => go(event));
    } catch (error) {
      setText(status, error.message);
    }
  };
  const label = field ? make("label", { for: id }, "Body") : null;
  const name = `Try ${method.toUpperCase()} ${path}`;
  return make("form", { class: "try", submit: go }, make("h3", {}, "Try it"), label, field,
    make("button", { class: "main", "aria-label": name }, "Send"), status, answer);
}

function laidOut(text) {
  let shown = text;
  try {
    if (text.length < SHOWN) shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // not JSON: as it is
  }
  return shown.length > SHOWN ? `${shown.slice(0, SHOWN)}… (${text.length.toLocaleString("en")} characters)` : shown;
}

function address(path, method, operation, all) {
  const body = operation.requestBody?.content["application/json"].schema ?? null;
  return make(
    "section",
    { class: "address" },
    make("h2", {}, make("span", { class: "method" }, method.toUpperCase()), make("code", {}, path)),
    make("p", {}, `${operation.summary}.`),
    body ? fieldsOf(body, all) : null,
    answersOf(operation),
    tryIt(path, method, body, all),
  );
}

async function begin() {
  try {
    const all = await ask("/openapi.json");
    showProblem(null);
    setText(document.getElementById("about"), `${all.info.description} Version ${all.info.version}.`);
    const made = Object.entries(all.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => address(path, method, operation, all)),
    );
    document.getElementById("addresses").replaceChildren(...made);
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    showProblem(error instanceof Refusal ? error : new Refusal(500, "This page could not be drawn.", String(error)));
    if (error.status === 401) askForToken(begin);
  }
}

begin();
