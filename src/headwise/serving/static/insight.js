/* What is known of a translation beside its text: how sure each token is, and what else was found. */

import { byId, make, percent } from "./elements.js";

const LEVELS = [0.4, 0.7, 0.9];
const SPACE = "▁";

/* The sentences of a translation, each with candidates and probabilities of its own. */
export function sentencesOf(translation) {
  const parts = translation.parts.length ? translation.parts : [translation];
  return parts.filter((part) => part.candidates.length);
}

export function showTokens(sentences) {
  const box = byId("tokens");
  const tokens = [];
  box.replaceChildren(...sentences.map((sentence) => {
    const line = make("span", { class: "sentence", role: "presentation", dir: "auto" });
    sentence.candidates[0].tokens.forEach((token, place) => {
      const probability = Math.exp(sentence.token_log_probs[place]);
      const text = spelled(token).trim();
      const level = LEVELS.filter((least) => probability >= least).length;
      const element = make("span", { class: `token sure-${level}`, role: "option", tabindex: "-1",
        "aria-selected": "false", "aria-label": `${text || "space"}, ${percent(probability)}` }, text || "␣");
      tokens.push({ element, text, probability });
      line.append(token.startsWith(SPACE) ? " " : "", element);
    });
    return line;
  }));
  follow(box, tokens);
  byId("token-says").textContent = summary(tokens);
}

/* Let one token be chosen: with the mouse, or with the arrow keys from the only one in tab order. */
function follow(box, tokens) {
  const says = byId("token-says");
  const choose = (number, focus) => {
    tokens.forEach(({ element }, other) => {
      element.setAttribute("aria-selected", String(other === number));
      element.tabIndex = other === number ? 0 : -1;
    });
    const { element, text, probability } = tokens[number];
    says.textContent = `“${text || "space"}”: ${percent(probability)}`;
    if (focus) element.focus();
  };
  if (tokens.length) tokens[0].element.tabIndex = 0;
  tokens.forEach(({ element }, number) => {
    element.addEventListener("pointerenter", () => choose(number, false));
    element.addEventListener("focus", () => choose(number, false));
  });
  box.onkeydown = (event) => {
    const now = tokens.findIndex(({ element }) => element === document.activeElement);
    const next = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1,
      Home: 0, End: tokens.length - 1 }[event.key];
    if (now < 0 || next === undefined || !tokens[next]) return;
    event.preventDefault();
    choose(next, true);
  };
  box.onpointerleave = () => {
    if (!box.contains(document.activeElement)) says.textContent = summary(tokens);
  };
}

function summary(tokens) {
  const least = tokens.filter(({ probability, text }) => probability < LEVELS[1] && text)
    .sort((a, b) => a.probability - b.probability).slice(0, 3);
  if (!tokens.length) return "";
  if (!least.length) return "It was sure of every token.";
  return `Least sure of ${least.map(({ text, probability }) => `“${text}” (${percent(probability)})`).join(", ")}.`;
}

/* A token as people read it: a byte as its character or, if it is part of one, as its number. */
export function spelled(token) {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
  if (!byte) return token.replaceAll(SPACE, " ");
  const code = parseInt(byte[1], 16);
  return code > 0x20 && code < 0x7f ? String.fromCharCode(code) : `‹${byte[1]}›`;
}

export function showAlternatives(sentences) {
  byId("alternatives").replaceChildren(...sentences.flatMap((sentence) => {
    const list = make("ol", { class: "found" }, ...sentence.candidates.map((candidate, place) =>
      make("li", {},
        make("span", { class: place ? "text" : "text best", dir: "auto" }, candidate.text || "(nothing)"),
        make("span", { class: "share" }, percent(Math.exp(candidate.log_prob))))));
    if (sentences.length === 1) return [list];
    return [make("p", { class: "of", dir: "auto" }, sentence.source.trim()), list];
  }));
}
