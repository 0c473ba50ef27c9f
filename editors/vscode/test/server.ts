/** The real language server, `streamkit lsp`, over its standard streams. */

import {type ChildProcess, spawn} from "node:child_process";
import {pathToFileURL} from "node:url";
import {createMessageConnection, type MessageConnection} from "vscode-jsonrpc/node";
import type {Server} from "../src/protocol";

export interface Running extends Server {
  /** Open the first file, and wait until the server has read it. */
  open(file: string, text: string): Promise<void>;
  stop(): Promise<void>;
}

/** Start the server in a folder, by the command that STREAMKIT names. */
export async function start(folder: string): Promise<Running> {
  const child: ChildProcess = spawn(process.env["STREAMKIT"] ?? "streamkit", ["lsp"], {cwd: folder, stdio: ["pipe", "pipe", "inherit"]});
  if (!child.stdin || !child.stdout) throw new Error("the server has no streams");
  const connection: MessageConnection = createMessageConnection(child.stdout, child.stdin);
  connection.onUnhandledNotification(() => undefined);
  const analysed = new Promise<void>(resolve => connection.onNotification("streamkit/graphChanged", () => resolve()));
  connection.listen();
  const ended = new Promise<void>(resolve => child.once("exit", () => resolve()));
  await connection.sendRequest("initialize", {processId: process.pid, rootUri: pathToFileURL(folder).toString(), capabilities: {}});
  await connection.sendNotification("initialized", {});
  return {
    request: (method, parameters) => connection.sendRequest(method, parameters),
    open: async (file, text) => {
      await connection.sendNotification("textDocument/didOpen", {textDocument: {uri: pathToFileURL(file).toString(), languageId: "streamkit", version: 1, text}});
      await analysed;
    },
    stop: async () => {
      await connection.sendRequest("shutdown");
      await connection.sendNotification("exit");
      await ended;
      connection.dispose();
    },
  };
}
