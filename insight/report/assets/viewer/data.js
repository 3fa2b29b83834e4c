// Loading of data files (scripts that hold JSON, because a page opened from disk may load nothing else), runs with their
// lists of episodes, and addresses.
"use strict";

window.Pivot = (() => {
  const PAGES_KEPT = 40;
  const LOADED_AT_ONCE = 8;
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

  // A store: its list of episodes by columns, and its pages.
  class Run {
    constructor(contents) {
      ({ words: this.words, columns: this.columns, count: this.size, chunk: this.chunk, top: this.top, unfinished: this.unfinished } = contents);
      Object.assign(this, { name: contents.name, runId: contents.run_id, filtered: { key: null } });
      this.numbers = new Map(this.columns.id.map((id, number) => [id, number]));
      this.columns.id.forEach((id, number) => this.numbers.get(id) === number || this.numbers.set(String(number), number));
      this.haystacks = new Array(this.size);
      this.replies = { texts: [], loaded: 0, running: false };
    }

    value(name, number) {
      const each = this.columns[name][number];
      return Object.hasOwn(this.words, name) ? this.words[name][each] : each;
    }

    label(number) {
      const accepted = this.columns.accepted[number];
      return accepted === null ? "none" : accepted ? "accepted" : "rejected";
    }

    haystack(number) {
      this.haystacks[number] ??= [
        "id", "env", "task", "set", "split", "outcome", "stop", "mode", "policy", "writer", "reasons", "instruction", "guidance",
      ].map((name) => this.value(name, number)).join("\n").toLowerCase();
      return this.haystacks[number];
    }

    chunkName(index) {
      return `pages/${Math.floor((index * this.chunk) / 1000)}/${index}`;
    }

    async page(number) {
      const index = Math.floor(number / this.chunk);
      return (await load(this.chunkName(index)))[number - index * this.chunk];
    }

    overview() {
      return load("overview");
    }

    jsonOf(number) {
      return `episodes/${Math.floor(number / 1000)}/${number}.json`;
    }

    // An id of several stores is the address of the last one's page; the others have their numbers.
    path(number, view = "episode") {
      const id = this.columns.id[number];
      return `${view}/${this.numbers.get(id) === number ? encodeURIComponent(id) : number}`;
    }

    // Numbers of the rollouts of the same level, in order; they are stored one after the other.
    siblings(number) {
      const same = (i) => ["env", "task", "set"].every((name) => this.columns[name][i] === this.columns[name][number]);
      let first = number;
      while (first > 0 && same(first - 1)) first -= 1;
      const numbers = [];
      for (let i = first; i < this.size && same(i); i += 1) numbers.push(i);
      return numbers;
    }

    // Loads the texts for the search in replies, once.
    async readReplies(progress) {
      const { replies } = this;
      if (replies.running || replies.loaded === this.size) return;
      replies.running = true;
      const count = Math.ceil(this.size / this.chunk);
      try {
        for (let first = Math.floor(replies.loaded / this.chunk); first < count; first += LOADED_AT_ONCE) {
          const names = [...Array(Math.min(LOADED_AT_ONCE, count - first)).keys()].map((i) => this.chunkName(first + i));
          for (const pages of await Promise.all(names.map(load))) for (const page of pages) replies.texts.push(textOf(page));
          replies.loaded = replies.texts.length;
          if (first % (8 * LOADED_AT_ONCE) === 0) progress();
        }
      } finally {
        replies.running = false;
        progress();
      }
    }
  }

  function textOf(record) {
    const texts = [record.level, record.episode.error, record.witness?.actions.join(" ")];
    for (const step of record.steps) texts.push(step.action, step.response, step.observation_text);
    for (const reason of record.label?.reject_reasons ?? []) texts.push(reason.name, reason.kind, reason.detail);
    return texts.filter(Boolean).join("\n").toLowerCase();
  }

  async function open() {
    return new Run(await load("contents"));
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
    return { view: view || "start", id, params: new URLSearchParams(query ?? "") };
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

  return { put, load, open, route, address, go, keys: new Map() };
})();
