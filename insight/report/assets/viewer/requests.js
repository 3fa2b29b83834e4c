// Requests: the Student's of each step as they were sent, the Analyzer's prompt with its pictures and completion, the
// teacher's prompt with its raw answers; and the probe's retries with their replies.
"use strict";

(() => {
  const { html, Text, Long, Block, Facts, Badge, Details, numberText } = Pivot;

  const seconds = (value) => (typeof value === "number" ? `${numberText(value, 3)} s` : null);
  const tokens = (call) => (typeof call.prompt_tokens === "number" || typeof call.completion_tokens === "number"
    ? `${numberText(call.prompt_tokens, 0)} + ${numberText(call.completion_tokens, 0)}` : null);

  function Messages({ page, messages, label }) {
    if (!messages) return html`<p class="none">The store does not hold this prompt.</p>`;
    return html`<ol class="messages">${messages.map((message, i) => html`<li><p class="role"><${Text}>${message.role}<//></p>
      ${message.parts.map((part) => (part.text === undefined
        ? html`<figure class="sent">${part.src ? html`<img src=${part.src} alt=${`Picture in message ${i} of the ${label}`} loading="lazy" decoding="async" />`
          : html`<div class="frame missing" role="img" aria-label="no picture">no picture</div>`}
          ${part.id && html`<figcaption><code><${Text}>${part.id}<//></code></figcaption>`}</figure>`
        : html`<${Block} text=${page.texts[part.text]} label=${`${message.role} text of the ${label}`} empty="An empty text." />`))}</li>`)}</ol>`;
  }

  const callFacts = (call) => (call ? [
    ["tokens, prompt + completion", tokens(call)], ["latency", seconds(call.latency)], ["cost", call.cost], ["tries", call.attempts],
    ["from the call cache", call.cache_hit ? "yes" : null], ["answered", call.answered === false ? "no" : null],
    ["left out for this server", call.left_out?.join(", ")], ["model revision", call.model_revision], ["request", call.request_id],
  ] : []);

  // A request: messages, the other fields of its body, and what it cost.
  function Sent({ page, request, summary }) {
    if (!request) return null;
    const name = request.template ? `${request.template} ${request.version}` : null;
    const call = request.call;
    return html`<${Details} summary=${html`${summary}${call && request.fields && html` <span class="soft">${[tokens(call) && `${tokens(call)} tokens`, seconds(call.latency)].filter(Boolean).join(", ")}</span>`}`}>${() => html`
      <${Messages} page=${page} messages=${request.messages} label=${summary.toLowerCase()} />
      ${request.fields ? html`<h3>Other fields</h3><${Block} text=${request.fields} label="Fields" />`
        : html`<p class="none">No server was asked: an embedded policy stands in for a model.</p>`}
      <${Facts} rows=${[["template", name], ["prompt", request.prompt_hash], ...callFacts(call)]} />`}<//>`;
  }

  function Picture({ src, title }) {
    return html`<figure class="sent"><figcaption>${title}</figcaption>
      ${src ? html`<a href=${src}><img src=${src} alt=${title} loading="lazy" decoding="async" /></a>`
        : html`<div class="frame missing" role="img" aria-label=${`${title}: no picture`}>no picture</div>`}</figure>`;
  }

  function Teacher({ page, analyzer }) {
    const { teacher, calls } = analyzer;
    if (!teacher && !calls.length) return null;
    return html`<section class="card teacher"><h2>Teacher</h2>
      ${teacher && html`<${Details} summary="Request to the teacher">${() => html`
        <${Messages} page=${page} messages=${teacher.messages} label="request to the teacher" />
        <${Facts} rows=${[["template", `${teacher.template} ${teacher.version}`], ["prompt", teacher.prompt_hash]]} />`}<//>`}
      ${calls.map((call, i) => html`<h3>Raw answer${calls.length > 1 ? ` ${i + 1} of ${calls.length}` : ""} <${Badge} kind="bad">unverified, written by the model<//></h3>
        ${call.answer === null ? html`<p class="none">${call.answered === false ? "No answer came." : "This store does not hold the raw answer."}</p>`
          : html`<${Block} text=${call.answer} label=${`Raw answer ${i + 1}`} empty="The answer is empty." />`}
        <${Facts} rows=${callFacts(call)} />`)}
    </section>`;
  }

  function Analyzer({ page }) {
    const { analyzer } = page;
    if (!analyzer) return null;
    return html`<div class=${analyzer.teacher || analyzer.calls.length ? "columns even" : ""}><section class="card analyzer"><h2>Analyzer</h2>
        <div class="pictures"><${Picture} src=${analyzer.collage} title="Collage" /><${Picture} src=${analyzer.panel} title="Panel" /></div>
        <${Details} summary="Prompt">${() => html`<${Messages} page=${page} messages=${analyzer.prompt.messages} label="Analyzer prompt" />
          <${Facts} rows=${[["template", `${analyzer.prompt.template} ${analyzer.prompt.version}`], ["prompt", analyzer.prompt.prompt_hash]]} />`}<//>
        <h3>Completion</h3><${Block} text=${analyzer.completion} label="Completion" empty="There is no target." />
      </section>
      <${Teacher} page=${page} analyzer=${analyzer} /></div>`;
  }

  // The retries of a rollback probe

  const result = (retry) => (retry.success ? ["good", "reached the goal"] : retry.lift ? ["good", "improved"] : ["plain", "not improved"]);

  function Retry({ retry }) {
    const [kind, text] = retry.status === "done" ? result(retry) : ["bad", retry.status.replaceAll("_", " ")];
    return html`<li class="retry"><p class="line"><b><${Text}>${retry.arm.replaceAll("_", " ")}<//></b> <${Badge} kind=${kind}>${text}<//>
        ${retry.restore_step !== null && html`<span class="soft">from step ${retry.restore_step}</span>`}
        ${retry.new_return !== null && html`<span>return <b>${numberText(retry.new_return, 4)}</b> <span class="soft">instead of ${numberText(retry.old_return, 4)}</span></span>`}</p>
      ${retry.error && html`<p class="none"><${Long} text=${retry.error} label="Error" /></p>`}
      ${retry.hint !== null && retry.hint !== "" && html`<p><span class="soft">hint: </span><${Long} text=${retry.hint} label="Hint" /></p>`}
      ${retry.actions?.length > 0 && html`<ol class="plan-actions">${retry.actions.map((action) => html`<li><${Text}>${action}<//></li>`)}</ol>
        <${Details} summary="Replies">${() => retry.actions.map((action, i) => html`
          <h3>Step ${retry.restore_step + i}: <${Text}>${action}<//>, reward ${numberText(retry.rewards?.[i], 4)}</h3>
          <${Block} text=${retry.responses?.[i]} label=${`Reply of step ${retry.restore_step + i} in ${retry.arm}`} empty="The reply is empty." />`)}<//>`}
    </li>`;
  }

  function Retries({ page }) {
    if (!page.retries?.length) return null;
    const lifted = page.retries.filter((retry) => retry.lift).length;
    const played = page.retries.filter((retry) => retry.status === "done").length;
    return html`<section class="card retries"><h2>Retries of the probe</h2>
      <p class="soft">${lifted} of ${played} improve on the failure.</p>
      <ul>${page.retries.map((retry) => html`<${Retry} key=${retry.retry_id} retry=${retry} />`)}</ul></section>`;
  }

  // All calls with their cost

  function Calls({ page, onStep }) {
    const rows = [
      ...page.requests.filter((request) => request.call && request.fields).map((request) => ["Student", request.call]),
      ...(page.analyzer?.calls ?? []).map((call) => ["Teacher", call]),
    ];
    if (!rows.length) return null;
    const sum = (name) => rows.reduce((total, [, call]) => (typeof call[name] === "number" ? (total ?? 0) + call[name] : total), null);
    const digits = new Map([["attempts", 0], ["prompt_tokens", 0], ["completion_tokens", 0], ["latency", 3], ["cost", 6]]);
    const cells = (call) => [...digits].map(([name, places]) => html`<td class="number">${numberText(call[name], places)}</td>`);
    return html`<section class="card table calls"><h2>Calls</h2><div class="scroll" tabindex="0" role="region" aria-label="Calls"><table>
      <thead><tr><th scope="col">role</th><th scope="col">step</th>${["tries", "prompt tokens", "completion tokens", "seconds", "cost"].map((title) => html`<th scope="col" class="number">${title}</th>`)}<th scope="col">note</th></tr></thead>
      <tbody>${rows.map(([role, call]) => html`<tr><td>${role}</td>
        <td>${call.t === null ? "–" : html`<button class="link" onClick=${() => onStep(call.t)}>step ${call.t}</button>`}</td>${cells(call)}
        <td>${[call.cache_hit && "from the call cache", call.answered === false && "no answer"].filter(Boolean).join(", ")}</td></tr>`)}</tbody>
      <tfoot><tr><th scope="row">sum</th><td></td>${cells(Object.fromEntries([...digits.keys()].map((name) => [name, sum(name)])))}<td></td></tr></tfoot>
    </table></div></section>`;
  }

  Object.assign(Pivot, { Sent, Analyzer, Retries, Calls });
})();
