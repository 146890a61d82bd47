"""The local endpoint: Databricks serving's REST API on one machine.

__main__.py        the command line
app.py             one FastAPI application out of the rooms below
management.py      /api/2.0/serving-endpoints: create, update, get, list, delete
invocations.py     /serving-endpoints/NAME/invocations: the caller's rows, in and out
openai_gateway.py  /v1: the same models for OpenAI's clients
status.py          the page at /, what it reads, and /metrics
schemas.py         what a caller may send; replies.py  what comes back
auth.py  limits.py  describe.py  context.py  metrics.py
errors.py          the one error; error_replies.py makes every fault of an application one

supervisor.py      all endpoints, kept over a restart
endpoint.py        one endpoint: roll out a config, then swap it in
served_entity.py   one served entity: start, recover, sleep, wake, drain
launching.py       from a served entity to what its process needs; secret_variables.py
process.py         one operating-system process
relay.py           a call handed on to a process, and its answer back
router.py  store.py  settings.py

entity.py          the other side: the process that holds one loaded model; loading.py
scoring_app.py     MLflow's scoring app with streaming, metrics, health and clean errors
sse.py             streams out of blocking iterators; hang_up.py notices clients that leave
mlflow_errors.py   MLflow's error replies without the caller's rows
openai_api.py      chat and text completions; openai_request, _reply, _stream, _logprobs and
                   _tools are what they read and write
"""
