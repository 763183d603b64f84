// Large graphs: a canvas has the lines and, seen from afar, the boxes. Seen from near, boxes are links in an SVG.
"use strict";
(() => {
  const root = document.querySelector("[data-graph]");
  if (!root) return;
  const STATES = ["waiting", "running", "succeeded", "failed", "canceled", "skipped", "stopped"];
  const NEAR = 0.4, MOST_BOXES = 300, MOST_LINES = 20000, LARGEST = 1.5, SVG = "http://www.w3.org/2000/svg";
  const pane = root.querySelector(".window"), canvas = root.querySelector("canvas"), boxes = root.querySelector("svg.boxes");
  const pen = canvas.getContext("2d"), told = root.querySelector("[data-view]");
  const layer = boxes.appendChild(document.createElementNS(SVG, "g"));
  let graph = null, lines = [], colours = {}, view = { x: 0, y: 0, scale: 1 }, fitted = true, waiting = false;
  const shown = new Map();

  // What there is

  async function load() {
    const answer = await fetch(root.dataset.graph);
    if (!answer.ok) { told.textContent = "The graph could not be loaded. Reload the page to try again."; return; }
    const { layout, ...rest } = await answer.json();
    graph = { ...layout, ...rest };
    lines = findLines(graph);
    readColours();
    fit();
  }
  // Each line is its start and its end. The lines of a group of many to many meet in its hub.
  function findLines({ groups, hubs, compensations, x, y, box_width: wide, box_height: high }) {
    const meeting = new Map(hubs.map(([group, ...point]) => [group, point])), found = [];
    const out = (place) => [x[place] + wide, y[place] + high / 2], into = (place) => [x[place], y[place] + high / 2];
    groups.forEach(({ before, places }, number) => {
      const hub = meeting.get(number);
      if (hub) {
        for (const place of before) found.push([...out(place), ...hub, place]);
        for (const place of places) found.push([...hub, ...into(place), before[0]]);
      } else for (const start of before) for (const end of places) found.push([...out(start), ...into(end), start]);
    });
    for (const [start, end] of compensations) found.push([...out(start), ...into(end), -1]);
    return found;
  }
  const state = (place) => STATES[graph.states[place]] || "plain";
  function readColours() {
    const style = getComputedStyle(root), value = (name) => style.getPropertyValue(name).trim();
    colours = { line: value("--line-strong"), plain: value("--line-strong"), waiting: value("--line-strong"), skipped: value("--line"), stopped: value("--canceled") };
    for (const name of ["running", "succeeded", "failed", "canceled"]) colours[name] = value(`--${name}`);
  }

  // Drawing

  function draw() {
    waiting = false;
    if (!graph) return;
    const { width, height } = pane.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const seen = { left: view.x, top: view.y, right: view.x + width / view.scale, bottom: view.y + height / view.scale };
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.setTransform(view.scale * ratio, 0, 0, view.scale * ratio, -view.x * view.scale * ratio, -view.y * view.scale * ratio);
    drawLines(seen);
    const visible = findVisible(seen), near = view.scale >= NEAR && visible.length <= MOST_BOXES;
    if (!near) drawBoxes(visible);
    linkBoxes(near ? visible : []);
    told.textContent = `${visible.length.toLocaleString()} of ${graph.names.length.toLocaleString()} steps shown, ${Math.max(1, Math.round(view.scale * 100))} %`;
  }
  const soon = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
  function findVisible({ left, top, right, bottom }) {
    const { x, y, box_width: wide, box_height: high } = graph, found = [];
    for (let place = 0; place < x.length; place++) if (x[place] + wide > left && x[place] < right && y[place] + high > top && y[place] < bottom) found.push(place);
    return found;
  }
  function drawLines({ left, top, right, bottom }) {
    pen.strokeStyle = colours.line;
    pen.lineWidth = Math.max(1.5, 0.6 / view.scale);
    pen.globalAlpha = Math.min(0.8, Math.max(0.15, view.scale * 2));
    pen.beginPath();
    let left_over = MOST_LINES;
    for (const [x1, y1, x2, y2] of lines) {
      if (Math.max(x1, x2) < left || Math.min(x1, x2) > right || Math.max(y1, y2) < top || Math.min(y1, y2) > bottom) continue;
      if (left_over-- === 0) break;
      const half = (x1 + x2) / 2;
      pen.moveTo(x1, y1);
      if (view.scale < 0.1) pen.lineTo(x2, y2);
      else pen.bezierCurveTo(half, y1, half, y2, x2, y2);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }
  // One path for each state, and no box smaller than a pixel.
  function drawBoxes(visible) {
    const wide = Math.max(graph.box_width, 1 / view.scale), high = Math.max(graph.box_height, 1 / view.scale), paths = {};
    for (const place of visible) (paths[state(place)] ||= new Path2D()).rect(graph.x[place], graph.y[place], wide, high);
    for (const [name, path] of Object.entries(paths)) { pen.fillStyle = colours[name]; pen.fill(path); }
  }
  function linkBoxes(places) {
    const wanted = new Set(places);
    for (const [place, link] of shown) if (!wanted.has(place) && !link.contains(document.activeElement)) { link.remove(); shown.delete(place); }
    for (const place of places) {
      let link = shown.get(place);
      if (!link) { link = buildBox(place); shown.set(place, link); layer.append(link); }
      if (link.dataset.state !== state(place)) showState(link, place);
    }
    layer.setAttribute("transform", `translate(${-view.x * view.scale} ${-view.y * view.scale}) scale(${view.scale})`);
  }
  const part = (name, fields, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [field, value] of Object.entries(fields)) made.setAttribute(field, value);
    made.textContent = text;
    return made;
  };
  const cut = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
  function buildBox(place) {
    const x = graph.x[place], y = graph.y[place], name = graph.names[place], key = graph.keys[graph.key[place]];
    const link = part("a", { href: root.dataset.link.replace("PLACE", place) }), at = graph.states ? 38 : 14;
    link.append(part("title", {}), part("rect", { x, y, width: graph.box_width, height: graph.box_height, rx: 9 }),
      part("text", { class: "name", x: x + at, y: y + 25 }, cut(name, 17)), part("text", { class: "of", x: x + at, y: y + 42 }, cut(key, 20)),
      part("g", { class: "state", transform: `translate(${x + 13} ${y + 20})` }));
    return link;
  }
  function showState(link, place) {
    const now = state(place), icon = root.querySelector(`template[data-icon="${now}"]`);
    link.dataset.state = now;
    link.setAttribute("class", `step ${now}`);
    link.firstChild.textContent = `${graph.names[place]}: ${graph.keys[graph.key[place]]}${graph.states ? `, ${now}` : ""}`;
    link.lastChild.replaceChildren(...(icon ? [icon.content.cloneNode(true)] : []));
  }

  // Moving

  const least = () => { const { width, height } = pane.getBoundingClientRect(); return Math.min(width / graph.width, height / graph.height, 1); };
  function fit() {
    const { width, height } = pane.getBoundingClientRect(), scale = least();
    view = { scale, x: (graph.width - width / scale) / 2, y: (graph.height - height / scale) / 2 };
    fitted = true;
    soon();
  }
  function zoom(factor, at = null) {
    const { width, height } = pane.getBoundingClientRect(), [px, py] = at || [width / 2, height / 2];
    const scale = Math.min(LARGEST, Math.max(least(), view.scale * factor));
    view = { scale, x: view.x + px / view.scale - px / scale, y: view.y + py / view.scale - py / scale };
    fitted = false;
    soon();
  }
  function pan(dx, dy) {
    view.x += dx / view.scale;
    view.y += dy / view.scale;
    fitted = false;
    soon();
  }
  const KEYS = { "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: fit, ArrowLeft: () => pan(-80, 0), ArrowRight: () => pan(80, 0), ArrowUp: () => pan(0, -80), ArrowDown: () => pan(0, 80) };
  pane.addEventListener("keydown", (event) => {
    if (!graph || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-zoom]");
    if (graph && button) ({ in: () => zoom(1.5), out: () => zoom(1 / 1.5), fit })[button.dataset.zoom]();
  });
  // The wheel scrolls the page until the graph has the focus; a pinch on a trackpad is a wheel with Ctrl.
  pane.addEventListener("wheel", (event) => {
    if (!graph || !(event.ctrlKey || event.metaKey || pane.contains(document.activeElement))) return;
    event.preventDefault();
    const frame = pane.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / (event.ctrlKey ? 100 : 400)), [event.clientX - frame.left, event.clientY - frame.top]);
  }, { passive: false });
  // A box that has the focus is brought into the window.
  layer.addEventListener("focusin", () => pane.scrollTo(0, 0));

  const fingers = new Map();
  let moved = 0;
  pane.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, [event.clientX, event.clientY]); moved = 0; });
  addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!graph || !before) return;
    const now = [event.clientX, event.clientY], other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    fingers.set(event.pointerId, now);
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    if (moved > 4) pane.classList.add("dragged");
    const apart = (one) => Math.hypot(one[0] - other[0], one[1] - other[1]), frame = pane.getBoundingClientRect();
    if (other) zoom(apart(now) / Math.max(1, apart(before)), [(now[0] + other[0]) / 2 - frame.left, (now[1] + other[1]) / 2 - frame.top]);
    else pan(before[0] - now[0], before[1] - now[1]);
  });
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, (event) => { fingers.delete(event.pointerId); pane.classList.remove("dragged"); });
  // a drag that ends on a step does not open it
  pane.addEventListener("click", (event) => { if (moved > 4) event.preventDefault(); }, true);
  pane.addEventListener("dragstart", (event) => event.preventDefault());

  // Live

  document.addEventListener("fairlead:refreshed", async () => {
    if (!graph || !root.dataset.states) return;
    const answer = await fetch(root.dataset.states);
    if (!answer.ok) return;
    graph.states = await answer.text();
    soon();
  });
  document.addEventListener("fairlead:theme", () => { readColours(); soon(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); soon(); });
  new ResizeObserver(() => { if (graph) fitted ? fit() : soon(); }).observe(pane);
  load();
})();
