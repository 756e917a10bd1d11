"""Which stories show which scenario. A story that is added here is played on the simulator and on real processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.stories import gates, lives, rulings, waiting
from tests.stories.stage import Story

STORIES: Mapping[str, tuple[Story, ...]] = {
    "control": (waiting.nothing_asked,),
    "h01": (waiting.asked_and_left,),
    "h02": (waiting.waited_on_the_stream,),
    "h03": (waiting.hours_of_silence,),
    "h04": (waiting.acknowledged_three_times,),
    "h05": (waiting.answered_before_the_wait, waiting.answered_at_once),
    "h06": (rulings.at_the_same_instant(Counter()),),
    "h07": (rulings.ruled_in_vain,),
    "h08": (rulings.ruled_badly,),
    "h09": (rulings.supervisor_dies_over_a_question,),
    "h10": (rulings.killed_between_receive_and_acknowledge,),
    "h11": (gates.completed_too_early,),
    "h12": (rulings.one_of_two_ruled,),
    "h13": (lives.taken_over, lives.taken_over_while_it_works),
    "h14": (lives.canceled_everywhere,),
    "h15": (gates.gated,),
    "h16": (gates.paused_twice,),
    "h17": (gates.deadline_passed,),
    "h18": (rulings.a_late_ruling_in_a_reused_lane,),
}
