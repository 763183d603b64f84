// Refreshes at an interval the parts that no live frame announces (an agent's last contact, an audit entry).
"use strict";
document.querySelectorAll("[data-beat]").forEach((part) => {
  setInterval(() => { if (!document.hidden) document.dispatchEvent(new CustomEvent("fairlead:refresh")); }, 1000 * part.dataset.beat);
});
