"""What runs the shards of a flow: this machine's processes, Prefect."""
