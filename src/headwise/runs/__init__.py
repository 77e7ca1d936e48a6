"""The run directory: what training leaves behind and every later verb takes."""
