"""The line to the master: one mutual-TLS connection, the caller's identity, retries that cannot
double.
"""
