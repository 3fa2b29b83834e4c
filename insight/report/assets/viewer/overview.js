// The store as a whole: the tables of `pivot stats` and the pictures of `pivot plot`.
"use strict";

(() => {
  const { html, Text, Facts, useLoaded, numberText } = Pivot;

  const cell = (value) => (typeof value === "number" ? numberText(value, 4) : html`<${Text}>${value ?? ""}<//>`);

  // The filter that a row, or a count in a column, stands for; null for figures of no list.
  function chosen(table, row, i) {
    const at = (name) => row[table.columns.indexOf(name)];
    if (table.view === "modes" && i === 2) return { env: at("environment"), mode: at("mode") };
    if (table.view === "modes_by_step" && i > 1 && row[i] > 0) return { env: at("environment"), mode: at("mode"), pivot: table.columns[i] };
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
      ${table.rows.length === 0 ? html`<p class="none">none</p>` : html`<div class="scroll" tabindex="0" role="region" aria-label=${table.title}><table>
        <thead><tr>${table.columns.map((name, i) => html`<th scope="col" class=${numeric[i] ? "number" : ""}><${Text}>${name}<//></th>`)}</tr></thead>
        <tbody>${table.rows.map((row) => html`<tr>${row.map((_, i) => html`<td class=${numeric[i] ? "number" : ""}><${Count} table=${table} row=${row} i=${i} /></td>`)}</tr>`)}</tbody>
      </table></div>`}
      <p class="soft">view <code>${table.view}</code></p></section>`;
  }

  const part = ({ name, stand_in: standIn }) => `${name}${standIn ? " (embedded stand-in for a model)" : ""}`;

  function runFacts(run) {
    const levels = Object.entries(run.environments).map(([name, count]) => `${name} ${count.toLocaleString("en")}`).join(", ");
    return [
      ["run", run.run_id], ["levels", levels], ["rollouts per level", run.rollouts], ["policy", part(run.policy)],
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
      ${record.problem && html`<p class="none"><${Text}>${`No pictures: ${record.problem}`}<//></p>`}
      <div class="tables">${record.tables.map((table) => html`<${Table} key=${table.view} table=${table} />`)}</div>
      <div class="plots">${record.plots.map((plot) => html`<figure class="plot" tabindex="0" aria-label=${plot.title}>
        <img src=${plot.src} alt=${plot.title} width=${plot.width} height=${plot.height} loading="lazy" /></figure>`)}</div>
    </main>`;
  }

  Pivot.Overview = Overview;
})();
