// Calls functions of generated modules through a caller that records; prints the calls as JSON.
// usage: node play.mjs <folder of compiled modules>

import path from "node:path";

const folder = process.argv[2];
const load = (name) => import(path.join(folder, name));
const { configure } = await load("seam.js");
const files = await load("filesystem.js");
const odd = await load("odd.js");

const calls = [];
let refused;
try {
  await files.list_directory("/srv");
} catch (error) {
  refused = error.message;
}
configure({
  async call(server, tool, values) {
    calls.push({ server, tool, values: Object.entries(values) });
    return { content: [], is_error: false };
  },
});
await files.search_files("/srv", "*.ts");
await files.search_files("/srv", "*.ts", { exclude_patterns_787d0020: ["node_modules"] });
await odd.whole({ anything: 1, nothing: undefined, empty: null });
await odd.proto("own");
await odd.proto("own", {});
console.log(JSON.stringify({ refused, calls }));
