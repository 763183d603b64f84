// The strip of firings: hours and times in the zone of the user's account or of the browser, and what fires at the time under the cursor.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg", HOUR = 3600, NEAR = 300;
  const chosen = document.documentElement.dataset, timeZone = chosen.timezone || undefined;
  const hourCycle = chosen.hourCycle || Intl.DateTimeFormat([], { hour: "numeric" }).resolvedOptions().hourCycle;
  const zone = timeZone || Intl.DateTimeFormat().resolvedOptions().timeZone || "your time zone";
  const write = (fields, locale = []) => { const format = new Intl.DateTimeFormat(locale, { timeZone, ...fields }); return (seconds) => format.format(seconds * 1000); };
  const clock = write({ hour: "2-digit", minute: "2-digit", hourCycle }), day = write({ weekday: "short" });
  const mark = /^h1[12]$/.test(hourCycle) ? write({ hour: "numeric", hourCycle }) : clock, exact = write({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" }, "en-GB");
  let at = null;

  // The time in the zone of a trigger, where its clocks differ from the reader's
  const zones = new Map();
  function writeIn(own) {
    const inZone = (fields) => { const format = new Intl.DateTimeFormat([], { ...fields, timeZone: own }); return (seconds) => format.format(seconds * 1000); };
    try { return { clock: inZone({ hour: "2-digit", minute: "2-digit", hourCycle }), day: inZone({ weekday: "short" }) }; }
    catch { return { clock, day }; }  // a zone that this browser lacks
  }
  function own(seconds, name) {
    if (!name) return "";
    if (!zones.has(name)) zones.set(name, writeIn(name));
    const there = zones.get(name), same = there.day(seconds) === day(seconds);
    return same && there.clock(seconds) === clock(seconds) ? "" : `${same ? "" : `${there.day(seconds)} `}${there.clock(seconds)} ${name}`;
  }

  const find = () => document.querySelector("[data-strip]");
  const bounds = (strip) => [Number(strip.dataset.start), Number(strip.dataset.end)];

  function show() {
    for (const place of document.querySelectorAll("span[data-zone]")) place.textContent = zone;
    for (const time of document.querySelectorAll("[data-clock]")) {
      const seconds = new Date(time.dateTime) / 1000;
      time.textContent = `${day(seconds)} ${clock(seconds)}`;
      const there = time.parentElement.querySelector("[data-own-zone]"), text = there && own(seconds, there.dataset.ownZone);
      if (there) there.textContent = text && `· ${text}`;
    }
    const strip = find();
    if (strip) { showHours(strip); point(); }
  }
  function showHours(strip) {
    const [start, end] = bounds(strip), hours = strip.querySelector("[data-hours]"), apart = hours.clientWidth < 600 ? 12 : 3, marks = [], places = [];
    for (let time = Math.ceil(start / HOUR) * HOUR; time < end; time += HOUR / 4) {
      const [hour, minute] = exact(time).split(":").map(Number);
      if (minute || hour % 3) continue;
      const x = `${(time - start) / (end - start) * 100}%`;
      places.push(x);
      if (hour % apart) continue;
      const text = document.createElementNS(SVG, "text");
      text.setAttribute("x", x);
      text.setAttribute("y", 13);
      if (!hour) text.setAttribute("class", "day");
      text.textContent = hour ? mark(time) : day(time);
      marks.push(text);
    }
    hours.replaceChildren(...marks);
    for (const row of strip.querySelectorAll("svg[data-label]")) row.querySelectorAll(".hour").forEach((line, number) => {
      for (const field of ["x1", "x2"]) line.setAttribute(field, places[Math.min(number, places.length - 1)]);
    });
  }
  // What fires within five minutes of the cursor
  function point() {
    const strip = find();
    if (!strip) return;
    strip.classList.toggle("pointed", at !== null);
    if (at === null) return;
    const [start, end] = bounds(strip), x = `${(at - start) / (end - start) * 100}%`, found = [];
    for (const row of strip.querySelectorAll("svg[data-label]")) {
      const cursor = row.querySelector("[data-cursor]");
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      for (const mark of row.querySelectorAll("rect[data-first]")) {
        const first = Number(mark.dataset.first), last = Number(mark.dataset.last);
        if (first - NEAR > at || last + NEAR < at) continue;
        const named = day(first) !== day(last), there = (time) => { const text = own(time, row.dataset.ownZone); return text && ` (${text})`; };
        const when = (time) => `${named ? `${day(time)} ` : ""}${clock(time)}${there(time)}`;
        found.push(`${row.dataset.label} ${mark.dataset.told} ${last - first > 60 ? `from ${when(first)} to ${when(last)}` : `at ${clock(first)}${there(first)}`}`);
      }
    }
    document.querySelector("[data-strip-told]").textContent = `${day(at)} ${clock(at)}: ${found.join("; ") || "nothing fires"}`;
  }
  document.addEventListener("pointermove", (event) => {
    const row = event.target.closest?.("[data-strip]")?.querySelector("svg[data-label]");
    if (!row) return;
    const frame = row.getBoundingClientRect(), [start, end] = bounds(find()), part = (event.clientX - frame.left) / frame.width;
    if (part < 0 || part > 1) return;
    at = Math.round((start + part * (end - start)) / NEAR) * NEAR;
    point();
  });
  // The arrow keys go from firing to firing.
  document.addEventListener("keydown", (event) => {
    const strip = event.target.closest?.("[data-strip]");
    if (!strip || event.target !== strip || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    const [start, end] = bounds(strip), from = at ?? (start + end) / 2, right = event.key === "ArrowRight";
    const times = [...new Set([...strip.querySelectorAll("rect[data-first]")].map((mark) => Number(mark.dataset.first)))].sort((one, other) => one - other);
    at = (right ? times.find((time) => time > from) : times.findLast((time) => time < from)) ?? from;
    point();
  });
  document.addEventListener("fairlead:refreshed", show);
  addEventListener("resize", show);
  show();
})();
