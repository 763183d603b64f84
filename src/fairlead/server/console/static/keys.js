// Single-key shortcuts. They can be switched off: speech input and some screen readers press letters.
"use strict";
(() => {
  const { one, all } = fairlead, KEY = "fairlead-shortcuts";
  const on = () => localStorage.getItem(KEY) !== "off";

  let index = -1;
  const rows = () => all("[data-rows] tbody tr");
  function rowOf(element) {
    return element?.closest?.("[data-rows] tbody tr") || null;
  }
  function move(step) {
    const found = rows(), at = found.indexOf(rowOf(document.activeElement));
    if (!found.length) return;
    // the focused row may have left the list: its place stays
    index = at >= 0 ? at + step : index + (index >= 0 && document.activeElement === document.body ? 0 : step);
    index = Math.min(found.length - 1, Math.max(0, index));
    const row = found[index], target = one("a[href]", row) || row;
    if (target === row) row.tabIndex = -1;
    target.focus({ focusVisible: true });
    row.scrollIntoView({ block: "nearest" });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]") || !on()) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    const row = rowOf(document.activeElement);
    const act = (key) => one(`[data-key="${key}"]`, row || one("main"))?.click();
    const known = {
      "/": () => one("[data-search]")?.focus(), j: () => move(1), k: () => move(-1), "?": () => one("#keys").showModal(),
      x: () => row && one("[data-tick]", row)?.click(), r: () => act("r"), c: () => act("c"),
    };
    if (event.key === "Enter" && row?.dataset.href && !event.target.closest("a, button, summary, input")) location.href = row.dataset.href;
    else if (known[event.key]) { event.preventDefault(); known[event.key](); }
  });
  // the help has this switch, and the account page, too
  const boxes = all("[data-shortcuts]"), showSwitch = () => boxes.forEach((box) => { box.checked = on(); });
  for (const box of boxes) box.addEventListener("change", () => { localStorage.setItem(KEY, box.checked ? "on" : "off"); showSwitch(); });
  showSwitch();
})();
