"""The whole pipeline on a CPU: rollouts, labels, collages, dataset, Analyzer, agent, in some minutes.

Run it with: python examples/paper_pipeline.py [FOLDER]
It needs the package with its training extra and downloads nothing. The models are tiny ones made on the spot: they
show that every stage runs and what it writes, not how well it works. With a GPU, name models of your own instead.
"""
# pyright: reportMissingImports=false

import sys
from pathlib import Path

import pivot

import datasets


def main(folder: Path) -> None:
    """Run every stage below a folder."""
    # 1. Rollouts: 24 lakes, 8 episodes each, by the scripted policy in place of a model. Each failure is labelled: the
    #    pivot step, its failure mode, and a certificate that anyone can check again.
    store = folder / "store"
    result = pivot.build({"environments": {"frozenlake": {"tasks": 24}}, "rollouts": 8, "seed": 1}, store)
    print("1.", result.environments["frozenlake"])

    # 2. What was found, in SQL; `verify` makes every label again and asks a second prover.
    print("2.", pivot.query(store, "select failure_mode, failures from modes order by failures desc").rows())
    print("   proved again:", pivot.verify(store).holds)

    # 3. The dataset that a trainer loads: collage, question and answer of each failure.
    records = datasets.load_dataset(str(store / "dataset"), "all", split="train")
    first = records[0]
    first["images"][0].save(folder / "collage.png")
    print(f"3. {len(records)} records; the first one's collage is {folder / 'collage.png'}")
    print("   answer:", first["completion"][0]["content"][0]["text"])

    # 4. Stage I: an Analyzer learns to read failures.
    model, analyzer = folder / "tiny", folder / "analyzer"
    pivot.make_model("tiny", model, store)
    stage1 = pivot.train_sft(
        {"dataset": str(store), "model": str(model), "out": str(analyzer), "recipe": "tiny", "epochs": 2}
    )
    print(f"4. {stage1.updates} updates; losses [{stage1.validation_loss:.2f}] on held-out levels")
    report = pivot.evaluate_analyzer(
        {"model": str(analyzer), "data": str(store), "limit": 8, "max_tokens": 96, "learned": False}
    )
    print("   its answers, beside those of baselines that read the log alone:", report.out)

    # 5. Stage II: GRPO with hindsight. `oracle` takes the step from the solver; the paper's `mp` takes it from the
    #    Analyzer, for which these models are too small.
    agent = folder / "agent"
    stage2 = pivot.train_rl(
        {"env": "frozenlake", "model": str(model), "arm": "oracle", "out": str(agent), "recipe": "tiny", "updates": 2}
    )
    print(f"5. {stage2.updates} updates; the rollouts are a store, too:")
    print("  ", pivot.query(agent / "rollouts", "select count(*), avg(episode_return) from episodes").rows())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/paper-pipeline"))
