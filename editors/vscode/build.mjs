// Writes dist/: `node build.mjs`; or build/, with the tests: `node build.mjs test`.
import {build} from "esbuild";
import {mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from "node:fs";

const ROOT = "../..";
const DRAWING = `${ROOT}/streamkit/plan/describe/drawing`;
const read = name => readFileSync(name, "utf8");
const shared = {bundle: true, platform: "node", target: "node20", format: "cjs", loader: {".html": "text"}, logLevel: "warning"};

if (process.argv[2] === "test") {
  rmSync("build", {recursive: true, force: true});
  const entryPoints = readdirSync("test").filter(name => name.endsWith(".test.ts")).map(name => `test/${name}`);
  await build({...shared, entryPoints, outdir: "build", alias: {vscode: "./test/vscode.ts"}, sourcemap: "inline"});
} else {
  rmSync("dist", {recursive: true, force: true});
  // Two files: the first one is loaded for each YAML file, the second one, with the client, for the first topology.
  await build({...shared, entryPoints: ["src/extension.ts", "src/session.ts"], outdir: "dist", external: ["vscode", "./session.js"], minify: true});
  mkdirSync("dist", {recursive: true});
  // The page of a running application has the same drawing, from the same files.
  const scripts = [`${DRAWING}/common.js`, `${DRAWING}/graph.js`, `${ROOT}/streamkit/http/page/rates.js`, "media/beside.js"];
  writeFileSync("dist/drawing.js", `"use strict";\nconst TOPOLOGY = {};\n${scripts.map(read).join("")}`);
  // VS Code names the theme by a class; the system's own colours may be others.
  const dark = ".vscode-dark,.vscode-high-contrast:not(.vscode-high-contrast-light){";
  const picture = read(`${DRAWING}/picture.css`).replace("@media (prefers-color-scheme:dark){", dark);
  writeFileSync("dist/drawing.css", read(`${DRAWING}/page.css`) + picture + read("media/beside.css"));
  writeFileSync("dist/topology.schema.json", read(`${ROOT}/schemas/topology.schema.json`));
}
