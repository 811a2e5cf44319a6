"""Pictures of replays: their numbers are computed here without a drawing library, then drawn."""
