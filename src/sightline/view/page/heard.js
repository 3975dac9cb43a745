// A recording and the words that attended to it: the spectrogram or the frames above the map, along one axis of time. A
// click on a word plays the stretch of time that it attended to.

import { level, theme } from "./colour.js";
import { wordButtons } from "./captioned.js";
import { make, setText, sizeCanvas } from "./dom.js";
import { legendOf } from "./legend.js";
import { sentence, strongest } from "./look.js";
import { CanvasPen, textWidth } from "./pen.js";
import { Player } from "./player.js";
import { tableOf } from "./table.js";
import { bareWord, decimals, short } from "./text.js";

const SHARE = 0.9; // of a word's weights, in the stretch that it attended to
const HIGH = 110; // pixels of a spectrogram
const GAP = 6;
const AXIS = 22;
const ROWS = 420; // pixels of all rows, where they are not too many
const STRIP = 8; // frames of a clip for each word
const FAINT = 0.05; // of a word's largest weight: a frame with less is not shown

/** Where frames and columns are in time: seconds, or frames where their times are unknown. */
export function timesOf(recording, columns) {
  const [count] = recording.shape;
  const frame = recording.step || recording.seconds / count;
  if (!frame || !columns.axis.seconds) return { end: count, frame: 1, column: count / columns.size, unit: "frames" };
  return { end: Math.max(recording.seconds, count * frame), frame, column: columns.axis.seconds, unit: "s" };
}

/** The shortest run of columns that holds nine tenths of a row's weights: [first, the one after the last]. */
export function attendedStretch(weights) {
  const sums = [0];
  for (const weight of weights ?? []) sums.push(sums.at(-1) + Math.max(weight, 0));
  const wanted = SHARE * sums.at(-1) * (1 - 1e-9);
  if (!wanted) return null;
  let best = null;
  for (let first = 0, end = 0; first < sums.length; first += 1) {
    while (end < sums.length && sums[end] - sums[first] < wanted) end += 1;
    if (end === sums.length) break;
    const shorter = best === null || end - first < best[1] - best[0];
    const same = !shorter && end - first === best[1] - best[0];
    if (shorter || (same && sums[end] - sums[first] > sums[best[1]] - sums[best[0]])) best = [first, end];
  }
  return best;
}

/** That stretch in time, with a column on each side: what is played. */
function playedStretch(weights, times) {
  const stretch = attendedStretch(weights);
  if (!stretch) return null;
  return [Math.max(stretch[0] - 1, 0) * times.column, Math.min((stretch[1] + 1) * times.column, times.end)];
}

const pictures = new WeakMap();

/** The spectrogram as a canvas with a pixel for each number, dark where it is loud (light on dark paper). */
function spectrogramOf(recording) {
  const dark = theme().paper !== "#ffffff";
  const known = pictures.get(recording);
  if (known?.dark === dark) return known.canvas;
  const [frames, bands] = recording.shape;
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [frames, bands];
  const context = canvas.getContext("2d");
  const image = context.createImageData(frames, bands);
  for (let frame = 0; frame < frames; frame += 1) {
    for (let band = 0; band < bands; band += 1) {
      const value = recording.values[frame * bands + band];
      image.data.set(grey(dark ? value : 255 - value), ((bands - 1 - band) * frames + frame) * 4);
    }
  }
  context.putImageData(image, 0, 0);
  pictures.set(recording, { dark, canvas });
  return canvas;
}

const grey = (value) => [value, value, value, 255];

/** A frame of a clip as a canvas. */
function frameOf(recording, number) {
  const [count, height, width] = recording.shape;
  const canvas = make("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const start = Math.min(Math.max(number, 0), count - 1) * height * width;
  for (let i = 0; i < height * width; i += 1) image.data.set(grey(recording.values[start + i]), i * 4);
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The spectrogram, or frames of a clip side by side, in a box that is as long as the recording. */
function drawRecording(pen, recording, times, width, height) {
  if (recording.shape.length === 2) {
    const wide = (width * recording.shape[0] * times.frame) / times.end;
    pen.image(0, 0, wide, height, spectrogramOf(recording));
    return;
  }
  const wide = Math.max(8, (height * recording.shape[2]) / recording.shape[1]);
  const count = Math.max(1, Math.floor(width / wide));
  for (let i = 0; i < count; i += 1) {
    const at = ((i + 0.5) / count) * times.end;
    pen.image((i * width) / count, 0, width / count - 1, height, frameOf(recording, Math.floor(at / times.frame)));
  }
}

/** The weights of a row over the recording, and lines around the stretch that it attended to. */
function drawWeights(pen, weights, times, app, width, height) {
  if (!weights || app.state.bare) return;
  const { mark } = theme();
  const wide = (width * times.column) / times.end;
  weights.forEach((weight, column) => {
    const high = (height * level(weight, app.top, app.state.faint)) / 255;
    if (high >= 1) pen.rect(column * wide, height - high, wide, high, { fill: `${mark}77` });
  });
  for (const column of attendedStretch(weights) ?? []) pen.rect(Math.min(column * wide, width) - 1, 0, 2, height, { fill: mark });
}

/** Times below a map: as many as there is room for. */
function drawAxis(pen, times, width) {
  const { soft } = theme();
  const most = Math.max(2, Math.floor(width / 70));
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 1e4, 1e5];
  const step = steps.find((one) => times.end / one <= most && (times.unit === "s" || one >= 1)) ?? times.end;
  const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
  for (let i = 0; i * step <= times.end; i += 1) {
    const x = (width * i * step) / times.end;
    pen.rect(x, 0, 1, 4, { fill: soft });
    const last = i === 0 ? ` ${times.unit}` : "";
    pen.text(x, 16, `${(i * step).toFixed(digits)}${last}`, { size: 11, fill: soft, anchor: i ? "middle" : "start" });
  }
}

function geometryOf(shown, width) {
  const labels = shown.rows.labels.map((label) => short(bareWord(label), 16));
  const high = Math.max(4, Math.min(22, Math.floor(ROWS / shown.rows.size)));
  const left = Math.min(Math.ceil(Math.max(...labels.slice(0, 500).map((label) => textWidth(label)), 20)) + 10, 150);
  const wide = Math.max(width - left - 8, 100);
  return { labels, high, left, wide, top: HIGH + GAP, height: HIGH + GAP + high * shown.rows.size + AXIS, width };
}

function drawAll(pen, shown, geometry, times, app, row) {
  const { labels, high, left, wide, top } = geometry;
  const { ink, mark, line } = theme();
  pen.group(left, 0, () => {
    drawRecording(pen, shown.recording, times, wide, HIGH);
    drawWeights(pen, shown.map.row(row), times, app, wide, HIGH);
    pen.rect(0, 0, wide, HIGH, { stroke: line });
  });
  const levels = (i) => {
    const weights = shown.map.row(i);
    return Array.from({ length: shown.columns.size }, (_, j) => level(weights?.[j] ?? 0, app.top, app.state.faint));
  };
  pen.clip(left, top, wide, high * labels.length, () => {
    pen.cells(left, top, (wide * times.column) / times.end, labels.length, shown.columns.size, levels, high);
  });
  pen.rect(left, top + row * high, wide, high, { stroke: mark });
  const every = Math.ceil(13 / high);
  labels.forEach((label, i) => {
    if (i !== row && (i % every || Math.abs(i - row) < every)) return;
    const style = { anchor: "end", fill: i === row ? mark : ink, bold: i === row, italic: shown.rows.special.has(i) };
    pen.text(left - 6, top + i * high + high / 2 + 4, label, { size: 12, ...style });
  });
  pen.group(left, top + high * labels.length, () => drawAxis(pen, times, wide));
}

/** {element, show(at, plays), seek}: play and pause, and where it is. */
function controlsOf(player, times, named) {
  const play = make("button", { type: "button", class: "main play" }, "Play");
  const where = make("span", { class: "value" });
  const slider = make("input", {
    type: "range", min: 0, max: times.end, step: times.unit === "s" ? 0.01 : 1, "aria-label": `Position in the ${named}`,
  });
  const digits = times.unit === "s" ? 2 : 0;
  play.addEventListener("click", () => (player.running ? player.pause() : player.play()));
  slider.addEventListener("input", () => player.pause(Number(slider.value)));
  const show = (at, plays) => {
    setText(play, plays ? "Pause" : "Play");
    slider.value = at;
    const text = `${at.toFixed(digits)} / ${times.end.toFixed(digits)} ${times.unit}`;
    setText(where, text);
    slider.setAttribute("aria-valuetext", text);
  };
  return { element: make("div", { class: "player", role: "group", "aria-label": "Player" }, play, slider, where), show };
}

export function heardView(app, shown) {
  const { recording } = shown;
  const clip = recording.shape.length === 3;
  const times = timesOf(recording, shown.columns);
  const plays = Boolean(recording.wav) || (clip && times.unit === "s");
  const words = make("p", { class: "sentence", "aria-live": "polite" });
  const named = clip ? "clip" : "recording";
  const canvas = make("canvas", { role: "img", "aria-label": `${shown.name}: the ${named} above, the map of each word below` });
  const cursor = make("div", { class: "cursor", "aria-hidden": "true", hidden: true });
  const holder = make("div", { class: "heard-map" }, canvas, cursor);
  const film = clip ? make("canvas", { role: "img", "aria-label": "The frame at this time" }) : null;
  const strip = clip ? make("ol", { class: "strip", "aria-label": "Frames with the highest weights of this word" }) : null;
  let geometry = null;
  const rowNow = () => Math.min(app.state.row, shown.rows.size - 1);

  function moved(at, running) {
    controls?.show(at, running);
    if (geometry) cursor.style.left = `${geometry.left + (geometry.wide * at) / times.end}px`;
    cursor.hidden = !geometry || (at === 0 && !running);
    holder.dataset.at = at.toFixed(3);
    if (film) showFrame(film, recording, Math.floor(at / times.frame));
  }

  const player = new Player(recording, times.end, moved);
  const controls = plays ? controlsOf(player, times, named) : null;
  const playRow = (row) => {
    const stretch = plays ? playedStretch(shown.map.row(row), times) : null;
    if (stretch) player.play(...stretch);
  };
  const choosing = wordButtons(app, shown, playRow);

  function draw() {
    if (!geometry) return;
    const context = sizeCanvas(canvas, geometry.width, geometry.height);
    drawAll(new CanvasPen(context), shown, geometry, times, app, rowNow());
    app.painted();
  }

  function resize() {
    geometry = geometryOf(shown, holder.clientWidth || 640);
    draw();
    moved(player.now(), player.running);
  }

  function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    const at = ((event.clientX - box.left - geometry.left) / geometry.wide) * times.end;
    const row = Math.floor((event.clientY - box.top - geometry.top) / geometry.high);
    return { at, row: row >= 0 && row < shown.rows.size ? row : -1, inside: at >= 0 && at < times.end };
  }

  canvas.addEventListener("pointermove", (event) => {
    const { at, row, inside } = placeOf(event);
    if (!inside) return app.tip(null);
    if (row >= 0) app.pick(row);
    const weight = shown.map.row(row >= 0 ? row : rowNow())?.[Math.min(Math.floor(at / times.column), shown.columns.size - 1)];
    app.tip(event, `${row >= 0 ? `${geometry.labels[row]}, ` : ""}${moment(at, times)}`, decimals(weight, app.digits));
    return undefined;
  });
  canvas.addEventListener("pointerleave", () => app.tip(null));
  canvas.addEventListener("click", (event) => {
    const { at, inside } = placeOf(event);
    if (inside && plays) player.pause(at);
  });

  const aside = `a column of the map is ${decimals(times.column, 2)} ${times.unit}`;
  const played = `A click on a word plays the shortest stretch that holds ${SHARE * 100} % of its attention, and one column on each side; ${aside}.`;
  const hint = plays ? played : `Point at a word, or use the arrow keys, to see its attention; ${aside}.`;
  const element = make(
    "div",
    { class: "heard" },
    choosing.element,
    words,
    controls?.element,
    film ? make("div", { class: "over" }, film) : null,
    holder,
    strip,
    make("div", { class: "under" }, legendOf(app), make("p", { class: "hint" }, hint)),
    tableOf(shown, app),
  );
  const pick = () => {
    const weights = shown.map.row(rowNow());
    const stretch = attendedStretch(weights);
    const where = stretch
      ? ` Most of it: ${moment(stretch[0] * times.column, times)} to ${moment(Math.min(stretch[1] * times.column, times.end), times)}.`
      : "";
    setText(words, sentence(shown, rowNow()) + where);
    choosing.show(rowNow());
    if (strip) strip.replaceChildren(...frames(recording, weights, times));
    draw();
  };
  const picture = () => {
    const whole = geometryOf(shown, 900);
    return { width: whole.width, height: whole.height, draw: (pen) => drawAll(pen, shown, whole, times, app, rowNow()) };
  };
  return { element, pick, resize, picture, close: () => player.pause() };
}

function moment(at, times) {
  return times.unit === "s" ? `${at.toFixed(2)} s` : `frame ${Math.floor(at) + 1}`;
}

function showFrame(canvas, recording, number) {
  const frame = frameOf(recording, number);
  const scale = Math.max(1, Math.min(4, 240 / frame.height));
  const context = sizeCanvas(canvas, frame.width * scale, frame.height * scale);
  context.drawImage(frame, 0, 0, frame.width * scale, frame.height * scale);
}

/** The frames of a clip with the highest weights of a word, in their order. */
function frames(recording, weights, times) {
  const best = strongest(weights ?? [], STRIP, 0);
  const least = FAINT * (best[0]?.weight ?? 0);
  return best.filter(({ weight }) => weight > least).sort((a, b) => a.column - b.column).map(({ column, weight }) => {
    const at = (column + 0.5) * times.column;
    const canvas = frameOf(recording, Math.floor(at / times.frame));
    canvas.setAttribute("aria-hidden", "true");
    return make("li", {}, canvas, make("span", { class: "number" }, `${moment(at, times)}: ${decimals(weight, 2)}`));
  });
}

/** {element, show(weights)}: the recording with the weights of one row over it. */
export function heardSight(shown, app) {
  const times = timesOf(shown.recording, shown.columns);
  const canvas = make("canvas", { role: "img", "aria-label": "The recording, with the weights over it" });
  const element = make("div", { class: "sight over" }, canvas);
  const show = (weights) => {
    const picture = heardPicture(shown, weights, app, Math.max(element.clientWidth, 320), times);
    picture.draw(new CanvasPen(sizeCanvas(canvas, picture.width, picture.height)));
  };
  return { element, show };
}

export function heardPicture(shown, weights, app, width, times = timesOf(shown.recording, shown.columns)) {
  const draw = (pen) => {
    drawRecording(pen, shown.recording, times, width, HIGH);
    drawWeights(pen, weights, times, app, width, HIGH);
    pen.group(0, HIGH, () => drawAxis(pen, times, width));
  };
  return { width, height: HIGH + AXIS, draw };
}
