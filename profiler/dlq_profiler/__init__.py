"""Reads a training job from its traffic: its iterations, its bytes, the sizes of its tensors."""
