// Elements are made by name and given text; no markup is ever parsed.

/** An element. Attributes that are functions listen to events; null and false are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Text of unknown direction, kept apart from the text around it. */
export function isolated(text, attributes = {}) {
  return make("bdi", { dir: "auto", ...attributes }, text);
}

/** Set text only where it changes: a live region would read it twice. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A canvas of a size in CSS pixels, sharp on every screen. */
export function sizeCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Replace what is inside an element; the focus stays at the same place in it. */
export function refill(element, ...children) {
  const places = () => [...element.querySelectorAll("button, select, input, summary, [tabindex]")];
  const place = places().indexOf(document.activeElement);
  element.replaceChildren(...children);
  if (place >= 0) places()[place]?.focus({ preventScroll: true });
}

let identifiers = 0;

export function newId(prefix) {
  identifiers += 1;
  return `${prefix}-${identifiers}`;
}

/** A labelled select. Options are [value, text] pairs. */
export function choice(label, options, value, onchange) {
  const id = newId("choice");
  const select = make("select", { id, change: () => onchange(select.value) });
  for (const [key, text] of options) select.append(make("option", { value: key }, text));
  select.value = String(value);
  return make("div", { class: "field" }, make("label", { for: id }, label), select);
}

export function check(label, checked, onchange, title = null) {
  const box = make("input", { type: "checkbox", change: () => onchange(box.checked) });
  box.checked = checked;
  return make("label", { class: "check", title }, box, label);
}
