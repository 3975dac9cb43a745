// What the shades mean, in numbers.

import { level, theme } from "./colour.js";
import { make, sizeCanvas } from "./dom.js";
import { significant } from "./text.js";

const WIDTH = 132;

export function legendOf(app) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const context = sizeCanvas(canvas, WIDTH, 10);
  const { css } = theme();
  for (let x = 0; x < WIDTH; x += 1) {
    context.fillStyle = css[level(x / (WIDTH - 1), 1, app.state.faint)];
    context.fillRect(x, 0, 1, 10);
  }
  return make(
    "div",
    { class: "legend" },
    make("span", {}, "0"),
    canvas,
    make("span", {}, significant(app.top)),
    make("span", { class: "unit" }, "weight"),
  );
}
