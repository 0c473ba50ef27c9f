/* ---- queries ---- */
const FIELDS = {get: ["key", "as_of"], range: ["from", "to"], prefix: ["prefix"], all: [], windows: ["key", "from", "to"],
  sessions: ["key", "from", "to"], versions: ["key", "from", "to"]};
const NAMES = {as_of: "as of (ms)", from: "from", to: "to"};
let after = null;
function fields() {
  const kind = byId("kind").value;
  const store = TOPOLOGY.stores.find(each => each.name === byId("store").value);
  const names = FIELDS[kind].filter(name => name !== "as_of" || store.type === "versioned");
  const timed = ["windows", "sessions", "versions"].includes(kind);
  byId("fields").replaceChildren(...names.map(name => make("label", {class: names.length === 1 ? "wide" : ""},
    (NAMES[name] || name) + (timed && name !== "key" ? " (ms)" : ""), make("input", {name, id: "q-" + name, autocomplete: "off"}))));
}
function kinds() {
  const store = TOPOLOGY.stores.find(each => each.name === byId("store").value);
  if (!store) return;
  follow(false);
  byId("follow").hidden = !store.changelog;
  byId("kind").replaceChildren(...store.queries.map(kind => make("option", {}, kind)));
  fields();
}
function rowTable(list, head) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...head.map(name => make("th", {class: name === "partition" ? "n" : ""}, name)))),
    make("tbody", {}, ...list));
}
const storeRow = each => row(keyText(each.key), text(each.value), {n: each.partition});
async function query() {
  follow(false);
  const parameters = new URLSearchParams();
  for (const input of byId("fields").querySelectorAll("input")) if (input.value !== "") parameters.set(input.name, input.value);
  if (byId("stale").checked) parameters.set("stale", "true");
  const kind = byId("kind").value;
  if (kind !== "get") { parameters.set("limit", "25"); if (after) parameters.set("after", after); }
  const answer = byId("answer");
  byId("more").hidden = true;
  try {
    const page = await ask("stores/" + encodeURIComponent(byId("store").value) + "/" + kind + "?" + parameters);
    const list = kind === "get" ? [page] : page.rows;
    after = page.next || null;
    byId("more").hidden = !after;
    answer.replaceChildren(list.length ? rowTable(list.map(storeRow), ["key", "value", "partition"]) : make("p", {class: "hint"}, "No rows."));
  } catch (error) {
    answer.replaceChildren(make("p", {class: "problem"}, error.message));
  }
}
let stopFollow = null;
function follow(on) {
  if (stopFollow) stopFollow();
  stopFollow = null;
  byId("follow").setAttribute("aria-pressed", on);
  byId("follow-note").textContent = "";
  if (!on) return;
  const key = byId("q-key") && byId("q-key").value, table = rowTable([], ["key", "value", "partition"]);
  const note = message => { byId("follow-note").textContent = message; };
  byId("more").hidden = true;
  byId("answer").replaceChildren(table);
  note("waiting for changes" + (key ? " of " + key : ""));
  let changes = 0, skipped = 0;
  stopFollow = listen("stores/" + encodeURIComponent(byId("store").value) + "/changes?" + new URLSearchParams(key ? {key} : {}), (name, data) => {
    if (name === "problem") { note(data.error); return; }
    if (name === "skipped") skipped += data.offsets;
    if (name === "change") { changes += 1; table.tBodies[0].prepend(data.value === null ? row(keyText(data.key), "deleted", {n: data.partition}) : storeRow(data)); }
    while (table.tBodies[0].rows.length > LIVE_ROWS) table.tBodies[0].lastChild.remove();
    note(counted(changes, "change") + (skipped ? "; " + count(skipped) + " skipped" : ""));
  }, error => { follow(false); note(error.message); });
}
byId("follow").onclick = () => follow(byId("follow").getAttribute("aria-pressed") !== "true");
byId("store").replaceChildren(...TOPOLOGY.stores.map(each => make("option", {}, each.name)));
byId("store").onchange = kinds; byId("kind").onchange = fields; kinds();
byId("query").hidden = TOPOLOGY.stores.length === 0;
byId("query").onsubmit = event => { event.preventDefault(); after = null; query(); };
byId("more").onclick = () => query();

async function runSql() {
  const answer = byId("sql-answer"), note = message => { byId("sql-note").textContent = message; };
  note("reading …");
  try {
    const found = await ask("sql?" + new URLSearchParams({query: byId("sql-text").value}));
    note(counted(found.rows.length, "row") + (found.more ? ", the first of more" : ""));
    answer.replaceChildren(rowTable(found.rows.map(each => row(...each.map(text))), found.columns));
  } catch (error) {
    note("");
    answer.replaceChildren(make("p", {class: "problem"}, error.message));
  }
}
byId("sql").hidden = TOPOLOGY.stores.length === 0;
byId("sql").onsubmit = event => { event.preventDefault(); runSql(); };
byId("sql-text").onkeydown = event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("sql").requestSubmit(); };
if (TOPOLOGY.stores.length) byId("sql-text").value = 'SELECT * FROM "' + TOPOLOGY.stores[0].name + '" LIMIT 25';

/* ---- start ---- */
let stop = null, again = null;
async function start() {
  if (stop) stop();
  clearTimeout(again);
  stop = listen("status/changes", (name, data) => {
    if (name === "status") show(data);
    if (name === "history") takeHistory(data);
  }, error => {
    problem([{level: "error", text: "No answer: " + error.message}]);
    again = setTimeout(start, 2000);
  });
  try {
    TOPOLOGY.nodes = (await ask("nodes")).nodes;
    await topics();
    takeHistory(await ask("history"));
  } catch (error) {
    // The stream reports it, and starts again.
  }
}
/* A hidden page holds no connection: browsers have few for one server. */
document.addEventListener("visibilitychange", () => {
  watchOffsets(!byId("topics-view").hidden);
  if (!document.hidden) start();
  else { if (stop) stop(); clearTimeout(again); live(false); follow(false); }
});
openTab(byId("tab-" + location.hash.slice(6)) || tabs[0]);
start();
