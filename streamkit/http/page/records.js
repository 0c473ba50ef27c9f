/* ---- records of topics ---- */
const LIVE_ROWS = 200;
const counted = (number, what) => count(number) + " " + what + (number === 1 ? "" : "s");
let stopLive = null;
async function topics() {
  const found = (await ask("topics")).topics;
  const option = each => make("option", {value: each.name}, each.name);
  const group = (label, list) => list.length ? make("optgroup", {label}, ...list.map(option)) : "";
  byId("topic").replaceChildren(group("file", found.filter(each => each.kind === "file")), group("internal", found.filter(each => each.kind === "internal")));
  byId("topic").known = found;
  if (!byId("records").hidden) newest();
}
/* The newest records are there as soon as the view is. */
let browsed = false, reading = 0;
function newest() {
  if (!browsed && byId("topic").value) byId("browse").requestSubmit();
}
opened["tab-records"] = newest;
function browseTopic(topic) {
  openTab(byId("tab-records"));
  const found = byId("topic").known.find(each => each.topic === topic);
  byId("topic").value = found ? found.name : topic;
  byId("browse").requestSubmit();
}
function parameters(names) {
  const chosen = new URLSearchParams();
  for (const name of names) if (byId("b-" + name).value !== "") chosen.set(name, byId("b-" + name).value);
  return chosen;
}
function recordRow(record) {
  const shown = record.error ? [make("div", {class: "problem"}, record.error)] : [];
  const cells = row({n: record.partition}, {n: record.offset}, {w: time(record.timestamp)}, keyText(record.key),
    (record.headers || []).map(([name, value]) => name + "=" + text(value)).join(" "));
  cells.append(make("td", {class: "json"}, ...shown, text(record.value)));
  return cells;
}
function recordTable(list) {
  const head = ["partition", "offset", "time", "key", "headers", "value"].map((name, at) => make("th", {class: at < 2 ? "n" : ""}, name));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...list.map(recordRow)));
}
byId("browse").onsubmit = async event => {
  event.preventDefault();
  live(false);
  browsed = true;
  const mine = reading += 1;
  byId("browse-note").textContent = "reading …";
  try {
    const found = await ask("topics/" + encodeURIComponent(byId("topic").value) + "/records?" + parameters(["key", "from", "to", "partition", "offset", "limit"]));
    if (mine !== reading) return;
    const first = byId("b-from").value || byId("b-offset").value, records = first ? found.records : found.records.reverse();
    byId("found").replaceChildren(records.length ? recordTable(records) : "");
    const held = sum(found.partitions, each => each.end - each.first);
    byId("browse-note").textContent = (records.length ? counted(records.length, "record") + ", the " + (first ? "oldest" : "newest") + " first" : "No records") + "; " + count(held) +
      " offsets in " + found.partitions.length + " partitions" + (found.complete ? "" : "; not all were searched in time");
  } catch (error) {
    if (mine !== reading) return;
    byId("found").replaceChildren();
    byId("browse-note").textContent = error.message;
  }
};
function live(on) {
  // An answer that is on its way belongs to what was there before.
  reading += 1;
  if (stopLive) stopLive();
  stopLive = null;
  byId("live").setAttribute("aria-pressed", on);
  if (!on) return;
  browsed = true;
  const body = recordTable([]);
  byId("found").replaceChildren(body);
  let seenRecords = 0, skipped = 0;
  const note = () => { byId("browse-note").textContent = counted(seenRecords, "new record") + (skipped ? "; " + count(skipped) + " offsets skipped, since they come too fast" : ""); };
  note();
  stopLive = listen("topics/" + encodeURIComponent(byId("topic").value) + "/changes?" + parameters(["key", "partition"]), (name, data) => {
    if (name === "record") { seenRecords += 1; body.tBodies[0].prepend(recordRow(data)); }
    if (name === "skipped") skipped += data.offsets;
    if (name === "problem") byId("browse-note").textContent = data.error; else note();
    while (body.tBodies[0].rows.length > LIVE_ROWS) body.tBodies[0].lastChild.remove();
  }, error => { live(false); byId("browse-note").textContent = error.message; });
}
byId("live").onclick = () => live(byId("live").getAttribute("aria-pressed") !== "true");
byId("topic").onchange = () => byId("browse").requestSubmit();

/* ---- dead letters: the tab counts what the view lists, from the same answer ---- */
const MOST_OFTEN_MS = 5000;
let lettersWritten = null, lettersBusy = false;
/* The topic is read again when a task has written a letter; the pause grows with the time that reading takes. */
function lettersOf(drops) {
  const written = sum(drops, each => each.dead_letters);
  if (written === lettersWritten || lettersBusy) return;
  lettersWritten = written;
  lettersBusy = true;
  const begun = performance.now();
  // Rows that a reader looks at stay where they are: a button must not move away from the pointer.
  letters(!byId("letters").hidden && !byId("letter-rows").hidden).then(() => setTimeout(() => {
    lettersBusy = false;
    lettersOf(current.drops);
  }, Math.max(MOST_OFTEN_MS, 10 * (performance.now() - begun))));
}
async function letters(keepRows) {
  if (byId("letter-rows").hidden) byId("letters-note").textContent = "reading …";
  try {
    const found = await ask("dead-letters");
    byId("letters-total").textContent = found.total ? count(found.total) + (found.complete ? "" : "+") : "";
    if (!keepRows) {
      byId("letter-rows").hidden = byId("replay-all").hidden = found.letters.length === 0;
      rows("letter-rows", found.letters.map(letterRow));
    }
    const kinds = found.kinds.map(each => count(each.count) + " × " + (each.error || "unknown error") + (each.step ? " at " + each.step : ""));
    byId("letters-note").textContent = !found.topics.length ? "The topology writes no dead letters." : !found.total ? "No dead letters."
      : (found.complete ? "" : "more than ") + count(found.total) + ": " + kinds.join("; ") + (found.letters.length < found.total ? "; the last " + found.letters.length + " are shown" : "") + (keepRows ? "; refresh shows new ones" : "");
  } catch (error) {
    byId("letters-note").textContent = error.message;
  }
}
function letterRow(letter) {
  const place = letter.dead_letter, source = letter.topic ? letter.topic + "-" + letter.partition + "@" + letter.offset : "no record";
  return row({w: time(letter.timestamp)}, make("span", {}, make("b", {}, letter.error), " " + letter.message), {w: letter.step}, {w: source},
    keyText(letter.key), letter.large ? "too large to be shown" : text(letter.value),
    {w: letter.replayable ? make("button", {type: "button", "aria-label": "replay " + place.topic + "-" + place.partition + "@" + place.offset,
      onclick: () => replay("?" + new URLSearchParams(place))}, "replay") : "–"});
}
async function replay(query) {
  let note;
  try {
    const done = await ask("dead-letters/replay" + query, "POST");
    note = count(done.replayed) + " replayed. ";
  } catch (error) {
    note = error.message + " ";
  }
  await letters();
  byId("letters-note").prepend(note);
}
byId("letters-again").onclick = () => letters();
byId("replay-all").onclick = () => replay("");
opened["tab-letters"] = () => letters();
