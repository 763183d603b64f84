from typing import Any

from django.contrib import admin
from django.http import HttpResponse
from django.urls import path

from suite.tasks import noop


def enqueue(_request: Any) -> HttpResponse:
    return HttpResponse(noop.enqueue().id)


async def enqueue_async(_request: Any) -> HttpResponse:
    return HttpResponse((await noop.aenqueue()).id)


urlpatterns = [
    path("admin/", admin.site.urls),
    path("enqueue", enqueue),
    path("enqueue-async", enqueue_async),
]
