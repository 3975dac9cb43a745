// A map over the image: bright where there is weight, dark where there is none. Brightness instead of
// colour: the image keeps its own, and every kind of colour vision sees the same.

import { level, theme } from "./colour.js";
import { make, sizeCanvas } from "./dom.js";
import { bareWord, decimals, short } from "./text.js";
import { textWidth } from "./pen.js";

export const DARKEST = 0.72; // how much a place without weight is darkened: its shape can still be seen
const WIDEST = 520;
const TALLEST = 460;
const ASIDE = 200; // the image itself, small
const SMALL = 3; // times: an image that is enlarged so much shows its pixels
const PANEL = 150; // pixels of an image in an exported picture, which has one for each word
const MOST_PANELS = 60;
const FLAT = " (flat)"; // behind the word of a row without a frame

/** The size of an image on the screen, with its proportions. */
export function sizeOf(image, widest = WIDEST, tallest = TALLEST) {
  const scale = Math.min(widest / image.width, tallest / image.height);
  return { width: Math.max(1, Math.round(image.width * scale)), height: Math.max(1, Math.round(image.height * scale)) };
}

/** The image in a box of this size. */
export function drawImage(context, image, width, height) {
  context.imageSmoothingEnabled = width / image.width < SMALL;
  context.imageSmoothingQuality = "high";
  context.drawImage(image.bitmap, 0, 0, width, height);
}

/** Where a grid lies over an image that is drawn at this size: in whole pixels, so that no seam is seen at its edge. */
export function boxOf(image, width, height) {
  const [left, right] = [image.box[0], image.box[2]].map((share) => Math.round(share * width));
  const [top, bottom] = [image.box[1], image.box[3]].map((share) => Math.round(share * height));
  return { x: left, y: top, width: Math.max(1, right - left), height: Math.max(1, bottom - top) };
}

/** The image, dark where the weights are small; outside of what the model saw, as dark as can be. */
export function drawOver(context, image, grid, weights, size, app) {
  const { width, height } = size;
  drawImage(context, image, width, height);
  if (!weights || app.state.bare) return;
  const box = boxOf(image, width, height);
  const veil = make("canvas");
  veil.width = grid.width;
  veil.height = grid.height;
  const small = veil.getContext("2d");
  const pixels = small.createImageData(grid.width, grid.height);
  for (let place = 0; place < grid.width * grid.height; place += 1) {
    const share = level(weights[place], app.top, app.state.faint) / 255;
    pixels.data[place * 4 + 3] = Math.round(255 * DARKEST * (1 - share));
  }
  small.putImageData(pixels, 0, 0);
  context.save();
  context.beginPath();
  context.rect(0, 0, width, height);
  context.clip();
  context.imageSmoothingEnabled = true;
  context.drawImage(veil, box.x, box.y, box.width, box.height);
  context.beginPath();
  context.rect(0, 0, width, height);
  context.rect(box.x, box.y, box.width, box.height);
  context.fillStyle = `rgb(0 0 0 / ${DARKEST})`;
  context.fill("evenodd");
  frameMost(context, grid, weights, box);
  context.restore();
}

/** Whether more than half of the places have at least half of the largest weight: a frame would surround the others. */
export function isFlat(weights) {
  if (!weights) return false;
  const most = weights.reduce((a, b) => Math.max(a, b), 0);
  return most > 0 && 2 * weights.filter((weight) => weight >= most / 2).length > weights.length;
}

/** A line around the places with at least half of the row's largest weight: seen also where the image is dark. */
function frameMost(context, grid, weights, box) {
  const most = weights.reduce((a, b) => Math.max(a, b), 0);
  if (!most || isFlat(weights)) return;
  const inside = (row, column) =>
    row >= 0 && row < grid.height && column >= 0 && column < grid.width && weights[row * grid.width + column] >= most / 2;
  const x = (column) => box.x + (column * box.width) / grid.width;
  const y = (row) => box.y + (row * box.height) / grid.height;
  const lines = new Path2D();
  const add = (from, to) => {
    lines.moveTo(...from);
    lines.lineTo(...to);
  };
  for (let row = 0; row <= grid.height; row += 1) {
    for (let column = 0; column <= grid.width; column += 1) {
      const here = inside(row, column);
      if (here !== inside(row - 1, column)) add([x(column), y(row)], [x(column + 1), y(row)]);
      if (here !== inside(row, column - 1)) add([x(column), y(row)], [x(column), y(row + 1)]);
    }
  }
  context.lineCap = "square";
  for (const [line, colour] of [[2.5, "#000000"], [1, "#ffffff"]]) {
    context.lineWidth = line;
    context.strokeStyle = colour;
    context.stroke(lines);
  }
}

/** A frame around one place of a grid, seen on every ground. */
export function framePlace(context, image, grid, place, size) {
  const box = boxOf(image, size.width, size.height);
  const [wide, high] = [box.width / grid.width, box.height / grid.height];
  const [x, y] = [box.x + (place % grid.width) * wide, box.y + Math.floor(place / grid.width) * high];
  for (const [line, colour] of [[4, "#000000"], [2, "#ff9d5c"]]) {
    context.lineWidth = line;
    context.strokeStyle = colour;
    context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  }
}

/** The place of a grid under the pointer; −1 where the model saw nothing. */
export function placeAt(event, canvas, image, grid) {
  const frame = canvas.getBoundingClientRect();
  const [left, top, right, bottom] = image.box;
  const across = ((event.clientX - frame.left) / frame.width - left) / (right - left);
  const down = ((event.clientY - frame.top) / frame.height - top) / (bottom - top);
  if (across < 0 || across >= 1 || down < 0 || down >= 1) return -1;
  return Math.floor(down * grid.height) * grid.width + Math.floor(across * grid.width);
}

/** Where an arrow key leads from a place of a grid; null for other keys. */
export function placeByKey(event, place, grid) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const [row, column] = [Math.floor(place / grid.width), place % grid.width];
  const to = {
    ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
    Home: [row, 0], End: [row, grid.width - 1], PageUp: [0, column], PageDown: [grid.height - 1, column],
  }[event.key];
  if (!to) return null;
  const within = (number, most) => Math.min(Math.max(number, 0), most - 1);
  return within(to[0], grid.height) * grid.width + within(to[1], grid.width);
}

/** A canvas that keeps its proportions where there is less room than it wants. */
export function drawingOf(canvas, size) {
  const context = sizeCanvas(canvas, size.width, size.height);
  canvas.style.height = "auto";
  return context;
}

/** {element, show(weights)}: the image with the weights of a row over it. Where rows are places too, one can be chosen. */
export function overSight(shown, app) {
  const { image } = shown;
  const grid = shown.columns.axis;
  const own = shown.rows.axis.kind === "Grid" ? shown.rows.axis : null;
  const size = sizeOf(image);
  const name = image.name ? ` ${short(image.name, 60)}` : "";
  const choosing = "Arrow keys choose the place whose attention is shown.";
  const canvas = make("canvas", {
    role: own ? "application" : "img",
    "aria-label": `The image${name}, bright where there is attention.${own ? ` ${choosing}` : ""}`,
    tabindex: own ? 0 : null,
  });
  let now = null;
  canvas.addEventListener("pointermove", (event) => {
    const place = placeAt(event, canvas, image, grid);
    if (place < 0) app.tip(event, "outside of what the model saw");
    else if (now) app.tip(event, shown.columns.labels[place], decimals(now[place], app.digits));
  });
  canvas.addEventListener("pointerleave", () => app.tip(null));
  if (own) {
    canvas.addEventListener("click", (event) => {
      const place = placeAt(event, canvas, image, own);
      if (place >= 0) app.pick(place);
    });
    canvas.addEventListener("keydown", (event) => {
      const place = placeByKey(event, Math.min(app.state.row, own.size - 1), own);
      if (place === null) return;
      event.preventDefault();
      app.pick(place);
    });
  }
  const show = (weights) => {
    now = weights;
    const context = drawingOf(canvas, size);
    drawOver(context, image, grid, weights, size, app);
    if (own) framePlace(context, image, own, Math.min(app.state.row, own.size - 1), size);
  };
  return { element: make("div", { class: "sight over" }, canvas), show };
}

/** The image itself, to see what is where: small, beside the one with the map. */
export function imageAlone(image) {
  const size = sizeOf(image, ASIDE, ASIDE);
  const canvas = make("canvas", { "aria-hidden": "true" });
  drawImage(drawingOf(canvas, size), image, size.width, size.height);
  return make("div", { class: "over alone" }, canvas);
}

/** One row as a picture to save: {width, height, draw(pen)}. */
export function overPicture(shown, weights, app, widest = WIDEST) {
  const size = sizeOf(shown.image, widest, (widest * TALLEST) / WIDEST);
  const paint = (context) => drawOver(context, shown.image, shown.columns.axis, weights, size, app);
  return { ...size, draw: (pen) => printed(pen, size, paint) };
}

/** Something that is drawn pixel by pixel, on a pen that may write SVG: twice as fine as on the screen. */
export function printed(pen, size, draw) {
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [size.width * 2, size.height * 2];
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  draw(context);
  pen.image(0, 0, size.width, size.height, canvas);
}

/** All rows, an image for each with its word above it; of very many only the chosen one. */
export function overPictures(shown, app, row) {
  const all = shown.rows.size <= MOST_PANELS && shown.rows.axis.kind !== "Grid";
  const rows = all ? Array.from({ length: shown.rows.size }, (_, i) => i) : [row];
  const panels = rows.map((one) => overPicture(shown, shown.map.row(one), app, all ? PANEL : WIDEST));
  const across = Math.min(rows.length, 6);
  const [wide, high] = [panels[0].width + 10, panels[0].height + 26];
  const draw = (pen) => {
    panels.forEach((panel, i) => {
      const [x, y] = [(i % across) * wide, Math.floor(i / across) * high];
      const flat = isFlat(shown.map.row(rows[i]));
      const word = fitting(shown.rows.labels[rows[i]] + (flat ? FLAT : ""), panel.width);
      pen.text(x + panel.width / 2, y + 13, word, { size: 13, anchor: "middle", italic: shown.rows.special.has(rows[i]) });
      pen.group(x, y + 18, () => panel.draw(pen));
    });
    const framed = `framed: at least half of ${rows.length > 1 ? "the word's" : "the"} largest weight`;
    const scale = `dark: weight 0, full light: ${decimals(app.top, app.digits)}; ${framed}`;
    pen.text(0, Math.ceil(rows.length / across) * high + 8, scale, { size: 11, fill: theme().soft });
  };
  return { width: across * wide, height: Math.ceil(rows.length / across) * high + 14, draw };
}

/** As much of a word as fits over an image. */
function fitting(label, width) {
  const word = bareWord(label);
  let most = 28;
  while (most > 2 && textWidth(short(word, most), { size: 13 }) > width) most -= 1;
  return short(word, most);
}
