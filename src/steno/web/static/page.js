// Conveniences of the page: live updates, keyboard, theme, slices of a conversation. Without it,
// every page can still be read.
"use strict";

const select = (query, root = document) => root.querySelector(query);
const selectAll = (query, root = document) => [...root.querySelectorAll(query)];
const body = document.body;

// -- live updates ------------------------------------------------------------------------------

let stream = null;
let activeRuns = null;

function connect() {
  if (!body.dataset.live) return;
  stream?.close();
  stream = new EventSource(body.dataset.live);
  stream.addEventListener("active", (event) => showActive(JSON.parse(event.data)));
  stream.addEventListener("requests", (event) => showRequests(JSON.parse(event.data).html));
  stream.addEventListener("steps", (event) => showSteps(JSON.parse(event.data)));
  stream.addEventListener("finished", () => {
    stream.close();
    setTimeout(() => location.reload(), 1000);
  });
  stream.onopen = () => {
    body.dataset.connected = "true";
    select("#notice").hidden = true;
  };
  stream.onerror = () => {
    body.dataset.connected = "false";
    if (stream.readyState === EventSource.CLOSED) explain();
  };
}

// The browser does not try again after a refusal, and does not give its reason to the page.
async function explain() {
  const control = new AbortController();
  const given = { signal: control.signal };
  const response = await fetch(body.dataset.live, given).catch(() => null);
  if (!response || response.ok) { // the server is gone, or there is room again
    control.abort();
    setTimeout(connect, 5000);
    return;
  }
  const notice = select("#notice");
  notice.textContent = (await response.text()).replace(/^steno: /, "");
  notice.hidden = false;
}

function showActive({ html, runs }) {
  const list = select("#active");
  if (list) list.innerHTML = html; // rendered and escaped by the server
  const before = activeRuns;
  activeRuns = runs;
  if (before && before.join() !== runs.join() && body.dataset.refresh) refresh();
}

// Not under the pointer or the cursor of someone who is about to decide.
function showRequests(html) {
  const list = select("#requests");
  if (!list) return;
  if (list.matches(":hover, :focus-within")) list.dataset.html = html;
  else list.innerHTML = html; // rendered and escaped by the server
}

for (const name of ["pointerout", "focusout"]) {
  document.addEventListener(name, () => setTimeout(() => {
    const list = select("#requests[data-html]");
    if (!list || list.matches(":hover, :focus-within")) return;
    list.innerHTML = list.dataset.html;
    delete list.dataset.html;
  }, 300));
}

// The figures of the page after a run has started or ended; a random delay spreads many browsers.
function refresh() {
  setTimeout(async () => {
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!response.ok || document.activeElement?.closest("form")) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const index = rows().indexOf(current());
    select("#main").replaceWith(select("#main", page));
    if (index >= 0) choose(rows()[index]);
    prepare();
  }, 500 + Math.random() * 1500);
}

function showSteps({ from, html }) {
  const list = select("#conversation .steps");
  if (!list) return location.reload();
  const steps = selectAll("[id^=step-]", list);
  const last = steps.length ? Number(steps.at(-1).id.slice(5)) : 0;
  if (from > last + 1) return location.reload(); // steps are missing in between
  const atEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 120;
  for (const step of steps) if (Number(step.id.slice(5)) >= from) step.remove();
  const part = new DOMParser().parseFromString(html, "text/html");
  list.append(...selectAll(".steps > *", part));
  if (atEnd) scrollTo({ top: document.documentElement.scrollHeight });
}

function tick() {
  for (const element of selectAll("[data-since]")) {
    const seconds = Math.max(0, Math.round((Date.now() - Number(element.dataset.since)) / 1000));
    const two = (number) => String(number).padStart(2, "0");
    const minutes = `${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
    element.textContent = seconds < 3600 ? minutes : `${Math.floor(seconds / 3600)}:${minutes}`;
  }
}

// After sleep a connection may be dead without an error: time has jumped, so connect again.
let lastTick = Date.now();
setInterval(() => {
  if (Date.now() - lastTick > 10000) connect();
  lastTick = Date.now();
  tick();
}, 1000);

// -- slices of a conversation --------------------------------------------------------------------

async function load(place, url) {
  const response = await fetch(url);
  if (!response.ok) return;
  const part = new DOMParser().parseFromString(await response.text(), "text/html");
  const list = select("#conversation .steps");
  if (list && place.matches(".more-steps")) {
    list.append(...selectAll(".steps > *", part));
    place.replaceWith(...selectAll("[data-more]", part).map((link) => link.parentElement));
  } else {
    place.replaceWith(...part.body.children);
  }
}

function prepare() {
  for (const link of selectAll("[data-load]")) load(link, link.dataset.load);
  for (const pick of selectAll(".filters select")) pick.onchange = () => pick.form.requestSubmit();
  for (const form of selectAll(".filters")) form.onsubmit = () => {
    for (const field of form.elements) field.disabled = field.name && !field.value;
  };
  openTarget();
  tick();
}

function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target?.matches("[id^=step-], [id^=line-]")) return;
  for (const fold of [target, ...selectAll("details", target)]) {
    if (fold.tagName === "DETAILS") fold.open = true;
  }
  target.scrollIntoView({ block: "center" });
  choose(target);
}

document.addEventListener("click", (event) => {
  const more = event.target.closest("[data-more]");
  if (more) {
    event.preventDefault();
    load(more.closest(".more-steps"), more.dataset.more);
    return;
  }
  const row = event.target.closest("tr[data-href], li[data-href]");
  if (row && !event.target.closest("a, input, button, summary, label") && !String(getSelection())) {
    location.href = row.dataset.href;
  }
});
addEventListener("hashchange", openTarget);

// -- theme -----------------------------------------------------------------------------------------

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `steno_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
}

// -- keyboard --------------------------------------------------------------------------------------

const rows = () => selectAll("[data-href], .steps > [id^=step-]");
const current = () => select(".chosen");

function choose(row) {
  if (!row) return;
  current()?.classList.remove("chosen");
  row.classList.add("chosen");
  row.scrollIntoView({ block: "nearest" });
}

function move(by) {
  const all = rows();
  const index = all.indexOf(current());
  choose(all[index < 0 ? (by > 0 ? 0 : all.length - 1) : index + by]);
}

function open() {
  const row = current();
  if (row?.dataset.href) location.href = row.dataset.href;
  else if (row) for (const fold of selectAll("details", row).slice(0, 1)) fold.open = !fold.open;
}

function follow(query) {
  select(query)?.click();
}

function mark() {
  const box = current() && select("input[type=checkbox]", current());
  if (box) box.checked = !box.checked;
}

function compare() {
  if (selectAll("input[name=id]:checked").length === 2) select("#compare")?.requestSubmit();
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  Enter: open,
  x: mark,
  c: compare,
  "/": () => select(".search input").focus(),
  f: () => (select(".filters select") ?? select(".spans a"))?.focus(),
  n: () => follow("[rel=next], [data-more]"),
  p: () => follow("[rel=prev]"),
  e: () => follow("[data-evidence]"),
  d: toggleTheme,
  "?": () => select("#shortcuts").showModal(),
};
let pending = "";

document.addEventListener("keydown", (event) => {
  const field = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && field) return field.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || field || select("dialog[open]")) return;
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  if (pending === "g") {
    pending = "";
    const link = select(`nav [data-go="${CSS.escape(event.key)}"]`);
    if (link) location.href = link.href;
    return;
  }
  pending = event.key === "g" ? "g" : "";
  if (Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

for (const [id, action] of [["theme", toggleTheme], ["help", KEYS["?"]]]) {
  const button = select(`#${id}`);
  button.hidden = false;
  button.onclick = action;
}
prepare();
connect();
