"""What all tests of the package share: a fixed seed, and torch's flex_attention as the one to agree with."""

import os

# Some virtual machines report AMX and then refuse it: torch's own bfloat16 products, which results are compared with, end
# the process there. Has to be set before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def oracle(monkeypatch):
    """torch's flex_attention on a CPU: with gradients, and without a compiler where none are wanted."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *ignored: None)
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture
def gradients_of_torch(monkeypatch):
    """torch finds captured tensors only if its flex_attention goes through Dynamo, which takes half a second."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", False)
    yield
    torch._dynamo.reset()


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore:flex_attention called without torch.compile:UserWarning")


@pytest.fixture
def fresh_dynamo():
    """Nothing is compiled before a test, and nothing is left after it."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
