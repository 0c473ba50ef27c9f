/* ---- the topology: fits the window, can be dragged and zoomed; texts stay readable while there is room ---- */
const graph = (() => {
  const frame = byId("graph"), MOST = 4, MOST_FITTED = 1.5, READABLE = 0.8;
  let pictures, sizes, svg, full, view, fitted = true, extra = () => [], chosen = () => {};

  const heading = box => box.parentNode.querySelector('.heading[data-sub="' + box.dataset.sub + '"]');
  const scale = () => Math.min(frame.clientWidth / view.w, frame.clientHeight / view.h);
  function draw() {
    svg.setAttribute("viewBox", [view.x, view.y, view.w, view.h].map(each => each.toFixed(1)).join(" "));
    frame.style.touchAction = fitted ? "pan-y" : "none";
    const size = scale();
    if (!size) return;
    svg.classList.toggle("bare", size < 0.7);
    for (const node of frame.querySelectorAll(".node")) {
      const title = node.querySelector(".title"), box = (node.querySelector("rect") || node.querySelector("path")).getBBox();
      const bare = size < 0.7 || !node.querySelector(".detail");
      // The ends of a topic are round.
      const room = Math.min((box.width - (kind(node).endsWith("topic") ? 24 : 10)) / (0.62 * title.textContent.length), box.height * (bare ? 0.62 : 0.4));
      title.style.fontSize = Math.max(13, Math.min(12 / size, room)) + "px";
      // Without the line below it a title is in the middle of its node.
      const cap = node.classList.contains("store") ? 3 : 0;
      title.setAttribute("dy", bare ? (box.y + box.height / 2 + cap - title.getAttribute("y")).toFixed(1) : 0);
      title.setAttribute("dominant-baseline", bare ? "central" : "auto");
    }
    for (const box of frame.querySelectorAll(".box")) {
      const rect = box.getBBox(), text = heading(box);
      const font = Math.max(12, Math.min(11 / size, 24, rect.width / (0.6 * text.textContent.length)));
      text.style.fontSize = font + "px";
      text.setAttribute("y", (rect.y + 5 + font * 0.85).toFixed(1));
    }
    for (const text of frame.querySelectorAll("text.live")) text.style.fontSize = Math.max(11, Math.min(10 / size, 18)) + "px";
  }
  function resize() {
    const top = frame.getBoundingClientRect().top + window.scrollY, window_h = window.innerHeight;
    const least = Math.max(240, window_h * 0.6, window_h - top - 30);
    // What would be too small to be read may take a whole window, and on a phone more.
    const most = Math.max(least, window_h * (frame.clientWidth < 600 ? 1.2 : 0.85));
    const fit = (size, height) => Math.min(frame.clientWidth / size.w, height / size.h);
    const wanted = size => fit(size, least) < READABLE ? most : least;
    const height = frame.clientWidth < 600 ? most : Math.min(least, frame.clientWidth * 0.5);
    const best = pictures.reduce((one, other) => fit(sizes.get(other), height) > fit(sizes.get(one), height) * 1.05 ? other : one);
    if (best !== svg) {
      select(null);
      svg.replaceWith(best);
      svg = best; full = sizes.get(svg); fitted = true;
    }
    const shown = Math.min(MOST_FITTED, fit(full, wanted(full)));
    frame.style.height = Math.round(Math.max(120, full.h * shown)) + "px";
    if (fitted) view = {...full};
    draw();
  }
  function move(x, y) { view.x += x; view.y += y; fitted = false; bound(); draw(); }
  function bound() {
    view.x = Math.max(-view.w * 0.8, Math.min(full.w - view.w * 0.2, view.x));
    view.y = Math.max(-view.h * 0.8, Math.min(full.h - view.h * 0.2, view.y));
  }
  /* `at`: the point that stays where it is, in the drawing's units. */
  function zoom(factor, at) {
    const size = scale(), wanted = Math.max(fitScale(), Math.min(MOST, size * factor));
    const by = size / wanted, point = at || {x: view.x + view.w / 2, y: view.y + view.h / 2};
    view = {x: point.x - (point.x - view.x) * by, y: point.y - (point.y - view.y) * by, w: view.w * by, h: view.h * by};
    fitted = wanted <= fitScale() * 1.001;
    if (fitted) view = {...full};
    draw();
  }
  const fitScale = () => Math.min(frame.clientWidth / full.w, frame.clientHeight / full.h);
  function show(box) {
    const margin = 20, {e: left, f: top} = svg.querySelector("g").transform.baseVal[0].matrix;
    view = {x: box.x + left - margin, y: box.y + top - margin, w: box.width + 2 * margin, h: box.height + 2 * margin};
    fitted = false;
    draw();
  }
  /* Moves the drawing until a node is in the middle, if a part of it is outside the frame. */
  function reveal(node) {
    const box = node.getBoundingClientRect(), inside = frame.getBoundingClientRect();
    if (fitted || box.left >= inside.left && box.right <= inside.right && box.top >= inside.top && box.bottom <= inside.bottom) return;
    const middle = (low, high) => (low + high) / 2;
    move((middle(box.left, box.right) - middle(inside.left, inside.right)) / scale(), (middle(box.top, box.bottom) - middle(inside.top, inside.bottom)) / scale());
  }
  function point(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return {x: at.x, y: at.y};
  }

  const pointers = new Map();
  let dragged = false;
  frame.addEventListener("pointerdown", event => {
    if (event.button) return;
    pointers.set(event.pointerId, event);
    dragged = false;
  });
  frame.addEventListener("pointermove", event => {
    const last = pointers.get(event.pointerId);
    if (!last) return;
    const [dx, dy] = [event.clientX - last.clientX, event.clientY - last.clientY];
    if (!dragged && Math.hypot(dx, dy) < 4) return;
    if (!dragged) { dragged = true; frame.setPointerCapture(event.pointerId); frame.classList.add("dragged"); }
    if (pointers.size === 2) {
      const other = [...pointers.values()].find(each => each.pointerId !== event.pointerId);
      const distance = each => Math.hypot(each.clientX - other.clientX, each.clientY - other.clientY);
      zoom(distance(event) / Math.max(1, distance(last)), point(other));
    } else {
      move(-dx / scale(), -dy / scale());
    }
    pointers.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, event => {
    pointers.delete(event.pointerId);
    frame.classList.remove("dragged");
  });
  frame.addEventListener("wheel", event => {
    // Without a modifier the wheel scrolls the page; a pinch on a touchpad comes as a wheel with ctrl.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), point(event));
  }, {passive: false});
  frame.addEventListener("keydown", event => {
    const step = 60 / scale();
    const moves = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step]};
    if (moves[event.key]) move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "Escape") select(null);
    else return;
    event.preventDefault();
  });
  function fit() { fitted = true; resize(); }
  byId("fit").onclick = fit;
  byId("zoom-in").onclick = () => zoom(1.4);
  byId("zoom-out").onclick = () => zoom(1 / 1.4);

  /* ---- a selected node ---- */
  let selected = null;
  const lines = node => [...node.children].find(each => each.tagName === "title").textContent.split("\n");
  function button(element, label, act) {
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "button");
    element.setAttribute("aria-label", label);
    element.addEventListener("click", () => { if (!dragged) act(); });
    element.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
    });
  }
  const kind = node => [...node.classList].find(each => each !== "node" && each !== "selected").replace("-", " ");
  /* Takes the drawings that are in the frame: one for wide windows, and often one for narrow ones. The larger one is shown. */
  function load() {
    pictures = [frame.querySelector("svg"), ...[...frame.querySelectorAll("template")].map(each => document.importNode(each.content, true).querySelector("svg"))];
    sizes = new Map(pictures.map(each => [each, {x: 0, y: 0, w: each.viewBox.baseVal.width, h: each.viewBox.baseVal.height}]));
    svg = pictures[0]; full = sizes.get(svg);
    if (!fitted) bound();
    select(null);
    for (const picture of pictures) {
      // A picture can't contain buttons.
      picture.setAttribute("role", "group");
      for (const node of picture.querySelectorAll(".node")) button(node, kind(node) + " " + lines(node)[0].replace(/^(store|topic) /, ""), () => select(node));
      for (const box of picture.querySelectorAll(".box")) {
        button(box, "zoom to " + heading(box).textContent, () => show(box.getBBox()));
        heading(box).addEventListener("click", () => { if (!dragged) show(box.getBBox()); });
      }
    }
    resize();
  }
  function select(node) {
    if (selected) selected.classList.remove("selected");
    selected = node;
    byId("details").hidden = node === null;
    if (!node) return;
    node.classList.add("selected");
    // The details stand on the side where the node is not.
    const middle = each => (box => box.left + box.width / 2)(each.getBoundingClientRect());
    byId("details").classList.toggle("left", middle(node) > middle(frame));
    details();
    chosen(node);
  }
  const labelled = line => [["changelog", "changelog "], ["pipeline", "pipeline "]].filter(([, start]) => line.startsWith(start))
    .map(([label, start]) => [label, line.slice(start.length)])[0] || [selected.classList.contains("store") ? "type" : "place", line];
  function details() {
    if (!selected) return;
    const [name, ...rest] = lines(selected), step = (TOPOLOGY.nodes || {})[selected.dataset.id];
    byId("details").replaceChildren(
      make("button", {class: "close", type: "button", "aria-label": "close", onclick: () => { const last = selected; select(null); last.focus(); }}, "×"),
      make("h3", {}, kind(selected) + " " + name.replace(/^(store|topic) /, "")),
      pairs([
        ...(step ? [["pipeline", step.pipeline], ["step", step.step]] : rest.map(labelled)),
        ...extra(selected),
        ["place", step ? step.file.split("/").pop() + ":" + step.line : null],
      ]),
      step && step.yaml ? make("pre", {tabIndex: 0, "aria-label": "lines of the file"}, step.yaml) : "");
  }
  // What appears above the graph moves it down.
  const observer = new ResizeObserver(() => { if (svg) resize(); });
  for (const each of [frame.parentElement, document.body]) observer.observe(each);
  window.addEventListener("resize", () => { if (svg) resize(); });
  return {details, load, reveal, set extra(makePairs) { extra = makePairs; }, set chosen(act) { chosen = act; }, fit, zoom, scale, show};
})();
if (byId("graph").querySelector("svg")) graph.load();
