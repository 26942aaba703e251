"use strict";
// Draws the charts in the colours of the theme, and answers to the buttons.
(() => {
  // "$.1%" is 97.8 % as in texts, "97.8%" without the "$": d3 takes no other sign of its own but a currency's.
  const PERCENT = { en: { format: { currency: ["", " %"] } } };
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const off = new Set(); // methods that are switched off
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");

  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const fade = (hex, share) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${r}, ${g}, ${b}, ${share})`;
  };

  // "@2" is the colour of a method, "@2/0.2" the same more faintly, "@quiet" and the like are the page's own.
  const colour = (text) => {
    if (text === "@scale") return [[0, variable("panel")], [1, variable("c0")]];
    if (text === "@fields") return [[0, fade(variable("c0"), 0.2)], [1, variable("c0")]];
    const [name, share] = text.slice(1).split("/");
    const hex = variable(/^\d/.test(name) ? `c${name}` : name);
    return share ? fade(hex, Number(share)) : hex;
  };

  // Plotly takes texts for HTML: a name is none.
  const plain = (value) => {
    if (Array.isArray(value)) return value.map(plain);
    return typeof value === "string" ? value.replace(/&/g, "&amp;").replace(/</g, "&lt;") : value;
  };

  const coloured = (value) => {
    if (typeof value === "string") return value.startsWith("@") ? colour(value) : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(coloured);
    if (value === null || typeof value !== "object") return value;
    // Names are nobody's colours, whatever they begin with.
    const of = (key, inner) => (key === "customdata" ? plain(inner) : key === "ticktext" ? inner : coloured(inner));
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, of(key, inner)]));
  };

  // A long name without its middle: hovering shows it whole.
  const shorten = (name, most) => {
    if (name.length <= most) return name;
    const end = Math.floor((most - 1) / 2);
    return `${name.slice(0, most - 1 - end).trim()}…${name.slice(-end).trim()}`;
  };

  const named = (axis) => Boolean(axis.ticktext) && axis.type !== "log";
  const LETTER = 7; // pixels, about
  const longest = (axis) => (named(axis) ? Math.max(...axis.ticktext.map((text) => text.length)) : 0);

  const shortened = (axis, most) =>
    named(axis) ? { ...axis, ticktext: axis.ticktext.map((name) => shorten(name, most)) } : axis;

  // As many of an axis' names as there is room for; those that are too wide for their place are written upwards.
  const thin = (axis, pixels, across) => {
    if (!named(axis)) return axis;
    const room = pixels / axis.ticktext.length;
    const wide = LETTER * longest(axis) + 8;
    const upwards = across && wide > room && longest(axis) > 4;
    const needed = across && !upwards ? wide : 15;
    const steps = [1, 2, 5, 10, 20, 50, 100];
    const step = steps.find((every) => every * room >= needed) || 200;
    const some = (values) => values.filter((_, index) => index % step === 0);
    const angle = across ? { tickangle: upwards ? -90 : 0 } : {};
    return { ...axis, ...angle, tickvals: some(axis.tickvals), ticktext: plain(some(axis.ticktext)) };
  };

  // Ticks of shares as far apart as their numbers need: beside long names there is little room, and Plotly turns them.
  const apart = (axis, pixels) => {
    if (!axis.dtick || !axis.range) return axis;
    const room = (pixels * axis.dtick) / Math.abs(axis.range[1] - axis.range[0]);
    return room < 6 * LETTER ? { ...axis, dtick: axis.dtick * (axis.dtick === 0.2 ? 2.5 : 2) } : axis;
  };

  // A title in lines that are no longer than its axis.
  const wrapped = (axis, pixels) => {
    const most = Math.max(10, Math.floor(pixels / (LETTER + 0.5)));
    const lines = [""];
    for (const word of (axis.title.text || "").split(" ")) {
      const line = `${lines[lines.length - 1]} ${word}`.trim();
      if (line.length <= most) lines[lines.length - 1] = line;
      else lines.push(word);
    }
    return { ...axis, title: { ...axis.title, text: lines.filter(Boolean).join("<br>") } };
  };

  // Both axes, with names that leave most of the room to what is drawn.
  const axes = (chart, place, x, y) => {
    const square = chart.fit === "square";
    const most = Math.max(12, Math.min(28, Math.floor(place.clientWidth / 24)));
    const [across, down] = [shortened(x, Math.min(most, 18)), shortened(y, most)];
    const width = place.clientWidth - 60 - LETTER * longest(down) - (square ? 70 : 0);
    const height = square ? Math.min(width, 520) : place.clientHeight - 90;
    return { xaxis: wrapped(apart(thin(across, width, true), width), width), yaxis: thin(down, height, false) };
  };

  const layout = (chart, place) => {
    const axis = {
      automargin: true, gridcolor: variable("grid"), linecolor: variable("grid"), zeroline: false,
      tickfont: { color: variable("quiet") }, title: { font: { color: variable("quiet") }, standoff: 10 },
    };
    const own = coloured(chart.layout);
    const merged = (name) => ({ ...axis, ...own[name], title: { ...axis.title, ...(own[name] || {}).title } });
    return {
      hovermode: "x unified",
      ...own,
      ...axes(chart, place, merged("xaxis"), merged("yaxis")),
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: variable("text") },
      margin: { l: 46, r: 18, t: 12, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: variable("panel"), bordercolor: variable("grid"), font: { color: variable("text") } },
      dragmode: touch.matches ? false : "zoom",
      showlegend: false,
    };
  };

  const shown = (trace) => !(trace.meta && off.has(trace.meta.method));

  // Circles as large as their cells allow, and matrices with square cells.
  const fit = (place, chart) => {
    const size = place._fullLayout._size;
    if (chart.fit === "circles") {
      const span = (range) => Math.abs(range[1] - range[0]);
      const room = Math.min(48, size.w / span(chart.layout.xaxis.range), size.h / span(chart.layout.yaxis.range));
      const largest = chart.data[0].meta.largest;
      const sizeref = (2 * largest) / (0.94 * room) ** 2;
      return Plotly.restyle(place, { "marker.sizeref": sizeref, "marker.sizemin": Math.min(1.5, room / 2) });
    }
    const height = Math.round(Math.min(size.w, 520) + size.t + size.b);
    if (chart.fit === "square" && Math.abs(height - place.clientHeight) > 2) {
      place.style.height = `${height}px`;
      return Plotly.relayout(place, { height });
    }
    return undefined;
  };

  const draw = async (place) => {
    const chart = charts[place.dataset.chart];
    const data = coloured(chart.data).map((trace) => ({ ...trace, visible: shown(trace) }));
    const settings = { responsive: true, displayModeBar: false, doubleClick: "reset", locales: PERCENT };
    const known = place.dataset.drawn;
    await Plotly.react(place, data, layout(chart, place), settings);
    place.dataset.drawn = "yes";
    await fit(place, chart);
    if (!known && chart.fit) new ResizeObserver(() => fit(place, chart)).observe(place.parentElement);
  };

  const places = (which = () => true) => [...document.querySelectorAll(".chart")].filter(which);
  const visible = (place) => place.offsetParent !== null;
  // A method that the problem does not have needs no switch.
  const offer = () => document.querySelectorAll(".methods button").forEach((button) => {
    const rows = document.querySelectorAll("article:not([hidden]) tr[data-of]");
    button.hidden = ![...rows].some((row) => row.dataset.of === button.dataset.method);
  });
  const drawMissing = () => Promise.all(places((p) => visible(p) && !p.dataset.drawn).map(draw));

  // What hovering over a value tells, of all of them: for those who do not point, or do not see.
  const written = (value, format = "") => {
    const digits = Number((format.match(/\d/) || [0])[0]);
    if (format.endsWith("%")) return `${(100 * value).toFixed(digits)} %`;
    if (format.endsWith("f")) return value.toFixed(digits);
    if (format.endsWith("g")) return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
    return typeof value === "number" ? value.toLocaleString("en") : plain(value);
  };
  const filled = (template, point) =>
    template.replace(/%\{(\w+)(?:\[(\d)\])?(?::([^}]+))?\}/g, (_, name, at, format) =>
      written(at === undefined ? point[name] : point[name][at], format));
  const points = ({ x, y, z, customdata = [] }) => {
    if (!z) return y.map((value, i) => ({ x: x[i], y: value, customdata: customdata[i] })).filter((p) => p.x !== null && p.y !== null);
    return z.flatMap((row, j) => row.map((value, i) => ({ z: value, customdata: customdata[j][i] }))).filter((p) => p.z !== null);
  };
  const sentences = (chart) => chart.data.filter((trace) => trace.hovertemplate).flatMap((trace) => {
    const [own, extra] = trace.hovertemplate.split("<extra>");
    const where = (chart.layout.xaxis.unifiedhovertitle || {}).text;
    const template = extra === undefined && where ? `${plain(trace.name)}, ${where}: ${own}` : own;
    return points(trace).map((point) => filled(template.replace(/<br>/g, " "), point));
  });
  for (const fold of document.querySelectorAll(".numbers")) {
    fold.addEventListener("toggle", () => {
      const told = new Set(sentences(charts[fold.dataset.chart])); // a line has its value at both ends
      fold.insertAdjacentHTML("beforeend", `<ul tabindex="0">${[...told].map((text) => `<li>${text}</li>`).join("")}</ul>`);
    }, { once: true });
  }

  const press = (button, group) => {
    for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
  };

  for (const group of document.querySelectorAll(".options")) {
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      press(button, group);
      const chosen = [...group.children].indexOf(button);
      group.parentElement.querySelectorAll(".option").forEach((option, index) => { option.hidden = index !== chosen; });
      drawMissing();
    });
  }

  document.querySelector(".tabs")?.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    press(button, button.parentElement);
    document.querySelectorAll("article").forEach((problem, index) => { problem.hidden = String(index) !== button.dataset.problem; });
    offer();
    drawMissing();
  });

  document.querySelector(".methods")?.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const method = button.dataset.method;
    if (!off.delete(method)) off.add(method);
    button.setAttribute("aria-pressed", String(!off.has(method)));
    document.querySelectorAll("tr[data-of]").forEach((row) => row.classList.toggle("off", off.has(row.dataset.of)));
    places((p) => p.dataset.drawn).forEach((p) => Plotly.restyle(p, { visible: p.data.map(shown) }));
  });

  dark.addEventListener("change", () => places((p) => p.dataset.drawn).forEach(draw));
  offer();
  drawMissing().then(() => { document.body.dataset.ready = "yes"; });
})();
