"use strict";
// Draws every chart of the page with Plotly, in the colours of the style sheet, and again when these change.
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // A chart's data and layout, as in the page.
  const figureOf = (element, reviver) => JSON.parse(element.querySelector("script").textContent, reviver);

  // A value for Plotly: colours are the names of custom properties, and text is shown as it is. Plotly would draw
  // markup in a name as such, links among it; it turns entities into characters last.
  const drawn = (_, value) => {
    if (typeof value !== "string") return value;
    const name = /^var\((--[a-z]+)\)$/.exec(value);
    return name ? colour(name[1]) : value.replace(/[&<>]/g, (mark) => `&#${mark.charCodeAt(0)};`);
  };

  // What can be read on a bar of a colour, #rrggbb: dark on those whose relative luminance (WCAG) is above 0.179.
  const readableOn = (bar) => {
    const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(bar.slice(at, at + 2), 16) / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#0d1015" : "#ffffff";
  };

  const theme = () => {
    const axis = {
      gridcolor: colour("--rule"), linecolor: colour("--soft"), zeroline: false, automargin: true, showline: true,
      title: { standoff: 8 },
    };
    return {
      layout: {
        font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--soft") },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        margin: { l: 8, r: 12, t: 8, b: 8 },
        xaxis: axis, yaxis: axis, bargap: 0.2, uniformtext: { mode: "hide", minsize: 8 },
        legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom" },
        hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--rule"), font: { color: colour("--ink") } },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--grey"), activecolor: colour("--ink") },
        annotationdefaults: { font: { color: colour("--ink") } },
      },
      data: {
        bar: [{
          textposition: "inside", insidetextanchor: "middle", textangle: 0, constraintext: "inside",
          insidetextfont: { size: 10 }, marker: { line: { width: 0.5, color: colour("--page") } },
        }],
      },
    };
  };

  // Every value of a chart, a line each: series, both axes, where a bar begins, and what it says.
  const csv = ({ data, layout: { xaxis, yaxis } }) => {
    const label = (axis) => axis.title?.text || "name";
    const named = (axis, at) => axis.ticktext?.[Math.round(at)] ?? at;  // bars may lie beside their row's middle
    const lines = [["series", label(xaxis), label(yaxis), "begins at", "note"]];
    for (const { name, x, y, base, hovertext } of data) {
      x.forEach((at, i) => lines.push([name, named(xaxis, at), named(yaxis, y[i]), base?.[i], hovertext?.[i]]));
    }
    // No text is, in any spreadsheet, a formula: as cell() of fanin/base/printable.py.
    const formula = /(?:^|(?<=[;,|\t\r\n]))(?=[\s"']{0,64}[=+\-@＝＋－＠]|[\s"']{65})|^(?=[\t\r])/g;
    const safe = (value) => typeof value === "number" ? String(value) : String(value ?? "").replace(formula, "'");
    const cell = (value) => `"${safe(value).replaceAll('"', '""')}"`;
    return lines.map((line) => line.map(cell).join(",")).join("\r\n");
  };

  const download = (text, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  const button = (name, title, icon, click) => ({ name, title, icon: Plotly.Icons[icon], click });

  const draw = (element) => {
    const { data, layout } = figureOf(element, drawn);
    const name = element.getAttribute("aria-label");
    const picture = (format) => (chart) => Plotly.downloadImage(chart, { format, filename: name, scale: 2 });
    const save = [
      button("svg", "Save as SVG", "camera", picture("svg")),
      button("png", "Save as PNG", "camera-retro", picture("png")),
      button("csv", "Save the data as CSV", "disk", () => download(csv(figureOf(element)), `${name}.csv`)),
    ];
    const zoom = ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];
    layout.template = theme();
    for (const series of data.filter(({ text }) => text)) {
      series.insidetextfont = { color: readableOn(series.marker.color) };
    }
    const plot = element.querySelector("div");
    Plotly.react(plot, data, layout, { responsive: true, displaylogo: false, modeBarButtons: [zoom, save] });
  };

  const drawAll = () => document.querySelectorAll("figure.chart").forEach(draw);
  drawAll();
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {  // paper is light
    matchMedia(query).addEventListener("change", drawAll);
  }
})();
