// The rollouts of a level as a grid: a row per rollout, a column per step, the pivots marked.
"use strict";

(() => {
  const { html, Text, Outcome, LabelBadge, Frame, pivotOf, useLoaded, numberText } = Pivot;

  function Cell({ run, number, page, t, params }) {
    const pivot = pivotOf(page);
    const step = page.steps[t];
    const drawings = page.tiles === "outcomes";
    const kind = t === pivot ? "pivot" : pivot !== null && t > pivot ? "after" : "";
    return html`<td class=${`cell ${kind}`}><a href=${Pivot.address(run.path(number), params, { step: t })}>
      <${Frame} frame=${page.frames[drawings ? t + 1 : t]} alt="" size="64" />
      <span class="did"><span class="aside">step ${t}${t === pivot ? ", pivot" : ""}: </span><${Pivot.Way} action=${step.action} /></span></a></td>`;
  }

  function Rollout({ run, number, page, columns, params }) {
    const steps = page.steps.length;
    return html`<tr><th scope="row"><a href=${Pivot.address(run.path(number), params, { step: null })}>rollout ${run.columns.sample[number]}</a>
        <${Outcome} outcome=${page.outcome} mode=${page.label?.failure_mode} />
        <span class="soft">return ${numberText(page.episode.episode_return)}${pivotOf(page) === null ? "" : `, t* ${pivotOf(page)}`}</span>
        <${LabelBadge} label=${run.label(number)} /></th>
      ${page.steps.map((_, t) => html`<${Cell} run=${run} number=${number} page=${page} t=${t} params=${params} />`)}
      <td class="cell end"><${Frame} frame=${page.frames.at(-1)} alt=${`end of rollout ${run.columns.sample[number]}`} size="64" /><span class="did">${Pivot.endOf(page)}</span></td>
      ${steps < columns && html`<td colspan=${columns - steps}></td>`}</tr>`;
  }

  function Grid({ run, numbers, params, title }) {
    const key = numbers.join(" ");
    const { key: loaded, value: pages, error } = useLoaded(key, () => Promise.all(numbers.map((number) => run.page(number))));
    if (error) return html`<p class="none">${error}</p>`;
    if (!pages || loaded !== key) return html`<p class="wait">Loading …</p>`;
    const columns = Math.max(...pages.map((page) => page.steps.length));
    const solved = pages.filter((page) => page.outcome === "solved").length;
    return html`<section class=${`card level-grid env-${pages[0].episode.env}`} data-ready="yes"><h2><${Text}>${title}<//> <span class="soft">${solved} of ${pages.length} solved</span></h2>
      <div class="scroll" tabindex="0" role="region" aria-label=${`Rollouts of ${title}`}><table><thead><tr><th scope="col">rollout</th>
        ${[...Array(columns).keys()].map((t) => html`<th scope="col">${t}</th>`)}<th scope="col">end</th></tr></thead>
        <tbody>${pages.map((page, i) => html`<${Rollout} key=${numbers[i]} run=${run} number=${numbers[i]} page=${page} columns=${columns} params=${params} />`)}</tbody></table></div></section>`;
  }

  function Level({ run, id, params }) {
    const number = run.numbers.get(id);
    const back = Pivot.address(number === undefined ? "episodes" : run.path(number), params, { step: null });
    Pivot.keys = new Map([["Escape", () => Pivot.go(back)]]);
    if (number === undefined) {
      return html`<main class="overview"><h1>No such level</h1><p class="none">This report holds no episode <code><${Text}>${id}<//></code>.
        ${" "}<a href=${Pivot.address("episodes", params)}>All episodes</a></p></main>`;
    }
    return html`<main class="overview level"><div class="title"><h1><${Text}>${run.value("env", number)}<//>: the rollouts of a level</h1>
        <a href=${back}>back to the episode</a></div>
      <p class="soft"><${Text}>${run.value("task", number)}<//></p>
      <${Grid} run=${run} numbers=${run.siblings(number)} params=${params} title=${run.name || "this run"} /></main>`;
  }

  Object.assign(Pivot, { Level });
})();
