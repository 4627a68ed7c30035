"""``reid-dist schema``."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument("kind", type=click.Choice(("pipeline", "suite", "cluster")))
def command(kind: str) -> None:
    """Print the JSON Schema of pipeline, suite or cluster files, for editors that complete and validate YAML.

    \b
    Examples:
      reid-dist schema pipeline > pipeline.schema.json
      reid-dist schema cluster > cluster.schema.json
    """
    from reid_dist.clusters import cluster_schema
    from reid_dist.evaluation.pipelines import PipelineJob
    from reid_dist.nightly.suite import Suite

    schemas = {"pipeline": PipelineJob.model_json_schema, "suite": Suite.model_json_schema, "cluster": cluster_schema}
    content = schemas[kind]()
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"reid-dist {kind} file"}
    click.echo(json.dumps({**dialect, **{name: each for name, each in content.items() if name != "title"}}, indent=2))
