// Texts may be hostile: they are always set as text, never as markup, and invisible characters are made visible.

const LONGEST = 28;
const START = "·";
const HIDDEN = /[\u200b\u2060-\u2064\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/g;
const LONE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const NOTHING_SEEN = /^[\p{Cf}\p{Mn}\p{Me}\p{Z}]*$/u;
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** The text with signs in the place of control characters, marks that reorder other text, and outer spaces. */
export function visible(text) {
  if (text === "") return "⟨empty⟩";
  const plain = text
    .replace(LONE, "\ufffd")
    .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/\u007f/g, "␡")
    .replace(/[\u0080-\u009f\ufffe\uffff]/g, "\ufffd")
    .replace(HIDDEN, codePoint)
    .replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length))
    .replace(/^▁(?=[^▁])/, START) // the sign by which tokenisers write a space, as editors show one
    .replace(/▁/g, "␣");
  return NOTHING_SEEN.test(plain) ? [...plain].slice(0, 4).map(codePoint).join("") : plain;
}

function codePoint(character) {
  return `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** At most so many characters as a reader counts them, with an ellipsis where some were left out. */
export function short(text, most = LONGEST) {
  if (text.length <= most) return text;
  // Marks can be piled on one character without end, so code units are limited too.
  const start = [...graphemes.segment(text.slice(0, most * 12))].map((part) => part.segment);
  const kept = start.slice(0, most - 1).join("").slice(0, most * 6).replace(LONE, "");
  return start.length <= most && text.length <= most * 12 ? text : `${kept}…`;
}

/** A word without the sign of the space before it. */
export function bareWord(text) {
  return text.length > 1 && text.startsWith(START) ? text.slice(1) : text;
}

/** A quoted word, cut off from the direction of the text around it. */
export function quoted(text, most = LONGEST) {
  return `\u2068‘${short(bareWord(text), most)}’\u2069`;
}

export function decimals(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const text = value.toFixed(digits);
  if (!text.startsWith("-")) return text;
  return Number(text) === 0 ? text.slice(1) : `−${text.slice(1)}`; // nothing is less than 0 by nothing
}

/** A number of unknown size with about three significant digits. */
export function significant(value) {
  if (value === null || !Number.isFinite(value)) return decimals(value, 2);
  const size = Math.abs(value);
  const digits = [[100, 0], [10, 1], [0.1, 2], [0.01, 3], [0.001, 4], [0, 6]].find(([least]) => size >= least)[1];
  return decimals(value, size === 0 ? 2 : digits);
}

/** Whether most letters that have a direction are written from right to left. */
export function rightToLeft(texts) {
  const sample = texts.join(" ").slice(0, 4000);
  const right = sample.match(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/g)?.length ?? 0;
  const letters = sample.match(/\p{L}/gu)?.length ?? 0;
  return right * 2 > letters;
}

/** Pieces of a word as one: without the signs by which tokenisers say where words begin or go on. */
export function mergedText(pieces) {
  const bare = pieces.map((piece, i) => (i > 0 ? piece.replace(/^##(?=.)/, "") : piece).replace(/@@$/, ""));
  return bare.join("").replace(/^[▁Ġ]+(?=.)/, "");
}

export function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}

/** With a capital letter, as a label begins. */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
