/* ---- state, as the server pushes it ---- */
let current = null;
function tone(state) {
  if (state === "RUNNING") return "good";
  return ["ERROR", "PENDING_ERROR", "DEAD", "NOT_RUNNING", "GONE", "UNOWNED"].includes(state) ? "bad" : "warn";
}
function problem(list) {
  byId("problem").hidden = list.length === 0;
  byId("problem").classList.toggle("warning", list.every(each => each.level === "warning"));
  const texts = list.map(each => each.text);
  // A live region that is written again with the same text is read out again.
  if (texts.join("\n") !== byId("problem").innerText) byId("problem").replaceChildren(...list.map(each => make("p", {class: each.level}, each.text)));
}

function show(state) {
  current = state;
  const instances = state.instances, alive = instances.filter(each => each.threads);
  const active = activeTasks(instances);
  byId("state").textContent = state.condition;
  byId("state").className = "badge " + {ok: tone(state.condition), warning: "warn", error: "bad"}[state.level];
  byId("state").hidden = false;
  byId("rate").textContent = count(state.rate);
  byId("lag").textContent = count(state.lag);
  byId("tasks-total").textContent = active.length;
  byId("instances-total").textContent = alive.length === instances.length ? alive.length : alive.length + " of " + instances.length;
  byId("since").textContent = "up " + span(Math.max(0, ...alive.map(each => each.uptime_seconds)));
  problem(state.problems);
  const paused = alive.length > 0 && alive.every(each => each.paused);
  byId("pause").hidden = false;
  byId("pause").textContent = paused ? "resume all" : "pause all";
  showInstances(instances); showInputs(state.inputs, active); showTasks(active); showRestoring(alive); showEdges(active);
  showDrops(state.drops);
  if (!byId("topics-view").hidden) showOffsets();
  const holders = new Map();
  for (const each of alive) for (const store of each.stores) {
    holders.set(store.name, [...new Set([...(holders.get(store.name) || []), ...store.tasks])]);
  }
  showStores(holders);
  showParts(alive.flatMap(each => each.stores.flatMap(store => store.parts.map(part => ({store: store.name, ...part})))));
  graph.details();
}
/* What lies on disk does not count its rows: there it is an estimate. */
const known = number => number === null ? "–" : count(number);
const estimate = part => (part.bytes === null || part.rows === null ? "" : "~") + known(part.rows);
function showParts(parts) {
  byId("parts").hidden = parts.length === 0;
  rows("parts", parts.map(part => row(part.store, part.task, {n: estimate(part)}, {n: known(part.bytes)}, {n: known(part.offset)},
    {n: known(part.end)}, {w: part.committed_ms === null ? "–" : clock(part.committed_ms)})));
}

/* ---- instances, and what changes them ---- */
async function change(path, method, instance) {
  try {
    await ask(path + (instance ? "?" + new URLSearchParams({instance}) : ""), method);
  } catch (error) {
    problem([{level: "error", text: error.message}]);
  }
}
byId("pause").onclick = async () => {
  const alive = current.instances.filter(each => each.threads), resume = alive.every(each => each.paused);
  for (const each of alive) await change(resume ? "resume" : "pause", "POST", each.address);
};
function buttons(instance) {
  const name = instance.address || "this instance";
  const makeButton = (label, meaning, path, method) => make("button", {type: "button", "aria-label": meaning + " on " + name, title: meaning,
    onclick: () => change(path, method, instance.address)}, label);
  return make("span", {class: "buttons"},
    makeButton(instance.paused ? "resume" : "pause", instance.paused ? "resume" : "pause", instance.paused ? "resume" : "pause", "POST"),
    makeButton("− thread", "one thread fewer", "threads", "DELETE"), makeButton("+ thread", "one more thread", "threads", "POST"));
}
let shownInstances = "";
function showInstances(instances) {
  // Elements that stay keep the focus: buttons are made again only where something else than a rate differs.
  const shape = JSON.stringify(instances.map(each => [each.address, each.shown_state, each.error, each.tasks,
    (each.threads || []).map(thread => [thread.name, thread.state, thread.error, thread.tasks.map(task => [task.id, task.kind, task.state])])]));
  if (shape !== shownInstances) {
    shownInstances = shape;
    byId("instances").replaceChildren(...instances.map(instance));
  }
  for (const each of instances) for (const thread of each.threads || []) {
    const rate = [...document.querySelectorAll("[data-thread]")].find(found => found.dataset.thread === thread.name);
    if (rate) rate.textContent = count(thread.rate) + "/s";
  }
}
function instance(each) {
  return make("div", {class: "instance"},
    make("b", {}, each.address || "this instance"), " ",
    make("span", {class: "badge " + tone(each.shown_state)}, each.shown_state),
    each.threads ? buttons(each) : null,
    each.threads ? null : make("div", {class: "thread"}, make("div", {class: "problem"}, each.error),
      ...(each.tasks || []).map(task => make("span", {class: "task lost"}, task))),
    ...(each.threads || []).map(thread => {
      const rate = make("span", {class: "hint"});
      rate.dataset.thread = thread.name;
      return make("div", {class: "thread"},
        make("div", {class: "name", title: thread.name},
          make("span", {}, thread.name.replace(/^.*(StreamThread-)/, "$1"), " ",
            thread.state === "RUNNING" ? null : make("span", {class: "badge " + tone(thread.state)}, thread.state)), rate),
        thread.error ? make("div", {class: "problem"}, thread.error) : null,
        ...thread.tasks.map(task => make("span", {
          class: "task " + (task.kind === "standby" ? "standby" : task.state === "RUNNING" ? "" : "restoring"),
          title: task.kind + " task, " + task.state}, task.id)));
    }));
}

/* ---- tables ---- */
const OWNED = ["RUNNING", "RESTORING"];
function showInputs(inputs, tasks) {
  const rate = new Map(), lag = new Map();
  for (const each of inputs) add(lag, each.topic, each.lag);
  for (const task of tasks) for (const each of task.inputs) add(rate, each.topic, each.rate);
  rows("inputs", [...lag.keys()].sort().map(topic => row(topic, {n: count(rate.get(topic) || 0)}, {n: count(lag.get(topic))})));
  const waiting = inputs.filter(each => !OWNED.includes(each.state));
  byId("waiting-part").hidden = waiting.length === 0;
  rows("waiting", waiting.map(each => {
    const found = row(each.topic + " " + each.partition, each.owner ? each.owner + (each.state === "GONE" ? " (gone)" : "") : "no owner",
      {n: count(each.lag)});
    if (["UNOWNED", "GONE"].includes(each.state)) found.className = "lost";
    return found;
  }));
}
function showTasks(tasks) {
  const order = (a, b) => a.id.localeCompare(b.id, "en", {numeric: true});
  const addresses = [...new Set(tasks.map(task => task.instance.address))];
  // Where all are on one machine, its name is left out.
  const host = address => address.slice(0, address.lastIndexOf(":"));
  const short = address => addresses.every(each => host(each) === host(address)) ? address.slice(host(address).length) : address;
  rows("tasks", [...tasks].sort(order).map(task => row(task.id,
    make("span", {class: "hint", title: task.instance.address + " " + task.thread.name},
      (addresses.length > 1 ? short(task.instance.address) + " " : "") + task.thread.name.replace(/^.*StreamThread-/, "thread ")),
    {n: count(task.processed)}, {n: count(task.rate)}, {n: count(sumKnown(task.inputs.map(each => each.lag)))})));
}
function showDrops(drops) {
  byId("drops-card").hidden = drops.length === 0;
  rows("drops", drops.flatMap(each => [row(each.task || "–", each.reason, {n: count(each.dropped)}, {n: count(each.dead_letters)}),
    make("tr", {class: "message"}, make("td", {}), make("td", {colSpan: 3, class: "hint"},
      (each.at_ms ? clock(each.at_ms) + " " : "") + each.message))]));
  lettersOf(drops);
}
function showRestoring(instances) {
  const all = instances.flatMap(each => each.restoring);
  byId("restoring-card").hidden = all.length === 0;
  byId("restoring").replaceChildren(...all.map(each => {
    const done = each.total ? each.restored / each.total : 1;
    const fill = make("i", {}); fill.style.width = (100 * done).toFixed(1) + "%";
    return make("div", {class: "restore"},
      make("span", {}, count(each.restored) + " of " + count(each.total) + " · " + count(each.rate) + "/s · ETA " + span(each.eta_seconds)),
      make("b", {}, each.store), " " + each.task, make("div", {class: "bar"}, fill));
  }));
}

/* ---- the graph ---- */
/* Rates are counted at topics, and times for batches of a task: a node within has those of its sub-topology. */
graph.extra = node => {
  if (!current) return [];
  const id = node.dataset.id;
  if (id.startsWith("topic ")) return topicFacts(id.slice(6));
  const sub = id.split(" ")[0], name = id.slice(sub.length + 1);
  const tasks = activeTasks(current.instances).filter(task => task.id.split("_")[0] === sub);
  if (name.startsWith("store:")) return storeFacts(name.slice(6), tasks);
  const per = kind => [...document.querySelectorAll("#graph .line." + kind)]
    .filter(edge => edge.dataset[kind === "in" ? "target" : "source"] === id)
    .map(edge => edge.dataset.topic + " " + count(edges.rate.get(kind + " " + edge.dataset.topic + " " + sub) || 0) + "/s");
  const into = sum(tasks, task => sum(task.inputs, each => each.rate));
  const out = sum(tasks, task => sum(Object.entries(task.produced_rates).filter(([topic]) => !topic.endsWith("-changelog")), each => each[1]));
  const seconds = sum(tasks, task => task.process_seconds), processed = sum(tasks, task => task.processed);
  const read = per("in"), written = per("out"), latencies = tasks.flatMap(task => task.latency).filter(each => each.node === name);
  return [
    ["reads", read.length ? read.join(", ") : null],
    ["writes", written.length ? written.join(", ") : null],
    ["sub-topology " + sub + " in", count(into) + "/s"],
    ["sub-topology " + sub + " out", count(out) + "/s"],
    ["time per record", processed ? (1e6 * seconds / processed).toFixed(1) + " µs in sub-topology " + sub : null],
    ["latency", latencies.length ? "p99 " + duration(Math.max(...latencies.map(each => each.p99))) + ", at most " +
      duration(Math.max(...latencies.map(each => each.max))) : null],
  ];
};
function topicFacts(topic) {
  const inputs = current.inputs.filter(each => each.topic === topic);
  const of = kind => sum([...edges.rate].filter(([key]) => key.startsWith(kind + " " + topic + " ")), each => each[1]);
  return [
    ["read", inputs.length ? count(of("in")) + "/s" : null],
    ["written", count(of("out")) + "/s"],
    ["partitions", inputs.length || null],
    ["lag", inputs.length ? count(sumKnown(inputs.map(each => each.lag))) : null],
    ["records", make("button", {type: "button", onclick: () => browseTopic(topic)}, "browse")],
  ];
}
function storeFacts(store, tasks) {
  const parts = current.instances.flatMap(each => each.stores || []).filter(each => each.name === store).flatMap(each => each.parts);
  const bytes = parts.map(part => part.bytes).filter(each => each !== null);
  const changelog = TOPOLOGY.stores.find(each => each.name === store).changelog;
  return [
    ["rows", parts.length ? parts.map(part => part.task + ": " + estimate(part)).join(", ") : null],
    ["bytes", bytes.length ? count(sum(bytes, each => each)) : null],
    ["changes", changelog ? count(sum(tasks, task => task.produced_rates[changelog] || 0)) + "/s" : null],
  ];
}
