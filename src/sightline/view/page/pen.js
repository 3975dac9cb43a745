// One way to draw, two papers: a canvas for the screen and PNG, text for SVG. A view is drawn by the same code on both.

import { theme } from "./colour.js";

export const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
const MOST_RECTANGLES = 20000;

function face({ size = 13, italic = false, bold = false }) {
  return `${italic ? "italic " : ""}${bold ? "600 " : ""}${size}px ${FONT}`;
}

const ruler = document.createElement("canvas").getContext("2d");

export function textWidth(text, style = {}) {
  ruler.font = face(style);
  return ruler.measureText(text).width;
}

/** A picture with one pixel for each cell. */
function picture(rows, columns, levelAt) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(columns, 1);
  canvas.height = Math.max(rows, 1);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const shades = theme().shades.map(([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
  for (let row = 0; row < rows; row += 1) {
    const levels = levelAt(row);
    for (let column = 0; column < columns; column += 1) pixels[row * canvas.width + column] = shades[levels[column]];
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

export class CanvasPen {
  constructor(context) {
    this.context = context;
  }

  rect(x, y, width, height, { fill = null, stroke = null, line = 1, radius = 0 }) {
    const { context } = this;
    context.beginPath();
    if (radius) context.roundRect(x, y, width, height, radius);
    else context.rect(x, y, width, height);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.stroke();
    }
  }

  text(x, y, text, style = {}) {
    const { context } = this;
    context.save();
    context.font = face(style);
    context.fillStyle = style.fill ?? theme().ink;
    context.direction = "ltr";
    context.textAlign = { start: "left", middle: "center", end: "right" }[style.anchor ?? "start"];
    context.translate(x, y);
    if (style.rotate) context.rotate((style.rotate * Math.PI) / 180);
    context.fillText(text, 0, 0);
    context.restore();
  }

  curve(x1, y1, x2, y2, { stroke, line, opacity }) {
    const { context } = this;
    context.globalAlpha = opacity;
    context.strokeStyle = stroke;
    context.lineWidth = line;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo((x1 + x2) / 2, y1, (x1 + x2) / 2, y2, x2, y2);
    context.stroke();
    context.globalAlpha = 1;
  }

  /** Cells side by side; ``levelAt(row)`` gives the shades of a row. */
  cells(x, y, cell, rows, columns, levelAt, high = cell) {
    if (!rows || !columns) return;
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(picture(rows, columns, levelAt), x, y, columns * cell, rows * high);
  }

  image(x, y, width, height, canvas) {
    this.context.imageSmoothingEnabled = true;
    this.context.drawImage(canvas, x, y, width, height);
  }

  group(x, y, draw) {
    this.context.save();
    this.context.translate(x, y);
    draw();
    this.context.restore();
  }

  clip(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

// What XML cannot hold, even escaped.
const UNWRITABLE =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

function escaped(text) {
  return text.replace(UNWRITABLE, "\ufffd").replace(/[&<>"]/g, (c) => ENTITIES[c]);
}

const round = (number) => Math.round(number * 100) / 100;

export class SvgPen {
  constructor() {
    this.parts = [];
  }

  rect(x, y, width, height, { fill = null, stroke = null, line = 1, radius = 0 }) {
    const border = stroke ? ` stroke="${stroke}" stroke-width="${line}"` : "";
    const round_ = radius ? ` rx="${radius}"` : "";
    this.parts.push(
      `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"${round_} ` +
        `fill="${fill ?? "none"}"${border}/>`,
    );
  }

  text(x, y, text, style = {}) {
    const turn = style.rotate ? ` transform="rotate(${style.rotate} ${round(x)} ${round(y)})"` : "";
    const slant = style.italic ? ' font-style="italic"' : "";
    const weight = style.bold ? ' font-weight="600"' : "";
    this.parts.push(
      `<text x="${round(x)}" y="${round(y)}" font-size="${style.size ?? 13}" text-anchor="${style.anchor ?? "start"}" ` +
        `fill="${style.fill ?? theme().ink}"${slant}${weight}${turn}>${escaped(text)}</text>`,
    );
  }

  curve(x1, y1, x2, y2, { stroke, line, opacity }) {
    const middle = round((x1 + x2) / 2);
    this.parts.push(
      `<path d="M${round(x1)} ${round(y1)}C${middle} ${round(y1)} ${middle} ${round(y2)} ${round(x2)} ${round(y2)}" ` +
        `fill="none" stroke="${stroke}" stroke-width="${round(line)}" opacity="${round(opacity)}"/>`,
    );
  }

  cells(x, y, cell, rows, columns, levelAt, high = cell) {
    if (rows * columns > MOST_RECTANGLES) {
      const data = picture(rows, columns, levelAt).toDataURL("image/png");
      this.parts.push(
        `<image x="${round(x)}" y="${round(y)}" width="${round(columns * cell)}" height="${round(rows * high)}" ` +
          `preserveAspectRatio="none" style="image-rendering:pixelated" href="${data}"/>`,
      );
      return;
    }
    const { css } = theme();
    this.rect(x, y, columns * cell, rows * high, { fill: css[0] });
    for (let row = 0; row < rows; row += 1) {
      const levels = levelAt(row);
      for (let column = 0; column < columns; column += 1) {
        if (levels[column]) this.rect(x + column * cell, y + row * high, cell, high, { fill: css[levels[column]] });
      }
    }
  }

  image(x, y, width, height, canvas) {
    const data = canvas.toDataURL("image/jpeg", 0.9);
    this.parts.push(
      `<image x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" href="${data}"/>`,
    );
  }

  group(x, y, draw) {
    this.parts.push(`<g transform="translate(${round(x)} ${round(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  clip(x, y, width, height, draw) {
    draw(); // a whole view is drawn: nothing hangs out
  }

  finish(width, height, title) {
    return (
      `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="${round(width)}" ` +
      `height="${round(height)}" viewBox="0 0 ${round(width)} ${round(height)}" font-family="${escaped(FONT)}">\n` +
      `<title>${escaped(title)}</title>\n<rect width="100%" height="100%" fill="${theme().paper}"/>\n` +
      `${this.parts.join("\n")}\n</svg>\n`
    );
  }
}
