/* ---- elements and texts ---- */
const byId = id => document.getElementById(id);
function make(tag, options, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options || {})) {
    if (name === "class") element.className = value;
    else if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}
function rows(table, list) { byId(table).tBodies[0].replaceChildren(...list); }
function row(...cells) {
  return make("tr", {}, ...cells.map(cell => {
    // {n: …} is a number, {w: …} a word that is not to be broken.
    const kind = typeof cell === "object" && cell !== null && !(cell instanceof Node) ? Object.keys(cell)[0] : "";
    return make("td", {class: kind}, kind ? cell[kind] : cell);
  }));
}
function pairs(list) {
  return make("dl", {}, ...list.filter(pair => pair[1] !== null && pair[1] !== undefined)
    .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}
function showStores(holders) {
  byId("no-stores").hidden = TOPOLOGY.stores.length > 0;
  byId("stores").hidden = TOPOLOGY.stores.length === 0;
  rows("stores", TOPOLOGY.stores.map(each => row(each.name, each.type.replaceAll("_", " "),
    each.global ? "every instance" : holders ? (holders.get(each.name) || []).sort().join(" ") : "sub-topology " + each.sub)));
}
