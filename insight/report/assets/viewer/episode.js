// One episode, opened at its pivot: what happened, what would still have worked, and every request behind it.
"use strict";

(() => {
  const { html, Text, Long, Block, Facts, Badge, Outcome, LabelBadge, Frame, Details, Film, pivotOf, useLoaded, numberText } = Pivot;
  const { useState, useEffect, useLayoutEffect } = preactHooks;
  const BEAT = 900;

  // The last place that can be looked at: that of the last action, or of the last one of the plan if that is later.
  function lastStep(page) {
    const plan = page.witness ? page.label.pivot_step + page.witness.actions.length : 0;
    return Math.max(page.steps.length, plan, 1) - 1;
  }

  const opening = (page) => pivotOf(page) ?? 0;

  function Pair({ title, kind, before, after, action, note, names }) {
    return html`<section class=${`pair ${kind}`} aria-label=${title}>
      <h2>${title}</h2>
      <div class="two">
        <figure><${Frame} frame=${before} alt=${names[0]} eager /><figcaption>${names[0]}</figcaption></figure>
        <div class="arrow"><code><${Pivot.Way} action=${action} /></code><span aria-hidden="true">›</span></div>
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
      names=${[`before step ${at}`, `after step ${at}${at === T - 1 ? `: ${Pivot.endOf(page)}` : ""}`]} />`;
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
    const info = Object.entries(step.info && typeof step.info === "object" ? step.info : {}).filter(([name]) => name !== "remaining_turns");
    // what every step of the episode logs alike takes one line
    const constant = page.steps.length > 1 ? info.filter(([name, value]) => page.steps.every((each) => Pivot.asText(each.info?.[name] ?? null) === Pivot.asText(value))) : [];
    return html`<section class="card step"><h2>Step ${at}${at === pivotOf(page) && html` <${Badge} kind="pivot">pivot<//>`}</h2>
      <p class="line"><code class="action"><${Text}>${step.action}<//></code>
        <span>reward <b>${numberText(step.reward, 4)}</b></span><span>turns left <b>${step.remaining_turns}</b></span>
        ${!step.action_valid && html`<${Badge} kind="bad">format broken<//>`}
        ${outcome && html`<${Badge} kind="plain"><${Text}>${outcome}<//><//>`}
        ${step.finish_reason && step.finish_reason !== "stop" && html`<${Badge} kind="plain">stopped: <${Text}>${step.finish_reason}<//><//>`}
        ${step.submission_outcome && step.submission_outcome !== "ok" && html`<${Badge} kind="bad"><${Text}>${step.submission_outcome}<//><//>`}</p>
      <h3>Reply</h3>
      <${Block} text=${step.response} label="Reply" empty="The reply is empty." />
      <${Pivot.Sent} page=${page} request=${page.requests[at]} summary="Request of this step" />
      ${step.observation_text && html`<h3>Text beside the picture</h3><${Block} text=${step.observation_text} label="Observation" />`}
      <${Facts} rows=${[...info.filter((each) => !constant.includes(each)), ["the same in every step", constant.map(([name, value]) => `${name} ${Pivot.asText(value)}`).join(", ")], ["arguments", typeof step.payload === "string" ? null : step.payload], ["score parts", step.score_parts]]} />
    </section>`;
  }

  // In turns of several actions: the action inside of turn t* after which the goal was out of reach.
  function lostBy({ label, steps }) {
    const turn = steps[label.pivot_step]?.action.split("|") ?? [];
    const place = label.pivot_action ?? null;
    return place === null || turn[place] === undefined ? null : `${turn[place]}, number ${place + 1} of ${turn.length} in its turn`;
  }

  function Verdict({ page }) {
    const { label } = page;
    if (!label) {
      return html`<section class="card"><h2>No label</h2><p class="none">${page.outcome === "solved" ? "The episode reached its goal." : "Only complete failures are labelled."}</p>
        ${page.episode.error && html`<${Block} text=${page.episode.error} label="Error" />`}</section>`;
    }
    const reasons = label.reject_reasons ?? [];
    // null in stores whose guidance no facts were checked for; a store without the column says nothing
    const unverified = label.guidance_source === "prose" || label.guidance_source === null;
    return html`<section class="card verdict"><h2>Certificate</h2>
      ${label.certificate_text ? html`<p class="lead"><${Long} text=${label.certificate_text} label="Certificate" /></p>` : html`<p class="none">The solver gave no verdict.</p>`}
      ${label.reference_text && html`<p class="reference">By the better reference: <${Long} text=${label.reference_text} label="Reference" /></p>`}
      ${reasons.length > 0 && html`<h3>Rejected by</h3><ul class="reasons">${reasons.map((reason) => html`
        <li><b><${Text}>${reason.name}<//></b> <span class="soft"><${Text}>${reason.kind}<//></span><br /><${Long} text=${reason.detail} label="Reason" /></li>`)}</ul>`}
      <h3>Guidance${label.failure_reason && unverified && html` <${Badge} kind="bad">unverified, written by the model<//>`}</h3>
      ${label.failure_reason ? html`<blockquote><${Long} text=${label.failure_reason} label="Guidance" /></blockquote>` : html`<p class="none">none</p>`}
      ${label.guidance_prose && html`<h3>The model's own words <${Badge} kind="bad">unverified, written by the model<//></h3>
        <blockquote class="prose"><${Long} text=${label.guidance_prose} label="Unverified text" /></blockquote>`}
      <${Facts} rows=${[
        ["action that lost it", lostBy(page)],
        ["safe actions at t*", label.feasible_actions?.join(", ")],
        ["plan at t*", label.witness?.join(" ")],
        ["also fits", label.secondary_modes?.join(", ")],
        ["no action was fatal", label.fallback ? "yes: the last step, by convention" : null],
        ["out of reach from the start", label.infeasible_at_start ? "yes" : null],
      ]} />
      <${Details} summary="all numbers of the certificate">${() => html`
        <${Facts} rows=${Object.entries(label.certificate ?? {}).map(([name, value]) => [name.replaceAll("_", " "), value])} />`}<//>
    </section>`;
  }

  function Siblings({ run, number, params }) {
    return html`<h3>Rollouts of this level</h3><ul class="siblings">${run.siblings(number).map((i) => html`
      <li><a href=${Pivot.address(run.path(i), params, { step: null })} aria-current=${i === number ? "page" : null}
        class=${`${run.value("outcome", i)} ${run.label(i)}`}><b>${run.columns.sample[i]}</b> <${Text}>${run.value("mode", i) || run.value("outcome", i)}<//>
        ${run.columns.pivot[i] !== null && html`<span> t* ${run.columns.pivot[i]}</span>`}</a></li>`)}</ul>
      <p class="grid-link"><a href=${Pivot.address(run.path(number, "level"), params, { step: null })}>side by side as a grid</a></p>`;
  }

  function Provenance({ run, page, number, params }) {
    const { episode, label, steps } = page;
    const at = steps[Math.min(opening(page), steps.length - 1)];
    const where = pivotOf(page) === null ? "first" : "t*";
    return html`<section class="card"><h2>Level</h2>
        <p><${Long} text=${episode.instruction} label="Instruction" /></p>
        <${Block} text=${page.level} label="Level" />
        <${Siblings} run=${run} number=${number} params=${params} />
      </section>
      <section class="card"><h2>Provenance</h2>
        <${Facts} rows=${[
          ["episode", episode.episode_id], ["run", episode.run_id], ["level", episode.task_id], ["seed", episode.seed],
          ["group", episode.group_id], ["rollout", episode.sample_idx], ["split", run.value("split", number) || "in none"],
          ["task set", episode.eval_set], ["ended by", episode.stop_reason],
          ["policy", episode.policy], ["policy settings", episode.policy_config],
          ["environment", `${episode.env} ${episode.env_version}, ${episode.backend}`], ["environment settings", episode.env_config],
          ["solver", label && `${label.solver} ${label.solver_version}`], ["solver settings", label?.solver_config],
          ["writer", label?.teacher], ["writer settings", label?.teacher_config],
          ["rests on", label && ((label.evidence ?? []).join(", ") || "nothing that confirms its actions")],
          ["label version", label?.label_version], ["analyzer prompt", label?.prompt_hash], ["writer's prompt", label?.teacher_prompt_hash],
          [`student prompt, ${where}`, at?.prompt_hash], [`frame, ${where}`, at?.frame_id],
        ]} />
      </section>`;
  }

  function Head({ run, page, number, params, at, last, go, playing, setPlaying }) {
    const { episode, label } = page;
    const { rows } = Pivot.filtered(run, params);
    const place = rows.indexOf(number);
    const pivot = pivotOf(page);
    return html`<header class="head">
      <div class="title"><h1><span class="env"><${Text}>${episode.env}<//></span> <${Outcome} outcome=${page.outcome} mode=${label?.failure_mode} />
        ${pivot !== null && html` <span class="at">at step ${pivot}</span>`}</h1>
        <p class="soft">return ${numberText(episode.episode_return)} in ${episode.num_steps} of ${episode.horizon} turns · <${Text}>${episode.policy}<//>
          ${" "}<${LabelBadge} label=${run.label(number)} proved=${run.columns.proved[number]} /></p></div>
      <nav class="moves" aria-label="Episodes and steps">
        <span class="group"><button onClick=${() => go.episode(-1)} disabled=${place <= 0} title="previous episode (k)" aria-label="previous episode">‹</button>
          <span class="place">${place < 0 ? "–" : (place + 1).toLocaleString("en")} of ${rows.length.toLocaleString("en")}</span>
          <button onClick=${() => go.episode(1)} disabled=${place < 0 || place >= rows.length - 1} title="next episode (j)" aria-label="next episode">›</button></span>
        <span class="group"><button onClick=${() => go.step(at - 1)} disabled=${at <= 0} title="step back (←)" aria-label="step back">←</button>
          <span class="place">step ${at}</span>
          <button onClick=${() => go.step(at + 1)} disabled=${at >= last} title="step on (→)" aria-label="step on">→</button>
          ${pivot !== null && html`<button class="to-pivot" onClick=${() => go.step(pivot)} disabled=${at === pivot} title="to the pivot (p)">pivot</button>`}
          <button onClick=${() => setPlaying(!playing)} aria-pressed=${playing} title="play (space)">${playing ? "pause" : "play"}</button></span>
        <a class="json" href=${run.jsonOf(number)} title="this page as JSON">JSON</a>
      </nav></header>`;
  }

  function Episode({ run, id, params }) {
    const number = run.numbers.get(id);
    if (number === undefined) {
      return html`<main class="episode"><h1>No such episode</h1><p class="none">This report holds no episode <code><${Text}>${id}<//></code>.
        ${" "}<a href=${Pivot.address("episodes", params, { step: null })}>All episodes</a></p></main>`;
    }
    return html`<${Opened} run=${run} number=${number} params=${params} />`;
  }

  function Opened({ run, number, params }) {
    const key = String(number);
    const state = useLoaded(key, () => run.page(number));
    const [playing, setPlaying] = useState(false);
    const page = state.key === key ? state.value : null;
    const given = params.get("step");
    const last = page ? lastStep(page) : 0;
    const at = page ? Math.min(Math.max(given === null || !/^\d+$/.test(given) ? opening(page) : Number(given), 0), last) : 0;
    const go = {
      step: (t) => t >= 0 && t <= last && Pivot.go(Pivot.address(run.path(number), params, { step: t }), true),
      episode(by) {
        const { rows } = Pivot.filtered(run, params);
        const next = rows[rows.indexOf(number) + by];
        if (next !== undefined) Pivot.go(Pivot.address(run.path(next), params, { step: null }), true);
      },
    };
    const play = () => {
      if (!playing && at >= last) go.step(page ? opening(page) : 0);
      setPlaying(!playing);
    };
    useLayoutEffect(() => {
      run.lastSeen = number;
      setPlaying(false);
      const { rows } = Pivot.filtered(run, params);
      const next = rows[rows.indexOf(number) + 1];
      if (next !== undefined) run.page(next).catch(() => {});
    }, [key]);
    useEffect(() => {
      if (!playing) return undefined;
      if (at >= last) {
        setPlaying(false);
        return undefined;
      }
      const timer = setTimeout(() => go.step(at + 1), BEAT);
      return () => clearTimeout(timer);
    }, [playing, at]);
    Pivot.keys = new Map([
      ["j", () => go.episode(1)], ["k", () => go.episode(-1)], ["ArrowRight", () => go.step(at + 1)], ["ArrowLeft", () => go.step(at - 1)],
      ["p", () => page && pivotOf(page) !== null && go.step(pivotOf(page))], [" ", play],
      ["g", () => Pivot.go(Pivot.address(run.path(number, "level"), params, { step: null }))],
      ["Escape", () => Pivot.go(Pivot.address("episodes", params, { step: null }))],
    ]);
    if (state.error && state.key === key) return html`<main class="episode"><h1>Episode</h1><p class="none">${state.error}</p></main>`;
    if (!page) return html`<main class="episode"><p class="wait">Loading …</p></main>`;
    const onStep = (t) => go.step(t);
    const chart = html`<section class="card"><h2>${page.need.unit === "score" ? "Score" : "Need against budget"}</h2><${Pivot.Chart} page=${page} at=${at} onStep=${onStep} /></section>`;
    const tall = Boolean(page.witness?.frames);
    return html`<main class=${`episode env-${page.episode.env}`} data-ready=${number}>
      <${Head} run=${run} page=${page} number=${number} params=${params} at=${at} last=${last} go=${go} playing=${playing} setPlaying=${play} />
      <${Film} page=${page} at=${at} onStep=${onStep} />
      <div class="columns">
        <div class="stage"><${Happened} page=${page} at=${at} /><${Possible} page=${page} at=${at} />${!tall && chart}</div>
        <div class="side"><${Verdict} page=${page} />${tall && chart}<${Step} page=${page} at=${at} /></div>
      </div>
      <${Pivot.Analyzer} page=${page} />
      <${Pivot.Retries} page=${page} />
      <div class="columns even"><${Provenance} run=${run} page=${page} number=${number} params=${params} /></div>
      <${Pivot.Calls} page=${page} onStep=${onStep} />
    </main>`;
  }

  Pivot.Episode = Episode;
})();
