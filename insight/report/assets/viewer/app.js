// The frame around the pages: addresses, keys, light and dark.
"use strict";

(() => {
  const { html } = Pivot;
  const { useState, useEffect, useLayoutEffect, useRef } = preactHooks;

  const KEYS = [
    ["j  k", "next and previous episode"], ["↓  ↑", "the same in the list"], ["Enter", "open the selected episode"],
    ["→  ←", "next and previous step"], ["p", "to the pivot"], ["Space", "play"], ["/", "search"], ["g", "the level as a grid"],
    ["Esc", "back to the list"], ["o", "overview"], ["c", "two runs side by side"], ["t", "light or dark"], ["?", "this help"],
  ];

  const themes = {
    key: "pivot-theme",
    read() {
      try {
        return localStorage.getItem(this.key);
      } catch {
        return null;
      }
    },
    apply(theme) {
      if (theme) document.documentElement.dataset.theme = theme;
    },
    toggle() {
      const dark = document.documentElement.dataset.theme
        ? document.documentElement.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      const next = dark ? "light" : "dark";
      this.apply(next);
      try {
        localStorage.setItem(this.key, next);
      } catch {
        // a browser that keeps nothing shows it until the page is left
      }
    },
  };
  themes.apply(themes.read());

  function Help({ open, close }) {
    const dialog = useRef(null);
    useLayoutEffect(() => {
      if (open) dialog.current.showModal();
      else dialog.current.close();
    }, [open]);
    return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="help-title"><h2 id="help-title">Keys</h2>
      <dl class="keys">${KEYS.map(([key, what]) => html`<div><dt>${key.split("  ").map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>
      <form method="dialog"><button>close</button></form></dialog>`;
  }

  const VIEWS = new Map([["episode", "Episode"], ["overview", "Overview"], ["level", "Level"], ["compare", "Compare"]]);
  const TITLES = new Map([["overview", "Overview"], ["compare", "Two runs"]]);
  const NEEDS_OTHER = new Set(["compare", "level"]);

  const fromHere = (event) => /^(BUTTON|A|SUMMARY)$/.test(event.target.tagName);

  // Calls the action of a key, unless the key belongs to what has the focus.
  function press(event, common) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox") {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === " " && (fromHere(event) || event.target.tagName === "INPUT")) return;
    if (event.key === "Enter" && fromHere(event)) return;
    const action = common.get(event.key) ?? Pivot.keys.get(event.key);
    if (!action) return;
    event.preventDefault();
    action();
  }

  function search() {
    const { view, params } = Pivot.route();
    if (view !== "episodes") Pivot.go(Pivot.address("episodes", params, { step: null }));
    requestAnimationFrame(() => document.getElementById("search")?.focus());
  }

  const to = (view) => () => Pivot.go(Pivot.address(view, Pivot.route().params, { step: null }));

  // The second run once it is loaded; null without one.
  function useOther(needed) {
    const [, setState] = useState(0);
    useEffect(() => {
      if (needed) Pivot.openOther().then(() => setState(1), () => setState(2));
    }, [needed]);
    return Pivot.runs.get("other") ?? null;
  }

  function Runs({ run, params, names }) {
    const { view } = Pivot.route();
    const page = view === "overview" ? "overview" : "episodes";
    return html`<nav class="runs" aria-label="Runs">${names.map(([key, name]) => html`
      <a href=${Pivot.address(page, params, { run: key, step: null })} aria-current=${run.key === key ? "true" : null}><${Pivot.Text}>${name}<//></a>`)}</nav>`;
  }

  function App({ otherName }) {
    const [, setTick] = useState(0);
    const [help, setHelp] = useState(false);
    const hasOther = otherName !== null;
    const refresh = () => setTick((tick) => tick + 1);
    // before the first paint, so that a key pressed as soon as the page shows is heard
    useLayoutEffect(() => {
      const common = new Map([
        ["?", () => setHelp(true)], ["/", search], ["o", to("overview")], ["t", () => themes.toggle()], ...(hasOther ? [["c", to("compare")]] : []),
      ]);
      const onKey = (event) => press(event, common);
      const events = ["hashchange", "popstate", "pivot:route"];
      events.forEach((name) => window.addEventListener(name, refresh));
      window.addEventListener("keydown", onKey);
      return () => {
        events.forEach((name) => window.removeEventListener(name, refresh));
        window.removeEventListener("keydown", onKey);
      };
    }, []);
    const { view, id, params } = Pivot.route();
    const wantsOther = hasOther && params.get("run") === "other";
    const other = useOther(hasOther && (wantsOther || NEEDS_OTHER.has(view)));
    const first = Pivot.runs.get("");
    const run = wantsOther ? other : first;
    const name = VIEWS.get(view) ?? "List";
    const at = (page) => (name === page ? "page" : null);
    useEffect(() => {
      const title = view === "episode" ? id.slice(-8) : view === "level" ? "Level" : TITLES.get(view) ?? "Episodes";
      document.title = `${title} · ${(run ?? first).name || "PIVOT"}`;
    }, [view, id, run]);
    const link = (page, title, changes) => html`<a href=${Pivot.address(page, params, { step: null, ...changes })} aria-current=${at(VIEWS.get(page) ?? "List")}>${title}</a>`;
    const names = [["", first.name], ["other", otherName]];
    return html`<header class="top">
        <a class="brand" href=${Pivot.address("episodes", new URLSearchParams())}>PIVOT</a>
        <nav aria-label="Pages">${link("episodes", "Episodes")}${link("overview", "Overview")}${hasOther && link("compare", "Two runs")}</nav>
        <span class="run">${hasOther && name !== "Compare" ? html`<${Runs} run=${run ?? { key: "other" }} params=${params} names=${names} />`
          : html`<b><${Pivot.Text}>${first.name}<//></b>`}
          <span class="run-id"><${Pivot.Text}>${(run ?? first).runId}<//></span></span>
        <span class="tools"><button onClick=${() => themes.toggle()} title="light or dark (t)" aria-label="light or dark">◐</button>
          <button onClick=${() => setHelp(true)} title="keys (?)" aria-label="keys">?</button></span>
      </header>
      ${run ? html`<${Pivot[name]} key=${run.key} run=${run} first=${first} other=${other} hasOther=${hasOther} id=${id} params=${params} refresh=${refresh} />`
        : html`<main><p class="wait">Loading …</p></main>`}
      <${Help} open=${help} close=${() => setHelp(false)} />`;
  }

  const root = document.getElementById("app");
  Pivot.open().then(
    (otherName) => {
      root.replaceChildren();
      preact.render(preact.h(App, { otherName }), root);
    },
    (error) => { root.textContent = `The report cannot be read: ${error.message}.`; },
  );
})();
