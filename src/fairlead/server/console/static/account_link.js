// Takes the secret of a link from the fragment of the address, which is sent to no server, and removes it from the history.
(() => {
  const code = location.hash.slice(1);
  const field = document.querySelector("[data-link-code]");
  if (!code || !field) return;
  field.querySelector("input").value = decodeURIComponent(code);
  field.hidden = true;
  history.replaceState(null, "", location.pathname + location.search);
})();
