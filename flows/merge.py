"""Merge finished stores into one: more levels of the same run, such as nights with different seeds.

Rows are copied, so nothing is played or certified again and no model is called. The stores agree in everything but
their levels; each level is copied once, and its split is decided again among all levels.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack

from ..core.errors import ConfigError, StoreError
from ..core.identity import digest
from ..core.plugins import STORED
from ..core.progress import Reporter
from ..core.storage import Address, open_storage, parse_address
from ..datasets.store.config import EnvRun, RunConfig, Shard, make_config
from ..datasets.store.location import ORIGIN, refuse_inside_store
from ..datasets.store.schema import CALLS, EPISODES, LABELS, PROMPTS, STORE_TABLES
from ..datasets.store.stages import ROLLOUT, LabelStage, Pending, Product, RolloutStage
from ..datasets.store.store import DATABASE, DATASET_FOLDER, MANIFEST, RUN, Store, stored_config
from ..datasets.store.tables import stored_rollouts
from ..environments.base import Task
from ..rollouts.base import TaskRollouts
from ..rollouts.policies import NAME as TRAINED
from .engines.base import WorkerPool
from .export import check_source, refuse_to_mix
from .pipeline import BuildResult, complete_result, deciding, export_store, plan, run_stages, seal_store
from .running import Running, pool_of, public

STAGE = "merge"
_MAY_DIFFER = ("environments", "filters", "solvers", "seed", "tasks_per_shard", "label_version")
"""Fields of the config that are compared per environment, or not at all."""

Place = tuple[int, int]
"""Seed and index of a level in the plan of that seed."""
Source = tuple[Store, Shard]


@public
def merge(*roots: str | Address, out: str | Address, sources: bool = False, **running: Unpack[Running]) -> BuildResult:
    """Write finished stores of one run with different levels, such as nights, to one new store; rows are copied.

    Each episode id is stored once, with its current labels.

    Args:
        roots: the finished stores, which stay as they are; equal in everything but seed, tasks and environments. The
            first one with an episode gives it.
        out: the new store; empty, or begun by the same call, which is then resumed, or begun again if a store changed.
        sources: read the folders of models that ``run.json`` names, for their revisions.
        **running: workers, reporter, engine, address and allow, see
            :class:`~pivot.flows.running.Running`.

    Returns:
        Counts of the new store.

    Raises:
        StoreError: a file is missing or damaged, another version made a store, ``out`` holds something else, or a
            run writes one of the stores.
        ConfigError: the stores differ in more than their levels, or ``out`` is inside one of them.
    """
    if not roots:
        raise ConfigError("merge: found no store, expected one or more finished stores")
    target = parse_address(out)
    stores = _checked([parse_address(each) for each in roots], target, follow=sources)
    environments = list(dict.fromkeys(env for store in stores for env in store.config.environments))
    with pool_of(running, environments, target) as pool:
        return _write(stores, target, pool, running.get("reporter") or Reporter())


def _checked(roots: Sequence[Address], target: Address, *, follow: bool) -> list[Store]:
    """Open the stores; refuse them before workers start."""
    refuse_inside_store(target)
    for root in roots:
        check_source(root)
        refuse_to_mix(root, target)
    stores = [Store.open(root) for root in roots]
    for store in stores:
        if (folders := store.run.local_models()) and not follow:
            raise ConfigError(
                f"{store.storage.address(RUN)} names the model folder {folders[0]!r}, which would be read here; "
                "look at it, then merge with --sources"
            )
        _check_files(store)
    return stores


def _write(stores: Sequence[Store], target: Address, pool: WorkerPool, reporter: Reporter) -> BuildResult:
    """Write the new store, or resume it."""
    config = _merged_config(stores)
    manifests = [_manifest_of(store) for store in stores]
    roots = digest([str(store.root) for store in stores])
    origin = {"config": digest(config.model_dump(mode="json")), "manifests": manifests, "roots": roots}
    storage = open_storage(target)
    begun = storage.read_json(ORIGIN) if storage.stat(ORIGIN) is not None else None
    there = [name for name in storage.entries() if not name.startswith(".")]
    if begun is None and there:
        raise StoreError(f"{target} holds {there[0]!r}; choose an empty folder with --out")
    stored = config if storage.stat(RUN) is None else stored_config(target, complete=False)
    other = begun is not None and (begun, stored) != (origin, config)
    if begun is not None and other and (storage.stat(MANIFEST) is not None or begun.get("roots") != roots):
        raise StoreError(
            f"{target} was begun from other stores or from an earlier state of these, or was changed since; choose an "
            "empty folder with --out"
        )
    with storage.lock() as leased:
        if other:  # the same call, cut short by a prune or a relabel of its stores: begin again
            for name in [*there, *(each for each in storage.entries() if each.startswith((".receipts", ORIGIN)))]:
                open_storage(leased).delete(name)
        merged = Store(leased, config)
        done = complete_result(merged) if merged.storage.stat(MANIFEST) is not None else None
        if done is not None:
            return done
        for name in (MANIFEST, DATABASE):
            merged.storage.delete(name)
        merged.storage.write_json(ORIGIN, origin)
        merged.write_run()
        sources, tasks = _sources(stores, config), plan(merged.run, reporter)
        results = run_stages(
            [MergeRollouts(merged, each, tasks[each], sources=sources[each]) for each in tasks], pool, reporter
        )
        results += run_stages([MergeLabels(merged, each, sources=sources[each]) for each in tasks], pool, reporter)
        results += export_store(merged, pool, reporter, DATASET_FOLDER)
        if [_manifest_of(store) for store in stores] != manifests:
            raise StoreError("a store was changed or removed while it was read; run the same command again")
        return seal_store(merged, results)


def _manifest_of(store: Store) -> str | None:
    return None if store.storage.stat(MANIFEST) is None else store.storage.record(MANIFEST).sha256


def _check_files(store: Store) -> None:
    """Compare the tables of a store with its manifest: a changed row would get a new digest, under which it is lost."""
    storage, files = store.storage, store.manifest()
    read = [name for name in files if not name.startswith(f"{DATASET_FOLDER}/")]
    with ThreadPoolExecutor(8) as pool:
        records = zip(read, pool.map(storage.record, read), strict=True)
        changed = [name for name, record in records if record != files[name]]
    unlisted = [name for shard in store.config.shards() for name in store.rollout_files(shard) if name not in files]
    if wrong := [*changed, *unlisted]:
        raise StoreError(
            f"{storage.address(wrong[0])} is not the file that {MANIFEST} lists; restore it from a copy "
            f"(pivot verify {store.root} names all that is damaged)"
        )


# The config of the new store


def _merged_config(stores: Sequence[Store]) -> RunConfig:
    """Return the config with the levels of all stores, each once.

    Raises:
        ConfigError: the stores differ in more than their levels, or their levels cannot be merged.
    """
    first = stores[0].config
    if first.policy.name == TRAINED or any(run.drawn for each in stores for run in each.config.environments.values()):
        raise ConfigError(
            f"{stores[0].root} holds the rollouts of a training run: each shard is one update and stays so"
        )
    if not stores[0].run.policy().plays:
        raise ConfigError(f"{stores[0].root} holds imported episodes; import their sources again, into one store")
    if first.split == "episode" and len(stores) > 1:
        raise ConfigError(
            "the stores are split by episode, so their validation records would be sampled again; split them by task "
            "first: pivot relabel STORE --split task"
        )
    traits: dict[str, Any] = {}
    for store in stores:
        for name, trait in _traits(store).items():
            if traits.setdefault(name, trait) != trait:
                raise ConfigError(
                    f"{store.root}: {name} differs from that of the stores before it, and one store has one; leave it "
                    "as a store of its own: readers take a folder of stores as one"
                )
    environments: dict[str, EnvRun] = {}
    for env in dict.fromkeys(env for store in stores for env in store.config.environments):
        counts: dict[int, int] = {}
        for store in stores:
            if run := store.config.environments.get(env):
                for seed, count in run.seeds_of(store.config.seed):
                    counts[seed] = max(counts.get(seed, 0), count)
        settings = next(each.config.environments[env].settings for each in stores if env in each.config.environments)
        if _is_listed(stores, env):  # the same tasks for each seed
            counts = {first.seed: max(counts.values())}
        seeds = None if [*counts] == [first.seed] else tuple(counts.items())
        environments[env] = EnvRun(tasks=sum(counts.values()), settings=settings, seeds=seeds)
    fields = {
        name: {env: each for store in stores for env, each in getattr(store.config, name).items()}
        for name in ("filters", "solvers")
    }
    usual = RunConfig.model_fields["tasks_per_shard"].default
    changes = {"environments": environments, "label_version": 1, "tasks_per_shard": usual, **fields}
    merged = first.model_copy(update=changes).with_fitting_shards()
    return make_config(merged.model_dump(mode="json"), STORED)


def _traits(store: Store) -> dict[str, Any]:
    """Return what merged stores agree in: of the run, and of each environment that they have in common."""
    config = store.config
    texts: dict[str, set[str]] = {name: set() for name in config.environments}
    for shard in config.shards():
        texts[shard.env] |= {*store.read(EPISODES, shard, ["policy_config"])["policy_config"].unique().to_pylist()}
    shared = {name: deciding(getattr(config, name)) for name in RunConfig.model_fields if name not in _MAY_DIFFER}
    for name, run in config.environments.items():
        shared |= {
            f"settings of {name}": run.settings,
            f"filters of {name}": config.filters.get(name),
            f"solver settings of {name}": config.solvers.get(name),
            f"settings of the policy in {name}": texts[name],
        }
    return shared


def _is_listed(stores: Sequence[Store], env: str) -> bool:
    """Whether the settings of an environment list its tasks, so that they depend on no seed."""
    resolved = next(store.run.envs[env] for store in stores if env in store.config.environments)
    return resolved.type.fixed_tasks(resolved.config) is not None


def _places(run: EnvRun, seed: int) -> list[Place]:
    return [(each, index) for each, count in run.seeds_of(seed) for index in range(count)]


def _sources(stores: Sequence[Store], config: RunConfig) -> dict[Shard, list[Source]]:
    """Return for each shard of the new store the stored shard that has each of its levels: of the first store."""
    sources: dict[Shard, list[Source]] = {}
    for env, merged in config.environments.items():
        listed, where = _is_listed(stores, env), dict[Place, Source]()
        for store in (store for store in stores if env in store.config.environments):
            places = _places(store.config.environments[env], store.config.seed)
            for shard in (shard for shard in store.config.shards() if shard.env == env):
                for seed, index in places[shard.first : shard.stop]:
                    where.setdefault((config.seed if listed else seed, index), (store, shard))
        ordered = [where[place] for place in _places(merged, config.seed)]
        sources |= {each: ordered[each.first : each.stop] for each in config.shards() if each.env == env}
    return sources


# The rows


@dataclass(frozen=True)
class MergeRollouts(RolloutStage):
    """Copies the rollouts of the levels of one shard."""

    sources: Sequence[Source] = field(kw_only=True)
    """The stored shard of each level."""
    title: ClassVar[str] = STAGE
    pending_fact: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        """Name of the stage in receipts: that of a rollout."""
        return ROLLOUT

    def make(self, pending: Pending) -> Product:
        """Return the rollout tables.

        Raises:
            StoreError: the rows cannot be read, or are of another version.
        """
        del pending
        stored: dict[tuple[Address, Shard], dict[Task, TaskRollouts]] = {}
        for store, shard in self.sources:
            if (store.root, shard) not in stored:
                rollouts = stored_rollouts({schema: store.read(schema, shard) for schema in STORE_TABLES})
                tasks = [each.task for each in rollouts]
                _refuse_stale(store, shard, ROLLOUT, RolloutStage(store, shard, tasks).inputs())
                stored[store.root, shard] = {each.task: each for each in rollouts}
        chosen: list[TaskRollouts] = []
        for task, (store, shard) in zip(self.tasks, self.sources, strict=True):
            level = stored[store.root, shard].get(task)
            if level is None or len(level.episodes) != store.config.rollouts:
                raise _not_as_planned(store, shard, f"the episodes of level {task.task_id}")
            chosen.append(level)
        return self.product(Pending(""), chosen)


@dataclass(frozen=True)
class MergeLabels(LabelStage):
    """Copies the current labels of the levels of one shard, with their prompts and calls."""

    sources: Sequence[Source] = field(kw_only=True)
    title: ClassVar[str] = f"{STAGE} labels"
    pending_fact: ClassVar[str | None] = None

    def make(self, pending: Pending) -> Product:
        """Return the tables of the labels.

        Raises:
            StoreError: the rows cannot be read, or are of another version.
        """
        del pending
        count = self.store.config.rollouts
        episodes = self.store.read(EPISODES, self.shard, ["episode_id", "failed"]).to_pylist()
        labels: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        prompts: dict[str, dict[str, Any]] = {}
        stored: dict[tuple[Address, Shard], tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        for level, (store, shard) in enumerate(self.sources):
            if (store.root, shard) not in stored:
                made_by = LabelStage(store, shard)
                _refuse_stale(store, shard, made_by.name, made_by.inputs())
                rows = {row["episode_id"]: row for row in store.read(LABELS, shard).to_pylist()}
                shown = store.read_file(store.label_prompts_file(shard), PROMPTS).to_pylist()
                prompts |= {row["prompt_hash"]: row for row in shown}
                spent = store.label_calls_file(shard)
                stored[store.root, shard] = rows, [] if spent is None else store.read_file(spent, CALLS).to_pylist()
            rows, requests = stored[store.root, shard]
            failed = [row["episode_id"] for row in episodes[level * count : (level + 1) * count] if row["failed"]]
            if lost := [name for name in failed if name not in rows]:
                raise _not_as_planned(store, shard, f"the label of {lost[0]}")
            labels += [rows[name] | {"label_version": str(self.store.config.label_version)} for name in failed]
            calls += [row for row in requests if row["episode_id"] in failed]
        # As a build writes them: the prompts of the Analyzer of all labels, then those of the teacher.
        hashes = [row[column] for column in ("prompt_hash", "teacher_prompt_hash") for row in labels]
        used = [prompts[name] for name in dict.fromkeys(hashes) if name is not None]
        return self.product_of({LABELS: LABELS.table(labels), PROMPTS: PROMPTS.table(used), CALLS: CALLS.table(calls)})


def _refuse_stale(store: Store, shard: Shard, stage: str, inputs: str) -> None:
    """Refuse a shard that the next build would make again: its copy would pass for one of this version."""
    receipt = store.receipt(stage, shard)
    if receipt is not None and receipt.inputs != inputs:
        raise StoreError(
            f"{store.storage.address(store.receipt_file(stage, shard))} is of another version of PIVOT or of a plugin "
            f"than those installed; build {store.root} again with --refresh"
        )


def _not_as_planned(store: Store, shard: Shard, missing: str) -> StoreError:
    return StoreError(
        f"{store.root}: shard {shard.stem} lacks {missing}; pivot verify {store.root} names all that is wrong"
    )
