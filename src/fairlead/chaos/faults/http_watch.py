"""Reads the HTTP/1.1 of one connection, to find the responses to requests that change something."""

from fairlead.chaos.faults.postgres_watch import Passed, SwallowRule

WRITES = (b"POST ", b"PUT ", b"PATCH ", b"DELETE ")
READS = (b"GET ", b"HEAD ", b"OPTIONS ")


class HttpWatch:
    """Follows one connection: whether its last request changes something."""

    def __init__(self, rule: SwallowRule) -> None:
        self._rule = rule
        self._writes = False

    def pass_client_bytes(self, data: bytes) -> Passed:
        if data.startswith(WRITES):
            self._writes = True
        elif data.startswith(READS):
            self._writes = False
        return Passed(data)

    def pass_server_bytes(self, data: bytes) -> Passed:
        # the server answers after it has done what was asked
        if self._writes and data.startswith(b"HTTP/1.1 2") and self._rule.wants_reply():
            self._rule.count_swallowed()
            return Passed(b"", reset=True)
        return Passed(data)
