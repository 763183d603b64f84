// Selected rows, and actions on many jobs.
"use strict";
(() => {
  const { one, all, toast, confirmed, UNREACHABLE } = fairlead, html = document.documentElement;
  const chosen = new Set(), MOST_UNDONE = 10000, BATCH = 1000;
  const number = (value) => value.toLocaleString();
  const jobs = (count, more = false) => `${number(count)}${more ? " or more" : ""} ${count === 1 && !more ? "job" : "jobs"}`;

  function showChosen() {
    const boxes = all("[data-tick]"), every = one("[data-all]");
    for (const box of boxes) box.checked = chosen.has(box.value);
    if (every) every.checked = boxes.length > 0 && boxes.every((box) => box.checked);
    // the state of jobs on other pages is unknown; the server reports those that it skipped
    const can = (action) => chosen.size > boxes.filter((box) => box.checked).length || boxes.some((box) => box.checked && box.dataset.can === action);
    for (const button of all("[data-selected]")) button.hidden = !can(button.dataset.selected);
    say(chosen.size ? `${number(chosen.size)} selected` : "");
  }
  function say(text) {
    const count = one("[data-selected-count]");
    if (count) count.textContent = text;
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
    for (const name of ["cursor", "top", "range", "searched"]) url.searchParams.delete(name);
    return url;
  };
  async function ask(url, options = {}) {
    let answer;
    try { answer = await fetch(url, { ...options, headers: { "HX-Request": "true" } }); }
    catch { toast({ text: UNREACHABLE, kind: "error" }); return null; }
    if (answer.ok) return answer.json();
    if (answer.headers.get("HX-Redirect")) { location.href = answer.headers.get("HX-Redirect"); return null; }
    const events = JSON.parse(answer.headers.get("HX-Trigger") || "{}");
    toast(events["fairlead:toast"] || { text: UNREACHABLE, kind: "error" });
    return null;
  }
  const send = (path, ids) => ask(page(path), { method: "POST", body: new URLSearchParams({ ids: ids.join(",") }) });
  const report = (action, count, left, undo = null) => {
    toast({ text: `${action === "cancel" ? "Canceled" : "Queued again"}: ${number(count)}.${left ? ` ${left}` : ""}`, undo, kind: !count && left ? "error" : "" });
    fairlead.soon();
  };
  async function undoCancel(ids) {
    let count = 0, left = "";
    for (let at = 0; at < ids.length; at += BATCH) {
      const did = await send("/bulk-jobs/cancel/undo", ids.slice(at, at + BATCH));
      if (!did) return;
      count += did.count;
      left = did.left || left;
    }
    report("retry", count, left);
  }

  async function changeSelected(action) {
    const ids = [...chosen];
    const where = html.dataset.tenant ? ` of ${html.dataset.tenant}` : "";
    if (action === "cancel" && !await confirmed({ text: `Cancel ${jobs(ids.length)}${where}?`, more: "Jobs that wait can be queued again with Undo. Running jobs stop.", verb: `Cancel ${jobs(ids.length)}` })) return;
    const did = await send(`/bulk-jobs/${action}/selected`, ids);
    if (!did) return;
    chosen.clear();
    showChosen();
    report(action, did.count, did.left, did.undo.length ? () => undoCancel(did.undo) : null);
  }

  // `status failed, search “report”` for the filter in the address
  function filterWords() {
    const asked = page("/jobs").searchParams, parts = [];
    asked.forEach((value, name) => { if (value && !["tenant", "tz"].includes(name)) parts.push(name === "q" ? `search “${value}”` : `${name} ${value.replaceAll("_", " ")}`); });
    return parts.join(", ");
  }
  function where() {
    const tenant = html.dataset.tenant || html.dataset.ownTenant;
    return tenant ? `in ${tenant}` : "in all tenants";
  }
  async function changeMatching(action) {
    all("details.more[open]").forEach((details) => details.removeAttribute("open"));
    const url = page(`/bulk-jobs/${action}`), cancel = action === "cancel", verb = cancel ? "Cancel" : "Retry";
    // a search that compares payloads takes several requests: each goes on where the last one stopped
    const goOn = (cursor) => { if (cursor) url.searchParams.set("cursor", cursor); else url.searchParams.delete("cursor"); };
    let preview = await ask(url);
    while (preview?.cursor && preview.count === 0) {
      say("Searching further back…");
      goOn(preview.cursor);
      preview = await ask(url);
    }
    goOn(null);
    showChosen();
    if (!preview) return;
    const words = filterWords();
    if (preview.count === 0) { toast({ text: `No job here can be ${cancel ? "canceled" : "retried"}. ${preview.left}`.trim() }); return; }
    const many = jobs(preview.count, preview.more);
    const undoable = cancel && !preview.more;
    const meaning = !cancel ? "" : undoable ? "Running jobs stop; that cannot be undone. Jobs that wait can be queued again with Undo." : "This cannot be undone: there are too many jobs. Running jobs stop.";
    const question = `${verb} ${many} ${where()}? ${words ? `They match: ${words}.` : "No filter is set: these are all jobs that can be " + (cancel ? "canceled" : "retried") + "."}`;
    if (!await confirmed({ text: question, more: [meaning, preview.left].filter(Boolean).join(" "), verb: `${verb} ${many}` })) return;
    let done = 0, more = true;
    const undo = [];
    while (more) {
      const did = await ask(url, { method: "POST" });
      if (!did) { showChosen(); fairlead.soon(); return; }
      done += did.count; more = did.more && (did.count > 0 || did.cursor !== null);
      goOn(did.cursor);
      if (undo.length < MOST_UNDONE) undo.push(...did.undo);
      say(`${number(done)} of ${many}…`);
    }
    showChosen();
    goOn(null);
    const after = await ask(url);
    report(action, done, after?.left || "", undoable && undo.length ? () => undoCancel(undo) : null);
  }
  document.addEventListener("click", (event) => {
    const selected = event.target.closest("[data-selected]"), matching = event.target.closest("[data-matching]");
    if (selected) changeSelected(selected.dataset.selected);
    else if (matching) changeMatching(matching.dataset.matching);
  });
  document.addEventListener("fairlead:refreshed", showChosen);
})();
