"use strict";
(() => {
  const views = {};
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const config = (printing, width) => {
    const ink = printing ? "#000" : css("--ink"), soft = printing ? "#444" : css("--soft"), line = printing ? "#bbb" : css("--line");
    return {
      background: "transparent", font: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
      axis: { labelColor: ink, titleColor: ink, gridColor: line, domainColor: soft, tickColor: soft, labelLimit: 320, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", tickCount: 6 },
      legend: { orient: "top", layout: { top: { anchor: "start", bounds: "full" } }, columns: Math.max(1, Math.floor(width / 240)), titleFontWeight: "normal", symbolStrokeColor: soft, symbolBaseFillColor: soft, labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, labelLimit: 320 },
      header: { labelColor: ink, titleColor: ink }, title: { color: ink }, text: { color: ink }, rule: { color: ink }, view: { stroke: line },
      style: { ink: { color: ink, stroke: ink, fill: ink }, paper: { fill: printing ? "#fff" : css("--paper") } },
    };
  };

  const draw = async (printing = false) => {
    const source = document.getElementById("charts");
    if (!source) return;
    const charts = JSON.parse(source.textContent);
    await Promise.all(Object.entries(charts).map(async ([id, chart]) => {
      const place = document.getElementById(id);
      const spec = { ...chart.spec, description: place.dataset.description };
      const width = spec.width === "container" || spec.width === undefined ? Math.max(280, place.clientWidth - 4) : spec.width;
      if (spec.width !== undefined) spec.width = width;
      const found = await vegaEmbed(place, spec, { renderer: "svg", actions: false, logLevel: 1, config: config(printing, width) });
      views[id] = found.view;
      if (chart.name) views[chart.name] = found.view;
      addZoom(place, id, found.vgSpec);
      const svg = place.querySelector("svg");
      if (svg) { svg.setAttribute("role", "img"); svg.setAttribute("aria-label", place.dataset.description); }
    }));
    document.documentElement.dataset.drawn = "yes";
    document.dispatchEvent(new Event("drawn"));
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
      const [low, high] = views[name].scale(axes[0].scale).domain();
      const text = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
      shown.textContent = `${text.format(low)} to ${text.format(high)}`;
    };
    const set = async (change) => {
      axes.forEach((axis, at) => views[name].signal(axis.signal, change(axis, at)));
      await views[name].runAsync();
      tell();
    };
    for (const [label, text, factor, by] of BUTTONS) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", () => set((axis, at) => {
        const to = axis.log ? Math.log : Number, from = axis.log ? Math.exp : Number;
        const [low, high] = views[name].scale(axis.scale).domain().map(to);
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

  const valueOf = (cell) => {
    const edited = cell.querySelector("input");
    const text = edited ? edited.value : (cell.dataset.value ?? cell.textContent.trim());
    return text === "" ? null : (Number.isNaN(Number(text)) ? text.toLowerCase() : Number(text));
  };

  const sort = (table, at, direction) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row.cells[at]), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);  // what is missing comes last
      if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
      return direction * (typeof a === "number" ? a - b : a.localeCompare(b));
    });
    body.append(...rows.map(([, row]) => row));
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      if (index === at) cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  };

  const filter = (table, text, status) => {
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of table.tBodies[0].rows) {
      const has = row.textContent.toLowerCase();
      row.hidden = !wanted.every((one) => has.includes(one));
      left += !row.hidden;
    }
    if (status) status.textContent = wanted.length ? `${left} of ${table.tBodies[0].rows.length} rows` : "";
  };

  for (const table of document.querySelectorAll("table")) {
    [...table.tHead.rows[0].cells].forEach((cell, at) => {
      cell.querySelector("button").addEventListener("click", () =>
        sort(table, at, cell.getAttribute("aria-sort") === "ascending" ? -1 : 1));
    });
  }
  for (const input of document.querySelectorAll(".filter input")) {
    const table = document.getElementById(input.getAttribute("aria-controls"));
    const status = input.closest(".filter").querySelector("[role=status]");
    input.addEventListener("input", () => filter(table, input.value, status));
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
        views.pareto.data("rows", shown.map((one) => ({ ...one, front: front.includes(one) }))).run();
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
