"""What MLflow runs to get the model (models-from-code): nothing is ever pickled."""

from mlflow.models import set_model

from model.executor.identity import current_task

if current_task() is None:
    from model.pyfunc_model import FormlineModel as Model
else:  # one of several workers of a Spark executor, which share one engine
    from model.executor.proxy import ExecutorModel as Model

set_model(Model())
