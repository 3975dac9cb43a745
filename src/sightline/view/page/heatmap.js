// The alignment: a heat map with words on both sides, and above it one attention row.

import { captionedView } from "./captioned.js";
import { copiedHint } from "./copied.js";
import { CanvasPen } from "./pen.js";
import { make, newId, setText, sizeCanvas } from "./dom.js";
import { drawMap, geometryOf, ZOOMS } from "./geometry.js";
import { heardView } from "./heard.js";
import { sentence } from "./look.js";
import { legendOf } from "./legend.js";
import { sightOf, sightPicture } from "./sight.js";
import { tableOf } from "./table.js";
import { decimals, plural, short } from "./text.js";

const TALLEST = 0.72; // of the window

export function alignmentView(app, shown) {
  if (shown.image) return captionedView(app, shown);
  if (shown.recording) return heardView(app, shown);
  const words = make("p", { class: "sentence", "aria-live": "polite" });
  const sight = sightOf(shown, app);
  if (shown.rows.size === 1) return pooledView(app, shown, words, sight);
  const map = heatMap(app, shown);
  const hint = "Point at a word or a cell, or use the arrow keys, to see its attention row.";
  const element = make(
    "div",
    { class: "alignment" },
    make("div", { class: "line" }, words, sight.element),
    map.element,
    make("div", { class: "under" }, legendOf(app), map.zoom, make("p", { class: "hint" }, hint)),
    shown.copies ? make("p", { class: "hint" }, copiedHint(shown)) : null,
    tableOf(shown, app),
  );
  const pick = () => {
    const row = Math.min(app.state.row, shown.rows.size - 1);
    setText(words, sentence(shown, row));
    sight.show(shown.map.row(row), row);
    map.draw();
  };
  return { element, pick, resize: map.resize, picture: map.picture };
}

/** One row that gathers a whole is read as text. */
function pooledView(app, shown, words, sight) {
  const element = make(
    "div",
    { class: "alignment pooled" },
    make("div", { class: "line" }, words, sight.element),
    make("div", { class: "under" }, legendOf(app)),
    tableOf(shown, app),
  );
  const pick = () => {
    setText(words, sentence(shown, 0));
    sight.show(shown.map.row(0));
    app.painted();
  };
  return { element, pick, resize: () => {}, picture: () => sightPicture(shown, shown.map.row(0), app, 720) };
}

function tallest() {
  return Math.max(320, window.innerHeight * TALLEST);
}

function heatMap(app, shown) {
  const help = newId("help");
  const canvas = make("canvas", { "aria-hidden": "true" });
  const spacer = make("div", { class: "spacer" });
  const sizes = `${plural(shown.rows.size, "row", "rows")}, ${plural(shown.columns.size, "column", "columns")}`;
  const element = make(
    "div",
    {
      class: "map", tabindex: 0, role: "application", "aria-roledescription": "attention map",
      "aria-label": `${shown.name}: ${sizes}`, "aria-describedby": help,
    },
    canvas,
    spacer,
  );
  const keys = "Up and down choose a row, left and right a cell, Home and End the first and last row. A table follows.";
  const holder = make("div", { class: "map-holder" }, make("p", { id: help, class: "unseen" }, keys), element);
  let geometry = null;
  let column = -1;
  let asked = 0;

  function resize() {
    geometry = geometryOf(shown, holder.clientWidth || 640, tallest(), app.state.zoom);
    const height = Math.min(geometry.height, tallest());
    element.style.height = `${height + 2}px`;
    spacer.style.width = `${geometry.width}px`;
    spacer.style.height = `${geometry.height}px`;
    zoom.show(geometry.cell);
    draw();
  }

  function draw() {
    if (!asked) asked = requestAnimationFrame(paint);
  }

  function paint() {
    asked = 0;
    if (!element.isConnected || !geometry) return;
    const [width, height] = [element.clientWidth, element.clientHeight];
    const context = sizeCanvas(canvas, width, height);
    const part = { x: element.scrollLeft, y: element.scrollTop, width, height };
    const cursor = { row: Math.min(app.state.row, shown.rows.size - 1), column };
    drawMap(new CanvasPen(context), shown, geometry, part, app, cursor);
    app.painted();
  }

  function placeOf(event) {
    const box = element.getBoundingClientRect();
    const x = event.clientX - box.left - element.clientLeft;
    const y = event.clientY - box.top - element.clientTop;
    return {
      row: y < geometry.top ? -1 : Math.floor((y - geometry.top + element.scrollTop) / geometry.high),
      column: x < geometry.left ? -1 : Math.floor((x - geometry.left + element.scrollLeft) / geometry.cell),
    };
  }

  function describe(event, row) {
    const weight = shown.map.row(row)?.[column];
    const names = `${short(shown.rows.labels[row], 300)} → ${short(shown.columns.labels[column], 300)}`;
    app.tip(event, names, weight === undefined ? "–" : decimals(weight, app.digits));
  }

  element.addEventListener("scroll", draw, { passive: true });
  element.addEventListener("pointermove", (event) => {
    if (!geometry) return;
    const place = placeOf(event);
    if (place.row < 0 || place.row >= shown.rows.size) return app.tip(null);
    column = place.column >= 0 && place.column < shown.columns.size ? place.column : -1;
    app.pick(place.row);
    draw();
    if (column >= 0) describe(event, place.row);
    else app.tip(null);
    return undefined;
  });
  element.addEventListener("pointerleave", () => {
    column = -1;
    app.tip(null);
    draw();
  });
  element.addEventListener("keydown", (event) => {
    const row = Math.min(app.state.row, shown.rows.size - 1);
    const moves = {
      ArrowUp: () => [row - 1, column], ArrowDown: () => [row + 1, column],
      ArrowLeft: () => [row, Math.max(column, 0) - 1], ArrowRight: () => [row, column + 1],
      Home: () => [0, column], End: () => [shown.rows.size - 1, column], Escape: () => [row, -1],
    };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const [toRow, toColumn] = moves[event.key]();
    column = Math.min(Math.max(toColumn, -1), shown.columns.size - 1);
    app.pick(Math.min(Math.max(toRow, 0), shown.rows.size - 1));
    draw();
    bringIntoView();
    if (column >= 0) describe(cellBox(), app.state.row);
    else app.tip(null);
  });
  element.addEventListener("blur", () => app.tip(null));

  function bringIntoView() {
    const { cell, high, left, top } = geometry;
    const [x, y] = [Math.max(column, 0) * cell, app.state.row * high];
    const [wide, tall] = [element.clientWidth - left, element.clientHeight - top];
    if (y < element.scrollTop) element.scrollTop = y;
    if (y + high > element.scrollTop + tall) element.scrollTop = y + high - tall;
    if (x < element.scrollLeft) element.scrollLeft = x;
    if (x + cell > element.scrollLeft + wide) element.scrollLeft = x + cell - wide;
  }

  /** Where the tip of a cell chosen by keys belongs. */
  function cellBox() {
    const box = element.getBoundingClientRect();
    return {
      clientX: box.left + geometry.left + (column + 0.5) * geometry.cell - element.scrollLeft,
      clientY: box.top + geometry.top + (app.state.row + 0.5) * geometry.high - element.scrollTop,
    };
  }

  const zoom = zoomOf(app);
  const picture = () => {
    const whole = geometryOf(shown, 1e9, tallest(), app.state.zoom ?? geometry.cell);
    const part = { x: 0, y: 0, width: whole.width, height: whole.height };
    return { width: whole.width, height: whole.height, draw: (pen) => drawMap(pen, shown, whole, part, app) };
  };
  return { element: holder, zoom: zoom.element, draw, resize, picture };
}

function zoomOf(app) {
  const value = make("span", { class: "value" });
  let cell = 1;
  const step = (by) => () => {
    const next = by > 0 ? ZOOMS.find((size) => size > cell) : ZOOMS.findLast((size) => size < cell);
    if (next) app.set({ zoom: next }, "resize");
  };
  const element = make(
    "div",
    { class: "zoom", role: "group", "aria-label": "Size of the cells" },
    make("button", { type: "button", "aria-label": "Smaller cells", click: step(-1) }, "−"),
    value,
    make("button", { type: "button", "aria-label": "Larger cells", click: step(1) }, "+"),
    make("button", { type: "button", click: () => app.set({ zoom: null }, "resize") }, "Fit"),
  );
  const show = (size) => {
    cell = size;
    setText(value, `${Math.round(size * 10) / 10} px`);
  };
  return { element, show };
}
