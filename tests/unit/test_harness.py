"""The settings and percentiles of the process that an independent harness starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.harness.latencies import WINDOW, Latencies
from benchmarks.harness.settings import Refused, Settings

SHARES = (0.5, 0.95, 0.99)


def test_settings_have_the_defaults_of_the_protocol() -> None:
    settings = Settings.of({})
    assert (settings.mode, settings.harness_paces, settings.batch) == ("fixed", True, 128)
    assert (settings.size, settings.work, settings.sample) == (256, 0.001, 5)
    assert not Settings.of({"PRODUCER_MODE": "depth-target"}).harness_paces
    assert not Settings.of({"PRODUCER_PACING": "adapter"}).harness_paces


@pytest.mark.parametrize(
    "given",
    [
        {"SCENARIO": "worker_only"},
        {"PRODUCER_MODE": "burst"},
        {"PRODUCER_PACING": "none"},
        {"PRODUCER_RATE": "fast"},
        {"PRODUCER_RATE": "-1"},
        {"WORKER_COUNT": "0"},
        {"SAMPLE_EVERY_S": "nan"},
    ],
)
def test_a_setting_that_is_none_is_refused_by_its_name(given: dict[str, str]) -> None:
    (name,) = given
    with pytest.raises(Refused, match=name):
        Settings.of(given)


def test_a_file_can_change_the_rate_while_the_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "rate"
    settings = Settings.of({"PRODUCER_RATE": "5", "PRODUCER_RATE_CONTROL_FILE": str(file)})
    assert settings.rate_now() == 5
    file.write_text("70.5\n")
    assert settings.rate_now() == 70.5
    file.write_text("")
    assert settings.rate_now() == 5


def test_percentiles_are_those_of_the_last_half_minute() -> None:
    latencies = Latencies()
    assert latencies.percentiles(SHARES, 0) == [0, 0, 0]
    latencies.add(9_999.0, 0.5)
    for number in range(1, 101):
        latencies.add(float(number), 10.0)
    assert latencies.percentiles(SHARES, 11.0) == [51, 96, 100]
    assert latencies.percentiles(SHARES, WINDOW + 5.0) == [50, 95, 99]
    assert latencies.percentiles(SHARES, WINDOW + 11.0) == [0, 0, 0]


def test_latencies_have_three_figures_and_so_take_little_memory() -> None:
    latencies = Latencies()
    latencies.add(12.3456, 0)
    latencies.add(-1, 0)
    assert latencies.percentiles([0.0, 1.0], 1) == [0.001, 12.3]
    for number in range(100_000):
        latencies.add(100 + number / 1_000, 1)
    ((_, counts),) = list(latencies._seconds)[1:]
    assert len(counts) <= 101
