/** Recognizes topologies among YAML files; the rest of the extension is loaded for the first one. */

import * as vscode from "vscode";
import {isStreamkit} from "./recognition";
import type {Session} from "./session";

let session: Session | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const look = (document: vscode.TextDocument) => {
    void recognize(document);
    if (document.languageId === "streamkit") void begin(context);
  };
  context.subscriptions.push(
    vscode.workspace.onDidOpenTextDocument(look),
    vscode.workspace.onDidChangeTextDocument(({document}) => look(document)),
  );
  vscode.workspace.textDocuments.forEach(look);
}

export async function deactivate(): Promise<void> {
  await session?.stop();
}

/** Give a YAML file of streamkit the language of the extension. */
async function recognize(document: vscode.TextDocument): Promise<void> {
  if (document.languageId !== "yaml" || !vscode.workspace.getConfiguration("streamkit").get("detect", true)) return;
  if (isStreamkit(document.uri.path, document.getText())) await vscode.languages.setTextDocumentLanguage(document, "streamkit");
}

async function begin(context: vscode.ExtensionContext): Promise<void> {
  if (session) return;
  const loaded: typeof import("./session") = require("./session.js");
  session = new loaded.Session(context);
  context.subscriptions.push(session);
  void vscode.commands.executeCommand("setContext", "streamkit.active", true);
  await session.start();
}
