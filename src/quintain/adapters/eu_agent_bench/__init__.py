"""EU-Agent-Bench: requests that can be met lawfully and unlawfully; start at `environment`."""
