"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const touch = matchMedia("(pointer: coarse)").matches;
  // Without its buttons, one of which would send the data away, a figure is a picture to the keyboard.
  const config = { displayModeBar: false, displaylogo: false, responsive: true };
  let paper = false;
  const probe = document.createElement("span");
  document.body.append(probe);

  // Colours: figures name roles such as "@blue"; the style sheet says what they are in each theme.
  const colour = (role) => {
    if (role === "@none") return "rgba(0,0,0,0)";
    probe.style.color = `var(--${role.slice(1)})`;
    return getComputedStyle(probe).color;
  };
  const coloured = (part) => {
    if (Array.isArray(part)) return part.map(coloured);
    if (part === null || typeof part !== "object" || ArrayBuffer.isView(part)) return part;
    return Object.fromEntries(Object.entries(part).map(([key, value]) => {
      if (key === "colorscale") return [key, value.map(([at, role]) => [at, colour(role)])];
      if ((key === "color" || key === "fillcolor") && String(value).startsWith("@")) return [key, colour(value)];
      return [key, coloured(value)];
    }));
  };
  const axis = (given) => ({
    gridcolor: colour("@line"), zerolinecolor: colour("@line"), linecolor: colour("@line"),
    automargin: true, exponentformat: "SI", minexponent: 4, fixedrange: touch, ...given,
    title: { ...given.title, standoff: 8 },
  });
  const onPaper = (place) => (place.closest(".pair") ? 330 : place.closest(".trio") ? 215 : 680);
  const layout = (given, place) => ({
    ...coloured(given),
    xaxis: axis(given.xaxis), yaxis: axis(given.yaxis),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("@ink") },
    hoverlabel: { bgcolor: colour("@paper"), bordercolor: colour("@line"), font: { color: colour("@ink") } },
    ...(paper ? { width: onPaper(place), height: place.closest(".trio") ? 220 : 300 } : { autosize: true }),
    margin: { l: 56, r: 12, t: 12, b: 48 }, dragmode: touch ? false : "zoom",
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
  });
  const draw = (name, figure) => {
    const place = document.getElementById(`figure-${name}`);
    if (figure.height) place.style.height = `${figure.height}px`;
    return Plotly.react(place, coloured(figure.data), layout(figure.layout, place), config);
  };

  // Menus choose one of several forms of a figure.
  const shown = (name) => {
    const menu = document.querySelector(`select[data-figure="${name}"]`);
    const { choices } = figures[name];
    return choices ? choices[menu ? Number(menu.value) : 0] : figures[name];
  };
  for (const menu of document.querySelectorAll("select[data-figure]")) {
    menu.addEventListener("change", () => draw(menu.dataset.figure, shown(menu.dataset.figure)));
  }

  // Slices: every curve that the sliders can ask for has been predicted; here it is looked up.
  const { axes, line, band } = figures.explorer;
  const kind = document.getElementById("kind");
  const along = document.getElementById("along");
  const sliders = [...document.querySelectorAll("[data-slider] input")];
  const floats = ({ dtype, bdata }) => {
    const bytes = Uint8Array.from(atob(bdata), (each) => each.charCodeAt(0));
    return dtype === "f8" ? new Float64Array(bytes.buffer) : new Float32Array(bytes.buffer);
  };
  const grids = axes.map((each) => ({
    ...each, x: floats(each.x), mean: floats(each.mean), lower: floats(each.lower), upper: floats(each.upper),
  }));
  const curve = () => {
    const chosen = Number(along.value);
    const grid = grids[chosen];
    const others = [...(kind ? [kind] : []), ...sliders.filter((_, place) => place !== chosen)];
    const start = others.reduce((at, each, place) => at * grid.sizes[place] + Number(each.value), 0);
    const size = grid.sizes.at(-1);
    const part = (values) => Array.from(values.subarray(start * size, (start + 1) * size));
    return { grid, mean: part(grid.mean), lower: part(grid.lower), upper: part(grid.upper) };
  };
  const format = (value) => Number(value.toPrecision(4)).toString();
  const describe = ({ grid, mean }) => {
    const at = (place) => `${format(mean[place])} at ${grid.labels[place]}`;
    const low = mean.indexOf(Math.min(...mean));
    const high = mean.indexOf(Math.max(...mean));
    return `Line: ${line}; band: ${band} interval. Lowest ${at(low)}, highest ${at(high)}.`;
  };
  const explore = () => {
    const now = curve();
    const { grid, mean, lower, upper } = now;
    const x = Array.from(grid.x);
    const hovertemplate = "%{text}<extra></extra>";
    const text = mean.map((value, place) => `${format(value)} (${format(lower[place])} to ${format(upper[place])})`);
    const data = grid.curve
      ? [{ x: [...x, ...x.toReversed()], y: [...upper, ...lower.toReversed()], fill: "toself",
          fillcolor: "@band", mode: "lines", line: { color: "@none" }, hoverinfo: "skip" },
        { x, y: mean, text, hovertemplate, mode: "lines", line: { color: "@blue", width: 2.5 } }]
      : [{ x, y: mean, text, hovertemplate, mode: "markers", marker: { color: "@blue", size: 10 },
          error_y: { type: "data", symmetric: false, color: "@blue",
            array: upper.map((value, place) => value - mean[place]), arrayminus: mean.map((value, place) => value - lower[place]) } }];
    sliders.forEach((slider, place) => {
      const idle = place === Number(along.value);
      const label = JSON.parse(slider.dataset.labels)[slider.value];
      slider.disabled = idle;
      slider.closest(".slider").classList.toggle("idle", idle);
      slider.closest(".slider").querySelector("output").value = idle ? "along the axis" : label;
      slider.setAttribute("aria-valuetext", label);
    });
    document.getElementById("slice-words").textContent = describe(now);
    return draw("explorer", { data, layout: grid.layout });
  };
  along.addEventListener("change", explore);
  kind?.addEventListener("change", explore);
  for (const slider of sliders) slider.addEventListener("input", explore);

  // Figures are drawn when they come near the screen, and again when they do after a change of theme.
  const places = [...document.querySelectorAll(".plot")];
  const named = (place) => place.id.slice("figure-".length);
  const stale = new Set(places.map(named));
  const near = new Set();
  const refresh = (name) => {
    if (!stale.delete(name)) return;
    if (name === "explorer") explore();
    else draw(name, shown(name));
  };
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      near[isIntersecting ? "add" : "delete"](named(target));
      if (isIntersecting) refresh(named(target));
    }
    root.dataset.drawn = "yes";
  }, { rootMargin: "600px" });
  const redraw = () => {
    for (const place of places) stale.add(named(place));
    near.forEach(refresh);
  };

  // Themes: automatic unless one was chosen, which is remembered where the browser allows it.
  const remembered = () => { try { return localStorage.getItem("eigengp-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("eigengp-theme", theme); } catch { /* not allowed */ } };
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  for (const radio of document.querySelectorAll("input[name=theme]")) {
    radio.checked = radio.value === (remembered() ?? "auto");
    radio.addEventListener("change", () => { remember(radio.value); apply(radio.value); redraw(); });
  }
  apply(remembered());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // Paper is light and narrower than a screen.
  addEventListener("beforeprint", () => {
    paper = true;
    apply("light");
    for (const place of places) stale.add(named(place));
    [...stale].forEach(refresh);
  });
  addEventListener("afterprint", () => {
    paper = false;
    apply(remembered());
    for (const place of places) Plotly.relayout(place, { width: null, height: null, autosize: true });
    redraw();
  });

  explore();
  stale.delete("explorer");
  for (const place of places) observer.observe(place);
})();
