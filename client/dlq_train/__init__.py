"""What a training script imports to be resumed and paused; standard library only."""
