from voiceagent_tts.config import Settings
from voiceagent_tts.server.workers import worker_specs


def test_every_model_has_workers_on_every_gpu() -> None:
    """Workers of a model are of one group; the first is called as the model, others by number."""
    settings = Settings(engine="qwen3", models=("one", "two"), gpus=(0, 2), workers=2)
    specs = worker_specs(settings)
    assert [(name, spec.options["device"]) for name, spec in specs.items()] == [
        ("one", "cuda:0"),
        ("one#2", "cuda:2"),
        ("one#3", "cuda:0"),
        ("one#4", "cuda:2"),
        ("two", "cuda:0"),
        ("two#2", "cuda:2"),
        ("two#3", "cuda:0"),
        ("two#4", "cuda:2"),
    ]
    assert {spec.group for spec in specs.values()} == {"one", "two"}


def test_without_gpus_the_device_decides() -> None:
    """One worker a model, where the settings say, or where the engine finds best."""
    (spec,) = worker_specs(Settings(engine="qwen3", models=("one",), device="cpu")).values()
    assert spec.options["device"] == "cpu"
    (spec,) = worker_specs(Settings(engine="qwen3", models=("one",))).values()
    assert spec.options["device"] is None
