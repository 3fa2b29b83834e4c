// The list of episodes: filters at the side, a search, and rows that can be sorted by any column.
"use strict";

(() => {
  const { html, Text, Outcome, LabelBadge, Virtual, FACETS, COLUMNS } = Pivot;
  const { useState, useEffect } = preactHooks;
  const ROW = 44;
  const NARROW_ROW = 76;
  const FACET_ROWS = 12;

  function Facet({ facet, counts, params, set }) {
    const [all, setAll] = useState(false);
    const picked = Pivot.chosen(params, facet.name);
    const entries = [...new Set([...counts.keys(), ...picked])].filter((value) => value !== "").map((value) => [value, counts.get(value) ?? 0]);
    if (entries.length === 0) return null;
    if (facet.numeric) entries.sort((a, b) => a[0] - b[0]);
    else entries.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const shown = all ? entries : entries.slice(0, facet.numeric ? 2 * FACET_ROWS : FACET_ROWS);
    const toggle = (value) => {
      const next = new Set(picked);
      if (!next.delete(value)) next.add(value);
      set({ [facet.name]: Pivot.joined(next) });
    };
    return html`<fieldset class=${`facet of-${facet.name} ${facet.numeric ? "chips" : ""}`}><legend>${facet.title}</legend>
      ${shown.map(([value, count]) => html`<label key=${value} class=${picked.has(value) ? "on" : ""}>
        <input type="checkbox" checked=${picked.has(value)} onChange=${() => toggle(value)} />
        <span class="name"><${Text}>${facet.names?.get(value) ?? value}<//></span>
        <span class="count">${count.toLocaleString("en")}</span></label>`)}
      ${shown.length < entries.length && html`<button class="more" type="button" onClick=${() => setAll(true)}>${entries.length - shown.length} more</button>`}
    </fieldset>`;
  }

  // Turns taken as one bar of the budget: before the pivot, the pivot, after it; what was never used stays empty.
  function Strip({ pivot, steps, horizon }) {
    const width = 96;
    const unit = width / Math.max(horizon, steps, 1);
    const bar = (from, to, kind) => to > from && html`
      <rect class=${kind} x=${from * unit} y="3" width=${Math.max((to - from) * unit - 1, 1)} height="8" rx="1.5" />`;
    return html`<svg class="strip" width=${width} height="14" aria-hidden="true">
      ${bar(0, Math.max(horizon, steps), "unused")}
      ${bar(0, pivot ?? steps, "before")}
      ${pivot !== null && bar(pivot, pivot + 1, "pivot")}
      ${pivot !== null && bar(pivot + 1, steps, "after")}
    </svg>`;
  }

  function Row({ run, number, params }) {
    const { columns } = run;
    const value = (name) => run.value(name, number);
    const pivot = columns.pivot[number];
    const steps = columns.steps[number];
    const where = pivot === null ? `${steps} of ${columns.horizon[number]} turns` : `t* ${pivot} of ${steps} steps`;
    return html`<a href=${Pivot.address(run.path(number), params)} tabindex="-1">
      <span class="what"><${Outcome} outcome=${value("outcome")} mode=${value("mode")} /></span>
      <span class="env"><${Text}>${value("env")}<//></span>
      <span class="where"><${Strip} pivot=${pivot} steps=${steps} horizon=${columns.horizon[number]} /><span>${where}</span></span>
      <span class="return" title="return">${Pivot.numberText(columns.return[number])}</span>
      <span class="labelled"><${LabelBadge} label=${run.label(number)} /></span>
      <span class="said"><${Text}>${columns.guidance[number] || value("instruction")}<//></span>
      <span class="id" title="rollout of the level"><${Text}>${columns.id[number].slice(-8)}<//> · ${columns.sample[number]}</span>
    </a>`;
  }

  const HEADS = [
    ["what", "mode", "Outcome"], ["env", "env", "Environment"], ["where", "pivot", "Pivot"], ["return", "return", "Return"],
    ["labelled", "label", "Label"], ["said", "guidance", "Guidance"], ["id", "id", "Episode"],
  ];

  // A click sorts by a column, a second one the other way round, a third one restores the stored order.
  function nextSort(by, name) {
    if (by?.name !== name) return name;
    return by.down ? null : `-${name}`;
  }

  function Heads({ params, set }) {
    const by = Pivot.order(params);
    return html`<div class="heads" role="group" aria-label="Sort by">${HEADS.map(([area, name, title]) => html`
      <button class=${area} aria-pressed=${by?.name === name} onClick=${() => set({ sort: nextSort(by, name) })}>
        ${title}${by?.name === name && html`<span class="direction" aria-hidden="true"> ${by.down ? "↓" : "↑"}</span>`}</button>`)}</div>`;
  }

  function Order({ params, set }) {
    const by = Pivot.order(params);
    return html`<span class="sort"><label>Order <select value=${by?.name ?? ""} onChange=${(event) => set({ sort: event.target.value })}>
        <option value="">as stored</option>${[...COLUMNS].map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></label>
      <button disabled=${!by} aria-pressed=${by?.down ?? false} aria-label="largest first" title="largest first"
        onClick=${() => set({ sort: `${by.down ? "" : "-"}${by.name}` })}>${by?.down ? "↓" : "↑"}</button></span>`;
  }

  function Search({ run, params, set, refresh }) {
    const replies = params.get("replies") === "1";
    const reading = replies && run.replies.loaded < run.size;
    useEffect(() => {
      if (replies && params.get("q")) run.readReplies(refresh).catch(() => {}); // the part that was read stays shown
    }, [run, replies, params.get("q")]);
    return html`<div class="search">
      <input id="search" type="search" placeholder="Search   /" aria-label="Search in episodes" value=${params.get("q") ?? ""}
        onInput=${(event) => set({ q: event.target.value })} autocomplete="off" spellcheck=${false} />
      <label class="replies"><input type="checkbox" checked=${replies}
        onChange=${(event) => set({ replies: event.target.checked ? "1" : null })} /> replies and levels too
        ${reading && params.get("q") && html`<span class="count"> ${Math.floor((100 * run.replies.loaded) / run.size)} %</span>`}
      </label>
    </div>`;
  }

  function List({ run, params, refresh }) {
    const { rows, counts } = Pivot.filtered(run, params);
    const [selected, setSelected] = useState(() => rows.indexOf(run.lastSeen ?? -1));
    const [open, setOpen] = useState(false);
    const set = (changes) => {
      setSelected(-1);
      Pivot.go(Pivot.address("episodes", params, changes), true);
    };
    const move = (to) => () => setSelected(Math.max(0, Math.min(to, rows.length - 1)));
    const openSelected = () => rows[selected] !== undefined && Pivot.go(Pivot.address(run.path(rows[selected]), params));
    Pivot.keys = new Map([
      ["j", move(selected + 1)], ["ArrowDown", move(selected + 1)], ["k", move(selected - 1)], ["ArrowUp", move(selected - 1)],
      ["Enter", openSelected],
    ]);
    const picked = FACETS.reduce((sum, facet) => sum + Pivot.chosen(params, facet.name).size, 0);
    return html`<main class="list">
      <h1 class="aside">Episodes</h1>
      <aside class=${open ? "open" : ""}>
        <button class="fold" aria-expanded=${open} onClick=${() => setOpen(!open)}>Filters${picked ? ` (${picked})` : ""}</button>
        <form class="facets" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
          ${FACETS.map((facet, i) => html`<${Facet} key=${facet.name} facet=${facet} counts=${counts[i]} params=${params} set=${set} />`)}
          ${picked > 0 && html`<button class="clear" type="button"
            onClick=${() => set(Object.fromEntries(FACETS.map((facet) => [facet.name, null])))}>clear filters</button>`}
        </form>
      </aside>
      <section class="results">
        <div class="bar">
          <${Search} run=${run} params=${params} set=${set} refresh=${refresh} />
          <p class="total" role="status">${rows.length.toLocaleString("en")} of ${run.size.toLocaleString("en")} episodes</p>
          <${Order} params=${params} set=${set} />
          <${Pivot.Export} run=${run} rows=${rows} />
          <a class="json" href="contents.json" title="this list as JSON">JSON</a>
        </div>
        ${rows.length === 0
          ? html`<p class="nothing">${run.size ? "No episode passes the filters." : "The store holds no such episode."}</p>`
          : html`<${Heads} params=${params} set=${set} />
            <${Virtual} rows=${rows} height=${ROW} narrowHeight=${NARROW_ROW} selected=${selected} label="Episodes"
              render=${(number) => html`<${Row} run=${run} number=${number} params=${params} />`} />`}
      </section>
    </main>`;
  }

  Object.assign(Pivot, { List, Strip });
})();
