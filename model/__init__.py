"""The model: rows of prompts in, one schema-valid answer a row out."""
