"""Commands that create or change jobs."""
