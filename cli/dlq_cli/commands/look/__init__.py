"""Commands that show jobs, their output and their forecasts."""
