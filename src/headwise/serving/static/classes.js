/* Classes with their probabilities as bars; and what the model read, with its attention over it. */

import { make, percent } from "./elements.js";
import { pictureOf } from "./picture.js";

function bar({ label, probability }, isFound) {
  const full = make("span", { class: "full" });
  full.style.setProperty("--share", probability);
  return make("li", isFound ? { class: "best" } : {},
    make("span", { class: "label", dir: "auto" }, label),
    make("span", { class: "bar", "aria-hidden": "true" }, full),
    make("span", { class: "share" }, percent(probability)));
}

function captionOf({ kind }) {
  return kind === "image" ?
    "What the model reads. The lighter a patch, the more the last layer attends to it." :
    "What the model reads: time from left to right. The lighter, the more the last layer attends to it.";
}

export function showClasses(output, results) {
  output.replaceChildren(...results.map(({ labels, classes, is_cut: isCut, picture }) => {
    const list = make("ol", { class: "bars" },
      ...classes.map((each) => bar(each, labels.includes(each.label))));
    const parts = picture ? [pictureOf(picture, picture.attention, captionOf(picture)).element, list] : [list];
    if (isCut) parts.push(make("p", { class: "dim" }, "It is longer than what the model reads: the rest was cut off."));
    return make("div", { class: "answer" }, ...parts);
  }));
}
