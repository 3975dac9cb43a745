// An attention row: each word with its shade and its weight.

import { inkOn, level, theme } from "./colour.js";
import { copiedFrom } from "./copied.js";
import { isolated, make, sizeCanvas } from "./dom.js";
import { heardPicture, heardSight } from "./heard.js";
import { strongest } from "./look.js";
import { overPicture, overSight } from "./over.js";
import { decimals, short } from "./text.js";
import { textWidth } from "./pen.js";

const LONG = 80; // columns: more do not fit beside a map, so the strongest is scrolled to
const MANY = 1500; // columns: of more only the strongest are shown
const NUMBERED = 0.01; // smaller weights have their number in the tip

/** {element, show(weights, row)} for the columns of a map: an image, a grid, everything else as words in a row. */
export function sightOf(shown, app) {
  if (shown.image) return overSight(shown, app);
  if (shown.recording) return heardSight(shown, app);
  if (shown.columns.axis.kind === "Grid") return gridSight(shown, app);
  return shown.columns.size > MANY ? bestSight(shown, app) : wordSight(shown, app);
}

function wordSight(shown, app) {
  const { columns } = shown;
  const long = columns.size > LONG;
  const dir = columns.rightToLeft ? "rtl" : "ltr";
  let now = null;
  const chips = columns.labels.map((label, column) => {
    const number = make("span", { class: "number" });
    const word = isolated(short(columns.brief[column]), { class: "word" });
    const special = columns.special.has(column);
    const tip = (event) => app.tip(event, `${short(label, 300)}: ${now ? decimals(now[column], app.digits) : "–"}`);
    const element = make(
      "li",
      { class: special ? "chip special" : "chip", pointerenter: tip, pointerleave: () => app.tip(null) },
      number,
      word,
    );
    return { element, number, word };
  });
  const element = make(
    "ol",
    { class: long ? "sight long" : "sight", dir, "aria-label": "The attention row, with the weights", tabindex: 0 },
    ...chips.map((chip) => chip.element),
  );
  const show = (weights, row) => {
    now = weights;
    const { css, shades } = theme();
    const copied = copiedFrom(shown, row);
    chips.forEach(({ element: chip, number, word }, column) => {
      chip.classList.toggle("copied", column === copied);
      const weight = weights ? weights[column] : 0;
      const shade = level(weight, app.top, app.state.faint);
      word.style.background = shade ? css[shade] : "";
      word.style.color = shade ? inkOn(shades[shade]) : "";
      number.textContent = weights && weight >= NUMBERED ? decimals(weight, 2) : "";
    });
    if (long && weights) {
      const strong = chips[weights.indexOf(Math.max(...weights))].element;
      element.scrollTop = strong.offsetTop - element.offsetTop - 8;
    }
  };
  return { element, show };
}

/** Of very many words those with the highest weights, in their order. */
function bestSight(shown, app) {
  const { columns } = shown;
  const dir = columns.rightToLeft ? "rtl" : "ltr";
  const label = "The highest attention weights";
  const element = make("ol", { class: "sight", dir, "aria-label": label, tabindex: 0 });
  const show = (weights, row) => {
    const copied = copiedFrom(shown, row);
    const best = strongest(weights ?? [], 60, Number.MIN_VALUE).sort((a, b) => a.column - b.column);
    const chips = best.map(({ column, weight }) => {
      const word = isolated(short(columns.labels[column]), { class: "word", title: `place ${column + 1}` });
      const shade = level(weight, app.top, app.state.faint);
      word.style.background = theme().css[shade];
      word.style.color = inkOn(theme().shades[shade]);
      const number = make("span", { class: "number" }, decimals(weight, 2));
      const kinds = ["chip", columns.special.has(column) ? "special" : "", column === copied ? "copied" : ""];
      return make("li", { class: kinds.join(" ").trim() }, number, word);
    });
    element.replaceChildren(...chips);
  };
  return { element, show };
}

function gridSight(shown, app) {
  const { height, width } = shown.columns.axis;
  const cell = Math.max(4, Math.min(28, Math.floor(420 / Math.max(width, height))));
  const canvas = make("canvas", { role: "img", "aria-label": `A grid of ${height} × ${width} places, shaded by weight` });
  let now = null;
  canvas.addEventListener("pointermove", (event) => {
    const place = Math.floor(event.offsetY / cell) * width + Math.floor(event.offsetX / cell);
    if (now && place in now) app.tip(event, `${shown.columns.labels[place]}: ${decimals(now[place], app.digits)}`);
  });
  canvas.addEventListener("pointerleave", () => app.tip(null));
  const show = (weights) => {
    now = weights;
    const context = sizeCanvas(canvas, width * cell, height * cell);
    for (let place = 0; place < height * width; place += 1) {
      context.fillStyle = theme().css[level(weights ? weights[place] : 0, app.top, app.state.faint)];
      context.fillRect((place % width) * cell, Math.floor(place / width) * cell, cell - 0.5, cell - 0.5);
    }
  };
  return { element: make("div", { class: "sight grid" }, canvas), show };
}

/** The same as a picture: {width, height, draw(pen)}. */
export function sightPicture(shown, weights, app, width, row = 0) {
  if (shown.image) return overPicture(shown, weights, app);
  if (shown.recording) return heardPicture(shown, weights, app, width);
  if (shown.columns.axis.kind === "Grid") return gridPicture(shown, weights, app);
  const placed = [];
  let x = 0;
  let y = 0;
  shown.columns.labels.forEach((label, column) => {
    const text = short(label);
    const wide = Math.max(textWidth(text, { size: 15 }) + 10, 32);
    if (x + wide > width && x > 0) {
      x = 0;
      y += 46;
    }
    placed.push({ text, column, x, y, wide });
    x += wide + 4;
  });
  const draw = (pen) => {
    const { css, shades, ink, soft } = theme();
    const copied = copiedFrom(shown, row);
    for (const { text, column, x: left, y: top, wide } of placed) {
      const from = shown.columns.rightToLeft ? width - left - wide : left;
      const shade = level(weights ? weights[column] : 0, app.top, app.state.faint);
      if (shade) pen.rect(from, top + 14, wide, 24, { fill: css[shade], radius: 4 });
      if (column === copied) pen.rect(from, top + 14, wide, 24, { stroke: ink, line: 2, radius: 4 });
      const fill = shade ? inkOn(shades[shade]) : ink;
      const italic = shown.columns.special.has(column);
      pen.text(from + wide / 2, top + 31, text, { size: 15, anchor: "middle", fill, italic });
      if (weights && weights[column] >= NUMBERED) {
        pen.text(from + wide / 2, top + 10, decimals(weights[column], 2), { size: 10, anchor: "middle", fill: soft });
      }
    }
  };
  return { width, height: y + 46, draw };
}

function gridPicture(shown, weights, app) {
  const { height, width } = shown.columns.axis;
  const cell = Math.max(4, Math.min(28, Math.floor(420 / Math.max(width, height))));
  const levels = (row) =>
    Array.from({ length: width }, (_, column) => level(weights?.[row * width + column] ?? 0, app.top, app.state.faint));
  return { width: width * cell, height: height * cell, draw: (pen) => pen.cells(0, 0, cell, height, width, levels) };
}
