// Applies the chosen theme before the first paint, so that the page does not flash.
"use strict";
(() => {
  const chosen = localStorage.getItem("fairlead-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  document.documentElement.classList.add("scripted");
})();
