"""The Python API of import dlq: jobs as objects, on the spec reader of the CLI and on the SDK.

The front in proto/dlq imports nothing of this before it is used.
"""
