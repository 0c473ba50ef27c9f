/** The commands of the palette and of the lenses: what they print is shown in an output channel. */

import * as vscode from "vscode";
import {execute, type Printed, type Server} from "./protocol";

/** By the command of the palette: that of the server. */
const OF_FILES = {
  "streamkit.tryFile": "streamkit.try",
  "streamkit.testFile": "streamkit.test",
  "streamkit.describeFile": "streamkit.describe",
} as const;

/** Register the commands for the file in the editor. */
export function registerCommands(server: Server, output: vscode.OutputChannel): vscode.Disposable[] {
  return Object.entries(OF_FILES).map(([own, command]) =>
    vscode.commands.registerCommand(own, async () => {
      const editor = vscode.window.activeTextEditor;
      if (editor?.document.languageId !== "streamkit") {
        void vscode.window.showWarningMessage("Open a topology first.");
        return;
      }
      const uri = editor.document.uri.toString();
      show(output, command, await run(command, [{uri}], () => execute(server, command, {uri})));
    }),
  );
}

/** Run a command of the server, which reads what is on disk. */
export async function run(command: string, given: readonly unknown[], next: () => Promise<Printed>): Promise<Printed> {
  const argument = given[0];
  if (command !== "streamkit.describe" && typeof argument === "object" && argument !== null && "uri" in argument) {
    await saveAll(String(argument.uri));
  }
  return next();
}

/** Show what a command has printed. */
export function show(output: vscode.OutputChannel, command: string, printed: Printed): void {
  output.clear();
  output.appendLine(`${command.replace("streamkit.", "streamkit ")}${printed.ok ? "" : " (failed)"}`);
  output.appendLine(printed.text);
  output.show(true);
}

/** Save a file, and the open topologies and tests in its folder, which the command reads too. */
async function saveAll(uri: string): Promise<void> {
  const folder = uri.slice(0, uri.lastIndexOf("/") + 1);
  const open = vscode.workspace.textDocuments.filter(each => each.isDirty && !each.isUntitled && each.languageId === "streamkit");
  for (const each of open) if (each.uri.toString().startsWith(folder)) await each.save();
}
