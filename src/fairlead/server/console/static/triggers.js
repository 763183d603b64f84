// The editor of a trigger: shows the preview's faults at the fields that the user has visited.
"use strict";
(() => {
  const touched = new Set();
  const field = (name) => document.getElementById(`f-${name}`);

  function mark(name, text) {
    const input = field(name), fault = document.getElementById(`fault-${name}`);
    if (!input || !fault) return;
    fault.textContent = text || "";
    fault.hidden = !text;
    if (text) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  function showFaults(preview) {
    const found = new Map([...preview.querySelectorAll("[data-fault]")].map((one) => [one.dataset.fault, one.textContent]));
    for (const name of touched) mark(name, found.get(name));
  }

  document.addEventListener("input", (event) => {
    if (event.target.closest("#studio") && event.target.name) touched.add(event.target.name);
  });
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-fill]");
    if (!chip) return;
    const input = document.getElementById(chip.dataset.fill);
    input.value = chip.dataset.value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    input.focus();
  });
  document.addEventListener("htmx:after:swap", () => {
    const preview = document.getElementById("preview");
    if (preview) showFaults(preview);
  });
  // the form was submitted and refused: all fields count as visited
  document.addEventListener("htmx:response:error", (event) => {
    if (event.detail.ctx?.sourceElement?.id !== "editor") return;
    setTimeout(() => {
      const wrong = [...document.querySelectorAll("#editor [aria-invalid=true]")];
      for (const input of wrong) touched.add(input.name);
      wrong.find((input) => input.offsetParent)?.focus();
    });
  });
})();
