// Dialogs: close buttons, and secrets that are removed when their dialog closes.
"use strict";
document.addEventListener("click", (event) => event.target.closest("[data-close]")?.closest("dialog")?.close());
document.addEventListener("click", (event) => event.target.closest("dialog [data-copy]")?.classList.add("copied"));  // toasts are behind the dialog
document.addEventListener("close", (event) => {
  // a secret must not stay in the hidden dialog
  if (event.target.matches("dialog[data-once]") && event.target.querySelector("[data-shown-once]")) location.reload();
}, true);
