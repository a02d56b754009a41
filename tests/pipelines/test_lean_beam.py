"""What Beam is spared changes nothing that it finds."""

from __future__ import annotations

import copy
from types import MethodType

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.transforms import userstate

from shardwright.pipelines.beam_patches import LeanOptions, look_for_state_once

_COUNT = userstate.ReadModifyWriteStateSpec("count", VarIntCoder())
_PARAMETER = beam.DoFn.StateParam(_COUNT)


class _Plain(beam.DoFn):
    def process(self, element: int):
        yield element


class _Counting(beam.DoFn):
    def process(self, element: int, count=_PARAMETER):
        yield element


def test_views_are_those_of_beam_and_share_their_values() -> None:
    argv = ["--runner=DirectRunner", "--direct_num_workers=3", "--unknown=1"]
    ours, beams = LeanOptions(argv), PipelineOptions(argv)
    assert ours.view_as(DirectOptions).direct_num_workers == 3
    ours.view_as(StandardOptions).runner = beams.view_as(StandardOptions).runner = "Other"
    assert ours.view_as(StandardOptions).runner == "Other"
    assert ours.get_all_options() == beams.get_all_options()
    copied = copy.deepcopy(ours)
    copied.view_as(StandardOptions).runner = "Third"
    assert copied.get_all_options()["runner"] == "Third" and ours.get_all_options()["runner"] == "Other"


def test_state_is_found_again_and_again() -> None:
    look_for_state_once()
    look_for_state_once()
    for _ in range(2):
        assert not userstate.is_stateful_dofn(_Plain())
        assert userstate.get_dofn_specs(_Counting()) == ({_COUNT}, set())
    own = _Plain()
    own.process = MethodType(_Counting.process, own)
    assert userstate.is_stateful_dofn(own), "of this object alone"
    assert not userstate.is_stateful_dofn(_Plain())
