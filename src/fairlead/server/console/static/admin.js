// Dialogs of the pages about the system: a button in one closes it.
"use strict";
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
});
