/** The tests of topologies in the Test Explorer. */

import * as vscode from "vscode";
import {type Range, runTests, type Server, type TestResult, testsOf} from "./protocol";
import {isTestFile} from "./recognition";

const FILES = "**/*.test.{yaml,yml}";
const EXCLUDED = "**/{node_modules,.venv}/**";

export class TestExplorer implements vscode.Disposable {
  readonly controller = vscode.tests.createTestController("streamkit", "streamkit");
  private readonly subscriptions: vscode.Disposable[];

  constructor(private readonly server: Server) {
    const watcher = vscode.workspace.createFileSystemWatcher(FILES);
    this.controller.resolveHandler = item => (item ? this.refresh(item) : this.discover());
    this.controller.refreshHandler = () => this.discover();
    this.controller.createRunProfile("Run", vscode.TestRunProfileKind.Run, (request, token) => this.run(request, token), true);
    this.subscriptions = [
      this.controller,
      watcher,
      watcher.onDidCreate(uri => this.add(uri)),
      watcher.onDidChange(uri => this.add(uri)),
      watcher.onDidDelete(uri => this.controller.items.delete(uri.toString())),
    ];
  }

  /** Find the test files of the workspace, with their tests. */
  async discover(): Promise<void> {
    await Promise.all((await vscode.workspace.findFiles(FILES, EXCLUDED)).map(uri => this.add(uri)));
  }

  /** Show the tests of a document, if it has tests. */
  async opened(uri: vscode.Uri): Promise<void> {
    if (isTestFile(uri.path)) await this.add(uri);
  }

  dispose(): void {
    for (const each of this.subscriptions) each.dispose();
  }

  private async add(uri: vscode.Uri): Promise<void> {
    let item = this.controller.items.get(uri.toString());
    if (!item) {
      item = this.controller.createTestItem(uri.toString(), vscode.workspace.asRelativePath(uri), uri);
      this.controller.items.add(item);
    }
    await this.refresh(item);
    // Test files of other programs have the same ending.
    if (item.children.size === 0 && item.error === undefined) this.controller.items.delete(item.id);
  }

  private async refresh(file: vscode.TestItem): Promise<void> {
    if (!file.uri || file.parent) return;
    const found = await testsOf(this.server, file.uri.toString());
    file.error = found.message ?? undefined;
    file.children.replace(found.tests.map(each => {
      const item = this.controller.createTestItem(each.id, each.name, vscode.Uri.parse(each.uri));
      item.range = rangeOf(each.range);
      return item;
    }));
  }

  private async run(request: vscode.TestRunRequest, token: vscode.CancellationToken): Promise<void> {
    const run = this.controller.createTestRun(request);
    try {
      const files: vscode.TestItem[] = [];
      this.controller.items.forEach(each => files.push(each));
      for (const item of request.include ?? files) {
        if (token.isCancellationRequested) break;
        await this.runItem(run, item, request.exclude ?? [], token);
      }
    } finally {
      run.end();
    }
  }

  /** Run a test, or all tests of a file in one process. */
  private async runItem(run: vscode.TestRun, item: vscode.TestItem, excluded: readonly vscode.TestItem[], token: vscode.CancellationToken): Promise<void> {
    const file = item.parent ?? item;
    if (!file.uri) return;
    const children: vscode.TestItem[] = [];
    if (item.parent) children.push(item);
    else item.children.forEach(each => children.push(each));
    const wanted = children.filter(each => !excluded.includes(each) && !excluded.includes(file));
    for (const each of wanted) run.started(each);
    // The server runs what is on disk.
    await vscode.workspace.save(file.uri);
    const whole = !item.parent && wanted.length === children.length;
    for (const part of whole ? [wanted] : wanted.map(each => [each])) {
      const done = await this.results(file.uri, whole ? undefined : part[0]?.id, token);
      for (const each of part) report(run, each, done);
    }
  }

  private async results(uri: vscode.Uri, id: string | undefined, token: vscode.CancellationToken): Promise<Done> {
    try {
      const {results, message} = await runTests(this.server, uri.toString(), id, token);
      return {results: new Map(results.map(each => [each.id, each])), message: message ?? "the test did not run: save the file, and run it again"};
    } catch (error) {
      if (token.isCancellationRequested) return {results: new Map(), message: null};
      return {results: new Map(), message: error instanceof Error ? error.message : String(error)};
    }
  }
}

/** What a run gave; `message`: why a test has no result, null if the run was cancelled. */
interface Done {
  readonly results: ReadonlyMap<string, TestResult>;
  readonly message: string | null;
}

function report(run: vscode.TestRun, item: vscode.TestItem, done: Done): void {
  const result = done.results.get(item.id);
  if (!result) {
    if (done.message === null) run.skipped(item);
    else run.errored(item, new vscode.TestMessage(done.message));
  } else if (result.passed) {
    run.passed(item, result.seconds * 1000);
  } else {
    const messages = result.failures.map(each => {
      const message = new vscode.TestMessage(each.message);
      message.location = new vscode.Location(vscode.Uri.parse(each.uri), rangeOf(each.range));
      return message;
    });
    run.failed(item, messages, result.seconds * 1000);
  }
}

function rangeOf(range: Range): vscode.Range {
  return new vscode.Range(range.start.line, range.start.character, range.end.line, range.end.character);
}
