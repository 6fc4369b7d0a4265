// SPDX-License-Identifier: Apache-2.0
// The page of times: selects machine, collective, ranks and memory from speed.js, draws time over bytes and writes the table.
// speed.js has the file docs/results/speed.json, whose format is in bench/results/make_pages.py.
"use strict";

const COLOURS = 10; // --line-0 ... of site.css
const MEMORIES = {malloc: "malloc", huge: "malloc, huge pages", twill_alloc: "twill_alloc", heap: "TWILL_HEAP=shared"};
const form = document.getElementById("compare");
const times = speed.rows.map((row) => Object.fromEntries(speed.columns.map((column, i) => [column, row[i]])));
const hidden = new Set(Object.keys(speed.contenders).filter((key) => speed.contenders[key].kind === "bound" || speed.contenders[key].tuned));
const chosen = {};
const element = (name, attributes = {}, ...children) => {
    const svg = ["svg", "path", "line", "text", "circle", "g", "title"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes))
        made.setAttribute(key, value);
    made.append(...children);
    return made;
};
const bytesText = (bytes) => bytes < 1024 ? `${bytes}` : bytes < 1 << 20 ? `${bytes / 1024} Ki` : bytes < 1 << 30 ? `${bytes / (1 << 20)} Mi` : `${bytes / (1 << 30)} Gi`;
const timeText = (us) => us.toLocaleString("en", {maximumSignificantDigits: 3});
const isTwill = (key) => speed.contenders[key].kind === "twill";

// The values of a field among the times that fit what is chosen before it; the memory is that of twill's buffers.
const FIELDS = {
    machine: {label: "Machine", text: (key) => speed.machines[key].title},
    collective: {label: "Collective", text: (key) => key.replace(/_in$/, ", in place").replace(/_out$/, ", out of place").replace(/_/g, " ")},
    ranks: {label: "Ranks", text: String},
    memory: {label: "Memory of twill's buffers", text: (key) => MEMORIES[key] || key},
};

function choices(field) {
    const before = Object.keys(FIELDS).slice(0, Object.keys(FIELDS).indexOf(field));
    const fitting = times.filter((time) => before.every((name) => String(time[name]) === chosen[name]) && (field !== "memory" || isTwill(time.contender)));
    return [...new Set(fitting.map((time) => String(time[field])))];
}

function fillSelects() {
    for (const [field, {text}] of Object.entries(FIELDS)) {
        const values = choices(field), select = form.elements[field];
        chosen[field] = values.includes(chosen[field]) ? chosen[field] : values[0];
        select.replaceChildren(...values.map((value) => element("option", {value}, text(value))));
        select.value = chosen[field];
    }
}

function series() {
    const found = new Map();
    for (const time of times)
        if (["machine", "collective", "ranks"].every((field) => String(time[field]) === chosen[field]) &&
            (!isTwill(time.contender) || time.memory === chosen.memory))
            found.set(time.contender, [...(found.get(time.contender) || []), time]);
    for (const line of found.values())
        line.sort((a, b) => a.bytes - b.bytes);
    return found;
}

// A plot with logarithmic axes, as wide as the page.
function plot(lines, colourOf) {
    const points = [...lines.values()].flat().filter((time) => time.bytes > 0);
    const width = Math.max(300, Math.min(900, form.clientWidth)), height = Math.round(Math.max(280, width * 0.5));
    const svg = element("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Time over bytes; the table below has the numbers"});
    if (!points.length)
        return element("p", {}, "Nothing to draw.");
    const left = 58, right = 26, top = 12, bottom = 44;
    const xs = points.map((time) => Math.log2(time.bytes)), ys = points.map((time) => Math.log10(time.median));
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.floor(Math.min(...ys)), Math.ceil(Math.max(...ys))];
    const x = (bytes) => left + (Math.log2(bytes) - x0) / (x1 - x0 || 1) * (width - left - right);
    const y = (us) => height - bottom - (Math.log10(us) - y0) / (y1 - y0 || 1) * (height - top - bottom);
    for (let power = y0; power <= y1; power++)
        svg.append(element("line", {class: "grid", x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power)}),
                   element("text", {x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end"}, (10 ** power).toLocaleString("en")));
    const sizes = [...new Set(points.map((time) => time.bytes))].sort((a, b) => a - b);
    let last = -Infinity;
    for (const bytes of sizes) {
        svg.append(element("line", {class: "grid", x1: x(bytes), x2: x(bytes), y1: top, y2: height - bottom}));
        if (x(bytes) - last > 46) {
            svg.append(element("text", {x: x(bytes), y: height - bottom + 18, "text-anchor": "middle"}, bytesText(bytes)));
            last = x(bytes);
        }
    }
    svg.append(element("text", {x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle"}, "bytes"),
               element("text", {transform: `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, "microseconds"));
    for (const [key, line] of lines) {
        const drawn = line.filter((time) => time.bytes > 0);
        const group = element("g", {class: speed.contenders[key].kind, style: `--line: ${colourOf(key)}`});
        group.append(element("path", {d: drawn.map((time, i) => `${i ? "L" : "M"}${x(time.bytes).toFixed(1)} ${y(time.median).toFixed(1)}`).join("")}));
        for (const time of drawn)
            group.append(element("circle", {cx: x(time.bytes), cy: y(time.median), r: 3.5},
                                 element("title", {}, `${speed.contenders[key].title}, ${bytesText(time.bytes)}: ${timeText(time.median)} us`)));
        svg.append(group);
    }
    return svg;
}

function table(lines) {
    const keys = [...lines.keys()];
    const head = element("tr", {}, ...["bytes", ...keys.map((key) => speed.contenders[key].title)].map((text) => element("th", {scope: "col"}, text)));
    const sizes = [...new Set([...lines.values()].flat().map((time) => time.bytes))].sort((a, b) => a - b);
    const body = sizes.map((bytes) => {
        const medians = keys.map((key) => (lines.get(key).find((time) => time.bytes === bytes) || {}).median);
        const best = Math.min(...medians.filter((median, i) => median !== undefined && speed.contenders[keys[i]].kind !== "bound"));
        return element("tr", {}, element("th", {scope: "row"}, bytesText(bytes)), ...medians.map((median) =>
            element("td", median === best ? {class: "best"} : {}, median === undefined ? "" : timeText(median))));
    });
    return element("table", {class: "docutils"}, element("caption", {}, "Microseconds a call. Bold: the shortest."), element("thead", {}, head), element("tbody", {}, ...body));
}

function draw() {
    fillSelects();
    const all = series();
    const rank = (key) => ["twill", "peer", "bound"].indexOf(speed.contenders[key].kind) + (speed.contenders[key].tuned ? 0.5 : 0);
    const order = [...all.keys()].sort((a, b) => rank(a) - rank(b));
    const colourOf = (key) => `var(--line-${order.indexOf(key) % COLOURS})`;
    const shown = new Map(order.filter((key) => !hidden.has(key)).map((key) => [key, all.get(key)]));
    document.getElementById("compare-legend").replaceChildren(element("legend", {}, "Shown"), ...order.map((key) => {
        const box = element("input", {type: "checkbox", value: key});
        box.checked = !hidden.has(key);
        const memory = all.get(key)[0].memory;
        const label = speed.contenders[key].title + (isTwill(key) || memory === "malloc" ? "" : ` (${MEMORIES[memory] || memory})`);
        return element("label", {style: `--line: ${colourOf(key)}`}, box, element("span", {class: "swatch"}), label);
    }));
    document.getElementById("compare-plot").replaceChildren(plot(shown, colourOf));
    document.getElementById("compare-table").replaceChildren(table(shown));
    const machine = speed.machines[chosen.machine];
    document.getElementById("compare-machine").textContent = `${[machine.processor, machine.cores && `${machine.cores} cores`, machine.kernel, machine.date, machine.revision]
        .filter((fact) => fact).join(", ")}. Command: ${machine.command}`;
    history.replaceState(null, "", `#${new URLSearchParams(chosen)}`);
}

Object.assign(chosen, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
form.append(element("fieldset", {class: "selects"}, ...Object.entries(FIELDS).map(([name, {label}]) => element("label", {}, label, element("select", {name})))),
            element("div", {id: "compare-plot"}), element("fieldset", {id: "compare-legend"}), element("p", {id: "compare-machine"}),
            element("div", {id: "compare-table", class: "table-wrapper", "aria-live": "polite"}));
form.addEventListener("change", (event) => {
    if (event.target.name in FIELDS)
        chosen[event.target.name] = event.target.value;
    else
        hidden[event.target.checked ? "delete" : "add"](event.target.value);
    draw();
    if (event.target.type === "checkbox") // it was made anew
        [...form.querySelectorAll("input")].find((box) => box.value === event.target.value).focus();
});
let drawn = 0; // width; a phone's window also changes its height while one scrolls
const drawAgain = () => {
    if (form.clientWidth !== drawn)
        draw();
    drawn = form.clientWidth;
};
window.addEventListener("resize", drawAgain);
drawAgain();
