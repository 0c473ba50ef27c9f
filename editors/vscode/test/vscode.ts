/** The few parts of the module `vscode` that the extension calls, without an editor. */

export class Position {
  constructor(readonly line: number, readonly character: number) {}
}

export class Range {
  readonly start: Position;
  readonly end: Position;

  constructor(...given: [Position, Position] | [number, number, number, number]) {
    if (given.length === 2) [this.start, this.end] = given;
    else [this.start, this.end] = [new Position(given[0], given[1]), new Position(given[2], given[3])];
  }
}

export class Uri {
  private constructor(readonly text: string) {}
  static parse(text: string): Uri { return new Uri(text); }
  static joinPath(base: Uri, ...parts: string[]): Uri { return new Uri([base.text, ...parts].join("/")); }
  get path(): string { return new URL(this.text).pathname; }
  toString(): string { return this.text; }
}

export class Location {
  constructor(readonly uri: Uri, readonly range: Range) {}
}

export class TestMessage {
  location: Location | undefined;
  constructor(readonly message: string) {}
}

export class Event<T> {
  private readonly listeners: ((event: T) => unknown)[] = [];
  readonly on = (listener: (event: T) => unknown) => {
    this.listeners.push(listener);
    return {dispose: () => undefined};
  };
  async fire(event: T): Promise<void> { for (const each of this.listeners) await each(event); }
}

class Items {
  private readonly byId = new Map<string, TestItem>();
  constructor(private readonly parent?: TestItem) {}
  get size(): number { return this.byId.size; }
  get(id: string): TestItem | undefined { return this.byId.get(id); }
  add(item: TestItem): void { item.parent = this.parent; this.byId.set(item.id, item); }
  delete(id: string): void { this.byId.delete(id); }
  replace(items: TestItem[]): void { this.byId.clear(); items.forEach(each => this.add(each)); }
  forEach(act: (item: TestItem) => void): void { this.byId.forEach(act); }
}

export class TestItem {
  readonly children = new Items(this);
  parent: TestItem | undefined;
  range: Range | undefined;
  error: string | undefined;
  constructor(readonly id: string, readonly label: string, readonly uri: Uri) {}
}

type Run = (request: {include?: TestItem[]; exclude?: TestItem[]}, token: {isCancellationRequested: boolean}) => Promise<void>;

/** What tests look at: each call that an editor would show. */
export const seen = {results: [] as [string, string, unknown][], posted: [] as Record<string, unknown>[], shown: [] as [string, Range][], saved: [] as string[]};
export const fired = {editor: new Event<unknown>(), selection: new Event<unknown>(), message: new Event<unknown>(), disposed: new Event<void>(), view: new Event<void>()};
export const state = {files: [] as Uri[], run: undefined as Run | undefined, items: new Items(), html: ""};

export const TestRunProfileKind = {Run: 1};
export const ViewColumn = {Beside: -2, One: 1};

export const tests = {
  createTestController: () => ({
    items: state.items,
    createTestItem: (id: string, label: string, uri: Uri) => new TestItem(id, label, uri),
    createRunProfile: (_name: string, _kind: number, run: Run) => { state.run = run; },
    createTestRun: () => ({
      started: () => undefined,
      passed: (item: TestItem, ms: number) => seen.results.push([item.label, "passed", ms]),
      failed: (item: TestItem, messages: TestMessage[]) => seen.results.push([item.label, "failed", messages]),
      errored: (item: TestItem, message: TestMessage) => seen.results.push([item.label, "errored", message.message]),
      skipped: (item: TestItem) => seen.results.push([item.label, "skipped", null]),
      end: () => undefined,
    }),
    dispose: () => undefined,
  }),
};

const unheard = () => ({dispose: () => undefined});

export const workspace = {
  createFileSystemWatcher: () => ({onDidCreate: unheard, onDidChange: unheard, onDidDelete: unheard, dispose: () => undefined}),
  findFiles: async () => state.files,
  asRelativePath: (uri: Uri) => uri.path.split("/").at(-1),
  save: async (uri: Uri) => { seen.saved.push(uri.toString()); },
};

export const window = {
  activeTextEditor: undefined as unknown,
  visibleTextEditors: [] as unknown[],
  onDidChangeActiveTextEditor: fired.editor.on,
  onDidChangeTextEditorSelection: fired.selection.on,
  showTextDocument: async (uri: Uri, options: {selection: Range}) => { seen.shown.push([uri.toString(), options.selection]); },
  createWebviewPanel: () => ({
    visible: true,
    title: "",
    reveal: () => undefined,
    dispose: () => undefined,
    onDidChangeViewState: fired.view.on,
    onDidDispose: fired.disposed.on,
    webview: {
      cspSource: "https://files.test",
      asWebviewUri: (uri: Uri) => uri,
      onDidReceiveMessage: fired.message.on,
      postMessage: async (message: Record<string, unknown>) => { seen.posted.push(message); return true; },
      set html(text: string) { state.html = text; },
    },
  }),
};
