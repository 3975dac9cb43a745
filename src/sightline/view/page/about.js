// The input, the output, its alternatives, and notes about the maps.

import { isolated, make } from "./dom.js";
import { decimals, short } from "./text.js";

const LONGEST = 600;
const ROOM = 150; // characters that fit without scrolling

export function aboutOf(explanation, several) {
  const marked = Boolean(explanation.highlights); // the text and the labels follow, in full
  const image = Boolean(explanation.image);
  const heard = Boolean(explanation.recording);
  const asked = Boolean(explanation.table);
  const file = asked ? "Question" : image ? "Image" : heard ? "Recording" : "Input";
  const facts = marked && !image && !heard ? [] : [fact(file, explanation.input)];
  const answer = asked || (marked && explanation.steps.length > 1); // where it starts and where it ends
  const made = answer ? "Answer" : marked ? "Label" : "Output";
  if (explanation.output) facts.push(fact(made, explanation.output)); // an encoder writes nothing
  const others = (marked ? [] : explanation.alternatives).map((one) =>
    make(
      "li",
      {},
      isolated(short(clean(one.text), LONGEST)),
      make("span", { class: "number" }, decimals(one.probability, 3)),
    ),
  );
  const summary = make("summary", {}, `Other outputs (${others.length})`);
  const notes = explanation.notes.map((note) => make("li", {}, isolated(clean(note))));
  return make(
    "header",
    { class: "about" },
    several ? make("h2", {}, isolated(short(clean(explanation.title), 120))) : null,
    make("dl", { class: "facts" }, ...facts),
    others.length ? make("details", {}, summary, make("ol", { class: "others" }, ...others)) : null,
    notes.length ? make("ul", { class: "notes" }, ...notes) : null,
  );
}

function fact(title, text) {
  const all = clean(text);
  const cut = short(all, LONGEST);
  const whole = cut === all ? null : all.slice(0, 20000);
  const shown = make("dd", { dir: "auto", tabindex: cut.length > ROOM ? 0 : null, title: whole }, cut);
  return make("div", { class: "fact" }, make("dt", {}, title), shown);
}

/** Running text keeps its spaces and lines; only what cannot be shown is replaced. */
export function clean(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/g, "\ufffd");
}
