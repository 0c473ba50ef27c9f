/* ---- the drawing beside the text: messages from and to the editor ---- */
const editor = acquireVsCodeApi();
const problems = {graph: "", rates: ""};
let application = "";

function note(of, text) {
  problems[of] = text || "";
  byId("note").textContent = Object.values(problems).filter(each => each).join(" · ");
  byId("note").hidden = byId("note").textContent === "";
}
/* The style of the page takes the place of the picture's own, which its policy does not allow. */
function pictureOf(svg) {
  const found = new DOMParser().parseFromString(svg.replace(/<style>[^<]*<\/style>/, ""), "image/svg+xml").documentElement;
  for (const each of found.querySelectorAll("style,script,foreignObject")) each.remove();
  return found.localName === "svg" ? document.importNode(found, true) : null;
}
function clearRates() {
  byId("state").textContent = "";
  showEdges([]);
}
const take = {
  drawing({svg, message}) {
    note("graph", message);
    const picture = svg ? pictureOf(svg) : null;
    byId("graph").classList.toggle("old", picture !== null && Boolean(message));
    document.querySelector(".topology").hidden = picture === null;
    if (!picture) { byId("graph").replaceChildren(); return; }
    application = picture.querySelector("title").textContent;
    byId("graph").replaceChildren(picture);
    graph.load();
  },
  current({ids}) {
    for (const node of document.querySelectorAll("#graph .node")) node.classList.toggle("current", ids.includes(node.dataset.id));
    const first = document.querySelector("#graph .node.current");
    if (first) graph.reveal(first);
  },
  rates({answer}) {
    const other = answer && answer.status && answer.status.application !== application ? answer.status.application : "";
    note("rates", !answer ? "" : other ? "the running application is " + other + ", not " + application : answer.problem);
    if (!answer || other || answer.problem) { clearRates(); return; }
    byId("state").textContent = answer.status.condition;
    showEdges(activeTasks(answer.status.instances));
  },
};
window.addEventListener("message", event => { if (Object.hasOwn(take, event.data.type)) take[event.data.type](event.data); });
graph.chosen = node => editor.postMessage({type: "chosen", id: node.dataset.id});
editor.postMessage({type: "ready"});
