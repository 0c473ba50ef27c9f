/** The drawing beside the text: it follows the cursor, and the text follows a click on a node. */

import {randomBytes} from "node:crypto";
import * as vscode from "vscode";
import {pageOf} from "./page";
import {type Graph, graphOf, nodesAt, type Server} from "./protocol";
import {type Answer, Poll} from "./rates";

/** What the page sends. */
type Message = {readonly type: "ready"} | {readonly type: "chosen"; readonly id: string};

export class Drawing implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  /** The file whose drawing is shown. */
  private uri: vscode.Uri | undefined;
  private graph: Graph | undefined;
  /** The number of the last request: an answer to an earlier one is of no use. */
  private last = 0;
  private readonly poll: Poll;
  private readonly subscriptions: vscode.Disposable[];

  /** `ask`: requests the state of the running application; null without an address. */
  constructor(private readonly server: Server, private readonly media: vscode.Uri, private readonly ask: () => Promise<Answer | null>) {
    this.poll = new Poll(async () => (await this.ask()) ?? {problem: ""}, answer => this.send({type: "rates", answer: "problem" in answer && !answer.problem ? null : answer}));
    this.subscriptions = [
      vscode.window.onDidChangeActiveTextEditor(editor => editor && this.follow(editor)),
      vscode.window.onDidChangeTextEditorSelection(({textEditor}) => this.mark(textEditor)),
    ];
  }

  /** Open the drawing to the side of an editor, or show it again. */
  async open(editor: vscode.TextEditor): Promise<void> {
    if (!this.panel) {
      const column = {viewColumn: vscode.ViewColumn.Beside, preserveFocus: true};
      this.panel = vscode.window.createWebviewPanel("streamkit.drawing", "Topology", column, {enableScripts: true, localResourceRoots: [this.media]});
      const {webview} = this.panel;
      webview.onDidReceiveMessage((message: Message) => this.receive(message));
      this.panel.onDidChangeViewState(() => this.visible());
      this.panel.onDidDispose(() => {
        this.panel = undefined;
        this.poll.stop();
      });
      webview.html = pageOf({
        script: webview.asWebviewUri(vscode.Uri.joinPath(this.media, "drawing.js")).toString(),
        style: webview.asWebviewUri(vscode.Uri.joinPath(this.media, "drawing.css")).toString(),
        source: webview.cspSource,
        nonce: randomBytes(16).toString("hex"),
      });
    } else {
      this.panel.reveal(undefined, true);
    }
    this.uri = editor.document.uri;
    await this.update();
  }

  /** Draw a file again, after the server has read a new version of it. */
  async changed(uri: string): Promise<void> {
    if (this.uri?.toString() === uri) await this.update();
  }

  /** The address of the running application has changed. */
  restartRates(): void {
    if (this.panel?.visible) this.poll.start();
  }

  dispose(): void {
    this.poll.stop();
    this.panel?.dispose();
    for (const each of this.subscriptions) each.dispose();
  }

  private visible(): void {
    if (this.panel?.visible) this.poll.start();
    else this.poll.stop();
  }

  private follow(editor: vscode.TextEditor): void {
    if (!this.panel || editor.document.languageId !== "streamkit") return;
    this.uri = editor.document.uri;
    void this.update();
  }

  private async update(): Promise<void> {
    if (!this.panel || !this.uri) return;
    const request = ++this.last;
    const uri = this.uri.toString();
    const graph = await graphOf(this.server, uri);
    if (request !== this.last || !this.panel) return;
    this.graph = graph;
    this.panel.title = `Topology ${vscode.workspace.asRelativePath(this.uri, false)}`;
    this.show();
  }

  private show(): void {
    if (!this.graph) return;
    this.send({type: "drawing", svg: this.graph.svg, message: this.graph.message});
    const editor = vscode.window.activeTextEditor;
    if (editor) this.mark(editor);
  }

  private mark(editor: vscode.TextEditor): void {
    if (!this.panel || !this.graph) return;
    const uri = editor.document.uri.toString();
    if (uri !== this.uri?.toString() && !this.graph.nodes.some(each => each.uri === uri)) return;
    this.send({type: "current", ids: nodesAt(this.graph.nodes, uri, editor.selection.active.line)});
  }

  private async receive(message: Message): Promise<void> {
    if (message.type === "ready") {
      // A page that was hidden begins again.
      this.show();
      this.poll.start();
      return;
    }
    const node = this.graph?.nodes.find(each => each.id === message.id);
    if (!node) return;
    const start = new vscode.Position(node.range.start.line, node.range.start.character);
    const shown = vscode.window.visibleTextEditors.find(each => each.document.uri.toString() === node.uri);
    const options: vscode.TextDocumentShowOptions = {selection: new vscode.Range(start, start), viewColumn: shown?.viewColumn ?? vscode.ViewColumn.One};
    await vscode.window.showTextDocument(vscode.Uri.parse(node.uri), options);
  }

  private send(message: object): void {
    void this.panel?.webview.postMessage(message);
  }
}
