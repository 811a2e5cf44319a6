"""Pictures of replays: what they show is computed here without a drawing library, then drawn."""
