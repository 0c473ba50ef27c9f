/** The page of the drawing: it runs one script, loads one style, and can reach nothing else. */

import topology from "../../../streamkit/plan/describe/drawing/topology.html";

export interface Places {
  readonly script: string;
  readonly style: string;
  /** Where VS Code serves files of the extension. */
  readonly source: string;
  readonly nonce: string;
}

export function pageOf(places: Places): string {
  const policy = `default-src 'none'; script-src 'nonce-${places.nonce}'; style-src ${places.source}; base-uri 'none'; form-action 'none'`;
  const body = topology.replace("$summary", '<span id="state" role="status"></span>').replace("$svg", "");
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<link rel="stylesheet" href="${places.style}"><title>Topology</title></head>
<body><p id="note" role="status" hidden></p>
${body}<script nonce="${places.nonce}" src="${places.script}"></script></body></html>`;
}
