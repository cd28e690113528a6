// The LLM tab inside Locust's page, and the words of its forms. Draws SVG by hand; text of servers goes in as text only.
(function () {
  "use strict";
  const BASE = new URL(".", document.currentScript.src).href; // .../servebench/
  const ROOT = new URL("..", BASE).href;
  const SVG = "http://www.w3.org/2000/svg";
  const H = 190, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 22;
  const DASH = ["", "7 4", "2 3", "10 3 2 3", "4 2"];
  const CPU_LIMIT = 0.85, LAG_LIMIT_MS = 20, MAX_POINTS = 3600;
  const CHARTS = [
    { title: "Load (req/s, last 10 s)", series: [["planned", "offered"], ["sent", "sent"], ["answered", "answered"]] },
    { title: "TTFT (ms, last 60 s)", limit: "ttft", series: [["ttft_p50", "p50"], ["ttft_p95", "p95"], ["ttft_p99", "p99"]] },
    { title: "Chunk gap (ms), TPOT (ms/token), last 60 s", limit: "tpot", series: [["gap_p50", "gap p50"], ["gap_p95", "gap p95"], ["tpot_p95", "TPOT p95"]] },
    { title: "Request, sent to end (ms, last 60 s)", limit: "e2e", series: [["e2e_p50", "p50"], ["e2e_p95", "p95"]] },
    { title: "Tokens/s (answered, last 10 s)", series: [["out_tokens", "out"], ["in_tokens", "in"]] },
    { title: "In flight; server running, waiting", counts: true, series: [["inflight", "in flight"], ["running", "running"], ["waiting", "waiting"]] },
    { title: "Server: KV cache, cached prompt tokens (%)", scale: 100, series: [["kv", "KV in use"], ["cached", "cached"]] },
    { title: "Errors per second, by class", counts: true, errors: true },
    { title: "TTFT p95 (ms) against load (sent req/s), a dot per 10 s", dots: true, limit: "ttft" },
    { title: "Client p99 (ms)", series: [["dispatch_lag", "dispatch lag"], ["read_delay", "read delay"], ["hub_lag", "hub lag"]] },
    { title: "Client CPU of the busiest worker (%)", scale: 100, series: [["cpu", "CPU"]] },
  ];
  const SHAPES = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M0 -5L5 0L0 5L-5 0Z", "M-4 -4H4V4H-4Z", "M0 -5L5 4H-5Z", "M-4 -4L4 4M4 -4L-4 4", "M0 -5V5M-5 0H5"];
  const TABLE_ROWS = 20;
  const NAMES = { ready: "READY", preparing: "PREPARING", running: "RUNNING", draining: "DRAINING", closing: "CLOSING", closed: "ENDED" };

  let box = null, parts = {}, next = 0, columns = [], points = [], last = null, paused = false, windowS = 300, said = 0, heard = 0, busy = false, ticks = 0;

  function make(parent, name, attributes, text) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }
  function draw(parent, name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }
  const figure = (v) => v === null || v === undefined ? "–" : v === 0 ? "0"
    : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(3)));
  // What is measured keeps its three digits (34.0); what is counted, and the marks of an axis, have none to keep.
  const measure = (v) => v === null || v === undefined || v === 0 || Math.abs(v) >= 1000 ? figure(v) : v.toPrecision(3);
  const minutes = (s) => s === null || s === undefined ? "–"
    : `${String(Math.floor(s / 60)).padStart(2, "0")}:${String(Math.floor(s % 60)).padStart(2, "0")}`;
  const wall = (iso) => new Date(iso).toLocaleTimeString([], { hour12: false, timeZoneName: "short" });

  // One chart: axes from 0 with head room, a line a series, gaps where nothing is known, events as upright lines.
  function niceTop(value) {
    if (!(value > 0)) return 1;
    const power = 10 ** Math.floor(Math.log10(value * 1.05));
    return power * [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10].find((step) => step * power >= value * 1.05);
  }
  function chart(spec) {
    const frame = make(parts.charts, "figure");
    make(frame, "figcaption", {}, spec.title);
    const legend = make(frame, "div", { class: "legend" });
    const svg = draw(frame, "svg", { role: "img" });
    svg.setAttribute("aria-label", spec.title);
    const details = make(frame, "details");
    make(details, "summary", {}, "numbers");
    const numbers = make(make(details, "div", { class: "numbers", tabindex: "0", role: "region", "aria-label": `${spec.title}: numbers` }), "table");
    details.addEventListener("toggle", paintAll);
    return { spec, frame, legend, svg, details, numbers };
  }
  function seriesOf(spec, shown) {
    if (!spec.errors) return spec.series.map(([key, label]) => ({ label, values: shown.map((p) => p[columns.indexOf(key)]) }));
    const at = columns.indexOf("errors");
    const classes = [...new Set(shown.flatMap((p) => Object.keys(p[at])))].sort().slice(0, 5);
    return classes.map((label) => ({ label, values: shown.map((p) => p[at][label] || 0) }));
  }
  // The numbers behind a chart, while somebody reads them: newest first, evenly thinned.
  function fill(one, head, rows) {
    if (!one.details.open) { one.numbers.replaceChildren(); return; }
    const step = Math.max(1, Math.ceil(rows.length / TABLE_ROWS)), shown = rows.filter((_, i) => (rows.length - 1 - i) % step === 0).reverse();
    one.numbers.replaceChildren();
    const top = make(make(one.numbers, "thead"), "tr"), body = make(one.numbers, "tbody");
    for (const name of head) make(top, "th", { scope: "col" }, name);
    for (const row of shown) { const line = make(body, "tr"); for (const cell of row) make(line, "td", {}, cell); }
  }
  function limitsOf(spec) { return spec.limit && last && last.limits ? last.limits.filter((l) => l.metric === spec.limit) : []; }
  // A limit far above all that was measured would flatten it, so that one is not drawn.
  function topOf(most, limits) { return niceTop(Math.max(most, ...limits.map((l) => l.limit).filter((l) => l <= 3 * most))); }
  function limitLine(svg, limit, y, W) {
    draw(svg, "line", { x1: LEFT, x2: W - RIGHT, y1: y(limit.limit), y2: y(limit.limit), stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "9 5", class: "limit" });
    draw(svg, "text", { x: W - RIGHT, y: y(limit.limit) - 4, "text-anchor": "end", class: "limit" }, `${limit.quantile} < ${figure(limit.limit)}`);
  }
  function grid(svg, top, y, W) {
    for (let k = 0; k <= 4; k++) {
      const v = top * k / 4;
      draw(svg, "line", { x1: LEFT, x2: W - RIGHT, y1: y(v), y2: y(v), stroke: "var(--line)" });
      draw(svg, "text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, figure(v));
    }
  }
  // Load against latency: colour and shape say which phase; the last dot is ringed.
  function paintDots(one, shown) {
    const { spec, svg, legend } = one, at = columns.indexOf("dot"), W = Math.max(240, one.frame.clientWidth - 20);
    const dots = shown.map((p) => p[at]).filter((d) => d && d.sent_per_s !== null && d.p95 !== null), limits = limitsOf(spec);
    const top = topOf(Math.max(0, ...dots.map((d) => d.p95)), limits), right = niceTop(Math.max(0, ...dots.map((d) => d.sent_per_s)));
    const x = (v) => LEFT + v / right * (W - LEFT - RIGHT), y = (v) => H - BOTTOM - v / top * (H - TOP - BOTTOM);
    const phases = [...new Set(dots.map((d) => d.phase))];
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.replaceChildren();
    grid(svg, top, y, W);
    for (let k = 0; k <= 4; k++) draw(svg, "text", { x: x(right * k / 4), y: H - 6, "text-anchor": k === 0 ? "start" : k === 4 ? "end" : "middle" }, figure(right * k / 4));
    for (const limit of limits) if (limit.limit <= top) limitLine(svg, limit, y, W);
    const look = (phase) => { const i = phases.indexOf(phase), line = i % 6 > 3; return { d: SHAPES[i % 6], fill: line ? "none" : `var(--c${i % 6 + 1})`, stroke: `var(--c${i % 6 + 1})`, "stroke-width": line ? 2 : 0, class: "dot" }; };
    dots.forEach((d, i) => {
      const mark = draw(svg, "path", { ...look(d.phase), transform: `translate(${x(d.sent_per_s).toFixed(1)} ${y(d.p95).toFixed(1)})`, opacity: 0.45 + 0.55 * (i + 1) / dots.length });
      draw(mark, "title", {}, `${d.phase || "–"}: ${measure(d.sent_per_s)} req/s, p50 ${measure(d.p50)} ms, p95 ${measure(d.p95)} ms, n ${d.n}`);
    });
    if (dots.length) draw(svg, "circle", { cx: x(dots[dots.length - 1].sent_per_s), cy: y(dots[dots.length - 1].p95), r: 8, fill: "none", stroke: "var(--ink)" });
    legend.replaceChildren();
    for (const phase of phases) {
      const item = make(legend, "span"), key = draw(item, "svg", { viewBox: "-7 -7 14 14", width: 14, height: 14, style: "display:inline-block;width:14px;height:14px;margin-right:5px" });
      draw(key, "path", look(phase));
      make(item, "span", {}, phase || "–");
    }
    if (!dots.length) make(legend, "span", {}, "no data yet: the first dot comes after 10 s");
    svg.setAttribute("aria-label", `${spec.title}: ${dots.length} dots`);
    fill(one, ["phase", "sent req/s", "n", "p50 ms", "p95 ms"], dots.map((d) => [d.phase || "–", measure(d.sent_per_s), figure(d.n), measure(d.p50), measure(d.p95)]));
  }
  function path(values, x, y) {
    let out = "", pen = false;
    values.forEach((v, i) => {
      if (v === null || v === undefined) { pen = false; return; }
      out += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
      pen = true;
    });
    return out;
  }
  function paint(one, shown, events) {
    const { spec, svg, legend } = one, scale = spec.scale || 1, shownAs = spec.counts ? figure : measure;
    const W = Math.max(240, one.frame.clientWidth - 20); // one unit is one pixel, so that text keeps its size
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    const series = seriesOf(spec, shown).map((s) => ({ ...s, values: s.values.map((v) => v === null || v === undefined ? v : v * scale) }));
    const times = shown.map((p) => p[0]), t1 = times[times.length - 1] || 0, t0 = Math.min(times[0] || 0, t1 - 10);
    const known = series.flatMap((s) => s.values).filter((v) => v !== null && v !== undefined), limits = limitsOf(spec);
    const top = topOf(Math.max(0, ...known), limits);
    const x = (i) => LEFT + (times[i] - t0) / (t1 - t0) * (W - LEFT - RIGHT);
    const y = (v) => H - BOTTOM - v / top * (H - TOP - BOTTOM);
    svg.replaceChildren();
    grid(svg, top, y, W);
    for (let k = 0; k <= 4; k++) {
      const at = LEFT + k / 4 * (W - LEFT - RIGHT);
      if (t0 + (t1 - t0) * k / 4 >= 0) draw(svg, "text", { x: at, y: H - 6, "text-anchor": k === 0 ? "start" : k === 4 ? "end" : "middle" }, minutes(t0 + (t1 - t0) * k / 4));
    }
    for (const event of events) {
      if (event.t_s === null || event.t_s < t0 || event.t_s > t1) continue;
      const at = LEFT + (event.t_s - t0) / (t1 - t0) * (W - LEFT - RIGHT);
      const mark = draw(svg, "line", { x1: at, x2: at, y1: TOP, y2: H - BOTTOM, stroke: "var(--soft)", "stroke-dasharray": "2 4" });
      draw(mark, "title", {}, `${minutes(event.t_s)} ${event.text}`);
    }
    legend.replaceChildren();
    series.forEach((s, i) => {
      draw(svg, "path", { d: path(s.values, x, y), fill: "none", stroke: `var(--c${i % 6 + 1})`, "stroke-width": 2, "stroke-dasharray": DASH[i % 5] });
      const item = make(legend, "span"), key = draw(item, "svg", { viewBox: "0 0 22 8", width: 22, height: 8, style: "display:inline-block;width:22px;height:8px;margin-right:5px" });
      draw(key, "line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: `var(--c${i % 6 + 1})`, "stroke-width": 2.5, "stroke-dasharray": DASH[i % 5] });
      make(item, "span", {}, `${s.label} ${shownAs(s.values[s.values.length - 1])}`);
    });
    for (const limit of limits) if (limit.limit <= top) limitLine(svg, limit, y, W); // last: its words lie over the lines
    if (!known.length) make(legend, "span", {}, spec.errors ? "none" : "no data yet");
    svg.setAttribute("aria-label", `${spec.title}: ${legend.textContent}`);
    fill(one, ["at", ...series.map((s) => s.label)], shown.map((p, i) => [minutes(p[0]), ...series.map((s) => shownAs(s.values[i]))]));
  }

  function build(anchor) {
    box = make(null, "section", { id: "sb-llm", "aria-label": "Live figures of the language model" });
    anchor.parentNode.insertBefore(box, anchor);
    anchor.style.display = "none";
    parts = {};
    const bar = make(box, "div", { class: "bar" });
    parts.state = make(bar, "b");
    parts.where = make(bar, "span");
    const form = make(bar, "form");
    const label = make(form, "label", {}, "Offered ");
    parts.rate = make(label, "input", { type: "number", min: "1", step: "1", "aria-label": "Offered rate in requests per second" });
    make(form, "span", {}, " req/s over ");
    parts.over = make(form, "input", { type: "number", min: "1", step: "1", value: "1", "aria-label": "Seconds that the change takes" });
    make(form, "span", {}, " s ");
    parts.apply = make(form, "button", { type: "submit" }, "Apply");
    form.addEventListener("submit", apply);
    parts.effect = make(bar, "span", { class: "soft" });
    for (const input of [parts.rate, parts.over]) input.addEventListener("input", effect);
    const windows = make(make(bar, "label", {}, "Window "), "select");
    for (const [value, text] of [[60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"]]) make(windows, "option", { value }, text);
    windows.value = String(windowS);
    windows.addEventListener("change", () => { windowS = Number(windows.value); paintAll(); });
    parts.pause = make(bar, "button", { type: "button", "aria-pressed": String(paused) }, "Pause");
    parts.pause.addEventListener("click", () => { paused = !paused; parts.pause.setAttribute("aria-pressed", String(paused)); parts.pause.textContent = paused ? "Go on" : "Pause"; if (paused && last) hold(`PAUSED at ${minutes(last.run.t_s)}`); });
    const marker = make(bar, "form"), text = make(marker, "input", { placeholder: "marker…", maxlength: "200", "aria-label": "Text of a marker" });
    make(marker, "button", { type: "submit" }, "Mark");
    parts.mark = marker.lastChild;
    marker.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!text.value.trim()) return;
      fetch(BASE + "marker", { method: "POST", headers: { "X-Servebench": "1" }, body: text.value }).then(() => { text.value = ""; });
    });
    parts.fault = make(bar, "div", { class: "fault", role: "alert" });
    parts.facts = make(bar, "div", { class: "facts" });
    parts.banner = make(box, "div", { class: "banner", hidden: "" });
    parts.live = make(box, "div", { role: "status", "aria-live": "polite", style: "position:absolute;left:-9999px" });
    parts.empty = make(box, "p", {}, "Press Start; data appears in 2 s.");
    parts.charts = make(box, "div", { class: "charts" });
    parts.list = CHARTS.map(chart);
    parts.table = make(make(box, "div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Percentiles of the whole run" }), "table");
    parts.phases = make(make(box, "div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Percentiles by phase" }), "table");
    const happened = make(box, "div", { class: "wide" });
    make(happened, "b", {}, "What happened");
    parts.events = make(happened, "ol", { class: "events", tabindex: "0", "aria-label": "Events, newest first" });
    parts.links = make(box, "p", { class: "soft" });
    next = 0; points = [];
  }

  function effect() {
    const now = last && last.run.planned_per_s, wanted = Number(parts.rate.value), over = Math.max(1, Number(parts.over.value) || 1);
    parts.effect.textContent = parts.rate.value && !parts.apply.disabled && now !== null && now !== undefined && now !== wanted ? `${figure(now)} → ${figure(wanted)} req/s over ${over} s` : "";
  }
  function apply(event) {
    event.preventDefault();
    const now = (last && last.run.planned_per_s) || 0, wanted = Number(parts.rate.value), over = Math.max(1, Number(parts.over.value) || 1);
    const each = (last && last.rate_per_user) || 1, users = Math.round(wanted / each);
    if (!(users >= 1)) { parts.fault.textContent = `Offered rate: at least ${figure(each)} req/s.`; return; }
    const body = new URLSearchParams({ user_count: String(users), spawn_rate: String(Math.max(0.01, Math.abs(wanted - now) / each / over)) });
    fetch(ROOT + "swarm", { method: "POST", body }).then((r) => r.json()).then((answer) => { parts.fault.textContent = answer.success ? "" : answer.message; effect(); })
      .catch(() => { parts.fault.textContent = "The master does not answer."; });
  }

  // An objective with its state in words and a glyph, never by colour alone.
  function goal(metric, value) {
    const limit = last.limits && last.limits.find((l) => l.metric === metric && l.quantile === "p95");
    if (!limit || value === null || value === undefined) return "";
    const word = value >= limit.limit ? "✗ missed" : value >= 0.9 * limit.limit ? "~ close" : "✓ met";
    return ` ${word} < ${figure(limit.limit)} ${metric === "tpot" ? "ms/token" : "ms"}`;
  }
  function facts(run) {
    const p = points[points.length - 1], at = (name) => p ? p[columns.indexOf(name)] : null;
    // What a stop cut off, and what was never sent, is no answer of the server's.
    const failed = Object.entries(run.errors || {}).reduce((sum, [name, n]) => sum + (/^(cancelled|shed)/.test(name) ? 0 : n), 0);
    const words = [
      `sent ${figure(run.sent)}`, `in flight ${figure(run.inflight)}`, `TTFT p95 ${measure(at("ttft_p95"))} ms${goal("ttft", at("ttft_p95"))}`, `TPOT p95 ${measure(at("tpot_p95"))} ms/token${goal("tpot", at("tpot_p95"))}`,
      `out ${measure(at("out_tokens"))} tok/s`, `errors ${run.ok + failed > 0 ? measure(100 * failed / (run.ok + failed)) : "–"} %`,
      `late ${figure(run.late)}`, `shed ${figure(run.shed)}`, `workers ${figure(run.workers)}`,
    ];
    const s = run.server;
    if (s) words.push(`server (${s.dialect}, ${s.age_s === null ? "–" : Math.round(s.age_s)} s old): running ${figure(s.running)}, waiting ${figure(s.waiting)}, KV ${s.kv_usage === null ? "–" : measure(100 * s.kv_usage)} %`);
    parts.facts.replaceChildren(...words.map((w) => make(null, "span", {}, w)));
  }
  function banner(run) {
    const why = [];
    // One bad second may be the machine's; two of the last three are the client's. What is told is the worst of them.
    const lately = (name) => points.slice(-3).map((p) => p[columns.indexOf(name)]);
    const often = (name, limit) => lately(name).filter((value) => value > limit).length >= 2;
    if (often("cpu", CPU_LIMIT)) why.push(`CPU of a worker ${measure(100 * Math.max(...lately("cpu")))} %`);
    if (often("hub_lag", LAG_LIMIT_MS)) why.push(`hub lag p99 ${measure(Math.max(...lately("hub_lag")))} ms`);
    const on = run.state === "running" && why.length > 0;
    parts.banner.hidden = !on;
    const text = on ? `! The client is the bottleneck: ${why.join(", ")}. Add workers; latency of these seconds is not the server's.` : "";
    if (parts.banner.textContent !== text) parts.banner.textContent = text;
  }
  function table(rows) {
    parts.table.replaceChildren();
    const head = make(make(parts.table, "thead"), "tr");
    for (const name of ["live, whole run", "n", "p50", "p90", "p95", "p99", "p99.9", "max"]) make(head, "th", { scope: "col" }, name);
    const body = make(parts.table, "tbody");
    for (const row of rows) {
      const line = make(body, "tr");
      make(line, "td", { title: row.about }, `${row.title} (${row.unit}) `);
      make(line, "td", {}, figure(row.n));
      for (const key of ["p50", "p90", "p95", "p99", "p999", "max"]) make(line, "td", {}, measure(row[key]));
    }
  }
  function phaseTable(rows) {
    parts.phases.parentNode.style.display = rows.length ? "" : "none";
    parts.phases.replaceChildren();
    const head = make(make(parts.phases, "thead"), "tr"), names = [...new Set(rows.map((r) => r.phase))], metrics = [...new Map(rows.map((r) => [r.name, `${r.title} (${r.unit})`]))];
    make(head, "th", { scope: "col" }, "live, by phase of the answer");
    make(head, "th", { scope: "col" }, "answers");
    for (const [, title] of metrics) for (const q of ["p50", "p95"]) make(head, "th", { scope: "col" }, q === "p50" ? `${title} p50` : q);
    const body = make(parts.phases, "tbody");
    for (const name of names) {
      const line = make(body, "tr");
      const found = (metric) => rows.find((r) => r.phase === name && r.name === metric) || {};
      make(line, "td", {}, name);
      make(line, "td", {}, figure(found("e2e").n));
      for (const [metric] of metrics) for (const q of ["p50", "p95"]) make(line, "td", {}, measure(found(metric)[q]));
    }
  }
  function links(answer) {
    const run = answer.run;
    parts.links.replaceChildren();
    const link = (href, text) => { make(parts.links, "a", { href }, text); parts.links.append("   "); };
    if (run.state === "closed") {
      const folder = BASE + "runs/" + encodeURIComponent(run.run_id) + "/";
      if (answer.report) link(folder + "report.html", "Report of this run"); else make(parts.links, "span", {}, "The report is being written…   ");
      if (answer.report) link(folder + "summary.json", "summary.json");
      link(folder + "run.json", "run.json");
      link(folder + "events.jsonl", "events.jsonl");
    }
    link(BASE + "runs", "All runs");
    if (!run.run_id) return;
    make(parts.links, "br");
    make(parts.links, "span", {}, "Live figures are for watching: charts show quantiles of few answers too, the tables do not. Of record is ");
    make(parts.links, "code", {}, answer.command);
  }
  function paintAll() {
    const end = points.length ? points[points.length - 1][0] : 0, shown = points.filter((p) => p[0] >= end - windowS);
    const step = Math.ceil(shown.length / 600), thin = step > 1 ? shown.filter((_, i) => i % step === 0 || i === shown.length - 1) : shown;
    parts.empty.hidden = points.length > 0;
    parts.charts.style.display = points.length ? "" : "none";
    if (points.length) parts.list.forEach((one) => one.spec.dots ? paintDots(one, shown) : paint(one, thin, last.events));
  }
  function show(answer) {
    const run = answer.run, ended = run.state === "closed";
    if (last && last.run.run_id !== run.run_id) points = [];
    columns = answer.columns;
    points = points.concat(answer.points).slice(-MAX_POINTS);
    last = answer; next = answer.next;
    box.classList.toggle("ended", ended);
    staleness(run);
    box.classList.toggle("dark", isDark());
    parts.state.textContent = (NAMES[run.state] || run.state) + (ended && run.now ? ` ${wall(run.now)}` : run.t_s ? ` ${minutes(run.t_s)}` : "");
    parts.where.textContent = run.phase || "";
    if (document.activeElement !== parts.rate && run.planned_per_s !== null && run.planned_per_s !== undefined && parts.rate.value === "") parts.rate.value = String(run.planned_per_s);
    parts.apply.disabled = run.state !== "running" || !answer.by_hand;
    parts.mark.disabled = run.state !== "running";
    effect(); facts(run); banner(run); table(answer.table); phaseTable(answer.phases || []); links(answer); paintAll();
    parts.events.replaceChildren(...answer.events.slice().reverse().map((e) => make(null, "li", {}, `${wall(e.at)}  ${e.kind}: ${e.text}`)));
    speak(ended);
  }
  // What is read aloud: one message per 10 s at most, and of a run that has ended only that.
  function speak(ended) {
    const figures = [...parts.facts.children].map((one) => one.textContent).join(", ");
    const words = ended ? parts.state.textContent : [parts.banner.textContent, parts.state.textContent, figures].filter(Boolean).join(". ");
    if (Date.now() - said < 10000 || words === parts.live.textContent) return;
    said = Date.now();
    parts.live.textContent = words;
  }
  // No figure may look current when nothing has come for it: paused by hand, or a master that does not answer.
  function hold(text) {
    box.classList.add("ended");
    parts.state.textContent = text;
  }
  const isDark = () => {
    const rgb = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g);
    return rgb !== null && rgb.length >= 3 && Number(rgb[0]) + Number(rgb[1]) + Number(rgb[2]) < 384;
  };

  async function poll() {
    if (busy || paused || document.hidden) return;
    busy = true;
    try {
      for (let again = true; again && box;) {
        const reply = await fetch(`${BASE}live?since=${next}`);
        if (!reply.ok || !box) break;
        const answer = await reply.json();
        heard = Date.now();
        if (paused) break;
        show(answer);
        again = answer.more;
      }
    } catch { if (box) { hold(`NO ANSWER of the master${heard ? ` since ${wall(heard)}` : ""}`); speak(true); } } finally { busy = false; }
  }

  // After a stop Locust's header goes on showing the last rate as if it were current: its figures are greyed and dated.
  function staleness(run) {
    const over = run.state === "closed", text = over && run.now ? `ended ${wall(run.now)}: these are the last figures` : "";
    document.body.classList.toggle("sb-over", over);
    const header = document.querySelector("header");
    let note = document.getElementById("sb-over-note");
    if (!over || !header) { if (note) note.remove(); return; }
    if (!note) note = make(header, "div", { id: "sb-over-note", role: "status" });
    if (note.textContent !== text) note.textContent = text;
  }
  async function watchState() {
    if (busy || document.hidden) return;
    try { const reply = await fetch(`${BASE}live?since=${Number.MAX_SAFE_INTEGER}`); if (reply.ok) staleness((await reply.json()).run); } catch { /* the tab says so */ }
  }
  // Reset throws away all that Locust has counted, at once and for everybody: it asks first.
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button") : null;
    if (!button || button.closest("#sb-llm") || button.textContent.trim().toLowerCase() !== "reset") return;
    if (!window.confirm("Reset Locust's statistics? They start again at 0 for everybody who watches; the run's own files stay.")) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);

  // Words of Locust's own forms: a number of users is an offered rate here.
  const each = Number(document.currentScript.dataset.ratePerUser || "1");
  const rate = each === 1 ? "Offered rate, req/s" : `Load tokens (${each} req/s each)`;
  const WORDS = new Map([
    ["Number of users (peak concurrency)", rate],
    ["Ramp up (users started/second)", each === 1 ? "Change of the rate, req/s in each second" : "Tokens started in each second"],
    ["Users", each === 1 ? "Offered/s" : "Tokens"],
  ]);
  function reword(root) {
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const word = WORDS.get(node.data.trim());
      if (word) node.data = word;
    }
  }
  new MutationObserver((changes) => {
    for (const change of changes) for (const node of change.addedNodes) if (!node.parentElement || !node.parentElement.closest("#sb-llm")) reword(node.nodeType === 3 ? node.parentNode || node : node);
  }).observe(document.body, { childList: true, subtree: true });
  reword(document.body);

  function tick() {
    if (new URLSearchParams(location.search).get("tab") !== "llm") {
      if (box) { box.remove(); box = null; next = 0; }
      if (++ticks % 5 === 1) watchState();
      return;
    }
    if (!box || !box.isConnected) {
      const anchor = document.querySelector(".MuiTableContainer-root");
      if (!anchor) return;
      build(anchor);
    }
    poll();
  }
  setInterval(tick, 1000);
  setTimeout(tick, 100);
})();
