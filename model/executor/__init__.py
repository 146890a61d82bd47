"""One engine for all Python workers of a Spark executor.

Spark runs each task in a worker process of its own, and each would load the model again. Instead
the first worker starts a host process that holds the model, and all workers send it their rows:

    identity.py  which executor (and which of its GPUs) a task runs on
    room.py      the folder where workers and host of one executor meet; who starts the host
    host.py      the process that holds the model; ends with the executor
    proxy.py     the PythonModel that workers load in place of the real one

This package imports no engine: a worker stays small.
"""
