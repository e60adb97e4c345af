"use strict";
// Asks whatif.json's counts for a threshold. Everything that is shown is set as text, never as markup.
(() => {
  const held = JSON.parse(document.getElementById("whatif-data").textContent);
  const part = (name) => document.getElementById(`whatif-${name}`);
  const panel = part("panel"), rules = part("rule"), unit = part("unit"), at = part("at"), curve = part("curve");
  const units = held.tokens ? ["documents", "bytes", "tokens"] : ["documents", "bytes"];
  const LEFT = 52, RIGHT = 12, TOP = 14, BOTTOM = 52, HEIGHT = 268, THUMB = 8;
  let WIDTH = 640; // of the curve, as the window allows, so that its letters stay legible

  const make = (name, attributes = {}, text = "") => {
    const svg = ["path", "line", "circle", "text", "polyline"].includes(name);
    const found = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    found.textContent = text;
    return found;
  };
  const whole = (value) => value.toLocaleString("en-US");
  const short = (value) => {
    for (const [size, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (value >= size) return `${Number((value / size).toPrecision(3))}\u00a0${name}`;
    }
    return whole(value);
  };
  const written = (value, of) => (of === "bytes" ? `${short(value)}${value < 1000 ? "\u00a0B" : "B"}` : whole(value));
  const change = (value, of) => (value === 0 ? "–" : `${value < 0 ? "−" : "+"}${written(Math.abs(value), of)}`);

  const rule = () => held.rules[Number(rules.value)];
  let place = 0; // of the threshold among those that were asked about
  const across = (share) => LEFT + (WIDTH - LEFT - RIGHT) * share;
  const x = (of, index) => across(of.places[index]);
  const nearest = (of, share) => of.places.reduce((best, own, index) => (Math.abs(own - share) < Math.abs(of.places[best] - share) ? index : best), 0);
  const y = (of, value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / Math.max(1, of.in[unit.value]);

  const draw = () => {
    const of = rule(), kept = of.kept[unit.value];
    WIDTH = Math.min(640, Math.max(260, curve.parentElement.clientWidth - 30));
    curve.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    at.style.marginLeft = `${(100 * (LEFT - THUMB)) / WIDTH}%`;
    at.style.width = `${(100 * (WIDTH - LEFT - RIGHT + 2 * THUMB)) / WIDTH}%`;
    while (curve.childElementCount > 1) curve.lastElementChild.remove();
    for (const share of [0, 0.5, 1]) {
      const value = Math.round(of.in[unit.value] * share), here = y(of, value);
      curve.append(make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: here, y2: here, stroke: "var(--grid)" }));
      curve.append(make("text", { x: LEFT - 8, y: here + 4, "text-anchor": "end", class: "tick" }, short(value)));
    }
    let free = 0; // from here on nothing is written yet
    for (const [label, share] of of.ticks) {
      const here = across(share), half = label.length * 3.6, middle = Math.min(here, WIDTH - half);
      curve.append(make("line", { x1: here, x2: here, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4, stroke: "var(--muted)" }));
      if (middle - half < free) continue;
      free = middle + half + 8;
      curve.append(make("text", { x: middle, y: HEIGHT - BOTTOM + 17, "text-anchor": "middle", class: "tick" }, label));
    }
    const axis = `${of.key.split(".").pop()}${of.scale === "log" ? " (logarithmic scale)" : ""}`;
    curve.append(make("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "tick" }, axis));
    if (of.now !== null) {
      const here = x(of, of.now), side = here > WIDTH / 2 ? "end" : "start";
      const line = { x1: here, x2: here, y1: TOP, y2: HEIGHT - BOTTOM, stroke: "var(--orange)", "stroke-dasharray": "5 3" };
      curve.append(make("line", line));
      const beside = here + (side === "end" ? -5 : 5);
      curve.append(make("text", { x: beside, y: HEIGHT - BOTTOM - 6, "text-anchor": side, class: "tick now" }, `now ${of.points[of.now]}`));
    }
    const points = kept.map((value, index) => `${x(of, index).toFixed(1)},${y(of, value).toFixed(1)}`).join(" ");
    curve.append(make("polyline", { points, fill: "none", stroke: "var(--blue)", "stroke-width": 2 }));
    const here = { x1: x(of, place), x2: x(of, place), y1: TOP, y2: HEIGHT - BOTTOM, stroke: "var(--ink)" };
    curve.append(make("line", here));
    curve.append(make("circle", { cx: x(of, place), cy: y(of, kept[place]), r: 5, fill: "var(--blue)", stroke: "var(--ground)", "stroke-width": 2 }));
  };

  const row = (title, kept, before, place, heading) => {
    const out = make("tr");
    out.append(make("th", { scope: "row", class: heading ? "" : "plain" }, title));
    for (const of of units) {
      out.append(make("td", { class: "n" }, written(kept[of][place], of)));
      out.append(make("td", { class: "n" }, change(kept[of][place] - before[of], of)));
    }
    return out;
  };

  const show = () => {
    const of = rule(), value = of.points[place], rows = part("rows");
    at.value = of.places[place];
    draw();
    const first = row("All", of.kept, of.before, place, true);
    rows.replaceChildren(first);
    for (const group of of.groups) {
      group.names.forEach((name, index) => {
        const pick = (counts) => Object.fromEntries(units.map((one) => [one, counts[one][index]]));
        rows.append(row(`${group.title}: ${name}`, pick(group.kept), pick(group.before), place, false));
      });
    }
    const documents = of.kept.documents[place];
    const said = `${of.key} = ${value} keeps ${whole(documents)} of ${whole(of.in.documents)} documents`;
    part("value").textContent = `${said}${place === of.now ? ", as it is set now" : ""}.`;
    part("spoken").textContent = `${unit.value} kept over the threshold; ${said}`;
    at.setAttribute("aria-valuetext", `${value}: ${whole(documents)} documents`);
    part("command").textContent = `crawl2llm whatif ${of.key}=${value}${held.variant === "main" ? "" : ` --variant ${held.variant}`}`;
    part("edit").textContent = of.key.split(".").map((name, depth, all) => `${"  ".repeat(depth)}${name}:${depth === all.length - 1 ? ` ${value}` : ""}`).join("\n");
    part("now").disabled = of.now === null || place === of.now;
  };

  const choose = () => {
    const of = rule();
    place = of.now === null ? 0 : of.now;
    part("title").textContent = of.key;
    part("about").textContent = of.about.join(" ");
    show();
  };

  let group = null;
  held.rules.forEach((of, index) => {
    if (!group || group.label !== of.step) {
      group = make("optgroup", { label: of.step });
      rules.append(group);
    }
    group.append(make("option", { value: index }, of.key.replace(".select.", ": ")));
  });
  rules.addEventListener("change", choose);
  unit.addEventListener("change", show);
  const set = (index) => { place = Math.min(rule().points.length - 1, Math.max(0, index)); show(); };
  at.addEventListener("input", () => set(nearest(rule(), Number(at.value))));
  const far = 10, steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -far, PageUp: far, Home: -Infinity, End: Infinity };
  at.addEventListener("keydown", (event) => { // from threshold to threshold: they are not evenly far apart
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    set(place + steps[event.key]);
  });
  part("now").addEventListener("click", () => { set(rule().now); at.focus(); });
  const drag = (event) => {
    const box = curve.getBoundingClientRect(), here = ((event.clientX - box.left) * WIDTH) / box.width;
    set(nearest(rule(), (here - LEFT) / (WIDTH - LEFT - RIGHT)));
  };
  curve.addEventListener("pointerdown", (event) => { curve.setPointerCapture(event.pointerId); drag(event); });
  curve.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
  window.addEventListener("resize", draw);
  panel.hidden = false;
  choose();
})();
