import assert from "node:assert/strict";
import {cpSync, mkdtempSync, readFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {after, before, beforeEach, test} from "node:test";
import {pathToFileURL} from "node:url";
import type * as vscode from "vscode";
import {Drawing} from "../src/drawing";
import {findExecutable, type Surroundings} from "../src/executable";
import {execute, graphOf, nodesAt} from "../src/protocol";
import {baseOf, Poll, requestStatus} from "../src/rates";
import {isStreamkit} from "../src/recognition";
import {TestExplorer} from "../src/testExplorer";
import {start, type Running} from "./server";
import {fired, Position, seen, state, TestMessage, Uri, window} from "./vscode";

const EXAMPLE = join("..", "..", "topologies", "fraud-detection");
const folder = mkdtempSync(join(tmpdir(), "streamkit-vscode-"));
const topology = join(folder, "topology.yaml");
const tests = join(folder, "topology.test.yaml");
const uri = pathToFileURL(topology).toString();
let server: Running;

before(async () => {
  cpSync(EXAMPLE, folder, {recursive: true});
  server = await start(folder);
  await server.open(topology, readFileSync(topology, "utf8"));
});
after(() => server.stop());
beforeEach(() => Object.assign(seen, {results: [], posted: [], shown: [], saved: []}));

test("topologies and their tests are recognized among YAML files", () => {
  for (const text of ["streamkit: 1\n", "# a comment\n\nstreamkit: 1", "{streamkit: 1}", "# yaml-language-server: $schema=../topology.schema.json\n"]) {
    assert.ok(isStreamkit("/a/b.yaml", text), text);
  }
  assert.ok(isStreamkit("/a/b.test.yaml", "tests:\n  a: {}\n"));
  assert.ok(isStreamkit("/a/b.test.yml", ""));
  for (const text of ["", "services: {}\n", "image: streamkit:1\n", "# streamkit: 1\n"]) assert.ok(!isStreamkit("/a/b.yaml", text), text);
  assert.ok(!isStreamkit("/a/b.test.yaml", "suite: chart\n"));
});

test("the command is that of the setting, of the workspace, or of the path", () => {
  const around: Surroundings = {setting: "", folders: ["/w"], trusted: true, path: "/bin:.::/usr/bin", windows: false, exists: () => true};
  const only = (file: string) => ({...around, exists: (each: string) => each === file});
  assert.deepEqual(findExecutable({...around, setting: "/x/streamkit"}), {command: "/x/streamkit"});
  assert.deepEqual(findExecutable({...around, setting: "tools/streamkit"}), {command: "/w/tools/streamkit"});
  assert.deepEqual(findExecutable(around), {command: "/w/.venv/bin/streamkit"});
  assert.deepEqual(findExecutable({...around, trusted: false}), {command: "/bin/streamkit"});
  assert.deepEqual(findExecutable(only("/usr/bin/streamkit")), {command: "/usr/bin/streamkit"});
  // A part of the path that is no full name would be the workspace itself.
  assert.match(message(findExecutable(only("streamkit"))), /pip install 'streamkit-kafka\[lsp\]'/);
  assert.match(message(findExecutable({...around, setting: "/x", exists: () => false})), /streamkit\.path names \/x/);
});

function message(found: ReturnType<typeof findExecutable>): string {
  assert.ok("message" in found);
  return found.message;
}

test("the state of an application is requested with the token, and problems become one line", async () => {
  assert.deepEqual(["8080", "a:1", "https://a/"].map(baseOf), ["http://127.0.0.1:8080", "http://a:1", "https://a"]);
  const asked: unknown[] = [];
  const answering = (status: number) => async (url: string, {headers, redirect}: RequestInit) => {
    asked.push([url, headers, redirect]);
    return new Response('{"application": "a"}', {status});
  };
  assert.deepEqual(await requestStatus("a:1", "secret", answering(200)), {status: {application: "a"}});
  assert.deepEqual(asked, [["http://a:1/status", {Authorization: "Bearer secret"}, "error"]]);
  assert.match(JSON.stringify(await requestStatus("a:1", undefined, answering(401))), /needs a token/);
  assert.match(JSON.stringify(await requestStatus("a:1", undefined, answering(503))), /status 503/);
  assert.match(JSON.stringify(await requestStatus("127.0.0.1:1", undefined, fetch)), /127\.0\.0\.1:1 does not answer: /);
});

test("a poll that was stopped takes no answer", async () => {
  const taken: unknown[] = [];
  let answer: (value: {problem: string}) => void = () => undefined;
  const poll = new Poll(() => new Promise(resolve => { answer = resolve; }), each => taken.push(each), 0);
  poll.start();
  poll.stop();
  answer({problem: "late"});
  await new Promise(setImmediate);
  assert.deepEqual(taken, []);
});

test("the nodes at a line are those of the innermost step", async () => {
  const at = (id: string, first: number, last: number, character = 5) => ({id, name: id, step: "s", pipeline: "p", uri, range: {start: {line: first, character: 0}, end: {line: last, character}}});
  const nodes = [at("branch", 3, 9), at("filter", 5, 6), at("sink", 5, 6), at("other", 7, 8, 0)];
  assert.deepEqual(nodesAt(nodes, uri, 5), ["filter", "sink"]);
  assert.deepEqual(nodesAt(nodes, uri, 8), ["branch"]);
  assert.deepEqual(nodesAt(nodes, uri, 1), []);
  assert.deepEqual(nodesAt(nodes, "file:///other", 5), []);
});

test("the drawing follows the cursor, and the text follows a node", async () => {
  const drawing = new Drawing(server, Uri.parse("file:///media") as unknown as vscode.Uri, async () => null);
  const line = readFileSync(topology, "utf8").split("\n").findIndex(each => each.includes("name: charges"));
  const editor = {document: {uri: Uri.parse(uri), languageId: "streamkit"}, selection: {active: new Position(line, 8)}, viewColumn: 1};
  Object.assign(window, {activeTextEditor: editor, visibleTextEditors: [editor]});
  await drawing.open(editor as unknown as vscode.TextEditor);
  assert.match(state.html, /default-src 'none'; script-src 'nonce-[0-9a-f]{32}'; style-src https:\/\/files\.test;/);
  assert.doesNotMatch(state.html, /unsafe|\son\w+=|style="/);
  const drawn = seen.posted.find(each => each["type"] === "drawing");
  assert.equal(drawn?.["message"], null);
  assert.match(String(drawn["svg"]), /data-id="0 charges"/);
  assert.deepEqual(seen.posted.at(-1), {type: "current", ids: ["0 charges"]});

  await fired.selection.fire({textEditor: {...editor, selection: {active: new Position(0, 0)}}});
  assert.deepEqual(seen.posted.at(-1), {type: "current", ids: []});

  await fired.message.fire({type: "chosen", id: "0 charges"});
  assert.deepEqual(seen.shown.map(([file, range]) => [file, range.start.line]), [[uri, line]]);
  await fired.message.fire({type: "chosen", id: "topic payments"});
  assert.equal(seen.shown.length, 1);
  drawing.dispose();
});

test("the tests of a file are found and run, together and one at a time", async () => {
  state.files = [Uri.parse(pathToFileURL(tests).toString())];
  const explorer = new TestExplorer(server);
  await explorer.discover();
  const file = state.items.get(String(state.files[0]));
  assert.equal(file?.children.size, 5);
  await state.run?.({}, {isCancellationRequested: false});
  assert.deepEqual(seen.results.map(each => each[1]), Array(5).fill("passed"));
  assert.deepEqual(seen.saved, [String(state.files[0])]);

  seen.results = [];
  const [first] = await new Promise<string[]>(resolve => {
    const names: string[] = [];
    file?.children.forEach(each => names.push(each.id));
    resolve(names);
  });
  const item = file?.children.get(first ?? "");
  await state.run?.({include: item ? [item] : []}, {isCancellationRequested: false});
  assert.deepEqual(seen.results.map(each => each.slice(0, 2)), [["four payments within a minute are too fast", "passed"]]);
  explorer.dispose();
});

test("a failed test has its message at its line, a test without a result the reason", async () => {
  const answers = new Map<string, object>([
    ["streamkit/tests", {tests: ["a", "b"].map(name => ({id: name, name, uri, range: {start: {line: 2, character: 0}, end: {line: 2, character: 3}}})), message: null}],
    ["streamkit/runTest", {results: [{id: "a", name: "a", passed: false, seconds: 1, failures: [{message: "differs", uri, range: {start: {line: 4, character: 2}, end: {line: 4, character: 9}}}]}], message: "topology.yaml:3:1: a mistake"}],
  ]);
  const explorer = new TestExplorer({request: async method => answers.get(method) as never});
  await explorer.discover();
  await state.run?.({}, {isCancellationRequested: false});
  const [failed, errored] = seen.results;
  const [failure] = failed?.[2] as TestMessage[];
  assert.deepEqual([failed?.slice(0, 2), failure?.message, failure?.location?.range.start.line], [["a", "failed"], "differs", 4]);
  assert.deepEqual(errored, ["b", "errored", "topology.yaml:3:1: a mistake"]);
  explorer.dispose();
});

test("the server's commands print what an output channel shows", async () => {
  const described = await execute(server, "streamkit.describe", {uri});
  assert.ok(described.ok);
  assert.match(described.text, /^Topologies:/);
  assert.equal((await graphOf(server, uri)).message, null);
});
