// Lines between words: queries on the left, what they attend to on the right; darker lines have more weight.

import { theme } from "./colour.js";
import { isCopied, markOf } from "./copied.js";
import { CanvasPen, textWidth } from "./pen.js";
import { make, newId, setText, sizeCanvas } from "./dom.js";
import { sentence, unitOf } from "./look.js";
import { decimals, plural, quoted, short } from "./text.js";

const HEIGHT = 26;
const TOP = 34;
const LEAST = 0.005;
const MARKS = 54; // copied or written, left of a label
const LONGEST_LABEL = 24;
const MOST_LINES = 4000;

export function linesView(app, shown) {
  const words = make("p", { class: "sentence", "aria-live": "polite" });
  const canvas = make("canvas", { "aria-hidden": "true" });
  const spacer = make("div", { class: "spacer" });
  const help = newId("help");
  const element = make(
    "div",
    {
      class: "map", tabindex: 0, role: "application", "aria-roledescription": "lines between words",
      "aria-label": `${shown.name}: lines from ${plural(shown.rows.size, "row", "rows")}`, "aria-describedby": help,
    },
    canvas,
    spacer,
  );
  const least = make("output", { class: "value" });
  const slider = make("input", {
    type: "range", min: 0, max: 100, step: 1, "aria-label": "Smallest weight that gets a line",
    input: () => app.set({ threshold: slider.value / 100 }, "pick"),
  });
  slider.value = app.state.threshold * 100;
  let chosen = null; // {side, place}: the word pointed at
  let links = [];
  let counted = null; // the smallest weight that the links were found for
  let layout = null;
  let asked = 0;

  function resize() {
    layout = layoutOf(shown, element.clientWidth || 640);
    element.style.height = `${Math.min(layout.height, Math.max(320, window.innerHeight * 0.72)) + 2}px`;
    spacer.style.height = `${layout.height}px`;
    spacer.style.width = `${layout.width}px`;
    pick();
  }

  function pick() {
    const from = app.state.threshold * app.top;
    if (counted !== from) links = linksFrom(shown, Math.max(from, LEAST));
    counted = from;
    const cut = links.length === MOST_LINES ? `, the ${MOST_LINES} strongest` : "";
    setText(least, `from ${decimals(Math.max(from, LEAST), 3)}${cut}`);
    const all = `${plural(links.length, "line", "lines")}. Point at a word, or use the arrow keys, to see its own.`;
    setText(words, chosen ? said() : all);
    draw();
  }

  function draw() {
    if (!asked) asked = requestAnimationFrame(paint);
  }

  function said() {
    if (chosen.side === "rows") return sentence(shown, chosen.place);
    const best = attendersOf(shown, chosen.place).slice(0, 4);
    const word = quoted(shown.columns.labels[chosen.place]);
    const named = shown.columns.name || unitOf(shown.stack) !== "weight";
    if (!best.length) return `${word}${named ? "" : " was attended to by no row"}: no weight reaches 0.005.`;
    const list = best.map((link) => `${quoted(shown.rows.labels[link.row])} ${decimals(link.weight, 2)}`);
    return `${word}${named ? ":" : " was attended to by"} ${list.join(", ")}.`;
  }

  function paint() {
    asked = 0;
    if (!element.isConnected) return;
    const [width, height] = [element.clientWidth, element.clientHeight];
    const pen = new CanvasPen(sizeCanvas(canvas, width, height));
    drawLines(pen, shown, layout, { x: element.scrollLeft, y: element.scrollTop, height }, links, chosen, app);
    app.painted();
  }

  function choose(next) {
    if (chosen?.side === next?.side && chosen?.place === next?.place) return;
    chosen = next;
    pick();
  }

  element.addEventListener("scroll", draw, { passive: true });
  element.addEventListener("pointermove", (event) => {
    const box = element.getBoundingClientRect();
    const place = Math.floor((event.clientY - box.top + element.scrollTop - TOP) / HEIGHT);
    const x = event.clientX - box.left + element.scrollLeft;
    const side = x <= layout.left + 20 ? "rows" : x >= layout.right - 20 ? "columns" : null;
    choose(side && place >= 0 && place < shown[side].size ? { side, place } : null);
  });
  element.addEventListener("pointerleave", () => choose(null));
  element.addEventListener("keydown", (event) => {
    const now = chosen ?? { side: "rows", place: -1 };
    const to = {
      ArrowUp: () => ({ side: now.side, place: now.place - 1 }), ArrowDown: () => ({ side: now.side, place: now.place + 1 }),
      ArrowLeft: () => ({ side: "rows", place: now.place }), ArrowRight: () => ({ side: "columns", place: now.place }),
      Home: () => ({ side: now.side, place: 0 }), End: () => ({ side: now.side, place: shown[now.side].size - 1 }),
      Escape: () => null,
    }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = to();
    if (next) next.place = Math.min(Math.max(next.place, 0), shown[next.side].size - 1);
    choose(next);
    if (next) {
      const y = TOP + next.place * HEIGHT;
      const seen = y >= element.scrollTop && y + HEIGHT <= element.scrollTop + element.clientHeight;
      if (!seen) element.scrollTop = y - element.clientHeight / 2;
    }
  });
  const picture = () => {
    const whole = layoutOf(shown, 640);
    const part = { x: 0, y: 0, height: whole.height };
    const all = (pen) => drawLines(pen, shown, whole, part, links, chosen, app);
    return { width: whole.width, height: whole.height, draw: all };
  };
  const keys = "Up and down choose a word, left and right the side, Escape shows all lines again.";
  const field = make("div", { class: "field" }, make("span", { "aria-hidden": "true" }, "Weights"), slider, least);
  const holder = make(
    "div",
    { class: "lines" },
    words,
    make("p", { id: help, class: "unseen" }, keys),
    element,
    make("div", { class: "under" }, field),
  );
  return { element: holder, pick, resize, picture };
}

function layoutOf(shown, room) {
  const width = (label) => textWidth(short(label, LONGEST_LABEL), { size: 14 });
  const wide = (side) => Math.max(62, ...side.brief.slice(0, 600).map(width));
  const left = Math.ceil(wide(shown.rows)) + 16 + (shown.copies ? MARKS : 0);
  const right = Math.max(left + 120, Math.min(room, 760) - Math.ceil(wide(shown.columns)) - 16);
  return {
    left, right,
    width: right + Math.ceil(wide(shown.columns)) + 12,
    height: TOP + Math.max(shown.rows.size, shown.columns.size) * HEIGHT + 8,
  };
}

function linksFrom(shown, least) {
  const found = [];
  for (let row = 0; row < shown.rows.size; row += 1) {
    shown.map.row(row)?.forEach((weight, column) => {
      if (weight >= least) found.push({ row, column, weight });
    });
  }
  found.sort((a, b) => b.weight - a.weight);
  return found.slice(0, MOST_LINES).reverse(); // the strongest are drawn last, on top
}

function attendersOf(shown, column) {
  const found = [];
  for (let row = 0; row < shown.rows.size; row += 1) {
    const weight = shown.map.row(row)?.[column] ?? 0;
    if (weight >= LEAST) found.push({ row, column, weight });
  }
  return found.sort((a, b) => b.weight - a.weight);
}

function ofRow(shown, row) {
  const links = [...(shown.map.row(row) ?? [])].map((weight, column) => ({ row, column, weight }));
  return links.filter((link) => link.weight >= LEAST);
}

function drawLines(pen, shown, layout, part, links, chosen, app) {
  const { ink, soft, mark, css, paper } = theme();
  const y = (place) => TOP + (place + 0.5) * HEIGHT - part.y;
  const seen = (link) => Math.max(y(link.row), y(link.column)) > 0 && Math.min(y(link.row), y(link.column)) < part.height;
  const own = chosen && (chosen.side === "rows" ? ofRow(shown, chosen.place) : attendersOf(shown, chosen.place));
  const draw = (link, faded) => {
    const share = Math.min(1, link.weight / (app.top || 1));
    const opacity = faded ? 0.06 + 0.06 * share : 0.15 + 0.85 * share;
    const look = { stroke: faded ? soft : css[200], line: 0.75 + 3.25 * share, opacity };
    pen.curve(layout.left + 6 - part.x, y(link.row), layout.right - 6 - part.x, y(link.column), look);
  };
  for (const link of links) if (seen(link)) draw(link, Boolean(own));
  for (const link of own ?? []) if (seen(link)) draw(link, false);
  const touched = new Map((own ?? []).map((link) => [chosen.side === "rows" ? link.column : link.row, link.weight]));
  for (const side of ["rows", "columns"]) {
    const anchor = side === "rows" ? "end" : "start";
    const x = (side === "rows" ? layout.left : layout.right) - part.x;
    const first = Math.max(0, Math.floor((part.y - TOP) / HEIGHT));
    const last = Math.min(shown[side].size, Math.ceil((part.y + part.height - TOP) / HEIGHT));
    for (let place = first; place < last; place += 1) {
      const isChosen = chosen?.side === side && chosen.place === place;
      const weight = chosen && chosen.side !== side ? touched.get(place) : undefined;
      const strong = weight !== undefined && weight >= 0.05;
      const italic = shown[side].special.has(place);
      const fill = isChosen ? mark : (chosen && !strong) || italic ? soft : ink;
      const label = short(shown[side].brief[place], LONGEST_LABEL);
      pen.text(x, y(place) + 5, label, { size: 14, anchor, fill, bold: isChosen || strong, italic });
      const copy = side === "rows" ? shown.copies?.[place] : null;
      if (copy) pen.text(2 - part.x, y(place) + 5, markOf(copy), { size: 11, fill: soft, bold: isCopied(copy) });
      if (strong) {
        const by = side === "rows" ? 30 : -30;
        pen.text(x + by, y(place) - 4, decimals(weight, 2), { size: 10, fill: mark, anchor: "middle" });
      }
    }
  }
  pen.rect(0, 0, layout.width, TOP - 8, { fill: paper });
  const asks = shown.stack.kind === "cross" ? "writes" : "asks";
  pen.text(layout.left - part.x, 17, shown.rows.name || asks, { size: 11, anchor: "end", fill: soft });
  pen.text(layout.right - part.x, 17, shown.columns.name || "is attended to", { size: 11, fill: soft });
}
