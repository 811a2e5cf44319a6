"""Control groups v1, hybrid and v2 behind one port, and the labelled `none` fallback."""
