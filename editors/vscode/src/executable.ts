/** Where the command `streamkit` is. */

import {delimiter, isAbsolute, join} from "node:path";

export interface Surroundings {
  /** The setting `streamkit.path`; empty if there is none. */
  readonly setting: string;
  /** The folders of the workspace. */
  readonly folders: readonly string[];
  /** Whether programs of the workspace may be started. */
  readonly trusted: boolean;
  /** The environment variable PATH. */
  readonly path: string;
  readonly windows: boolean;
  readonly exists: (file: string) => boolean;
}

/** The command, or the message that says why there is none. */
export type Executable = {readonly command: string} | {readonly message: string};

/** Find the command by the setting, in the workspace's .venv, and on the path. */
export function findExecutable(around: Surroundings): Executable {
  const name = around.windows ? "streamkit.exe" : "streamkit";
  if (around.setting) {
    const candidates = isAbsolute(around.setting) ? [around.setting] : around.folders.map(each => join(each, around.setting));
    const found = candidates.find(around.exists);
    return found ? {command: found} : {message: `streamkit.path names ${around.setting}, which does not exist.`};
  }
  const own = around.trusted ? around.folders.map(each => join(each, ".venv", around.windows ? "Scripts" : "bin", name)) : [];
  // An empty part of PATH is the current folder, which may be that of a stranger.
  const onPath = around.path.split(delimiter).filter(isAbsolute).map(each => join(each, name));
  const found = [...own, ...onPath].find(around.exists);
  if (found) return {command: found};
  const places = around.trusted ? "in .venv of the workspace, and not on the PATH" : "on the PATH (the workspace is not trusted, so its .venv is not used)";
  return {message: `The command streamkit is not ${places}. Install it with pip install 'streamkit-kafka[lsp]', or set streamkit.path.`};
}
