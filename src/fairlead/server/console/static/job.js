// The forms of a job's pages, with times in the browser's zone.
"use strict";
(() => {
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Forms

  for (const choice of all("[data-submits]")) choice.addEventListener("change", () => choice.form.requestSubmit());
  one("[data-enqueue] [aria-invalid=true]")?.focus();
})();
