// Common to all pages: live updates, relative times, toasts, confirmation, keyboard shortcuts, selection.
"use strict";
(() => {
  const html = document.documentElement, one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const tell = (name, detail = {}) => document.dispatchEvent(new CustomEvent(`fairlead:${name}`, { detail }));

  // Times

  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  function relative(seconds) {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const [unit, name] = UNITS.find(([unit]) => size >= unit);
    const text = `${Math.floor(size / unit)} ${name}`;
    return seconds > 0 ? `${text} ago` : `in ${text}`;
  }
  function tick() {
    const now = Date.now();
    for (const time of all("time[data-moment]")) {
      const at = new Date(time.dateTime);
      const text = relative((now - at) / 1000);
      if (time.textContent !== text) time.textContent = text;
      if (!time.dataset.told) {
        time.dataset.told = "yes";
        time.title = `${at.toLocaleString()} here\n${at.toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC")}`;
      }
    }
  }

  // Toasts

  function toast({ text, kind = "", undo = null }) {
    const box = document.createElement("div"), words = document.createElement("p");
    box.className = `toast ${kind}`;
    words.textContent = text;
    box.append(words);
    if (undo) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Undo";
      button.addEventListener("click", () => { box.remove(); post(undo); });
      box.append(button);
    }
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => box.remove());
    box.append(close);
    one("#toasts").append(box);
    while (one("#toasts").children.length > 4) one("#toasts").firstElementChild.remove();
    if (kind !== "error") setTimeout(() => box.remove(), undo ? 10000 : 6000);
  }
  const post = (url) => htmx.ajax("POST", url, { source: document.body, swap: "none" });
  addEventListener("fairlead:toast", (event) => toast(event.detail));
  addEventListener("htmx:error", () => setState("stale"));

  // Live: when the socket announces a change, the parts of the page with data-live are fetched again.

  let wanted = false, busy = false, last = 0, pause = 1000, timer = null, socket = null, tries = 0, cursor = null;
  const PAUSE = 1000, WORDS = { live: "live", reconnecting: "reconnecting…", stale: "not up to date", off: "not live" };

  function setState(state) {
    const shown = one("[data-live-state]");
    if (!shown || shown.dataset.liveState === state) return;
    shown.dataset.liveState = state;
    one("[data-live-word]").textContent = WORDS[state];
  }
  function soon() {
    wanted = true;
    if (timer === null && !busy) timer = setTimeout(refresh, Math.max(0, last + pause - Date.now()));
  }
  async function refresh() {
    timer = null;
    if (!one("[data-live]") || document.hidden) return;
    if (one("dialog[open]")) { timer = setTimeout(refresh, PAUSE); return; }
    wanted = false; busy = true; last = Date.now();
    const url = new URL(location.href), top = one("[data-top]");
    if (top) url.searchParams.set("top", top.dataset.top);
    try {
      const answer = await fetch(url, { headers: { "X-Refresh": "1" } });
      if (answer.redirected && answer.url.includes("/sign-in")) { location.reload(); return; }
      if (!answer.ok) throw new Error(answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of all("[data-live]")) {
        const other = fresh.getElementById(part.id);
        if (other) await htmx.swap({ target: part, sourceElement: part, text: other.outerHTML, swap: "outerMorph", transition: false });
      }
      tick();
      tell("refreshed");
      if (socket?.readyState === WebSocket.OPEN) setState("live");
    } catch { setState("stale"); }
    // a slow page is fetched less often
    pause = Math.min(10000, Math.max(PAUSE, 5 * (Date.now() - last)));
    busy = false; last = Date.now();
    if (wanted) soon();
  }
  function connect() {
    const url = new URL(`${html.dataset.api}/live`, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    if (html.dataset.tenant) url.searchParams.set("tenant", html.dataset.tenant);
    if (cursor) url.searchParams.set("since", cursor);
    socket = new WebSocket(url);
    socket.addEventListener("message", (event) => {
      const frame = JSON.parse(event.data);
      cursor = frame.cursor || cursor;
      // a running job may have ended between the page load and the socket's hello
      if (frame.type === "hello") { tries = 0; setState("live"); if (wanted || one("[data-unfinished]")) soon(); return; }
      if (frame.type === "heartbeat") return;
      document.dispatchEvent(new CustomEvent("fairlead:frame", { detail: frame }));
      soon();
    });
    socket.addEventListener("close", () => {
      setState("reconnecting");
      wanted = true;
      setTimeout(connect, Math.min(30000, 500 * 2 ** tries++) * (0.7 + 0.6 * Math.random()));
    });
  }
  document.addEventListener("fairlead:refresh", soon);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) soon(); });

  // Confirmation of destructive actions.

  // htmx confirms only elements with hx-confirm
  document.addEventListener("htmx:config:request", (event) => { event.detail.ctx.confirm ||= event.target.dataset?.confirm; });
  document.addEventListener("htmx:confirm", (event) => {
    const text = event.target.dataset?.confirm;
    if (!text) return;
    event.preventDefault();
    confirmed(text).then((yes) => yes ? event.detail.issueRequest(true) : event.detail.dropRequest?.());
  });
  function confirmed(text) {
    const dialog = one("#confirm");
    one("#confirm-text").textContent = text;
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
  }

  // Selection and bulk actions

  const chosen = new Set();
  function showChosen() {
    for (const box of all("[data-tick]")) {
      box.checked = chosen.has(box.value);
    }
    const boxes = all("[data-tick]"), every = one("[data-all]");
    if (every) every.checked = boxes.length > 0 && boxes.every((box) => box.checked);
    // the state of jobs on other pages is unknown; the server reports those that it skipped
    const can = (action) => chosen.size > boxes.filter((box) => box.checked).length || boxes.some((box) => box.checked && box.dataset.can === action);
    for (const button of all("[data-selected]")) button.hidden = !can(button.dataset.selected);
    const count = one("[data-selected-count]");
    if (count) count.textContent = chosen.size ? `${chosen.size} selected` : "";
  }
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.matches("[data-tick]")) chosen[box.checked ? "add" : "delete"](box.value);
    else if (box.matches("[data-all]")) for (const other of all("[data-tick]")) chosen[box.checked ? "add" : "delete"](other.value);
    else return;
    showChosen();
  });
  const page = (path) => {
    const url = new URL(`${html.dataset.root}${path}`, location.href);
    url.search = location.search;
    for (const name of ["cursor", "top", "range"]) url.searchParams.delete(name);
    return url;
  };
  async function changeSelected(action) {
    if (action === "cancel" && !await confirmed(`Cancel ${chosen.size} selected job(s)?`)) return;
    htmx.ajax("POST", page(`/selected-jobs/${action}`).href, { source: document.body, swap: "none", values: { ids: [...chosen].join(",") } });
    chosen.clear();
    showChosen();
  }
  async function changeMatching(action) {
    all("details.more[open]").forEach((details) => details.removeAttribute("open"));
    const url = page(`/matching-jobs/${action}`), same = { headers: { "HX-Request": "true" } };
    const preview = await answered(await fetch(url, same));
    if (!preview) return;
    if (preview.count === 0) { toast({ text: `No job here can be ${action === "cancel" ? "canceled" : "retried"}.` }); return; }
    const many = `${preview.count.toLocaleString()}${preview.more ? " or more" : ""}`;
    if (!await confirmed(`${action === "cancel" ? "Cancel" : "Retry"} all ${many} matching jobs?`)) return;
    let done = 0, skipped = 0, more = true;
    while (more) {
      const did = await answered(await fetch(url, { method: "POST", ...same }));
      if (!did) return;
      done += did.count; skipped += did.skipped; more = did.more && did.count > 0;
      one("[data-selected-count]").textContent = `${done.toLocaleString()} of ${many}…`;
    }
    showChosen();
    toast({ text: `${action === "cancel" ? "Canceled" : "Queued again"}: ${done.toLocaleString()}.${skipped ? ` ${skipped.toLocaleString()} could not be.` : ""}` });
    soon();
  }
  async function answered(answer) {
    if (answer.ok) return answer.json();
    const events = JSON.parse(answer.headers.get("HX-Trigger") || "{}");
    toast(events["fairlead:toast"] || { text: "That did not work. Try again.", kind: "error" });
    return null;
  }

  // Clicks

  document.addEventListener("click", (event) => {
    const on = (selector) => event.target.closest(selector);
    let found;
    if ((found = on("[data-copy]"))) navigator.clipboard.writeText(found.dataset.copy).then(() => toast({ text: "Copied." }), () => toast({ text: "This browser does not let us copy: select the text instead.", kind: "error" }));
    else if ((found = on("[data-selected]"))) changeSelected(found.dataset.selected);
    else if ((found = on("[data-matching]"))) changeMatching(found.dataset.matching);
    else if (on("[data-theme-toggle]")) {
      const dark = html.dataset.theme ? html.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      html.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("fairlead-theme", html.dataset.theme);
      tell("theme");
    } else if ((found = on("[data-menu]"))) {
      const open = one("#nav").classList.toggle("open");
      found.setAttribute("aria-expanded", open);
    } else if (on("[data-keys]")) one("#keys").showModal();
    else if ((found = on("[data-open]"))) one(found.dataset.open).showModal();
    else if (!on("details.more")) all("details.more[open]").forEach((details) => details.removeAttribute("open"));
  });
  document.addEventListener("change", (event) => { if (event.target.matches("[data-filters] select")) event.target.form.requestSubmit(); });

  // Keys

  let focused = null;
  function move(step) {
    const rows = all("[data-rows] tbody tr");
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.id === focused);
    const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
    focused = next.id;
    showFocus();
    next.scrollIntoView({ block: "nearest" });
  }
  function showFocus() {
    for (const row of all("[data-rows] tbody tr")) row.classList.toggle("focus", row.id === focused);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    const row = focused && document.getElementById(focused);
    const act = (key) => one(`[data-key="${key}"]`, row || one("main"))?.click();
    const known = {
      "/": () => one("[data-search]")?.focus(), j: () => move(1), k: () => move(-1), "?": () => one("#keys").showModal(),
      x: () => row && one("[data-tick]", row)?.click(), r: () => act("r"), c: () => act("c"),
    };
    if (event.key === "Enter" && row?.dataset.href && !event.target.closest("a, button, summary")) location.href = row.dataset.href;
    else if (known[event.key]) { event.preventDefault(); known[event.key](); }
  });

  // The tenants that a super admin may choose: fetched on demand.

  async function offerTenants(event) {
    const list = one("#tenant-list");
    if (list.children.length) return;
    const answer = await fetch(`${html.dataset.api}/tenants?limit=1000`);
    if (answer.ok) for (const tenant of (await answer.json()).items) list.append(new Option(tenant.slug));
  }
  one("[data-tenants]")?.addEventListener("focus", offerTenants);
  one("[data-tenants]")?.addEventListener("change", (event) => event.target.form.requestSubmit());

  document.addEventListener("fairlead:refreshed", () => { showChosen(); showFocus(); });
  tick();
  setInterval(tick, 5000);
  const left = one("#toasts").dataset.flash;
  if (left) { toast({ text: left }); document.cookie = "fairlead_flash=; max-age=0; path=/; samesite=strict"; }
  connect();
})();
