"""Deployments as real processes: provisioning, gRPC server and client, and Flower's simulation."""
