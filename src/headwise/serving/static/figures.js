/* Drawings that the server sends as SVG, and what their labels attend to. */

import { make, percent } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set(["svg", "g", "path", "line", "rect", "circle", "text", "tspan", "title"]);
const ATTRIBUTES = new Set(["viewBox", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "r", "cx", "cy", "d",
  "fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "font-family", "font-size", "font-weight",
  "text-anchor", "role", "aria-label", "data-query", "data-key"]);
const NAMED = 3;

/* A figure with its text; `attention[q][k]` is the weight of key k for query q. */
function figureOf({ svg, text, attention }) {
  const figure = make("figure", { class: "figure" });
  if (svg) {
    const drawing = drawingOf(svg);
    const says = make("figcaption", { class: "says" });
    figure.append(make("div", { class: "drawing" }, drawing), says);
    if (attention && attention.length) {
      // The boxes of the words can only be measured in the page.
      figure.addEventListener("connected", () => follow(drawing, attention, says), { once: true });
    }
  }
  if (text) {
    figure.append(make("details", {}, make("summary", {}, "As text"), make("code", { dir: "auto" }, text)));
  }
  return figure;
}

export function showFigures(output, figures) {
  const made = figures.map((figure) => figureOf(figure));
  output.replaceChildren(...made);
  for (const figure of made) figure.dispatchEvent(new Event("connected"));
}

/* Copy what is known to be harmless: a server may be one that somebody else runs. */
function drawingOf(source) {
  const { documentElement: root } = new DOMParser().parseFromString(source, "image/svg+xml");
  return root.localName === "svg" ? copyOf(root) : document.createElementNS(SVG, "svg");
}

function copyOf(element) {
  const copy = document.createElementNS(SVG, element.localName);
  for (const { name, value } of element.attributes) {
    if (ATTRIBUTES.has(name) && !value.includes("url(")) copy.setAttribute(name, value);
  }
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (child.nodeType === Node.ELEMENT_NODE && ELEMENTS.has(child.localName)) copy.append(copyOf(child));
  }
  return copy;
}

/* Let one label be chosen, with the mouse or the arrow keys, and mark the words by its weights. */
function follow(drawing, attention, says) {
  const keys = numbered(drawing, "key");
  const queries = numbered(drawing, "query").slice(0, attention.length);
  const boxes = keys.map((key) => boxBehind(drawing, key));
  const hint = "Point at a label, or use the arrow keys, to see which words the model attends to when it writes it.";
  const sentences = queries.map((query, number) => sentenceOf(query, attention[number], keys));
  drawing.setAttribute("role", "listbox");
  const choose = (number) => {
    queries.forEach((query, other) => {
      query.setAttribute("aria-selected", String(other === number));
      query.setAttribute("tabindex", other === Math.max(number, 0) ? "0" : "-1");
    });
    boxes.forEach((box, key) => box.setAttribute("fill-opacity", number < 0 ? 0 : strength(attention[number][key])));
    says.textContent = number < 0 ? hint : sentences[number];
  };
  queries.forEach((query, number) => {
    query.setAttribute("role", "option");
    query.setAttribute("aria-label", sentences[number]);
    query.addEventListener("pointerenter", () => choose(number));
    query.addEventListener("focus", () => choose(number));
  });
  drawing.addEventListener("keydown", (event) => {
    const now = queries.indexOf(document.activeElement);
    const next = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1,
      Home: 0, End: queries.length - 1 }[event.key];
    if (now < 0 || next === undefined || !queries[next]) return;
    event.preventDefault();
    queries[next].focus();
  });
  drawing.addEventListener("pointerleave", () => choose(queries.indexOf(document.activeElement)));
  choose(-1);
}

/* The elements with data-query or data-key, by their numbers. */
function numbered(drawing, name) {
  return [...drawing.querySelectorAll(`[data-${name}]`)].sort((a, b) => a.dataset[name] - b.dataset[name]);
}

function boxBehind(drawing, element) {
  const { x, y, width, height } = element.getBBox();
  const box = document.createElementNS(SVG, "rect");
  const place = { class: "weight", x: x - 4, y: y - 2, width: width + 8, height: height + 4, rx: 4, "fill-opacity": 0 };
  for (const [name, value] of Object.entries(place)) box.setAttribute(name, value);
  drawing.prepend(box);
  return box;
}

/* Small weights would hardly be seen. */
function strength(weight) {
  return Math.sqrt(Math.max(0, Math.min(1, weight || 0))).toFixed(3);
}

function textOf(element) {
  const title = element.querySelector("title");
  return title ? title.textContent : element.textContent;
}

function sentenceOf(query, weights, keys) {
  const strongest = keys.map((key, number) => ({ text: textOf(key), weight: weights[number] || 0 }))
    .sort((a, b) => b.weight - a.weight).slice(0, NAMED);
  return `${textOf(query)} attends to ${strongest.map(({ text, weight }) => `“${text}” (${percent(weight).replaceAll(" ", "\u00a0")})`).join(", ")}`;
}
