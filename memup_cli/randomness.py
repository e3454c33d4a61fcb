"""Streams of random numbers by name: each is a pure function of a seed, the stream's number, and what it is asked for.

So no part of memup takes numbers away from another one, and what is interrupted goes on with the same numbers. The
numbers are those of 0.1.0; where two streams share one, they are asked for different things.
"""

import numpy as np

RANDOM_POLICY = 1  # actions of a random player, while collecting
SPACE_PROBES = 3  # what an environment's spaces draw to be looked at
DETECTOR_SAMPLE = 11  # steps that the detector learns from
DETECTOR_ORDER = 12  # what of them is held out
TARGETS = 13  # by stored scores
ONLINE_TARGETS = 14  # by the model's own errors
REPLAY = 15  # which rollouts are repeated
SHOWN_TARGETS = 15  # in the report's timelines
STRETCH = 16  # which rollout of a stretch is trained
PROBE_SPLIT = 16  # which episodes the probe is tested on
EVENT_SAMPLE = 17  # what the probe learns from
PLAYED_ACTIONS = 17  # of a policy
PPO_BATCHES = 18
QRDQN_BATCHES = 19
ITERATION = 20  # seeds of the environments in an iteration
EVALUATED_EPISODES = 21
BOOTSTRAP = 22  # intervals of agents
IMITATED_BATCHES = 23
PLAYED_EPISODES = 24
GAINS = 25  # which visits prefer what the memory explains
GIVEN_POLICY = 26  # what a policy of the user's draws in an episode


def sequence(seed: int, stream: int, *place: int) -> np.random.SeedSequence:
    return np.random.SeedSequence((seed, stream, *place))


def stream(seed: int, name: int, *place: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(sequence(seed, name, *place)))
