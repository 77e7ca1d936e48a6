/* Classes with their probabilities as bars; and what the model read, with its attention over it. */

import { make, percent } from "./elements.js";

function bar({ label, probability }, isFound) {
  const full = make("span", { class: "full" });
  full.style.setProperty("--share", probability);
  return make("li", isFound ? { class: "best" } : {},
    make("span", { class: "label", dir: "auto" }, label),
    make("span", { class: "bar", "aria-hidden": "true" }, full),
    make("span", { class: "share" }, percent(probability)));
}

/* Fields over a picture, the darker the less the model attends to them. */
function pictureOf({ kind, png, rows, columns, attention }) {
  const image = make("img", { src: png, alt: kind === "image" ? "The image as the model reads it" :
    "The sound as the model reads it: time from left to right, high tones above" });
  const fields = make("div", { class: "fields", "aria-hidden": "true" });
  fields.style.setProperty("--columns", columns);
  fields.style.setProperty("--rows", rows);
  const most = Math.max(...attention);
  for (const weight of attention) {
    const field = make("i");
    field.style.setProperty("--veil", most > 0 ? 0.65 * (1 - weight / most) : 0);
    fields.append(field);
  }
  const caption = kind === "image" ?
    "What the model reads. The lighter a field, the more the last layer attends to it." :
    "What the model reads: time from left to right. The lighter, the more the last layer attends to it.";
  return make("figure", { class: `read ${kind}` },
    make("div", { class: "picture" }, image, fields), make("figcaption", { class: "dim" }, caption));
}

export function showClasses(output, results) {
  output.replaceChildren(...results.map(({ labels, classes, is_cut: isCut, picture }) => {
    const list = make("ol", { class: "bars" },
      ...classes.map((each) => bar(each, labels.includes(each.label))));
    const parts = picture ? [pictureOf(picture), list] : [list];
    if (isCut) parts.push(make("p", { class: "dim" }, "It is longer than what the model reads: the rest was cut off."));
    return make("div", { class: "answer" }, ...parts);
  }));
}
