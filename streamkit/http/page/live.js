/* ---- requests, with the token that the user has entered ---- */
let token = sessionStorage.getItem("streamkit-token");
const headers = () => token ? {Authorization: "Bearer " + token} : {};
async function checked(response) {
  byId("login").hidden = response.status !== 401;
  if (response.ok) return response;
  const body = await response.json();
  throw new Error(body.error || response.statusText);
}
async function ask(path, method) {
  return parsed(await (await checked(await fetch(path, {method: method || "GET", headers: headers()}))).text());
}
/* A whole number that a double can't hold becomes a BigInt, where the browser gives its digits; it is shown as it is. */
const parsed = json => JSON.parse(json, (name, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value);
if (JSON.rawJSON) BigInt.prototype.toJSON = function () { return JSON.rawJSON(String(this)); };
byId("token-form").onsubmit = event => {
  event.preventDefault();
  token = byId("token").value;
  sessionStorage.setItem("streamkit-token", token);
  start();
};

/* Reads text/event-stream: lines end with CR, LF or both, and with no other character; a value may contain U+2028. */
function eventReader(take) {
  let rest = "", name = "", data = [];
  return text => {
    // A CR at the end may be the first half of a line's end.
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) take(name || "message", parsed(data.join("\n")));
        name = ""; data = [];
        continue;
      }
      const colon = line.indexOf(":"), field = colon < 0 ? line : line.slice(0, colon);
      const content = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") name = content;
      if (field === "data") data.push(content);
    }
  };
}
/* Calls `take` with the name and the data of each event, and `failed` when the stream ends. EventSource can't send a token. */
function listen(path, take, failed) {
  const abort = new AbortController();
  (async () => {
    try {
      const response = await checked(await fetch(path, {headers: headers(), signal: abort.signal}));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader(), events = eventReader(take);
      for (;;) {
        const {value, done} = await reader.read();
        if (done) throw new Error("the server has ended the stream");
        events(value);
      }
    } catch (error) {
      if (!abort.signal.aborted) failed(error);
    }
  })();
  return () => abort.abort();
}

/* ---- numbers and times ---- */
function span(seconds) {
  if (seconds === null) return "…";
  if (seconds < 60) return Math.ceil(seconds) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s";
  if (seconds >= 48 * 3600) return Math.floor(seconds / 86400).toLocaleString("en") + " days";
  return Math.floor(seconds / 3600) + " h " + Math.floor(seconds % 3600 / 60) + " min";
}
function duration(ms) {
  if (ms === null) return "–";
  return ms < 1000 ? ms.toFixed(ms < 10 ? 1 : 0) + " ms" : ms < 60e3 ? (ms / 1000).toFixed(1) + " s" : span(ms / 1000);
}
/* Times of the last hours are those of the reader's clock; times of records are in UTC, as everywhere else. */
const clock = ms => new Date(ms).toLocaleTimeString("en", {hourCycle: "h23"});
const minute = ms => clock(ms).slice(0, 5);
const moment = ms => (new Date(ms).toDateString() === new Date().toDateString() ? "" : new Date(ms).toLocaleDateString("sv") + " ") + clock(ms);
const time = ms => ms >= 1e12 && ms < 8.64e15 ? new Date(ms).toISOString().replace(".000Z", "Z") : String(ms);
const sum = (list, of) => list.reduce((total, each) => total + of(each), 0);
const sumKnown = list => list.includes(null) ? null : sum(list, each => each);
const text = value => typeof value === "string" ? value : JSON.stringify(value);
function keyText(key) {
  if (key === null || typeof key !== "object" || !("start" in key)) return text(key);
  return text(key.key) + " [" + time(key.start) + ", " + time(key.end) + "]";
}

/* ---- views ---- */
const tabs = [...document.querySelectorAll("[role=tab]")];
/* What a view does when it is opened, and when another one is. */
const opened = {}, left = {};
function openTab(tab, focus) {
  for (const each of tabs) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", chosen);
    each.tabIndex = chosen ? 0 : -1;
    byId(each.getAttribute("aria-controls")).hidden = !chosen;
    if (!chosen && left[each.id]) left[each.id]();
  }
  if (focus) tab.focus();
  // No element has this name: the browser would scroll to it.
  window.history.replaceState(null, "", "#view-" + tab.id.slice(4));
  (opened[tab.id] || (() => {}))();
}
for (const tab of tabs) {
  tab.onclick = () => openTab(tab);
  tab.onkeydown = event => {
    const at = tabs.indexOf(tab), last = tabs.length - 1;
    const to = {ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last}[event.key];
    if (to !== undefined) { event.preventDefault(); openTab(tabs[to], true); }
  };
}
