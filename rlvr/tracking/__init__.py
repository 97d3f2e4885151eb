"""MLflow and Prometheus."""
