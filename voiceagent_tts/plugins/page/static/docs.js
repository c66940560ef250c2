// Shows the server's OpenAPI document: each operation, its fields, and a command that calls it.

import { ensureKey } from "./key-dialog.js";
import { getJson, storedKey } from "./server.js";

const $ = (id) => document.getElementById(id);

function make(tag, text = "", className = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className });
}

// Shows what stands between backquotes as code.
function prose(tag, text, className = "") {
  const element = make(tag, "", className);
  text.split("`").forEach((part, i) => element.append(i % 2 ? make("code", part) : part));
  return element;
}

// Follows `$ref` to the schema that it names.
function resolve(schema, api) {
  if (!schema?.$ref) return schema ?? {};
  return resolve(schema.$ref.split("/").slice(1).reduce((node, key) => node[key], api), api);
}

function typeOf(schema, api) {
  const type = resolve(schema, api);
  const choices = type.anyOf ?? type.oneOf;
  if (choices) return choices.map((each) => typeOf(each, api)).filter((each) => each !== "null").join(" or ");
  if (type.enum) return type.enum.map((value) => JSON.stringify(value)).join(", ");
  if (type.const !== undefined) return JSON.stringify(type.const);
  if (type.type === "array") return `list of ${typeOf(type.items, api)}`;
  if (type.format === "binary") return "file";
  const { minimum, maximum, maxLength } = type;
  if (minimum !== undefined && maximum !== undefined) return `${type.type}, ${minimum} to ${maximum}`;
  if (maxLength !== undefined) return `${type.type}, at most ${maxLength} characters`;
  return type.type ?? "any";
}

function rowOf(name, schema, isRequired, api) {
  const row = make("tr");
  const cell = (...content) => {
    const element = make("td");
    element.append(...content);
    row.append(element);
  };
  cell(make("code", name));
  cell(typeOf(schema, api));
  const hasDefault = schema.default !== undefined && schema.default !== null;
  cell(isRequired ? "required" : hasDefault ? `default ${JSON.stringify(schema.default)}` : "optional");
  cell(prose("span", schema.description ?? ""));
  return row;
}

function tableOf(title, rows) {
  if (rows.length === 0) return [];
  const table = make("table");
  const head = make("tr");
  head.append(...["Field", "Type", "", ""].map((text) => make("th", text)));
  table.append(head, ...rows);
  return [make("h3", title), table];
}

function bodyOf(operation, api) {
  const [[type, { schema }] = [null, {}]] = Object.entries(operation.requestBody?.content ?? {});
  const { properties = {}, required = [] } = resolve(schema, api);
  return { type, properties, required };
}

function exampleOf(method, path, body) {
  const lines = [`curl ${location.origin}${path}`];
  if (method !== "get") lines[0] = `curl -X ${method.toUpperCase()} ${location.origin}${path}`;
  if (storedKey() !== null) lines.push(`-H "Authorization: Bearer $KEY"`);
  if (body.type === "application/json") {
    const fields = Object.fromEntries(body.required.map((name) => [name, "Hello there."]));
    lines.push(`-H "Content-Type: application/json"`, `-d '${JSON.stringify(fields)}'`, "-o answer");
  } else if (body.type) {
    for (const name of body.required) {
      const isFile = body.properties[name]?.format === "binary";
      lines.push(`-F ${name}=${isFile ? "@file" : "VALUE"}`);
    }
  }
  return lines.join(" \\\n  ");
}

function operationOf(path, method, operation, api) {
  const element = make("details");
  const summary = make("summary");
  const [short, ...rest] = (operation.description ?? operation.summary).split("\n\n");
  summary.append(make("span", method.toUpperCase(), "method"), make("code", path), prose("span", short, "short"));
  const body = bodyOf(operation, api);
  const parameters = (operation.parameters ?? []).map((each) =>
    rowOf(each.name, { ...each.schema, description: each.description }, each.required, api),
  );
  const fields = Object.entries(body.properties).map(([name, schema]) =>
    rowOf(name, schema, body.required.includes(name), api),
  );
  const content = make("div");
  content.append(
    ...rest.map((text) => prose("p", text)),
    ...tableOf("Parameters", parameters),
    ...tableOf(`Body (${body.type})`, fields),
    make("h3", "Example"),
    make("pre", exampleOf(method, path, body)),
  );
  element.append(summary, content);
  return element;
}

try {
  await ensureKey();
  const api = await getJson("/openapi.json");
  $("server").textContent = `${api.info.title} ${api.info.version}`;
  $("description").append(prose("span", api.info.description));
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      $("operations").append(operationOf(path, method, operation, api));
    }
  }
} catch (error) {
  $("alert").hidden = false;
  $("alert").textContent = error.message;
}
