// One episode, opened at its pivot: what happened, and beside it what would still have worked.
"use strict";

(() => {
  const { html, Text, Block, Facts, Badge, Outcome, LabelBadge, Frame, useLoaded, asText, numberText } = Pivot;
  const { useState, useEffect, useLayoutEffect, useRef } = preactHooks;
  const BEAT = 900;

  // The last place that can be looked at: that of the last action, or of the last one of the plan if that is later.
  function lastStep(page) {
    const plan = page.witness ? page.label.pivot_step + page.witness.actions.length : 0;
    return Math.max(page.steps.length, plan, 1) - 1;
  }

  const pivotOf = (page) => page.label?.pivot_step ?? null;
  const opening = (page) => pivotOf(page) ?? 0;

  function Tile({ frame, t, step = t, caption, kind, current, onStep, alt, name }) {
    return html`<li class=${`tile ${kind} ${current ? "current" : ""}`} style=${{ gridColumn: t + 1 }}>
      <button onClick=${() => onStep(step)} aria-current=${current ? "step" : null} aria-label=${alt}>
        <span class="at">${name ?? step}</span>
        ${frame !== undefined && html`<${Frame} frame=${frame} alt="" size="84" />`}
        <span class="did"><${Text}>${caption}<//></span>
      </button></li>`;
  }

  function Film({ page, at, onStep }) {
    const strip = useRef(null);
    const pivot = pivotOf(page);
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
          onStep=${onStep} name=${t === pivot ? `${t} pivot` : t} alt=${`Step ${t}: ${step.action}${t === pivot ? ", the pivot" : ""}`} />`)}
        ${!drawings && html`<li class="tile end" style=${{ gridColumn: steps.length + 1 }}><span class="at">end</span>
          <${Frame} frame=${frames.at(-1)} alt="After the last step" size="84" /><span class="did">return ${numberText(page.episode.episode_return)}</span></li>`}
      </ol>
      ${witness && html`<ol class="plan" aria-label="The plan that still worked">
        ${witness.actions.map((action, i) => html`<${Tile} key=${i} t=${pivot + i} kind=${witness.frames ? "plan" : "plan bare"} caption=${action} current=${pivot + i === at} onStep=${onStep}
          frame=${witness.frames?.[i]} alt=${`Plan, step ${pivot + i}: ${action}`} />`)}
        <li class="tile plan end" style=${{ gridColumn: goal }}><span class="at">goal</span>
          ${witness.frames && html`<${Frame} frame=${witness.frames.at(-1)} alt="After the plan" size="84" />`}<span class="did">reached</span></li>
      </ol>`}
    </div>`;
  }

  function Pair({ title, kind, before, after, action, note, names }) {
    return html`<section class=${`pair ${kind}`} aria-label=${title}>
      <h2>${title}</h2>
      <div class="two">
        <figure><${Frame} frame=${before} alt=${names[0]} eager /><figcaption>${names[0]}</figcaption></figure>
        <div class="arrow"><code><${Text}>${action}<//></code><span aria-hidden="true">→</span></div>
        <figure><${Frame} frame=${after} alt=${names[1]} eager /><figcaption>${names[1]}</figcaption></figure>
      </div>
      ${note && html`<p class="note">${note}</p>`}
    </section>`;
  }

  function Happened({ page, at }) {
    const step = page.steps[at];
    const T = page.steps.length;
    if (!step) {
      return html`<${Pair} title="What happened" kind="past" before=${page.frames.at(-1)} after=${null} action="over"
        names=${[`the end, after step ${T - 1}`, "nothing more"]} />`;
    }
    if (page.tiles === "outcomes") {
      return html`<${Pair} title="What was submitted" kind="past" before=${page.frames[0]} after=${page.frames[at + 1]} action=${step.action}
        names=${["the target", `submission ${at}`]} />`;
    }
    return html`<${Pair} title="What happened" kind="past" before=${page.frames[at]} after=${page.frames[at + 1]} action=${step.action}
      names=${[`before step ${at}`, `after step ${at}`]} />`;
  }

  function Possible({ page, at }) {
    const { witness } = page;
    const pivot = pivotOf(page);
    if (!witness) return null;
    const place = at - pivot;
    const title = "What still worked at the pivot";
    if (place < 0) {
      return html`<section class="pair plan waiting"><h2>${title}</h2>
        <p class="note">Until step ${pivot} the two are one. Then ${witness.actions.length} actions would have reached the goal.</p></section>`;
    }
    const plan = html`<ol class="plan-actions">${witness.actions.map((action, i) => html`
      <li class=${i === place ? "current" : i < place ? "done" : ""}><${Text}>${action}<//></li>`)}</ol>`;
    if (!witness.frames) {
      return html`<section class="pair plan"><h2>${title}</h2>${plan}
        <p class="note">${witness.problem ? html`<${Text}>${witness.problem}<//>` : `${witness.actions.length} actions reach the goal; this environment's pictures are not drawn again.`}</p></section>`;
    }
    if (place >= witness.actions.length) {
      return html`<${Pair} title=${title} kind="plan" before=${witness.frames.at(-1)} after=${null} action="done" note=${plan}
        names=${[`the goal, after ${witness.actions.length} actions`, "nothing more to do"]} />`;
    }
    return html`<${Pair} title=${title} kind="plan" before=${witness.frames[place]} after=${witness.frames[place + 1]} action=${witness.actions[place]}
      note=${plan} names=${[`before step ${at}`, `after step ${at}`]} />`;
  }

  function Step({ page, at }) {
    const step = page.steps[at];
    if (!step) return html`<section class="card"><h2>Step ${at}</h2><p class="none">The episode was over before this step.</p></section>`;
    const outcome = step.reply_outcome === "ok" ? null : step.reply_outcome.replaceAll("_", " ");
    const info = Object.entries(step.info && typeof step.info === "object" ? step.info : {});
    return html`<section class="card step"><h2>Step ${at}${at === pivotOf(page) && html` <${Badge} kind="pivot">pivot<//>`}</h2>
      <p class="line"><code class="action"><${Text}>${step.action}<//></code>
        <span>reward <b>${numberText(step.reward, 4)}</b></span><span>turns left <b>${step.remaining_turns}</b></span>
        ${!step.action_valid && html`<${Badge} kind="bad">format broken<//>`}
        ${outcome && html`<${Badge} kind="plain"><${Text}>${outcome}<//><//>`}
        ${step.finish_reason !== "stop" && html`<${Badge} kind="plain">stopped: <${Text}>${step.finish_reason}<//><//>`}
        ${step.submission_outcome && step.submission_outcome !== "ok" && html`<${Badge} kind="bad"><${Text}>${step.submission_outcome}<//><//>`}</p>
      <h3>Reply</h3>
      <${Block} text=${step.response} label="Reply" empty="The reply is empty." />
      ${step.observation_text && html`<h3>Told beside the picture</h3><${Block} text=${step.observation_text} label="Observation" />`}
      <${Facts} rows=${[...info.filter(([name]) => name !== "remaining_turns"), ["arguments", typeof step.payload === "string" ? null : step.payload], ["score parts", step.score_parts]]} />
    </section>`;
  }

  function Verdict({ page }) {
    const { label } = page;
    if (!label) {
      return html`<section class="card"><h2>No label</h2><p class="none">${page.outcome === "solved" ? "The episode reached its goal." : "Only complete failures are labelled."}</p>
        ${page.episode.error && html`<${Block} text=${page.episode.error} label="Error" />`}</section>`;
    }
    const reasons = label.reject_reasons;
    return html`<section class="card verdict"><h2>Certificate</h2>
      ${label.certificate_text ? html`<p class="lead"><${Text}>${label.certificate_text}<//></p>` : html`<p class="none">The solver gave no verdict.</p>`}
      ${label.reference_text && html`<p class="reference">By the better reference: <${Text}>${label.reference_text}<//></p>`}
      ${reasons.length > 0 && html`<h3>Rejected by</h3><ul class="reasons">${reasons.map((reason) => html`
        <li><b><${Text}>${reason.name}<//></b> <span class="soft"><${Text}>${reason.kind}<//></span><br /><${Text}>${reason.detail}<//></li>`)}</ul>`}
      <h3>Guidance</h3>
      ${label.failure_reason ? html`<blockquote><${Text}>${label.failure_reason}<//></blockquote>` : html`<p class="none">none</p>`}
      <${Facts} rows=${[
        ["safe actions at t*", label.feasible_actions?.join(", ")],
        ["plan at t*", label.witness?.join(" ")],
        ["also fits", label.secondary_modes?.join(", ")],
        ["no action was fatal", label.fallback ? "yes: the last step, by convention" : null],
        ["out of reach from the start", label.infeasible_at_start ? "yes" : null],
      ]} />
      <details><summary>all numbers of the certificate</summary>
        <${Facts} rows=${Object.entries(label.certificate ?? {}).map(([name, value]) => [name.replaceAll("_", " "), value])} /></details>
    </section>`;
  }

  function Siblings({ number, params }) {
    const { columns, value, label } = Pivot;
    const same = [];
    const alike = (i) => columns.task[i] === columns.task[number] && columns.set[i] === columns.set[number];
    for (let i = number; i >= 0 && alike(i); i -= 1) same.unshift(i);
    for (let i = number + 1; i < Pivot.size && alike(i); i += 1) same.push(i);
    return html`<h3>Rollouts of this level</h3><ul class="siblings">${same.map((i) => html`
      <li><a href=${Pivot.address(Pivot.episode(i), params, { step: null })} aria-current=${i === number ? "page" : null}
        class=${`${value("outcome", i)} ${label(i)}`}><b>${columns.sample[i]}</b> <${Text}>${value("mode", i) || value("outcome", i)}<//>
        ${columns.pivot[i] !== null && html`<span> t* ${columns.pivot[i]}</span>`}</a></li>`)}</ul>`;
  }

  function Provenance({ page, number, params }) {
    const { episode, label, steps } = page;
    const at = steps[Math.min(opening(page), steps.length - 1)];
    const where = pivotOf(page) === null ? "first" : "t*";
    return html`<section class="card"><h2>Level</h2>
        <p><${Text}>${episode.instruction}<//></p>
        <${Block} text=${page.level} label="Level" />
        <${Siblings} number=${number} params=${params} />
      </section>
      <section class="card"><h2>Provenance</h2>
        <${Facts} rows=${[
          ["episode", episode.episode_id], ["run", episode.run_id], ["level", episode.task_id], ["seed", episode.seed],
          ["group", episode.group_id], ["rollout", episode.sample_idx], ["split", episode.eval_set], ["ended by", episode.stop_reason],
          ["policy", episode.policy], ["policy settings", episode.policy_config],
          ["environment", `${episode.env} ${episode.env_version}, ${episode.backend}`], ["environment settings", episode.env_config],
          ["solver", label && `${label.solver} ${label.solver_version}`], ["solver settings", label?.solver_config],
          ["writer", label?.teacher], ["writer settings", label?.teacher_config],
          ["label version", label?.label_version], ["analyzer prompt", label?.prompt_hash], ["writer's prompt", label?.teacher_prompt_hash],
          [`student prompt, ${where}`, at?.prompt_hash], [`frame, ${where}`, at?.frame_id],
        ]} />
      </section>`;
  }

  function Head({ page, number, params, at, last, go, playing, setPlaying }) {
    const { episode, label } = page;
    const { rows } = Pivot.filtered(params);
    const place = rows.indexOf(number);
    const pivot = pivotOf(page);
    return html`<header class="head">
      <div class="title"><h1><span class="env"><${Text}>${episode.env}<//></span> <${Outcome} outcome=${page.outcome} mode=${label?.failure_mode} />
        ${pivot !== null && html` <span class="at">at step ${pivot}</span>`}</h1>
        <p class="soft">return ${numberText(episode.episode_return)} in ${episode.num_steps} of ${episode.horizon} turns · <${Text}>${episode.policy}<//>
          ${" "}<${LabelBadge} label=${Pivot.label(number)} proved=${Pivot.columns.proved[number]} /></p></div>
      <nav class="moves" aria-label="Episodes and steps">
        <span class="group"><button onClick=${() => go.episode(-1)} disabled=${place <= 0} title="previous episode (k)">‹</button>
          <span class="place">${place < 0 ? "–" : (place + 1).toLocaleString("en")} of ${rows.length.toLocaleString("en")}</span>
          <button onClick=${() => go.episode(1)} disabled=${place < 0 || place >= rows.length - 1} title="next episode (j)">›</button></span>
        <span class="group"><button onClick=${() => go.step(at - 1)} disabled=${at <= 0} title="step back (←)">←</button>
          <span class="place">step ${at}</span>
          <button onClick=${() => go.step(at + 1)} disabled=${at >= last} title="step on (→)">→</button>
          ${pivot !== null && html`<button class="to-pivot" onClick=${() => go.step(pivot)} disabled=${at === pivot} title="to the pivot (p)">pivot</button>`}
          <button onClick=${() => setPlaying(!playing)} aria-pressed=${playing} title="play (space)">${playing ? "pause" : "play"}</button></span>
        <a class="json" href=${Pivot.jsonOf(number)} title="this page as JSON">JSON</a>
      </nav></header>`;
  }

  function Episode({ id, params }) {
    const number = Pivot.number(id);
    if (number === undefined) {
      return html`<main class="episode"><h1>No such episode</h1><p class="none">This report holds no episode <code><${Text}>${id}<//></code>.
        ${" "}<a href=${Pivot.address("episodes", params, { step: null })}>All episodes</a></p></main>`;
    }
    return html`<${Opened} number=${number} params=${params} />`;
  }

  function Opened({ number, params }) {
    const state = useLoaded(number, () => Pivot.page(number));
    const [playing, setPlaying] = useState(false);
    const page = state.key === number ? state.value : null;
    const given = params.get("step");
    const last = page ? lastStep(page) : 0;
    const at = page ? Math.min(Math.max(given === null || !/^\d+$/.test(given) ? opening(page) : Number(given), 0), last) : 0;
    const go = {
      step: (t) => t >= 0 && t <= last && Pivot.go(Pivot.address(Pivot.episode(number), params, { step: t }), true),
      episode(by) {
        const { rows } = Pivot.filtered(params);
        const next = rows[rows.indexOf(number) + by];
        if (next !== undefined) Pivot.go(Pivot.address(Pivot.episode(next), params, { step: null }), true);
      },
    };
    const play = () => {
      if (!playing && at >= last) go.step(page ? opening(page) : 0);
      setPlaying(!playing);
    };
    useLayoutEffect(() => {
      Pivot.lastSeen = number;
      setPlaying(false);
      const { rows } = Pivot.filtered(params);
      const next = rows[rows.indexOf(number) + 1];
      if (next !== undefined) Pivot.page(next).catch(() => {});
    }, [number]);
    useEffect(() => {
      if (!playing) return undefined;
      if (at >= last) {
        setPlaying(false);
        return undefined;
      }
      const timer = setTimeout(() => go.step(at + 1), BEAT);
      return () => clearTimeout(timer);
    }, [playing, at]);
    Pivot.keys = {
      j: () => go.episode(1), k: () => go.episode(-1), ArrowRight: () => go.step(at + 1), ArrowLeft: () => go.step(at - 1),
      p: () => page && pivotOf(page) !== null && go.step(pivotOf(page)), " ": play,
      Escape: () => Pivot.go(Pivot.address("episodes", params, { step: null })),
    };
    if (state.error && state.key === number) return html`<main class="episode"><h1>Episode</h1><p class="none">${state.error}</p></main>`;
    if (!page) return html`<main class="episode"><p class="wait">Loading …</p></main>`;
    const onStep = (t) => go.step(t);
    const chart = html`<section class="card"><h2>${page.need.unit === "score" ? "Score" : "Need against budget"}</h2><${Pivot.Chart} page=${page} at=${at} onStep=${onStep} /></section>`;
    const tall = Boolean(page.witness?.frames);
    return html`<main class=${`episode env-${page.episode.env}`} data-ready=${number}>
      <${Head} page=${page} number=${number} params=${params} at=${at} last=${last} go=${go} playing=${playing} setPlaying=${play} />
      <${Film} page=${page} at=${at} onStep=${onStep} />
      <div class="columns">
        <div class="stage"><${Happened} page=${page} at=${at} /><${Possible} page=${page} at=${at} />${!tall && chart}</div>
        <div class="side"><${Verdict} page=${page} />${tall && chart}<${Step} page=${page} at=${at} /></div>
      </div>
      <div class="columns even"><${Provenance} page=${page} number=${number} params=${params} /></div>
    </main>`;
  }

  Object.assign(Pivot, { Episode, asText });
})();
