"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const root = document.documentElement;
const COLORS = 8;
const THUMB = 16; // of a slider, as in the style

/* Elements. Texts are only ever set as text, so nothing in the data can become markup. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== "").map((c) => (c instanceof Node ? c : String(c))));
  return node;
}
function draw(tag, attributes = {}, color = null, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (color && tag !== "text") node.style[attributes.fill === "none" || tag === "line" ? "stroke" : "fill"] = color;
  if (text !== null) node.textContent = text;
  return node;
}
const color = (i) => `var(--c${i % COLORS})`;
const swatch = (c) => { const i = el("i"); i.style.background = c; return i; };

/* Numbers. */
function num(value) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 10000) return Math.round(value).toLocaleString("en-US");
  if (size < 0.0001) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
}
const share = (value) => (value === null || value === undefined ? "" : `${Number((100 * value).toPrecision(4))}%`);
const figure = (value, kind) => (kind === "share" || kind === "accuracy" ? share(value) : num(value));
function bytes(value) {
  if (!value) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (value >= 1000 && i < 4) { value /= 1000; i++; }
  return `${Number(value.toPrecision(3))} ${units[i]}`;
}
function time(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
const moment = (text) => (text ? text.replace("T", " ").replace(/:\d\dZ$/, " UTC") : "");
const words = (name) => name.replaceAll("_", " ");
const kindOf = (name) => (/accuracy|success|explained/.test(name) ? "share" : "number");

/* Scales. */
function ticks(low, high, count) {
  const step = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(step));
  const nice = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= step * 0.999);
  const found = [];
  for (let v = Math.ceil(low / nice - 1e-9) * nice; v <= high + nice * 1e-6; v += nice) found.push(Math.abs(v) < nice * 1e-9 ? 0 : v);
  return found;
}
function logTicks(low, high) {
  const found = [];
  const decades = Math.log10(high / low);
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++)
    for (const m of decades < 2.5 ? [1, 2, 5] : [1]) found.push(m * 10 ** p);
  const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
  return inside.length > 6 ? inside.filter((_, i) => i % Math.ceil(inside.length / 6) === 0) : inside;
}
const short = (v) => (Math.abs(v) >= 1e6 ? `${Number((v / 1e6).toPrecision(3))}M` : Math.abs(v) >= 1e4 ? `${Number((v / 1e3).toPrecision(3))}k` : num(Number(v.toPrecision(6))));
function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (low < high) { const mid = (low + high) >> 1; if (sorted[mid] < value) low = mid + 1; else high = mid; }
  return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
}
/* Draw again whenever the width changes. */
function fitted(place, render) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.floor(place.clientWidth);
    if (now && now !== width) { width = now; render(width); }
  }).observe(place);
  return () => width && render(width);
}

/* A line chart with a band, a log scale and a read-out: legend and read-out are one, so nothing jumps. */
function chart({ title, axis, series, kind = "number", asked = null, each = 1 }) {
  const plot = el("div", { class: "plot" });
  const legend = el("div", { class: "legend" });
  const positive = series.every((s) => (s.low || s.y).every((v) => v > 0));
  const all = series.flatMap((s) => s.y);
  let log = positive && kind === "number" && Math.max(...all) / Math.min(...all) > 50;
  let cursor = null;
  const hidden = new Set();
  const toggle = positive && kind === "number" && all.length > 1
    ? el("button", { type: "button", "aria-pressed": String(log), class: "log", onclick: () => { log = !log; toggle.setAttribute("aria-pressed", String(log)); again(); } }, "log scale")
    : null;
  const xs = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
  function read() {
    const at = cursor === null ? null : xs[cursor];
    const place = `${at === null ? "at the last " : "at "}${axis === "steps" ? "step" : axis}${at === null ? "" : ` ${num(at)}`}`;
    const over = axis !== "steps" ? "" : each > 1 ? `, mean of ${each} iterations` : ", mean of that iteration";
    legend.replaceChildren(el("span", { class: "at" }, place + over));
    series.forEach((s, i) => {
      const k = at === null ? s.x.length - 1 : nearest(s.x, at);
      const outside = at !== null && (at > s.x[s.x.length - 1] || at < s.x[0]);
      const range = s.low && s.low[k] !== s.high[k] ? ` (${figure(s.low[k], kind)} to ${figure(s.high[k], kind)}, ${s.count[k]} seeds)` : "";
      legend.append(el("button", { type: "button", "aria-pressed": String(!hidden.has(i)), onclick: () => { if (hidden.has(i)) hidden.delete(i); else hidden.add(i); again(); } },
        swatch(s.color), el("span", {}, s.name, " ", el("b", {}, outside ? "–" : figure(s.y[k], kind)), range)));
    });
  }
  function render(width) {
    const height = width < 420 ? 190 : 220, left = 50, right = 10, top = 8, bottom = 24;
    const shown = series.filter((_, i) => !hidden.has(i));
    const values = shown.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || [])]);
    if (asked !== null && (!log || asked > 0)) values.push(asked);
    let low = Math.min(...values), high = Math.max(...values);
    if (!values.length) { low = log ? 0.1 : 0; high = 1; }
    if (kind === "share") { low = Math.min(0, low); high = Math.max(1, high); }
    else if (!log) { if (low > 0 && low < 0.5 * high) low = 0; const room = (high - low || Math.abs(high) || 1) * 0.05; high += room; if (low !== 0) low -= room; }
    else if (low === high) { low /= 2; high *= 2; }
    const first = xs[0], last = xs[xs.length - 1];
    const X = (v) => left + ((v - first) / (last - first || 1)) * (width - left - right);
    const f = log ? Math.log : (v) => v;
    const Y = (v) => top + (1 - (f(v) - f(low)) / (f(high) - f(low) || 1)) * (height - top - bottom);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": `${title}, by ${axis}` });
    for (const v of log ? logTicks(low, high) : ticks(low, high, 4)) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: Y(v), y2: Y(v) }));
      svg.append(draw("text", { x: left - 7, y: Y(v) + 4, "text-anchor": "end" }, null, kind === "share" ? share(v) : short(v)));
    }
    const across = ticks(first, last, Math.max(2, Math.floor(width / 130)));
    for (const v of across) svg.append(draw("text", { x: Math.min(X(v), width - right - 8), y: height - 6, "text-anchor": X(v) < left + 8 ? "start" : "middle" }, null, short(v)));
    if (asked !== null && (!log || asked > 0)) {
      svg.append(draw("line", { class: "asked", x1: left, x2: width - right, y1: Y(asked), y2: Y(asked) }));
      svg.append(draw("text", { x: width - right, y: Y(asked) + (Y(asked) < top + 14 ? 14 : -5), "text-anchor": "end" }, null, `asked: ${figure(asked, kind)}`));
    }
    for (const s of shown) {
      if (s.low && s.low.some((v, i) => v !== s.high[i])) {
        const there = s.x.map((x, i) => `${X(x).toFixed(1)},${Y(s.high[i]).toFixed(1)}`);
        const back = s.x.map((x, i) => `${X(x).toFixed(1)},${Y(s.low[i]).toFixed(1)}`).reverse();
        svg.append(draw("path", { d: `M${there.join("L")}L${back.join("L")}Z`, opacity: 0.16, class: "band" }, s.color));
      }
      svg.append(draw("path", { class: "curve", fill: "none", "stroke-width": 1.8, "stroke-linejoin": "round", d: "M" + s.x.map((x, i) => `${X(x).toFixed(1)},${Y(s.y[i]).toFixed(1)}`).join("L") }, s.color));
      if (s.x.length < 3) s.x.forEach((x, i) => svg.append(draw("circle", { cx: X(x), cy: Y(s.y[i]), r: 3 }, s.color)));
    }
    const marks = draw("g");
    svg.append(marks);
    const point = () => {
      marks.replaceChildren();
      if (cursor !== null) {
        const at = xs[cursor];
        marks.append(draw("line", { class: "cursor", x1: X(at), x2: X(at), y1: top, y2: height - bottom }));
        for (const s of shown) {
          const k = nearest(s.x, at);
          if (at <= s.x[s.x.length - 1] && at >= s.x[0]) marks.append(draw("circle", { cx: X(s.x[k]), cy: Y(s.y[k]), r: 3.5 }, s.color));
        }
      }
      read();
    };
    const follow = (event) => {
      const box = svg.getBoundingClientRect();
      const v = first + ((event.clientX - box.left) * (width / box.width) - left) / (width - left - right) * (last - first);
      cursor = nearest(xs, v);
      point();
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", () => { cursor = null; point(); });
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      cursor = Math.max(0, Math.min(xs.length - 1, (cursor === null ? xs.length - 1 : cursor) + by));
      point();
    });
    plot.replaceChildren(svg);
    point();
  }
  const again = fitted(plot, render);
  return el("figure", { class: "card chart" }, el("div", { class: "chart-head" }, el("h3", {}, title), toggle), plot, legend);
}

/* A table whose columns sort. Columns: {name, value(row), show(row), note}. */
function table(columns, rows) {
  const body = el("tbody");
  const heads = columns.map((column) => el("th", { scope: "col" }, el("button", { type: "button", onclick: () => sort(column) }, column.name)));
  let sorted = null, up = true;
  /* On a narrow page rows carry their labels and there is no head to click. */
  const pick = rows.length < 2 ? null : el("select", { class: "sort", "aria-label": "sort by", onchange: () => {
    const [i, way] = pick.value.split(" ");
    sorted = null;
    for (let k = 0; k < (way === "up" ? 1 : 2); k++) sort(columns[i]);
  } }, el("option", { value: "", disabled: "", selected: "" }, "sort by …"), ...columns.flatMap((c, i) => [el("option", { value: `${i} up` }, `${c.name} ↑`), el("option", { value: `${i} down` }, `${c.name} ↓`)]));
  const fill = (list) => body.replaceChildren(...list.map((row) => el("tr", {}, ...columns.map((c) => el("td", { "data-name": c.name, class: c.note && c.note(row) ? "note" : null }, c.show ? c.show(row) : num(c.value(row)))))));
  function sort(column) {
    up = sorted === column ? !up : true;
    sorted = column;
    heads.forEach((head, i) => (columns[i] === column ? head.setAttribute("aria-sort", up ? "ascending" : "descending") : head.removeAttribute("aria-sort")));
    fill([...rows].sort((a, b) => {
      const x = column.value(a), y = column.value(b);
      const none = (v) => v === null || v === undefined || v === "";
      if (none(x) || none(y)) return none(x) - none(y); // what has no value comes last either way
      return (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true })) * (up ? 1 : -1);
    }));
  }
  fill(rows);
  return el("div", { class: "card table" }, pick, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body));
}

/* One episode: uncertainty, targets chosen from t, y and its prediction, where the memory writes. */
function timeline(found) {
  const plot = el("div", { class: "plot timeline" });
  const reading = el("div", { class: "reading", "aria-live": "polite" });
  const slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "step t from which targets are chosen" });
  let episode = found.episodes[0], chosen = 0;
  const classes = found.kind === "classes";
  const pick = el("select", { "aria-label": "episode", onchange: () => start(found.episodes[Number(pick.value)]) },
    ...found.episodes.map((e, i) => el("option", { value: i }, `test episode ${e.episode}, ${num(e.length)} steps`)));
  let point = () => {};
  function start(next) {
    episode = next;
    const points = episode.points;
    chosen = points ? nearest(points.t, episode.length * 0.1) : 0;
    slider.hidden = !points;
    if (points) { slider.max = episode.length - 1; slider.value = points.t[chosen]; }
    again();
  }
  function say() {
    const points = episode.points;
    if (!points) { reading.replaceChildren(el("span", { class: "soft" }, "No stored scores, so no targets are shown.")); return; }
    const t = points.t[chosen], targets = points.targets[chosen];
    const order = targets.map((_, i) => i).sort((a, b) => targets[a] - targets[b]);
    const items = order.map((i) => el("li", {}, el("b", {}, `step ${num(targets[i])}`), ` (in ${num(targets[i] - t)}): y ${num(points.y[chosen][i])}, `,
      `predicted ${num(points.prediction[chosen][i])}`, classes ? `, p(y) ${share(points.right[chosen][i])}` : ""));
    const more = found.targets > found.shown ? `, the best ${found.shown} of ${found.targets}` : "";
    reading.replaceChildren(el("div", {}, el("b", { class: "t" }, `t = ${num(t)}`), el("span", { class: "soft" }, `: ${targets.length} target${targets.length === 1 ? "" : "s"} chosen from here on${more}, predicted from the memory at t`)), el("ol", {}, ...items));
  }
  function render(width) {
    const left = 46, right = 10, lane = 64, gap = 26, tall = width < 420 ? 74 : 92;
    const names = ["score", "y", ...(classes ? ["right"] : []), "memory"].filter((n) => episode.tracks[n]);
    const height = lane + names.length * (tall + gap) + 18;
    const X = (step) => left + ((step + 0.5) / episode.length) * (width - left - right);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `episode ${episode.episode} step by step` });
    slider.style.marginLeft = `${X(0) - THUMB / 2}px`;
    slider.style.width = `${X(episode.length - 1) - X(0) + THUMB}px`;
    const past = draw("rect", { x: left, y: lane, height: height - lane - 18, width: 0, opacity: 0.06 }, "var(--ink)");
    svg.append(past);
    const titles = { score: found.scores === "online" ? "uncertainty (error of the model itself)" : "uncertainty of the detector", y: classes ? "class y, and the class predicted" : `y (${found.target}), and its prediction`, right: "probability of the right class", memory: "memory writes: |m(t) − m(t−1)|" };
    names.forEach((name, i) => {
      const top = lane + i * (tall + gap) + 18, base = top + tall - 12;
      const track = episode.tracks[name], both = name === "y" ? [track, episode.tracks.prediction] : [track];
      const values = both.flatMap((b) => [...b.low, ...(b.high || [])]).filter((v) => v !== null);
      let low = Math.min(...values, 0), high = Math.max(...values, name === "right" ? 1 : -Infinity);
      if (low === high) high = low + 1;
      const Y = (v) => base - ((v - low) / (high - low)) * (tall - 18);
      svg.append(draw("text", { class: "name", x: left, y: top - 4 }, null, titles[name]));
      for (const v of [low, high]) {
        svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: Y(v), y2: Y(v) }));
        svg.append(draw("text", { x: left - 7, y: Y(v) + 4, "text-anchor": "end" }, null, short(Number(v.toPrecision(3)))));
      }
      const middle = (k) => X(Math.min(episode.length - 1, k * episode.bucket + (episode.bucket - 1) / 2));
      if (name === "score" || name === "memory") {
        const wide = Math.max(1.2, Math.min(7, (width - left - right) / track.low.length - 0.4));
        const d = (track.high || track.low).map((v, k) => (v === null ? "" : `M${middle(k).toFixed(1)} ${Y(0).toFixed(1)}V${Math.min(Y(v), Y(0) - 0.5).toFixed(1)}`)).join("");
        svg.append(draw("path", { class: `track ${name}`, d, fill: "none", "stroke-width": wide.toFixed(1) }, name === "score" ? color(0) : color(2)));
        return;
      }
      const faint = episode.matters.count < episode.length / 2 ? 0.3 : 0.7; // elsewhere nobody asked for a prediction
      both.forEach((b, which) => {
        const c = name === "right" ? color(4) : which ? color(1) : "var(--soft)";
        const places = (list) => list.map((v, k) => (v === null ? null : `${middle(k).toFixed(1)},${Y(v).toFixed(1)}`)).filter(Boolean);
        if (b.high) svg.append(draw("path", { d: `M${places(b.high).join("L")}L${places(b.low).reverse().join("L")}Z`, opacity: which ? faint / 2 : 0.35, class: `track ${name}` }, c));
        svg.append(draw("path", { d: `M${places(b.high || b.low).join("L")}`, fill: "none", "stroke-width": which ? 1 : 1.4, opacity: which ? faint : 0.9, class: `track ${name}` }, c));
      });
      if (name === "y") {
        const m = episode.matters;
        m.step.forEach((step, k) => {
          const ring = draw("circle", { cx: X(step), cy: Y(m.y[k]), r: 4.5, fill: "none", "stroke-width": 1.4, class: "truth" }, "var(--soft)");
          svg.append(ring, draw("circle", { cx: X(step), cy: Y(m.prediction[k]), r: 2.6, class: "prediction" }, color(1)));
        });
      }
    });
    for (const v of ticks(0, episode.length - 1, Math.max(2, Math.floor(width / 150)))) svg.append(draw("text", { x: Math.min(X(v), width - right - 10), y: height - 3, "text-anchor": v === 0 ? "start" : "middle" }, null, short(v)));
    const marks = draw("g");
    svg.append(marks);
    point = () => {
      marks.replaceChildren();
      const points = episode.points;
      if (points) {
        const t = points.t[chosen], at = X(t), foot = lane - 4;
        past.setAttribute("width", Math.max(0, at - left));
        for (const k of points.targets[chosen]) {
          const to = X(k), lift = Math.max(0, foot - 12 - Math.min(46, 8 + Math.abs(to - at) * 0.35));
          marks.append(draw("path", { class: "arc", fill: "none", "stroke-width": 1.4, opacity: 0.75, d: `M${at.toFixed(1)},${foot}C${at.toFixed(1)},${lift} ${to.toFixed(1)},${lift} ${to.toFixed(1)},${foot}` }, color(1)));
          marks.append(draw("line", { class: "target", x1: to, x2: to, y1: foot, y2: height - 18, "stroke-dasharray": "2 4", opacity: 0.6 }, color(1)));
        }
        marks.append(draw("line", { class: "cursor", x1: at, x2: at, y1: foot, y2: height - 18 }), draw("circle", { cx: at, cy: foot, r: 4.5 }, "var(--ink)"));
      }
      say();
    };
    const follow = (event) => {
      if (!episode.points) return;
      const box = svg.getBoundingClientRect();
      const step = ((event.clientX - box.left) * (width / box.width) - left) / (width - left - right) * episode.length;
      chosen = nearest(episode.points.t, step);
      slider.value = episode.points.t[chosen];
      point();
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    plot.replaceChildren(svg);
    point();
  }
  const move = (to) => { chosen = to; slider.value = episode.points.t[chosen]; point(); };
  slider.addEventListener("input", () => move(nearest(episode.points.t, Number(slider.value))));
  slider.addEventListener("keydown", (event) => { // of a long episode not every step is a point
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    move(Math.max(0, Math.min(episode.points.t.length - 1, chosen + by)));
  });
  const again = fitted(plot, render);
  start(episode);
  const mark = (c, text) => el("span", {}, swatch(c), text);
  return el("div", { class: "card" }, el("div", { class: "controls" }, pick), plot, slider, reading,
    el("div", { class: "key" }, mark(color(0), "uncertainty"), mark("var(--soft)", "y; rings where it counts"), mark(color(1), "prediction from the state there; chosen targets"), mark(color(2), "memory writes")),
    el("p", { class: "aside" }, "The line of predictions counts at the rings, the steps that matter. Elsewhere nothing has asked the predictor to be right."));
}

/* Sections. */
const section = (title, lead, ...content) => [el("h2", {}, title), lead ? el("p", { class: "lead" }, lead) : null, ...content];
const pairs = (values, title) => (Object.keys(values).length ? el("div", { class: "pairs" }, el("span", {}, title), ...Object.entries(values).map(([k, v]) => el("span", {}, `${words(k)} `, el("b", {}, typeof v === "object" && v !== null ? JSON.stringify(v) : num(v) || String(v))))) : null);

function figures(run) {
  return el("div", { class: "figures" }, ...run.figures.map((f) => el("div", { class: "card figure" },
    el("div", { class: "label" }, f.label), el("div", { class: "value" }, figure(f.value, f.format)),
    f.interval ? el("div", { class: "small" }, `95% interval ${figure(f.interval[0], f.format)} to ${figure(f.interval[1], f.format)}`) : null,
    f.asked ? el("div", { class: `small ${f.reached ? "reached" : "missed"}` }, `asked for ${f.asked}: ${f.reached ? "reached" : "not reached"}`) : null,
    el("div", { class: "small" }, f.note))));
}
function hints(run) {
  if (!run.hints.length && !run.problems.length) return null;
  return el("div", { class: "card hints" }, el("h3", {}, "What is missing here"), el("ul", {},
    ...run.hints.map((h) => el("li", {}, h.what, el("code", { class: "code" }, h.command))), ...run.problems.map((p) => el("li", {}, p))));
}
function stages(run) {
  return el("div", { class: "card stages" }, ...run.stages.map((s) => {
    const part = s.total ? Math.min(1, s.done / s.total) : null;
    const early = s.status === "complete" && part !== null && part < 1;
    const bar = el("i");
    bar.style.width = `${100 * (part ?? 0)}%`;
    const progress = part === null ? el("span", { class: "progress" }) : el("span", { class: "progress" }, el("div", { class: "bar" }, bar),
      el("span", { class: "soft" }, `${num(s.done)} of ${num(s.total)}${early ? ", stopped early as asked" : ""}`));
    const plain = Object.fromEntries(Object.entries(s.metrics).filter(([, v]) => typeof v !== "object"));
    return el("details", { class: s.status === "out of memory" ? "room" : s.status },
      el("summary", {}, el("span", { class: "dot" }), el("span", { class: "stage-name" }, s.name), el("span", { class: "soft" }, s.status), progress,
        el("span", { class: "soft when" }, [moment(s.finished || s.started), time(s.seconds)].filter(Boolean).join(", "))),
      el("div", { class: "inside" }, s.problem ? el("p", { class: "missed" }, s.problem) : null,
        s.stale.length ? el("p", {}, `Stale: ${s.stale.join(", ")} changed since it ran.`) : null, ...s.missing.slice(0, 8).map((m) => el("p", {}, m)),
        s.command ? el("code", { class: "code" }, s.command) : null,
        el("div", { class: "pairs" }, s.host ? el("span", {}, "on ", el("b", {}, s.host)) : null, s.job ? el("span", {}, "job ", el("b", {}, s.job)) : null, s.started ? el("span", {}, "started ", el("b", {}, moment(s.started))) : null),
        pairs(s.versions, "with"), pairs(s.inputs, "from"), pairs(s.outputs, "made"), pairs(plain, s.name.startsWith("train-agent/") ? "figures (return, length and success: mean of the last 200 training episodes at most)" : "figures"), pairs(s.config, "options")));
  }));
}

const MAIN = /^(loss|validation_(explained|rmse|accuracy)|test_(rmse|accuracy)|return_mean|success_rate)$/;
const NAMES = { loss: "training loss", validation_explained: "explained, validation", validation_rmse: "validation RMSE", validation_accuracy: "validation accuracy", test_rmse: "test RMSE", test_accuracy: "test accuracy", return_mean: "return", success_rate: "success" };
function stageCharts(stage, lines, configs, each) {
  /* lines: [{name, color, series: {name: {x, y, low, high, count}}}] */
  const agent = stage.startsWith("train-agent"), axis = agent ? "steps" : "update";
  const names = [...new Set(lines.flatMap((l) => Object.keys(l.series)))];
  const make = (name) => {
    const wanted = { validation_rmse: "rmse", validation_accuracy: "accuracy", test_rmse: "rmse", test_accuracy: "accuracy", success_rate: "success" }[name];
    const goals = configs.map((c) => /^([a-z]+)[<>]=?(.+)$/.exec(c.until || "")).filter((g) => g && g[1] === wanted);
    const asked = [...new Set(goals.map((g) => Number(g[2])))];
    return chart({ title: `${stage}: ${NAMES[name] || words(name)}`, axis, each, kind: kindOf(name), asked: asked.length === 1 ? asked[0] : null,
      series: lines.filter((l) => l.series[name]).map((l) => ({ name: l.name, color: l.color, ...l.series[name] })) });
  };
  const main = names.filter((n) => MAIN.test(n) && !(agent && n === "loss")), rest = names.filter((n) => !main.includes(n));
  const more = el("div", { class: "charts" });
  const fold = rest.length ? el("details", { class: "more" }, el("summary", {}, `more of ${stage}: ${rest.map(words).join(", ")}`), more) : null;
  if (fold) fold.addEventListener("toggle", () => { if (fold.open && !more.childNodes.length) more.append(...rest.map(make)); });
  return [el("div", { class: "charts" }, ...main.map(make)), fold];
}
function curves(run) {
  const configs = Object.fromEntries(run.stages.map((s) => [s.name, s.config]));
  const content = [], compared = {};
  for (const [stage, found] of Object.entries(run.curves)) {
    if (stage === "train-memory" || stage.startsWith("train-baseline/"))
      for (const [name, s] of Object.entries(found.series)) if (/^(loss|(validation|test)_(rmse|accuracy))$/.test(name)) (compared[name] ||= []).push({ name: stage === "train-memory" ? "memup" : stage.split("/")[1], ...s });
    if (stage.startsWith("train-baseline/")) continue;
    content.push(...stageCharts(stage, [{ name: "this run", color: color(0), series: found.series }], [configs[stage] || {}], found.each));
  }
  const baselines = Object.keys(run.curves).some((s) => s.startsWith("train-baseline/"));
  if (baselines) content.push(el("div", { class: "charts baselines" }, ...Object.entries(compared).filter(([n]) => n !== "loss" || Object.keys(compared).length === 1).map(([name, list]) =>
    chart({ title: `memory and baselines: ${NAMES[name]}`, axis: "update", kind: kindOf(name), series: list.map((s, i) => ({ ...s, color: color(i) })) }))));
  return content.length ? section("Learning curves", "Point at a curve to read it; the arrow keys move along it.", ...content) : [];
}
function lengths(run) {
  const rows = run.memory ? run.memory.by_length || [] : [];
  if (!rows.length) return [];
  const main = "accuracy" in run.memory ? "accuracy" : "rmse";
  const top = main === "accuracy" ? 1 : Math.max(...rows.map((r) => r[main])) || 1;
  const box = el("div", { class: "card lengths" });
  for (const r of rows) {
    const bar = el("i");
    bar.style.width = `${(100 * r[main]) / top}%`;
    box.append(el("span", {}, r.from === r.to ? num(r.from) : `${num(r.from)}–${num(r.to)}`), el("div", { class: "bar" }, bar), el("b", {}, figure(r[main], main)), el("span", { class: "soft count" }, `${num(r.count)} targets`));
  }
  return section(`Error by ${run.memory.cue_at_start ? "dependency length" : "step of the episode"}`, `${main === "rmse" ? "RMSE" : "Accuracy"} on test episodes at the steps that matter, by how many steps they lie from the start of the episode.`, box);
}
function baselines(run) {
  if (!run.baselines || !run.baselines.rows.length) return [];
  const rows = run.baselines.rows, main = rows.some((r) => "accuracy" in r) ? "accuracy" : "rmse";
  return section("Beside the baselines", "Test error at the steps that matter, and what an update keeps for its backward pass.", table([
    { name: "method", value: (r) => r.method },
    { name: main, value: (r) => r[main], show: (r) => (r.outcome === "trained" ? figure(r[main], main) : r.outcome), note: (r) => r.outcome !== "trained" },
    { name: "95% interval", value: (r) => (r.interval || [])[0], show: (r) => (r.interval ? `${figure(r.interval[0], main)} to ${figure(r.interval[1], main)}` : "") },
    { name: "kept per update", value: (r) => r.saved_tensor_bytes || r.predicted_bytes, show: (r) => (r.predicted_bytes && r.outcome !== "trained" ? `needs ${bytes(r.predicted_bytes)} of ${bytes(r.limit_bytes)}` : bytes(r.saved_tensor_bytes)) },
    { name: "× MemUP", value: (r) => r.ratio_to_memup, show: (r) => (r.ratio_to_memup ? num(Number(r.ratio_to_memup.toPrecision(3))) : "") },
    { name: "updates", value: (r) => r.updates }, { name: "minutes", value: (r) => r.minutes, show: (r) => (r.minutes ? num(Number(r.minutes.toPrecision(3))) : "") },
  ], rows));
}
function agents(run) {
  const rows = Object.entries(run.agents).flatMap(([agent, found]) => ["greedy", "stochastic"].filter((way) => found[way]).map((way) => ({ agent, way, ...found[way] })));
  const to = (pair, kind) => (pair ? `${figure(pair[0], kind)} to ${figure(pair[1], kind)}` : "");
  const content = rows.length ? [table([
    { name: "agent", value: (r) => r.agent }, { name: "actions", value: (r) => r.way },
    { name: "success", value: (r) => r.success_rate, show: (r) => share(r.success_rate) }, { name: "95% interval", value: (r) => (r.interval || [])[0], show: (r) => to(r.interval, "share") },
    { name: "return", value: (r) => r.return_mean }, { name: "95% interval ", value: (r) => r.return_interval[0], show: (r) => to(r.return_interval, "number") },
    { name: "length", value: (r) => r.length_mean }, { name: "episodes", value: (r) => r.episodes },
  ], rows)] : [];
  if (run.film) content.push(el("figure", { class: "card film" }, el("img", { src: run.film, alt: "pictures of one greedy episode, in order, with the step and the return so far" }), el("figcaption", { class: "soft" }, "One greedy episode, evenly over its steps.")));
  return content.length ? section("Agents", "Complete episodes that were not trained on.", ...content) : [];
}
function detail(run) {
  const t = run.timeline;
  const how = t ? { surprise: `${num(t.targets)} target${t.targets === 1 ? "" : "s"} drawn by uncertainty`, utility: `${num(t.targets)} target${t.targets === 1 ? "" : "s"} drawn by what the past explains`, uniform: "targets drawn uniformly", current: "the current step as the only target" }[t.select] ?? `${num(t.targets)} target${t.targets === 1 ? "" : "s"} drawn by ${t.select}` : "";
  return [figures(run), hints(run),
    ...section("Pipeline", "Open a stage for its command, versions, options and digests.", stages(run)), ...curves(run),
    ...(t && t.episodes.length ? section("An episode, step by step", `Move over the picture or the slider: from the step t, the arcs lead to what training would ask the memory for, ${how}. Long episodes are drawn as the smallest and largest value per pixel or so.`, timeline(t)) : []),
    ...lengths(run), ...baselines(run), ...agents(run)].filter(Boolean);
}
function overview() {
  const labels = [...new Set(data.runs.flatMap((r) => r.figures.map((f) => f.label)))];
  const of = (run, label) => run.figures.find((f) => f.label === label);
  const content = section("Final figures", "Sort by any column.", table([
    { name: "run", value: (r) => r.name }, { name: "task", value: (r) => r.task.name, show: (r) => `${r.task.name} ${Object.values(r.task.options).filter((v) => typeof v === "number" && v).join(" ")}` }, { name: "seed", value: (r) => r.seed },
    ...labels.map((label) => ({ name: label, value: (r) => of(r, label)?.value, show: (r) => { const f = of(r, label); return f ? figure(f.value, f.format) : ""; } })),
  ], data.runs));
  content.push(...section("Runs side by side", "Runs that differ only in the seed are one line: their mean, with a band from the lowest to the highest of them."));
  for (const [stage, groups] of Object.entries(data.groups)) {
    const lines = groups.map((g, i) => ({ name: g.label, color: color(i), series: Object.fromEntries(Object.entries(g.series).map(([n, s]) => [n, { ...s, y: s.mean }])) }));
    const configs = groups.flatMap((g) => g.runs.map((r) => data.runs[r].stages.find((s) => s.name === stage).config));
    content.push(...stageCharts(stage, lines, configs, Math.max(...groups.flatMap((g) => g.runs.map((r) => data.runs[r].curves[stage].each)))));
  }
  return content.filter(Boolean);
}

/* The page. */
function themeButton() {
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = el("button", { type: "button", class: "theme", onclick: () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("memup-theme", root.dataset.theme); } catch { /* pages from disk may not keep anything */ }
    label();
  } });
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `switch to ${dark() ? "light" : "dark"} colors`); };
  try { const kept = localStorage.getItem("memup-theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch { /* as above */ }
  label();
  return button;
}
const one = data.runs.length === 1, first = data.runs[0];
const describe = (run) => `${run.task.name}: ${Object.entries(run.task.options).filter(([, v]) => v !== null).map(([k, v]) => `${words(k)} ${num(v)}`).join(", ")}`;
page.append(el("header", {}, el("div", {}, el("div", { class: "brand" }, "memup report"), el("h1", {}, one ? first.name : `${data.runs.length} runs`),
  el("div", { class: "soft" }, one ? describe(first) : [...new Set(data.runs.map(describe))].join(" · "))), themeButton()));
if (one) page.append(...detail(first));
else {
  const box = el("div", { id: "detail" });
  const pick = el("select", { "aria-label": "run to look at", id: "run", onchange: () => show() }, ...data.runs.map((r, i) => el("option", { value: i }, r.name)));
  const show = () => box.replaceChildren(...detail(data.runs[Number(pick.value)]));
  page.append(...overview(), el("h2", {}, "One of them"), el("div", { class: "controls" }, pick), box);
  show();
}
page.append(el("footer", {}, `Made ${moment(data.made)} with memup ${data.version} from ${data.runs.map((r) => r.path).join(", ")}`));
root.dataset.ready = "yes";
})();
