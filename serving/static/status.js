"use strict";

const POLL_MS = 2000;
const TOKEN_KEY = "formline-token";
const CLASS_OF = {
  READY: "good", NOT_READY: "bad", UPDATE_FAILED: "bad", UPDATE_CANCELED: "bad", IN_PROGRESS: "wait",
  DEPLOYMENT_FAILED: "bad", DEPLOYMENT_RECOVERING: "wait", DEPLOYMENT_CREATING: "wait",
};
const WORDS = {
  READY: "ready", NOT_READY: "not ready", IN_PROGRESS: "updating", UPDATE_FAILED: "update failed",
  UPDATE_CANCELED: "update canceled", DEPLOYMENT_READY: "", DEPLOYMENT_CREATING: "starting",
  DEPLOYMENT_FAILED: "failed", DEPLOYMENT_RECOVERING: "restarting", DEPLOYMENT_ABORTED: "stopped",
};
const byId = (id) => document.getElementById(id);
const totals = new Map();

async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const reply = await fetch(path, { ...options, headers });
  const text = await reply.text();
  if (reply.status === 401) askForToken(token !== null);
  if (!reply.ok) throw new Error(messageOf(text) || `The server answered with status ${reply.status}.`);
  return JSON.parse(text);
}

function messageOf(text) {
  try {
    return JSON.parse(text).message;
  } catch {
    return text.slice(0, 200);
  }
}

function askForToken(refused) {
  byId("login").hidden = false;
  byId("token-fault").textContent = refused ? "This token is not one of the server's." : "";
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function cell(row, text, className = "") {
  row.append(element("td", text, className));
  return row.lastElementChild;
}

function ratesOf(item) {
  const now = { at: performance.now(), requests: item.requests_total, tokens: item.completion_tokens_total };
  const before = totals.get(item.endpoint.name);
  totals.set(item.endpoint.name, now);
  if (!before) return ["–", "–"];
  const seconds = (now.at - before.at) / 1000;
  const rate = (later, earlier) => Math.max(0, (later - earlier) / seconds).toFixed(1);
  return [rate(now.requests, before.requests), rate(now.tokens, before.tokens)];
}

function sharesOf(config) {
  const routes = config.traffic_config?.routes ?? [];
  return Object.fromEntries(routes.map((r) => [r.served_entity_name || r.served_model_name, r.traffic_percentage]));
}

function showState(place, state) {
  for (const word of [state.ready, state.config_update]) {
    if (word === "NOT_UPDATING") continue;
    place.append(element("div", WORDS[word] ?? word, `badge ${CLASS_OF[word]}`));
    place.lastElementChild.title = word;
  }
}

function showEntity(place, entity, share) {
  const { deployment = "", deployment_state_message: message = "" } = entity.state ?? {};
  const line = element("div", `${entity.entity_name} version ${entity.entity_version} (${share})`);
  const told = [WORDS[deployment] ?? deployment, message].filter(Boolean).join(": ");
  line.append(element("small", told, CLASS_OF[deployment] ?? ""));
  place.append(line);
}

function showEntities(place, config, pending, update) {
  const shares = sharesOf(config ?? {});
  for (const entity of config?.served_entities ?? []) showEntity(place, entity, `${shares[entity.name] ?? 0} %`);
  const label = update === "IN_PROGRESS" ? "next" : "not taken over";
  for (const entity of pending?.served_entities ?? []) showEntity(place, entity, label);
}

function showEndpoint(body, item) {
  const { endpoint } = item;
  const [requests, tokens] = ratesOf(item);
  const row = body.insertRow();
  row.dataset.endpoint = endpoint.name;
  cell(row, endpoint.name);
  showState(cell(row, ""), endpoint.state);
  showEntities(cell(row, ""), endpoint.config, endpoint.pending_config, endpoint.state.config_update);
  for (const number of [requests, tokens, item.in_flight, item.restarts]) cell(row, number, "number");
}

function showChoices(names) {
  const select = byId("endpoint");
  const shown = [...select.options].map((option) => option.value);
  if (shown.join() === names.join()) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function show(status) {
  const body = byId("endpoints").tBodies[0];
  body.replaceChildren();
  status.endpoints.forEach((item) => showEndpoint(body, item));
  byId("endpoints").hidden = status.endpoints.length === 0;
  byId("none").hidden = status.endpoints.length > 0;
  showChoices(status.endpoints.map((item) => item.endpoint.name));
}

function showConnection(text, className) {
  byId("connection").textContent = text;
  byId("connection").className = className;
}

async function refresh() {
  try {
    show(await call("/api/2.0/formline/status"));
    showConnection("Connected", "good");
    byId("login").hidden = true;
  } catch (error) {
    const reason = error instanceof TypeError ? "The server cannot be reached" : error.message;
    showConnection(byId("login").hidden ? reason : "Token wanted", "bad");
  }
}

async function poll() {
  await refresh();
  setTimeout(poll, POLL_MS);
}

function checkSchema() {
  const text = byId("schema").value.trim();
  let fault = "";
  try {
    const json_schema = text === "" ? true : JSON.parse(text);
    if (typeof json_schema !== "object" && typeof json_schema !== "boolean") fault = "A schema is a JSON object.";
  } catch (error) {
    fault = `Not JSON: ${error.message}`;
  }
  byId("schema-fault").textContent = fault;
  byId("schema").setAttribute("aria-invalid", String(fault !== ""));
  return fault === "";
}

function showAnswer(text, fault = "", facts = "") {
  byId("answer").textContent = text;
  byId("answer").classList.toggle("empty", facts === "");
  byId("answer-fault").textContent = fault;
  byId("answer-facts").textContent = facts;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function showPrediction(row, seconds) {
  const facts = [
    `finish reason: ${row.finish_reason ?? "–"}`,
    `${row.prompt_tokens ?? "–"} + ${row.completion_tokens ?? "–"} tokens`,
    `${seconds.toFixed(1)} s`,
  ];
  const shown = byId("schema").value.trim() && !row.error ? pretty(row.output ?? "") : row.output ?? "";
  showAnswer(shown, row.error ?? "", facts.join(" · "));
}

async function tryPrompt(submission) {
  submission.preventDefault();
  if (!checkSchema()) return byId("schema").focus();
  const schema = byId("schema").value.trim();
  const params = { max_tokens: Number(byId("max-tokens").value) };
  if (schema) params.json_schema = schema;
  byId("send").disabled = true;
  showAnswer("Waiting for the answer");
  try {
    const path = `/serving-endpoints/${encodeURIComponent(byId("endpoint").value)}/invocations`;
    const body = JSON.stringify({ dataframe_records: [{ prompt: byId("prompt").value }], params });
    const began = performance.now();
    const reply = await call(path, { method: "POST", body });
    showPrediction(reply.predictions[0], (performance.now() - began) / 1000);
  } catch (error) {
    showAnswer("No answer.", error.message);
  }
  byId("send").disabled = false;
}

byId("try").addEventListener("submit", tryPrompt);
byId("schema").addEventListener("input", checkSchema);
byId("login").addEventListener("submit", (submission) => {
  submission.preventDefault();
  sessionStorage.setItem(TOKEN_KEY, byId("token").value);
  refresh();
});
poll();
