// What the shades mean, in numbers.

import { level, theme } from "./colour.js";
import { make, sizeCanvas } from "./dom.js";
import { unitOf } from "./look.js";
import { significant } from "./text.js";
import { DARKEST } from "./over.js";

const WIDTH = 132;

export function legendOf(app) {
  const { css } = theme();
  return scaleOf(app, (shade) => css[shade]);
}

/** The same for an image that is dark where the weight is small. */
export function lightLegend(app) {
  return scaleOf(app, (shade) => {
    const light = Math.round(255 * (1 - DARKEST * (1 - shade / 255)));
    return `rgb(${light},${light},${light})`;
  });
}

function scaleOf(app, colourOf) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const context = sizeCanvas(canvas, WIDTH, 10);
  for (let x = 0; x < WIDTH; x += 1) {
    context.fillStyle = colourOf(level(x / (WIDTH - 1), 1, app.state.faint));
    context.fillRect(x, 0, 1, 10);
  }
  return make(
    "div",
    { class: "legend" },
    make("span", {}, "0"),
    canvas,
    make("span", {}, significant(app.top)),
    make("span", { class: "unit" }, unitOf(app.state.stack)),
  );
}
