"""The local endpoint: Databricks serving's REST API on one machine.

__main__.py        the command line
app.py             one FastAPI application out of the rooms below
management.py      /api/2.0/serving-endpoints: create, update, get, list, delete
invocations.py     /serving-endpoints/NAME/invocations: the caller's rows, in and out
openai_gateway.py  /v1: the same models for OpenAI clients
status.py          /, /metrics and what the status page reads
supervisor.py      all endpoints, kept over a restart
endpoint.py        one endpoint: roll out a config, then swap it in
served_entity.py   one served entity: start, recover, sleep, wake, drain
process.py         one operating-system process
router.py  limits.py  auth.py  relay.py  store.py  schemas.py  settings.py  errors.py

entity.py          the other side: the process that holds one loaded model
scoring_app.py     MLflow's scoring app with streaming, metrics and clean errors
openai_api.py  sse.py  error_bodies.py
"""
