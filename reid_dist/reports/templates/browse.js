// The explorer of ranked lists.  Texts of the run reach the page as text nodes and attributes alone, never as markup.
"use strict";

(() => {
  const PAGE_ROWS = 50;
  const KEPT_BLOCKS = 32;
  const MARKS = { r: ["right", "\u2713 right"], w: ["wrong", "\u2717 wrong"], j: ["junk", "junk"], n: ["not-assessed", "not assessed"] };
  const DEFAULTS = { q: "", text: "", camera: "", kind: "", sort: "", low: "", high: "", page: "0", junk: "1" };
  const FIELDS = ["text", "camera", "kind", "sort", "low", "high"];
  const NUMBERS = ["average", "inverse", "first_rank", "n_relevant", "kinds", "reason", "loss"];
  const at = (id) => document.getElementById(id);

  // ---- files of data: each calls `receive` -----------------------------------------------------------------------

  const received = new Map();
  window.rankedLists = { receive: (name, value) => { received.set(name, value); } };

  const load = (name) => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onload = () => {
      script.remove();
      if (received.has(name)) resolve(received.get(name)); else reject(new Error(`data/${name}.js holds no data`));
      received.delete(name);
    };
    script.onerror = () => { script.remove(); reject(new Error(`data/${name}.js cannot be loaded; does the server still run?`)); };
    document.head.append(script);
  });

  const blocks = new Map();
  const block = (kind, number) => {
    const name = `${kind}-${String(number).padStart(5, "0")}`;
    const found = blocks.get(name) ?? load(name);
    blocks.delete(name);
    blocks.set(name, found);
    found.catch(() => blocks.delete(name));
    if (blocks.size > KEPT_BLOCKS) blocks.delete(blocks.keys().next().value);
    return found;
  };

  // ---- the run and the columns of its queries ----------------------------------------------------------------------

  let run = null;
  const columns = {};
  let order = new Uint32Array(0);
  let state = { ...DEFAULTS };
  let focused = 0;

  const label = (names, value) => (names ? (value > 0 ? names[value - 1] : String(value)) : String(value));
  const percent = (value) => `${(100 * value).toFixed(2)}`;
  const signed = (loss) => { const text = percent(Math.abs(loss)); return `${Number(text) === 0 ? "" : loss > 0 ? "\u2212" : "+"}${text}`; };
  const integer = (value) => value.toLocaleString("en-US");

  async function loadRun() {
    run = await load("run");
    const n = run.n_query;
    for (let start = 0; start < n; start += run.query_rows) {
      const part = await load(`queries-${String(start / run.query_rows).padStart(5, "0")}`);
      for (const [name, values] of Object.entries(part)) {
        if (values === null) continue;
        if (name === "paths") columns.paths = (columns.paths ?? []).concat(values);
        else {
          columns[name] ??= new Float64Array(n).fill(NaN);
          for (let i = 0; i < values.length; i++) columns[name][start + i] = values[i] ?? NaN;
        }
      }
      at("count").textContent = `Loading queries: ${integer(Math.min(n, start + run.query_rows))} of ${integer(n)}`;
    }
  }

  const pidOf = (row) => label(run.query.pid_names, columns.pids[row]);
  const cameraOf = (row) => label(run.query.camid_names, columns.camids[row]);
  const kindsOf = (row) => run.kinds.filter((_, place) => columns.kinds[row] & (1 << place));
  const reasonOf = (row) => (columns.reason ? run.reasons[columns.reason[row]] : "").replaceAll("_", " ");

  function sorts() {
    const known = [];
    if (columns.average) known.push(["", `${run.average}, lowest first`, "average", 1], ["best", `${run.average}, highest first`, "average", -1]);
    if (columns.loss) known.push(["loss", `loss against ${run.against.title}`, "loss", -1], ["gain", `gain over ${run.against.title}`, "loss", 1]);
    if (columns.first_rank) known.push(["first", "first right item, last first", "first_rank", -1]);
    known.push([known.length ? "row" : "", "row", null, 1]);
    return known;
  }

  // ---- filter and order ----------------------------------------------------------------------------------------------

  function wordTest(word) {
    const [, field, value] = /^(?:(pid|row|file):)?(.*)$/s.exec(word);
    const digits = /^-?\d+$/.test(value) ? Number(value) : NaN;
    const lower = value.toLowerCase();
    const names = run.query.pid_names;
    const named = names && new Set(names.flatMap((name, place) => ((field ? name.toLowerCase() === lower : name.toLowerCase().includes(lower)) ? [place + 1] : [])));
    const isPid = (row) => columns.pids && (names ? named.has(columns.pids[row]) || (digits < 0 && columns.pids[row] === digits) : columns.pids[row] === digits);
    const isFile = (row) => columns.paths && (run.query.folder + columns.paths[row]).toLowerCase().includes(lower);
    if (field === "pid") return isPid;
    if (field === "row") return (row) => row === digits;
    if (field === "file") return isFile;
    return Number.isNaN(digits) ? (row) => isFile(row) || (names && isPid(row)) : (row) => row === digits || isPid(row);
  }

  function select() {
    // Blanks separate words, unless they are in quotes.
    const words = state.text.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? [];
    const tests = words.map((word) => wordTest(word.replaceAll('"', "")));
    if (state.camera !== "" && columns.camids) { const camera = Number(state.camera); tests.push((row) => columns.camids[row] === camera); }
    const low = state.low === "" ? NaN : Number(state.low) / 100, high = state.high === "" ? NaN : Number(state.high) / 100;
    if (columns.average && !Number.isNaN(low)) tests.push((row) => columns.average[row] >= low - 1e-6);
    if (columns.average && !Number.isNaN(high)) tests.push((row) => columns.average[row] <= high + 1e-6);
    const place = run.kinds.findIndex(([name]) => name === state.kind);
    if (place >= 0) tests.push((row) => columns.kinds[row] & (1 << place));
    else if (state.kind === "any") tests.push((row) => columns.kinds[row]);
    else if (state.kind === "invalid") tests.push((row) => columns.reason && columns.reason[row]);
    let n = 0;
    const found = new Uint32Array(run.n_query);
    for (let row = 0; row < run.n_query; row++) if (tests.every((test) => test(row))) found[n++] = row;
    order = found.slice(0, n);
    const [, , name, sign] = sorts().find(([key]) => key === state.sort) ?? sorts()[0];
    const values = name && columns[name], next = name === "average" && columns.inverse;
    if (values) {
      order.sort((a, b) => {
        const x = values[a], y = values[b];
        if (x === y) return (next && sign * (next[a] - next[b])) || a - b;
        // NaN comes last.
        return x !== x ? (y !== y ? a - b : 1) : y !== y ? -1 : sign * (x - y);
      });
    }
  }

  // ---- the view and the address ----------------------------------------------------------------------------------------

  const hashOf = () => {
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) words.set(name, value);
    return `#${words}`;
  };

  function read() {
    const words = new URLSearchParams(location.hash.slice(1));
    state = { ...DEFAULTS };
    for (const name of Object.keys(DEFAULTS)) if (words.has(name)) state[name] = words.get(name);
    for (const name of FIELDS) at(name).value = state[name];
    if (at("sort").selectedIndex < 0) at("sort").selectedIndex = 0;
    if (at("camera").selectedIndex < 0) { at("camera").value = ""; state.camera = ""; }
    if (at("kind").selectedIndex < 0) { at("kind").value = ""; state.kind = ""; }
    at("junk").checked = state.junk !== "0";
    // Without a page, that of the query.
    select();
    const place = words.has("page") || state.q === "" ? -1 : order.indexOf(Number(state.q));
    if (place >= 0) state.page = String(Math.floor(place / PAGE_ROWS));
    selected = choices();
  }

  // A step that the browser's back button undoes, or a change of the present one.
  function change(changes, { step = false } = {}) {
    Object.assign(state, changes);
    const hash = hashOf();
    if (step) history.pushState(null, "", hash); else history.replaceState(null, "", hash);
    render();
  }

  let selected = null;
  const choices = () => JSON.stringify(FIELDS.map((name) => state[name]));
  function render() {
    if (choices() !== selected) { select(); selected = choices(); }
    const last = Math.max(0, Math.ceil(order.length / PAGE_ROWS) - 1);
    const page = Math.min(last, Math.max(0, Math.floor(Number(state.page)) || 0));
    state.page = String(page);
    renderTable(page, last);
    renderList();
  }

  const made = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };

  function heads() {
    const head = [["query row", "number"]];
    if (columns.pids) head.push(["pid", "number"]);
    if (columns.camids) head.push(["camera", "number"]);
    if (columns.average) head.push([run.average, "number"]);
    if (columns.loss) head.push(["change", "number"]);
    if (columns.first_rank) head.push(["first rank", "number"]);
    if (columns.n_relevant) head.push(["relevant", "number more"]);
    head.push(["failure", ""]);
    if (columns.paths) head.push(["file", "file more"]);
    return head;
  }

  function cells(row) {
    const value = (name, shown) => (Number.isNaN(columns[name][row]) ? "" : shown(columns[name][row]));
    const made = [];
    if (columns.pids) made.push(pidOf(row));
    if (columns.camids) made.push(cameraOf(row));
    if (columns.average) made.push(value("average", percent));
    if (columns.loss) made.push(value("loss", signed));
    if (columns.first_rank) made.push(value("first_rank", integer));
    if (columns.n_relevant) made.push(value("n_relevant", integer));
    return made;
  }

  function kindTags(row) {
    const tags = kindsOf(row).map(([, name]) => made("span", name, "kind"));
    if (reasonOf(row)) tags.push(made("span", "invalid", "kind invalid"));
    return tags;
  }

  function renderTable(page, last) {
    const first = page * PAGE_ROWS, shown = order.subarray(first, first + PAGE_ROWS);
    const head = heads();
    const rows = Array.from(shown, (row) => {
      const line = made("tr");
      const name = made("th", undefined, "number");
      name.scope = "row";
      const link = made("a", String(row));
      link.href = hashWith(row);
      link.dataset.row = String(row);
      name.append(link);
      line.append(name, ...cells(row).map((text, place) => { const cell = made("td", text, head[place + 1][1]); cell.dataset.head = head[place + 1][0]; return cell; }));
      const kinds = made("td", undefined, "tags");
      kinds.append(...kindTags(row));
      line.append(kinds);
      if (columns.paths) { const file = made("td", columns.paths[row], "file more"); file.title = run.query.folder + columns.paths[row]; line.append(file); }
      if (String(row) === state.q) { line.className = "current"; link.setAttribute("aria-current", "true"); }
      return line;
    });
    const hadFocus = at("table").contains(document.activeElement);
    at("table").tHead.rows[0].replaceChildren(...head.map(([text, className]) => { const cell = made("th", text, className); cell.scope = "col"; return cell; }));
    at("table").tBodies[0].replaceChildren(...rows);
    at("table").hidden = rows.length === 0;
    if (hadFocus) focusRow(Math.min(focused, rows.length - 1));
    at("count").textContent = order.length === run.n_query
      ? `${integer(run.n_query)} queries, lists of ${run.k} items`
      : `${integer(order.length)} of ${integer(run.n_query)} queries`;
    at("pages").hidden = last === 0;
    at("place").textContent = `${integer(first + 1)}\u2013${integer(first + shown.length)} of ${integer(order.length)}`;
    at("before").disabled = page === 0;
    at("after").disabled = page === last;
  }

  function hashWith(row) {
    const before = state.q;
    state.q = String(row);
    const hash = hashOf();
    state.q = before;
    return hash;
  }

  // ---- the list of a query -----------------------------------------------------------------------------------------------

  let drawn = "";
  async function renderList() {
    const row = /^\d+$/.test(state.q) && Number(state.q) < run.n_query ? Number(state.q) : null;
    document.body.classList.toggle("opened", row !== null);
    at("list").hidden = row === null;
    const wanted = row === null ? "" : `${row} ${state.junk}`;
    const position = row === null ? -1 : order.indexOf(row);
    at("up").disabled = position <= 0;
    at("down").disabled = position < 0 || position === order.length - 1;
    if (wanted === drawn) return;
    drawn = wanted;
    if (row === null) return;
    at("list-head").textContent = `Query row ${row}`;
    at("facts").textContent = factsOf(row);
    const number = Math.floor(row / run.list_rows), place = row % run.list_rows;
    const kinds = run.against?.lists ? ["lists", "against"] : ["lists"];
    at("lists").setAttribute("aria-busy", "true");
    try {
      const found = await Promise.all(kinds.map((kind) => block(kind, number)));
      if (drawn !== wanted) return;
      const parts = found.map((each, which) => listOf(each, place, row, which));
      at("lists").classList.toggle("plain", !run.query.pictures && !run.gallery.pictures);
      at("lists").replaceChildren(...parts.flat());
    } catch (error) {
      if (drawn !== wanted) return;
      drawn = "";
      at("lists").replaceChildren(made("p", error.message, "note"));
    }
    at("lists").removeAttribute("aria-busy");
  }

  function factsOf(row) {
    const facts = [];
    if (columns.pids) facts.push(`pid ${pidOf(row)}`);
    if (columns.camids) facts.push(`camera ${cameraOf(row)}`);
    const shares = [["average", run.average], ["inverse", "INP"]];
    for (const [name, shown] of shares) if (columns[name] && !Number.isNaN(columns[name][row])) facts.push(`${shown} ${percent(columns[name][row])}%`);
    if (columns.loss && !Number.isNaN(columns.loss[row])) facts.push(`${percent(columns.average[row] + columns.loss[row])}% in ${run.against.title}`);
    if (columns.first_rank && !Number.isNaN(columns.first_rank[row])) facts.push(`first right item at rank ${integer(columns.first_rank[row])}`);
    if (columns.n_relevant) facts.push(`${integer(columns.n_relevant[row])} relevant`);
    facts.push(...kindsOf(row).map(([, name]) => name));
    if (reasonOf(row)) facts.push(`invalid: ${reasonOf(row)}`);
    if (columns.paths) facts.push(run.query.folder + columns.paths[row]);
    return facts.join(" \u00b7 ");
  }

  function listOf(found, place, row, which) {
    const [places, distances, marks] = found.lists[place];
    const tiles = [tile("query", "query", row, columns.pids && pidOf(row), columns.camids && cameraOf(row), "", columns.paths?.[row])];
    let rank = 0, hidden = 0;
    places.forEach((item, nth) => {
      const mark = marks[nth];
      if (mark !== "j") rank++;
      else if (state.junk === "0") { hidden++; return; }
      const [className, sign] = MARKS[mark];
      tiles.push(tile(
        className, mark === "j" ? sign : `${rank} ${sign}`, found.rows[item],
        found.pids && label(run.gallery.pid_names, found.pids[item]), found.camids && label(run.gallery.camid_names, found.camids[item]),
        distances[nth] === null ? "" : distances[nth].toFixed(4), found.paths?.[item],
      ));
    });
    const list = made("ol", undefined, "tiles");
    list.append(...tiles);
    const parts = [list];
    if (hidden) parts.push(made("p", `${integer(hidden)} junk ${hidden === 1 ? "item" : "items"} hidden`, "soft"));
    if (run.against?.lists) parts.unshift(made("h3", `In ${which ? run.against.title : run.title}`));
    list.setAttribute("aria-label", which ? `List in ${run.against.title}` : "List");
    return parts;
  }

  function tile(className, sign, row, pid, camera, distance, path) {
    const side = className === "query" ? "query" : "gallery";
    const item = made("li", undefined, `tile ${className}`);
    item.append(made("span", sign, "sign"));
    if (run[side].pictures) {
      const image = made("img");
      image.loading = "lazy";
      image.alt = `${side} row ${row}${className === "query" ? "" : `, ${className}`}`;
      image.onerror = () => image.replaceWith(made("span", "no picture", "missing"));
      image.src = `pictures/${side}/${String(Math.floor(row / run.folder_rows)).padStart(4, "0")}/${row}.jpg`;
      item.append(image);
    } else item.append(made("span", "no picture", "missing"));
    item.append(made("span", `row ${row}`));
    if (pid !== undefined && pid !== null) item.append(made("span", `pid ${pid}`));
    if (camera !== undefined && camera !== null) item.append(made("span", `camera ${camera}`));
    if (distance) item.append(made("span", distance));
    if (path) {
      const file = made("span", undefined, "file");
      // It may break after the separators of a path.
      for (const part of path.match(/[^/_-]*[/_-]+|[^/_-]+/g)) file.append(part, made("wbr"));
      item.append(file);
      item.title = run[side].folder + path;
    }
    return item;
  }

  // ---- steps ---------------------------------------------------------------------------------------------------------------

  const links = () => [...at("table").querySelectorAll("a")];

  function focusRow(place) {
    const all = links();
    if (!all.length) return;
    focused = Math.min(Math.max(place, 0), all.length - 1);
    all[focused].focus();
  }

  function turn(by, place = 0) {
    const page = Number(state.page) + by;
    if (page < 0 || page * PAGE_ROWS >= order.length) return;
    change({ page: String(page) });
    focusRow(place);
  }

  function open(row) {
    focused = order.indexOf(row) % PAGE_ROWS;
    change({ q: String(row) }, { step: true });
    at("list-head").focus();
  }

  function close() {
    if (state.q === "") return;
    const row = Number(state.q), place = order.indexOf(row);
    change({ q: "", page: String(place < 0 ? state.page : Math.floor(place / PAGE_ROWS)) }, { step: true });
    focusRow(place < 0 ? 0 : place % PAGE_ROWS);
  }

  // To the next or the previous query: of the open list, or of the table.
  function step(by) {
    if (state.q !== "") {
      const place = order.indexOf(Number(state.q)) + by;
      if (place < 0 || place >= order.length || place === by - 1) return;
      change({ q: String(order[place]), page: String(Math.floor(place / PAGE_ROWS)) });
      links().find((link) => link.dataset.row === state.q)?.scrollIntoView({ block: "nearest" });
      return;
    }
    const all = links(), present = all.indexOf(document.activeElement);
    if (present < 0) focusRow(Math.min(focused, all.length - 1));
    else if (present + by >= all.length) turn(1, 0);
    else if (present + by < 0) turn(-1, PAGE_ROWS - 1);
    else focusRow(present + by);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !run) return;
    const field = event.target.closest("input:not([type=checkbox]), select, textarea");
    if (event.key === "Escape") { if (field) field.blur(); else close(); return; }
    if (field) return;
    const arrows = at("table").contains(document.activeElement);
    const keys = {
      j: () => step(1), k: () => step(-1), n: () => turn(1), p: () => turn(-1),
      x: () => change({ junk: state.junk === "0" ? "1" : "0" }), "/": () => { if (state.q !== "" && at("queries").offsetParent === null) close(); at("text").focus(); at("text").select(); },
      ...(arrows ? { ArrowDown: () => step(1), ArrowUp: () => step(-1) } : {}),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
    at("junk").checked = state.junk !== "0";
  }

  function fillChoices() {
    const option = (value, text) => { const made = document.createElement("option"); made.value = value; made.textContent = text; return made; };
    if (columns.camids) {
      const cameras = [...new Set(columns.camids)].sort((a, b) => a - b);
      at("camera").append(...cameras.map((camera) => option(String(camera), label(run.query.camid_names, camera))));
    } else at("camera").closest("label").hidden = true;
    at("kind").append(...(run.kinds.length ? [option("any", "any")] : []), ...run.kinds.map(([name, text]) => option(name, text)));
    if (run.reasons.length > 1) at("kind").append(option("invalid", "invalid query"));
    at("sort").append(...sorts().map(([key, text]) => option(key, text)));
    at("range").hidden = !columns.average;
    at("average-name").textContent = run.average ? `${run.average} (%)` : "";
  }

  function listen() {
    let waiting = 0;
    const fields = () => Object.fromEntries(FIELDS.map((name) => [name, at(name).value]));
    at("filters").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => change({ ...fields(), page: "0" }), 120);
    });
    at("filters").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(waiting); change({ ...fields(), page: "0" }); focusRow(0); });
    at("filters").addEventListener("reset", () => { clearTimeout(waiting); setTimeout(() => change({ ...fields(), page: "0" })); });
    at("table").addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      const link = event.target.closest("tr")?.querySelector("a");
      if (!link) return;
      event.preventDefault();
      open(Number(link.dataset.row));
    });
    at("table").addEventListener("focusin", (event) => { focused = Math.max(0, links().indexOf(event.target)); });
    at("before").addEventListener("click", () => turn(-1));
    at("after").addEventListener("click", () => turn(1));
    at("up").addEventListener("click", () => step(-1));
    at("down").addEventListener("click", () => step(1));
    at("close").addEventListener("click", close);
    at("junk").addEventListener("change", () => change({ junk: at("junk").checked ? "1" : "0" }));
    document.addEventListener("keydown", onKey);
    window.addEventListener("popstate", () => { read(); render(); });
  }

  loadRun().then(() => {
    fillChoices();
    listen();
    read();
    render();
    document.documentElement.dataset.ready = "true";
  }).catch((error) => { at("count").textContent = `Nothing to show: ${error.message}`; });
})();
