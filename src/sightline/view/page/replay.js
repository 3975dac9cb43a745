// Decoding step by step: the written word, its attention, and the likeliest alternatives.

import { calculationOf, bar, placeOfCalculation } from "./calculation.js";
import { GATE, copiedSentence, isCopied, markOf } from "./copied.js";
import { loadMap } from "./data.js";
import { isolated, make, setText } from "./dom.js";
import { sentence } from "./look.js";
import { legendOf, lightLegend } from "./legend.js";
import { theme } from "./colour.js";
import { textWidth } from "./pen.js";
import { sightOf, sightPicture } from "./sight.js";
import { decimals, short, visible } from "./text.js";

const NEAR = 300; // steps before and after the current one that are shown

export function replayView(app, shown, explanation) {
  const writes = shown.steps !== null;
  const words = make("p", { class: "sentence", "aria-live": "polite" });
  const sight = sightOf(shown, app);
  const written = shown.rows.labels.map((label, row) =>
    make(
      "button",
      { type: "button", class: shown.rows.special.has(row) ? "step special" : "step", click: () => app.pick(row) },
      isolated(short(label)),
      shown.copies ? howOf(shown.copies[row]) : null,
    ),
  );
  const label = writes ? "Steps: the words written" : "Rows";
  const dir = shown.rows.rightToLeft ? "rtl" : "ltr";
  const line = make("div", { class: "written", role: "group", "aria-label": label, dir }, ...written);
  const likeliest = make("div", { class: "likeliest" });
  const inside = make("div");
  const place = placeOfCalculation(explanation, shown);
  const details = make("details", { class: "calculate" }, make("summary", {}, "Show the calculation"), inside);
  details.open = app.state.calculation && place !== null;
  details.addEventListener("toggle", () => {
    if (app.state.calculation === details.open) return;
    app.state.calculation = details.open;
    calculate();
  });
  let turn = 0;

  async function calculate() {
    if (!details.open || place === null) return;
    turn += 1;
    const mine = turn;
    const row = rowNow();
    const map = await loadMap(explanation, place, app.steps);
    const made = await calculationOf(explanation, shown, row, map.row(row), place);
    if (mine !== turn) return; // another step was chosen meanwhile
    if (writes) made.append(make("section", {}, make("h4", {}, "4. The five likeliest words"), choices(shown.steps[row])));
    inside.replaceChildren(made);
    inside.dataset.step = row + 1;
  }

  function rowNow() {
    return Math.min(app.state.row, shown.rows.size - 1);
  }

  function pick() {
    const row = rowNow();
    const step = writes ? shown.steps[row] : null;
    const wrote = step ? ` Its probability was ${decimals(step.probability, 2)}.` : "";
    setText(words, `${writes ? "Step" : "Row"} ${row + 1} of ${shown.rows.size}. ${sentence(shown, row)}${wrote}`);
    sight.show(shown.map.row(row), row);
    written.forEach((button, at) => {
      button.hidden = Math.abs(at - row) > NEAR;
      button.classList.toggle("ahead", at > row);
      if (at === row) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    line.scrollTop = written[row].offsetTop - line.offsetTop - line.clientHeight / 2 + 16;
    const copy = shown.copies?.[row];
    const how = copy ? [make("h3", {}, "Write or copy"), writeOrCopy(copy)] : [];
    if (step) likeliest.replaceChildren(make("h3", {}, "Likeliest here"), choices(step), ...how);
    calculate();
    app.painted();
  }

  const none = shown.places.some((one) => explanation.maps[one].calculation?.left_out)
    ? "The scores and vectors of this attention were left out to keep the page small."
    : "The scores and vectors of this attention were not kept.";
  const legend = shown.image ? lightLegend(app) : legendOf(app);
  const looked = make("div", { class: "line" }, sight.element, make("div", { class: "under" }, legend));
  const element = make(
    "div",
    { class: "replay" },
    line,
    words,
    make("div", { class: writes ? "both" : "both alone" }, looked, writes ? likeliest : null),
    place === null ? make("p", { class: "hint" }, none) : details,
  );
  const picture = () => replayPicture(app, shown, rowNow());
  return { element, pick, resize: () => {}, picture, steps: shown.rows.size };
}

function howOf(copy) {
  return make("span", { class: isCopied(copy) ? "how from-source" : "how" }, markOf(copy));
}

function choices(step) {
  const texts = step.likeliest.slice(0, 5);
  const list = texts.map((one) => choiceOf(visible(one.text), one.probability, one.text === step.written));
  return make("ol", { class: "choices" }, ...list);
}

function choiceOf(text, probability, taken) {
  return make(
    "li",
    { class: taken ? "taken" : null },
    isolated(short(text), { class: "word" }),
    bar(probability),
    make("span", { class: "number" }, decimals(probability, 3)),
  );
}

/** p, and the rest of the probability, which is that of copying. */
function writeOrCopy({ gate }) {
  const both = [choiceOf(`write (${GATE})`, gate, false), choiceOf("copy", 1 - gate, false)];
  return make("ul", { class: "choices" }, ...both);
}

function replayPicture(app, shown, row) {
  const width = 720;
  const sight = sightPicture(shown, shown.map.row(row), app, width, row);
  const choicesHere = shown.steps?.[row].likeliest.slice(0, 5) ?? [];
  const draw = (pen) => {
    const { mark, soft, css } = theme();
    const word = short(shown.rows.labels[row]);
    pen.text(0, 22, word, { size: 22, bold: true, fill: mark });
    const after = textWidth(word, { size: 22, bold: true }) + 10;
    pen.text(after, 22, `step ${row + 1} of ${shown.rows.size}, attention`, { fill: soft });
    if (shown.copies) pen.text(after, 37, copiedSentence(shown, row).trim(), { size: 11, fill: soft });
    pen.group(0, 40, () => sight.draw(pen));
    choicesHere.forEach((one, i) => {
      const y = 64 + sight.height + i * 22;
      pen.text(120, y, short(visible(one.text), 16), { anchor: "end" });
      pen.rect(130, y - 10, 240 * one.probability, 12, { fill: css[170], radius: 2 });
      pen.text(136 + 240 * one.probability, y, decimals(one.probability, 3), { size: 11, fill: soft });
    });
  };
  return { width, height: 60 + sight.height + choicesHere.length * 22 + 10, draw };
}
