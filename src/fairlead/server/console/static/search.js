// The search for jobs: suggestions while typing, drop-downs that write into the box, and searches that take longer.
"use strict";
(() => {
  const one = (selector, from = document) => from.querySelector(selector);
  const box = one("[data-search]"), list = one("#suggestions"), form = box.form;
  const qualifiers = new Map(JSON.parse(box.dataset.qualifiers)), values = JSON.parse(box.dataset.suggestions);
  one("[data-zone]").value = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

  // Suggestions: first the qualifiers, then the values of one.

  let at = -1;
  function currentWord() {
    const before = box.value.slice(0, box.selectionStart), start = Math.max(before.lastIndexOf(" "), -1) + 1;
    return { start, text: before.slice(start) };
  }
  const quoted = (value) => /[\s"]/.test(value) ? `"${value}"` : value;
  function suggest() {
    const { text } = currentWord(), colon = text.indexOf(":"), name = text.slice(0, colon).toLowerCase();
    if (colon < 0) {
      return [...qualifiers].filter(([key]) => key.startsWith(text.toLowerCase()))
        .map(([key, hint]) => ({ code: key.endsWith(".") ? `${key}…:` : `${key}:`, hint, text: key.endsWith(".") ? key : `${key}:` }));
    }
    const [, several, typed] = /^(.*,)?(.*)$/.exec(text.slice(colon + 1));
    const found = (values[name] || []).filter((value) => value.toLowerCase().includes(typed.toLowerCase()) && value !== typed);
    if (!found.length && qualifiers.has(name) && !typed) return [{ code: `${name}:`, hint: qualifiers.get(name), text: null }];
    return found.slice(0, 50).map((value) => ({ code: value, hint: "", text: `${name}:${several || ""}${quoted(value)} ` }));
  }
  function show() {
    const found = document.activeElement === box ? suggest() : [];
    at = -1;
    list.replaceChildren(...found.map((item, index) => {
      const row = document.createElement("li"), code = document.createElement("code");
      row.id = `suggestion-${index}`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", "false");
      code.textContent = item.code;
      row.append(code);
      if (item.hint) {
        const hint = document.createElement("small");
        hint.textContent = item.hint;
        row.append(hint);
      }
      if (item.text !== null) row.dataset.text = item.text;
      return row;
    }));
    list.hidden = !found.length;
    box.setAttribute("aria-expanded", String(!list.hidden));
    box.removeAttribute("aria-activedescendant");
  }
  function hide() {
    list.hidden = true;
    at = -1;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  }
  function move(step) {
    const rows = [...list.children];
    if (list.hidden) { show(); return; }
    at = (at + step + rows.length + (at < 0 && step < 0 ? 1 : 0)) % rows.length;
    rows.forEach((row, index) => row.setAttribute("aria-selected", String(index === at)));
    rows[at].scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", rows[at].id);
  }
  function accept(row) {
    if (row.dataset.text === undefined) return;
    const { start } = currentWord(), end = box.selectionStart;
    box.setRangeText(row.dataset.text, start, end, "end");
    show();
  }
  box.addEventListener("input", show);
  box.addEventListener("click", show);
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); move(event.key === "ArrowDown" ? 1 : -1); }
    else if ((event.key === "Enter" || event.key === "Tab") && !list.hidden && at >= 0) { event.preventDefault(); accept(list.children[at]); }
    else if (event.key === "Escape" && !list.hidden) { event.preventDefault(); event.stopPropagation(); hide(); }
  });
  // before the box loses its focus
  list.addEventListener("mousedown", (event) => { event.preventDefault(); const row = event.target.closest("li"); if (row) accept(row); });

  // A drop-down replaces the qualifier in the box: the box alone says what is searched for.

  document.addEventListener("change", (event) => {
    const name = event.target.dataset?.qualifier;
    if (!name) return;
    event.stopPropagation();
    const word = new RegExp(`(^|\\s)${name}:("[^"]*"|\\S*)`, "gi"), rest = box.value.replace(word, " ").replace(/\s+/g, " ").trim();
    box.value = event.target.value ? `${rest} ${name}:${quoted(event.target.value)}`.trim() : rest;
    form.requestSubmit();
  }, true);

  // A search that is not complete goes on by itself. The page then stays as it is: searching again each second would cost too much.

  async function searchFurther() {
    const part = one("#further");
    if (!part) return;
    one("#table").removeAttribute("data-live");
    const stop = document.createElement("button"), words = one("p", part);
    let stopped = false, url = part.dataset.further;
    stop.type = "button";
    stop.textContent = "Stop";
    stop.addEventListener("click", () => { stopped = true; });
    one("[data-further-link]", part).replaceWith(stop);
    const rows = () => document.querySelectorAll("#table tbody tr").length;
    let more = null;
    while (!stopped && rows() < Number(part.dataset.rowsWanted)) {
      words.textContent = `Searched the latest ${part.dataset.searched || one("[data-searched]", part)?.textContent || ""} jobs. Searching further back…`;
      const answer = await fetch(url);
      if (!answer.ok || answer.redirected) break;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      addRows(fresh);
      more = fresh.querySelector("#further");
      part.dataset.searched = more?.querySelector("[data-searched]").textContent || "";
      url = more?.dataset.further ?? fresh.querySelector(".pager a")?.getAttribute("href");
      if (!more) break;
    }
    finish(part, stop, more ? url : null, url);
  }
  function addRows(fresh) {
    const found = [...fresh.querySelectorAll("#table tbody tr")], body = one("#table tbody");
    if (!found.length) return;
    if (body) body.append(...found);
    else one("#table .empty").replaceWith(fresh.querySelector("#table .scroll"));
    document.dispatchEvent(new CustomEvent("fairlead:refreshed"));
  }
  function finish(part, stop, unsearched, next) {
    const rows = document.querySelectorAll("#table tbody tr").length;
    const words = one("p", part), nothing = one("[data-nothing]");
    if (unsearched || next) {
      const link = document.createElement("a");
      link.className = "button";
      link.href = next;
      link.textContent = unsearched ? "Search further back" : "Older";
      stop.replaceWith(link);
      words.textContent = unsearched ? `Searched the latest ${part.dataset.searched} jobs.` : "";
    } else {
      stop.remove();
      words.textContent = "All jobs were searched.";
      if (nothing) nothing.textContent = "Nothing here fits the search and the filters.";
      const found = one("[data-found]");
      if (found && rows) found.textContent = `${rows.toLocaleString()} job${rows === 1 ? "" : "s"} found`;
    }
  }
  searchFurther();
})();
