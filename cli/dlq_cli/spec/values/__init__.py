"""Values of a spec as users write them: one module for each kind of value, pure, text in, values
out.
"""
