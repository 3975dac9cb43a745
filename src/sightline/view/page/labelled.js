// A label for each cell of an image: the image with its cells tinted, how many there are of each, and every cell's own.

import { clean } from "./about.js";
import { loadCells, loadPicture } from "./data.js";
import { isolated, make, setText } from "./dom.js";
import { boxOf, drawImage, drawingOf, framePlace, placeAt, placeByKey, printed, sizeOf } from "./over.js";
import { decimals, plural, short } from "./text.js";

// Okabe and Ito's colours, told apart by every kind of colour vision.
const COLOURS = ["#d55e00", "#0072b2", "#f0e442", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const TINT = 0.45;
const CELL = 14; // pixels of a cell where there is no image

/** {element, picture()} or null where no cells are labelled. ``app.pick`` hears of the cell that is chosen. */
export function labelledCells(app, explanation) {
  const { cells } = explanation;
  if (!cells) return null;
  const canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "labelled cells" });
  const said = make("p", { class: "sentence", "aria-live": "polite" });
  const counts = make("ol", { class: "counts" });
  const hint = "Point at a cell, or use the arrow keys, to see its label.";
  const element = make(
    "section",
    { class: "marked labelled", "aria-label": "The cells of the image, with their labels" },
    make("div", { class: "sight over" }, canvas),
    make("div", {}, make("h3", {}, "Cells"), counts, said, make("p", { class: "hint" }, hint)),
  );
  const found = { element, picture: null };
  prepare(app, explanation, { canvas, said, counts, found });
  return found;
}

async function prepare(app, explanation, { canvas, said, counts, found }) {
  const { cells } = explanation;
  const [{ labels, probabilities }, bitmap] = await Promise.all([loadCells(explanation), loadPicture(explanation)]);
  const blank = { width: cells.width * CELL, height: cells.height * CELL, box: [0, 0, 1, 1], name: "" };
  const image = bitmap ? { ...explanation.image, bitmap } : blank;
  const size = sizeOf(image);
  const colourOf = coloursOf(cells);
  const numbers = cells.names.map((_, label) => labels.reduce((sum, one) => sum + (one === label), 0));
  const name = (label) => short(clean(cells.names[label]), 60);
  let place = 0;
  let chosen = false;

  function paint() {
    const context = drawingOf(canvas, size);
    drawCells(context, image, cells, labels, colourOf, size, app.state.bare);
    if (chosen) framePlace(context, image, cells, place, size);
  }

  function choose(to, event = null) {
    place = to;
    chosen = true;
    const [row, column] = [Math.floor(place / cells.width) + 1, (place % cells.width) + 1];
    const share = decimals(probabilities[place], 2);
    setText(said, `Row ${row}, column ${column}: \u2068${name(labels[place])}\u2069, probability ${share}.`);
    if (event) app.tip(event, name(labels[place]), share);
    if (app.attendsFrom(explanation, cells)) app.pick(place);
    paint();
  }

  canvas.addEventListener("pointermove", (event) => {
    const to = placeAt(event, canvas, image, cells);
    if (to >= 0) choose(to, event);
    else app.tip(null);
  });
  canvas.addEventListener("pointerleave", () => app.tip(null));
  canvas.addEventListener("keydown", (event) => {
    const to = placeByKey(event, place, cells);
    if (to === null) return;
    event.preventDefault();
    choose(to);
  });
  const summary = cells.names.map((_, label) => `${numbers[label]} ${name(label)}`).join(", ");
  const grid = `${plural(cells.height, "row", "rows")} of ${plural(cells.width, "cell", "cells")}`;
  canvas.setAttribute("aria-label", `${grid}: ${summary}`);
  counts.replaceChildren(
    ...cells.names.map((_, label) => {
      const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = colourOf(label) ?? "transparent";
      const number = make("span", { class: "number" }, String(numbers[label]));
      return make("li", {}, swatch, isolated(name(label), { class: "word" }), number);
    }),
  );
  found.picture = () => ({
    ...size,
    draw: (pen) => printed(pen, size, (context) => drawCells(context, image, cells, labels, colourOf, size, false)),
  });
  found.paint = paint;
  paint();
  app.painted();
}

/** The colour of a label; null for the one where nothing is. */
function coloursOf(cells) {
  const coloured = cells.names.map((_, label) => label).filter((label) => cells.names[label] !== cells.plain);
  const places = new Map(coloured.map((label, i) => [label, COLOURS[i % COLOURS.length]]));
  return (label) => places.get(label) ?? null;
}

function drawCells(context, image, cells, labels, colourOf, size, bare) {
  if (image.bitmap) drawImage(context, image, size.width, size.height);
  else {
    context.fillStyle = "#e8e8e8";
    context.fillRect(0, 0, size.width, size.height);
  }
  if (bare) return;
  const box = boxOf(image, size.width, size.height);
  const [wide, high] = [box.width / cells.width, box.height / cells.height];
  labels.forEach((label, place) => {
    const colour = colourOf(label);
    if (!colour) return;
    const [x, y] = [box.x + (place % cells.width) * wide, box.y + Math.floor(place / cells.width) * high];
    context.fillStyle = colour;
    context.globalAlpha = TINT;
    context.fillRect(x, y, wide, high);
    context.globalAlpha = 0.9;
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
    context.globalAlpha = 1;
  });
}
