"""What a training job's traffic tells: its iterations, its bytes, the sizes of its tensors."""
