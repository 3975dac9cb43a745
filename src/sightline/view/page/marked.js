// The text of a classifier: words shaded by their weight, sentences with a mark beside them, and the labels.

import { bar } from "./calculation.js";
import { isolated, make } from "./dom.js";
import { clean } from "./about.js";
import { decimals, short } from "./text.js";

const SHOWN_LABELS = 10;
const STRONG = 0.8; // of the largest weight: words are written in the colour of the paper

const percent = (share) => (share === null ? "–" : `${decimals(share * 100, 1)} %`);

/** The section, or null where nothing is marked. */
export function markedText(app, explanation) {
  const marks = explanation.highlights ?? null;
  if (!marks) return null;
  const words = marks.passages.flatMap((one) => one.pieces.filter((piece) => piece.length > 1));
  const most = Math.max(...words.map((piece) => Math.abs(piece[2] ?? piece[1])), 1e-9);
  const widest = Math.max(...marks.passages.map((one) => one.weight ?? 0), 1e-9);
  const passages = marks.passages.map((one) => passage(app, marks, one, most, widest));
  const image = !passages.length && explanation.image; // its evidence is the map over the image, below
  if (image) {
    const list = labels(marks);
    return list ? make("section", { class: "marked", "aria-label": "The labels" }, list) : null;
  }
  const scale = marks.unit === "contribution"
    ? `A word's shade is what it contributes to the score of the label, at most ${decimals(most, 3)}; a word against the label is underlined.`
    : marks.sentences
    ? `A word's shade is its weight in its sentence, at most ${decimals(most, 3)}; the mark beside a sentence is the sentence's, at most ${decimals(widest, 3)}.`
    : `A word's shade is its weight, at most ${decimals(most, 3)}.${words.some((piece) => piece[3]) ? " The answer has a frame." : ""}`;
  return make(
    "section",
    { class: "marked", "aria-label": `The text, with its ${marks.unit === "contribution" ? "contributions" : "attention weights"}` },
    labels(marks),
    make("div", { class: "passages", tabindex: 0, role: "group", "aria-label": "Words by weight" }, ...passages),
    make("p", { class: "hint" }, marks.note ? `${scale} Not all is shown: ${marks.note}.` : scale),
  );
}

function passage(app, marks, one, most, widest) {
  const pieces = one.pieces.map(([text, weight, within, taken]) => {
    if (weight === undefined) return clean(text);
    return word(app, text, weight, within ?? null, one.weight, most, taken ?? false);
  });
  const element = make("p", { dir: "auto", class: "passage" }, one.gap ? "… " : null, ...pieces);
  if (!marks.sentences) return element;
  const mark = make("span", { class: "sentence-mark", "aria-hidden": "true" });
  mark.style.setProperty("--share", `${Math.round((one.weight / widest) * 100)}%`);
  const number = make("span", { class: "number" }, decimals(one.weight, 2));
  return make("div", { class: "weighed" }, mark, number, element);
}

function word(app, text, weight, within, sentence, most, taken) {
  const share = Math.abs(within ?? weight) / most;
  const numbers = within === null ? "" : ` = ${decimals(within, app.digits)} × ${decimals(sentence, app.digits)}`;
  const tip = (event) => app.tip(event, `${short(clean(text), 100)}: ${decimals(weight, app.digits)}${numbers}`);
  const leave = () => app.tip(null);
  const classes = `${share > STRONG ? "looked strong" : "looked"}${taken ? " answer" : ""}${weight < 0 ? " against" : ""}`;
  const element = make("span", { class: classes, pointerenter: tip, pointerleave: leave }, clean(text));
  element.style.setProperty("--share", `${Math.round(share * 100)}%`);
  return element;
}

function labels(marks) {
  const items = marks.probabilities.slice(0, SHOWN_LABELS).map(([name, share]) =>
    make(
      "li",
      { class: name === marks.label ? "taken" : null },
      isolated(short(clean(name), 60), { class: "word", title: clean(name) }),
      bar(share),
      make("span", { class: "number" }, percent(share)),
    ),
  );
  const more = marks.probabilities.length - items.length + marks.others;
  if (!items.length) return null; // a number has none
  return make(
    "div",
    { class: "labels" },
    make("h3", {}, "Probabilities"),
    make("ol", { class: "choices" }, ...items),
    more > 0 ? make("p", { class: "hint" }, `${more} more are less likely.`) : null,
  );
}
