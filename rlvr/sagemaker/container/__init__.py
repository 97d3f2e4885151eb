"""What runs inside a training job, on every host."""
