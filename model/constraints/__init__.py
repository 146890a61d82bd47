"""Constrained decoding: a JSON schema, regex or choice becomes a token mask a step.

The flow: spec.py -> schema.py -> json_parser.py -> automaton.py -> backend.py (inside vLLM).
"""
