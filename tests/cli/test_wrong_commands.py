"""Wrong commands, by the dozen: one line each that names what is wrong, no traceback, and nothing written."""

import importlib
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pivot
import pytest
from pivot import cli
from pivot.tests.flow_runs import CLI, clean_environment, config_of, files_of

NO_STORE = "is not a PIVOT store; make one with: pivot build"
NOT_HERE = r"package '\w+' is not installed; get it with: pip install 'pivot-vlm\["
"""Where training's packages are missing, the message names them first."""

WRONG = [
    # What to build
    ("build", "no environment named; give one or more of: frozenlake"),
    ("build chess --out x", "unknown environment 'chess'; registered: frozenlake"),
    ("build '' --out x", "unknown environment ''; registered: frozenlake"),
    ("build sokoban", "no folder given; name the folder of the store with --out DIR"),
    ("build --out empty", "no environment named"),
    ("build sokoban --nope", "no such option: --nope .*; see: pivot build --help"),
    ("build sokoban --out", "option '--out' requires an argument"),
    ("build sokoban --out x --tasks 1e3", "--tasks 1e3: found '1e3'; expected a number, or ENV=N"),
    ("build sokoban --out x --tasks 0", "--tasks: found 0, expected more than 0"),
    ("build sokoban --out x --tasks frozenlake=2", "'frozenlake' is not part of this build"),
    ("build sokoban --out x --rollouts 0", "--rollouts: found '0', expected more than 0"),
    ("build sokoban --out x --rollouts 999999", "--rollouts: found '999999', expected at most 10000"),
    ("build sokoban --out x --seed -1", "--seed: found '-1', expected 0 or more"),
    ("build sokoban --out x --seed lucky", "--seed: found 'lucky', expected a whole number"),
    ("build sokoban --out x --workers -1", "--workers: found '-1', expected 0 or more"),
    ("build sokoban --out x --split level", "--split: found 'level', expected one of task, episode"),
    ("build sokoban --out x --log none", "--log: found 'none', expected one of full, actions"),
    (
        "build sokoban --out x --target-vocabulary own",
        "--target-vocabulary: found 'own', expected one of certificate, paper",
    ),
    ("build sokoban --out x --license 'My Licence'", "--license: found 'My Licence', expected a text that matches"),
    # Settings
    ("build sokoban --out x --set boxes=2", "--set: found 'boxes=2', expected ENV.KEY=VALUE, such as sokoban.boxes=2"),
    ("build sokoban --out x --set ''", "--set: found '', expected ENV.KEY=VALUE"),
    (
        "build sokoban --out x --set sokoban.boxs=2",
        r"--set sokoban.boxs: unknown setting; did you mean boxes\? known: horizon",
    ),
    ("build sokoban --out x --set sokoban.cell=wide", "--set sokoban.cell: found 'wide', expected a whole number"),
    ("build sokoban --out x --set sokoban.cell=1e400", "--set sokoban.cell: found inf, expected a finite number"),
    ("build sokoban --out x --set sokoban.boxes=99", "--set sokoban.boxes: found 99, expected at most 32"),
    (
        "build sokoban --out x --set sokoban.rows=3 --set sokoban.cols=3",
        "error: setting sokoban: a 3x3 room has 1 cells inside its walls",
    ),
    ("build sokoban --out x --set sokoban.boxes=30", "error: --set sokoban.boxes: a .* room has .* cells inside"),
    ("build sokoban --out x --set frozenlake.size=5", "'frozenlake' is not part of this build"),
    (
        "build sokoban --out x --set svg.scorer=pixel",
        "--set svg.scorer=pixel: environment 'svg' is not part of this build",
    ),
    ("build sokoban --out x --solver max_states=3", "--solver: found 'max_states=3', expected ENV.KEY=VALUE"),
    ("build sokoban --out x --solver sokoban.max_states=lots", "sokoban.max_states: found 'lots', expected a whole"),
    (
        "build sokoban --out x --solver sokoban.depth=3",
        "--solver sokoban.depth: unknown setting; known: max_states",
    ),
    ("build frozenlake --out x --solver frozenlake.nope=3", "--solver frozenlake.nope: unknown setting; known: none"),
    ("build navigation --out x --set navigation.starts=far", "navigation.starts: found 'far', expected one of"),
    (
        "build primitiveskill --out x --set primitiveskill.backend=unity",
        "backend: found 'unity', expected one of embedded",
    ),
    ("build navigation --out x --set navigation.backend=thor", "name one or more with --set navigation.task_files"),
    (
        "build navigation --out x --set navigation.backend=thor --set 'navigation.task_files=[\"gone\"]'",
        "task file .*gone cannot be read: No such file",
    ),
    (
        "build navigation --out x --set navigation.backend=thor --set 'navigation.task_files=[\"file\"]'",
        "task file .*file is not JSON",
    ),
    ("build primitiveskill --out x --set primitiveskill.tasks=juggle", "tasks is 'juggle', expected one or more of"),
    (
        "build svg --out x --set svg.targets=gone",
        "error: --set svg.targets: targets '.*gone' is not a folder; expected a folder of",
    ),
    ("build svg --out x --set svg.targets=empty", "has 0 entries, none of them text"),
    ("build svg --out x --set svg.scorer=best", "unknown scorer 'best'; known: pixel"),
    # Who acts and who writes
    (
        "build sokoban --out x --policy-set habits",
        "--policy-set: found 'habits', expected KEY=VALUE; see: pivot settings",
    ),
    ("build sokoban --out x --policy-set habits=3", "--policy-set habits: found 3, expected an object"),
    ("build sokoban --out x --policy-set skill=3", "--policy-set skill: unknown setting; known: habits"),
    ("build sokoban --out x --shard-size 0", "--shard-size: found '0', expected more than 0"),
    ("build sokoban --out x --policy oracle", "unknown policy 'oracle'; registered: imported, mixed, openai"),
    ("build sokoban --out x --policy openai", "policy openai: model: no model named; give it with --model"),
    (
        "build sokoban --out x --model m",
        "--model: policy 'scripted' is not a model, so it cannot use this option; name a model, such as",
    ),
    ("build sokoban --out x --policy openai --model m --top-p 7", "--top-p: found '7', expected at most 1"),
    ("build sokoban --out x --policy openai --model m --base-url home", "'home' is not an address of a server"),
    ("build sokoban --out x --policy openai --model m --patience -1", "--patience: found '-1', expected more than 0"),
    ("build sokoban --out x --writer human", "unknown writer 'human'; registered: openai"),
    ("build sokoban --out x --writer-model m", "--writer-model: teacher 'template' is not a model"),
    # Places and configs
    ("build sokoban --out file", "file is a file; name a folder"),
    ("build sokoban --out file/below", "a file stands where"),
    ("build sokoban --out foreign", "foreign holds 'cat.jpg' but no run.json"),
    ("build sokoban --out foreign --refresh", "foreign holds 'cat.jpg' but no run.json"),
    ("relabel unfinished", "its build did not finish; finish it with: pivot build --config unfinished/run.json"),
    ("build sokoban --out STORE/inner", "STORE/inner is in the store .*/STORE, expected a folder outside of it"),
    ("import list.json --format openai --out STORE/nights", "is in the store .*/STORE, expected a folder outside"),
    ("build sokoban --out /proc/x", "cannot write to /proc/x: No such file or directory"),
    ("build sokoban --out STORE", "holds a run with another config: .*it also holds frozenlake"),
    ("build sokoban --tasks sokoban=1,sokoban=2 --out x", "environment 'sokoban' is there twice"),
    ("build --config gone --out x", "--config: cannot read gone: No such file"),
    ("build --config empty --out x", "--config: cannot read empty: Is a directory"),
    ("build --config bad.json --out x", "--config: bad.json is not valid JSON"),
    ("build --config list.json --out x", "--config: list.json holds a list; expected keys and values"),
    (
        "build --config more.json --out x",
        "config file more.json: colour: unknown setting; known: environments",
    ),
    # Stores
    ("verify", "missing argument 'DIR': folder of a finished store"),
    ("verify gone", f"gone does not exist, so it {NO_STORE} sokoban --out gone"),
    ("verify file", "file is a file; name a folder"),
    ("stats empty", f"empty holds no run.json, so it {NO_STORE}"),
    ("peek foreign", r"foreign holds no run.json, so it is not a PIVOT store; name the folder of a store\n"),
    ("stats STORE/dataset", "so it is not a PIVOT store; it is in the store .*/STORE: name that one"),
    ("stats STORE/gone", "STORE/gone does not exist, .*; it is in the store .*/STORE: name that one"),
    ("probe .", r"it holds stores: name one of them, such as STORE, poisoned, unfinished\n"),
    ("relabel gone", NO_STORE),
    ("compare STORE gone", NO_STORE),
    ("compare STORE", "missing argument 'NEW'; see: pivot compare --help"),
    ("plot gone", NO_STORE),
    ("probe gone", NO_STORE),
    ("verify unfinished", "its build did not finish; finish it with: pivot build --config unfinished/run.json"),
    ("stats poisoned", "poisoned/run.json: solver setting sokoban.max_states: found 'lots', expected a whole number"),
    ("verify STORE --workers x", "--workers: found 'x', expected a whole number"),
    ("peek STORE nobody", "holds no episode whose id begins with 'nobody'"),
    ("peek STORE --env chess", "holds no failure of chess; it holds: sokoban, frozenlake"),
    ("peek STORE --png gone/x.png", "cannot write gone/x.png: the folder gone does not exist; choose another"),
    ("relabel STORE --split level", "--split: found 'level'"),
    ("relabel STORE --solver chess.x=1", "environment 'chess' is not part of this build"),
    ("relabel STORE --solver sokoban.max_states=lots", "sokoban.max_states: found 'lots', expected a whole number"),
    ("relabel STORE --writer human", "unknown writer 'human'"),
    ("compare STORE STORE --format parquet", "--format: pivot compare gives out a table, CSV or JSON"),
    ("plot STORE --format gif", "--format: 'gif' is not one of 'png', 'svg'"),
    ("probe STORE --resamples 0", "--resamples: found '0', expected 1 or more"),
    ("probe STORE --gamma 7", "--gamma: found '7', expected at most 1.0"),
    ("probe STORE --arm nope", "unknown arm 'nope', expected some of: no_hint, after, "),
    ("probe STORE --show", "was not probed; run: pivot probe"),
    ("report gone", NO_STORE),
    ("report STORE --out file", "file is a file; name a folder"),
    ("report STORE --limit 0", "--limit: found '0', expected 1 or more"),
    ("view gone", NO_STORE),
    ("view STORE --port 0x", "--port: found '0x', expected a whole number"),
    ("deploy --to file", "file exists; remove it, or name another file with --to"),
    # Queries
    ("stats STORE --sql ''", "the query is empty; give a statement"),
    ("stats STORE --sql ';'", "the query is empty"),
    ("stats STORE --sql 'select 1; select 2'", "found 2 statements that return rows, expected one"),
    ("stats STORE --sql 'select 1; select 2' --format csv --out x", "found 2 statements that return rows"),
    ("stats STORE --sql 'selec 1'", "the query failed: Parser Error: .*; views: episodes, steps"),
    ("stats STORE --sql 'from players'", "Table with name players does not exist!; views: episodes"),
    ("stats STORE --sql 'select colour from episodes'", "colour"),
    ("stats STORE --sql \"select 'a'::int\"", "Conversion Error"),
    ("stats STORE --sql 'create table mine as select 1'", "the query failed: .*read-only"),
    ("stats STORE --sql \"copy episodes to 'x.csv'\"", "the query may see the store alone, .*--allow-external"),
    ("stats STORE --sql \"from read_csv('/etc/passwd')\"", "the query may see the store alone"),
    ("stats STORE --format xml", "--format: 'xml' is not one of 'table', 'csv', 'json', 'parquet'; see: pivot stats"),
    ("stats STORE --format csv", "--format csv needs --out PATH: a folder"),
    ("stats STORE --format csv --out file", "file is a file; --out names a folder"),
    ("stats STORE --format csv --sql '' --out x.csv", "the query is empty"),
    ("stats STORE --out x", "say how to write x: --format csv, json or parquet"),
    # Training and evaluation
    ("train frob", "no such command 'frob'; see: pivot train --help"),
    ("train sft", "missing argument 'DATASET': dataset to train on"),
    ("train sft STORE --out x", "missing option '--model': model to start from"),
    ("train sft STORE --model m --recipe gone --out x", "no recipe 'gone', expected a file or one of: "),
    ("train sft STORE --model m --recipe bad.json --out x", "recipe bad.json cannot be read: while parsing"),
    ("train sft STORE --model m --lr -1 --out x", "--lr: found '-1', expected more than 0"),
    ("train sft gone --model m --out x", f"{NOT_HERE}|gone"),
    ("train rl", "missing argument 'ENV': environment to train on"),
    ("train rl sokoban --model m", f"{NOT_HERE}|no folder given"),
    ("train rl chess --model m --out x", "unknown environment 'chess'; registered: frozenlake"),
    ("train rl sokoban --model m --out x --set cell=-1", "--set cell: found -1, expected 16 or more"),
    ("train rl sokoban --model m --out x --set frozenlake.size=5", "found a setting of frozenlake, expected one of"),
    ("train rl sokoban --model m --out x --arm best", "--arm: found 'best', expected one of"),
    ("train rl sokoban --model m --out x --lr fast", "--lr: found 'fast', expected a number"),
    ("train rl sokoban --model gone --out x", f"{NOT_HERE}|gone"),
    ("evaluate analyzer", "missing argument 'MODEL'"),
    (
        "evaluate analyzer m --data STORE --pictures some",
        "--pictures: found 'some', expected one of shown, blank",
    ),
    ("evaluate analyzer m --data STORE --side test", "--side: found 'test', expected one of train, validation"),
    ("evaluate analyzer gone --data STORE --out x", f"{NOT_HERE}|gone"),
    ("evaluate baselines gone", f"{NOT_HERE}|gone"),
    ("evaluate policy gone", f"{NOT_HERE}|gone"),
    # The rest
    ("frob", "no such command 'frob'. Did you mean 'probe'\\?; see: pivot --help"),
    ("settings chess", "unknown plugin 'chess'; registered: .*frozenlake"),
    ("cache gone", "no call cache at gone"),
    ("cache file", "cannot open the call cache file: file is not a database"),
    ("doctor extra", r"got unexpected extra argument\(s\) \(extra\)"),
    ("doctor --base-url home --model m", "base URL 'home' is not an address of a server"),
    ("doctor --base-url http://localhost:1", "no model named; give the name that the server uses with --model"),
    ("serve-command", "missing argument 'MODEL'"),
    ("serve-command m --port 0", "--port: found '0', expected 1 or more"),
    # Every command once more: values of a wrong type, empty paths, values out of range
    ("build sokoban --out x --refresh --bogus", "no such option: --bogus"),
    ("build sokoban --out x --tasks -3", "--tasks: found -3, expected more than 0"),
    ("build sokoban --out x --tasks sokoban=-3", "--tasks: found -3, expected more than 0"),
    ("build sokoban --out x --tasks sokoban=", "--tasks sokoban=: found 'sokoban='; expected a number"),
    ("build sokoban --out x --tasks sokoban=two", "--tasks sokoban=two: found 'sokoban=two'; expected a number"),
    ("build sokoban --out x --rollouts two", "--rollouts: found 'two', expected a whole number"),
    ("build sokoban --out x --rollouts 1.5", "--rollouts: found '1.5', expected a whole number"),
    ("build sokoban --out x --validation-fraction 2", "--validation-fraction: found '2', expected less than 1"),
    ("build sokoban --out x --validation-fraction half", "--validation-fraction: found 'half', expected a number"),
    ("build sokoban --out x --shard-size many", "--shard-size: found 'many', expected a whole number"),
    ("build sokoban --out x --workers two", "--workers: found 'two', expected a whole number"),
    ("build sokoban --out x --engine slurm", "--engine: found 'slurm', expected one of dask, local, ray"),
    ("build sokoban --out x --filters nope", "--filters: found 'nope', expected KEY=VALUE"),
    ("build sokoban --out x --filters sokoban=nope", "unknown filter 'nope'; registered: "),
    ("build sokoban --out x --set sokoban=3", "--set: found 'sokoban=3', expected ENV.KEY=VALUE"),
    ("build sokoban --out x --set sokoban.=3", "--set: found 'sokoban.=3', expected ENV.KEY=VALUE"),
    ("build sokoban --out x --set .boxes=3", "--set: found '.boxes=3', expected ENV.KEY=VALUE"),
    ("build sokoban --out x --set sokoban.boxes=", "--set sokoban.boxes: found '', expected a whole number"),
    ("build sokoban --out x --set sokoban.horizon=0", "--set sokoban.horizon: found 0, expected more than 0"),
    ("build sokoban --out x --set sokoban.cell=0", "--set sokoban.cell: found 0, expected 16 or more"),
    ("build sokoban --out x --set sokoban.size=4", "--set sokoban.size: unknown setting; known: horizon"),
    ("build frozenlake --out x --set frozenlake.size=1", "--set frozenlake.size: found 1, expected 2 or more"),
    (
        "build frozenlake --out x --set frozenlake.frozen_probability=2",
        "frozen_probability: found 2, expected at most 1",
    ),
    ("build sokoban --out x --config", "option '--config' requires an argument"),
    ("build sokoban --out x --writer", "option '--writer' requires an argument"),
    ("build sokoban --out x --policy", "option '--policy' requires an argument"),
    ("build sokoban --out x --policy openai --model ''", "--model: no model named"),
    ("build sokoban --out x --policy openai --model m --temperature -1", "--temperature: found '-1', expected 0.0 or"),
    (
        "build sokoban --out x --policy openai --model m --temperature hot",
        "--temperature: found 'hot', expected a number",
    ),
    ("build sokoban --out x --policy openai --model m --max-tokens 0", "--max-tokens: found '0', expected 1 or more"),
    ("build sokoban --out x --policy openai --model m --max-concurrency 0", "--max-concurrency: found '0', expected 1"),
    ("build sokoban --out x --policy openai --model m --tries 0", "--tries: found '0', expected 1 or more"),
    (
        "build sokoban --out x --policy openai --model m --request-timeout 0",
        "--request-timeout: found '0', expected more",
    ),
    ("build sokoban --out x --policy openai --model m --base-url ''", "base URL '' is not an address .*--base-url"),
    ("build sokoban --out x --policy openai --model m --base-url ftp://x", "'ftp://x' is not an address .*--base-url"),
    ("build sokoban --out x --policy openai --model m --price-in free", "--price-in: found 'free', expected a number"),
    ("build sokoban --out x --base-url http://localhost:1/v1", "--base-url: policy 'scripted' is not a model"),
    ("build sokoban --out x --writer openai", "teacher openai: model: no model named; .*--writer-model"),
    (
        "build sokoban --out x --writer openai --writer-model m --writer-service base_url=home",
        "base URL 'home' is not an address",
    ),
    (
        "build sokoban --out x --writer openai --writer-model m --writer-service max_concurrency=0",
        "--writer-service max_concurrency: found 0, expected 1 or more",
    ),
    (
        "build sokoban --out x --writer openai --writer-model m --writer-set temperature=hot",
        "--writer-set temperature: found 'hot', expected a number",
    ),
    ("build sokoban --out s3://", "--out: s3:// is not an address of an object store"),
    ("build sokoban --out ftp://x/y", "--out: ftp://x/y cannot hold a store"),
    ("build sokoban --out ''", "--out: found '', expected a path"),
    ("verify STORE --max-seconds 0", "--max-seconds: found '0', expected 1.0 or more"),
    ("verify STORE --max-seconds soon", "--max-seconds: found 'soon', expected a number"),
    ("verify STORE --max-memory 1", "--max-memory: found '1', expected 64 or more"),
    ("verify STORE --engine slurm", "--engine: found 'slurm', expected"),
    ("verify STORE STORE", r"got unexpected extra argument\(s\) \(STORE\)"),
    ("verify ''", "DIR: found '', expected a path"),
    ("relabel ''", "DIR: found '', expected a path"),
    ("relabel STORE --writer openai", "teacher openai: model: no model named"),
    ("relabel STORE --writer-model m", "--writer-model: teacher 'template' is not a model"),
    ("relabel STORE --filters nope", "--filters: found 'nope', expected KEY=VALUE"),
    ("relabel STORE --target-vocabulary own", "--target-vocabulary: found 'own', expected one of"),
    ("relabel STORE --log none", "--log: found 'none', expected one of full, actions"),
    ("relabel STORE --config gone", "--config: cannot read gone: No such file"),
    ("relabel STORE --workers -1", "--workers: found '-1', expected 0 or more"),
    ("merge gone --out y", NO_STORE),
    ("merge STORE", "missing option '--out'"),
    ("merge STORE --out ''", "--out: found '', expected a path"),
    ("merge STORE --out STORE --workers 1", "STORE is the store that is read; choose another --out"),
    ("merge STORE --out file", "file is a file; name a folder"),
    ("merge STORE --out poisoned/x --workers 1", "is in the store .*/poisoned, expected a folder"),
    ("push gone hub:me/x", NO_STORE),
    ("push STORE", "missing argument 'hub:OWNER/NAME'"),
    ("push STORE me", "'me' names no dataset of the hub; expected hub:OWNER/NAME"),
    ("push STORE hub:a/b/c", "'hub:a/b/c' names no dataset of the hub"),
    ("plot STORE --out ''", "--out: found '', expected a path"),
    ("plot STORE --out file", "file is a file; --out names a folder"),
    ("plot ''", "DIR: found '', expected a path"),
    ("report STORE --out ''", "--out: found '', expected a path"),
    ("report STORE --env chess", "STORE holds no environment 'chess'; it holds: sokoban, frozenlake"),
    ("report STORE --limit x", "--limit: found 'x', expected a whole number"),
    ("view STORE --port 99999", "--port: found '99999', expected at most 65535"),
    ("view STORE --env chess", "STORE holds no environment 'chess'"),
    ("view STORE --limit 0", "--limit: found '0', expected 1 or more"),
    ("stats STORE --out '' --format csv", "--out: found '', expected a path"),
    ("stats gone", NO_STORE),
    ("stats STORE --sql", "option '--sql' requires an argument"),
    ("stats STORE --sql 'from modes' --format parquet", "--format parquet needs --out PATH: a file"),
    ("stats STORE --sql 'from modes' --format csv --out empty", "empty is a folder; --out of a query names the file"),
    ("stats STORE --sql 'select \udcff'", "--sql: the query is not text in UTF-8"),
    ("compare gone STORE", NO_STORE),
    ("compare STORE file", "file is a file; name a folder"),
    ("peek STORE --env ''", "holds no failure of ''"),
    ("peek STORE --png ''", "--png: found '', expected a path"),
    ("peek STORE --png x.bmp", "--png: found 'x.bmp', expected a name that ends in .png"),
    ("peek STORE a b", r"got unexpected extra argument\(s\) \(b\)"),
    ("probe STORE --gamma x", "--gamma: found 'x', expected a number"),
    ("probe STORE --format parquet", "--format: found 'parquet', expected table, csv or json"),
    ("probe STORE --format xml", "--format: found 'xml', expected one of table"),
    ("cache ''", "FILE: found '', expected a path"),
    ("doctor --model ''", "no model named; give the name that the server uses with --model"),
    ("doctor --model m --key-variable NOT_SET", "NOT_SET should hold the key of a model server"),
    ("doctor --model m --base-url ''", "base URL '' is not an address of a server"),
    ("deploy --to ''", "--to: found '', expected a path"),
    ("deploy --port 0", "--port: found '0', expected 1 or more"),
    ("serve-command ''", "MODEL: found '', expected"),
    ("serve-command ./gone", "./gone does not exist; expected a hub id, as OWNER/NAME, or a save_pretrained"),
    ("serve-command runs/sft/final", "runs/sft/final does not exist; expected a hub id"),
    ("serve-command STORE", "STORE holds no config.json, so it is not a saved model; expected a save_pretrained"),
    ("serve-command file", "file is a file, expected a hub id or a save_pretrained directory"),
    ("serve-command m --port x", "--port: found 'x', expected a whole number"),
    ("train sft STORE --model m --epochs -1 --out x", "--epochs: found '-1', expected 1 or more"),
    ("train rl sokoban --model m --out x --rollouts 1", "--rollouts: found '1', expected 2 or more"),
    ("train rl sokoban --model m --out x --engine tpu", "--engine: found 'tpu', expected one of"),
    ("evaluate frob", "no such command 'frob'; see: pivot evaluate --help"),
    ("evaluate policy", "missing argument 'DIR'"),
    ("--nope", "no such option: --nope"),
    ("export", "missing argument 'KIND': registered format"),
    ("export pairs STORE", "missing option '--out': folder of the export"),
    ("export dataset gone --out y", NO_STORE),
    ("export dataset file --out y", "file is a file; name a folder"),
    ("export dataset unfinished --out y", "its build did not finish"),
    ("export dataset STORE --out ''", "--out: found '', expected a path"),
    ("export dataset STORE --out file --workers 1", "file is a file; name a folder"),
    ("export xml STORE --out y", "KIND: found 'xml', expected one of analyzer, corrections, credit, dataset"),
    ("export dataset STORE --out y --workers x", "--workers: found 'x', expected a whole number"),
    ("export dataset STORE --out y --nope", "no such option: --nope"),
    ("merge STORE --out y --engine slurm", "--engine: found 'slurm', expected"),
    (
        "relabel STORE --only-rejected --workers 1",
        "only_rejected: teacher 'template' is not a model .* --only-rejected",
    ),
    ("relabel STORE --only-rejected --refresh --workers 1", "found both refresh and only_rejected; choose one"),
    ("relabel STORE --only-rejected=yes", "option '--only-rejected' does not take a value"),
    ("build sokoban --out x --address tcp://h:1", "--address: found 'tcp://h:1', but the engine local has no cluster"),
    ("verify STORE --engine local --address h:1", "--address: found 'h:1', but the engine local has no cluster"),
    ("probe STORE --address h:1", "--address: found 'h:1', but the engine local has no cluster"),
    (
        "build sokoban --out hub:me/x",
        "--out: hub:me/x is a dataset of the Hugging Face hub, .*: pivot push DIR hub:me/x",
    ),
    ("stats hub:me/x", "hub:me/x is a dataset of the Hugging Face hub, expected a folder"),
    ("build sokoban --out x --policy openai --model m --key-variable NOT_SET", "policy: NOT_SET .* --key-variable"),
    ("build sokoban --out x --policy openai --model m --key-variable not-a-name", "--key-variable: expected the name"),
    ("build sokoban --out x --guidance poetry", "--guidance: found 'poetry', expected one of"),
    ("evaluate analyzer m", f"{NOT_HERE}|--out DIR"),
    ("evaluate policy STORE --resamples 0", "--resamples"),
    ("evaluate baselines STORE --limit x", "--limit: found 'x', expected a whole number"),
    ("deploy --port many", "--port: found 'many', expected a whole number"),
]
"""Commands, and what their message says; ``STORE`` is a finished store."""

FAILED = {"build sokoban --out file/below", "build sokoban --out /proc/x", "peek STORE --png gone/x.png"}
"""Commands whose input is right and whose work fails: a path that cannot be written."""

PYDANTIC = re.compile(r"Input should|Value error|validation error|pydantic|type=")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that a command can be wrong about; no command changes it."""
    root = tmp_path_factory.mktemp("wrong")
    for name in ("empty", "foreign"):
        (root / name).mkdir()
    (root / "foreign" / "cat.jpg").touch()
    (root / "file").write_text("no database, no level, no recipe")
    (root / "bad.json").write_text("{")
    (root / "list.json").write_text("[1]")
    (root / "more.json").write_text('{"environments": {"sokoban": {"tasks": 1, "settings": {}}}, "colour": 1}')
    pivot.build(config_of({"sokoban": 2, "frozenlake": 2}), root / "STORE")
    shutil.copytree(root / "STORE", root / "unfinished")
    (root / "unfinished" / "manifest.json").unlink()
    poisoned = Path(shutil.copytree(root / "STORE", root / "poisoned")) / "run.json"
    record = json.loads(poisoned.read_text(encoding="utf-8"))
    record["config"]["solvers"] = {"sokoban": {"max_states": "lots"}}
    poisoned.write_text(json.dumps(record), encoding="utf-8")
    return root


def _error_of(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process as the console script would, and return its one line of error."""
    monkeypatch.setattr(cli, "atexit", SimpleNamespace(register=lambda *_: None))
    monkeypatch.setattr(sys, "argv", ["pivot", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    shown = capsys.readouterr()
    assert ended.value.code == (1 if line in FAILED else 2)
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert not PYDANTIC.search(shown.err)
    return shown.err


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_command_gets_one_line(
    line: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    before = files_of(place)
    assert re.search(message, _error_of(line, monkeypatch, capsys))
    assert files_of(place) == before


def test_a_wrong_probe_starts_no_worker(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Starting them takes seconds."""
    monkeypatch.setattr(
        importlib.import_module("pivot.flows.probe"), "pool_of", lambda *_: pytest.fail("workers were started")
    )
    for line in ("probe STORE --arm nope", "probe gone", "probe unfinished"):
        _error_of(f"{line.replace('STORE', str(place / 'STORE'))}", monkeypatch, capsys)


def test_a_folder_that_may_not_be_read_or_written(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = Path(shutil.copytree(place / "STORE", tmp_path / "closed"))
    closed.chmod(0o000)
    try:
        if os.access(closed, os.R_OK):
            pytest.skip("this user may read everything")
        for line in (f"stats {closed}", f"build sokoban --out {closed / 'below'}"):
            assert "Permission denied" in _error_of(line, monkeypatch, capsys)
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize("line", ["stats gone", "frob"])
def test_the_program_says_it_piped_and_at_80_columns(line: str, tmp_path: Path) -> None:
    command = [*CLI, *shlex.split(line)]
    piped = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=clean_environment())
    master, slave = pty.openpty()
    environment = clean_environment() | {"COLUMNS": "80", "TERM": "xterm"}
    shown = subprocess.run(command, stdout=slave, stderr=slave, check=False, cwd=tmp_path, env=environment)
    os.close(slave)
    screen = re.sub(r"\x1b\[[0-9;]*m", "", os.read(master, 100_000).decode())
    os.close(master)
    assert piped.returncode == shown.returncode > 0
    assert piped.stdout == ""
    assert piped.stderr.startswith("error: ")
    assert piped.stderr.count("\n") == 1
    assert screen.replace("\r\n", "\n") == piped.stderr
