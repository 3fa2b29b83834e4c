// The listed failures in charts; every mark leads to its episodes. Colours of modes are the same in all charts.
"use strict";

(() => {
  const { html, Text, useWidth, numberText } = Pivot;
  const MOST_BARS = 60;
  const MOST_LEVELS = 150;
  const COLOURS = 8;

  const listed = (changes) => Pivot.address("episodes", new URLSearchParams(),
    Object.fromEntries(Object.entries(changes).map(([name, value]) => [name, Pivot.joined([String(value)])])));

  // Numbers of the failures of an environment by the value of a column.
  function grouped(run, numbers, name) {
    const groups = new Map();
    for (const number of numbers) {
      const value = run.value(name, number);
      if (value === null || value === "") continue;
      if (!groups.has(value)) groups.set(value, []);
      groups.get(value).push(number);
    }
    return groups;
  }

  function Modes({ env, modes, total, kind }) {
    return html`<ul class="modes-of">${[...modes].map(([mode, numbers]) => html`<li><a href=${listed({ env, mode })}>
      <span class="name"><${Text}>${mode}<//></span>
      <span class="track"><span class=${`fill ${kind(mode)}`} style=${{ width: `${(100 * numbers.length) / total}%` }}></span></span>
      <span class="count">${numbers.length.toLocaleString("en")} · ${numberText((100 * numbers.length) / total, 1)} %</span></a></li>`)}</ul>`;
  }

  // A bar per value, divided by mode; whole numbers in a row have a place for each.
  function Bars({ run, env, numbers, name, title, kind, order }) {
    const groups = grouped(run, numbers, name);
    let values = [...groups.keys()].sort((a, b) => a - b);
    if (!values.length) return null;
    const span = values.at(-1) - values[0] + 1;
    if (values.every(Number.isInteger) && span <= MOST_BARS) values = [...Array(span).keys()].map((i) => values[0] + i);
    const most = Math.max(...[...groups.values()].map((each) => each.length));
    const every = Math.ceil(values.length / 13);
    return html`<figure class="bars"><figcaption>${title} <span class="soft">up to ${most.toLocaleString("en")} failures</span></figcaption>
      <div class="bars-of">${values.map((value, i) => html`<div class="bar-of"><div class="stack">
        ${[...grouped(run, groups.get(value) ?? [], "mode")].sort(([a], [b]) => order.get(b) - order.get(a)).map(([mode, chosen]) => {
          const text = `${chosen.length.toLocaleString("en")} of ${mode}, ${title.toLowerCase()} ${value}`;
          return html`<a class=${kind(mode)} href=${listed({ env, mode, [name]: value })} style=${{ height: `${(100 * chosen.length) / most}%` }} title=${text} aria-label=${text}></a>`;
        })}</div><span class="at">${i % every === 0 ? value : ""}</span></div>`)}</div></figure>`;
  }

  // The rollouts of each level on one vertical line, levels by their mean return; equal returns are crosses.
  function Ladder({ run, numbers }) {
    const [box, width] = useWidth(420);
    const HEIGHT = 160, LEFT = 34, BOTTOM = 6;
    const levels = new Map();
    for (const number of numbers) {
      const key = `${run.columns.task[number]} ${run.columns.set[number]}`;
      if (!levels.has(key)) levels.set(key, []);
      levels.get(key).push(number);
    }
    const mean = (level) => level.reduce((sum, number) => sum + run.columns.return[number], 0) / level.length;
    const all = [...levels.values()].sort((a, b) => mean(a) - mean(b));
    if (!all.length) return null;
    const count = Math.min(all.length, MOST_LEVELS);
    const shown = [...Array(count).keys()].map((i) => all[Math.floor((i * all.length) / count)]);
    const returns = shown.flat().map((number) => run.columns.return[number]);
    const [low, high] = [returns.reduce((a, b) => Math.min(a, b)), returns.reduce((a, b) => Math.max(a, b))];
    const x = (i) => LEFT + ((i + 0.5) * (width - LEFT)) / count;
    const y = (value) => 8 + (1 - (value - low) / (high - low || 1)) * (HEIGHT - BOTTOM - 8);
    return html`<figure class="bars ladder" ref=${box}><figcaption>Returns by level <span class="soft">${count < all.length ? `${count} of ` : ""}${all.length.toLocaleString("en")} levels; × where all rollouts return the same</span></figcaption>
      <svg width=${width} height=${HEIGHT} role="group" aria-label="Returns by level">
        ${[low, high].map((value) => html`<text x=${LEFT - 6} y=${y(value) + 4} text-anchor="end">${numberText(value)}</text><line class="grid" x1=${LEFT} x2=${width} y1=${y(value)} y2=${y(value)} />`)}
        ${shown.map((level, i) => {
          const mine = level.map((number) => run.columns.return[number]);
          const [least, most] = [Math.min(...mine), Math.max(...mine)];
          const text = `${level.length} rollouts return ${numberText(least)} to ${numberText(most)}`;
          return html`<a href=${Pivot.address(run.path(level[0], "level"), new URLSearchParams())} aria-label=${text} tabindex="-1"><title>${text}</title>
            <rect class="hit" x=${x(i) - (width - LEFT) / count / 2} width=${(width - LEFT) / count} y="0" height=${HEIGHT} />
            <line x1=${x(i)} x2=${x(i)} y1=${y(most)} y2=${y(least)} />
            ${least === most && level.length > 1 ? html`<path d=${`M${x(i) - 3} ${y(most) - 3}l6 6m0 -6l-6 6`} />`
              : [...new Set(mine)].map((value) => html`<circle cx=${x(i)} cy=${y(value)} r="2.5" />`)}</a>`;
        })}</svg></figure>`;
  }

  function Charts({ run }) {
    const every = [...Array(run.size).keys()];
    const failures = every.filter((number) => run.columns.pivot[number] !== null && run.value("mode", number));
    const byMode = [...grouped(run, failures, "mode")].sort((a, b) => b[1].length - a[1].length);
    const order = new Map(byMode.map(([mode], i) => [mode, i]));
    const kind = (mode) => `mode-${order.get(mode) % COLOURS}`;
    return [...grouped(run, every, "env")].map(([env, numbers]) => {
      const mine = numbers.filter((number) => run.columns.pivot[number] !== null && run.value("mode", number));
      const complete = numbers.filter((number) => ["failed", "solved"].includes(run.value("outcome", number)));
      const modes = new Map([...grouped(run, mine, "mode")].sort((a, b) => b[1].length - a[1].length));
      const part = { run, env, numbers: mine, kind, order };
      return html`<section class="card charts" key=${env}><h2><a href=${listed({ env })}><${Text}>${env}<//></a> <span class="soft">${mine.length.toLocaleString("en")} labelled failures among ${numbers.length.toLocaleString("en")} listed episodes</span></h2>
        <div class="charts-of">
          <figure class="bars"><figcaption>Failure mode</figcaption><${Modes} env=${env} modes=${modes} total=${mine.length} kind=${kind} /></figure>
          <${Bars} ...${part} name="pivot" title="Pivot step" />
          <${Bars} ...${part} name="slack" title="Slack at the pivot" />
          <${Ladder} run=${run} numbers=${complete} />
        </div></section>`;
    });
  }

  Pivot.Charts = Charts;
})();
