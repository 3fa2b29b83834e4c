// The frame around the pages: addresses, keys, light and dark.
"use strict";

(() => {
  const { html } = Pivot;
  const { useState, useEffect, useLayoutEffect, useRef } = preactHooks;

  const KEYS = [
    ["j  k", "next and previous episode"], ["↓  ↑", "the same in the list"], ["Enter", "open the selected episode"],
    ["→  ←", "next and previous step"], ["p", "to the pivot"], ["Space", "play"], ["/", "search"], ["Esc", "back to the list"],
    ["o", "overview"], ["t", "light or dark"], ["?", "this help"],
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

  function App() {
    const [, setTick] = useState(0);
    const [help, setHelp] = useState(false);
    const refresh = () => setTick((tick) => tick + 1);
    // before the first paint: a key that is pressed as soon as something shows is heard
    useLayoutEffect(() => {
      const events = ["hashchange", "popstate", "pivot:route"];
      events.forEach((name) => window.addEventListener(name, refresh));
      const press = (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
        const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
        if (typing) {
          if (event.key === "Escape") event.target.blur();
          return;
        }
        if (event.key === " " && /^(BUTTON|A|INPUT|SUMMARY)$/.test(event.target.tagName)) return;
        if (event.key === "Enter" && /^(BUTTON|A|SUMMARY)$/.test(event.target.tagName)) return;
        const { params } = Pivot.route();
        const common = {
          "?": () => setHelp(true),
          "/": () => {
            if (Pivot.route().view !== "episodes") Pivot.go(Pivot.address("episodes", params, { step: null }));
            requestAnimationFrame(() => document.getElementById("search")?.focus());
          },
          o: () => Pivot.go(Pivot.address("overview", params, { step: null })),
          t: () => themes.toggle(),
        };
        const action = common[event.key] ?? Pivot.keys?.[event.key];
        if (!action) return;
        event.preventDefault();
        action();
      };
      window.addEventListener("keydown", press);
      return () => {
        events.forEach((name) => window.removeEventListener(name, refresh));
        window.removeEventListener("keydown", press);
      };
    }, []);
    const { view, id, params } = Pivot.route();
    const Page = { episode: Pivot.Episode, overview: Pivot.Overview }[view] ?? Pivot.List;
    const at = (name) => (Page === Pivot[name] ? "page" : null);
    useEffect(() => {
      document.title = view === "episode" ? `${id.slice(-8)} · PIVOT` : view === "overview" ? "Overview · PIVOT" : "Episodes · PIVOT";
    }, [view, id]);
    return html`<header class="top">
        <a class="brand" href=${Pivot.address("episodes", new URLSearchParams())}>PIVOT</a>
        <nav aria-label="Pages">
          <a href=${Pivot.address("episodes", params, { step: null })} aria-current=${at("List")}>Episodes</a>
          <a href=${Pivot.address("overview", params, { step: null })} aria-current=${at("Overview")}>Overview</a>
        </nav>
        <span class="run"><${Pivot.Text}>${Pivot.runId}<//></span>
        <span class="tools"><button onClick=${() => themes.toggle()} title="light or dark (t)" aria-label="light or dark">◐</button>
          <button onClick=${() => setHelp(true)} title="keys (?)" aria-label="keys">?</button></span>
      </header>
      <${Page} id=${id} params=${params} refresh=${refresh} />
      <${Help} open=${help} close=${() => setHelp(false)} />`;
  }

  const root = document.getElementById("app");
  Pivot.load("contents").then(
    (contents) => {
      Pivot.take(contents);
      root.replaceChildren();
      preact.render(preact.h(App), root);
    },
    (error) => { root.textContent = `The report cannot be read: ${error.message}.`; },
  );
})();
