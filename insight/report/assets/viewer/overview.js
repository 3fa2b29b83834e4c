// The store as a whole: charts of the list, and the tables of `pivot stats`.
"use strict";

(() => {
  const { html, Text, Facts, useLoaded, numberText } = Pivot;

  const cell = (value) => (typeof value === "number" ? numberText(value, 4) : html`<${Text}>${value ?? ""}<//>`);

  // The filter that a row, or a count in a column, stands for; null for figures of no list.
  function chosen(table, row, i) {
    const at = (name) => row[table.columns.indexOf(name)];
    if (table.view === "modes" && i === 2) return { env: at("environment"), mode: at("mode") };
    if (table.view === "group_rates" && i === 1 && at("environment") !== "pooled") return { env: at("environment") };
    return null;
  }

  function Count({ table, row, i }) {
    const filter = chosen(table, row, i);
    if (!filter) return cell(row[i]);
    const changes = Object.fromEntries(Object.entries(filter).map(([name, value]) => [name, Pivot.joined([String(value)])]));
    return html`<a href=${Pivot.address("episodes", new URLSearchParams(), changes)}>${cell(row[i])}</a>`;
  }

  function Table({ table }) {
    const numeric = table.columns.map((_, i) => table.rows.some((row) => typeof row[i] === "number"));
    return html`<section class="card table"><h2>${table.title}</h2>
      <div class="scroll" tabindex="0" role="region" aria-label=${table.title}><table>
        <thead><tr>${table.columns.map((name, i) => html`<th scope="col" class=${numeric[i] ? "number" : ""}><${Text}>${name}<//></th>`)}</tr></thead>
        <tbody>${table.rows.map((row) => html`<tr>${row.map((_, i) => html`<td class=${numeric[i] ? "number" : ""} data-name=${table.columns[i]}><${Count} table=${table} row=${row} i=${i} /></td>`)}</tr>`)}</tbody>
      </table></div>
      ${table.view && html`<p class="soft">view <code>${table.view}</code></p>`}</section>`;
  }

  const part = ({ name, stand_in: standIn }) => `${name}${standIn ? " (embedded stand-in for a model)" : ""}`;

  function runFacts(run) {
    const tasks = Object.entries(run.environments).map(([name, count]) => `${name} ${count.toLocaleString("en")}`).join(", ");
    return [
      ["run", run.run_id], ["tasks", tasks], ["rollouts per task", run.rollouts], ["policy", part(run.policy)],
      ["writer of guidance", part(run.writer)], ["label version", run.label_version], ["seed", run.seed],
    ];
  }

  function Overview({ run }) {
    Pivot.keys = new Map();
    const { value: record, error } = useLoaded("overview", () => run.overview());
    if (error) return html`<main class="overview"><h1>Overview</h1><p class="none">${error}</p></main>`;
    if (!record) return html`<main class="overview"><p class="wait">Loading …</p></main>`;
    return html`<main class="overview"><div class="title"><h1>Overview</h1><a class="json" href="overview.json" title="this page as JSON">JSON</a></div>
      <section class="card"><${Facts} rows=${[["folder", run.name], ...runFacts(record)]} /></section>
      ${record.nights.map((each) => html`<section class="card"><h2><${Text}>${each.folder}<//></h2><${Facts} rows=${runFacts(each)} /></section>`)}
      <${Pivot.Charts} run=${run} />
      <div class="tables">${record.tables.filter((table) => table.rows.length && table.view !== "modes_by_step").map((table) => html`<${Table} key=${table.view} table=${table} />`)}</div>
    </main>`;
  }

  Pivot.Overview = Overview;
})();
