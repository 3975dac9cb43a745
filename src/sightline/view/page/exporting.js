// The current view as a file. Drawn once more, whole, by the code that draws the screen.

import { theme } from "./colour.js";
import { CanvasPen, SvgPen } from "./pen.js";
import { clean } from "./about.js";
import { short } from "./text.js";

const MARGIN = 24;
const HEADING = 34;
const LARGEST = 8192; // pixels of a side: more than some browsers can draw

/** What a pane shows: a table with its program above the map. */
function pictureOf(pane) {
  const map = (pane.view ?? pane.cells).picture();
  if (!pane.asked) return map;
  const table = pane.asked.picture();
  const draw = (pen, loaded) => {
    table.draw(pen);
    pen.group(0, table.height + MARGIN, () => map.draw(pen, loaded));
  };
  const width = Math.max(table.width, map.width);
  return { width, height: table.height + MARGIN + map.height, ready: map.ready, draw };
}

/** Every pane with its heading, side by side. */
async function composed(panes, view) {
  const pictures = panes.map(pictureOf);
  const loaded = await Promise.all(pictures.map((picture) => picture.ready ?? null));
  const width = MARGIN + pictures.reduce((sum, picture) => sum + Math.max(picture.width, 260) + MARGIN, 0);
  const height = 2 * MARGIN + HEADING + Math.max(...pictures.map((picture) => picture.height));
  const draw = (pen) => {
    let x = MARGIN;
    pictures.forEach((picture, i) => {
      const { explanation, shown } = panes[i];
      pen.text(x, MARGIN + 4, short(clean(explanation.title), 40), { size: 14, bold: true });
      const name = !shown ? clean(explanation.output) : view === "heads" ? shown.stack.title : shown.name;
      pen.text(x, MARGIN + 21, short(name, 60), { size: 11, fill: theme().soft });
      pen.group(x, MARGIN + HEADING, () => picture.draw(pen, loaded[i]));
      x += Math.max(picture.width, 260) + MARGIN;
    });
  };
  return { width, height, draw };
}

export async function exportSvg(panes, title, view) {
  const { width, height, draw } = await composed(panes, view);
  const pen = new SvgPen();
  draw(pen);
  save(new Blob([pen.finish(width, height, clean(title))], { type: "image/svg+xml" }), fileName(title, view, "svg"));
}

export async function exportPng(panes, title, view) {
  const { width, height, draw } = await composed(panes, view);
  const scale = Math.min(2, LARGEST / width, LARGEST / height);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = theme().paper;
  context.fillRect(0, 0, width, height);
  draw(new CanvasPen(context));
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  save(blob, fileName(title, view, "png"));
}

function fileName(title, view, ending) {
  const plain = title.normalize("NFKD").replace(/[^a-zA-Z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40).toLowerCase();
  return `${plain || "attention"}-${view}.${ending}`;
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
