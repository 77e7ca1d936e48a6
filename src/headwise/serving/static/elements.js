/* Elements with text; never markup. */

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function percent(probability) {
  const value = 100 * probability;
  if (value > 99.5 && value < 100) return "over 99 %";
  return value < 1 ? "under 1 %" : `${Math.round(value)} %`;
}

/* The name of a language, or its code where the browser knows none. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}
