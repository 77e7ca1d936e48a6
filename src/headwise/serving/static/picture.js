/* What a model read as a picture, under parts that are the darker the less it attends to them. */

import { make } from "./elements.js";

const READ_AS = {
  image: "The image as the model reads it",
  sound: "The sound as the model reads it: time from left to right, high tones above",
};

/* Its `show` lays other weights over it. */
export function pictureOf({ kind, png, rows, columns }, attention, caption) {
  const image = make("img", { src: png, alt: READ_AS[kind] });
  const parts = make("div", { class: "parts", "aria-hidden": "true" });
  parts.style.setProperty("--columns", columns);
  parts.style.setProperty("--rows", rows);
  parts.append(...attention.map(() => make("i")));
  const show = (weights) => {
    const most = Math.max(...weights);
    weights.forEach((weight, place) => {
      parts.children[place].style.setProperty("--veil", most > 0 ? 0.65 * (1 - weight / most) : 0);
    });
  };
  show(attention);
  const element = make("figure", { class: `read ${kind}` },
    make("div", { class: "picture" }, image, parts), make("figcaption", { class: "dim" }, caption));
  return { element, show };
}
