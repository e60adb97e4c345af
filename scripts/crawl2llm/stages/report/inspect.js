"use strict";
// Marks by key, kept in this browser under the digest of the verdicts, and saved as JSON Lines.
(() => {
  const body = document.body.dataset;
  const list = document.getElementById("list");
  const articles = [...list.querySelectorAll("article")];
  const byKey = new Map(articles.map((one) => [one.dataset.key, one]));
  const find = (id) => document.getElementById(id);
  const search = find("search"), view = find("view"), marked = find("marked"), help = find("help");
  const choices = [...document.querySelectorAll("select[data-by]")];
  const place = `crawl2llm.marks.${body.filter}.${body.run}`;
  const FIELDS = ["id", "url", "filter", "rule", "verdict", "mark", "sample", "run", "variant", "time"];
  const texts = new Map(articles.map((one) => [one, one.textContent.toLowerCase()]));
  let marks = new Map();  // key of a document → its line of the file
  let elsewhere = [];  // lines of loaded files for documents that are not on this page: saved again
  let visible = [], unsaved = 0, current = null;  // current: the document that keys mark, outlined

  const many = (number, one, other) => `${number} ${number === 1 ? one : other}`;
  const say = (words) => { find("said").textContent = words; };
  const keyOf = (line) => `${line.verdict}|${line.verdict === "kept" ? "" : line.rule}|${line.id}`;

  function store() {
    try {
      localStorage.setItem(place, JSON.stringify([...marks.values(), ...elsewhere]));
    } catch {
      say("This browser keeps nothing for this page: save the marks as a file before you close it.");
    }
  }

  function take(lines) {
    let here = 0;
    for (const line of lines) {
      const key = keyOf(line);
      if (byKey.has(key)) {
        const before = marks.get(key);
        if (!before || String(before.time) <= String(line.time)) marks.set(key, line);
        here += 1;
      } else if (!elsewhere.some((other) => keyOf(other) === key && other.filter === line.filter && other.time === line.time)) {
        elsewhere.push(line);
      }
    }
    return here;
  }

  function usable(line) {
    return line !== null && typeof line === "object" && typeof line.id === "string" && typeof line.filter === "string"
      && ["kept", "dropped", "edited"].includes(line.verdict) && ["right", "wrong"].includes(line.mark);
  }

  function paint(one) {
    const line = marks.get(one.dataset.key);
    if (line) one.dataset.mark = line.mark; else delete one.dataset.mark;
    for (const button of one.querySelectorAll("button[data-mark]")) {
      button.setAttribute("aria-pressed", String(Boolean(line) && line.mark === button.dataset.mark));
    }
  }

  function mark(one, what) {
    const data = one.dataset, before = marks.get(data.key);
    if (!what || (before && before.mark === what)) marks.delete(data.key);
    else {
      const url = one.querySelector(".url").textContent;
      marks.set(data.key, {
        id: data.id, url: url === "no address" ? null : url, filter: body.filter, rule: data.rule || null, verdict: data.verdict,
        mark: what, sample: data.random === "" ? "near" : "random", run: body.run, variant: body.variant,
        time: new Date().toISOString(),
      });
    }
    unsaved += 1;
    store();
    paint(one);
    count();
  }

  function count() {
    const drawn = articles.filter((one) => one.dataset.random !== "");
    const done = drawn.filter((one) => one.dataset.mark);
    const wrong = articles.filter((one) => one.dataset.mark === "wrong").length;
    find("count").textContent = `${visible.length} of ${articles.length} documents · random sample: ${done.length} of ${drawn.length} marked`
      + ` · ${wrong} wrong${unsaved ? " · not saved to a file yet" : ""}`;
  }

  function choose(one) {
    if (current) current.removeAttribute("aria-current");
    current = one || null;
    if (current) current.setAttribute("aria-current", "true");
  }

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const order = view.value;
    const fits = (one) => (order === "all" || one.dataset[order] !== "")
      && choices.every((choice) => !choice.value || one.dataset[choice.dataset.by] === choice.value)
      && (!marked.value || (one.dataset.mark || "none") === marked.value)
      && words.every((word) => texts.get(one).includes(word));
    const sorted = order === "all" ? articles : [...articles].sort((a, b) => {
      const [x, y] = [a.dataset[order], b.dataset[order]].map((value) => (value === "" ? Infinity : Number(value)));
      return x === y ? 0 : x - y;
    });
    visible = sorted.filter(fits);
    const shown = new Set(visible);
    for (const one of articles) one.hidden = !shown.has(one);
    list.append(...sorted);
    choose(visible[0]);
    find("nothing").hidden = visible.length > 0 || !articles.length;
    count();
  }

  function go(by) {
    const at = visible.indexOf(current);
    const next = visible[at < 0 ? 0 : Math.min(visible.length - 1, Math.max(0, at + by))];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "start" });
  }

  function lines() {
    const found = [...articles.filter((one) => marks.has(one.dataset.key)).map((one) => marks.get(one.dataset.key)), ...elsewhere];
    return found.map((line) => `${JSON.stringify(line, FIELDS)}\n`).join("");
  }

  function save() {
    const text = lines(), link = document.createElement("a");
    find("lines").value = text;
    if (!text) {
      say("no marks yet");
      return;
    }
    link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
    link.download = `marks-${body.variant}-${body.filter}-${body.run}.jsonl`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    unsaved = 0;
    count();
    const number = text.split("\n").length - 1;
    say(`${many(number, "mark", "marks")} saved as ${link.download}`);
  }

  async function load(files) {
    let here = 0, bad = 0, other = 0;
    for (const file of files) {
      const found = [];
      for (const text of (await file.text()).split("\n")) {
        if (!text.trim()) continue;
        let line = null;
        try { line = JSON.parse(text); } catch { /* counted below */ }
        if (!usable(line)) bad += 1;
        else if (line.filter !== body.filter) other += 1;
        else found.push(line);
      }
      here += take(found);
    }
    store();
    articles.forEach(paint);
    show();
    say(`${many(here, "mark", "marks")} loaded; ${elsewhere.length} of documents that are not on this page ${elsewhere.length === 1 ? "stays" : "stay"} in the file`
      + (other ? `; ${other} of other filters left out` : "") + (bad ? `; ${many(bad, "line is no mark", "lines are no marks")}` : ""));
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const typing = event.target.closest("input, select, textarea");
    if (typing) {
      if (event.key === "Escape" && typing === search) { search.value = ""; show(); search.blur(); }
      return;
    }
    const one = current;
    const judge = (what) => {
      if (!one) return;
      mark(one, what);
      one.scrollIntoView({ block: "nearest" });
    };
    const keys = {
      j: () => go(1), ArrowDown: () => go(1), k: () => go(-1), ArrowUp: () => go(-1),
      x: () => judge("wrong"), o: () => judge("right"), u: () => judge(""),
      s: save, "?": () => help.showModal(), "/": () => search.focus(),
    };
    // In a long text the arrows scroll.
    if (event.key.startsWith("Arrow") && event.target.closest(".text")) return;
    if (Object.hasOwn(keys, event.key)) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  list.addEventListener("focusin", (event) => { if (event.target.closest("article")) choose(event.target.closest("article")); });
  list.addEventListener("click", (event) => {
    const one = event.target.closest("article"), button = event.target.closest("button[data-mark]");
    if (one) choose(one);
    if (one && button) mark(one, button.dataset.mark);
    if (one && !one.contains(document.activeElement)) one.focus({ preventScroll: true });
  });
  find("save").addEventListener("click", save);
  find("keys").addEventListener("click", () => help.showModal());
  find("load").addEventListener("change", (event) => load([...event.target.files]));
  search.addEventListener("input", show);
  for (const choice of [view, marked, ...choices]) choice.addEventListener("change", show);

  try {
    take(JSON.parse(localStorage.getItem(place) || "[]").filter(usable));
  } catch {
    say("This browser keeps nothing for this page: save the marks as a file before you close it.");
  }
  if (!articles.some((one) => one.dataset.near !== "")) view.value = "random";
  articles.forEach(paint);
  show();
})();
