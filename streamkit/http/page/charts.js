/* ---- the last hour, which the server keeps ---- */
const CHARTS = [
  {name: "rate", title: "records/s", shown: count},
  {name: "lag", title: "lag", shown: count},
  {name: "latency", title: "latency (p99)", shown: duration},
  {name: "memory", title: "memory", shown: bytes => bytes === null ? "–" : (bytes / 1048576).toFixed(0) + " MB"},
];
const HOUR_MS = 3600e3, WIDTH = 240, HEIGHT = 50;
const past = {points: new Map(), interval_ms: 5000, events: new Map()};
function takeHistory(found) {
  past.interval_ms = found.interval_ms;
  for (const each of found.instances) {
    for (const point of each.points || []) {
      if (!past.points.has(point.time)) past.points.set(point.time, new Map());
      past.points.get(point.time).set(each.address, point);
    }
    if (each.events) past.events.set(each.address, each.events);
  }
  const newest = Math.max(...past.points.keys());
  for (const at of past.points.keys()) if (at < newest - HOUR_MS) past.points.delete(at);
  showCharts(newest);
  showEvents();
}
/* Each instance counts its own records and memory. */
function value(name, instances) {
  const found = [...instances.values()].map(each => each[name]).filter(each => each !== null && each !== undefined);
  if (!found.length) return null;
  if (name === "lag") return lagOf([...instances.values()]);
  return name === "latency" ? Math.max(...found) : sum(found, each => each);
}
/* The lag of all inputs. An instance knows the positions of its own tasks, and of the others only what they have committed: so
   each one's own lag counts, and that of partitions which no instance here processes, as committed. */
function lagOf(list) {
  const all = list.filter(each => each.lag !== null), own = sum(all, each => each.own_lag);
  if (sum(all, each => each.owned) >= all[0].partitions) return own;
  if (all.some(each => typeof each.own_committed_lag !== "number")) return Math.min(...all.map(each => each.lag));
  const committed = sum(all, each => each.own_committed_lag);
  return own + Math.max(0, Math.min(...all.map(each => each.lag - each.own_lag - (committed - each.own_committed_lag))));
}
function showCharts(newest) {
  const times = [...past.points.keys()].sort((a, b) => a - b);
  // A young application fills the width: the axis begins with the first point, and has an hour at most.
  const first = Math.max(newest - HOUR_MS, Math.min(times[0], newest - 60e3));
  byId("charts").replaceChildren(...CHARTS.map(chart => figure(chart, times, first, newest)).filter(each => each.dataset.points !== "0"));
}
function figure(chart, times, first, newest) {
  const points = times.map(at => [at, value(chart.name, past.points.get(at))]).filter(([, number]) => number !== null);
  const most = Math.max(...points.map(each => each[1]), 0);
  const x = at => (at - first) / Math.max(1, newest - first) * WIDTH, y = number => HEIGHT - 2 - (most ? number / most : 0) * (HEIGHT - 6);
  let path = "", last = null;
  const starts = [];
  for (const [at, number] of points) {
    const gap = last === null || at - last > 2 * past.interval_ms;
    // A point stands for the interval before it, so that a single one is seen too.
    const place = " " + y(number).toFixed(1), from = Math.max(0, x(at - past.interval_ms));
    const line = (gap ? "L" + from.toFixed(1) + place : "") + "L" + x(at).toFixed(1) + place;
    if (gap) starts.push({from, d: ""});
    path += gap ? "M" + line.slice(1) : line;
    Object.assign(starts[starts.length - 1], {to: x(at), d: starts[starts.length - 1].d + line});
    last = at;
  }
  const area = starts.map(each => "M" + each.from.toFixed(1) + " " + HEIGHT + each.d + "L" + each.to.toFixed(1) + " " + HEIGHT + "z").join("");
  const now = points.length ? points[points.length - 1][1] : null;
  const label = chart.title + ": now " + chart.shown(now) + ", at most " + chart.shown(points.length ? most : null);
  const svg = shape("svg", {viewBox: "0 0 " + WIDTH + " " + HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": label},
    shape("path", {class: "area", d: area}), shape("path", {class: "curve", d: path}));
  const element = make("figure", {class: "chart"},
    make("figcaption", {}, chart.title, make("b", {}, chart.shown(now))), svg,
    make("div", {class: "times"}, make("span", {}, minute(first)), make("span", {}, "max " + chart.shown(points.length ? most : null))));
  element.dataset.name = chart.name;
  element.dataset.points = points.length;
  return element;
}
function shape(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, each] of Object.entries(attributes)) element.setAttribute(name, each);
  element.append(...children);
  return element;
}

/* ---- events ---- */
let seen = 0;
function showEvents() {
  const all = [...past.events].flatMap(([address, list]) => list.map(each => ({...each, address}))).sort((a, b) => b.time - a.time).slice(0, 200);
  byId("no-events").hidden = all.length > 0;
  byId("event-rows").hidden = all.length === 0;
  rows("event-rows", all.map(each => row({w: moment(each.time)},
    make("span", {class: "badge " + {error: "bad", warning: "warn"}[each.kind]}, each.kind),
    each.text + (each.count > 1 ? " (" + each.count + " times)" : ""), {w: each.address || "this instance"})));
  const bad = all.filter(each => each.kind !== "rebalance");
  if (!byId("events").hidden) seen = Date.now();
  const fresh = bad.filter(each => each.time > seen).length;
  byId("events-total").textContent = fresh || "";
}
opened["tab-events"] = showEvents;
