"""The pure core: plans, promises and replays, without processes."""
