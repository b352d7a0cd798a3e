"""An Airflow DAG that compiles all models of a folder at a gateway every night.

Airflow retries a task that has failed or whose worker was lost: the fleet is named by the DAG's run, so a retry starts nothing that is
done. Without Airflow this file is a program that does the same: airflow_dag.py RUN_ID MODELS OUTPUT. Needs quench[client];
QUENCH_GATEWAY names the gateway.
"""

import os
import pathlib
import sys

import quench

TARGETS = ["x86-64-v3", "raspberry-pi/5"]


def compile_models(run_id: str, models: str, output: str) -> list[str]:
    """Paths of the libraries; raises quench.GatewayError if one is missing, once the others are there."""
    run = "".join(c if c.isalnum() or c in "._-" else "-" for c in run_id)
    files = {path.stem: path for path in sorted(pathlib.Path(models).rglob("*.onnx"))}
    with quench.Client(os.environ["QUENCH_GATEWAY"]) as client:
        fleet = client.compile_fleet(files, TARGETS, {"float": {"batch": 1}}, request_id=f"airflow-{run}", labels={"pipeline": "airflow"})
        try:
            fleet.watch()
        finally:
            made = fleet.download(output)
    return [str(path) for path in made]


try:
    import datetime

    from airflow.decorators import dag, task
except ImportError:
    dag = None

if dag is not None:

    @dag(schedule="0 2 * * *", start_date=datetime.datetime(2026, 1, 1), catchup=False,
         default_args={"retries": 3, "retry_delay": datetime.timedelta(minutes=1)})
    def nightly_models():
        @task
        def compile_all(run_id=None):
            return compile_models(run_id, "/data/models", "/data/libraries")

        compile_all()

    nightly_models()

if __name__ == "__main__" and dag is None:
    if len(sys.argv) != 4:
        sys.exit("usage: airflow_dag.py RUN_ID MODELS OUTPUT")
    for path in compile_models(*sys.argv[1:]):
        print(path)
