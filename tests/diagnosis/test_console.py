"""What trainers print: the forms, and the noise around them, as logs of public projects have it;
figures are ours."""

import random
import re
from pathlib import Path

import pytest
import yaml

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.facts import is_every_step
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers import console, read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.errors import DataError
from tests.work import work


def write(folder: Path, *lines: str, name: str = "train.log") -> Path:
    path = folder / name
    path.write_bytes("\n".join(lines).encode("utf-8", errors="surrogateescape"))
    return path


def the_one(path: Path) -> History:
    (history,) = read_histories(path)
    return history


def bar(step: int, total: int) -> str:
    return (
        f"\r {100 * step // total:2d}%|{'█' * (step % 9)}  | {step}/{total} "
        f"[00:{step % 60:02d}<01:00,  1.2s/it]"
    )


SUMMARY = "{'train_runtime': 250.0, 'train_steps_per_second': 0.4, 'train_loss': 0.2, 'epoch': 1.0}"


def test_dicts_amid_progress_bars(tmp_path: Path) -> None:
    """Rows every 5 steps: the bar says so; an evaluation belongs to the step before, and a sample
    is no row."""
    lines = ["[2026-01-02 10:00:00] Loading checkpoint shards: 100%|██| 2/2 [00:01<00:00]"]
    lines += ["{'lr': 1e-06, 'loss': 'dapo'}"]
    for step in range(5, 101, 5):
        row = (
            f" {{'loss': {2 - step / 100:.4f}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': "
            f"{step / 50}}}"
        )
        lines += [bar(step, 200) + row, "my reward: {'format': 1.0, 'reward': 0.0}"]
        if step % 20 == 0:
            lines += [
                (
                    f"  7%|▋  | 3/40 [00:01<00:10]{{'eval_loss': {3 - step / 100}, 'epoch': "
                    f"{step / 50}}}"
                )
            ]
    history = the_one(write(tmp_path, *lines))
    assert history.kind == "sft"
    assert history.origin == "console"
    assert history["loss"].steps.tolist() == list(range(5, 101, 5))
    assert history["eval/loss"].steps.tolist() == [20, 40, 60, 80, 100]
    assert history.settings["steps"] == 200
    assert "reward" not in history.series


@pytest.mark.parametrize("barred", [True, False])
def test_a_resumed_run_goes_back_to_where_its_bars_or_its_epochs_say(
    tmp_path: Path, barred: bool
) -> None:
    """Each row of ten steps; evaluations have bars of their own, and 101 to 130 were printed
    twice."""
    lines = []
    for resumed, step in [(0, step) for step in range(10, 131, 10)] + [
        (1, step) for step in range(110, 221, 10)
    ]:
        row = (
            f"{{'loss': {2 + resumed - step / 200:.3f}, 'grad_norm': 0.5, 'epoch': "
            f"{step / 110:.2f}}}"
        )
        lines += [bar(step, 220) if barred else "", row]
        if step % 50 == 0:
            lines += [
                bar(8, 8) if barred else "",
                f"{{'eval_loss': 1.5, 'epoch': {step / 110:.2f}}}",
            ]
    summary = SUMMARY.replace("250.0", "550.0") if not barred else ""
    loss = the_one(write(tmp_path, *lines, summary))["loss"]
    assert len(loss) == 22
    assert loss.steps.tolist() == list(range(10, 221, 10)) or not barred
    assert loss.values[[9, 10]].tolist() == [1.5, 2.45]


@pytest.mark.parametrize("bars", [(9, 19, 29), (10, 20, 30), (9, 20, 30), (10, 21, 30)])
def test_bars_of_a_fast_run_are_a_step_off(tmp_path: Path, bars: tuple[int, ...]) -> None:
    row = "{{'loss': {}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 1.0}}"
    summary = (
        "{'train_runtime': 3.0, 'train_steps_per_second': 10.0, 'train_loss': 0.2, 'epoch': 1.0}"
    )
    history = the_one(
        write(tmp_path, *(bar(at, 30) + row.format(2 - at / 100) for at in bars), summary)
    )
    assert history["loss"].steps.tolist() == [10, 20, 30]


def test_rows_that_were_held_back(tmp_path: Path) -> None:
    """In a file what is printed comes after the bars: how far steps are apart, the summary at the
    end says."""
    lines = [bar(step, 100) for step in range(1, 101)]
    lines += [
        (
            f"{{'loss': '{1 / place:.4g}', 'grad_norm': '2.386e-06', 'learning_rate': "
            f"'{1e-5 * (11 - place):.3g}'}}"
        )
        for place in range(1, 11)
    ]
    history = the_one(write(tmp_path, *lines, SUMMARY))
    assert history["loss"].steps.tolist() == list(range(10, 101, 10))
    assert history["loss"].values[1] == 0.5
    assert history["grad_norm"].values[0] == 2.386e-06
    assert history.settings["steps"] == 100


def test_steps_of_swift_say_how_many_there_will_be(tmp_path: Path) -> None:
    rows = [
        f"{{'loss': 0.{n}, 'reward': 0.5, 'global_step/max_steps': '{n}/376'}}" for n in range(5, 9)
    ]
    history = the_one(write(tmp_path, *rows))
    assert history["loss"].steps.tolist() == [5, 6, 7, 8]
    assert history.settings["steps"] == 376


def test_a_row_that_is_cut_over_lines_and_an_evaluation_without_its_mark(tmp_path: Path) -> None:
    lines = []
    for n in range(1, 9):
        lines += [
            f"{{'loss': 0.{n}, 'reward': 0.{n}, ",
            "'rewards/form",
            f"at/mean': 0.{n}, 'reward_std': 0.2}}",
            "{",
        ]
        lines += [
            (
                "{'eval_loss': 0.1, 'eval_runtime': 6.2, 'reward': 9.0, 'completions/mean_length': "
                "40.1}"
            ),
            "done",
        ]
    history = the_one(write(tmp_path, *lines))
    assert history["reward/format"].steps.tolist() == list(range(1, 9))
    assert history["reward"].values.max() == 0.8
    assert history["eval/reward"].values.tolist() == [9.0] * 8


def test_the_step_that_stands_before_a_row(tmp_path: Path) -> None:
    lines = []
    for n in range(9):
        lines += [
            (
                f"(RolloutManager pid=1) rollout {n}: {{'rollout/raw_reward': 0.{n}, "
                "'rollout/truncated': 0.1}"
            )
        ]
        lines += [
            (
                f"model.py:660 - step {n}: {{'train/loss': 0.5, 'train/grad_norm': 0.3, "
                "'train/step': "
                f"{n}}}"
            )
        ]
    history = the_one(write(tmp_path, *lines))
    assert history["reward"].steps.tolist() == history["grad_norm"].steps.tolist() == list(range(9))


def test_rows_without_bars_are_numbered_and_promise_nothing(tmp_path: Path) -> None:
    rows = [f"{{'loss': {1 / place}, 'learning_rate': 1e-5}}" for place in range(1, 8)]
    history = the_one(write(tmp_path, *rows))
    assert history.last_step == 7
    assert "steps" not in history.settings
    assert not is_every_step(history["loss"].last(5))
    barred = [f" 9%|# | {place}/7 [00:01<00:01]\r{row}" for place, row in enumerate(rows, 1)]
    assert is_every_step(the_one(write(tmp_path, *barred))["loss"])


def test_numbers_that_are_none_and_wrapped_ones(tmp_path: Path) -> None:
    numbers = "'loss': tensor(0.5, device='cuda:0'), 'grad_norm': nan, 'reward_std': -inf"
    rows = [f"{{{numbers}, 'reward': np.float64({at}.5)}}" for at in range(3)]
    history = the_one(write(tmp_path, *rows, name="run.out"))
    assert history["reward"].values.tolist() == [0.5, 1.5, 2.5]
    assert history["loss"].values[0] == 0.5
    assert [one.check for one in examine(history, CHECKS).findings if one.level == "fatal"] == [
        "not-finite"
    ]


def verl(step: int, **values: object) -> str:
    named = {
        "critic__score__mean": 0.25,
        "actor__grad_norm": 0.4,
        "response_length__clip_ratio": 0.0,
    } | values
    items = " - ".join(f"{name.replace('__', '/')}:{value}" for name, value in named.items())
    return (
        f"\x1b[36m(TaskRunner pid=386)\x1b[0m step:{step} - {items} - timing_s/step:62.0 [repeated "
        "3x]"
    )


@pytest.mark.parametrize("scale", ["1e999999", "-1e99999999999999999999", "-.e", "nan"])
@pytest.mark.parametrize("number", ["1e9999", "-inf", "nan", "0.5"])
def test_a_number_of_verl_beyond_every_exponent_is_left_out(
    tmp_path: Path, scale: str, number: str
) -> None:
    lines = [verl(step, critic__score__mean=step / 10) for step in range(1, 6)]
    lines[2] += f" - critic/kl({scale}):{number} - actor/entropy:0.5"
    history = the_one(write(tmp_path, *lines))
    assert history["reward"].steps.tolist() == [1, 2, 3, 4, 5]
    assert history["entropy"].steps.tolist() == [3]
    examine(history, CHECKS)


def test_verl(tmp_path: Path) -> None:
    """Colours and a prefix; an evaluation of the same step; a step that was made again counts as it
    was last."""
    lines = ["(TaskRunner pid=386) {'actor_rollout_ref': {'actor': {'optim': {'lr': 1e-06}}}}"]
    lines += [
        verl(step, critic__score__mean=f"np.float64({step / 10})", actor__lr="1e-06")
        for step in (1, 2, 3, 4)
    ]
    lines += [verl(4, critic__score__mean=0.9), verl(5), "step:5 - val-core/gsm8k/acc/mean@1:0.61"]
    history = the_one(write(tmp_path, *lines))
    assert history.kind == "rl"
    assert history["reward"].steps.tolist() == [1, 2, 3, 4, 5]
    assert history["reward"].values.tolist() == [0.1, 0.2, 0.3, 0.9, 0.25]
    assert history["eval/gsm8k"].values.tolist() == [0.61]


def test_a_rate_of_three_decimals_is_no_rate_of_zero(tmp_path: Path) -> None:
    """Old verl prints 1e-6 as 0.000, or as 0.010 under `actor/lr(1e-4)`."""
    lines = [
        verl(step, actor__lr="0.000", actor__kl_loss=f"0.00{step % 3}") for step in range(1, 31)
    ]
    history = the_one(write(tmp_path, *lines))
    assert "learning_rate" not in history.series
    assert 0.0 not in history["kl"].values
    scaled = [line.replace("actor/lr:0.000", "actor/lr(1e-4):0.010") for line in lines]
    assert the_one(write(tmp_path, *scaled))["learning_rate"].values[0] == pytest.approx(1e-6)
    blocks = [
        line
        for n in range(9)
        for line in (f"│ training_step │ {n} │", f"│ scores │ 0.{n}1 │", "│ lr │ 0.00 │")
    ]
    assert set(the_one(write(tmp_path, *blocks)).series) == {"reward"}
    ended = [
        f"{{'loss': '0.{n}1', 'reward': '0.5', 'learning_rate': '{'1e-05' if n < 4 else '0'}'}}"
        for n in range(9)
    ]
    assert the_one(write(tmp_path, *ended))["learning_rate"].values[-1] == 0
    ended = [f"step {n}: loss 0.{n}1, lr {'0.000010' if n < 4 else '0.000000'}" for n in range(9)]
    assert the_one(write(tmp_path, *ended))["learning_rate"].values[-1] == 0


PRINTED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("how", PRINTED)
def test_series_know_how_far_printing_rounded_them(tmp_path: Path, how: str) -> None:
    loss, reward, line, rounding = PRINTED[how]
    dice = random.Random(0)
    truth = [(dice.gauss(0.02, 0.01), dice.uniform(0.1, 1.9)) for _ in range(40)]
    lines = [
        line.format(n=n, loss=format(a, loss), reward=format(b, reward))
        for n, (a, b) in enumerate(truth, 1)
    ]
    history = the_one(write(tmp_path, *lines, name="train.jsonl" if "JSON" in how else "train.log"))
    assert history["reward"].rounding == pytest.approx(rounding)
    for at, name in enumerate(("loss", "reward")):
        off = [abs(one - pair[at]) for one, pair in zip(history[name].values, truth, strict=True)]
        assert max(off) <= history[name].rounding * 1.001


FORMS = yaml.safe_load(Path(__file__).with_name("printed.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_printed_metrics(tmp_path: Path, form: str) -> None:
    block, names = FORMS[form]["printed"], FORMS[form]["series"].split()
    noise = [
        "usage: python train.py --steps 50 --loss dapo",
        "sampled 4 answers, reward 1.0",
        "loading weights: 12 - 13",
    ]
    lines = [line for n in range(1, 10) for line in block.replace("{n}", str(n)).split("\n")]
    history = the_one(write(tmp_path, *noise, *lines))
    assert set(history.series) == set(names)
    assert (history.logged_steps, history.last_step) == (9, 9)
    assert "reward" not in names or history["reward"].steps.tolist() == list(range(1, 10))


def test_bars_of_several_epochs_are_one_run_of_the_kind_that_their_losses_tell(
    tmp_path: Path,
) -> None:
    """trlx: the metrics stand before the bar, and the loss of the values says that it is PPO."""
    bars = [
        f"[losses/loss: 0.{n} | losses/value_loss: 0.2]: 9%|█ | {n}/9 [0:01<0:09]"
        for n in range(1, 10)
    ]
    history = the_one(write(tmp_path, *bars, *bars))
    assert history.kind == "rl"
    assert history["loss"].steps.tolist() == list(range(1, 19))


def test_two_runs_in_a_file_are_two_stages(tmp_path: Path) -> None:
    """SFT, then RL whose first start ended after two rows: the start is left out."""
    sft = [
        f"{{'loss': {2 - place / 10}, 'learning_rate': 1e-5, 'epoch': {place / 10}}}"
        for place in range(1, 11)
    ]
    rl = [
        f"{{'loss': 0.0, 'reward': {place / 10}, 'reward_std': 0.2, 'epoch': {place / 10}}}"
        for place in range(1, 9)
    ]
    histories = read_histories(write(tmp_path, *sft, *rl[:2], *rl))
    assert [(one.kind, one.logged_steps) for one in histories] == [("sft", 10), ("rl", 8)]


def test_a_log_without_rows_says_what_is_known(tmp_path: Path) -> None:
    log = write(tmp_path, "=== START ===", "epoch one begins", "reward: 1.0")
    with pytest.raises(DataError, match=f"{re.escape(str(log))} .*no record") as caught:
        read_histories(log)
    assert "trainer_state.json" in caught.value.fix


def test_bytes_that_are_no_text_and_a_folder_with_one_log(tmp_path: Path) -> None:
    write(
        tmp_path,
        "\udcff\udcfe GPU 0",
        *(f"{{'loss': {n}, 'learning_rate': 1e-5}}" for n in range(5)),
        name="slurm-1.out",
    )
    write(tmp_path, "nothing here", name="notes.txt")
    assert the_one(tmp_path).logged_steps == 5


def printed(right: float) -> str:
    """A step with one group, of which so many were right."""
    alike = right in {0.0, 1.0}
    figures = {
        "grad_norm": 0.0 if alike else 0.3,
        "reward": right,
        "reward_std": 0.0 if alike else 0.4,
    }
    return str(
        {"loss": 0.0, **figures, "frac_reward_zero_std": float(alike), "learning_rate": 1e-6}
    )


@pytest.mark.parametrize(
    "piece", ["a", "a ", " ", "1", "1.", "a:", "{'", "step ", "'a': 1", "10%|"]
)
def test_a_hostile_line_takes_no_long_time(tmp_path: Path, piece: str) -> None:
    line = f"step 1 {piece * (1900 // len(piece))}x {{'a': {piece * 900}x}}"
    log = write(tmp_path, *[line] * 30)

    def refused() -> None:
        with pytest.raises(DataError):
            read_histories(log)

    assert work(refused) < 15


@pytest.mark.parametrize("piece", [" ", "│\n│ ", "\r "])
def test_blanks_take_no_long_time(piece: str) -> None:
    """A progress bar is wiped with them."""
    assert work(lambda: console.parse_lines(piece * 200_000), tries=1) < 50


def one_group_a_step(steps: int, level: float, seed: int) -> list[str]:
    """Rewards of 0 and 1 with one group of eight a step: often all alike, and the gradient 0."""
    dice = random.Random(seed)
    chances = [min(max(dice.gauss(level, 0.35), 0.0), 1.0) for _ in range(steps)]
    return [printed(sum(dice.random() < chance for _ in range(8)) / 8) for chance in chances]


@pytest.mark.parametrize("seed", range(3))
def test_one_group_a_step_is_no_fatal_fault(tmp_path: Path, seed: int) -> None:
    history = the_one(write(tmp_path, *one_group_a_step(300, 0.8, seed)))
    silent = float((history["grad_norm"].values == 0).mean())
    assert silent > 0.3
    assert not examine(history, CHECKS).fatal


def test_one_group_a_step_that_falls_silent_for_good_is_one(tmp_path: Path) -> None:
    rows = [*one_group_a_step(200, 0.6, 0), *[printed(0.0)] * 60]
    findings = examine(the_one(write(tmp_path, *rows)), CHECKS).findings
    (found,) = [one for one in findings if one.check == "no-signal"]
    assert found.level == "fatal"
    assert found.since == pytest.approx(201, abs=3)


def test_each_of_four_processes_prints_every_row(tmp_path: Path) -> None:
    rows = [
        line
        for at in range(10)
        for line in [f"{{'loss': {1 / (at + 1)}, 'learning_rate': 1e-5}}"] * 4
    ]
    assert the_one(write(tmp_path, *rows)).logged_steps == 10
    assert the_one(write(tmp_path, *[rows[0]] * 30)).logged_steps == 30


@pytest.mark.parametrize(
    "line",
    [
        "Iter {}: Train loss 0.000, Total rewards mean 0.000, Total rewards std 0.000, KL 0.000",
        (
            "step:{} - actor/entropy:0.81 - actor/grad_norm:0.1 - critic/score/mean:0.0 - "
            "critic/rewards/mean:0.0"
        ),
        "{{'loss': 0.0, 'grad_norm': 0.1, 'reward': 0.0, 'epoch': {}}}",
    ],
)
def test_a_printed_reward_that_is_always_0_is_no_signal(tmp_path, line):
    history = the_one(write(tmp_path, *(line.format(step) for step in range(1, 31))))
    assert ("no-signal", "fatal") in [
        (one.check, one.level) for one in examine(history, CHECKS).findings
    ]


def test_an_error_that_ends_a_log_is_told(tmp_path):
    rows = [f"step {n}/80: loss 0.1, reward 0.{n % 7}\n" for n in range(1, 30)]
    raised = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in right\n    float(text)\n'
    )
    error = "ValueError: could not convert string to float: '1,200'\n"
    for text, told in (("", False), (raised + error + " 45%|####     | 36/80 [1:02<2:03]", True)):
        path = tmp_path / f"{told}.log"
        path.write_text("".join(rows) + text)
        (history,) = read_histories(path)
        assert any("ValueError: could" in one for one in history.remarks) == told
