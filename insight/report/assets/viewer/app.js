// The frame around the pages: addresses, keys, light and dark.
"use strict";

(() => {
  const { html } = Pivot;
  const { useState, useEffect, useLayoutEffect, useRef } = preactHooks;

  const KEYS = [
    ["j  k", "next and previous episode"], ["↓  ↑", "the same in the list"], ["Enter", "open the selected episode"],
    ["→  ←", "next and previous step"], ["p", "to the pivot"], ["Space", "play"], ["/", "search"], ["g", "the level as a grid"],
    ["Esc", "back to the list"], ["o", "overview"], ["t", "light or dark"], ["?", "this help"],
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

  const VIEWS = new Map([["start", "Start"], ["episodes", "List"], ["episode", "Episode"], ["overview", "Overview"], ["level", "Level"]]);
  const TITLES = new Map([["start", "Failures"], ["overview", "Overview"], ["level", "Level"]]);

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

  function App({ run }) {
    const [, setTick] = useState(0);
    const [help, setHelp] = useState(false);
    const refresh = () => setTick((tick) => tick + 1);
    // before the first paint, so that a key pressed as soon as the page shows is heard
    useLayoutEffect(() => {
      const common = new Map([
        ["?", () => setHelp(true)], ["/", search], ["o", to("overview")], ["t", () => themes.toggle()],
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
    const name = VIEWS.get(view) ?? "Unknown";
    const at = (page) => (name === page ? "page" : null);
    useEffect(() => {
      const title = view === "episode" ? id.slice(-8) : TITLES.get(view) ?? "Episodes";
      document.title = `${title} · ${run.name || "PIVOT"}`;
    }, [view, id]);
    const link = (page, title, changes) => html`<a href=${Pivot.address(page, params, { step: null, ...changes })} aria-current=${at(VIEWS.get(page))}>${title}</a>`;
    return html`<header class="top">
        <a class="brand" href="#/">PIVOT</a>
        <nav aria-label="Pages">${link("start", "Failures")}${link("episodes", "Episodes")}${link("overview", "Overview")}</nav>
        <span class="run"><b><${Pivot.Text}>${run.name}<//></b><span class="run-id"><${Pivot.Text}>${run.runId}<//></span></span>
        <span class="tools"><button onClick=${() => themes.toggle()} title="light or dark (t)" aria-label="light or dark">◐</button>
          <button onClick=${() => setHelp(true)} title="keys (?)" aria-label="keys">?</button></span>
      </header>
      ${run.unfinished && html`<p class="unfinished" role="status"><${Pivot.Text}>${run.unfinished}<//></p>`}
      <${Pivot[name]} run=${run} id=${id} params=${params} refresh=${refresh} />
      <${Help} open=${help} close=${() => setHelp(false)} />`;
  }

  const root = document.getElementById("app");
  Pivot.open().then(
    (run) => {
      root.replaceChildren();
      preact.render(preact.h(App, { run }), root);
    },
    (error) => { root.textContent = `The report cannot be read: ${error.message}.`; },
  );
})();
