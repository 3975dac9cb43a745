// The data of the page: inflated when it is needed, block by block. A map gives its rows one at a time, so that a long
// input with few kept weights never becomes a large matrix.

const blocks = new Map();
const sent = new Map(); // blocks that a server sent, instead of those inside the page

/** The bytes of a block. Asked for twice, inflated once. */
function inflated(id) {
  if (!blocks.has(id)) blocks.set(id, inflate(sent.get(id) ?? document.getElementById(id).textContent));
  return blocks.get(id);
}

async function inflate(base64) {
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(base64) : fromBase64(base64);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** Numbers that are stored plane by plane: all first bytes, then all second bytes. */
function fromPlanes(bytes, start, count, kind) {
  const size = kind.BYTES_PER_ELEMENT;
  const mixed = new Uint8Array(count * size);
  for (let plane = 0; plane < size; plane += 1) {
    const from = start + plane * count;
    for (let i = 0; i < count; i += 1) mixed[i * size + plane] = bytes[from + i];
  }
  return new kind(mixed.buffer);
}

export async function readAbout() {
  return parsed(await inflated("about"));
}

function parsed(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes));
}

const maps = new Map();
const pictures = new Map();
const recordings = new Map();
let deliveries = 0;

/** Explanations that a server sent, each packed by itself, as those of one page. Earlier ones are forgotten. */
export async function readSent(packs) {
  const abouts = await Promise.all(packs.map(async (pack) => parsed(await inflate(pack.about))));
  deliveries += 1;
  for (const known of [sent, blocks, maps, pictures, recordings]) known.clear();
  const steps = abouts[0]?.steps ?? 1;
  abouts.forEach((about, i) => {
    const name = (block) => `${deliveries}-${i}-${block}`;
    for (const [id, content] of Object.entries(packs[i])) if (id !== "about") sent.set(name(id), content);
    for (const map of about.explanations.flatMap((one) => one.maps)) {
      map.block = name(map.block);
      map.span *= steps / about.steps; // the same weight in the steps of the first
      if (map.calculation?.block) map.calculation.block = name(map.calculation.block);
    }
    for (const { image, cells, recording } of about.explanations) {
      for (const one of [image, cells, recording]) if (one) one.block = name(one.block);
      if (recording?.sound) recording.sound = name(recording.sound);
    }
  });
  return { steps, explanations: abouts.flatMap((about) => about.explanations) };
}

/** The image, ready to be drawn; null where there is none, or none that this browser can read. */
export function loadPicture(explanation) {
  const { image } = explanation;
  if (!image) return Promise.resolve(null);
  if (!pictures.has(image.block)) pictures.set(image.block, readPicture(image));
  return pictures.get(image.block);
}

async function readPicture({ block, kind }) {
  const bytes = await inflated(block);
  blocks.delete(block);
  return createImageBitmap(new Blob([bytes], { type: kind })).catch(() => null);
}

/** The recording with its frames and its sound, as bytes. */
export function loadRecording({ recording }) {
  if (!recordings.has(recording.block)) recordings.set(recording.block, readRecording(recording));
  return recordings.get(recording.block);
}

async function readRecording(recording) {
  const wav = recording.sound === null ? null : await inflated(recording.sound);
  const values = await inflated(recording.block);
  blocks.delete(recording.block);
  blocks.delete(recording.sound);
  return { ...recording, values, wav };
}

/** The labels of the cells of an image, and how likely they were. */
export async function loadCells({ cells }) {
  const bytes = await inflated(cells.block);
  const count = cells.height * cells.width;
  const labels = fromPlanes(bytes, 0, count, Int32Array);
  return { labels, probabilities: fromPlanes(bytes, count * 4, count, Float32Array) };
}

/** The weights of one head: {rows, columns, largest, row(i)}. */
export function loadMap(explanation, place, steps) {
  const info = explanation.maps[place];
  if (!maps.has(info.block)) maps.set(info.block, readMap(explanation, info, steps));
  return maps.get(info.block);
}

async function readMap(explanation, info, steps) {
  const rows = explanation.axes[info.rows].size;
  const columns = explanation.axes[info.columns].size;
  const bytes = await inflated(info.block);
  blocks.delete(info.block);
  const width = info.top ?? columns;
  const codes = fromPlanes(bytes, 0, rows * width, Uint16Array);
  const places = info.top === null ? null : fromPlanes(bytes, rows * width * 2, rows * width, Int32Array);
  const step = info.span / steps;
  const row = (i) => {
    const found = new Float32Array(columns);
    for (let j = 0, at = i * width; j < width; j += 1, at += 1) {
      if (places === null) found[j] = info.low + codes[at] * step;
      else if (places[at] >= 0) found[places[at]] = info.low + codes[at] * step;
    }
    return found;
  };
  return { rows, columns, largest: info.largest, row };
}

export function meanOf(some) {
  const [{ rows, columns }] = some;
  const row = (i) => {
    const sum = new Float32Array(columns);
    for (const map of some) {
      const weights = map.row(i);
      for (let j = 0; j < columns; j += 1) sum[j] += weights[j];
    }
    return sum.map((value) => value / some.length);
  };
  return { rows, columns, largest: Math.max(...some.map((map) => map.largest)), row };
}

/** Pieces put together into words: what a word was given is the sum, what it gave is the mean. */
export function mergedMap(map, rowGroups, columnGroups) {
  const columns = columnGroups?.length ?? map.columns;
  const row = (i) => {
    const sum = new Float32Array(columns);
    const members = rowGroups ? rowGroups[i] : [i];
    for (const member of members) {
      const weights = map.row(member);
      for (let j = 0; j < columns; j += 1) {
        if (columnGroups) for (const k of columnGroups[j]) sum[j] += weights[k];
        else sum[j] += weights[j];
      }
    }
    return sum.map((value) => value / members.length);
  };
  return { rows: rowGroups?.length ?? map.rows, columns, largest: map.largest, row };
}

/** The map some rows further down. A row that nothing moved to is null: its weights are not known. */
export function movedMap(map, shift) {
  const row = (i) => (i - shift >= 0 && i - shift < map.rows ? map.row(i - shift) : null);
  return { ...map, row };
}

const MOST_COUNTED = 1 << 22;

/** A map that makes each row once, unless all of them together would be large. */
export function remembered(map) {
  if (map.rows * map.columns > MOST_COUNTED) return map;
  const rows = new Map();
  const row = (i) => {
    if (!rows.has(i)) rows.set(i, map.row(i));
    return rows.get(i);
  };
  return { ...map, row };
}

/** The largest weight that is shown: counted where that is quick, else as large as it can be. */
export function largestOf(map) {
  if (map.rows * map.columns > MOST_COUNTED) return map.largest;
  let largest = 0;
  for (let i = 0; i < map.rows; i += 1) for (const weight of map.row(i) ?? []) if (weight > largest) largest = weight;
  return largest;
}

/** The scores and vectors behind a map; what was not kept is null. */
export async function loadCalculation(explanation, place) {
  const info = explanation.maps[place].calculation;
  if (!info || info.left_out) return null;
  const rows = explanation.axes[explanation.maps[place].rows].size;
  const columns = explanation.axes[explanation.maps[place].columns].size;
  const bytes = await inflated(info.block);
  let start = 0;
  const matrix = (height, width) => {
    const numbers = fromPlanes(bytes, start, height * width, Float32Array);
    start += height * width * 4;
    return { width, row: (i) => numbers.subarray(i * width, (i + 1) * width) };
  };
  const found = { size: info.size, values: null, queries: null, contexts: null, scores: null };
  if (info.vectors) {
    const [kept, asked] = info.vectors;
    found.values = matrix(columns, kept);
    found.queries = matrix(rows, asked);
    found.contexts = matrix(rows, kept);
  }
  if (info.scores) found.scores = matrix(rows, columns);
  return found;
}
