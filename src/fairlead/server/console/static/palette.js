// The palette (Ctrl-K): go to a page, a definition, a trigger, a workflow, a host or a job, or run an action.
"use strict";
(() => {
  const html = document.documentElement, MOST = 12, PATIENCE_MS = 3000, JOB_ID = /^[0-9a-f][0-9a-f-]{7,35}$/i;
  const tenant = html.dataset.tenant ? `&tenant=${encodeURIComponent(html.dataset.tenant)}` : "";
  let dialog = null, input = null, list = null, found = [], at = 0, fetched = null, loading = null;

  function build() {
    dialog = document.createElement("dialog");
    dialog.className = "palette";
    dialog.setAttribute("aria-label", "Go to");
    input = document.createElement("input");
    for (const [name, value] of Object.entries({
      type: "text", role: "combobox", "aria-label": "Go to a page, definition, trigger, workflow, host or job", "aria-expanded": "true",
      "aria-controls": "palette-list", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", placeholder: "Go to or search…",
    })) input.setAttribute(name, value);
    list = document.createElement("ul");
    list.id = "palette-list";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Results");
    dialog.append(input, list);
    document.body.append(dialog);
    input.addEventListener("input", show);
    input.addEventListener("keydown", press);
    dialog.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) choose(found[Number(option.dataset.at)]);
      else if (event.target === dialog) dialog.close();
    });
  }

  // The pages are those of the navigation: it has only what the role may see.
  function ownEntries() {
    const pages = [...document.querySelectorAll("#nav li a")].map((link) => ({ group: "Page", title: link.textContent.trim(), href: link.href }));
    const button = (title, selector) => document.querySelector(selector) && { group: "Action", title, run: () => document.querySelector(selector).click() };
    const account = document.querySelector(".who a");
    return [
      ...pages.map((page) => (page.title === "Enqueue" ? { ...page, group: "Action", title: "Enqueue a job…" } : page)),
      account && { group: "Page", title: "Account", href: account.href },
      button("Switch theme", "[data-theme-toggle]"), button("Keyboard shortcuts", "[data-keys]"),
      button("Sign out", "form[action$='/sign-out'] button"),
    ].filter(Boolean);
  }
  async function load() {
    try {
      const answer = await fetch(`${html.dataset.root}/palette${tenant.replace("&", "?")}`);
      if (!answer.ok || answer.redirected) throw new Error(answer.status);
      fetched = (await answer.json()).items;
    } catch {
      fetched = null;  // the next opening tries again; pages and actions work meanwhile
    }
    loading = null;
    if (dialog.open) show();
  }

  function rank(entry, words) {
    const title = entry.title.toLowerCase(), group = entry.group.toLowerCase();
    if (!words.every((word) => title.includes(word) || group.startsWith(word))) return -1;
    return words.length && title.startsWith(words[0]) ? 2 : 1;
  }
  function search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const ranked = [...ownEntries(), ...(words.length ? fetched || [] : [])].map((entry) => [rank(entry, words), entry]).filter(([score]) => score > 0);
    const best = ranked.sort((one, other) => other[0] - one[0]).slice(0, MOST).map(([, entry]) => entry);
    if (!text) return best;
    const jobs = { group: "Jobs", title: JOB_ID.test(text) ? `Find job ${text}` : `Search jobs for “${text}”`, href: `${html.dataset.root}/jobs?q=${encodeURIComponent(text)}${tenant}` };
    return JOB_ID.test(text) ? [jobs, ...best] : [...best, jobs];
  }
  function show() {
    found = search(input.value.trim());
    at = 0;
    list.replaceChildren(...found.map((entry, index) => {
      const option = document.createElement("li"), group = document.createElement("small");
      option.id = `palette-${index}`;
      option.dataset.at = index;
      option.setAttribute("role", "option");
      group.textContent = entry.group;
      option.append(entry.title, group);
      return option;
    }));
    mark();
  }
  function mark() {
    [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === at)));
    if (found.length) input.setAttribute("aria-activedescendant", `palette-${at}`);
    else input.removeAttribute("aria-activedescendant");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }
  function press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) { event.preventDefault(); at = (at + step + found.length) % found.length; mark(); }
    else if (event.key === "Enter") { event.preventDefault(); enter(); }
  }
  // A fast typist presses Enter before the entries are here: the first of the short list is then not the one meant.
  async function enter() {
    if (loading && at === 0) await Promise.race([loading, new Promise((done) => setTimeout(done, PATIENCE_MS))]);
    if (dialog.open) choose(found[at]);
  }
  function choose(entry) {
    if (!entry) return;
    dialog.close();
    if (entry.run) entry.run();
    else location.href = entry.href;
  }
  function open() {
    if (document.querySelector("dialog[open]")) return;
    if (!dialog) build();
    if (fetched === null) loading ??= load();
    input.value = "";
    dialog.showModal();
    show();
    input.focus();
  }

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    if (dialog?.open) dialog.close();
    else open();
  });
  document.addEventListener("click", (event) => { if (event.target.closest("[data-palette]")) open(); });
})();
