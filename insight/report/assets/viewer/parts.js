// Small parts that several pages use. Whatever a store says is shown as text: what could reorder or hide it is spelled.
"use strict";

(() => {
  const { h } = preact;
  const html = htm.bind(h);
  const { useState, useEffect, useRef } = preactHooks;

  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
  const LONG = 20000;

  function spelled(text) {
    const parts = [];
    let end = 0;
    for (const match of text.matchAll(HIDDEN)) {
      if (match[0] === "\r" && text[match.index + 1] === "\n") continue;
      parts.push(text.slice(end, match.index));
      const code = match[0].charCodeAt(0).toString(16).padStart(4, "0");
      parts.push(html`<span class="spelled">\\u${code}</span>`);
      end = match.index + match[0].length;
    }
    parts.push(text.slice(end));
    return parts;
  }

  function Text({ children: text }) {
    if (text === null || text === undefined) return null;
    return html`<bdi>${spelled(String(text))}</bdi>`;
  }

  // A text that may be long, with its lines as they are.
  function Block({ text, label, empty = "empty" }) {
    const [whole, setWhole] = useState(false);
    if (!text) return html`<p class="none">${empty}</p>`;
    const cut = !whole && text.length > LONG;
    return html`<div class="block" tabindex="0" role="region" aria-label=${label}>
      <pre dir="ltr">${spelled(cut ? text.slice(0, LONG) : text)}</pre>
      ${cut && html`<button class="more" onClick=${() => setWhole(true)}>
        show all ${text.length.toLocaleString("en")} characters</button>`}
    </div>`;
  }

  const number = (value, digits = 2) => (value === null || value === undefined ? "–" : String(Number(value.toFixed(digits))));
  const asText = (value) => (typeof value === "string" ? value : typeof value === "number" ? number(value, 4) : JSON.stringify(value));

  // Names and values; what is null or empty is left out.
  function Facts({ rows }) {
    const kept = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
    return html`<dl class="facts">${kept.map(([name, value]) => html`
      <div><dt>${name}</dt><dd><${Text}>${asText(value)}<//></dd></div>`)}</dl>`;
  }

  const Badge = ({ kind, title, children }) => html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;

  const OUTCOME_MARKS = { solved: "✓", failed: "✕" };
  function Outcome({ outcome, mode }) {
    const kind = outcome === "solved" ? "good" : outcome === "failed" ? "bad" : "plain";
    return html`<span class=${`outcome ${kind}`}><span class="mark" aria-hidden="true">${OUTCOME_MARKS[outcome] ?? "!"}</span>
      <${Text}>${mode || outcome}<//></span>`;
  }

  function LabelBadge({ label, proved }) {
    if (label === "none") return null;
    return html`<${Badge} kind=${label === "accepted" ? "good" : "bad"}>${label}<//>${proved === false && html` <${Badge} kind="bad">refuted<//>`}${proved === null && html` <${Badge} kind="plain" title="no second prover agreed or disagreed">unproved<//>`}`;
  }

  function Frame({ frame, alt, eager, size }) {
    if (!frame?.src) return html`<div class="frame missing" role="img" aria-label=${`${alt}: no picture`}>no picture</div>`;
    return html`<img class="frame" src=${frame.src} alt=${alt} width=${size} height=${size} decoding="async"
      loading=${eager ? "eager" : "lazy"} />`;
  }

  function useWidth(start) {
    const element = useRef(null);
    const [width, setWidth] = useState(start);
    useEffect(() => {
      const watch = new ResizeObserver(([entry]) => setWidth(Math.max(Math.round(entry.contentRect.width), 200)));
      watch.observe(element.current);
      return () => watch.disconnect();
    }, []);
    return [element, width];
  }

  // Loads something whenever its key changes; keeps what was there until it has come.
  function useLoaded(key, load) {
    const [state, setState] = useState({ key: null, value: null, error: null });
    useEffect(() => {
      let current = true;
      load().then(
        (value) => current && setState({ key, value, error: null }),
        (error) => current && setState({ key, value: null, error: error.message }),
      );
      return () => { current = false; };
    }, [key]);
    return state;
  }

  Object.assign(Pivot, { html, spelled, Text, Block, Facts, Badge, Outcome, LabelBadge, Frame, useWidth, useLoaded, asText, numberText: number });
})();
