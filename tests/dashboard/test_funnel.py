from typing import Any

import numpy as np
from tests.build import make_episode

from quintain.dashboard.funnel import (
    NUM_PAIRS,
    NUM_SHOWN,
    funnel_html,
    funnel_text,
    funnels,
    pairs_html,
    render_trained,
)
from quintain.types import Signals, Trajectory, Use


def row(step: int, kept: float) -> dict[str, Any]:
    return {
        "step": step, "train/loss": 0.5, "data/in": 64.0, "data/solved": 32.0, "data/<b>": kept, "data/kept": kept,
        "data/tokens": 812.0, "data/2/solved": 7.0, "data/streams_left_out": 3.0,
    }  # fmt: skip


def test_stages_stand_in_their_order_with_what_they_left() -> None:
    [found] = funnels([{"step": 0, "eval/success": 0.1}, row(1, 16.0)])
    assert found.counts == (("in", 64.0), ("solved", 32.0), ("<b>", 16.0)) and found.tokens == 812
    assert funnel_text([row(1, 16.0)]) == [
        "data of step 1:",
        "  in           64  ##############################",
        "  solved       32  ###############",
        "  <b>          16  ########",
    ]


def test_the_section_shows_the_last_step_and_all_of_them() -> None:
    html = funnel_html([row(1, 16.0), row(2, 8.0)])
    assert "Step 2: 8 of 64 examples, 812 tokens to train. All 2 steps: 24 of 128 examples." in html
    assert (
        "<th>&lt;b&gt;</th><td>8</td><td>-24</td>" in html
        and "<th>in</th><td>64</td><td></td>" in html
        and 'width="40"' in html
        and "<script" not in html
    )
    assert "All" not in funnel_html([row(1, 16.0), row(2, 16.0)])


def test_runs_without_a_pipeline_and_pipelines_without_data() -> None:
    assert funnel_html([{"step": 1}]) == "" and funnel_text([{"step": 1}]) == []
    nothing = {"step": 1, "data/in": 0.0, "data/solved": None, "data/kept": 0.0, "data/tokens": 0.0}
    assert 'width="0"' in funnel_html([nothing]) and funnel_text([nothing])[1] == "  in            0"


def test_the_episodes_that_carried_the_loss_stand_by_their_share() -> None:
    def use(name: str, *weights: float) -> Use:
        return Use(episode=name, signals=Signals(weights=np.array(weights)))

    html = render_trained([use("aa", 0.0, 0.25), use("bb", 0.25, 0.5), Use(episode="cc")])
    assert html.index("<th>bb</th><td>2</td><td>75.0%</td>") < html.index(
        "<th>aa</th><td>1</td><td>25.0%</td>"
    )
    assert "2 episodes carried the loss of that step, by the journal:" in html and "cc" not in html
    many = render_trained([use(f"{number:02}", 1.0) for number in range(NUM_SHOWN + 2)])
    assert f"; the {NUM_SHOWN} with the most of it:" in many and many.count("<td>1</td>") == NUM_SHOWN
    assert render_trained([Use(episode="cc")]) == ""


def test_both_sides_of_a_pair_stand_side_by_side() -> None:
    episodes = {name: episode(name) for name in ("aa", "bb", "cc")}
    uses = [
        Use(episode="aa", rejected="bb"), Use(episode="bb"),
        Use(episode="aa", rejected="gone"), Use(episode="cc"),
    ]  # fmt: skip
    html = pairs_html(uses, episodes.get, None)
    assert "2 pairs were compared in that step" in html and html.count('<table class="pair">') == 2
    first, second = html.split('<table class="pair">')[1:]
    assert first.index("chosen aa") < first.index("rejected bb") and first.count("<td><details") == 2
    assert "chosen aa" in second and "rejected" not in second, "it is not in the journal"
    assert pairs_html([Use(episode="aa")], episodes.get, None) == ""
    many = [Use(episode="aa", rejected="bb")] * (NUM_PAIRS + 1)
    assert pairs_html(many, episodes.get, None).count('<table class="pair">') == NUM_PAIRS


def episode(name: str) -> Trajectory:
    return make_episode(id=name)
