// What was needed against the turns that were left, state by state: the pivot is where the first line crosses the second.
"use strict";

(() => {
  const { html, useWidth, numberText } = Pivot;
  const HEIGHT = 210;
  const LEFT = 34, RIGHT = 12, TOP = 14, BOTTOM = 34;

  function ticks(most) {
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((each) => most / each <= 6) ?? most;
    return [...Array(Math.floor(most / step) + 1).keys()].map((i) => i * step);
  }

  // Needed amounts at s_0 .. s_T: those of the page, or of the certificate alone; undefined where nobody knows.
  function needs(page) {
    if (page.need.values) return page.need.values;
    const { label, episode } = page;
    if (!label?.certificate || page.need.unit === "score") return null;
    const values = new Array(episode.num_steps + 1).fill(undefined);
    values[label.pivot_step] = label.certificate.before;
    values[label.pivot_step + 1] = label.certificate.after;
    return values;
  }

  function Axes({ width, x, y, across, up, label }) {
    return html`
      ${up.map((each) => html`<g class="tick"><line class="grid" x1=${LEFT} x2=${width - RIGHT} y1=${y(each)} y2=${y(each)} />
        <text x=${LEFT - 7} y=${y(each) + 4} text-anchor="end">${numberText(each)}</text></g>`)}
      ${across.map((each) => html`<text x=${x(each)} y=${HEIGHT - BOTTOM + 16} text-anchor="middle">${each}</text>`)}
      <text class="axis" x=${(LEFT + width - RIGHT) / 2} y=${HEIGHT - 3} text-anchor="middle">${label}</text>`;
  }

  const path = (points) => points.map(([px, py], i) => `${i ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");

  function NeedChart({ page, at, onStep }) {
    const [box, width] = useWidth(560);
    const values = needs(page);
    const { horizon, num_steps: steps } = page.episode;
    const pivot = page.label?.pivot_step ?? null;
    const plan = page.witness && values?.[pivot] ? page.witness.actions.length : 0;
    const last = Math.max(steps, plan ? pivot + plan : 0, 1);
    const finite = (values ?? []).filter((each) => Number.isFinite(each));
    const most = Math.max(horizon, ...finite, 1);
    const x = (t) => LEFT + ((width - LEFT - RIGHT) * t) / last;
    const y = (amount) => TOP + (1 - amount / (most * 1.08)) * (HEIGHT - TOP - BOTTOM);
    const unit = page.need.unit;
    const runs = [[]];
    (values ?? []).forEach((each, t) => (Number.isFinite(each) ? runs.at(-1).push([x(t), y(each)]) : runs.push([])));
    const out = (values ?? []).map((each, t) => (each === null ? t : -1)).filter((t) => t >= 0);
    const budget = [...Array(steps + 1).keys()].map((t) => [x(t), y(horizon - t)]);
    const every = Math.max(1, Math.ceil(last / Math.max(Math.floor(width / 34), 1)));
    const across = [...Array(last + 1).keys()].filter((t) => t % every === 0);
    const amount = (t) => (values?.[t] === null ? "out of reach" : numberText(values?.[t], 1));
    const summary = values && `At step ${at}, ${amount(at)} ${unit} needed with ${horizon - at} turns left`
      + (at < steps ? `; after it ${amount(at + 1)} with ${horizon - at - 1}.` : ".");
    return html`<figure class="chart" ref=${box}>
      <svg width=${width} height=${HEIGHT} role="img" aria-label=${summary || "Turns left at each state"}>
        ${pivot !== null && html`<rect class="pivot-band" x=${x(pivot)} width=${x(pivot + 1) - x(pivot)} y=${TOP} height=${HEIGHT - TOP - BOTTOM} />
          <text class="pivot-name" x=${(x(pivot) + x(pivot + 1)) / 2} y=${TOP - 3} text-anchor="middle">t*</text>`}
        <${Axes} width=${width} x=${x} y=${y} across=${across} up=${ticks(most)} label="state (before step t; turns taken)" />
        ${at < last && html`<rect class="cursor" x=${x(at)} width=${x(at + 1) - x(at)} y=${TOP} height=${HEIGHT - TOP - BOTTOM} />`}
        <path class="budget" d=${path(budget)} />
        ${plan > 0 && html`<path class="plan" d=${path([...Array(plan + 1).keys()].map((i) => [x(pivot + i), y(values[pivot] - (values[pivot] * i) / plan)]))} />`}
        ${runs.filter((run) => run.length).map((run) => html`<path class="need" d=${path(run)} />`)}
        ${(values ?? []).map((each, t) => Number.isFinite(each) && html`<circle class=${`need ${each > horizon - t ? "late" : ""}`} cx=${x(t)} cy=${y(each)} r="3.5" />`)}
        ${out.map((t) => html`<path class="out" d=${`M${x(t) - 4} ${TOP + 4}l8 8m0 -8l-8 8`} />`)}
        ${[...Array(steps).keys()].map((t) => html`<rect class="hit" x=${x(t)} width=${x(t + 1) - x(t)} y="0" height=${HEIGHT} onClick=${() => onStep(t)} />`)}
      </svg>
      <figcaption>
        <span class="key budget">turns left</span>
        ${values && html`<span class="key need">${unit} needed${page.need.kind === "lower_bound" ? " at least" : ""}</span>`}
        ${plan > 0 && html`<span class="key plan">with the plan that still worked</span>`}
        ${out.length > 0 && html`<span class="key out">${page.need.values && page.need.limit ? `out of reach, or more than ${page.need.limit}` : "out of reach"}</span>`}
      </figcaption>
      ${page.need.problem && html`<p class="none"><${Pivot.Text}>${page.need.problem}<//></p>`}
    </figure>`;
  }

  function ScoreChart({ page, at, onStep }) {
    const [box, width] = useWidth(560);
    const scores = page.steps.map((step) => step.info?.average_score ?? null);
    const x = (t) => LEFT + ((width - LEFT - RIGHT) * t) / Math.max(scores.length, 1);
    const y = (score) => TOP + (1 - score) * (HEIGHT - TOP - BOTTOM);
    const pivot = page.label?.pivot_step ?? null;
    const wide = Math.min(64, (x(1) - x(0)) * 0.6);
    const summary = scores.map((score, t) => `submission ${t}: ${score === null ? "none" : numberText(score)}`).join("; ");
    return html`<figure class="chart" ref=${box}>
      <svg width=${width} height=${HEIGHT} role="img" aria-label=${`Scores. ${summary}`}>
        <${Axes} width=${width} x=${(t) => (x(t) + x(t + 1)) / 2} y=${y} across=${[...scores.keys()]} up=${[0, 0.25, 0.5, 0.75, 1]} label="submission" />
        ${at < scores.length && html`<rect class="cursor" x=${x(at)} width=${x(at + 1) - x(at)} y=${TOP} height=${HEIGHT - TOP - BOTTOM} />`}
        ${scores.map((score, t) => score !== null && html`
          <rect class=${t === pivot ? "score pivot" : "score"} x=${(x(t) + x(t + 1) - wide) / 2} width=${wide} y=${y(score)} height=${Math.max(y(0) - y(score), 1)} />
          <text class="value" x=${(x(t) + x(t + 1)) / 2} y=${y(score) - 4} text-anchor="middle">${numberText(score)}</text>
          <rect class="hit" x=${x(t)} width=${x(t + 1) - x(t)} y="0" height=${HEIGHT} onClick=${() => onStep(t)} />`)}
      </svg>
      <figcaption><span class="key score">score of each submission</span>${pivot !== null && html`<span class="key pivot">t*</span>`}</figcaption>
    </figure>`;
  }

  Pivot.Chart = (props) => (props.page.need.unit === "score" ? html`<${ScoreChart} ...${props} />` : html`<${NeedChart} ...${props} />`);
})();
