"""The Default ablation: no targets are drawn; every step is predicted as it is read."""

from .rules import OF_SCORES, Rule

OF_TARGETS = ("targets", "random_points", "predict_every", "at_targets", "near")

CURRENT = Rule(lambda *_: "", None, idle=OF_TARGETS + OF_SCORES, because="predicts every step as it is read")
