// One hue from the paper to the ink, even in lightness: the same order in grey and for every kind of colour vision.
// Orange, which no kind of colour vision takes for blue, marks what is chosen.

const LIGHT = {
  ramp: [[246, 248, 251], [190, 212, 236], [92, 146, 202], [28, 86, 156], [8, 36, 84]],
  paper: "#ffffff", ink: "#191d26", soft: "#5a6272", line: "#dfe3ea", mark: "#c2410c",
  below: [194, 65, 12], middle: [246, 248, 251], above: [28, 86, 156],
};
const DARK = {
  ramp: [[26, 31, 41], [32, 60, 98], [50, 108, 168], [116, 176, 232], [224, 240, 255]],
  paper: "#12151c", ink: "#e9ecf2", soft: "#9aa4b5", line: "#2b3140", mark: "#ff9d5c",
  below: [255, 157, 92], middle: [26, 31, 41], above: [116, 176, 232],
};
const LEVELS = 256;

for (const theme of [LIGHT, DARK]) {
  theme.shades = Array.from({ length: LEVELS }, (_, i) => blend(theme.ramp, i / (LEVELS - 1)));
  theme.css = theme.shades.map((rgb) => `rgb(${rgb.join(",")})`);
}

function blend(stops, t) {
  const place = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  return stops[i].map((from, c) => Math.round(from + (stops[i + 1][c] - from) * (place - i)));
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function theme() {
  return isDark() ? DARK : LIGHT;
}

/** Which of the shades a weight gets, when ``top`` gets the last one. */
export function level(weight, top, faint) {
  const share = top > 0 ? Math.min(Math.max(weight / top, 0), 1) : 0;
  return Math.round((faint ? Math.sqrt(share) : share) * (LEVELS - 1));
}

/** Black or white, whichever is read better on a colour. */
export function inkOn([red, green, blue]) {
  const linear = [red, green, blue].map((c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) ? "#000000" : "#ffffff";
}

/** Numbers of both signs: orange below zero, blue above. */
export function signed(value, largest) {
  const { below, middle, above } = theme();
  const share = largest > 0 ? value / largest : 0;
  return `rgb(${blend([middle, share < 0 ? below : above], Math.abs(share)).join(",")})`;
}
