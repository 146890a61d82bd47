"use strict";

const POLL_MS = 2000;
const TOKEN_KEY = "formline-token";
const STATE_CLASS = { READY: "good", NOT_READY: "bad", UPDATE_FAILED: "bad", IN_PROGRESS: "wait" };
const byId = (id) => document.getElementById(id);
const totals = new Map();

async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const reply = await fetch(path, { ...options, headers });
  const body = await reply.json();
  if (reply.status === 401) byId("login").hidden = false;
  if (!reply.ok) throw new Error(body.message || `status ${reply.status}`);
  return body;
}

function cell(row, text, className = "") {
  const element = row.insertCell();
  element.textContent = text;
  element.className = className;
  return element;
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

function showEntities(element, config, pending) {
  const shares = sharesOf(config ?? {});
  const lines = (config?.served_entities ?? []).map((e) => [e, `${shares[e.name] ?? 0} %`]);
  lines.push(...(pending?.served_entities ?? []).map((e) => [e, "pending"]));
  for (const [entity, share] of lines) {
    const line = document.createElement("div");
    line.textContent = `${entity.entity_name} version ${entity.entity_version} (${share})`;
    const state = document.createElement("small");
    state.textContent = [entity.state?.deployment, entity.state?.deployment_state_message].filter(Boolean).join(": ");
    line.append(state);
    element.append(line);
  }
}

function showEndpoint(body, item) {
  const { endpoint } = item;
  const [requests, tokens] = ratesOf(item);
  const row = body.insertRow();
  row.dataset.endpoint = endpoint.name;
  cell(row, endpoint.name);
  cell(row, endpoint.state.ready, STATE_CLASS[endpoint.state.ready]);
  cell(row, endpoint.state.config_update, STATE_CLASS[endpoint.state.config_update]);
  showEntities(cell(row, ""), endpoint.config, endpoint.pending_config);
  cell(row, requests, "number");
  cell(row, tokens, "number");
  cell(row, item.in_flight, "number");
  cell(row, item.restarts, "number");
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

async function refresh() {
  try {
    show(await call("/api/2.0/formline/status"));
    byId("connection").textContent = "Connected";
    byId("login").hidden = true;
  } catch (error) {
    byId("connection").textContent = error.message;
  }
  setTimeout(refresh, POLL_MS);
}

async function tryPrompt(submission) {
  submission.preventDefault();
  const schema = byId("schema").value.trim();
  const row = { prompt: byId("prompt").value };
  const params = { max_tokens: Number(byId("max-tokens").value) };
  if (schema) params.json_schema = schema;
  byId("send").disabled = true;
  byId("answer").textContent = "Waiting";
  try {
    const path = `/serving-endpoints/${encodeURIComponent(byId("endpoint").value)}/invocations`;
    const body = JSON.stringify({ dataframe_records: [row], params });
    const reply = await call(path, { method: "POST", body });
    const { output, error } = reply.predictions[0];
    byId("answer").textContent = [output, error && `error: ${error}`].filter(Boolean).join("\n");
  } catch (error) {
    byId("answer").textContent = `error: ${error.message}`;
  }
  byId("send").disabled = false;
}

byId("try").addEventListener("submit", tryPrompt);
byId("login").addEventListener("submit", (submission) => {
  submission.preventDefault();
  sessionStorage.setItem(TOKEN_KEY, byId("token").value);
});
refresh();
