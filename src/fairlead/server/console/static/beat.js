// What no live frame tells of (an agent that was heard of, an entry in the log) is asked for every so many seconds.
"use strict";
document.querySelectorAll("[data-beat]").forEach((part) => {
  setInterval(() => { if (!document.hidden) document.dispatchEvent(new CustomEvent("fairlead:refresh")); }, 1000 * part.dataset.beat);
});
