// Before anything is drawn, so that nothing flashes: the theme that this person has chosen here.
"use strict";
(() => {
  const chosen = localStorage.getItem("fairlead-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  document.documentElement.classList.add("scripted");
})();
