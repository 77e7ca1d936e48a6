/* Transcriptions: the text, what the model read, and where it looks when it writes each token. */

import { make } from "./elements.js";
import { pictureOf } from "./picture.js";

const CAPTION = "What the model reads. Choose a token: the lighter a place, the more the model attends to it " +
  "when it writes the token.";

const shown = (token) => token.replaceAll("▁", " ").trim() || "␣";

/* Tokens of which one is chosen, with the mouse or the arrow keys, and the picture that follows. */
function reading(picture) {
  const { tokens } = picture;
  const { element, show } = pictureOf(picture, tokens[0].attention, CAPTION);
  const buttons = tokens.map(({ text }, place) => {
    const button = make("button", { type: "button", dir: "auto" }, shown(text));
    button.addEventListener("pointerenter", () => choose(place));
    button.addEventListener("focus", () => choose(place));
    button.addEventListener("click", () => choose(place));
    return button;
  });
  const choose = (chosen) => {
    buttons.forEach((button, place) => {
      button.setAttribute("aria-pressed", String(place === chosen));
      button.setAttribute("tabindex", place === chosen ? "0" : "-1");
    });
    show(tokens[chosen].attention);
  };
  const row = make("div", { class: "written", role: "group", "aria-label": "Tokens of the text" }, ...buttons);
  row.addEventListener("keydown", (event) => {
    const now = buttons.indexOf(document.activeElement);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (now < 0 || !buttons[next]) return;
    event.preventDefault();
    buttons[next].focus();
  });
  choose(0);
  return [element, row];
}

function wordsOf(words) {
  const items = words.map(({ word, start, end }) => make("li", {},
    make("span", { dir: "auto" }, word), make("span", { class: "dim" }, `${start.toFixed(2)}–${end.toFixed(2)} s`)));
  return make("ol", { class: "words" }, ...items);
}

export function showTranscriptions(output, results) {
  output.replaceChildren(...results.map(({ text, words, parts, is_cut: isCut, picture }) => {
    const found = [make("p", { class: "transcript", dir: "auto" }, text || "(nothing)")];
    if (picture && picture.tokens.length) found.push(...reading(picture));
    if (words.length) found.push(wordsOf(words));
    if (parts > 1) found.push(make("p", { class: "dim" }, `It is long, and was read in ${parts} parts.`));
    if (isCut) found.push(make("p", { class: "dim" }, "It is wider than what the model reads: the rest was cut off."));
    return make("div", { class: "answer" }, ...found);
  }));
}
