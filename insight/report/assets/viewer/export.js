// Export of the episodes that pass the filters: ids and chosen fields as CSV or JSON.
"use strict";

(() => {
  const { html, COLUMNS, cell } = Pivot;
  const { useState, useRef, useLayoutEffect } = preactHooks;
  const DEFAULT_FIELDS = ["id", "env", "task", "sample", "outcome", "mode", "pivot", "return", "label"];

  // A cell of CSV. A spreadsheet would run a text that begins like a formula, so an apostrophe goes before it.
  function csvCell(value) {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function csv(run, rows, fields) {
    const lines = rows.map((number) => fields.map((name) => csvCell(cell(run, name, number))).join(","));
    return `${[fields.join(","), ...lines].join("\r\n")}\r\n`;
  }

  function json(run, rows, fields) {
    const records = rows.map((number) => Object.fromEntries(fields.map((name) => [name, cell(run, name, number)])));
    return `${JSON.stringify(records, null, 1)}\n`;
  }

  function download(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  function Export({ run, rows }) {
    const dialog = useRef(null);
    const [open, setOpen] = useState(false);
    const [fields, setFields] = useState(new Set(DEFAULT_FIELDS));
    useLayoutEffect(() => {
      if (open) dialog.current.showModal();
    }, [open]);
    const toggle = (name) => {
      const next = new Set(fields);
      if (!next.delete(name)) next.add(name);
      setFields(next);
    };
    const save = (kind) => {
      const names = [...COLUMNS.keys()].filter((name) => fields.has(name));
      if (kind === "csv") download("episodes.csv", csv(run, rows, names), "text/csv");
      else download("episodes.json", json(run, rows, names), "application/json");
    };
    return html`<button class="export" onClick=${() => setOpen(true)}>Export</button>
      <dialog ref=${dialog} onClose=${() => setOpen(false)} aria-labelledby="export-title">
        <h2 id="export-title">Export ${rows.length.toLocaleString("en")} episodes</h2>
        <fieldset class="fields"><legend>Fields</legend>${[...COLUMNS].map(([name, title]) => html`<label key=${name}>
          <input type="checkbox" checked=${fields.has(name)} onChange=${() => toggle(name)} /> ${title}</label>`)}</fieldset>
        <p class="soft">Guidance is cut after 1,000 characters. In CSV an apostrophe goes before texts that begin like a formula.</p>
        <form method="dialog" class="buttons"><button type="button" onClick=${() => save("csv")}>CSV</button>
          <button type="button" onClick=${() => save("json")}>JSON</button><button>close</button></form>
      </dialog>`;
  }

  Object.assign(Pivot, { Export, csvCell });
})();
