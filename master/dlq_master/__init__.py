"""The master: queues, decides, places, remembers."""
