// Script of the report page: values under the pointer on charts, and the browser of completions. Texts from models and
// data sets are only set as text, never as markup.
"use strict";

const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
const figure = (value, digits = 3) =>
  value === null || value === undefined ? "–" : String(Number(value.toFixed(digits))).replace("-", "−");
const counted = (number) => number.toLocaleString("en-US");

// ── Figures ────────────────────────────────────────────────────────────────────────────────────────────────────────

function addReadout(svg) {
  const { box: [left, right, top, bottom], range: [low, high], unit, lines } = JSON.parse(svg.dataset.readout);
  const holder = svg.closest("figure");
  const rule = element("div", "rule"), tip = element("div", "tip");
  rule.hidden = tip.hidden = true;
  holder.append(rule, tip);
  const nearest = (steps, step) => {
    let best = 0;
    steps.forEach((other, place) => { if (Math.abs(other - step) < Math.abs(steps[best] - step)) best = place; });
    return best;
  };
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect(), frame = holder.getBoundingClientRect();
    const share = ((event.clientX - area.left) / area.width - left) / (right - left);
    if (share < -0.02 || share > 1.02) return leave();
    const wanted = low + share * (high - low);
    const first = lines[0][1], step = first[nearest(first, wanted)];
    const gap = first.length > 1 ? (first[first.length - 1] - first[0]) / (first.length - 1) : 1;
    tip.replaceChildren(element("b", "", `step ${figure(step, 1)}`));
    for (const [label, steps, values] of lines) {
      const place = nearest(steps, step);
      if (Math.abs(steps[place] - step) <= gap) {
        tip.append(element("div", "", `${label}: ${figure(Number(values[place].toPrecision(4)), 6)}${unit}`));
      }
    }
    const x = area.left - frame.left + area.width * (left + ((step - low) / (high - low)) * (right - left));
    rule.style.cssText = `left:${x}px;top:${area.top - frame.top + top * area.height}px;height:${(bottom - top) * area.height}px`;
    rule.hidden = tip.hidden = false;
    const room = frame.width - tip.offsetWidth - 4;
    tip.style.cssText = `left:${Math.max(0, Math.min(room, x + 12))}px;top:${area.top - frame.top + bottom * area.height + 4}px`;
  });
  const leave = () => { rule.hidden = tip.hidden = true; };
  svg.addEventListener("pointerleave", leave);
}

// ── Completions ────────────────────────────────────────────────────────────────────────────────────────────────────

const BASE = -2, TRAINED = -1, AT_A_TIME = 100;
const stageName = (stage) => (stage === BASE ? "base, held out" : stage === TRAINED ? "trained, held out" : `step ${stage}`);

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

class Browser {
  constructor(data, run) {
    Object.assign(this, { data, run, found: [], drawn: 0, at: -1 });
    [this.filters, this.list, this.detail, this.status] = ["filters", "list", "detail", "found"].map((id) => document.getElementById(id));
    data.turns.forEach((turns, row) => { if (turns) data.text[row] = turns.map((turn) => turn[1]).join("\n"); });
    this.searched = new Array(data.text.length);
    this.ofPrompt = data.prompts.map(() => []);
    data.prompt.forEach((prompt, row) => this.ofPrompt[prompt].push(row));
    data.rewards.forEach((name, place) => {
      const option = element("option", "", name);
      option.value = String(place);
      this.filters.elements.reward.append(option);
    });
    this.filters.addEventListener("input", (event) => this.filterSoon(event.target.type === "search" ? 150 : 0));
    this.filters.addEventListener("submit", (event) => event.preventDefault());
    this.filters.addEventListener("reset", () => this.filterSoon(0));
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) this.show(Number(item.dataset.place));
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.filters.elements.search.addEventListener("keydown", (event) => {
      if (!["ArrowDown", "ArrowUp", "Enter"].includes(event.key)) return;
      clearTimeout(this.timer);
      this.filter(); // the typed text may still wait for its filter
      this.list.focus();
      this.key(event);
    });
    this.list.addEventListener("scroll", () => {
      if (this.list.scrollTop + this.list.clientHeight > this.list.scrollHeight - 300) this.draw();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
        event.preventDefault();
        this.filters.elements.search.focus();
      }
    });
    this.filter();
  }

  filterSoon(after) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.filter(), after);
  }

  // The value of the chosen reward, or the total.
  value(row) {
    const which = this.filters.elements.reward.value;
    return which === "total" ? this.data.total[row] : this.data.values[row][Number(which)];
  }

  haystack(row) {
    return (this.searched[row] ??= [
      this.data.text[row], this.data.cut[row],
      ...this.data.prompts[this.data.prompt[row]].map((message) => message[1]),
      ...this.data.columns[row].map((column) => column[1]),
    ].join("\n").toLowerCase());
  }

  // Whether most answers to a prompt are right at one end and wrong at the other.
  changed(prompt) {
    const [before, after] = this.ends(prompt);
    const share = (rows) => rows.reduce((sum, row) => sum + (this.data.right[row] || 0), 0) / rows.length;
    return after.length > 0 && this.data.stage[before[0]] !== this.data.stage[after[0]] && (share(before) >= 0.5) !== (share(after) >= 0.5);
  }

  filter() {
    const wanted = Object.fromEntries(new FormData(this.filters));
    const number = (text, otherwise) => (text === "" || Number.isNaN(Number(text)) ? otherwise : Number(text));
    const from = number(wanted.from, -Infinity), to = number(wanted.to, Infinity);
    const low = number(wanted.low, -Infinity), high = number(wanted.high, Infinity);
    const bounded = wanted.low !== "" || wanted.high !== "", stepped = wanted.from !== "" || wanted.to !== "";
    const search = wanted.search.trim().toLowerCase();
    const { stage, right, prompt } = this.data;
    const kinds = { all: () => true, training: (at) => at >= 0, base: (at) => at === BASE, trained: (at) => at === TRAINED };
    const answers = { any: () => true, right: (value) => value === 1, wrong: (value) => value === 0, unjudged: (value) => value === null };
    const several = { all: () => true, several: (at) => new Set(this.ofPrompt[at].map((row) => stage[row])).size > 1, changed: (at) => this.changed(at) };
    const ofPrompt = this.data.prompts.map((_, at) => several[wanted.prompts](at));
    this.found = [];
    for (let row = 0; row < stage.length; row++) {
      if (!kinds[wanted.kind](stage[row]) || !answers[wanted.right](right[row]) || !ofPrompt[prompt[row]]) continue;
      if (stepped && (stage[row] < 0 || stage[row] < from || stage[row] > to)) continue;
      const value = this.value(row);
      if (bounded && (value === null || value < low - 1e-9 || value > high + 1e-9)) continue;
      if (search && !this.haystack(row).includes(search)) continue;
      this.found.push(row);
    }
    const by = (key) => this.found.sort((one, other) => key(one) - key(other) || one - other);
    const least = (row) => this.value(row) ?? Infinity, most = (row) => -(this.value(row) ?? -Infinity);
    const length = (row) => this.data.text[row].length;
    ({ came: () => {}, lowest: () => by(least), highest: () => by(most), longest: () => by((row) => -length(row)), shortest: () => by(length) })[wanted.order]();
    this.list.replaceChildren();
    this.drawn = 0;
    this.at = -1;
    const judged = this.found.filter((row) => right[row] !== null);
    const rights = judged.filter((row) => right[row] === 1).length;
    this.status.textContent = this.found.length === 0
      ? "No completion matches."
      : `${counted(this.found.length)} of ${counted(stage.length)} completions` + (judged.length ? `; ${counted(rights)} of them right (${((100 * rights) / judged.length).toFixed(1)} %).` : ".");
    this.draw();
    this.list.scrollTop = 0;
    if (this.found.length) this.show(0, false); else this.detail.replaceChildren();
  }

  draw() {
    const until = Math.min(this.found.length, this.drawn + AT_A_TIME);
    for (; this.drawn < until; this.drawn++) {
      const row = this.found[this.drawn], item = element("li");
      item.id = `found-${this.drawn}`;
      item.dataset.place = this.drawn;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", "false");
      const head = element("div", "head");
      head.append(this.mark(row), element("span", "", stageName(this.data.stage[row])), element("span", "value", figure(this.value(row))));
      // The last line with a letter or digit: an answer is at the end, but may be followed by the end of a code block.
      const line = this.data.text[row].split("\n").findLast((text) => /[\p{L}\p{N}]/u.test(text)) ?? "";
      item.append(head, element("div", "line", line.trim().slice(-160) || "(empty)"));
      this.list.append(item);
    }
  }

  mark(row) {
    const right = this.data.right[row];
    if (right === null) return element("span", "mark", "not judged");
    return element("span", right ? "mark better" : "mark worse", right ? "✓ right" : "✗ wrong");
  }

  key(event) {
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || !this.found.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const last = this.found.length - 1;
    this.show(Math.max(0, Math.min(event.key === "End" ? Math.min(last, this.drawn - 1 + AT_A_TIME) : last, this.at + moves[event.key])));
  }

  show(place, scroll = true) {
    while (this.drawn <= place && this.drawn < this.found.length) this.draw();
    this.list.querySelector('[aria-selected="true"]')?.setAttribute("aria-selected", "false");
    const item = this.list.children[place];
    item.setAttribute("aria-selected", "true");
    this.list.setAttribute("aria-activedescendant", item.id);
    if (scroll) item.scrollIntoView({ block: "nearest" });
    this.at = place;
    this.describe(this.found[place]);
  }

  describe(row) {
    const { data } = this;
    const group = this.ofPrompt[data.prompt[row]].filter((other) => data.stage[other] === data.stage[row]);
    const title = element("h3", "", stageName(data.stage[row]).replace(/^./, (letter) => letter.toUpperCase()));
    if (group.length > 1) title.append(element("span", "quiet", ` completion ${group.indexOf(row) + 1} of ${group.length}`));
    title.append(" ", this.mark(row));
    if (data.cut[row]) title.append(" ", element("span", "mark unclear", data.cut[row]));
    const prompt = element("details", "messages");
    prompt.open = true;
    prompt.append(element("summary", "", "Prompt"));
    prompt.append(...this.texts(data.prompts[data.prompt[row]]));
    const length = data.tokens[row] === null ? `${counted(data.text[row].length)} characters` : `${counted(data.tokens[row])} tokens`;
    this.detail.replaceChildren(title, prompt, element("h4", "", `Completion, ${length}`), ...this.completion(row), this.rewards(row), ...this.columns(row), ...this.sides(row));
    this.detail.scrollTop = 0;
  }

  // The completion's text, or its messages, calls and results.
  completion(row) {
    return this.texts(this.data.turns[row] || [["", this.data.text[row]]]);
  }

  texts(pairs) {
    return pairs.flatMap(([label, text]) => {
      const made = element("pre", /(^|, )call\b|^result of /.test(label) ? "tool" : "", text || "(empty)");
      made.dir = "auto";
      return label ? [element("div", "role", label), made] : [made];
    });
  }

  rewards(row) {
    const { data } = this, list = element("div", "explanations");
    data.rewards.forEach((name, place) => {
      const weight = data.weights[place];
      const head = element("p");
      head.append(element("b", "", `${name} ${figure(data.values[row][place])}`), element("span", "quiet", weight === null ? "" : ` × ${figure(weight)}`));
      list.append(head);
    });
    const sum = element("p");
    sum.append(element("b", "", `total ${figure(data.total[row])}`));
    if (data.advantage[row] !== null) sum.append(element("span", "quiet", `, advantage ${figure(data.advantage[row])}`));
    list.append(sum);
    const kind = { [BASE]: "/completions/evaluation_base.parquet", [TRAINED]: "/completions/evaluation_trained.parquet" }[data.stage[row]] ?? "";
    const hint = element("p", "quiet", "Explain: ");
    hint.append(element("code", "", `python scripts/score.py --config ${this.run}/recipe.yaml ${this.run}${kind} --why ${data.number[row]}`));
    list.append(hint);
    return list;
  }

  columns(row) {
    if (!this.data.columns[row].length) return [];
    const list = element("dl");
    for (const [name, text] of this.data.columns[row]) list.append(element("dt", "", name), element("dd", "", text));
    return [list];
  }

  // The completions to compare: base and trained of a held-out prompt, else those of its first and its last step.
  ends(prompt) {
    const rows = this.ofPrompt[prompt], { stage } = this.data;
    const at = (wanted) => rows.filter((row) => stage[row] === wanted);
    if (at(BASE).length && at(TRAINED).length) return [at(BASE), at(TRAINED)];
    const steps = rows.map((row) => stage[row]).filter((step) => step >= 0);
    if (!steps.length) return [rows, []];
    const first = Math.min(...steps), last = Math.max(...steps);
    return first === last ? [at(first), []] : [at(first), at(last)];
  }

  sides(row) {
    let [before, after] = this.ends(this.data.prompt[row]);
    let title = "The same prompt: first and last";
    if (!after.length) {
      if (before.length < 2) return [];
      const sorted = [...before].sort((one, other) => (this.data.total[other] ?? 0) - (this.data.total[one] ?? 0));
      title = "The same prompt: best and worst of its group";
      [before, after] = [[sorted[0]], [sorted[sorted.length - 1]]];
    }
    const columns = element("div", "sides");
    columns.append(this.side(before, row), this.side(after, row));
    return [element("h3", "", title), columns];
  }

  side(rows, wanted) {
    const { data } = this, made = element("div", "answer"), title = element("h4"), body = element("div"), foot = element("p", "rewards");
    const judged = rows.filter((row) => data.right[row] !== null);
    made.append(title, body, foot);
    let place = Math.max(0, rows.indexOf(wanted));
    const show = () => {
      const row = rows[place];
      title.replaceChildren(element("span", "", stageName(data.stage[row])), " ", this.mark(row));
      body.replaceChildren(...this.completion(row));
      foot.textContent = data.rewards.map((name, at) => `${name} ${figure(data.values[row][at])}`).join(" · ");
      if (rows.length > 1) {
        const turn = (by, label, name) => {
          const button = element("button", "", label);
          button.type = "button";
          button.setAttribute("aria-label", name);
          button.addEventListener("click", () => { place = (place + by + rows.length) % rows.length; show(); made.querySelectorAll("button")[by > 0 ? 1 : 0].focus(); });
          return button;
        };
        const pager = element("span", "pager");
        pager.append(turn(-1, "‹", "previous completion"), ` ${place + 1} of ${rows.length} `, turn(1, "›", "next completion"));
        title.append(" ", pager);
        foot.append(element("span", "quiet", `${foot.textContent ? " · " : ""}${judged.filter((one) => data.right[one] === 1).length} of ${judged.length} right at this step`));
      }
    };
    show();
    return made;
  }
}

for (const svg of document.querySelectorAll("svg[data-readout]")) addReadout(svg);
const packed = document.getElementById("completions");
if (packed) {
  // After the first paint: unpacking many completions takes a moment.
  requestAnimationFrame(() => setTimeout(async () => {
    try {
      const data = await unpack(packed.textContent.trim());
      document.getElementById("browser").hidden = false;
      window.browser = new Browser(data, packed.dataset.run);
      document.getElementById("unpacking").hidden = true;
      document.documentElement.dataset.ready = "true";
    } catch (error) {
      document.getElementById("unpacking").textContent = `This browser can't unpack the completions (${error.message}). Open the page in a recent browser, or read the folder completions of the run.`;
    }
  }, 0));
} else {
  document.documentElement.dataset.ready = "true";
}
