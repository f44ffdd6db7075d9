"""What the compose profile `metrics` runs with: Prometheus, alerts, and a Grafana dashboard."""
