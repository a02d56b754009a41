"use strict";
(() => {
  const form = document.getElementById("filter");
  if (form) {
    const rows = [...document.querySelectorAll("tr[data-severity]")].map((row) => [row, row.textContent.toLowerCase()]);
    const groups = [...document.querySelectorAll("details.group")];
    const output = form.querySelector("output");
    const apply = () => {
      const text = form.elements.text.value.trim().toLowerCase();
      const off = new Set([...form.querySelectorAll("input[type=checkbox]:not(:checked)")].map((box) => box.value));
      let shown = 0;
      for (const [row, content] of rows) {
        const code = row.closest("details").dataset.code.toLowerCase();
        row.hidden = off.has(row.dataset.severity) || !(content.includes(text) || code.includes(text));
        shown += !row.hidden;
      }
      for (const group of groups) {
        const inside = group.querySelectorAll("tr[data-severity]");
        const some = [...inside].some((row) => !row.hidden);
        const named = group.dataset.code.toLowerCase().includes(text);
        group.hidden = off.has(group.dataset.severity) || !(some || (named && !inside.length));
        if (text && some) group.open = true;
      }
      output.textContent = text || off.size ? `${shown} of ${rows.length} listed findings` : "";
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    const state = button.parentElement.querySelector("[role=status]");
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        state.textContent = "Copied.";
      } catch {
        getSelection().selectAllChildren(source);
        state.textContent = "Selected: copy it with the keyboard.";
      }
    });
  }
  for (const time of document.querySelectorAll("time[datetime]")) {
    const there = new Date(time.dateTime);
    if (there.getTimezoneOffset() && !isNaN(there)) {
      time.append(`, ${there.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })} here`);
    }
  }
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not(.group)")) details.open = true;
  });
})();
