"""From a registered version to a serving endpoint, over the databricks-sdk.

desired.py       what an endpoint should be, checked against Databricks' limits
plan.py          the requests that turn what is there into what is desired
apply.py         deploy, split traffic, roll back, describe, delete
watch.py         wait for a rollout, and tell why it failed
history.py       which versions were good before
preflight.py     what can be known to fail before anything is sent
memory.py        weights and KV cache against the GPU's memory
requirements.py  pinned requirements against the target runtime
hardware.py      Databricks' workload types
registered.py    what the registry and the version's own files say
"""
