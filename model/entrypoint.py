"""What MLflow runs to get the model (models-from-code): nothing is ever pickled."""

from mlflow.models import set_model

from model.pyfunc_model import FormlineModel

set_model(FormlineModel())
