// Keeps a page up to date: rows of the overview come with the events, all other parts are fetched
// again when something has changed. Without this script, the pages show what was when they loaded.
"use strict";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const skew = Number(document.body.dataset.now) - Date.now();
const REST_MS = 1000;
const ASK_AGAIN_MS = 15000;

function span(seconds) {
  const [size, unit] = UNITS.find(([size]) => seconds >= size) || [1, "s"];
  return `${Math.max(0, Math.floor(seconds / size))} ${unit}`;
}

function showTimes() {
  const now = Date.now() + skew;
  for (const each of document.querySelectorAll("time[data-since]")) {
    each.textContent = span((now - Number(each.dataset.since)) / 1000);
  }
  for (const each of document.querySelectorAll("time[data-due]")) {
    const seconds = (Number(each.dataset.due) - now) / 1000;
    each.textContent = seconds >= 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
  }
}

function say(text) {
  const live = document.getElementById("live");
  if (live.textContent !== text) live.textContent = text;
  live.hidden = false;
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

function place(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const active = document.activeElement;
  const href = old.contains(active) ? active.getAttribute("href") : null;
  old.replaceWith(fresh);
  if (href !== null) {
    for (const each of fresh.querySelectorAll("a[href]")) {
      if (each.getAttribute("href") === href) {
        each.focus({ preventScroll: true });
        break;
      }
    }
  }
}

function showRows(data) {
  document.getElementById("totals").replaceChildren(parsed(data.totals));
  const rows = new Map();
  for (const row of document.querySelectorAll("#queues tbody tr")) rows.set(row.dataset.queue, row);
  for (const [name, html] of Object.entries(data.rows)) {
    const row = rows.get(name);
    if (row) place(row, parsed(html).firstElementChild);
  }
  showTimes();
}

let fetching = false;
let again = false;

async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const parts = document.querySelectorAll("[data-live], #totals");
    const others = fresh.querySelectorAll("[data-live], #totals");
    if (parts.length === others.length && !String(getSelection())) {
      parts.forEach((part, n) => place(part, document.adoptNode(others[n])));
    }
    showTimes();
  } catch {
    say("not connected");
  }
  setTimeout(() => {
    fetching = false;
    if (again) {
      again = false;
      refresh();
    }
  }, REST_MS);
}

let source = null;

function follow() {
  const query = new URLSearchParams(location.search);
  const followed = document.getElementById("totals") || query.has("queue");
  if (source !== null || document.hidden || !followed) return;
  source = new EventSource(`${document.documentElement.dataset.events}?${query}`);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => {
    say("not connected");
    if (source !== null && source.readyState === EventSource.CLOSED) {
      // It was refused, and browsers do not ask again of themselves.
      source = null;
      setTimeout(follow, ASK_AGAIN_MS * (1 + Math.random()));
    }
  });
  source.addEventListener("rows", (event) => showRows(JSON.parse(event.data)));
  source.addEventListener("changed", refresh);
}

// A page that nobody sees costs nothing: its stream ends, and begins again with a fresh page.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    follow();
    refresh();
  } else if (source !== null) {
    source.close();
    source = null;
  }
});

addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

showTimes();
setInterval(showTimes, 1000);
follow();
const slow = document.querySelector("[data-every]");
if (slow) {
  setInterval(() => {
    if (!document.hidden && document.querySelector("[data-every]")) refresh();
  }, 1000 * Number(slow.dataset.every));
}
