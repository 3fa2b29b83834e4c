// What the pages read: scripts that hold JSON (a page opened from disk may load nothing else), the list of episodes by
// columns, and the filters, which live in the part of the address after the #.
"use strict";

window.Pivot = (() => {
  const PAGES_KEPT = 40;
  const AT_ONCE = 8;
  const loads = new Map();
  const arrivals = new Map();

  // Only our own data files can become scripts, whatever a store holds.
  const policy = window.trustedTypes && window.trustedTypes.createPolicy("pivot", {
    createScriptURL(path) {
      if (!/^(contents|overview|pages\/\d+\/\d+)\.js$/.test(path)) throw new TypeError(`no data file: ${path}`);
      return path;
    },
  });

  function put(name, text) {
    arrivals.get(name)?.(JSON.parse(text));
    arrivals.delete(name);
  }

  function load(name) {
    if (loads.has(name)) {
      const loading = loads.get(name);
      loads.delete(name);
      loads.set(name, loading);
      return loading;
    }
    const loading = new Promise((resolve, reject) => {
      const script = document.createElement("script");
      const path = `${name}.js`;
      arrivals.set(name, resolve);
      script.onload = () => script.remove();
      script.onerror = () => {
        script.remove();
        loads.delete(name);
        reject(new Error(`${path} cannot be loaded`));
      };
      script.src = policy ? policy.createScriptURL(path) : path;
      document.head.append(script);
    });
    loads.set(name, loading);
    if (loads.size > PAGES_KEPT) loads.delete(loads.keys().next().value);
    return loading;
  }

  // The list of episodes

  let words = {};
  let columns = {};
  let size = 0;
  let runId = "";
  let chunk = 1;
  let numbers = new Map();
  let haystacks = [];
  const deep = { texts: [], loaded: 0, running: false };

  function take(contents) {
    ({ words, columns, count: size, chunk, run_id: runId } = contents);
    numbers = new Map(columns.id.map((id, number) => [id, number]));
    haystacks = new Array(size);
  }

  const value = (name, number) => (words[name] ? words[name][columns[name][number]] : columns[name][number]);

  function label(number) {
    const accepted = columns.accepted[number];
    return accepted === null ? "none" : accepted ? "accepted" : "rejected";
  }

  function haystack(number) {
    haystacks[number] ??= ["id", "env", "task", "set", "outcome", "stop", "mode", "policy", "instruction", "guidance"]
      .map((name) => value(name, number)).join("\n").toLowerCase();
    return haystacks[number];
  }

  const chunkName = (place) => `pages/${Math.floor((place * chunk) / 1000)}/${place}`;

  async function page(number) {
    const place = Math.floor(number / chunk);
    return (await load(chunkName(place)))[number - place * chunk];
  }

  const jsonOf = (number) => `episodes/${Math.floor(number / 1000)}/${number}.json`;

  // What the search in replies reads: loaded once, when it is first asked for.
  async function readReplies(progress) {
    if (deep.running || deep.loaded === size) return;
    deep.running = true;
    const places = Math.ceil(size / chunk);
    try {
      for (let place = Math.floor(deep.loaded / chunk); place < places; place += AT_ONCE) {
        const some = [...Array(Math.min(AT_ONCE, places - place)).keys()].map((i) => load(chunkName(place + i)));
        for (const pages of await Promise.all(some)) for (const each of pages) deep.texts.push(textOf(each));
        deep.loaded = deep.texts.length;
        if (place % (8 * AT_ONCE) === 0) progress();
      }
    } finally {
      deep.running = false;
      progress();
    }
  }

  function textOf(record) {
    const texts = [record.level, record.episode.error, record.witness?.actions.join(" ")];
    for (const step of record.steps) texts.push(step.action, step.response, step.observation_text);
    for (const reason of record.label?.reject_reasons ?? []) texts.push(reason.name, reason.kind, reason.detail);
    return texts.filter(Boolean).join("\n").toLowerCase();
  }

  // Filters

  const FACETS = [
    { name: "env", title: "Environment", of: (n) => value("env", n) },
    { name: "outcome", title: "Outcome", of: (n) => value("outcome", n) },
    { name: "mode", title: "Failure mode", of: (n) => value("mode", n) },
    { name: "label", title: "Label", of: label },
    { name: "pivot", title: "Pivot step", of: (n) => (columns.pivot[n] === null ? "" : String(columns.pivot[n])) },
  ];
  const SORTS = {
    "": ["as stored", null],
    pivot: ["earliest pivot", (n) => columns.pivot[n] ?? Infinity],
    late: ["latest pivot", (n) => -(columns.pivot[n] ?? -Infinity)],
    return: ["lowest return", (n) => columns.return[n]],
    best: ["highest return", (n) => -columns.return[n]],
    steps: ["most steps", (n) => -columns.steps[n]],
  };

  const chosen = (params, name) => new Set((params.get(name) ?? "").split(",").filter(Boolean));

  function searched(params) {
    const terms = (params.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const inReplies = params.get("replies") === "1";
    if (!terms.length) return () => true;
    return (number) => terms.every((term) => haystack(number).includes(term)
      || (inReplies && deep.texts[number]?.includes(term)));
  }

  let last = { key: null };

  // Numbers of the episodes that pass, in order, and for every facet how many its values would leave.
  function filtered(params) {
    const names = [...FACETS.map((facet) => facet.name), "q", "replies", "sort"];
    const key = [...names.map((name) => params.get(name) ?? ""), params.get("replies") ? deep.texts.length : 0].join("\n");
    if (key === last.key) return last;
    const picks = FACETS.map((facet) => chosen(params, facet.name));
    const passes = searched(params);
    const counts = FACETS.map(() => new Map());
    const rows = [];
    const add = (i, each) => counts[i].set(each, (counts[i].get(each) ?? 0) + 1);
    for (let number = 0; number < size; number += 1) {
      if (!passes(number)) continue;
      let misses = 0;
      let missed = 0;
      for (let i = 0; i < FACETS.length; i += 1) {
        if (picks[i].size > 0 && !picks[i].has(FACETS[i].of(number))) {
          misses += 1;
          missed = i;
        }
      }
      if (misses === 0) {
        rows.push(number);
        for (let i = 0; i < FACETS.length; i += 1) add(i, FACETS[i].of(number));
      } else if (misses === 1) {
        add(missed, FACETS[missed].of(number));
      }
    }
    const order = SORTS[params.get("sort") ?? ""]?.[1];
    if (order) {
      const keys = new Map(rows.map((number) => [number, order(number)]));
      rows.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
    }
    last = { key, rows, counts };
    return last;
  }

  // Addresses

  function route() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    let [view, id = ""] = path.split("/");
    try {
      id = decodeURIComponent(id);
    } catch {
      id = "";
    }
    return { view: view || "episodes", id, params: new URLSearchParams(query ?? "") };
  }

  function address(path, params, changes = {}) {
    const next = new URLSearchParams(params);
    for (const [name, each] of Object.entries(changes)) {
      if (each === null || each === "" || each === undefined) next.delete(name);
      else next.set(name, String(each));
    }
    const query = next.toString().replaceAll("%2C", ",");
    return `#/${path}${query ? `?${query}` : ""}`;
  }

  function go(hash, replace = false) {
    history[replace ? "replaceState" : "pushState"](null, "", hash);
    window.dispatchEvent(new Event("pivot:route"));
  }

  return {
    put, load, take, page, jsonOf, value, label, filtered, chosen, readReplies, route, address, go, FACETS, SORTS, deep,
    get columns() { return columns; },
    get size() { return size; },
    get runId() { return runId; },
    number: (id) => numbers.get(id),
    episode: (number) => `episode/${encodeURIComponent(columns.id[number])}`,
  };
})();
