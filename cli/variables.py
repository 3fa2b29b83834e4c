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
    Variable("OPENAI_API_KEY", "none", "Key for the model server of --policy openai and --teacher openai."),
    Variable("OPENAI_BASE_URL", "https://api.openai.com/v1", "Its address, where --base-url gives none."),
    Variable("HF_HOME, HF_TOKEN", "of Hugging Face", "Where what comes from the hub is kept; who asks for it."),
    Variable("HF_HUB_OFFLINE", "0", "1: nothing is fetched from the hub, what is kept there has to do."),
    Variable("AWS_ENDPOINT_URL", "Amazon S3", "Another server for s3:// addresses, such as MinIO."),
    Variable("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION", "none", "Credentials and region for s3://."),
    Variable("GOOGLE_APPLICATION_CREDENTIALS", "none", "Key file for gs:// addresses."),
    Variable("AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY", "none", "Credentials for az:// addresses."),
    Variable(
        "PIVOT_LEASE_SECONDS",
        "120",
        "How long a killed writer keeps a store in an object store; its requests are repeated for 40 s less.",
    ),
    Variable("PIVOT_DRIVER_HOST", "found out", "Name by which the nodes of a cluster reach this machine."),
    Variable("PREFECT_API_URL", "a private server", "Prefect server that runs are reported to."),
    Variable("PREFECT_HOME", "in the cache folder", "Records of the private Prefect server."),
    Variable(
        "XDG_CACHE_HOME", "~/.cache", "Folder of those records, and of pivot/calls.sqlite, the answers of models."
    ),
    Variable("NUMBA_CACHE_DIR", "beside the package", "Compiled solvers."),
    Variable("PIVOT_ON_FAILURE", "none", "Program that is started when a run of a deployment has failed for good."),
    Variable("PIVOT_RUN_RETRIES", "2", "Attempts of a run of a deployment after the first."),
    Variable("PIVOT_RUN_RETRY_SECONDS", "60", "Pause before an attempt after an error, at most 540."),
    Variable("PIVOT_RUN_HOURS", "12", "Hours after which an attempt counts as hanging."),
    Variable("PIVOT_METRICS_DIR", "none", "Folder for metrics of flow runs, which Prometheus' node_exporter picks up."),
    Variable("PIVOT_TRACEBACK", "none", "1: an error inside a plugin shows in full."),
    Variable("PIVOT_SVG_WORKERS", "one a core", "Processes that draw untrusted SVG documents."),
    Variable("PIVOT_THOR_EXECUTABLE", "downloaded", "Unity build of AI2-THOR to use."),
    Variable("PIVOT_THOR_GPU", "none", "Number of the GPU that AI2-THOR draws on."),
    Variable("PIVOT_THOR_START_SECONDS", "600", "Longest start of an AI2-THOR process."),
    Variable("PIVOT_THOR_STEP_SECONDS", "60", "Longest answer of it; ten times that for a scene."),
    Variable("PIVOT_THOR_DOWNLOAD_SECONDS", "7200", "Longest download of its Unity build."),
    Variable("PIVOT_MANISKILL_START_SECONDS", "300", "Longest start of a ManiSkill process."),
    Variable("PIVOT_MANISKILL_STEP_SECONDS", "60", "Longest answer of it."),
)
