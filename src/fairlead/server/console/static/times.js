// Times in the reader's zone and format: relative, with the exact time on hover, focus and tap, or exact ones throughout.
"use strict";
(() => {
  const { one, all } = fairlead, html = document.documentElement, KEY = "fairlead-times";
  // the account may name a zone and a clock; otherwise the browser's
  const timeZone = html.dataset.timezone || undefined, hourCycle = html.dataset.hourCycle || undefined;
  const day = { month: "short", day: "numeric" }, clock = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  function format(fields, zone = timeZone) {
    try { return new Intl.DateTimeFormat(undefined, { ...fields, timeZone: zone, hourCycle }); }
    catch { return new Intl.DateTimeFormat(undefined, { ...fields, timeZone: zone === timeZone ? undefined : zone }); }  // a zone that this browser lacks
  }
  const WHOLE = format({ year: "numeric", ...day, ...clock, timeZoneName: "short" }), SHORT = format({ ...day, ...clock });
  const DATED = format({ year: "numeric", ...day, ...clock });
  // exact times in a zone that the page names, such as a trigger's: down to a second, hour, day or month
  const FIELDS = {
    second: { weekday: "short", year: "numeric", ...day, ...clock }, minute: { weekday: "short", year: "numeric", ...day, hour: "2-digit", minute: "2-digit" },
    short: { ...day, hour: "2-digit", minute: "2-digit" }, hour: { year: "numeric", ...day, hour: "2-digit", minute: "2-digit" },
    day: { year: "numeric", ...day }, month: { year: "numeric", month: "short" },
  };
  const formats = new Map();
  function formatIn(zone, parts) {
    const key = `${zone} ${parts}`;
    if (!formats.has(key)) formats.set(key, format(FIELDS[parts], zone));
    return formats.get(key);
  }

  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  function relative(seconds) {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const [unit, name] = UNITS.find(([unit]) => size >= unit);
    const text = `${Math.floor(size / unit)} ${name}`;
    return seconds > 0 ? `${text} ago` : `in ${text}`;
  }
  const exact = (at) => WHOLE.format(at);
  const brief = (at) => (at.getFullYear() === new Date().getFullYear() ? SHORT : DATED).format(at);
  const utc = (at) => `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;

  let shown = localStorage.getItem(KEY) === "exact" ? "exact" : "relative";
  function tick() {
    const now = Date.now();
    for (const time of all("time[data-moment]")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      const text = shown === "exact" ? brief(at) : relative((now - at) / 1000);
      if (time.textContent !== text) time.textContent = text;
      if (time.title) time.removeAttribute("title");
      // in long lists the button for exact times spares the keyboard hundreds of stops
      if (!time.hasAttribute("tabindex") && !time.closest("a, button, summary, tbody")) time.tabIndex = 0;
    }
    for (const time of all("time[data-exact]")) {
      const at = new Date(time.dateTime), { zone, exact: parts } = time.dataset;
      if (isNaN(at)) continue;
      const text = zone || parts === "short" ? formatIn(zone || timeZone, parts).format(at) : exact(at);
      if (time.textContent !== text) time.textContent = text;
    }
    for (const option of all("option[data-time]")) option.textContent = `${exact(new Date(option.dataset.time))} · ${option.dataset.word}`;
    for (const mark of all("[data-at]")) mark.title = `${mark.dataset.word}, ${exact(new Date(mark.dataset.at))}`;
  }

  // Fields for a time, in the reader's zone; a hidden field sends it in UTC.

  const zone = WHOLE.resolvedOptions().timeZone;
  const WALL = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", ...clock });
  const wall = (at) => WALL.format(at).replace(" ", "T");
  function fromWall(text) {
    const asUtc = Date.parse(`${text}Z`), shift = (at) => Date.parse(`${wall(new Date(at))}Z`) - at;
    // the offset may differ at the time itself: the clocks change
    return new Date(asUtc - shift(asUtc - shift(asUtc)));
  }
  for (const field of all("[data-zoned]")) {
    const shown = one("input[type=datetime-local]", field), sent = one("input[type=hidden]", field), at = new Date(sent.value);
    one("[data-zone-name]", field).textContent = ` (${zone})`;
    shown.value = sent.value && !isNaN(at) ? wall(at) : "";
    shown.addEventListener("change", () => { sent.value = shown.value ? fromWall(shown.value).toISOString() : ""; });
  }

  // The tooltip

  const tip = one("#tip");
  let over = null;
  function show(time) {
    if (over === time) return;
    hide();
    over = time;
    const at = new Date(time.dateTime);
    tip.textContent = `${exact(at)}\n${utc(at)}`;
    tip.hidden = false;
    time.setAttribute("aria-describedby", "tip");
    place();
  }
  function place() {
    const box = over.getBoundingClientRect(), own = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - own.width - 8))}px`;
    tip.style.top = `${box.top > own.height + 12 ? box.top - own.height - 6 : box.bottom + 6}px`;
  }
  function hide() {
    over?.removeAttribute("aria-describedby");
    over = null;
    tip.hidden = true;
  }
  const timeAt = (event) => event.target.closest?.("time[data-moment]");
  for (const name of ["mouseover", "focusin", "click"]) document.addEventListener(name, (event) => timeAt(event) ? show(timeAt(event)) : hide());
  // a focused time may have been scrolled into view
  addEventListener("scroll", () => over && over === document.activeElement ? place() : hide(), { capture: true, passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  function showButton() {
    one("[data-times-toggle]")?.setAttribute("aria-pressed", shown === "exact");
  }
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-times-toggle]")) return;
    shown = shown === "exact" ? "relative" : "exact";
    localStorage.setItem(KEY, shown);
    showButton();
    tick();
  });
  Object.assign(fairlead, { tick, exact });
  document.addEventListener("htmx:after:swap", tick);
  showButton();
  tick();
  setInterval(tick, 5000);
})();
