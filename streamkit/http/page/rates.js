/* ---- rates and lags on the edges of the drawing, as /status has them ---- */
function count(number) {
  if (number === null || number === undefined) return "?";
  number = Number(number);
  if (number >= 1e9) return (number / 1e9).toFixed(1) + " G";
  if (number >= 1e6) return (number / 1e6).toFixed(1) + " M";
  if (number >= 1e4) return (number / 1e3).toFixed(1) + " k";
  return number >= 100 || Number.isInteger(number) ? Math.round(number).toLocaleString("en") : number.toFixed(1);
}
const add = (into, key, value) => into.set(key, value === null || into.get(key) === null ? null : (into.get(key) || 0) + value);
function shape(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, each] of Object.entries(attributes)) element.setAttribute(name, each);
  element.append(...children);
  return element;
}
/* The running tasks that process records, each with its thread and instance. */
const activeTasks = instances => instances.filter(each => each.threads)
  .flatMap(each => each.threads.flatMap(thread => thread.tasks.map(task => ({...task, thread, instance: each}))))
  .filter(task => task.kind === "active");
const edges = {rate: new Map(), lag: new Map()};
function showEdges(tasks) {
  const rate = edges.rate = new Map(), lag = edges.lag = new Map();
  for (const task of tasks) {
    const sub = task.id.split("_")[0];
    for (const each of task.inputs) {
      add(rate, "in " + each.topic + " " + sub, each.rate); add(lag, "in " + each.topic + " " + sub, each.lag);
    }
    for (const [topic, each] of Object.entries(task.produced_rates)) add(rate, "out " + topic + " " + sub, each);
  }
  for (const edge of document.querySelectorAll("#graph [data-kind]")) {
    const key = edge.dataset.kind + " " + edge.dataset.topic + " " + edge.dataset.sub;
    const busy = (rate.get(key) || 0) > 0;
    if (edge.classList.contains("line")) { edge.classList.toggle("busy", busy); continue; }
    if (!rate.has(key)) { edge.textContent = ""; continue; }
    const behind = edge.dataset.kind === "in" && lag.get(key) !== 0 ? "lag " + count(lag.get(key)) : "";
    const shown = count(rate.get(key)) + "/s";
    // Before a node the rate is above the edge, and the lag below it.
    if (edge.classList.contains("before")) edge.replaceChildren(shown, behind ? shape("tspan", {x: edge.getAttribute("x"), dy: "1.75em"}, behind) : "");
    else edge.textContent = shown + (behind ? " · " + behind : "");
  }
}
