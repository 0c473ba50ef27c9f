/** What runs from the first topology on: the language server, its client, the drawing and the tests. */

import {type ChildProcess, spawn} from "node:child_process";
import {existsSync} from "node:fs";
import * as vscode from "vscode";
import {CloseAction, ErrorAction, LanguageClient, type LanguageClientOptions} from "vscode-languageclient/node";
import {registerCommands, run, show} from "./commands";
import {Drawing} from "./drawing";
import {findExecutable} from "./executable";
import type {Printed, Server} from "./protocol";
import {requestStatus} from "./rates";
import {TestExplorer} from "./testExplorer";

const TOKEN = "streamkit.http.token";
const settings = () => vscode.workspace.getConfiguration("streamkit");

export class Session implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private readonly output = vscode.window.createOutputChannel("streamkit");
  private readonly log = vscode.window.createOutputChannel("streamkit language server", {log: true});
  private readonly drawing: Drawing;
  private readonly tests: TestExplorer;
  private readonly subscriptions: vscode.Disposable[];

  constructor(private readonly context: vscode.ExtensionContext) {
    const server: Server = {
      request: async (method, parameters, cancellation) => {
        if (!this.client) throw new Error("The language server does not run.");
        // An undefined token would be sent as a second parameter.
        return cancellation ? this.client.sendRequest(method, parameters, cancellation as vscode.CancellationToken) : this.client.sendRequest(method, parameters);
      },
    };
    this.drawing = new Drawing(server, vscode.Uri.joinPath(context.extensionUri, "dist"), () => this.status());
    this.tests = new TestExplorer(server);
    this.subscriptions = [
      this.output,
      this.log,
      this.drawing,
      this.tests,
      ...registerCommands(server, this.output),
      vscode.commands.registerCommand("streamkit.openDrawing", () => {
        const editor = vscode.window.activeTextEditor;
        return editor && this.drawing.open(editor);
      }),
      vscode.commands.registerCommand("streamkit.setToken", () => this.setToken()),
      vscode.commands.registerCommand("streamkit.restart", () => this.restart()),
      vscode.workspace.onDidOpenTextDocument(document => {
        if (document.languageId === "streamkit" && this.client) void this.tests.opened(document.uri);
      }),
      vscode.workspace.onDidChangeConfiguration(event => {
        if (["path", "lint", "envFile"].some(name => event.affectsConfiguration(`streamkit.${name}`))) void this.restart();
        if (event.affectsConfiguration("streamkit.http")) this.drawing.restartRates();
      }),
      vscode.workspace.onDidGrantWorkspaceTrust(() => this.restart()),
    ];
  }

  /** Start the language server; show one message if it can't start. */
  async start(): Promise<void> {
    const found = findExecutable({
      setting: settings().get("path", ""),
      folders: (vscode.workspace.workspaceFolders ?? []).map(each => each.uri.fsPath),
      trusted: vscode.workspace.isTrusted,
      path: process.env["PATH"] ?? "",
      windows: process.platform === "win32",
      exists: existsSync,
    });
    if ("message" in found) {
      complain(found.message);
      return;
    }
    let last = "";
    let ready = false;
    const launch = async (): Promise<ChildProcess> => {
      const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
      const child = spawn(found.command, ["lsp"], folder === undefined ? {} : {cwd: folder});
      child.stderr.on("data", (data: Buffer) => {
        last = data.toString().trim().split("\n").at(-1) || last;
      });
      return child;
    };
    const client = new LanguageClient("streamkit", "streamkit", launch, this.options(() => ready));
    try {
      await client.start();
    } catch (error) {
      complain(`${found.command} lsp does not start: ${last || (error instanceof Error ? error.message : String(error))}`);
      return;
    }
    ready = true;
    this.client = client;
    client.onNotification("streamkit/graphChanged", ({uri}: {uri: string}) => this.drawing.changed(uri));
    await Promise.all(vscode.workspace.textDocuments.filter(each => each.languageId === "streamkit").map(each => this.tests.opened(each.uri)));
    await this.tests.discover();
  }

  async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    await client?.dispose();
  }

  dispose(): void {
    for (const each of this.subscriptions) each.dispose();
  }

  private async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  private options(ready: () => boolean): LanguageClientOptions {
    return {
      documentSelector: ["file", "untitled"].map(scheme => ({scheme, language: "streamkit"})),
      initializationOptions: {lint: settings().get("lint"), envFile: settings().get("envFile")},
      outputChannel: this.log,
      middleware: {
        executeCommand: async (command, given, next) => {
          const printed = await run(command, given, async () => (await next(command, given)) as Printed);
          show(this.output, command, printed);
          return printed;
        },
      },
      // `start` shows why a server has not become ready.
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({action: ErrorAction.Continue, handled: true}),
        closed: () => ({action: ready() ? CloseAction.Restart : CloseAction.DoNotRestart, handled: true}),
      },
    };
  }

  private async status() {
    const address = settings().get("http", "");
    if (!address) return null;
    const token = (await this.context.secrets.get(TOKEN)) ?? process.env["STREAMKIT_HTTP_TOKEN"];
    return requestStatus(address, token, fetch);
  }

  private async setToken(): Promise<void> {
    const token = await vscode.window.showInputBox({password: true, prompt: "The token of the running application; empty for none"});
    if (token === undefined) return;
    if (token) await this.context.secrets.store(TOKEN, token);
    else await this.context.secrets.delete(TOKEN);
    this.drawing.restartRates();
  }
}

function complain(message: string): void {
  const open = "Open Settings";
  void vscode.window.showErrorMessage(message, open).then(chosen => {
    if (chosen === open) void vscode.commands.executeCommand("workbench.action.openSettings", "streamkit.path");
  });
}
