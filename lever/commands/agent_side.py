"""`lever agent enrol|renew|consume|check|inbox`: what runs beside an agent, from its bundle or identity folder."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec

import click

from broker.errors import Malformed
from broker.wire import bundle as wire_bundle
from broker.wire import names, pointer, strict_json, times
from broker.wire.names import DirectiveId, Instant
from lever.agent import enrolment, renewal
from lever.agent.answers import Consumed
from lever.agent.consuming import consume as consume_once
from lever.agent.door import MAX_WAIT_S
from lever.agent.enrolment import Done, Outcome
from lever.agent.folder import IdentityFolder
from lever.agent.session import connected
