/* ---- the last hour, which the server keeps ---- */
const CHARTS = [
  {name: "rate", title: "records/s", shown: count},
  {name: "lag", title: "lag", shown: count},
  {name: "latency", title: "latency (p99)", shown: duration, tick: ms => short(ms)},
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
  const newest = newestPoint();
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

/* ---- what the charts show: the last minutes, or what came after a reset ---- */
const RANGES = [["5 min", 300e3], ["15 min", 900e3], ["1 h", HOUR_MS]];
const kept = name => Number(sessionStorage.getItem("streamkit-" + name));
let range = kept("range") || HOUR_MS, reset = kept("reset");
const newestPoint = () => Math.max(...past.points.keys());
function choose(name, number) {
  sessionStorage.setItem("streamkit-" + name, number);
  if (name === "range") range = number; else reset = number;
  showCharts(newestPoint());
}
byId("ranges").replaceChildren(...RANGES.map(([label, ms]) => make("button", {type: "button", "aria-pressed": "false", value: ms,
  onclick: () => choose("range", ms)}, label)));
byId("reset").onclick = () => choose("reset", reset ? 0 : newestPoint());

function showCharts(newest) {
  if (!past.points.size) return;
  for (const each of byId("ranges").children) each.setAttribute("aria-pressed", Number(each.value) === range);
  byId("reset").setAttribute("aria-pressed", reset > 0);
  byId("range-note").textContent = reset ? "since " + clock(reset) : "";
  const all = [...past.points.keys()].sort((a, b) => a - b), times = all.filter(at => at > reset && at >= newest - range);
  // A young application fills the width: the axis begins with the first point.
  const first = Math.max(newest - range, Math.min(reset || all[0], newest - 60e3));
  byId("history").hidden = false;
  byId("charts").replaceChildren(...CHARTS.filter(chart => all.some(at => value(chart.name, past.points.get(at)) !== null))
    .map(chart => figure(chart, times, first, newest)));
}

/* ---- scales: from a number to a share of the height, and the numbers beside it ---- */
const UNIT = {rate: 1, lag: 1, memory: 1048576};
function linear(most, unit) {
  const least = most / unit / 2, power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  const step = (most ? [1, 2, 2.5, 5, 10].map(each => each * power).find(each => each >= least) : 0.5) * unit;
  return {of: number => Math.max(0, number) / (2 * step), ticks: [0, step, 2 * step]};
}
/* A backfill has latencies of years: each step is about ten times the one below. */
const STEPS = [1, 10, 100, 1e3, 10e3, 60e3, 600e3, 3600e3, 6 * 3600e3, 86400e3, 10 * 86400e3, 100 * 86400e3, 1000 * 86400e3, 1e4 * 86400e3, 1e5 * 86400e3];
function logarithmic(least, most) {
  const top = Math.max(1, STEPS.findIndex(each => each >= most)), bottom = Math.max(0, Math.min(top - 1, STEPS.findLastIndex(each => each <= least)));
  const low = Math.log(STEPS[bottom]), high = Math.log(STEPS[top]), every = Math.ceil((top - bottom) / 3);
  return {of: number => (Math.log(Math.max(number, STEPS[bottom])) - low) / (high - low),
    ticks: STEPS.slice(bottom, top + 1).filter((each, at) => (top - bottom - at) % every === 0)};
}
const TIME_STEPS = [15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1200e3];
function timeTicks(first, newest) {
  const most = window.innerWidth < 600 ? 2 : 4, step = TIME_STEPS.find(each => (newest - first) / each <= most) || 1200e3, found = [];
  for (let at = Math.ceil(first / step) * step; at <= newest; at += step) {
    // A label at the right end would go beyond the card.
    if (at <= newest - (newest - first) * 0.07) found.push(at);
  }
  return {step, found};
}
const short = ms => ms < 1000 ? ms + " ms" : ms < 60e3 ? ms / 1000 + " s" : ms < 3600e3 ? ms / 60e3 + " min"
  : ms < 86400e3 ? ms / 3600e3 + " h" : (ms / 86400e3).toLocaleString("en") + " d";

function figure(chart, times, first, newest) {
  const points = times.map(at => [at, value(chart.name, past.points.get(at))]).filter(([, number]) => number !== null);
  const numbers = points.map(each => each[1]), most = Math.max(...numbers, 0);
  const scale = chart.name === "latency" ? logarithmic(Math.min(...numbers), most) : linear(most, UNIT[chart.name]);
  const share = at => (at - first) / Math.max(1, newest - first);
  const x = at => share(at) * WIDTH, y = number => HEIGHT - scale.of(number) * HEIGHT;
  const now = points.length ? points[points.length - 1][1] : null;
  const label = chart.title + ": now " + chart.shown(now) + ", at most " + chart.shown(points.length ? most : null) + ", since " + minute(first);
  const svg = shape("svg", {viewBox: "0 0 " + WIDTH + " " + HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": label},
    ...scale.ticks.map(tick => shape("path", {class: "rule", d: "M0 " + y(tick).toFixed(1) + "H" + WIDTH})), ...curves(points, x, y));
  const sign = (content, where, place) => {
    const element = make("span", {}, content);
    element.style[where] = (100 * place).toFixed(2) + "%";
    return element;
  };
  const {step, found} = timeTicks(first, newest);
  const shownNow = make("b", {}, chart.shown(now)), cursor = make("i", {class: "cursor", hidden: true});
  const plot = make("div", {class: "plot"}, svg, cursor, ...scale.ticks.map(tick => sign((chart.tick || chart.shown)(tick), "bottom", scale.of(tick))));
  plot.onpointermove = event => {
    const box = plot.getBoundingClientRect(), wanted = first + (event.clientX - box.left) / box.width * (newest - first);
    if (!points.length) return;
    const [at, number] = points.reduce((one, other) => Math.abs(other[0] - wanted) < Math.abs(one[0] - wanted) ? other : one);
    shownNow.textContent = clock(at) + "  " + chart.shown(number);
    cursor.hidden = false;
    cursor.style.left = (100 * share(at)).toFixed(2) + "%";
  };
  plot.onpointerleave = () => { shownNow.textContent = chart.shown(now); cursor.hidden = true; };
  const element = make("figure", {class: "chart"}, make("figcaption", {}, make("span", {}, chart.title), shownNow), plot,
    make("div", {class: "times"}, ...found.map(at => sign(step < 60e3 ? clock(at) : minute(at), "left", share(at)))));
  element.dataset.name = chart.name;
  element.dataset.points = points.length;
  element.dataset.most = points.length ? most : "";
  return element;
}
function curves(points, x, y) {
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
  return [shape("path", {class: "area", d: area}), shape("path", {class: "curve", d: path})];
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
