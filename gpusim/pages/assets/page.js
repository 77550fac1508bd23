"use strict";
(() => {
  const views = {};
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Data: rows by name, which charts and long tables share -----------------------------------------

  const data = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
  const rowsOf = (name) => {
    const { count, columns } = data[name];
    const read = Object.entries(columns).map(([key, column]) =>
      [key, column.of ? (at) => column.of[column.at[at]] : (at) => column[at]]);
    return Array.from({ length: count }, (_, at) => Object.fromEntries(read.map(([key, value]) => [key, value(at)])));
  };

  // Charts -----------------------------------------------------------------------------------------

  const MANY_MARKS = 2000;  // from which on a chart is one picture
  const chosen = {};  // what the reader has chosen, by rows and control

  const share = (view, rows, control) => {
    const key = `${rows} ${control}`;
    if (chosen[key] !== undefined) view.signal(control, chosen[key]).run();
    view.addSignalListener(control, (_, value) => {
      if (chosen[key] === value) return;
      chosen[key] = value;
      for (const other of Object.values(views)) {
        if (other.rows === rows && other.view !== view && other.controls.includes(control)) other.view.signal(control, value).run();
      }
    });
  };

  // Where a policy forbids scripts and styles made of text: expressions are interpreted, and styles are in files.
  const strict = document.documentElement.dataset.strict ? { ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true } } : {};

  const config = (printing, width) => {
    const ink = printing ? "#000" : css("--ink"), soft = printing ? "#444" : css("--soft"), line = printing ? "#bbb" : css("--line");
    return {
      background: "transparent", font: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
      axis: { labelColor: ink, titleColor: ink, gridColor: line, domainColor: soft, tickColor: soft, labelLimit: 320, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", tickCount: 6 },
      legend: { orient: "top", layout: { top: { anchor: "start", bounds: "full" } }, columns: Math.max(1, Math.floor(width / 240)), titleFontWeight: "normal", symbolStrokeColor: soft, symbolBaseFillColor: soft, labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, labelLimit: 320 },
      header: { labelColor: ink, titleColor: ink }, title: { color: ink }, text: { color: ink }, rule: { color: ink }, view: { stroke: line },
      style: { ink: { color: ink, stroke: ink, fill: ink }, "ink-line": { color: ink, stroke: ink }, paper: { fill: printing ? "#fff" : css("--paper") } },
    };
  };

  const draw = async (printing = false) => {
    const source = document.getElementById("charts");
    if (!source) return;
    const ink = printing ? "#000" : css("--ink");
    const charts = JSON.parse(source.textContent.replaceAll('"#000000"', `"${ink}"`));  // black of a palette
    await Promise.all(Object.entries(charts).map(async ([id, chart]) => {
      const place = document.getElementById(id);
      const spec = { ...chart.spec, description: place.dataset.description };
      const width = spec.width === "container" || spec.width === undefined ? Math.max(280, place.clientWidth - 4) : spec.width;
      if (spec.width !== undefined) spec.width = width;
      const values = chart.rows ? rowsOf(chart.rows) : spec.data.values;
      spec.data = { ...spec.data, values };
      const renderer = values.length > MANY_MARKS ? "canvas" : "svg";
      const found = await vegaEmbed(place, spec, { renderer, actions: false, logLevel: 1, config: config(printing, width), ...strict });
      const controls = (spec.params ?? []).filter((one) => !one.select).map((one) => one.name);
      views[id] = { view: found.view, rows: chart.rows, controls };
      if (chart.name) views[chart.name] = views[id];
      addZoom(place, id, found.vgSpec);
      for (const control of controls) share(found.view, chart.rows, control);
      const drawn = place.querySelector("svg, canvas");
      if (drawn) { drawn.setAttribute("role", "img"); drawn.setAttribute("aria-label", place.dataset.description); }
    }));
    document.documentElement.dataset.drawn = "yes";
    document.dispatchEvent(new CustomEvent("drawn", { detail: views }));
  };

  // Zoom by buttons, which the keyboard reaches: as the wheel and dragging do it ----------------------

  const BUTTONS = [["zoom in", "+", 0.5, 0], ["zoom out", "−", 2, 0], ["to the left", "←", 1, -0.5], ["to the right", "→", 1, 0.5]];

  const addZoom = (place, name, vega) => {
    const axes = (vega.scales || []).filter((one) => /^zoom\["/.test(one.domainRaw?.signal || "")).map((one) => (
      { scale: one.name, log: one.type === "log", signal: `zoom_${one.domainRaw.signal.slice(6, -2)}` }));
    if (!axes.length || place.previousElementSibling?.classList.contains("zoom")) return;
    const bar = document.createElement("p");
    bar.className = "zoom";
    const shown = document.createElement("span");
    shown.setAttribute("role", "status");
    const tell = () => {
      const [low, high] = views[name].view.scale(axes[0].scale).domain();
      const text = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
      shown.textContent = `${text.format(low)} to ${text.format(high)}`;
    };
    const set = async (change) => {
      axes.forEach((axis, at) => views[name].view.signal(axis.signal, change(axis, at)));
      await views[name].view.runAsync();
      tell();
    };
    for (const [label, text, factor, by] of BUTTONS) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", () => set((axis, at) => {
        const to = axis.log ? Math.log : Number, from = axis.log ? Math.exp : Number;
        const [low, high] = views[name].view.scale(axis.scale).domain().map(to);
        const half = (high - low) / 2, middle = low + half + (at ? 0 : by * (high - low));
        return [from(middle - half * factor), from(middle + half * factor)];
      }));
      bar.append(button);
    }
    const whole = document.createElement("button");
    whole.type = "button";
    whole.textContent = "whole";
    whole.addEventListener("click", () => set(() => null));
    bar.append(whole, shown);
    place.before(bar);
  };

  // Tables -----------------------------------------------------------------------------------------

  const TIMES = { ns: 1e-3, us: 1, "µs": 1, ms: 1e3, s: 1e6 };

  const valueOfText = (text) => {
    if (text === "") return null;
    if (!Number.isNaN(Number(text))) return Number(text);
    const time = text.match(/^([\d.]+) (ns|us|µs|ms|s)$/);
    return time ? Number(time[1]) * TIMES[time[2]] : text.toLowerCase();
  };

  const valueOf = (cell) => {
    const edited = cell.querySelector("input");
    return valueOfText(edited ? edited.value : (cell.dataset.value ?? cell.textContent.trim()));
  };

  const sorted = (pairs, direction) => pairs.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);  // what is missing comes last
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return direction * (typeof a === "number" ? a - b : a.localeCompare(b));
  }).map(([, row]) => row);

  const shown = (value, digits) => {
    if (value === null) return "";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value === "string") return value;
    const size = Math.abs(value);
    if (value && (size < 1e-4 || size >= 1e15)) return value.toPrecision(digits);
    const few = Number.isInteger(value) ? {} : { maximumSignificantDigits: digits };
    return new Intl.NumberFormat("en", few).format(value);
  };

  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

  // A table that is whole in the page, and a long one that the script fills: both can be sorted by a column and filtered
  // by words; a filter returns how many rows are left, and how many there are.
  const whole = (table) => {
    const body = table.tBodies[0];
    return {
      sort: (at, direction) => body.append(...sorted([...body.rows].map((row) => [valueOf(row.cells[at]), row]), direction)),
      filter: (wanted) => {
        let left = 0;
        for (const row of body.rows) {
          const has = row.textContent.toLowerCase();
          row.hidden = !wanted.every((one) => has.includes(one));
          left += !row.hidden;
        }
        return [left, body.rows.length];
      },
    };
  };

  const ROWS_AT_ONCE = 100;

  const long = (table) => {
    const body = table.tBodies[0];
    const more = table.closest(".table").querySelector(".more");
    const columns = [...table.tHead.rows[0].cells].map((cell) => [cell.dataset.key, Number(cell.dataset.digits)]);
    const row = (one) => {
      const element = document.createElement("tr");
      columns.forEach(([key, digits], at) => {
        const cell = document.createElement(at ? "td" : "th");
        if (!at) cell.scope = "row";
        if (at && typeof one[key] === "number") cell.className = "number";
        cell.textContent = shown(one[key], digits);
        element.append(cell);
      });
      return element;
    };
    let all = rowsOf(table.dataset.rows), wanted = [], left = all, texts;
    const fill = (count) => {
      body.replaceChildren(...left.slice(0, count).map(row));
      more.hidden = left.length <= count;
      more.querySelector("span").textContent = `${Math.min(count, left.length)} of ${left.length} are shown`;
    };
    const choose = () => {
      texts ??= new Map(all.map((one) => [one, columns.map(([key, digits]) => shown(one[key], digits)).join(" ").toLowerCase()]));
      left = wanted.length ? all.filter((one) => wanted.every((word) => texts.get(one).includes(word))) : all;
      fill(ROWS_AT_ONCE);
    };
    more.querySelector("button").addEventListener("click", () => fill(body.rows.length + ROWS_AT_ONCE));
    fill(ROWS_AT_ONCE);
    return {
      sort: (at, direction) => {
        const value = (one) => (typeof one === "string" ? valueOfText(one) : typeof one === "boolean" ? Number(one) : one);
        all = sorted(all.map((one) => [value(one[columns[at][0]]), one]), direction);
        choose();
      },
      filter: (text) => { wanted = text; choose(); return [left.length, all.length]; },
    };
  };

  const tables = new Map([...document.querySelectorAll(".table table")].map((table) => [table, table.dataset.rows ? long(table) : whole(table)]));
  for (const [table, kind] of tables) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((cell, at) => {
      cell.querySelector("button").addEventListener("click", () => {
        const direction = cell.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        kind.sort(at, direction);
        for (const other of headings) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      });
    });
  }
  for (const input of document.querySelectorAll(".filter input")) {
    const table = document.getElementById(input.getAttribute("aria-controls"));
    const status = input.closest(".filter").querySelector("[role=status]");
    input.addEventListener("input", () => {
      const wanted = words(input.value);
      const [left, all] = tables.get(table).filter(wanted);
      status.textContent = wanted.length ? `${left} of ${all} rows` : "";
    });
  }

  // Prices -----------------------------------------------------------------------------------------

  const prices = document.querySelector("[data-name=prices] table");
  if (prices) {
    const keys = [...prices.tHead.rows[0].cells].map((cell) => cell.dataset.key);
    const cell = (row, key) => row.cells[keys.indexOf(key)];
    const number = (row, key) => { const value = valueOf(cell(row, key)); return typeof value === "number" ? value : null; };
    const write = (row, key, value) => {
      const at = cell(row, key);
      at.classList.add("number");
      at.dataset.value = value ?? "";
      at.textContent = value === null ? "" : new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(value);
    };
    const update = () => {
      const rows = [...prices.tBodies[0].rows];
      const cost = (row) => { const price = number(row, "price"); return price && number(row, "time_us") * price; };
      const best = {};
      for (const row of rows) {
        const workload = valueOf(cell(row, "workload"));
        if (cost(row)) best[workload] = Math.min(best[workload] ?? Infinity, cost(row));
      }
      for (const row of rows) {
        const own = cost(row), hourly = keys.includes("dollars_per_run");
        if (hourly) {
          write(row, "dollars_per_run", own ? own / 3.6e9 : null);
          write(row, "items_per_dollar", own ? number(row, "items") * 3.6e9 / own : null);
        }
        write(row, "relative_value", own ? best[valueOf(cell(row, "workload"))] / own : null);
      }
      if (views.pareto) {
        const shown = rows.filter((row) => number(row, "price")).map((row) => Object.fromEntries(
          keys.map((key) => [key, valueOf(cell(row, key))]).concat([["gpu", cell(row, "gpu").textContent.trim()],
            ["workload", cell(row, "workload").textContent.trim()]])));
        const front = shown.filter((one) => !shown.some((other) => other.workload === one.workload
          && other.time_us <= one.time_us && other.price <= one.price && (other.time_us < one.time_us || other.price < one.price)));
        views.pareto.view.data("rows", shown.map((one) => ({ ...one, front: front.includes(one) }))).run();
      }
    };
    prices.addEventListener("input", (event) => { if (event.target.type === "number") update(); });
    document.addEventListener("drawn", update);
  }

  // ------------------------------------------------------------------------------------------------

  dark.addEventListener("change", () => draw());
  window.addEventListener("beforeprint", () => draw(true));
  window.addEventListener("afterprint", () => draw());
  draw();
})();
