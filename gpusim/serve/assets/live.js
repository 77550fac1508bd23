"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, properties = {}, ...children) => {
    const found = Object.assign(document.createElement(tag), properties);
    found.append(...children);
    return found;
  };
  const text = (value) => new Intl.NumberFormat("en", { maximumSignificantDigits: 6, useGrouping: false }).format(value);
  const SPAN = 2, STEP = 0.05;  // a slider is the binary logarithm of the multiple
  const OPERATOR_MS = 40, STEP_MS = 400;  // pause after a change before it is asked for
  const state = { workload: "gemm:4096x4096x4096:bf16", conditions: {}, step: {}, boards: [{ gpu: "A100-SXM4-80GB", knobs: {} }, null] };
  const known = { workloads: null, gpus: [], knobs: {} };
  let views = null, charts = null;

  const get = async (path) => {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error((await answer.json()).detail);
    return answer.json();
  };
  const post = (path, signal, accept) => fetch(path, {
    method: "POST", signal, headers: { "Content-Type": "application/json", Accept: accept }, body: JSON.stringify(request()),
  });

  // The state as a request, and as a link ------------------------------------------------------------

  const operatorNamed = (name) => known.workloads.operators.find((one) => one.name === name);
  const isOperator = () => Boolean(operatorNamed(state.workload.split(":")[0]));
  const request = () => {
    const [first, second] = state.boards;
    const found = { workload: state.workload, ...first };
    if (second) found.second = second;
    if (isOperator()) { if (Object.keys(state.conditions).length) found.conditions = state.conditions; }
    else if (Object.keys(state.step).length) found.step = state.step;
    return found;
  };
  const joined = (values) => Object.entries(values).map(([name, value]) => `${name}:${value}`).join(",");
  const separated = (words, turn) => Object.fromEntries((words || "").split(",").filter(Boolean).map((one) => {
    const at = one.indexOf(":");
    return [one.slice(0, at), turn(one.slice(at + 1))];
  }));

  const linked = () => {
    const found = new URLSearchParams({ workload: state.workload });
    for (const [name, value] of Object.entries(isOperator() ? state.conditions : state.step)) {
      found.set(name, name === "sizes" ? joined(value) : value);
    }
    state.boards.forEach((board, at) => {
      if (!board) return;
      found.set(at ? "second" : "gpu", board.gpu);
      if (Object.keys(board.knobs).length) found.set(at ? "second_knobs" : "knobs", joined(board.knobs));
    });
    return `#${found.toString().replaceAll("%3A", ":").replaceAll("%2C", ",")}`;
  };
  const readLink = () => {
    const found = new URLSearchParams(window.location.hash.slice(1));
    if (!found.has("workload")) return;
    state.workload = found.get("workload");
    state.conditions = {}; state.step = {};
    const fields = (of) => of.filter((one) => found.has(one.name)).map((one) => [one.name, found.get(one.name)]);
    if (isOperator()) state.conditions = Object.fromEntries(fields(known.workloads.conditions));
    else {
      state.step = Object.fromEntries(fields(known.workloads.step).map(([name, value]) => [name, value === "true" ? true : value]));
      if (found.has("sizes")) state.step.sizes = separated(found.get("sizes"), Number);
    }
    const board = (gpu, knobs) => (found.get(gpu) ? { gpu: found.get(gpu), knobs: separated(found.get(knobs), Number) } : null);
    state.boards = [board("gpu", "knobs") ?? state.boards[0], board("second", "second_knobs")];
  };

  // Workload -----------------------------------------------------------------------------------------

  const fieldOf = (prefix, one, value, changed) => {
    const id = `${prefix}-${one.name}`;
    const input = one.choices.length
      ? make("select", { id }, ...one.choices.map((choice) => make("option", { value: choice, textContent: choice || "default" })))
      : make("input", { id, type: "number", min: 1, step: 1, required: true });
    input.value = value;
    input.addEventListener("input", () => { if (input.value !== "" || one.choices.length) changed(input.value); });
    return make("p", { className: "field" }, make("label", { htmlFor: id, textContent: one.label }), input);
  };

  const SIZES = ["m", "n", "k"];
  const valuesOf = (word) => {
    const [name, ...parts] = word.split(":");
    const values = Object.fromEntries(operatorNamed(name).fields.map((one) => [one.name, one.default]));
    for (const part of parts) {
      if (part.includes("=")) { const [key, value] = part.split("="); values[key] = value; }
      else if (/^[0-9]+(x[0-9]+)*$/.test(part)) {
        const sizes = part.split("x");
        (sizes.length > 3 ? ["batch", ...SIZES] : SIZES).forEach((size, at) => { if (at < sizes.length) values[size] = sizes[at]; });
      } else values.dtype = part;
    }
    return values;
  };
  const wordOf = (name, values) => {
    const fields = operatorNamed(name).fields;
    const sizes = fields.filter((one) => SIZES.includes(one.name)).map((one) => values[one.name]).join("x");
    const others = Object.entries(values).filter(([key, value]) => {
      const field = fields.find((one) => one.name === key);
      return !SIZES.includes(key) && key !== "dtype" && (!field || String(field.default) !== String(value) || (!sizes && !field.choices.length));
    });
    return [name, sizes, values.dtype, ...others.map(([key, value]) => `${key}=${value}`)].filter(Boolean).join(":");
  };

  const showWorkload = () => {
    const fields = byId("fields"), conditions = byId("conditions");
    fields.replaceChildren(); conditions.replaceChildren();
    const chosen = (of, name, value, usual) => { if (String(value) === String(usual)) delete of[name]; else of[name] = value; changed(); };
    if (isOperator()) {
      const name = state.workload.split(":")[0], values = valuesOf(state.workload);
      byId("workload").value = name;
      for (const one of operatorNamed(name).fields) {
        fields.append(fieldOf("field", one, values[one.name], (value) => { values[one.name] = value; state.workload = wordOf(name, values); changed(); }));
      }
      for (const one of known.workloads.conditions) {
        conditions.append(fieldOf("condition", one, state.conditions[one.name] ?? one.default, (value) => chosen(state.conditions, one.name, value, one.default)));
      }
      return;
    }
    byId("workload").value = state.workload;
    const model = known.workloads.models.find((one) => one.name === state.workload);
    if (!model) return;
    const sizes = state.step.sizes ?? {};
    for (const [name, usual] of Object.entries(model.sizes)) {
      if (typeof usual !== "number") continue;
      fields.append(fieldOf("size", { name, label: name.replaceAll("_", " "), choices: [] }, sizes[name] ?? usual, (value) => {
        if (Number(value) === usual) delete sizes[name]; else sizes[name] = Number(value);
        if (Object.keys(sizes).length) state.step.sizes = sizes; else delete state.step.sizes;
        changed();
      }));
    }
    for (const one of known.workloads.step) {
      const truth = one.choices.length === 2 && one.choices.includes("yes");
      const now = truth ? (state.step[one.name] ? "yes" : "no") : state.step[one.name] ?? one.default;
      const place = ["mode", "precision"].includes(one.name) ? fields : conditions;
      place.append(fieldOf("step", one, now, (value) => chosen(state.step, one.name, truth ? value === "yes" : value, truth ? false : one.default)));
    }
  };

  // Boards -------------------------------------------------------------------------------------------

  const knobsOf = async (gpu) => known.knobs[gpu] ?? (known.knobs[gpu] = (await get(`api/knobs?gpu=${encodeURIComponent(gpu)}`)).knobs);
  const snapped = (knob, value) => {
    const within = Math.min(knob.most, Math.max(knob.least, value));
    return knob.step ? Math.round(within / knob.step) * knob.step : Number(within.toPrecision(4));
  };

  const knobRow = (at, knob, board) => {
    const id = `knob-${at}-${knob.name}`;
    const slider = make("input", { type: "range", min: -SPAN, max: SPAN, step: STEP });
    slider.setAttribute("aria-label", `${knob.label}, slider`);
    const number = make("input", { id, type: "number", min: knob.least, max: knob.most, step: knob.step || "any" });
    const output = make("output", { htmlFor: id });
    const row = make("div", { className: "knob" }, make("p", {}, make("label", { htmlFor: id, textContent: knob.label }), output), slider, number,
      make("span", { className: "unit", textContent: knob.unit }));
    const show = (value, by) => {
      const multiple = value / knob.shipped;
      if (by !== slider) slider.value = Math.log2(multiple);
      if (by !== number) number.value = Number(value.toPrecision(6));
      slider.setAttribute("aria-valuetext", `${text(value)} ${knob.unit}, ${text(Number(multiple.toPrecision(3)))} times what ships`);
      output.textContent = `${multiple.toFixed(2)}×`;
      row.classList.toggle("turned", value !== knob.shipped);
    };
    const turn = (value, by) => {
      show(value, by);
      if (value === knob.shipped) delete board.knobs[knob.name]; else board.knobs[knob.name] = value;
      changed();
    };
    slider.addEventListener("input", () => turn(Number(slider.value) === 0 ? knob.shipped : snapped(knob, knob.shipped * 2 ** Number(slider.value)), slider));
    number.addEventListener("input", () => { if (number.value !== "") turn(Number(number.value), number); });
    show(board.knobs[knob.name] ?? knob.shipped);
    return row;
  };

  const showBoard = async (at) => {
    const place = document.querySelector(`[data-board="${at}"]`), board = state.boards[at];
    const legend = place.querySelector("legend"), id = `gpu-${at}`;
    const select = make("select", { id }, ...(at ? [make("option", { value: "", textContent: "none" })] : []),
      ...known.gpus.map((one) => make("option", { value: one.name, textContent: one.name })));
    select.value = board ? board.gpu : "";
    select.addEventListener("change", () => {
      state.boards[at] = select.value ? { gpu: select.value, knobs: {} } : null;
      showBoard(at).then(changed);
    });
    const chooser = make("p", { className: "field" }, make("label", { htmlFor: id, textContent: "GPU" }), select);
    if (!board) { place.replaceChildren(legend, chooser); return; }
    const knobs = await knobsOf(board.gpu);
    const reset = make("button", { type: "button", textContent: "Back to what ships" });
    reset.addEventListener("click", () => { board.knobs = {}; showBoard(at).then(changed); });
    const sources = make("ul", { className: "sources" }, ...knobs.flatMap((knob) => knob.values.slice(0, 4).map((one) =>
      make("li", {}, make("code", { textContent: one.key_path }), ` ${one.value} ${one.unit} (${one.kind}): ${one.source}`))));
    place.replaceChildren(legend, chooser, ...knobs.map((knob) => knobRow(at, knob, board)),
      make("p", {}, reset), make("details", {}, make("summary", { textContent: "Values and their sources" }), sources));
  };

  // Answers ------------------------------------------------------------------------------------------

  const draw = () => {
    if (!views || !charts) return;
    byId("figures").removeAttribute("aria-hidden");
    for (const [name, chart] of Object.entries(charts)) views[name].view.height(chart.height_px).data("rows", chart.rows).resize().run();
  };
  document.addEventListener("drawn", (event) => { views = event.detail; draw(); });

  const timeText = (us) => (us < 1e3 ? `${us.toPrecision(4)} µs` : us < 1e6 ? `${(us / 1e3).toPrecision(4)} ms` : `${(us / 1e6).toPrecision(4)} s`);
  const show = (answer) => {
    const lines = answer.boards.map((one) => {
      const { changed: now, speedup, label } = one, turned = Object.keys(now.overrides).length;
      const firm = speedup.low === null || speedup.low === speedup.high ? "" : ` (${speedup.low.toFixed(2)} to ${speedup.high.toFixed(2)})`;
      return `${label}: ${timeText(now.time_us)}${turned ? `, ${speedup.value.toFixed(2)}× as fast as shipped${firm}` : ""}${now.limited ? `, limited by ${now.limit.split(/ \(|;/)[0]}` : ""}`;
    });
    byId("headline").replaceChildren(...lines.flatMap((line, at) => (at ? [make("br"), line] : [line])));
    const { columns, rows } = answer.table, table = byId("values");
    table.tHead.replaceChildren(make("tr", {}, ...columns.map((one) => (one ? make("th", { scope: "col", textContent: one }) : make("td")))));
    table.tBodies[0].replaceChildren(...rows.map(([name, ...values]) =>
      make("tr", {}, make("th", { scope: "row", textContent: name }), ...values.map((one) => make("td", { textContent: one })))));
    charts = answer.charts;
    draw();
  };
  const showYaml = () => {
    byId("yaml").replaceChildren(...state.boards.filter(Boolean).map((board) => {
      const query = new URLSearchParams({ gpu: board.gpu, knobs: joined(board.knobs) });
      const button = make("button", { type: "button", textContent: `YAML of ${board.gpu}` });
      button.addEventListener("click", () => save(fetch(`api/yaml?${query}`)));
      return button;
    }));
  };

  let asking = null, timer = null, asked = 0;
  const busy = (on) => byId("results").setAttribute("aria-busy", String(on));
  const fail = (message) => { byId("problem").textContent = message; byId("status").textContent = ""; };

  const ask = async () => {
    asking?.abort();  // what was asked before is not wanted any more
    const own = asking = new AbortController();
    busy(true);
    const began = performance.now();
    try {
      const stepped = !isOperator();
      const answer = await post("api/predict", own.signal, stepped ? "application/x-ndjson" : "application/json");
      if (!answer.ok) throw new Error((await answer.json()).detail);
      if (stepped) await follow(answer.body.pipeThrough(new TextDecoderStream()).getReader());
      else show(await answer.json());
      byId("problem").textContent = "";
      byId("status").textContent = `answered in ${Math.round(performance.now() - began)} ms`;
    } catch (error) {
      if (error.name === "AbortError") return;
      fail(error.message);
    }
    if (asking === own) { busy(false); document.documentElement.dataset.answered = String(++asked); }
  };
  const follow = async (reader) => {
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const event of lines.map((line) => JSON.parse(line))) {
        if (event.event === "error") throw new Error(event.detail);
        if (event.event === "progress") byId("status").textContent = `${event.launches} launches simulated`;
        else show(event.answer);
        if (event.event === "time") byId("status").textContent = "finding what would help";
      }
    }
  };
  const changed = () => {
    window.history.replaceState(null, "", linked());
    showYaml();
    clearTimeout(timer);
    timer = setTimeout(ask, isOperator() ? OPERATOR_MS : STEP_MS);
  };

  // Actions ------------------------------------------------------------------------------------------

  const save = async (answering) => {
    try {
      const answer = await answering;
      if (!answer.ok) throw new Error((await answer.json()).detail);
      const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "");
      const link = make("a", { href: URL.createObjectURL(await answer.blob()), download: name ? name[1] : "" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    } catch (error) { fail(error.message); }
  };
  byId("asked").addEventListener("submit", (event) => event.preventDefault());
  byId("page").addEventListener("click", () => save(post("api/page", undefined, "text/html")));
  byId("copy").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(window.location.href); byId("status").textContent = "link copied"; }
    catch { byId("status").textContent = "copy the address of this page: it holds all that you see"; }
  });
  byId("workload").addEventListener("change", (event) => {
    const name = event.target.value;
    state.step = {}; state.conditions = {};
    state.workload = operatorNamed(name) ? wordOf(name, valuesOf(name)) : name;
    showWorkload(); changed();
  });

  const begin = async () => {
    [known.workloads, known.gpus] = await Promise.all([get("api/workloads"), get("api/gpus")]);
    const group = (label, names) => { const found = make("optgroup", { label }); found.append(...names.map(([value, title]) => make("option", { value, textContent: title }))); return found; };
    const models = (captured) => known.workloads.models.filter((one) => one.captured === captured).map((one) => [one.name, one.title]);
    byId("workload").append(group("Operators", known.workloads.operators.map((one) => [one.name, one.name])), group("Models", models(false)),
      ...(models(true).length ? [group("Captured models", models(true))] : []));
    const load = async () => { readLink(); showWorkload(); await Promise.all([showBoard(0), showBoard(1)]); showYaml(); await ask(); };
    window.addEventListener("hashchange", () => load().catch((error) => fail(error.message)));
    await load();
  };
  begin().catch((error) => fail(error.message));
})();
