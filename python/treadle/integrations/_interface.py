"""Whether a model of transformers asks for its attention by the interface, where register() has put treadle's."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Callable

from . import _alibi


def has_interface(cls: type) -> bool:
    """Read off the source of its module, as transformers does itself; True where there is nothing to read."""
    module = sys.modules.get(cls.__module__)
    if _alibi.is_patched(module):
        return True
    try:
        code = inspect.getsource(module)
    except (OSError, TypeError):
        return True
    own = re.search(r"^class \w*Attention\w*\(nn\.Module\):", code, re.MULTILINE)
    return not own or "ALL_ATTENTION_FUNCTIONS" in code or "AttentionInterface" in code


def _is_part(model) -> bool:
    """Whether it is one of several models, or a part of such: others may use the interface."""
    from transformers import PreTrainedModel

    if getattr(model.config, "sub_configs", None):
        return True
    frame = sys._getframe(1)
    while frame is not None:
        outer = frame.f_locals.get("self")
        if isinstance(outer, PreTrainedModel) and outer is not model:
            if getattr(outer.__dict__.get("config"), "sub_configs", None):
                return True
        frame = frame.f_back
    return False


def check(model, name: str) -> None:
    """An error for a model that would never call us; a warning for a part of one."""
    if has_interface(type(model)):
        return
    what = (
        f"{type(model).__name__} does not use transformers' attention interface: it computes attention itself, and "
        f'attn_implementation="{name}" would not reach it'
    )
    if not _is_part(model):
        raise ValueError(f'{what}. Use "sdpa" inside treadle.torch.routed_sdpa(), or "eager"')
    from transformers.utils import logging

    logging.get_logger(__name__).warning_once(f"{what}. Its other parts use treadle")


def install(name: str, attend: Callable) -> None:
    """Has models checked when they are asked to use this implementation; once."""
    from transformers import PreTrainedModel

    theirs = PreTrainedModel.get_correct_attn_implementation
    if getattr(theirs, "_of_treadle", False):
        return

    def get_correct_attn_implementation(self, requested_attention, *args, **kwargs):
        if requested_attention == name:
            _alibi.patch(name, type(self), attend)
            check(self, name)
        return theirs(self, requested_attention, *args, **kwargs)

    get_correct_attn_implementation._of_treadle = True
    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation
