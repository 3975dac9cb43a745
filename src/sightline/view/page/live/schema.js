// Reading a JSON schema: its parts by reference, what a field may be in a few words, and an example of it.

export function resolved(schema, all) {
  if (!schema?.$ref) return schema ?? {};
  return schema.$ref.replace("#/", "").split("/").reduce((found, part) => found[part], all);
}

/** The allowed values, in a few words. */
export function kindOf(schema, all) {
  const one = resolved(schema, all);
  if (one.anyOf) return one.anyOf.map((part) => kindOf(part, all)).join(" or ");
  if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (one.const !== undefined) return JSON.stringify(one.const);
  if (one.type === "array") return `list${limitsOf(one)}, of ${kindOf(one.items, all)}`;
  return `${one.type ?? "anything"}${limitsOf(one)}`;
}

const LIMITS = {
  minimum: "at least", exclusiveMinimum: "more than", maximum: "at most", exclusiveMaximum: "less than",
  minLength: "at least", maxLength: "at most", minItems: "at least", maxItems: "at most",
};
const UNITS = { minLength: " characters", maxLength: " characters", minItems: " long", maxItems: " long" };

function limitsOf(schema) {
  const found = Object.entries(LIMITS)
    .filter(([name]) => schema[name] !== undefined)
    .map(([name, words]) => `${words} ${schema[name].toLocaleString("en")}${UNITS[name] ?? ""}`);
  return found.length ? `, ${found.join(", ")}` : "";
}

/** A body that the address takes: what must be there, and the run. */
export function exampleOf(schema, all) {
  const one = resolved(schema, all);
  if (one.example) return one.example;
  const example = {};
  for (const [name, field] of Object.entries(one.properties ?? {})) {
    const required = (one.required ?? []).includes(name);
    if (!required && name !== "run") continue;
    const { type } = resolved(field, all);
    example[name] = field.default ?? (type === "array" ? ["hello"] : type === "string" ? "hello" : null);
  }
  return example;
}
