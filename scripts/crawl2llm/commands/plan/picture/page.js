// The page of a plan: layouts, zoom, filter, walking by keys, and the details of a step. Texts are only ever set as text.
"use strict";
(() => {
  const { boxes, layouts, variants } = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const plan = $("plan"), heads = $("heads"), scroll = $("scroll"), details = $("details");
  const phone = matchMedia("(max-width: 760px)");
  const SMALLEST = 0.8; // a picture is scrolled before its words are too small to read
  const elements = Object.fromEntries(Object.keys(boxes).map((id) => [id, $(id)]));
  let layout = null, zoom = 1, fitted = true, current = null, chosen = null;

  // Layouts and zoom
  function arrange() {
    const shape = phone.matches && layouts.tall ? "tall" : "wide";
    layout = layouts[shape + ($("edges").checked ? "-all" : "")];
    const name = Object.keys(layouts).find((key) => layouts[key] === layout);
    for (const layer of document.querySelectorAll(".layer")) layer.classList.toggle("shown", layer.dataset.layout === name);
    for (const [id, [x, y]] of Object.entries(layout.at)) elements[id].setAttribute("transform", `translate(${x} ${y})`);
    plan.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    if (heads) heads.setAttribute("viewBox", `0 0 ${layout.width} 34`);
    if (fitted) fit(); else resize(zoom);
  }
  function resize(wanted) {
    zoom = Math.min(2.5, Math.max(0.25, wanted));
    plan.style.width = `${layout.width * zoom}px`;
    plan.style.height = `${layout.height * zoom}px`;
    if (heads) { heads.style.width = plan.style.width; heads.style.height = `${34 * zoom}px`; }
  }
  function fit() {
    fitted = true;
    resize(Math.max(SMALLEST, Math.min(1, scroll.clientWidth / layout.width)));
  }
  function zoomed(sign) {
    if (sign === "0") return fit();
    fitted = false;
    resize(sign === "+" ? zoom * 1.2 : zoom / 1.2);
  }

  // Walking: one box is in the order of Tab, the arrow keys move from it
  function focus(id, silent) {
    if (current) elements[current].setAttribute("tabindex", "-1");
    current = id;
    elements[id].setAttribute("tabindex", "0");
    if (!silent) { elements[id].focus({ preventScroll: true }); reveal(elements[id]); }
  }
  function reveal(box) {
    const at = box.getBoundingClientRect(), low = phone.matches && !details.hidden ? innerHeight * 0.4 : innerHeight;
    const frame = scroll.getBoundingClientRect(), top = phone.matches ? 0 : frame.top + (heads ? 34 * zoom : 0);
    const down = at.top < top + 12 ? at.top - top - 40 : at.bottom > low - 12 ? at.bottom - low + 40 : 0;
    (phone.matches ? window : scroll).scrollBy(0, down);
    if (at.left < frame.left + 12) scroll.scrollBy(at.left - frame.left - 40, 0);
    if (at.right > frame.right - 12) scroll.scrollBy(at.right - frame.right + 40, 0);
  }
  const shown = (id) => !elements[id].classList.contains("hidden");
  function neighbour(key) {
    const across = key === "ArrowLeft" || key === "ArrowRight" ? 0 : 1;
    const sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
    const here = layout.at[current];
    let best = null, least = Infinity;
    for (const [id, at] of Object.entries(layout.at)) {
      const along = (at[across] - here[across]) * sign, aside = Math.abs(at[1 - across] - here[1 - across]);
      if (along <= 0 || !shown(id)) continue;
      const cost = along + aside * (across ? 0.5 : 4);
      if (cost < least) [best, least] = [id, cost];
    }
    return best;
  }

  // Details
  function element(tag, text, ...children) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    made.append(...children);
    return made;
  }
  function section(title, items) {
    return items.length ? [element("h3", title), element("ul", "", ...items)] : [];
  }
  function link(id) {
    const box = boxes[id], button = element("button", box.step + (variants > 1 ? ` (${box.variant})` : ""));
    button.type = "button";
    button.addEventListener("click", () => { focus(id); choose(id); });
    return element("li", "", button);
  }
  function choose(id) {
    const box = boxes[id];
    leave();
    chosen = id;
    const near = new Set([...box.reads, ...box.readers]);
    plan.classList.add("choosing");
    elements[id].classList.add("chosen");
    elements[id].setAttribute("aria-expanded", "true");
    for (const other of near) elements[other].classList.add("near");
    for (const edge of plan.querySelectorAll(".edge")) edge.classList.toggle("on", edge.dataset.from === id || edge.dataset.to === id);
    const badge = element("p", "", element("span", box.words)), icon = document.querySelector(`.state.${box.state} svg`);
    badge.className = `badge ${box.state}`;
    if (icon) badge.prepend(icon.cloneNode(true));
    const lines = box.reasons.map(([words, tasks]) => element("li", words + (tasks > 1 ? ` (${tasks.toLocaleString("en")} tasks)` : "")));
    $("inside").replaceChildren(
      element("h2", box.step), badge,
      element("p", [variants > 1 ? `variant ${box.variant}` : "", box.amount].filter(Boolean).join(", ")),
      ...(box.cost ? [element("p", `about ${box.cost}`)] : []),
      ...section("Why", lines),
      ...section("All that differs from what its results were made with", box.changes.map((words) => element("li", words))),
      ...section("What differs from main", box.differs.map((words) => element("li", words))),
      ...section("Reads", box.reads.map(link)),
      ...section("Is read by", box.readers.map(link)),
    );
    details.hidden = false;
    details.scrollTop = 0;
    reveal(elements[id]);
  }
  function leave() {
    for (const box of plan.querySelectorAll(".near, .chosen")) { box.classList.remove("near", "chosen"); box.setAttribute("aria-expanded", "false"); }
    for (const edge of plan.querySelectorAll(".edge.on")) edge.classList.remove("on");
    plan.classList.remove("choosing");
    chosen = null;
  }
  function close() {
    const last = chosen;
    leave();
    details.hidden = true;
    if (last) focus(last);
  }

  // Filter by words and by state
  function filter() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const states = [...document.querySelectorAll(".state[aria-pressed=true]")].map((button) => button.dataset.state);
    let number = 0;
    for (const [id, box] of Object.entries(boxes)) {
      const text = [box.step, box.variant, ...box.reasons.map(([reason]) => reason)].join(" ").toLowerCase();
      const fits = words.every((word) => text.includes(word)) && (!states.length || states.includes(box.state));
      elements[id].classList.toggle("hidden", !fits);
      if (fits) number += 1;
    }
    const filtering = words.length > 0 || states.length > 0;
    plan.classList.toggle("filtering", filtering);
    $("count").textContent = filtering ? `${number} of ${Object.keys(boxes).length} steps` : "";
    const first = Object.keys(boxes).find(shown);
    if (!first || !filtering) return;
    focus(first, true);
    // On a phone the page itself would scroll away from what is typed.
    if (!phone.matches || document.activeElement !== $("search")) reveal(elements[first]);
  }

  // Events
  for (const [id, box] of Object.entries(elements)) {
    box.setAttribute("tabindex", "-1");
    box.setAttribute("aria-expanded", "false");
    box.addEventListener("click", () => { focus(id); chosen === id ? close() : choose(id); });
  }
  $("first").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    let next = null;
    if (event.key.startsWith("Arrow")) next = neighbour(event.key);
    else if (event.key === "Home") next = Object.keys(boxes).find(shown);
    else if (event.key === "End") next = Object.keys(boxes).findLast(shown);
    else if (event.key === "Enter" || event.key === " ") choose(current);
    else return;
    event.preventDefault();
    if (!next) return;
    focus(next);
    if (chosen) choose(next);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === $("search");
    if (event.key === "Escape") {
      if (!details.hidden) close();
      else {
        $("search").value = "";
        for (const button of document.querySelectorAll(".state")) button.setAttribute("aria-pressed", "false");
        filter();
      }
    } else if (typing) {
      if (event.key === "Enter" && shown(current)) focus(current); // and a phone shows it
    } else if (event.key === "/") { event.preventDefault(); $("search").focus(); }
    else if (event.key === "e") { $("edges").checked = !$("edges").checked; arrange(); }
    else if (["+", "=", "-", "−", "0"].includes(event.key)) zoomed({ "=": "+", "−": "-" }[event.key] || event.key);
  });
  $("search").addEventListener("input", filter);
  $("edges").addEventListener("change", arrange);
  $("close").addEventListener("click", close);
  for (const button of document.querySelectorAll(".state")) {
    button.addEventListener("click", () => { button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true")); filter(); });
  }
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoomed(button.dataset.zoom));
  phone.addEventListener("change", arrange);
  addEventListener("resize", () => { if (fitted) fit(); });

  arrange();
  // The first thing to look at is what would run.
  focus(Object.keys(boxes).find((id) => ["runs", "missing"].includes(boxes[id].state)) || Object.keys(boxes)[0], true);
})();
