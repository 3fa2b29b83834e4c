// The film strip of an episode: a picture per step, and under it the plan that still worked at the pivot.
"use strict";

(() => {
  const { html, Text, Frame } = Pivot;
  const { useEffect, useRef } = preactHooks;

  const ARROWS = new Map([["left", "←"], ["right", "→"], ["up", "↑"], ["down", "↓"], ["moveleft", "←"], ["moveright", "→"],
    ["moveahead", "↑"], ["moveback", "↓"], ["rotateleft", "↺"], ["rotateright", "↻"], ["lookup", "⤴"], ["lookdown", "⤵"]]);
  const ENDS = new Map([["success", "reached"], ["lost", "lost"], ["horizon", "no turns"], ["policy_error", "policy error"], ["env_error", "error"]]);
  const endOf = (page) => ENDS.get(page.episode.stop_reason) ?? "end";

  // An action with its direction; a turn of several actions has several.
  function Way({ action }) {
    const arrows = String(action ?? "").split("|").map((each) => ARROWS.get(each) ?? "").join("");
    return html`${arrows && html`<span class="way" aria-hidden="true">${arrows} </span>`}<${Text}>${action}<//>`;
  }

  function Tile({ frame, t, step = t, caption, kind, current, onStep, name, prefix = "step" }) {
    return html`<li class=${`tile ${kind} ${current ? "current" : ""}`} style=${{ gridColumn: t + 1 }}>
      <button onClick=${() => onStep(step)} aria-current=${current ? "step" : null}>
        <span class="aside">${prefix} </span><span class="at">${name ?? step}</span>
        ${frame !== undefined && html`<${Frame} frame=${frame} alt="" size="84" />`}
        <span class="did"><${Way} action=${caption} /></span>
      </button></li>`;
  }

  function Film({ page, at, onStep }) {
    const strip = useRef(null);
    const pivot = Pivot.pivotOf(page);
    const { steps, witness, frames } = page;
    useEffect(() => {
      const element = strip.current?.querySelector(".current");
      if (!element) return;
      const film = strip.current;
      const middle = element.offsetLeft - (film.clientWidth - element.offsetWidth) / 2;
      film.scrollTo({ left: middle });
    }, [page, at]);
    if (!steps.length) return html`<p class="none">The episode has no step.</p>`;
    const drawings = page.tiles === "outcomes";
    const goal = witness && pivot + witness.actions.length + 1;
    const kind = (t) => (t === pivot ? "pivot" : pivot !== null && t > pivot ? "after" : "");
    return html`<div class="film" ref=${strip} tabindex="0" role="region" aria-label="All steps">
      <ol>
        ${drawings && html`<li class="tile end" style=${{ gridColumn: 1 }}><span class="at">target</span><${Frame} frame=${frames[0]} alt="The target" size="84" /></li>`}
        ${steps.map((step, t) => html`<${Tile} key=${t} frame=${frames[drawings ? t + 1 : t]} t=${drawings ? t + 1 : t} step=${t} caption=${step.action} kind=${kind(t)} current=${t === at}
          onStep=${onStep} name=${t === pivot ? `${t} pivot` : t} />`)}
        ${!drawings && html`<li class="tile end" style=${{ gridColumn: steps.length + 1 }}><span class="at">end</span>
          <${Frame} frame=${frames.at(-1)} alt="After the last step" size="84" /><span class="did">${endOf(page)}</span></li>`}
      </ol>
      ${witness && html`<ol class="plan" aria-label="The plan that still worked">
        ${witness.actions.map((action, i) => html`<${Tile} key=${i} t=${pivot + i} kind=${witness.frames ? "plan" : "plan bare"} caption=${action} current=${pivot + i === at} onStep=${onStep}
          frame=${witness.frames?.[i]} prefix="plan, step" />`)}
        <li class="tile plan end" style=${{ gridColumn: goal }}><span class="at">goal</span>
          ${witness.frames && html`<${Frame} frame=${witness.frames.at(-1)} alt="After the plan" size="84" />`}<span class="did">reached</span></li>
      </ol>`}
    </div>`;
  }

  Object.assign(Pivot, { Film, Way, endOf, pivotOf: (page) => page.label?.pivot_step ?? null });
})();
