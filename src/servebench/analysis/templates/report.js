"use strict";
(() => {
  const plots = JSON.parse(document.getElementById("plot-data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const theme = (layout) => {
    const axes = Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
    const axis = { color: colour("--muted"), gridcolor: colour("--grid"), linecolor: colour("--grid"), showgrid: true };
    const found = {
      "paper_bgcolor": "rgba(0,0,0,0)",
      "plot_bgcolor": "rgba(0,0,0,0)",
      "font.color": colour("--ink"),
      "font.family": "system-ui, sans-serif",
      "font.size": 12,
      "hoverlabel.bgcolor": colour("--card"),
      "hoverlabel.font.color": colour("--ink"),
    };
    for (const name of axes) {
      for (const [key, value] of Object.entries(axis)) found[`${name}.${key}`] = value;
    }
    return found;
  };
  const config = { displaylogo: false, responsive: true, displayModeBar: false, scrollZoom: false };
  const drawn = new Map();
  let syncing = false;

  const sync = (source, change) => {
    const group = plots[source].group;
    if (syncing || !group) return;
    const update = {};
    if ("xaxis.range[0]" in change) update["xaxis.range"] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    else if (change["xaxis.autorange"]) update["xaxis.autorange"] = true;
    else return;
    syncing = true;
    const others = [...drawn].filter(([name]) => name !== source && plots[name].group === group);
    Promise.all(others.map(([, box]) => Plotly.relayout(box, update))).finally(() => { syncing = false; });
  };

  const draw = async (name, box) => {
    const { data, layout } = plots[name];
    const shares = (layout.meta || {}).phases || {};
    const fits = (label) => shares[label.text] * (box.clientWidth - 80) > 7 * label.text.length + 6;
    layout.annotations = (layout.annotations || []).filter((label) => label.name !== "phase" || fits(label));
    await Plotly.newPlot(box, data, layout, config);
    await Plotly.relayout(box, theme(box.layout));
    box.on("plotly_relayout", (change) => sync(name, change));
    drawn.set(name, box);
  };

  const all = [...document.querySelectorAll("[data-plot]")].map((box) => draw(box.dataset.plot, box));
  Promise.all(all).then(() => { document.documentElement.dataset.drawn = "yes"; });

  const repaint = () => drawn.forEach((box) => Plotly.relayout(box, theme(box.layout)));
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    window.matchMedia(query).addEventListener("change", repaint);
  }

  for (const button of document.querySelectorAll("[data-log]")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      Plotly.relayout(drawn.get(button.dataset.log), { "xaxis.type": on ? "log" : "linear", "xaxis.autorange": true });
    });
  }
  // Text that a spreadsheet would run as a formula gets an apostrophe; numbers are left as they are.
  const cell = (text) => {
    const risky = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) && !/^-?[\d.,]+$/.test(text);
    const safe = risky ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const saveNumbers = (name) => {
    const table = document.querySelector(`[data-numbers="${name}"]`);
    const lines = [...table.rows].map((row) => [...row.cells].map((one) => cell(one.textContent)).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const saveImage = (name, format) => {
    const box = drawn.get(name);
    const layout = { ...box.layout, "paper_bgcolor": colour("--card"), title: { text: box.dataset.title } };
    const size = { width: box.clientWidth, height: box.clientHeight + 30 };
    return Plotly.downloadImage({ data: box.data, layout: { ...layout, margin: { ...layout.margin, t: 66 } } },
      { format, filename: name, scale: format === "png" ? 2 : 1, ...size });
  };
  for (const button of document.querySelectorAll("[data-save]")) {
    const { save, form } = button.dataset;
    button.addEventListener("click", () => form === "csv" ? saveNumbers(save) : saveImage(save, form));
  }
  const copy = document.getElementById("copy");
  if (copy) {
    copy.addEventListener("click", async () => {
      const text = document.getElementById("command").textContent;
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(document.getElementById("command"));
        copy.textContent = "selected";
      }
    });
  }
})();
