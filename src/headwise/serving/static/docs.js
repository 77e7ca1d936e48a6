/* The API's description as a page of its own: nothing is fetched from anywhere else. */

import { Problem, ask } from "./api.js";
import { byId, make } from "./elements.js";

const REF = "#/components/schemas/";

function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return schema.$ref.replace(REF, "");
  if (schema.anyOf) return schema.anyOf.map(typeOf).filter((type) => type !== "null").join(" or ");
  if (schema.type === "array") {
    return schema.prefixItems ? `[${schema.prefixItems.map(typeOf).join(", ")}]` : `list of ${typeOf(schema.items)}`;
  }
  return schema.type || "anything";
}

/* A body to begin with: the fields that must be there, with languages that are served. */
function exampleOf(schema, languages) {
  const [source] = languages;
  const known = { q: "A man rides a bike.", source: source?.code, target: source?.targets[0] };
  const example = {};
  for (const name of schema.required || []) example[name] = known[name] ?? "";
  return JSON.stringify(example, null, 2);
}

function schemaTable(schema) {
  const required = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => make("tr", {},
    make("th", { scope: "row" }, make("code", {}, name)),
    make("td", {}, typeOf(field) + (required.has(name) ? "" : ", optional")),
    make("td", {}, field.description || "")));
  return make("table", {}, make("tbody", {}, ...rows));
}

function tryIt(path, method, body, { schemas, languages }) {
  const box = make("div", { class: "try" });
  const id = `body-${method}-${path.replaceAll("/", "-")}`;
  let input = null;
  if (body) {
    const schema = schemas[body.$ref.replace(REF, "")];
    input = make("textarea", { id, spellcheck: "false" });
    input.value = exampleOf(schema, languages);
    box.append(make("label", { for: id }, `Body: ${typeOf(body)}`), input);
  }
  const result = make("pre", { role: "status", tabindex: "0" });
  result.hidden = true;
  const button = make("button", { type: "button" }, "Try it");
  button.addEventListener("click", async () => {
    result.hidden = false;
    result.textContent = "…";
    try {
      const answer = await fetch(path, {
        method: method.toUpperCase(),
        headers: input ? { "Content-Type": "application/json" } : {},
        body: input ? input.value : undefined,
      });
      const text = await answer.text();
      let shown = text;
      try {
        shown = JSON.stringify(JSON.parse(text), null, 2);
      } catch { /* Not JSON: shown as it is. */ }
      result.textContent = `${answer.status}\n${shown.slice(0, 20000)}`;
    } catch (error) {
      result.textContent = `The server cannot be reached: ${error.message}`;
    }
  });
  box.append(button, result);
  return box;
}

function operationOf(path, method, operation, known) {
  const body = operation.requestBody?.content["application/json"]?.schema;
  const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
  return make("section", { class: "card operation" },
    make("h3", {}, make("code", { class: "method" }, method.toUpperCase()), make("code", {}, path)),
    make("p", {}, `${operation.summary}.`, answer ? ` Answers ${typeOf(answer)}.` : ""),
    tryIt(path, method, body, known));
}

async function begin() {
  let description, languages;
  try {
    [description, languages] = await Promise.all([ask("/openapi.json"), ask("/languages")]);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    byId("problem-text").textContent = error.message;
    byId("problem").hidden = false;
    return;
  }
  const schemas = description.components.schemas;
  const groups = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const group = operation.tags[0];
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(operationOf(path, method, operation, { schemas, languages }));
    }
  }
  for (const [name, operations] of groups) byId("operations").append(make("h2", {}, name), ...operations);
  for (const [name, schema] of Object.entries(schemas)) {
    byId("schemas").append(make("h3", { class: "schema", id: `schema-${name}` }, name),
      make("p", { class: "dim" }, schema.description || ""), schemaTable(schema));
  }
  byId("schemas-box").hidden = false;
}

begin();
