"""The labels of a worker, as its environment has them: a fault can give it others."""

import json
from collections.abc import Mapping

from fairlead.settings import PREFIX

VARIABLE = f"{PREFIX}LABELS"


def build_label_environment(labels: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker with these labels."""
    return {VARIABLE: json.dumps([f"{name}={value}" for name, value in labels.items()])}
