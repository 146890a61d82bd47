"""From a registered version to a serving endpoint, over the databricks-sdk.

desired.py       what an endpoint should be, checked against Databricks' limits
bodies.py        the same as the API's request bodies
plan.py          the requests that turn what is there into what is desired
apply.py         send it, wait, and note which version was good; delete
traffic.py       split traffic between versions, roll back to the last good one
watch.py         wait for a rollout; failure.py tells why it failed
endpoint.py      an endpoint as the API shows it
history.py       which versions were good before

preflight.py     what can be known to fail before anything is sent
registered.py    what the registry and the version's own files say
requirements.py  pinned requirements against the target runtime
memory.py        weights and KV cache against the GPU's memory; kv_cache.py and dtypes.py count
                 them, hardware.py has Databricks' workload types

options.py       what the command line's options say
shown.py         what the command line prints, errors included
"""
