// Small components that several pages use. Texts of a store are shown as texts; characters that hide or reorder others
// are spelled out.
"use strict";

(() => {
  const { h } = preact;
  const html = htm.bind(h);
  const { useState, useEffect, useRef, useCallback } = preactHooks;

  // Controls, formats, private and lone surrogates, everything that Unicode lets a font leave out, and all spaces but one.
  const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}/gu;
  const LINE = 300;
  const LONG = 1500;
  const BLOCK = 20000;

  function spelled(text, inOneLine = false) {
    const parts = [];
    let end = 0;
    for (const match of text.matchAll(HIDDEN)) {
      const character = match[0];
      if (!inOneLine && (character === "\n" || character === "\t" || (character === "\r" && text[match.index + 1] === "\n"))) continue;
      parts.push(text.slice(end, match.index));
      const code = character.codePointAt(0).toString(16);
      const name = character === "\n" ? "\\n" : code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
      parts.push(html`<span class="spelled">${name}</span>`);
      end = match.index + character.length;
    }
    parts.push(text.slice(end));
    return parts;
  }

  const characters = (text) => `${text.length.toLocaleString("en")} characters`;
  // The beginning of a text; never half of a surrogate pair.
  const beginning = (text, length) => text.slice(0, length).replace(/[\ud800-\udbff]$/, "");

  // A text in one line of a list or a title; of a long one the beginning.
  function Text({ children: text }) {
    if (text === null || text === undefined) return null;
    const whole = String(text);
    if (whole.length <= LINE) return html`<bdi>${spelled(whole, true)}</bdi>`;
    return html`<bdi>${spelled(beginning(whole, LINE), true)}<span class="soft"> … ${characters(whole)}</span></bdi>`;
  }

  // A text of a paragraph or more; a long one is cut until it is asked for, and then scrolls.
  function Long({ text, label = "Text" }) {
    const [whole, setWhole] = useState(false);
    if (text === null || text === undefined) return null;
    const all = String(text);
    if (all.length <= LONG) return html`<bdi class="long">${spelled(all)}</bdi>`;
    if (whole) return html`<${Block} text=${all} label=${label} limit=${Infinity} />`;
    return html`<bdi class="long">${spelled(beginning(all, LONG))} …</bdi>
      <button class="more" type="button" onClick=${() => setWhole(true)}>show all ${characters(all)}</button>`;
  }

  // A text with its lines as they are, in a box of limited height.
  function Block({ text, label, empty = "empty", limit = BLOCK }) {
    const [whole, setWhole] = useState(false);
    if (!text) return html`<p class="none">${empty}</p>`;
    const cut = !whole && text.length > limit;
    return html`<div class="block" tabindex="0" role="group" aria-label=${label}>
      <pre dir="ltr">${spelled(cut ? beginning(text, limit) : text)}</pre>
      ${cut && html`<button class="more" type="button" onClick=${() => setWhole(true)}>show all ${characters(text)}</button>`}
    </div>`;
  }

  const number = (value, digits = 2) => (typeof value !== "number" ? "–" : String(Number(value.toFixed(digits))));
  const asText = (value) => (typeof value === "string" ? value : typeof value === "number" ? number(value, 4) : JSON.stringify(value, null, 1).replace(/\n */g, " "));

  // Names and values; empty values are left out.
  function Facts({ rows }) {
    const kept = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
    if (!kept.length) return null;
    return html`<dl class="facts">${kept.map(([name, value]) => html`
      <div><dt><${Text}>${name}<//></dt><dd><${Long} text=${asText(value)} label=${name} /></dd></div>`)}</dl>`;
  }

  const Badge = ({ kind, title, children }) => html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;

  const OUTCOMES = new Map([["solved", ["good", "✓"]], ["failed", ["bad", "✕"]]]);
  const outcomeKind = (outcome) => OUTCOMES.get(outcome) ?? ["plain", "!"];

  function Outcome({ outcome, mode }) {
    const [kind, mark] = outcomeKind(outcome);
    return html`<span class=${`outcome ${kind}`}><span class="mark" aria-hidden="true">${mark}</span>
      <${Text}>${mode || outcome}<//></span>`;
  }

  function LabelBadge({ label, proved }) {
    if (label === "none") return null;
    return html`<${Badge} kind=${label === "accepted" ? "good" : "bad"}>${label}<//>${proved === false && html` <${Badge} kind="bad">refuted<//>`}${proved === null && html` <${Badge} kind="plain" title="no second prover agreed or disagreed">unproved<//>`}`;
  }

  function Frame({ frame, alt, eager, size }) {
    if (!frame?.src) return html`<div class="frame missing" role="img" aria-label=${`${alt || "frame"}: no picture`}>no picture</div>`;
    return html`<img class="frame" src=${frame.src} alt=${alt} width=${size} height=${size} decoding="async"
      loading=${eager ? "eager" : "lazy"} />`;
  }

  // Details whose content is rendered once they are open.
  function Details({ summary, children, open: begins = false }) {
    const [open, setOpen] = useState(begins);
    return html`<details open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>${summary}</summary>
      ${open && children()}</details>`;
  }

  // A list of which only the visible rows exist.
  function Virtual({ rows, height: rowHeight, narrowHeight = rowHeight, selected = -1, label, render }) {
    const MARGIN = 8;
    const box = useRef(null);
    const [view, setView] = useState({ top: 0, height: 800, narrow: false });
    const height = view.narrow ? narrowHeight : rowHeight;
    const look = useCallback(() => {
      if (!box.current) return; // the last scroll event of a list that was left
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
    return html`<div class="rows" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label=${label}>
      <div class="sheet" role="list" style=${{ height: `${rows.length * height}px` }}>
        ${rows.slice(first, stop).map((row, i) => html`<div key=${first + i} class=${`row ${first + i === selected ? "selected" : ""}`}
          role="listitem" aria-posinset=${first + i + 1} aria-setsize=${rows.length}
          style=${{ top: `${(first + i) * height}px`, height: `${height}px` }}>${render(row, first + i)}</div>`)}
      </div>
    </div>`;
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

  // Loads a value whenever its key changes; keeps the previous one until then.
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

  Object.assign(Pivot, {
    html, spelled, Text, Long, Block, Facts, Badge, Outcome, outcomeKind, LabelBadge, Frame, Details, Virtual, useWidth, useLoaded, asText,
    numberText: number,
  });
})();
