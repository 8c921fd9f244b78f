"""Adapters to the outside: chat endpoints, the embedded model, simulated worlds, journal and telemetry."""
