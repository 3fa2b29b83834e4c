"""Engines that run the shards of a build: local processes, Prefect tasks, Ray and Dask clusters."""
