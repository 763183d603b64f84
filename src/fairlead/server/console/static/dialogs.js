// Dialogs: a button that closes the one it is in, and secrets that are gone when theirs is.
"use strict";
document.addEventListener("click", (event) => event.target.closest("[data-close]")?.closest("dialog")?.close());
document.addEventListener("click", (event) => event.target.closest("dialog [data-copy]")?.classList.add("copied"));  // toasts lie behind
document.addEventListener("close", (event) => {
  // what was shown once is not to be found again in what is hidden
  if (event.target.matches("dialog[data-once]") && event.target.querySelector("[data-shown-once]")) location.reload();
}, true);
