// The first page: the failures to look at first, as `pivot top` chooses them.
"use strict";

(() => {
  const { html, Text, Outcome, Frame, useLoaded, pivotOf } = Pivot;

  function Failure({ run, each, page }) {
    const pivot = pivotOf(page);
    return html`<a class=${`card failure env-${page.episode.env}`} href=${Pivot.address(run.path(each.number), new URLSearchParams())}>
      <${Frame} frame=${page.frames[pivot]} alt="" size="120" />
      <span class="words"><b><${Text}>${page.episode.env}<//> <${Outcome} outcome=${page.outcome} mode=${page.label?.failure_mode} /></b>
        <span>step ${pivot} of ${page.episode.num_steps}: <${Text}>${page.steps[pivot]?.action}<//></span>
        <span class="soft"><${Text}>${each.why}<//></span></span></a>`;
  }

  function Start({ run }) {
    Pivot.keys = new Map();
    const { value: pages, error } = useLoaded("start", () => Promise.all(run.top.map((each) => run.page(each.number))));
    const modes = new Map();
    for (let number = 0; number < run.size; number += 1) {
      const mode = run.value("mode", number);
      if (mode) modes.set(mode, (modes.get(mode) ?? 0) + 1);
    }
    const filtered = (changes) => Pivot.address("episodes", new URLSearchParams(), changes);
    return html`<main class="overview start"><h1>Failures to look at first</h1>
      <p class="modes"><a href=${filtered({})}>all ${run.size.toLocaleString("en")} episodes</a>
        ${[...modes].sort((a, b) => b[1] - a[1]).map(([mode, count]) => html`<a href=${filtered({ mode: Pivot.joined([mode]) })}><${Text}>${mode}<//> ${count.toLocaleString("en")}</a>`)}
        <a href=${Pivot.address("overview", new URLSearchParams())}>overview</a></p>
      ${error && html`<p class="none">${error}</p>`}
      ${run.top.length === 0 && html`<p class="none">None of these episodes has a pivot that lost a task within reach.</p>`}
      ${run.top.length > 0 && !pages && !error && html`<p class="wait">Loading …</p>`}
      <div class="failures">${pages?.map((page, i) => html`<${Failure} run=${run} each=${run.top[i]} page=${page} />`)}</div></main>`;
  }

  // An address that names no page.
  const Unknown = () => html`<main class="overview"><h1>No such page</h1>
    <p class="none">The address names no page of this site. <a href="#/">Failures to look at first</a></p></main>`;

  Object.assign(Pivot, { Start, Unknown });
})();
