// Retries or discards the jobs of an error in batches: asks, shows the progress, and tells what was left and why.
"use strict";
(() => {
  const dialog = document.querySelector("#batch"), part = (name) => dialog.querySelector(`[data-${name}]`);
  const toast = (detail) => dispatchEvent(new CustomEvent("fairlead:toast", { detail }));
  const DONE = { retry: "Queued again", discard: "Discarded" };
  let asked = null;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-batch]");
    if (!button) return;
    asked = { ...button.dataset, total: Number(button.dataset.total) };
    part("title").textContent = `${asked.do}?`;
    part("text").textContent = asked.question;
    part("go").textContent = asked.do;
    showProgress(null);
    dialog.showModal();
  });
  part("go").addEventListener("click", run);

  function showProgress(done) {
    for (const name of ["state", "progress"]) part(name).hidden = done === null;
    for (const name of ["go", "back"]) part(name).disabled = done !== null;
    if (done === null) return;
    part("progress").max = asked.total;
    part("progress").value = done;
    part("state").textContent = `${done.toLocaleString()} of ${asked.total.toLocaleString()}…`;
  }
  async function run() {
    const reasons = {};
    let done = 0, more = true;
    showProgress(0);
    try {
      while (more) {
        const answer = await fetch(asked.batch, { method: "POST", headers: { "HX-Request": "true" } });
        if (!answer.ok) { toast(refusal(answer)); break; }
        const did = await answer.json();
        done += did.count;
        for (const [reason, number] of Object.entries(did.reasons)) reasons[reason] = number;  // the latest look at them
        more = did.more && did.count > 0;
        showProgress(done);
      }
      if (!more) toast({ text: summary(done, reasons), link: done && asked.jobs ? { text: "Show jobs", href: asked.jobs } : null });
    } catch {
      toast({ text: "The server cannot be reached. Try again.", kind: "error" });
    }
    dialog.close();
    document.dispatchEvent(new CustomEvent("fairlead:refresh"));
  }
  function refusal(answer) {
    const events = JSON.parse(answer.headers.get("HX-Trigger") || "{}");
    return events["fairlead:toast"] || { text: "That did not work. Try again.", kind: "error" };
  }
  function summary(done, reasons) {
    const words = JSON.parse(dialog.dataset.reasons);
    const left = Object.entries(reasons).map(([reason, number]) => `${number.toLocaleString()} (${words[reason] || reason})`);
    return `${DONE[asked.verb]}: ${done.toLocaleString()}.${left.length ? ` Left as they are: ${left.join(", ")}.` : ""}`;
  }
})();
