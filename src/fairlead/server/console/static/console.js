// Common to all pages: toasts, confirmation, clicks, and the choice of a tenant. `fairlead` has what the other scripts use.
"use strict";
const fairlead = {};
(() => {
  const html = document.documentElement, one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const tell = (name, detail = {}) => document.dispatchEvent(new CustomEvent(`fairlead:${name}`, { detail }));

  // Toasts. `undo` is the URL that reverts the action, or a function that does.

  const UNREACHABLE = "The server cannot be reached, so it is not certain that this was done. Check the connection, reload the page, and try again.";
  function toast({ text, kind = "", undo = null, link = null }) {
    const box = document.createElement("div"), words = document.createElement("p");
    box.className = `toast ${kind}`;
    words.textContent = text;
    box.append(words);
    const add = (name, act) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => { box.remove(); act?.(); });
      box.append(button);
    };
    if (link) add(link.text, () => { location.href = link.href; });
    if (undo) add("Undo", () => typeof undo === "function" ? undo() : htmx.ajax("POST", undo, { source: document.body, swap: "none" }));
    add("Close");
    one("#toasts").append(box);
    while (one("#toasts").children.length > 4) one("#toasts").firstElementChild.remove();
    if (kind !== "error") setTimeout(() => box.remove(), undo || link ? 10000 : 6000);
  }
  addEventListener("fairlead:toast", (event) => toast(event.detail));
  addEventListener("htmx:error", (event) => {
    tell("stale");
    const ctx = event.detail.ctx;
    if (ctx && (ctx.request?.method || "GET").toUpperCase() !== "GET" && event.detail.error?.name !== "AbortError") toast({ text: UNREACHABLE, kind: "error" });
  });
  // an answer without our header is not from the console: a proxy, or a server that starts
  addEventListener("htmx:response:error", (event) => {
    const { response, request } = event.detail.ctx;
    if (response.status >= 500 && !response.headers.get("HX-Trigger") && (request?.method || "GET").toUpperCase() !== "GET") toast({ text: UNREACHABLE, kind: "error" });
  });

  // Confirmation of destructive actions.

  // htmx confirms only elements with hx-confirm
  document.addEventListener("htmx:config:request", (event) => { event.detail.ctx.confirm ||= event.target.dataset?.confirm; });
  document.addEventListener("htmx:confirm", (event) => {
    const text = event.target.dataset?.confirm;
    if (!text) return;
    event.preventDefault();
    const button = event.target.matches("form") ? one("[type=submit], button:not([type])", event.target) : event.target;
    confirmed({ text, verb: event.target.dataset.verb || button?.textContent.trim() || "Continue" })
      .then((yes) => yes ? event.detail.issueRequest(true) : event.detail.dropRequest?.());
  });
  // the question is the first sentence; what it means comes below
  function confirmed({ text, verb, more = "" }) {
    const dialog = one("#confirm"), yes = one("[data-yes]", dialog), end = text.indexOf("? ") + 1;
    one("#confirm-title").textContent = end ? text.slice(0, end) : text;
    one("#confirm-text").textContent = [end ? text.slice(end + 1) : "", more].filter(Boolean).join(" ");
    yes.textContent = verb;
    yes.className = /^(cancel|delete|remove|revoke|disable|pause|stop|discard)/i.test(verb) ? "danger" : "primary";
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((done) => dialog.addEventListener("close", () => {
      yes.textContent = "Continue";  // a closed dialog names no action
      done(dialog.returnValue === "yes");
    }, { once: true }));
  }

  // Copying. Browsers give pages over plain HTTP no navigator.clipboard: those copy a selection.

  async function copy(text, from) {
    try {
      if (!navigator.clipboard?.writeText) throw new Error("no clipboard");
      await navigator.clipboard.writeText(text);
    } catch {
      const field = document.createElement("textarea");
      field.className = "hidden";
      field.readOnly = true;
      field.setAttribute("aria-hidden", "true");
      field.value = text;
      (from.closest("dialog") || document.body).append(field);  // a modal dialog makes the rest inert
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      from.focus();
      if (!done) return toast({ text: "This browser does not let the page copy. Select the text and copy it yourself.", kind: "error" });
    }
    toast({ text: "Copied." });
  }

  // Clicks

  document.addEventListener("click", (event) => {
    const on = (selector) => event.target.closest(selector);
    let found;
    if ((found = on("[data-copy]"))) copy(found.dataset.copy, found);
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
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || one("dialog[open]")) return;
    for (const details of all("details.more[open]")) {
      if (details.contains(document.activeElement)) one("summary", details).focus();
      details.removeAttribute("open");
    }
  });
  document.addEventListener("change", (event) => { if (event.target.matches("[data-filters] select")) event.target.form.requestSubmit(); });

  // in a low window the page's own link may be below
  const side = one(".side");
  if (side && side.scrollHeight > side.clientHeight) one("li [aria-current]", side)?.scrollIntoView({ block: "nearest" });

  // The tenants that a super admin may choose: fetched on demand, and again after each letter if there are too many for one page.

  const tenantBox = one("[data-tenants]");
  let offered = null, allOffered = false, offering = null, sending = false;
  function offerTenants() {
    const after = allOffered ? "" : tenantBox.value.slice(0, -1);
    if (!allOffered && after !== offered) offering = fetchTenants(offered = after);
    return offering;
  }
  async function fetchTenants(after) {
    const url = new URL(`${html.dataset.api}/admin/tenants`, location.href);
    url.searchParams.set("limit", 1000);
    if (after) url.searchParams.set("cursor", after);
    const answer = await fetch(url).catch(() => null);  // the box works without suggestions
    if (!answer?.ok || offered !== after) return;
    const page = await answer.json();
    allOffered = !after && !page.next_cursor;
    one("#tenant-list").replaceChildren(...page.items.map((tenant) => new Option(tenant.name === tenant.slug ? "" : tenant.name, tenant.slug)));
  }
  // the beginning of a slug is enough if only one tenant has it
  async function chooseTenant(event) {
    event.preventDefault();
    if (sending) return;
    sending = true;
    const typed = tenantBox.value.trim().toLowerCase();
    if (typed) await offerTenants();
    const begin = all("#tenant-list option").map((option) => option.value).filter((slug) => slug.startsWith(typed));
    tenantBox.value = begin.length === 1 ? begin[0] : typed;
    tenantBox.form.submit();
  }
  if (tenantBox) {
    tenantBox.addEventListener("focus", offerTenants);
    tenantBox.addEventListener("input", offerTenants);
    tenantBox.addEventListener("change", () => tenantBox.form.requestSubmit());
    tenantBox.form.addEventListener("submit", chooseTenant);
    addEventListener("pageshow", () => { sending = false; });  // back from the other tenant's page
  }

  const left = one("#toasts").dataset.flash;
  if (left) { toast({ text: left }); document.cookie = "fairlead_flash=; max-age=0; path=/; samesite=strict"; }
  Object.assign(fairlead, { one, all, tell, toast, confirmed, UNREACHABLE });
})();
