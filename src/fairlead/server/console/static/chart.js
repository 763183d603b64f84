// Charts: each element with data-chart holds its numbers; a live update with new numbers redraws it.
"use strict";
(() => {
  const drawn = new WeakMap(), FONT = "12px system-ui";
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const whole = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6];

  // in the reader's format and the chart's zone
  function formats(zone) {
    const html = document.documentElement.dataset, timeZone = zone || html.timezone || undefined, hourCycle = html.hourCycle || undefined;
    const format = (fields) => new Intl.DateTimeFormat(undefined, { ...fields, timeZone, hourCycle });
    const day = { month: "short", day: "numeric" }, clock = { hour: "2-digit", minute: "2-digit" };
    return { hour: format(clock), day: format(day), month: format({ month: "short", year: "numeric" }), both: format({ ...day, ...clock }) };
  }
  const isMonth = (step) => step >= 28 * 86400, isDay = (step) => step >= 23 * 3600;  // the day on which clocks go forward is shorter

  // the times of the axis: hours, or days where the steps are that long
  function labels({ hour, day, month }) {
    return (_, splits, __, ___, step) => {
      let last = null;
      return splits.map((at) => {
        const when = new Date(at * 1e3), date = day.format(when);
        if (isMonth(step)) return month.format(when);
        if (isDay(step)) return date;
        const text = date === last ? hour.format(when) : `${hour.format(when)}\n${date}`;
        last = date;
        return text;
      });
    };
  }

  // each series is drawn from the top of the pile down: the bar of the last is behind the others
  const stack = ([times, ...rows]) => {
    const piles = [];
    for (const row of rows) piles.push(row.map((value, at) => (value || 0) + (piles.at(-1)?.[at] || 0)));
    return [times, ...piles.reverse().map((pile) => pile.map((value) => value || null))];
  };

  // half of the last label is beside the axis
  function halfOfLabel({ hour, month }) {
    const pen = document.createElement("canvas").getContext("2d"), at = new Date(2026, 10, 28, 22);
    pen.font = FONT;
    return Math.ceil(Math.max(...[hour, month].map((one) => pen.measureText(one.format(at)).width)) / 2) + 4;
  }

  // The time and the values of the bar under the cursor
  function readout(plot, times) {
    const box = document.createElement("div"), colors = plot.dataset.series.split(","), names = (plot.dataset.names || plot.dataset.series).split(","), unit = plot.dataset.unit || "";
    const line = (parts) => { const row = document.createElement("div"); row.append(...parts); return row; };
    const swatch = (color) => { const mark = document.createElement("span"); mark.className = "swatch"; mark.style.background = token(color); return mark; };
    box.className = "readout";
    return (chart) => {
      const { idx, left } = chart.cursor, [starts, ...rows] = JSON.parse(plot.dataset.chart);
      if (!box.parentElement) chart.over.append(box);
      box.hidden = idx === null || idx === undefined || left < 0 || idx >= starts.length;
      if (box.hidden) return;
      const step = starts.length > 1 ? starts[1] - starts[0] : 0, format = isMonth(step) ? times.month : isDay(step) ? times.day : times.both;
      const value = (number) => `${(number || 0).toLocaleString(undefined, { maximumFractionDigits: 2 })}${unit && ` ${unit}`}`;
      box.replaceChildren(line([format.format(new Date(starts[idx] * 1e3))]), ...rows.slice(0, names.length).map((row, at) => line([swatch(colors[at]), `${names[at]} ${value(row[idx])}`])));
      const far = left > chart.over.clientWidth / 2;
      box.style.left = far ? "auto" : `${left + 12}px`;
      box.style.right = far ? `${chart.over.clientWidth - left + 12}px` : "auto";
    };
  }

  function options(plot, width) {
    const names = plot.dataset.series.split(","), zone = plot.dataset.zone, inZone = zone || document.documentElement.dataset.timezone, fractions = "fractions" in plot.dataset, times = formats(zone);
    const axis = { stroke: token("quiet"), grid: { stroke: token("line"), width: 1 }, ticks: { show: false }, font: FONT };
    const bars = uPlot.paths.bars({ size: [0.7, 40], radius: 0.15 });
    return {
      width, height: 150, padding: [8, halfOfLabel(times), 0, 0],
      cursor: { y: false, points: { show: false } }, legend: { show: false }, hooks: { setCursor: [readout(plot, times)] },
      // days and months begin in the report's time zone
      ...(inZone && { tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), inZone) }),
      // or the outermost bars would be cut in half
      scales: { x: { range: ({ data: [starts] }, low, high) => { const half = (starts.length > 1 ? starts[1] - starts[0] : 3600) / 2; return [low - half, high + half]; } }, y: { range: (_, low, high) => [0, fractions ? high * 1.05 || 1 : Math.max(high, 4)] } },
      axes: [{ ...axis, space: 84, values: labels(times) }, { ...axis, size: (_, labels) => Math.max(44, ...(labels || []).map((one) => 16 + 7 * one.length)), values: (_, splits) => splits.map((value) => value.toLocaleString()), ...(fractions ? {} : { incrs: whole }) }],
      series: [{}, ...names.toReversed().map((name) => ({ label: name, stroke: token(name), fill: token(name), paths: bars, points: { show: false } }))],
    };
  }

  function draw(plot) {
    const text = plot.dataset.chart, known = drawn.get(plot);
    const theme = token("succeeded");
    if (known && known.text === text && known.theme === theme) return;
    const canvas = plot.querySelector(".canvas"), numbers = stack(JSON.parse(text));
    if (known && known.theme === theme) {
      known.chart.setData(numbers);
      known.text = text;
      return;
    }
    if (known) known.chart.destroy();
    plot.chart = new uPlot(options(plot, canvas.clientWidth), numbers, canvas);
    drawn.set(plot, { text, theme, chart: plot.chart });
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
