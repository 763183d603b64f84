// Keeps what was typed into forms while a session ends: it is restored after the sign-in, in this tab and for the same user.
"use strict";
(() => {
  const { one, all, toast } = fairlead, PREFIX = "fairlead-draft:";
  const who = one(".who")?.title, place = `${PREFIX}${location.pathname}${location.search}`;
  const changed = new Set();

  // secrets are never stored: password fields, and fields that may hold one (data-secret)
  const nameOf = (field) => field.name || field.id;
  const mayKeep = (field) => nameOf(field) && !field.disabled && !["password", "hidden", "file", "submit", "button"].includes(field.type) && !field.closest("[data-secret]");
  // a field may be called `action` or `id`, which hides the form's own property
  const own = (form, name) => form.getAttribute(name) || "";
  const isKept = (form) => form && own(form, "method").toLowerCase() === "post" && !form.matches("[data-filters], .tenant") && one("main").contains(form);
  const forms = () => all("main form").filter(isKept);
  const keyOf = (form) => `${place}#${own(form, "id") || own(form, "action")}`;

  function save(form) {
    const values = [...form.elements].filter(mayKeep).map((field) => [nameOf(field), field.type === "checkbox" || field.type === "radio" ? [field.value, field.checked] : field.value]);
    try { sessionStorage.setItem(keyOf(form), JSON.stringify({ who, values })); }
    catch { /* the storage is full: the draft is not kept */ }
  }
  function restore(form, values) {
    let count = 0;
    for (const [name, value] of values) {
      for (const field of [...form.elements].filter((field) => nameOf(field) === name && mayKeep(field))) {
        if (Array.isArray(value)) { if (field.value === value[0] && field.checked !== value[1]) { field.checked = value[1]; count++; } }
        else if (field.value !== value) { field.value = value; count++; }
        if (field.closest("[data-zoned]")) field.dispatchEvent(new Event("change"));  // its hidden field follows
      }
    }
    if (count) form.dispatchEvent(new Event("input", { bubbles: true }));
    return count;
  }
  function forget(test) {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX) && test(key)) sessionStorage.removeItem(key);
  }

  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!isKept(form)) return;
    changed.add(form);
    save(form);
  });
  document.addEventListener("change", (event) => { if (changed.has(event.target.form)) save(event.target.form); });
  document.addEventListener("submit", (event) => { if (own(event.target, "action").endsWith("/sign-out")) forget(() => true); });
  document.addEventListener("htmx:after:request", (event) => {
    const { response, sourceElement } = event.detail.ctx;
    const form = sourceElement?.closest?.("form");
    if (response?.status < 400 && changed.delete(form)) sessionStorage.removeItem(keyOf(form));
  });

  let restored = 0;
  if (document.referrer.includes("/sign-in")) {
    for (const form of forms()) {
      const draft = JSON.parse(sessionStorage.getItem(keyOf(form)) || "null");
      if (draft?.who === who) restored += restore(form, draft.values);
    }
  }
  forget((key) => key.startsWith(`${place}#`));
  if (restored) toast({ text: "What you typed before the sign-in is back. Secrets are not kept: type them again." });
  fairlead.hasDraft = () => [...changed].some((form) => form.isConnected);
})();
