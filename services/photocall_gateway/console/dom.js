// Elements made of data. Text is only ever set as text: nothing that a model, a file or a server says becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `props`: `class`, `on` (listeners by event), `data` (data-*), `style` (custom properties and others, set one
 * by one, which the page's policy allows), and attributes; `true` sets an empty one, `null` and `false` none.
 * Children that are no nodes become text; `null` and `false` are left out.
 */
export function el(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for a drawing. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "style") for (const [rule, text] of Object.entries(value)) node.style.setProperty(rule, text);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Everything in a node replaced. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

let made = 0;

/** An id that no other element has. */
export function fresh(prefix) {
  made += 1;
  return `${prefix}-${made}`;
}

/** A control with its label, tied together. `hint` is read out with it. */
export function labelled(text, control, { hint = "", hidden = false } = {}) {
  control.id ||= fresh("field");
  const label = el("label", { for: control.id, class: hidden ? "hidden" : null }, text);
  if (!hint) return el("div", { class: "field" }, label, control);
  const note = el("small", { id: fresh("hint"), class: "hint" }, hint);
  control.setAttribute("aria-describedby", note.id);
  return el("div", { class: "field" }, label, control, note);
}

/** Says something to those who do not see it; the last one counts. */
export function say(text) {
  document.getElementById("said").textContent = text;
}
