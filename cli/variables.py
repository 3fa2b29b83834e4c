"""The environment variables that matter to a run, for ``pivot settings variables`` and the documentation."""

from typing import NamedTuple

TOPIC = "variables"
"""Topic of ``pivot settings`` that shows them."""


class Variable(NamedTuple):
    """A variable that PIVOT reads, or that a library reads for it."""

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable("OPENAI_API_KEY", "none", "Key of the model server of --policy openai and --teacher openai."),
    Variable("OPENAI_BASE_URL", "https://api.openai.com/v1", "Server address if --base-url is not given."),
    Variable("HF_HOME, HF_TOKEN", "those of the library", "Cache folder, and access token, of the Hugging Face hub."),
    Variable("HF_HUB_OFFLINE", "0", "1: use only cached files of the hub."),
    Variable("AWS_ENDPOINT_URL", "Amazon S3", "Another server for s3:// addresses, such as MinIO."),
    Variable(
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
        "none",
        "Credentials for s3:// addresses; the token only where the key came with one.",
    ),
    Variable("AWS_REGION", "us-east-1", "Region for s3:// addresses."),
    Variable("GOOGLE_APPLICATION_CREDENTIALS", "none", "Key file for gs:// addresses."),
    Variable(
        "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN",
        "none",
        "Credentials for az:// addresses: the name, with the key or the token.",
    ),
    Variable(
        "PIVOT_LEASE_SECONDS",
        "120",
        "Lease of a writer on a store in an object store, seconds; requests are retried for 40 s less.",
    ),
    Variable("PREFECT_API_URL", "of the profile", "Prefect server that records builds; without one none does."),
    Variable("PREFECT_HOME", "~/.prefect", "Profiles and records of Prefect."),
    Variable("XDG_CACHE_HOME", "~/.cache", "Folder of the call cache, pivot/calls.sqlite."),
    Variable("NUMBA_CACHE_DIR", "next to the package", "Folder of the compiled renderers and searches."),
    Variable("PIVOT_METRICS_DIR", "none", "Folder for metrics of flow runs, which Prometheus' node_exporter picks up."),
    Variable("PIVOT_TRACEBACK", "none", "1: show an error inside a plugin with its whole traceback."),
    Variable("PIVOT_SVG_WORKERS", "one per core", "Processes that render untrusted SVG documents."),
    Variable("PIVOT_THOR_EXECUTABLE", "downloaded", "Unity build of AI2-THOR to use."),
    Variable("PIVOT_THOR_GPU", "none", "Number of the GPU that AI2-THOR renders on."),
    Variable("PIVOT_THOR_START_SECONDS", "600", "Time limit of the start of an AI2-THOR process."),
    Variable("PIVOT_THOR_STEP_SECONDS", "60", "Time limit of a step; ten times as long for loading a scene."),
    Variable("PIVOT_THOR_DOWNLOAD_SECONDS", "7200", "Time limit of the download of its Unity build."),
    Variable("PIVOT_MANISKILL_START_SECONDS", "300", "Time limit of the start of a ManiSkill process."),
    Variable("PIVOT_MANISKILL_STEP_SECONDS", "60", "Time limit of a step of it."),
)
