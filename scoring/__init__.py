"""Batch scoring: files, DataFrames and Spark in, the same rows with answers out.

    source (formats/)  -> chunks.py   rows in order, in chunks of a fixed size
    -> requests.py                    columns or a template -> what the model is asked
    -> duplicates.py                  identical rows at temperature 0 are asked once
    -> targets.py, endpoint.py        a model version, or a serving endpoint
    -> answers.py, typed_columns.py   answers as Arrow columns of fixed types
    -> checkpoint.py                  one part file a finished chunk; what resume continues from
    -> assembly.py                    all parts -> the output, at once
    -> report.py                      the MLflow run: metrics, plots, sample, evaluation

job.py holds what is asked for, pipeline.py the flow above, spark.py the same on a cluster.
score.py at the top exports what notebooks use. This file imports nothing: Spark's workers load
only what they need.
"""
