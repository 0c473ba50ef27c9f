/* ---- topics by partition: offsets of the log, positions and lag of the group, rates ---- */
const RATE_MS = 10e3, MANY_PARTITIONS = 60;
const COLUMNS = ["first", "end", "committed", "lag", "written", "processed"];
const offsets = {samples: [], cells: new Map(), shape: "", toggled: new Map()};
let stopOffsets = null, offsetsAgain = null;
function watchOffsets(on) {
  if (stopOffsets) stopOffsets();
  clearTimeout(offsetsAgain);
  stopOffsets = null;
  if (!on || document.hidden) return;
  stopOffsets = listen("partitions/changes", (name, data) => {
    if (name === "problem") byId("offsets-note").textContent = data.error;
    if (name === "partitions") { byId("offsets-note").textContent = ""; takeOffsets(data); }
  }, error => {
    byId("offsets-note").textContent = error.message;
    offsetsAgain = setTimeout(() => watchOffsets(true), 2000);
  });
}
opened["tab-topics"] = () => watchOffsets(true);
left["tab-topics"] = () => watchOffsets(false);

const placeOf = each => each.topic + " " + each.partition;
function takeOffsets(found) {
  offsets.samples = [...offsets.samples.filter(each => each.time > found.time - RATE_MS - 1000 && each.time < found.time),
    {time: found.time, ends: new Map(found.partitions.map(each => [placeOf(each), each.end])), partitions: found.partitions}];
  showOffsets();
}
/* What was written comes from the ends, so that topics of other applications have a rate too. */
function writtenRate(place) {
  const last = offsets.samples[offsets.samples.length - 1], first = offsets.samples.find(each => each.ends.has(place));
  return first && first !== last ? Math.max(0, last.ends.get(place) - first.ends.get(place)) * 1000 / (last.time - first.time) : null;
}
function showOffsets() {
  const known = byId("topic").known || [], last = offsets.samples[offsets.samples.length - 1];
  if (!last || !current) return;
  const inputs = new Map(current.inputs.map(each => [placeOf(each), each])), processed = new Map();
  for (const task of current.instances.flatMap(each => each.threads || []).flatMap(each => each.tasks)) {
    if (task.kind === "active") for (const each of task.inputs) processed.set(placeOf(each), each.rate);
  }
  const list = known.map(topic => ({...topic, partitions: last.partitions.filter(each => each.topic === topic.topic).map(each => {
    const place = placeOf(each), input = inputs.get(place);
    return {partition: each.partition, first: each.first, end: each.end, committed: input ? input.committed : undefined, lag: input ? input.lag : undefined,
      written: writtenRate(place), processed: input ? processed.get(place) ?? 0 : undefined, owner: input ? input.owner : "", task: input ? input.task : ""};
  })}));
  const shape = JSON.stringify([list.map(each => [each.name, each.partitions.length, isOpen(each, list)])]);
  // Rows are made again only where other ones are to be seen, so that a button keeps the focus.
  if (shape !== offsets.shape) { offsets.shape = shape; drawOffsets(list); }
  for (const topic of list) {
    fill(topic.topic, total(topic.partitions), "");
    for (const each of topic.partitions) fill(topic.topic + " " + each.partition, each, each.task ? each.task + (each.owner ? " at " + each.owner : " without owner") : "");
  }
}
function total(partitions) {
  const of = column => partitions.some(each => each[column] !== undefined) ? sumKnown(partitions.map(each => each[column])) : undefined;
  return {lag: of("lag"), written: of("written"), processed: of("processed"), held: sum(partitions, each => each.end - each.first)};
}
const figureOf = (column, number) => number === undefined ? "" : number === null ? "–" : ["written", "processed"].includes(column) ? count(number) + "/s"
  : column === "lag" ? count(number) : column === "held" ? number.toLocaleString("en") + " offsets" : number.toLocaleString("en");
function fill(place, found, where) {
  for (const column of [...COLUMNS, "held"]) {
    const cell = offsets.cells.get(place + " " + column);
    if (cell) cell.textContent = figureOf(column, found[column]);
  }
  const cell = offsets.cells.get(place + " task");
  if (cell) cell.textContent = where;
}
const isOpen = (topic, list) => offsets.toggled.get(topic.name) ?? sum(list, each => each.partitions.length) <= MANY_PARTITIONS;
function drawOffsets(list) {
  offsets.cells.clear();
  const cell = (key, kind) => { const made = make("td", {class: kind}); offsets.cells.set(key, made); return made; };
  rows("offset-rows", list.flatMap(topic => {
    const open = isOpen(topic, list), use = topic.kind === "internal" ? "internal" : [topic.read ? "input" : "", topic.written ? "output" : ""].filter(each => each).join(", ");
    const toggle = make("button", {type: "button", class: "toggle", "aria-expanded": String(open), disabled: !topic.partitions.length,
      onclick: () => { offsets.toggled.set(topic.name, !open); showOffsets(); focusToggle(topic.name); }}, make("b", {}, topic.name));
    toggle.dataset.topic = topic.name;
    const held = make("small", {});
    offsets.cells.set(topic.topic + " held", held);
    const head = make("tr", {class: "topic-row"}, make("td", {}, toggle, " ", make("small", {}, use + (topic.partitions.length ? "" : "; not on the log"))),
      make("td", {class: "n", colSpan: 2}, held), make("td", {}),
      ...["lag", "written", "processed"].map(column => cell(topic.topic + " " + column, "n")),
      make("td", {class: "w"}, make("button", {type: "button", "aria-label": "records of " + topic.name, onclick: () => browseTopic(topic.topic)}, "records")));
    return [head, ...(open ? topic.partitions : []).map(each => make("tr", {}, make("td", {class: "partition"}, "partition " + each.partition),
      ...COLUMNS.map(column => cell(topic.topic + " " + each.partition + " " + column, "n")), cell(topic.topic + " " + each.partition + " task", "w hint")))];
  }));
}
const focusToggle = name => [...document.querySelectorAll("#offset-rows .toggle")].find(each => each.dataset.topic === name).focus();
