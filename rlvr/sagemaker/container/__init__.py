"""Programs that run inside a training job, on every host."""
