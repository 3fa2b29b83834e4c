// Filters, sorting and search; all of them are part of the address after the #.
"use strict";

(() => {
  const proof = (run, n) => {
    if (run.label(n) === "none") return "";
    const proved = run.columns.proved[n];
    return proved === null ? "unproved" : proved ? "proved" : "refuted";
  };
  const word = (name) => (run, n) => run.value(name, n);
  const count = (name) => (run, n) => (run.columns[name][n] === null ? "" : String(run.columns[name][n]));

  // A facet gives a text, or a list of texts where an episode may have several; "" is no value.
  const FACETS = [
    { name: "env", title: "Environment", of: word("env") },
    { name: "outcome", title: "Outcome", of: word("outcome") },
    { name: "mode", title: "Failure mode", of: word("mode") },
    { name: "label", title: "Label", of: (run, n) => run.label(n), names: new Map([["none", "no label"]]) },
    { name: "proof", title: "Proof", of: proof },
    { name: "reason", title: "Rejected by", of: (run, n) => run.value("reasons", n).split("\n") },
    { name: "split", title: "Split", of: word("split") },
    { name: "set", title: "Task set", of: word("set") },
    { name: "policy", title: "Policy", of: word("policy") },
    { name: "writer", title: "Writer of guidance", of: word("writer") },
    { name: "pivot", title: "Pivot step", of: count("pivot"), numeric: true },
    { name: "slack", title: "Slack at the pivot", of: count("slack"), numeric: true },
  ];

  // Columns in the order of exports; an episode can be sorted by each of them.
  const COLUMNS = new Map([
    ["id", "episode"], ["env", "environment"], ["task", "level"], ["sample", "rollout"], ["set", "task set"], ["split", "split"],
    ["outcome", "outcome"], ["stop", "ended by"], ["mode", "failure mode"], ["pivot", "pivot step"], ["slack", "slack"],
    ["steps", "steps"], ["horizon", "turns given"], ["return", "return"], ["label", "label"], ["proof", "proof"],
    ["reasons", "reject reasons"], ["policy", "policy"], ["writer", "writer"], ["guidance", "guidance"], ["instruction", "instruction"],
  ]);

  function cell(run, name, number) {
    if (name === "label") return run.label(number) === "none" ? "" : run.label(number);
    return name === "proof" ? proof(run, number) : run.value(name, number);
  }

  // Values of a facet in the address: commas separate them, so that commas and percent signs inside are escaped.
  const joined = (values) => [...values].map((value) => value.replace(/[%,]/g, encodeURIComponent)).join(",");

  function chosen(params, name) {
    const values = new Set();
    for (const text of (params.get(name) ?? "").split(",").filter(Boolean)) {
      try {
        values.add(decodeURIComponent(text));
      } catch {
        values.add(text);
      }
    }
    return values;
  }

  function searched(run, params) {
    const terms = (params.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const inReplies = params.get("replies") === "1";
    if (!terms.length) return () => true;
    return (number) => terms.every((term) => run.haystack(number).includes(term)
      || (inReplies && run.replies.texts[number]?.includes(term)));
  }

  // The column to sort by and whether large values come first; null for the stored order.
  function order(params) {
    const text = params.get("sort") ?? "";
    const name = text.replace(/^-/, "");
    return COLUMNS.has(name) ? { name, down: text.startsWith("-") } : null;
  }

  const missing = (value) => value === null || value === undefined || value === "";

  function sorted(run, rows, { name, down }) {
    const keys = new Map(rows.map((number) => {
      const value = cell(run, name, number);
      return [number, typeof value === "string" ? value.toLowerCase() : value];
    }));
    const sign = down ? -1 : 1;
    rows.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (missing(x) || missing(y)) return missing(x) - missing(y) || a - b;
      return x < y ? -sign : x > y ? sign : a - b;
    });
  }

  // Numbers of the episodes that pass, in order, and for every facet how many episodes each of its values would leave.
  function filtered(run, params) {
    const names = [...FACETS.map((facet) => facet.name), "q", "replies", "sort"];
    const loaded = params.get("replies") ? run.replies.texts.length : 0;
    const key = JSON.stringify([...names.map((name) => params.get(name) ?? ""), loaded]);
    if (key === run.filtered.key) return run.filtered;
    const picks = FACETS.map((facet) => chosen(params, facet.name));
    const passes = searched(run, params);
    const counts = FACETS.map(() => new Map());
    const rows = [];
    const add = (i, value) => counts[i].set(value, (counts[i].get(value) ?? 0) + 1);
    const addAll = (i, values) => (Array.isArray(values) ? values.forEach((value) => add(i, value)) : add(i, values));
    for (let number = 0; number < run.size; number += 1) {
      if (!passes(number)) continue;
      const values = FACETS.map((facet) => facet.of(run, number));
      const missed = [];
      values.forEach((value, i) => {
        const pick = picks[i];
        if (pick.size && !(Array.isArray(value) ? value.some((each) => pick.has(each)) : pick.has(value))) missed.push(i);
      });
      if (missed.length === 0) {
        rows.push(number);
        values.forEach((value, i) => addAll(i, value));
      } else if (missed.length === 1) {
        addAll(missed[0], values[missed[0]]);
      }
    }
    const by = order(params);
    if (by) sorted(run, rows, by);
    run.filtered = { key, rows, counts };
    return run.filtered;
  }

  Object.assign(Pivot, { FACETS, COLUMNS, cell, joined, chosen, order, filtered });
})();
