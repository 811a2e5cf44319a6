"""`scontrol`: show, change, hold and requeue jobs; look at nodes and the configuration."""
