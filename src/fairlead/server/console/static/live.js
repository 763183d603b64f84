// Live updates: when the socket announces a change, the page asks for its parts with data-live, and gets those that changed.
"use strict";
(() => {
  const { one, all, tell, toast } = fairlead, html = document.documentElement;
  const PAUSE = 1000, SELDOM = 10000, WORDS = { live: "live", reconnecting: "reconnecting…", stale: "not up to date", off: "not live" };
  let wanted = false, busy = false, last = 0, pause = PAUSE, timer = null, socket = null, tries = 0, cursor = null, over = false;
  const known = {};  // by id: the hash of the part that is shown

  function setState(state) {
    const shown = one("[data-live-state]");
    if (!shown || shown.dataset.liveState === state) return;
    shown.dataset.liveState = state;
    one("[data-live-word]").textContent = WORDS[state];
  }
  // on a page where only the banner is live, changes of jobs matter little
  const calm = () => all("[data-live]").every((part) => part.id === "pause-notice");
  function soon() {
    wanted = true;
    if (timer === null && !busy) timer = setTimeout(refresh, Math.max(0, last + pause - Date.now()));
  }
  async function refresh() {
    timer = null;
    if (over || !one("[data-live]") || document.hidden) return;
    if (one("dialog[open]")) { timer = setTimeout(refresh, PAUSE); return; }
    wanted = false; busy = true; last = Date.now();
    try {
      if (!await fetchParts()) return;
      fairlead.tick();
      tell("refreshed");
      if (socket?.readyState === WebSocket.OPEN) setState("live");
    } catch { setState("stale"); }
    // a slow page is fetched less often
    pause = Math.min(10000, Math.max(PAUSE, 5 * (Date.now() - last)));
    busy = false; last = Date.now();
    if (wanted) soon();
  }
  async function fetchParts() {
    const url = new URL(location.href), top = one("[data-top]");
    if (top) url.searchParams.set("top", top.dataset.top);
    const parts = all("[data-live]").map((part) => `${part.id}=${known[part.id] || ""}`).join(",");
    const answer = await fetch(url, { headers: { "X-Live-Parts": parts } });
    if (answer.redirected && answer.url.includes("/sign-in")) { signedOut(); return false; }
    if (!answer.ok) throw new Error(answer.status);
    if (answer.status === 204) return true;
    for (const [id, { hash, html: text }] of Object.entries(await answer.json())) {
      const part = document.getElementById(id);
      if (part) await htmx.swap({ target: part, sourceElement: part, text, swap: "outerMorph", transition: false });
      known[id] = hash;
    }
    return true;
  }
  function signedOut() {
    over = true;
    setState("off");
    if (!fairlead.hasDraft?.()) { location.reload(); return; }
    // what was typed is kept by drafts.js; the reader decides when to leave the form
    toast({ text: "Your session has ended. Sign in to go on: what you typed is kept.", kind: "error", link: { text: "Sign in", href: location.href } });
  }
  function connect() {
    const url = new URL(`${html.dataset.api}/live`, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.searchParams.set("brief", "true");  // that something changed is enough: the page asks for its parts
    if (html.dataset.tenant) url.searchParams.set("tenant", html.dataset.tenant);
    if (cursor) url.searchParams.set("since", cursor);
    socket = new WebSocket(url);
    socket.addEventListener("message", (event) => {
      const frame = JSON.parse(event.data);
      cursor = frame.cursor || cursor;
      // a running job may have ended between the page load and the socket's hello
      if (frame.type === "hello") { tries = 0; setState("live"); if (wanted || one("[data-unfinished]")) soon(); return; }
      if (frame.type === "heartbeat") return;
      if (frame.type === "gate.changed" || !calm() || Date.now() - last > SELDOM) soon();
    });
    socket.addEventListener("close", () => {
      if (over) return;
      setState("reconnecting");
      wanted = true;
      setTimeout(connect, Math.min(30000, 500 * 2 ** tries++) * (0.7 + 0.6 * Math.random()));
    });
  }
  document.addEventListener("fairlead:refresh", soon);
  document.addEventListener("fairlead:stale", () => setState("stale"));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) soon(); });
  fairlead.soon = soon;
  connect();
})();
