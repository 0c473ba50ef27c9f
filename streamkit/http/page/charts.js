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
/* Each instance counts its own records and memory; lag is that of all inputs, which the instance with the least knows best. */
function value(name, instances) {
  const found = [...instances.values()].map(each => each[name]).filter(each => each !== null && each !== undefined);
  if (!found.length) return null;
  if (name === "lag") return Math.min(...found);
  return name === "latency" ? Math.max(...found) : sum(found, each => each);
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
    if (gap) starts.push({from: x(at), d: ""});
    const place = x(at).toFixed(1) + " " + y(number).toFixed(1);
    path += (gap ? "M" : "L") + place;
    Object.assign(starts[starts.length - 1], {to: x(at), d: starts[starts.length - 1].d + "L" + place});
    last = at;
  }
  const area = starts.map(each => "M" + each.from.toFixed(1) + " " + HEIGHT + each.d + "L" + each.to.toFixed(1) + " " + HEIGHT + "z").join("");
  const now = points.length ? points[points.length - 1][1] : null;
  const label = chart.title + ": now " + chart.shown(now) + ", at most " + chart.shown(points.length ? most : null);
  const svg = shape("svg", {viewBox: "0 0 " + WIDTH + " " + HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": label},
    shape("path", {class: "area", d: area}), shape("path", {class: "curve", d: path}));
  const element = make("figure", {class: "chart"},
    make("figcaption", {}, chart.title, make("b", {}, chart.shown(now))), svg,
    make("div", {class: "times"}, make("span", {}, new Date(first).toLocaleTimeString()), make("span", {}, "max " + chart.shown(points.length ? most : null))));
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
  rows("event-rows", all.map(each => row(time(each.time).replace("T", " ").slice(0, 19),
    make("span", {class: "badge " + {error: "bad", warning: "warn"}[each.kind]}, each.kind),
    each.text + (each.count > 1 ? " (" + each.count + " times)" : ""), each.address || "this instance")));
  const bad = all.filter(each => each.kind !== "rebalance");
  if (!byId("events").hidden) seen = Date.now();
  const fresh = bad.filter(each => each.time > seen).length;
  byId("events-total").textContent = fresh || "";
}
opened["tab-events"] = showEvents;
