"""The look that all HTML of dlq shares: `static/look.css`. The web server serves it beside its own
styles, and the report of the simulator has it inside. It names no page.
"""
