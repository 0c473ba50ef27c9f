/** What the language server offers beyond the standard protocol. */

export interface Position {
  readonly line: number;
  readonly character: number;
}

export interface Range {
  readonly start: Position;
  readonly end: Position;
}

/** A node of the drawing, with the lines of its step. */
export interface GraphNode {
  readonly id: string;
  readonly name: string;
  readonly step: string;
  readonly pipeline: string;
  readonly range: Range;
  readonly uri: string;
}

export interface Graph {
  readonly svg: string | null;
  readonly nodes: readonly GraphNode[];
  /** Why there is no drawing, or that it is an old one. */
  readonly message: string | null;
}

export interface TestCase {
  readonly id: string;
  readonly name: string;
  readonly uri: string;
  readonly range: Range;
}

export interface TestList {
  readonly tests: readonly TestCase[];
  readonly message: string | null;
}

export interface TestFailure {
  readonly message: string;
  readonly uri: string;
  readonly range: Range;
}

export interface TestResult {
  readonly id: string;
  readonly name: string;
  readonly passed: boolean;
  readonly seconds: number;
  readonly failures: readonly TestFailure[];
}

export interface TestRun {
  readonly results: readonly TestResult[];
  readonly message: string | null;
}

/** What a command of the server prints. */
export interface Printed {
  readonly text: string;
  readonly ok: boolean;
}

/** A request that can be cancelled, as `vscode.CancellationToken` is. */
export interface Cancellation {
  readonly isCancellationRequested: boolean;
  onCancellationRequested(listener: () => void): {dispose(): void};
}

/** The running server; the language client in VS Code, a plain connection in tests. */
export interface Server {
  request<Answer>(method: string, parameters: object, cancellation?: Cancellation): Promise<Answer>;
}

const document = (uri: string) => ({textDocument: {uri}});

export const graphOf = (server: Server, uri: string): Promise<Graph> => server.request("streamkit/graph", document(uri));

export const testsOf = (server: Server, uri: string): Promise<TestList> => server.request("streamkit/tests", document(uri));

/** Run one test of a file, or all of them. */
export function runTests(server: Server, uri: string, id: string | undefined, cancellation?: Cancellation): Promise<TestRun> {
  return server.request("streamkit/runTest", id === undefined ? document(uri) : {...document(uri), id}, cancellation);
}

export function execute(server: Server, command: string, argument: object): Promise<Printed> {
  return server.request("workspace/executeCommand", {command, arguments: [argument]});
}

/** Return the nodes of the innermost step at a line, by their ids. */
export function nodesAt(nodes: readonly GraphNode[], uri: string, line: number): string[] {
  const around = nodes.filter(each => each.uri === uri && each.range.start.line <= line && line <= lastLine(each.range));
  const size = (each: GraphNode) => lastLine(each.range) - each.range.start.line;
  const least = Math.min(...around.map(size));
  return around.filter(each => size(each) === least).map(each => each.id);
}

/** A range that ends at the start of a line does not contain this line. */
function lastLine(range: Range): number {
  return range.end.character === 0 && range.end.line > range.start.line ? range.end.line - 1 : range.end.line;
}
