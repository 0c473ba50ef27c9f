"""The functions of the language beyond Python's own: times, JSON, patterns, hashes, texts, numbers, keys.

Each is one entry with its run-time function, its bounds and its documentation; `function_table.py` lists all of them.
"""
