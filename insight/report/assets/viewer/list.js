// The list of episodes: filters at the side, a search, and rows that exist only where one looks.
"use strict";

(() => {
  const { html, Text, Outcome, LabelBadge } = Pivot;
  const { useState, useEffect, useRef, useCallback } = preactHooks;
  const ROW = 44;
  const NARROW_ROW = 76;
  const MARGIN = 8;
  const NAMES = { "": "none", none: "no label" };

  function Facet({ facet, counts, params, set }) {
    const picked = Pivot.chosen(params, facet.name);
    const values = new Set([...counts.keys(), ...picked]);
    const entries = [...values].filter((value) => value !== "" || facet.name === "mode")
      .map((value) => [value, counts.get(value) ?? 0]);
    if (facet.name === "pivot") entries.sort((a, b) => a[0] - b[0]);
    else entries.sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
    const shown = entries.filter(([value]) => value !== "");
    if (shown.length === 0) return null;
    const toggle = (value) => {
      const next = new Set(picked);
      if (!next.delete(value)) next.add(value);
      set({ [facet.name]: [...next].join(",") });
    };
    return html`<fieldset class=${`facet of-${facet.name}`}><legend>${facet.title}</legend>
      ${shown.map(([value, count]) => html`<label key=${value} class=${picked.has(value) ? "on" : ""}>
        <input type="checkbox" checked=${picked.has(value)} onChange=${() => toggle(value)} />
        <span class="name"><${Text}>${NAMES[value] ?? value}<//></span>
        <span class="count">${count.toLocaleString("en")}</span></label>`)}
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

  function Row({ number, index, total, height, selected, params }) {
    const { columns, value } = Pivot;
    const pivot = columns.pivot[number];
    const steps = columns.steps[number];
    const where = pivot === null ? `${steps} of ${columns.horizon[number]} turns` : `t* ${pivot} of ${steps} steps`;
    return html`<div class=${`row ${selected ? "selected" : ""}`} role="listitem" aria-posinset=${index + 1} aria-setsize=${total}
      style=${{ top: `${index * height}px`, height: `${height}px` }}>
      <a href=${Pivot.address(Pivot.episode(number), params)} tabindex="-1">
      <span class="what"><${Outcome} outcome=${value("outcome", number)} mode=${value("mode", number)} /></span>
      <span class="env"><${Text}>${value("env", number)}<//></span>
      <span class="where"><${Strip} pivot=${pivot} steps=${steps} horizon=${columns.horizon[number]} />
        <span>${where}</span></span>
      <span class="return" title="return">${Pivot.numberText(columns.return[number])}</span>
      <span class="labelled"><${LabelBadge} label=${Pivot.label(number)} /></span>
      <span class="said"><${Text}>${columns.guidance[number] || value("instruction", number)}<//></span>
      <span class="id" title="rollout of the level"><${Text}>${columns.id[number].slice(-8)}<//> · ${columns.sample[number]}</span>
    </a></div>`;
  }

  function Rows({ rows, params, selected }) {
    const box = useRef(null);
    const [view, setView] = useState({ top: 0, height: 800, narrow: false });
    const height = view.narrow ? NARROW_ROW : ROW;
    const look = useCallback(() => {
      const { scrollTop, clientHeight, clientWidth } = box.current;
      setView({ top: scrollTop, height: clientHeight, narrow: clientWidth < 720 });
    }, []);
    useEffect(() => {
      look();
      const watch = new ResizeObserver(look);
      watch.observe(box.current);
      return () => watch.disconnect();
    }, []);
    useEffect(() => {
      const element = box.current;
      const top = selected * height;
      if (selected < 0) element.scrollTop = 0;
      else if (top < element.scrollTop) element.scrollTop = top;
      else if (top + height > element.scrollTop + element.clientHeight) element.scrollTop = top + height - element.clientHeight;
    }, [selected, rows, height]);
    const first = Math.max(0, Math.floor(view.top / height) - MARGIN);
    const stop = Math.min(rows.length, Math.ceil((view.top + view.height) / height) + MARGIN);
    return html`<div class="rows" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label="Episodes">
      <div class="sheet" role="list" style=${{ height: `${rows.length * height}px` }}>
        ${rows.slice(first, stop).map((number, i) => html`<${Row} key=${number} number=${number} index=${first + i}
          total=${rows.length} height=${height} selected=${first + i === selected} params=${params} />`)}
      </div>
    </div>`;
  }

  function Search({ params, set, refresh }) {
    const replies = params.get("replies") === "1";
    const reading = replies && Pivot.deep.loaded < Pivot.size;
    useEffect(() => {
      if (replies && params.get("q")) Pivot.readReplies(refresh).catch(() => {}); // the share that was read stays shown
    }, [replies, params.get("q")]);
    return html`<div class="search">
      <input id="search" type="search" placeholder="Search   /" aria-label="Search in episodes" value=${params.get("q") ?? ""}
        onInput=${(event) => set({ q: event.target.value })} autocomplete="off" spellcheck=${false} />
      <label class="replies"><input type="checkbox" checked=${replies}
        onChange=${(event) => set({ replies: event.target.checked ? "1" : null })} /> replies and levels too
        ${reading && params.get("q") && html`<span class="count"> ${Math.floor((100 * Pivot.deep.loaded) / Pivot.size)} %</span>`}
      </label>
    </div>`;
  }

  function List({ params, refresh }) {
    const { rows, counts } = Pivot.filtered(params);
    const [selected, setSelected] = useState(() => rows.indexOf(Pivot.lastSeen ?? -1));
    const [open, setOpen] = useState(false);
    const set = (changes) => {
      setSelected(-1);
      Pivot.go(Pivot.address("episodes", params, changes), true);
    };
    Pivot.keys = {
      j: () => setSelected(Math.min(selected + 1, rows.length - 1)),
      k: () => setSelected(Math.max(selected - 1, 0)),
      Enter: () => rows[selected] !== undefined && Pivot.go(Pivot.address(Pivot.episode(rows[selected]), params)),
    };
    Pivot.keys.ArrowDown = Pivot.keys.j;
    Pivot.keys.ArrowUp = Pivot.keys.k;
    const picked = Pivot.FACETS.reduce((sum, facet) => sum + Pivot.chosen(params, facet.name).size, 0);
    return html`<main class="list">
      <h1 class="aside">Episodes</h1>
      <aside class=${open ? "open" : ""}>
        <button class="fold" aria-expanded=${open} onClick=${() => setOpen(!open)}>Filters${picked ? ` (${picked})` : ""}</button>
        <form class="facets" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
          ${Pivot.FACETS.map((facet, i) => html`<${Facet} key=${facet.name} facet=${facet} counts=${counts[i]} params=${params} set=${set} />`)}
          ${picked > 0 && html`<button class="clear" type="button"
            onClick=${() => set(Object.fromEntries(Pivot.FACETS.map((facet) => [facet.name, null])))}>clear filters</button>`}
        </form>
      </aside>
      <section class="results">
        <div class="bar">
          <${Search} params=${params} set=${set} refresh=${refresh} />
          <p class="total" role="status">${rows.length.toLocaleString("en")} of ${Pivot.size.toLocaleString("en")} episodes</p>
          <label class="sort">Order <select value=${params.get("sort") ?? ""} onChange=${(event) => set({ sort: event.target.value })}>
            ${Object.entries(Pivot.SORTS).map(([name, [title]]) => html`<option value=${name}>${title}</option>`)}</select></label>
          <a class="json" href="contents.json" title="this list as JSON">JSON</a>
        </div>
        ${rows.length === 0
          ? html`<p class="nothing">${Pivot.size ? "No episode passes the filters." : "The store holds no such episode."}</p>`
          : html`<${Rows} rows=${rows} params=${params} selected=${selected} />`}
      </section>
    </main>`;
  }

  Object.assign(Pivot, { List, Strip });
})();
