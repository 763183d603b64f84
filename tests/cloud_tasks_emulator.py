"""The Cloud Tasks emulator with what it lacks of the real service, run with the Python of its own environment.

`gcloud-tasks-emulator` has no GetTask and no DeleteTask, takes two tasks of one name, hides a task while it is dispatched, and
dispatches a queue's tasks one by one. Here a task has its name to itself, is there until it has ended, and twenty are
dispatched at the same time, as the service documents it. Its queues are those of the project `test`; a queue named `paused-…`
is paused, and one named `missing-…` does not exist.

Started with: python cloud_tasks_emulator.py PORT
"""

# mypy: ignore-errors
# ruff: noqa: N802  the service's own names

import sys
import threading
import time
from concurrent import futures
from typing import Any
from urllib import error, request

import grpc
from gcloud_tasks_emulator.cloudtasks_pb2_grpc import CloudTasksServicer, add_CloudTasksServicer_to_server
from gcloud_tasks_emulator.server import _make_task_request
from google.cloud.tasks_v2 import ListTasksResponse
from google.protobuf import empty_pb2

# The service waits for 0.1 s at least before it tries again, by its default.
RETRY_SECONDS = 0.1
DISPATCHES = 20
# The service's default.
MAX_ATTEMPTS = 100


class Tasks(CloudTasksServicer):
    """Tasks in memory, until a worker has taken each, or it has failed too often."""

    def __init__(self) -> None:
        self.tasks = {}
        self.ended = set()
        self.lock = threading.Lock()
        self.dispatchers = futures.ThreadPoolExecutor(DISPATCHES)

    def CreateTask(self, message: Any, context: Any) -> Any:
        queue = message.parent.removeprefix("projects/test/locations/here/queues/")
        if queue.startswith(("missing-", "projects/")):
            context.abort(grpc.StatusCode.NOT_FOUND, "Queue does not exist.")
        task = message.task
        with self.lock:
            if task.name in self.tasks or task.name in self.ended:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, "The task cannot be created: its name exists.")
            self.tasks[task.name] = task
        if not queue.startswith("paused-"):
            self.dispatchers.submit(self._dispatch, task)
        return task

    def GetTask(self, message: Any, context: Any) -> Any:
        with self.lock:
            task = self.tasks.get(message.name)
        if task is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "Task not found.")
        return task

    def ListTasks(self, message: Any, _context: Any) -> Any:
        with self.lock:
            found = [task for name, task in self.tasks.items() if name.startswith(f"{message.parent}/tasks/")]
        return ListTasksResponse(tasks=found)

    def DeleteTask(self, message: Any, context: Any) -> Any:
        if not self._end(message.name):
            context.abort(grpc.StatusCode.NOT_FOUND, "Task not found.")
        return empty_pb2.Empty()

    def _end(self, name: str) -> bool:
        with self.lock:
            self.ended.add(name)
            return self.tasks.pop(name, None) is not None

    def _dispatch(self, task: Any) -> None:
        with self.lock:
            if task.name not in self.tasks:
                return
            task.dispatch_count += 1
        try:
            with _make_task_request(task.name.rsplit("/", 2)[0], task, "localhost", 80):
                self._end(task.name)
        except (error.URLError, OSError):
            if task.dispatch_count == MAX_ATTEMPTS:
                self._end(task.name)
            else:
                threading.Timer(RETRY_SECONDS, self.dispatchers.submit, [self._dispatch, task]).start()


def main() -> None:
    [port] = sys.argv[1:]
    request.install_opener(request.build_opener(request.ProxyHandler({})))
    server = grpc.server(futures.ThreadPoolExecutor(8))
    add_CloudTasksServicer_to_server(Tasks(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
