// A timeline grows while something waits or runs, also when nothing changes its state.
"use strict";
setInterval(() => {
  if (document.querySelector("[data-grows]") && !document.hidden) document.dispatchEvent(new CustomEvent("fairlead:refresh"));
}, 5000);
