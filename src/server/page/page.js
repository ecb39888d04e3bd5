// The page of `godwit serve`: a conversation, and a view of what the server does. Text from anywhere becomes text nodes,
// never markup, and nobody but this server is asked.
const $ = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const count = (n) => n.toLocaleString("en");
const percent = (share) => `${(100 * share).toFixed(share < 1 && share > 0 ? 1 : 0)}%`;
const seconds = (s) => `${s.toFixed(s < 10 ? 2 : 1)} s`;
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1024 && unit + 1 < units.length; ++unit) n /= 1024;
  return `${unit === 0 ? n : n.toFixed(1)} ${units[unit]}`;
}

// --- the server

function headers() {
  const all = { "Content-Type": "application/json" };
  if ($("key").value) all.Authorization = `Bearer ${$("key").value}`;
  return all;
}

// What the server said went wrong, as it said it.
function problem(error, status) {
  const parts = [status, error.code || error.type].filter(Boolean).join(" ");
  return new Error(parts ? `${parts}: ${error.message}` : error.message);
}

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(path, { headers: headers(), cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(`The server cannot be reached: ${error.message}`);
  }
  if (reply.ok) return reply;
  const text = await reply.text();
  let error = { message: text || reply.statusText };
  try {
    error = JSON.parse(text).error ?? error;
  } catch {} // not JSON: shown as it is
  throw Object.assign(problem(error, reply.status), { status: reply.status });
}

async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// --- text with code in it: ``` blocks, `code` and **bold**; all else stays as it is

function render(text) {
  const parts = [];
  text.split(/^```/m).forEach((part, i) => {
    if (i % 2 === 1) {
      const line = part.indexOf("\n");
      parts.push(element("pre", {}, element("code", {}, line < 0 ? "" : part.slice(line + 1))));
    } else if (part.trim()) {
      parts.push(prose(i > 0 ? part.replace(/^\n/, "") : part));
    }
  });
  return parts;
}

function prose(text) {
  const box = element("div", { className: "prose" });
  for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (/^`[^`\n]+`$/.test(part)) box.append(element("code", {}, part.slice(1, -1)));
    else if (/^\*\*[^*\n]+\*\*$/.test(part)) box.append(element("strong", {}, part.slice(2, -2)));
    else box.append(part);
  }
  return box;
}

// --- the conversation

const conversation = []; // {role, content}
let files = []; // {name, size, text} of the next message
let running = null; // AbortController of the answer that is coming
let model; // what /status says of it

function showFiles() {
  $("files").replaceChildren(...files.map((file) => {
    const remove = element("button", { type: "button", textContent: "×", title: `Remove ${file.name}` });
    remove.onclick = () => { files = files.filter((other) => other !== file); showFiles(); };
    return element("li", {}, `${file.name} · ${bytes(file.size)}`, remove);
  }));
}

async function addFiles(list) {
  for (const file of list) {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new Error();
      files.push({ name: file.name, size: file.size, text });
      notice("");
    } catch {
      notice(`${file.name} is not a text in UTF-8`);
    }
  }
  showFiles();
  $("text").focus();
}

function addMessage(role, parts) {
  $("hint").hidden = true;
  const body = element("div", { className: "body" }, ...parts);
  const who = element("div", { className: "who" }, role === "user" ? "You" : "Godwit");
  const box = element("article", { className: `message ${role}` }, who, body);
  $("log").append(box);
  box.scrollIntoView({ block: "end" });
  return { box, body };
}

function setRunning(controller) {
  running = controller;
  $("stop").hidden = !controller;
  $("send").disabled = Boolean(controller);
  $("fresh").disabled = Boolean(controller);
}

// The answer as it grows: text, the bar of its prompt, and its figures.
class Answer {
  constructor() {
    Object.assign(this, addMessage("assistant", []));
    this.bar = element("progress", { max: 1, ariaLabel: "Prompt read" });
    this.wait = element("div", { className: "reading" }, "waiting", this.bar);
    this.figures = element("div", { className: "figures" });
    this.body.append(this.wait);
    this.box.append(this.figures);
    Object.assign(this, { text: "", tokens: 0, begin: performance.now() });
  }

  take(event) {
    if (event.error) throw problem(event.error);
    if (event.progress) this.progress = event.progress;
    if (event.usage) this.usage = event.usage;
    const choice = event.choices[0];
    if (choice?.delta?.content) {
      this.text += choice.delta.content;
      this.tokens += 1;
      this.last = performance.now();
      this.first ??= this.last;
    }
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    this.show();
  }

  // At most once a frame: tokens may come faster.
  show() {
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.draw(); });
  }

  draw() {
    const log = $("log"), follow = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    const p = this.progress;
    if (this.first || this.over) this.wait.remove();
    else if (p) {
      this.bar.max = p.prompt_tokens;
      this.bar.value = p.computed_tokens;
      this.wait.firstChild.data = `reading ${count(p.computed_tokens)} of ${count(p.prompt_tokens)} tokens`;
    }
    if (this.first) this.body.replaceChildren(...render(this.text));
    this.drawFigures();
    if (follow) log.scrollTop = log.scrollHeight;
  }

  drawFigures() {
    const list = [], p = this.progress;
    const add = (name, text) => list.push(element("span", { className: `figure-${name}` }, text));
    if (this.first) add("first", `first token ${seconds((this.first - this.begin) / 1000)}`);
    const tokens = this.usage?.completion_tokens ?? this.tokens;
    if (this.last > this.first) add("speed", `${((1000 * (tokens - 1)) / (this.last - this.first)).toFixed(1)} tokens/s`);
    if (tokens) add("tokens", `${count(tokens)} tokens`);
    if (p) {
      add("prompt", `prompt ${count(p.prompt_tokens)} tokens`);
      add("cached", `${count(this.usage?.prompt_tokens_details.cached_tokens ?? p.cached_tokens)} cached`);
      add("kv", `KV ${bytes(p.kv_bytes)}`);
      add("method", `${method(p.kv_policy, p.kv_budget)}, ${percent(p.kv_retained)} retained`);
    }
    if (this.finish === "length") add("finish", "ended at the limit of tokens");
    if (this.stopped) add("finish", "stopped");
    this.figures.replaceChildren(...list);
  }

  end(error) {
    this.over = true;
    cancelAnimationFrame(this.frame);
    if (error?.name === "AbortError") this.stopped = true;
    this.draw();
    if (error && !this.stopped) {
      this.body.append(element("p", { className: "error", role: "alert", textContent: error.message }));
    }
    this.box.scrollIntoView({ block: "end" });
  }
}

function method(policy, budget) {
  if (!model) return "KV method unknown";
  return policy ? `${model.kv.codec} with ${[policy, budget].filter(Boolean).join(" ")}` : `${model.kv.codec}, all entries`;
}

// What a request may choose of the KV method, where the operator lets it.
function showChoices(names) {
  if ($("policy").length > names.length) return; // they are there
  $("policy").append(...names.map((name) => element("option", {}, name)));
  document.querySelectorAll(".kv-choice").forEach((label) => { label.hidden = false; });
}

function body() {
  const temperature = $("temperature").valueAsNumber, most = $("most").valueAsNumber;
  const policy = $("policy").value, budget = $("budget").value.trim();
  return JSON.stringify({
    messages: conversation,
    stream: true,
    stream_options: { include_usage: true, include_progress: true },
    ...(Number.isNaN(temperature) ? {} : { temperature }),
    ...(Number.isNaN(most) ? {} : { max_tokens: most }),
    ...(policy ? { kv: { policy, ...(budget ? { budget } : {}) } } : {}),
  });
}

async function send() {
  const text = $("text").value.trim();
  if (running || (!text && !files.length)) return;
  const names = element("ul", { className: "files" }, ...files.map((f) => element("li", {}, `${f.name} · ${bytes(f.size)}`)));
  addMessage("user", [...(files.length ? [names] : []), ...render(text)]);
  conversation.push({ role: "user", content: [...files.map((file) => file.text.trimEnd()), text].join("\n\n") });
  const asked = { text: $("text").value, files };
  $("text").value = "";
  files = [], showFiles();
  const controller = new AbortController(), answer = new Answer();
  setRunning(controller);
  let failure;
  try {
    const reply = await ask("v1/chat/completions", { method: "POST", body: body(), signal: controller.signal });
    notice("");
    for await (const event of events(reply)) answer.take(event);
    if (!answer.finish) throw new Error("The connection ended before the answer did");
  } catch (error) {
    failure = error;
  }
  answer.end(failure);
  if (answer.text) conversation.push({ role: "assistant", content: answer.text });
  else { // nothing was answered: the question can be corrected and sent again
    conversation.pop();
    if (!$("text").value) $("text").value = asked.text;
    files = asked.files.concat(files), showFiles();
  }
  setRunning(null);
  $("text").focus();
}

$("ask").onsubmit = (event) => { event.preventDefault(); send(); };
$("text").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), send();
};
$("stop").onclick = () => running?.abort();
$("fresh").onclick = () => {
  conversation.length = 0;
  $("log").replaceChildren($("hint"));
  $("hint").hidden = false, $("text").focus();
};
$("choose").onchange = async () => { await addFiles([...$("choose").files]); $("choose").value = ""; };
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").hidden = false; });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").hidden = true;
  selectView("chat"), addFiles([...event.dataTransfer.files]);
});

// --- status

const kPoints = 120, speeds = [], uses = [];
let before; // {time, totals} of the last look

function plot(id, values, top) {
  if (values.length > kPoints) values.shift();
  const shown = values.map((value, i) => `${kPoints - values.length + i},${(39 - (38 * value) / (top || 1)).toFixed(1)}`);
  $(id).firstElementChild.setAttribute("points", shown.join(" "));
}

function requestRow(r) {
  const bar = element("progress", { max: r.prompt_tokens, value: r.computed_tokens, ariaLabel: "Prompt read" });
  const cells = [r.id, r.state, null, count(r.cached_tokens), count(r.completion_tokens), bytes(r.kv_bytes),
    method(r.kv_policy, r.kv_budget), percent(r.kv_retained), seconds(r.seconds)].map((text) => element("td", {}, text ?? bar));
  cells[2].append(` ${count(r.computed_tokens)} of ${count(r.prompt_tokens)}`);
  return element("tr", {}, ...cells);
}

function showStatus(s) {
  const now = performance.now() / 1000, t = s.totals;
  if (before && now - before.time < 10) { // else nobody looked meanwhile
    const passed = now - before.time, rate = (name) => Math.max(0, t[name] - before.totals[name]) / passed;
    speeds.push(rate("tokens_generated"));
    $("speed").textContent = `${speeds.at(-1).toFixed(1)} generated, ${rate("tokens_read").toFixed(0)} read`;
    const most = Math.max(...speeds);
    plot("speed-plot", speeds, most);
    $("speed-most").textContent = `most: ${most.toFixed(1)} generated`;
  }
  before = { time: now, totals: t };
  uses.push(s.kv.bytes_in_use);
  plot("kv-plot", uses, Math.max(...uses));
  $("kv-use").textContent = `${bytes(s.kv.bytes_in_use)} of ${bytes(s.kv.budget_bytes)}`;
  $("kv-bar").max = s.kv.budget_bytes || 1;
  $("kv-bar").value = s.kv.bytes_in_use;
  $("kv-method").textContent = `${method(s.kv.policy)}; ${percent(s.kv.retained)} retained; ${bytes(Math.round(s.kv.bytes_per_token))} per token`;
  $("totals").textContent = `${count(t.answered)} answered, ${count(t.cancelled)} cancelled, ${count(t.failed)} failed, ${count(t.refused)} refused`;
  const cache = s.prefix_cache;
  $("prefix-share").textContent = cache.asked_tokens ? `${percent(cache.found_tokens / cache.asked_tokens)} of prompts found` : "nothing asked yet";
  $("prefix-size").textContent = `${count(cache.blocks)} blocks, ${bytes(cache.bytes)}; ${cache.states ? `${count(cache.states)} states, ${bytes(cache.state_bytes)}; ` : ""}${count(cache.found_tokens)} of ${count(cache.asked_tokens)} tokens were there`;
  $("requests").replaceChildren(...s.requests.map(requestRow));
  const o = s.others, sum = o.waiting + o.reading + o.generating;
  $("others").textContent = sum
    ? `Others' requests: ${o.waiting} waiting, ${o.reading} reading, ${o.generating} generating`
    : s.requests.length ? "" : "No request is being answered.";
}

let timer;
// Once for the model's name; then again while the view is seen, or until the server is ready.
async function look() {
  clearTimeout(timer);
  const seen = () => !$("status").hidden && !document.hidden;
  let again = 1000;
  try {
    const s = await (await ask("status")).json();
    model = s;
    showChoices(s.kv.choices);
    $("model").textContent = s.model;
    showStatus(s);
    notice("");
    if (!seen()) return;
  } catch (error) {
    notice(error.message);
    if (error.status === 401) return; // until there is another key
    if (error.status !== 503) again = 3000;
  }
  clearTimeout(timer);
  timer = setTimeout(look, again);
}

// --- views, key, colours

function selectView(name) {
  for (const view of ["chat", "status"]) {
    const chosen = view === name;
    $(view).hidden = !chosen;
    $(`tab-${view}`).setAttribute("aria-selected", chosen);
    $(`tab-${view}`).tabIndex = chosen ? 0 : -1;
  }
  if (name === "status") look();
}
for (const [name, other] of [["chat", "status"], ["status", "chat"]]) {
  $(`tab-${name}`).onclick = () => selectView(name);
  $(`tab-${name}`).onkeydown = (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") $(`tab-${other}`).click(), $(`tab-${other}`).focus();
  };
}
document.addEventListener("visibilitychange", () => { if (!document.hidden && !$("status").hidden) look(); });

$("key").value = sessionStorage.getItem("key") ?? "";
$("key").onchange = () => { sessionStorage.setItem("key", $("key").value); look(); };

const themes = ["system", "dark", "light"];
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Colours: ${theme}`;
  localStorage.setItem("theme", theme);
}
$("theme").onclick = () => setTheme(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]);
setTheme(localStorage.getItem("theme") ?? "system");

look();
$("text").focus();
