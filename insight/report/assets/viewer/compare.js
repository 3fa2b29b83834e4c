// Two runs side by side: a row per level with the rollouts of both, and the rates of every environment.
"use strict";

(() => {
  const { html, Text, Virtual, numberText } = Pivot;
  const ROW = 40;
  const NARROW_ROW = 64;
  const SORTS = new Map([
    ["", ["as stored", null]], ["gain", ["largest gain first", (row) => -(row.change ?? -Infinity)]],
    ["loss", ["largest loss first", (row) => row.change ?? Infinity]], ["one", ["levels of one run first", (row) => (row.sides.every(Boolean) ? 1 : 0)]],
  ]);

  // Numbers of the episodes of each level, by environment, task and task set.
  function levels(run) {
    if (!run.levels) {
      run.levels = new Map();
      for (let number = 0; number < run.size; number += 1) {
        const level = run.level(number);
        if (run.levels.has(level)) run.levels.get(level).push(number);
        else run.levels.set(level, [number]);
      }
    }
    return run.levels;
  }

  function side(run, numbers) {
    if (!numbers) return null;
    const solved = numbers.filter((number) => run.value("outcome", number) === "solved").length;
    const mean = numbers.reduce((sum, number) => sum + run.columns.return[number], 0) / numbers.length;
    return { numbers, solved, mean };
  }

  // A row per level of either run; the change is that of the share of solved rollouts.
  function compared(runs) {
    const [mine, theirs] = runs.map(levels);
    return [...new Set([...mine.keys(), ...theirs.keys()])].map((level) => {
      const [env, task] = level.split("\n");
      const sides = [side(runs[0], mine.get(level)), side(runs[1], theirs.get(level))];
      const shares = sides.map((each) => each && each.solved / each.numbers.length);
      return { env, task, sides, change: sides.every(Boolean) ? shares[0] - shares[1] : null };
    });
  }

  const percent = (count, all) => (all ? `${numberText((100 * count) / all, 1)} %` : "–");
  const signed = (value, digits) => (value === null ? "–" : `${value > 0 ? "+" : ""}${numberText(value, digits)}`);

  function rates(run) {
    const counts = new Map();
    for (let number = 0; number < run.size; number += 1) {
      const env = run.value("env", number);
      if (!counts.has(env)) counts.set(env, { episodes: 0, solved: 0, returns: 0, modes: new Map() });
      const each = counts.get(env);
      each.episodes += 1;
      each.solved += run.value("outcome", number) === "solved" ? 1 : 0;
      each.returns += run.columns.return[number];
      const mode = run.value("mode", number);
      if (mode) each.modes.set(mode, (each.modes.get(mode) ?? 0) + 1);
    }
    return counts;
  }

  function Rates({ runs }) {
    const [mine, theirs] = runs.map(rates);
    const environments = [...new Set([...mine.keys(), ...theirs.keys()])];
    const lines = environments.flatMap((env) => {
      const both = [mine.get(env), theirs.get(env)];
      const row = (title, value, show, change) => [env, title, ...both.map((each) => (each ? show(value(each), each) : "–")), both.every(Boolean) ? change(...both.map(value), ...both) : "–"];
      const share = (a, b, x, y) => signed(100 * (a / x.episodes - b / y.episodes), 1);
      const modes = [...new Set(both.flatMap((each) => (each ? [...each.modes.keys()] : [])))];
      return [
        row("solved", (each) => each.solved, (count, each) => percent(count, each.episodes), share),
        row("mean return", (each) => each.returns / each.episodes, (mean) => numberText(mean, 3), (a, b) => signed(a - b, 3)),
        ...modes.map((mode) => row(mode, (each) => each.modes.get(mode) ?? 0, (count, each) => percent(count, each.episodes), share)),
      ];
    });
    return html`<section class="card table rates"><h2>Rates per episode</h2><div class="scroll" tabindex="0" role="region" aria-label="Rates"><table>
      <thead><tr><th scope="col">environment</th><th scope="col">rate</th>${runs.map((run) => html`<th scope="col" class="number"><${Text}>${run.name}<//></th>`)}<th scope="col" class="number">difference</th></tr></thead>
      <tbody>${lines.map((line) => html`<tr>${line.map((value, i) => html`<td class=${i > 1 ? "number" : ""}><${Text}>${value}<//></td>`)}</tr>`)}</tbody></table></div>
      <p class="soft">Intervals of these differences: <code>pivot compare</code></p></section>`;
  }

  function Rollouts({ run, each, params }) {
    if (!each) return html`<span class="rollouts none">not in this run</span>`;
    const title = `${each.solved} of ${each.numbers.length} solved`;
    return html`<span class="rollouts"><span class="squares">${each.numbers.slice(0, 16).map((number) => html`
        <a class=${`square ${run.value("outcome", number) === "solved" ? "solved" : run.value("mode", number) ? "failed" : "broken"}`} tabindex="-1"
          href=${Pivot.address(run.path(number), params, { run: run.key })} title=${`rollout ${run.columns.sample[number]}: ${run.value("mode", number) || run.value("outcome", number)}`}>
          <span class="aside">rollout ${run.columns.sample[number]}: ${run.value("mode", number) || run.value("outcome", number)}</span></a>`)}</span>
      <span>${title}</span><span class="soft mean">return ${numberText(each.mean)}</span></span>`;
  }

  function Row({ runs, row, params }) {
    const start = row.sides[0] ? 0 : 1;
    const id = runs[start].columns.id[row.sides[start].numbers[0]];
    const level = Pivot.address(`level/${encodeURIComponent(id)}`, params, { run: runs[start].key });
    return html`<div class="pairing"><a class="level" href=${level}><span class="soft"><${Text}>${row.env}<//></span> <${Text}>${row.task.split("/").at(-1).slice(-12)}<//></a>
      ${runs.map((run, i) => html`<${Rollouts} run=${run} each=${row.sides[i]} params=${params} />`)}
      <span class=${`change ${row.change > 0 ? "up" : row.change < 0 ? "down" : ""}`}>${row.change === null ? "–" : `${signed(100 * row.change, 1)} %`}</span></div>`;
  }

  let cached = { runs: null };

  function Compare({ first, other, hasOther, params }) {
    Pivot.keys = new Map([["Escape", () => Pivot.go(Pivot.address("episodes", params))]]);
    if (!hasOther) return html`<main class="overview"><h1>Two runs</h1><p class="none">This report holds one run. Show another one beside it with: <code>pivot view DIR --with OTHER</code></p></main>`;
    if (!other) return html`<main class="overview"><p class="wait">Loading …</p></main>`;
    if (cached.other !== other) cached = { other, rows: compared([first, other]), sorted: new Map() };
    const sort = SORTS.has(params.get("by") ?? "") ? params.get("by") ?? "" : "";
    if (!cached.sorted.has(sort)) {
      const key = SORTS.get(sort)[1];
      cached.sorted.set(sort, key ? cached.rows.map((row) => [key(row), row]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).map(([, row]) => row) : cached.rows);
    }
    const rows = cached.sorted.get(sort);
    const runs = [first, other];
    return html`<main class="compare"><section class="compare-head"><div class="title"><h1>Two runs</h1>
        <label class="sort">Order <select value=${sort} onChange=${(event) => Pivot.go(Pivot.address("compare", params, { by: event.target.value }), true)}>
          ${[...SORTS].map(([name, [title]]) => html`<option value=${name}>${title}</option>`)}</select></label></div></section>
      <div class="compare-body"><${Rates} runs=${runs} />
        <section class="levels"><div class="pairing heads" aria-hidden="true"><span>level</span>${runs.map((run) => html`<span><${Text}>${run.name}<//></span>`)}<span class="change">difference</span></div>
          <${Virtual} rows=${rows} height=${ROW} narrowHeight=${NARROW_ROW} label="Levels" render=${(row) => html`<${Row} runs=${runs} row=${row} params=${params} />`} /></section></div></main>`;
  }

  Object.assign(Pivot, { Compare, levels });
})();
