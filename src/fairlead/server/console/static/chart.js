// Charts: each element with data-chart holds its numbers; a live update with new numbers redraws it.
"use strict";
(() => {
  const drawn = new WeakMap();
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const whole = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6];

  function options(plot, width) {
    const names = plot.dataset.series.split(","), zone = plot.dataset.zone, fractions = "fractions" in plot.dataset;
    const axis = { stroke: token("quiet"), grid: { stroke: token("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const bars = uPlot.paths.bars({ size: [0.7, 40], radius: 0.15 });
    return {
      width, height: 150, padding: [8, 8, 0, 0],
      cursor: { y: false, points: { show: false } }, legend: { show: false },
      // days and months begin in the report's time zone
      ...(zone && { tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), zone) }),
      scales: { y: { range: (_, low, high) => [0, fractions ? high * 1.05 || 1 : Math.max(high, 4)] } },
      axes: [axis, { ...axis, size: (_, labels) => Math.max(44, ...(labels || []).map((one) => 16 + 7 * one.length)), ...(fractions ? {} : { incrs: whole }) }],
      series: [{}, ...names.map((name) => ({ label: name, stroke: token(name), fill: token(name) + "b0", paths: bars, points: { show: false } }))],
    };
  }

  function draw(plot) {
    const text = plot.dataset.chart, known = drawn.get(plot);
    const theme = token("succeeded");
    if (known && known.text === text && known.theme === theme) return;
    const canvas = plot.querySelector(".canvas"), numbers = JSON.parse(text).map((row, at) => at ? row.map((one) => one || null) : row);
    if (known && known.theme === theme) {
      known.chart.setData(numbers);
      known.text = text;
      return;
    }
    if (known) known.chart.destroy();
    drawn.set(plot, { text, theme, chart: new uPlot(options(plot, canvas.clientWidth), numbers, canvas) });
  }

  const all = () => document.querySelectorAll("[data-chart]").forEach(draw);
  document.addEventListener("DOMContentLoaded", all);
  document.addEventListener("fairlead:refreshed", all);
  document.addEventListener("fairlead:theme", all);
  addEventListener("resize", () => document.querySelectorAll("[data-chart]").forEach((plot) => {
    const known = drawn.get(plot);
    if (known) known.chart.setSize({ width: plot.querySelector(".canvas").clientWidth, height: 150 });
  }));
})();
