"""The `fake` runtime: ranks without processes, on a clock that tests move."""
